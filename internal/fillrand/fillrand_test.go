package fillrand

import (
	"encoding/binary"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// What a program of a few lines of Python made of the definition.
var golden = []struct {
	seed              uint32
	index, rank, dims int
	e                 uint64
	hash, f32         uint32
	bf16              uint16
}{
	{1, 0, 0, 2, 0, 0x7066e39f, 0xbb8a5354, 0xbb8a},
	{1, 0, 0, 2, 1, 0x8eb65fa2, 0x3b82788e, 0x3b82},
	{1, 0, 0, 2, 2, 0x22fe4fb4, 0xbcce32af, 0xbcce},
	{1, 0, 0, 2, 1000003, 0xc50cbd8f, 0x3c9915c5, 0x3c99},
	{1, 0, 3, 2, 0, 0x3d046214, 0xbc9480b2, 0xbc95},
	{1, 0, 3, 2, 1, 0xeaf70686, 0x3ced24d9, 0x3ced},
	{1, 0, 3, 2, 4294967296, 0xe389e450, 0x3cdcadfd, 0x3cdd},
	{1, 0, 3, 2, 4294967303, 0x921ed4c2, 0x3ba0b198, 0x3ba1},
	{7, 41, 1, 1, 0, 0x86ebd900, 0x3dbfcee2, 0x3dc0},
	{7, 41, 1, 1, 5, 0x27128bb3, 0xbf9a06ed, 0xbf9a},
	{7, 41, 1, 1, 123456789, 0x5c0261f6, 0xbef959d7, 0xbef9},
	{4294967295, 0, 0, 0, 0, 0x8f3ba591, 0x3e53130f, 0x3e53},
}

func TestGolden(t *testing.T) {
	for _, g := range golden {
		s := New(g.seed, g.index, g.rank, g.dims)
		h, f := s.Hash(g.e), s.Float(g.e)
		if b := dtype.BF16FromF32(f); h != g.hash || math.Float32bits(f) != g.f32 || b != g.bf16 {
			t.Errorf("%+v: %08x %08x %04x", g, h, math.Float32bits(f), b)
		}
	}
}

// The Python that the peer's script uses makes the same numbers.
func TestPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	for _, c := range []struct{ seed, index, rank, dims, first int }{{1, 0, 0, 2, 0}, {12345, 17, 3, 1, 1 << 20}, {99, 200, 2, 4, 1<<32 - 50}} {
		args := []string{"../../bench/fillrand.py"}
		for _, v := range []int{c.seed, c.index, c.rank, c.dims, 100, c.first} {
			args = append(args, fmt.Sprint(v))
		}
		out, err := exec.Command(python, args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		var want strings.Builder
		s := New(uint32(c.seed), c.index, c.rank, c.dims)
		for e := uint64(c.first); e < uint64(c.first)+100; e++ {
			f := s.Float(e)
			fmt.Fprintf(&want, "%08x %08x %04x\n", s.Hash(e), math.Float32bits(f), dtype.BF16FromF32(f))
		}
		if string(out) != want.String() {
			t.Errorf("%+v: python says\n%.100s\nwant\n%.100s", c, out, want.String())
		}
	}
}

// Fill writes the elements in order, for every type, across chunks.
func TestFill(t *testing.T) {
	s := New(5, 2, 1, 3)
	for _, d := range dtype.All() {
		const n = 1<<18 + 1000
		data := make([]byte, n*d.Size())
		if err := s.Fill(data, d); err != nil {
			t.Fatal(err)
		}
		for _, e := range []uint64{0, 1, 1<<18 - 1, 1 << 18, n - 1} {
			at := data[int(e)*d.Size():]
			f, h := s.Float(e), s.Hash(e)
			var got, want uint64
			switch d {
			case dtype.F64:
				got, want = binary.LittleEndian.Uint64(at), math.Float64bits(float64(f))
			case dtype.F32:
				got, want = uint64(binary.LittleEndian.Uint32(at)), uint64(math.Float32bits(f))
			case dtype.F16:
				got, want = uint64(binary.LittleEndian.Uint16(at)), uint64(dtype.F16FromF32(f))
			case dtype.BF16:
				got, want = uint64(binary.LittleEndian.Uint16(at)), uint64(dtype.BF16FromF32(f))
			case dtype.I64:
				got, want = binary.LittleEndian.Uint64(at), uint64(h%256)
			case dtype.I32:
				got, want = uint64(binary.LittleEndian.Uint32(at)), uint64(h%256)
			case dtype.Bool:
				got, want = uint64(at[0]), uint64(h%2)
			case dtype.F8E8M0FNU:
				got, want = uint64(at[0]), uint64(dtype.F8FromF32(d, float32(math.Abs(float64(f)))))
			default:
				got, want = uint64(at[0]), uint64(byte(h%256))
				if d.IsFloat8() {
					want = uint64(dtype.F8FromF32(d, f))
				}
			}
			if got != want {
				t.Errorf("%v element %d is %#x, want %#x", d, e, got, want)
			}
		}
	}
	if err := s.Fill(make([]byte, 3), dtype.BF16); err == nil {
		t.Error("half an element was filled")
	}
	if err := s.Fill(nil, dtype.F32); err != nil {
		t.Error(err)
	}
}

// The floats are what they are said to be, and inputs and ranks differ.
func TestDistribution(t *testing.T) {
	const n = 1 << 16
	for _, c := range []struct {
		dims int
		std  float64
	}{{1, 1}, {2, 0.02}} {
		s, other := New(3, 4, 0, c.dims), New(3, 4, 1, c.dims)
		var sum, squares, cross float64
		for e := range uint64(n) {
			f := float64(s.Float(e))
			sum, squares, cross = sum+f, squares+f*f, cross+f*float64(other.Float(e))
		}
		if mean := sum / n / c.std; math.Abs(mean) > 0.02 {
			t.Errorf("mean %v of the deviation", mean)
		}
		if std := math.Sqrt(squares/n) / c.std; math.Abs(std-1) > 0.01 {
			t.Errorf("deviation %v of what it should be", std)
		}
		if r := cross / squares; math.Abs(r) > 0.02 {
			t.Errorf("ranks correlate by %v", r)
		}
	}
}

func BenchmarkFill(b *testing.B) {
	data := make([]byte, 32<<20)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		New(1, 0, 0, 2).Fill(data, dtype.BF16)
	}
}
