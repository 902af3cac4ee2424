package fingerprint

import (
	"encoding/binary"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/fillrand"
	"github.com/seed-ee968945/concert/internal/safetensors"
	"github.com/seed-ee968945/concert/interp"
)

func filled(t testing.TB, d dtype.DType, shape ...int64) interp.Tensor {
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

func printOf(t testing.TB, x interp.Tensor) Print {
	t.Helper()
	p, err := Of(x)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The Python that the peer's script uses takes the same signs.
func TestPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	for _, first := range []uint64{0, 1 << 20, 1<<32 - 50} {
		out, err := exec.Command(python, "../../bench/sketch.py", "100", fmt.Sprint(first)).Output()
		if err != nil {
			t.Fatal(err)
		}
		var want strings.Builder
		for e := first; e < first+100; e++ {
			fmt.Fprintf(&want, "%.0f\n", Sign(e))
		}
		if string(out) != want.String() {
			t.Errorf("from %d: python says\n%.100s\nwant\n%.100s", first, out, want.String())
		}
	}
}

// Of is the definition, written down.
func TestOf(t *testing.T) {
	for _, d := range []dtype.DType{dtype.BF16, dtype.F32, dtype.F64, dtype.I64, dtype.Bool} {
		for _, shape := range [][]int64{{}, {7}, {Buckets}, {1 << 10, 1500}, {0, 3}} {
			x := filled(t, d, shape...)
			n := x.NumElems()
			want := Print{Elems: n, Sketch: make([]float64, min(n, Buckets))}
			for i, v := range x.Float64s() {
				want.Sketch[i%Buckets] += Sign(uint64(i)) * v
				want.Squares += v * v
			}
			got := printOf(t, x)
			near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), 1) })
			if diff := cmp.Diff(want, got, near); diff != "" {
				t.Errorf("%v%v: %s", d, shape, diff)
			}
			if v, ok := got.First(); ok != (n >= 1 && n <= Buckets) || ok && v != x.Float64s()[0] {
				t.Errorf("%v%v: the first element is %v %v", d, shape, v, ok)
			}
		}
	}
}

// The distance of two sketches estimates that of the tensors: of dense differences, of
// differences in a few rows, in one column, and in parts that repeat.
func TestDistance(t *testing.T) {
	const rows, columns = 512, Buckets
	x := filled(t, dtype.F32, rows, columns)
	noise := fillrand.New(7, 7, 7, 1)
	for name, amount := range map[string]func(row, column int) float32{
		"everywhere":  func(r, c int) float32 { return 1e-4 * noise.Float(uint64(r*columns+c)) },
		"one row":     func(r, c int) float32 { return map[bool]float32{true: 0.1}[r == 77] },
		"one column":  func(r, c int) float32 { return map[bool]float32{true: 0.1}[c == 77] },
		"the same":    func(r, c int) float32 { return 1e-3 },
		"by rows":     func(r, c int) float32 { return 1e-3 * noise.Float(uint64(r)) },
		"one element": func(r, c int) float32 { return map[bool]float32{true: 10}[r == 5 && c == 6] },
	} {
		y := x.Clone()
		for i := range rows * columns {
			at := y.Data[4*i:]
			v := math.Float32frombits(binary.LittleEndian.Uint32(at)) + amount(i/columns, i%columns)
			binary.LittleEndian.PutUint32(at, math.Float32bits(v))
		}
		want, err := interp.Compare(y, x)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Compare(printOf(t, y), printOf(t, x))
		if err != nil {
			t.Fatal(err)
		}
		limit := 0.05 // more than four standard deviations
		if name == "one column" {
			limit = 1.2 // all differences are in one bucket, and only the norms tell; 512 signs of one sum
		}
		if math.Abs(got.Rel-want.Rel) > limit*want.Rel {
			t.Errorf("%s: %v, want %v", name, got.Rel, want.Rel)
		}
	}
}

func TestCompare(t *testing.T) {
	x := filled(t, dtype.F32, 100, 100)
	want := printOf(t, x)
	if d, err := Compare(want, want); err != nil || !d.Bitwise || d.Rel != 0 {
		t.Errorf("equal: %v %v", d, err)
	}
	for name, bits := range map[string]uint32{"NaN": 0x7fc00000, "an infinity": 0x7f800000, "-Inf": 0xff800000} {
		y := x.Clone()
		binary.LittleEndian.PutUint32(y.Data[400:], bits)
		got := printOf(t, y)
		if d, err := Compare(got, want); err != nil || d.Bitwise || !math.IsInf(d.Rel, 1) {
			t.Errorf("one element is %s: %v %v", name, d, err)
		}
		if d, err := Compare(got, got); err != nil || !d.Bitwise || d.Rel != 0 {
			t.Errorf("both have %s: %v %v", name, d, err)
		}
	}
	// A small tensor is kept whole: the error is exact.
	a, b := filled(t, dtype.BF16, 60, 60), filled(t, dtype.BF16, 60, 60)
	b.Data[101] ^= 0x80
	exact, err := interp.Compare(b, a)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := Compare(printOf(t, b), printOf(t, a)); err != nil || math.Abs(d.Rel-exact.Rel) > 1e-12 || d.MaxAbs != exact.MaxAbs || d.At != exact.At {
		t.Errorf("%v %v, want %v", d, err, exact)
	}
	zero, _ := interp.NewTensor(dtype.F32, 100, 100)
	if d, err := Compare(want, printOf(t, zero)); err != nil || d.Rel < 0.5*math.Sqrt(want.Squares) {
		t.Errorf("nothing is expected: %v %v", d, err)
	}
	got := want
	got.Elems++
	if _, err := Compare(got, want); err == nil {
		t.Error("another size was compared")
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	s := &Set{Seed: 9, Same: "none", Prints: map[Key]Print{}, Exact: map[Key]Print{}}
	for i, d := range []dtype.DType{dtype.BF16, dtype.I64} {
		p := printOf(t, filled(t, d, 40, 40*int64(1+9*i)))
		p.Own, p.NaN, p.Inf[0], p.Inf[1] = 0.01, 1, 2, 3
		s.Prints[Key{"a.fw", i}] = p
		s.Prints[Key{"b.bw", 7 * i}] = p
		s.Exact[Key{"b.bw", 7 * i}] = printOf(t, filled(t, d, 41, 30))
	}
	if err := s.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(got.Funcs(), " ") != "a.fw b.bw" {
		t.Errorf("%v", got.Funcs())
	}
	if d := cmp.Diff(s, got); d != "" {
		t.Error(d)
	}
	if err := safetensors.WriteFile(path, &safetensors.File{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "fingerprints") {
		t.Errorf("a file without metadata: %v", err)
	}
}

func BenchmarkOf(b *testing.B) {
	x := filled(b, dtype.BF16, 1<<12, 1<<12)
	b.SetBytes(int64(len(x.Data)))
	for b.Loop() {
		if _, err := Of(x); err != nil {
			b.Fatal(err)
		}
	}
}

// A print knows what tensors are one number throughout: small ones all, large ones of
// zeros and NaN. A tensor itself knows it always.
func TestUniform(t *testing.T) {
	nan, inf, zero := math.NaN(), math.Inf(1), math.Copysign(0, -1)
	for _, c := range []struct {
		of      []float64 // repeated
		want    float64
		uniform bool
		all     bool // types other than floats hold it, too
	}{
		{of: []float64{0}, uniform: true, all: true},
		{of: []float64{0, zero}, uniform: true},
		{of: []float64{zero}, uniform: true},
		{of: []float64{1}, want: 1, uniform: true, all: true},
		{of: []float64{-3}, want: -3, uniform: true},
		{of: []float64{nan}, want: nan, uniform: true},
		{of: []float64{inf}, want: inf, uniform: true},
		{of: []float64{0, 1}, all: true},
		{of: []float64{1, -1}},
		{of: []float64{nan, 0}},
		{of: []float64{inf, 0}},
		{of: []float64{inf, nan}},
	} {
		types := []dtype.DType{dtype.F64, dtype.F32, dtype.BF16, dtype.F16}
		if c.all {
			types = append(types, dtype.Bool, dtype.U8, dtype.I64)
		}
		for _, d := range types {
			for _, n := range []int{1, 2, 7, Buckets, 2 * Buckets} {
				if n < len(c.of) {
					continue
				}
				x := make([]float64, n)
				for i := range x {
					x[i] = c.of[i%len(c.of)]
				}
				v, err := interp.FromFloats(d, x, int64(n))
				if err != nil {
					t.Fatal(err)
				}
				got, ok := v.Uniform()
				if ok != c.uniform || ok && got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
					t.Errorf("%d of %v, %v: the tensor says %v %v", n, c.of, d, got, ok)
				}
				p := printOf(t, v)
				got, ok = p.Uniform()
				known := c.uniform && (c.want == 0 || math.IsNaN(c.want) || n <= Buckets && !math.IsInf(c.want, 0))
				if ok != known || ok && got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
					t.Errorf("%d of %v, %v: the print says %v %v, want %v", n, c.of, d, got, ok, known)
				}
			}
		}
	}
	for _, shape := range [][]int64{{0}, {3, 0}} {
		v, err := interp.NewTensor(dtype.F32, shape...)
		if err != nil {
			t.Fatal(err)
		}
		p := printOf(t, v)
		if _, ok := v.Uniform(); ok {
			t.Errorf("%v is uniform", shape)
		}
		if _, ok := p.Uniform(); ok {
			t.Errorf("the print of %v is uniform", shape)
		}
	}
}
