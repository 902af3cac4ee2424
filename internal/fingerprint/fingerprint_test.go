package fingerprint

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/fillrand"
	"github.com/seed-ee968945/concert/internal/safetensors"
	"github.com/seed-ee968945/concert/interp"
)

func filled(t *testing.T, d dtype.DType, shape ...int64) interp.Tensor {
	t.Helper()
	x, err := interp.NewTensor(d, shape...)
	if err != nil {
		t.Fatal(err)
	}
	if err := fillrand.New(1, 2, 3, len(shape)).Fill(x.Data, d); err != nil {
		t.Fatal(err)
	}
	return x
}

func TestOf(t *testing.T) {
	for _, d := range []dtype.DType{dtype.BF16, dtype.F32, dtype.F64, dtype.I64, dtype.Bool} {
		for _, shape := range [][]int64{{}, {7}, {1 << 10, 1500}, {0, 3}} {
			x := filled(t, d, shape...)
			p, err := Of(x)
			if err != nil {
				t.Fatal(err)
			}
			vals, n := x.Float64s(), x.NumElems()
			want := 0.0
			for _, v := range vals {
				want += v * v
			}
			if p.Elems != n || math.Abs(p.Squares-want) > 1e-9*want {
				t.Errorf("%v%v: %d elements, squares %v, want %v", d, shape, p.Elems, p.Squares, want)
			}
			got := p.Sample.Float64s()
			if int64(len(got)) != min(n, Samples) {
				t.Fatalf("%v%v: %d samples", d, shape, len(got))
			}
			for j := range got {
				if at := uint64(j) * Step % uint64(n); got[j] != vals[at] {
					t.Fatalf("%v%v: sample %d is not element %d", d, shape, j, at)
				}
			}
		}
	}
}

func TestCompare(t *testing.T) {
	x := filled(t, dtype.F32, 100, 100)
	want, err := Of(x)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := Compare(want, want); err != nil || !d.Bitwise || d.Rel != 0 {
		t.Errorf("equal: %v %v", d, err)
	}
	// An element that is no sample shows in the norm.
	at := 0
	sampled := map[uint64]bool{}
	for j := range uint64(Samples) {
		sampled[j*Step%10000] = true
	}
	for sampled[uint64(at)] {
		at++
	}
	y := x.Clone()
	copy(y.Data[4*at:], []byte{0, 0, 0x80, 0x3f}) // 1
	got, _ := Of(y)
	if d, err := Compare(got, want); err != nil || d.Bitwise || d.Rel < 0.01 {
		t.Errorf("one element is 1: %v %v", d, err)
	}
	copy(y.Data[4*at:], []byte{0, 0, 0xc0, 0x7f}) // NaN
	got, _ = Of(y)
	if d, err := Compare(got, want); err != nil || !math.IsInf(d.Rel, 1) {
		t.Errorf("one element is NaN: %v %v", d, err)
	}
	got = want
	got.Elems++
	if _, err := Compare(got, want); err == nil {
		t.Error("another size was compared")
	}
	got = want
	got.Sample.DType = dtype.I32
	if _, err := Compare(got, want); err == nil {
		t.Error("another type was compared")
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	s := &Set{Seed: 9, Same: "none", Prints: map[Key]Print{}}
	for i, d := range []dtype.DType{dtype.BF16, dtype.I64} {
		p, err := Of(filled(t, d, 40, 40))
		if err != nil {
			t.Fatal(err)
		}
		s.Prints[Key{"a.fw", i}] = p
		s.Prints[Key{"b.bw", 7 * i}] = p
	}
	if err := s.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Seed != 9 || got.Same != "none" || len(got.Prints) != 4 || strings.Join(got.Funcs(), " ") != "a.fw b.bw" {
		t.Errorf("%+v", got)
	}
	for k, p := range s.Prints {
		if d, err := Compare(got.Prints[k], p); err != nil || !d.Bitwise {
			t.Errorf("%v: %v %v", k, d, err)
		}
	}
	if err := safetensors.WriteFile(path, &safetensors.File{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "fingerprints") {
		t.Errorf("a file without metadata: %v", err)
	}
}
