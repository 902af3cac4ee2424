package gemm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/internal/prelude"
	"github.com/seed-ee968945/concert/internal/prelude/clang"
)

// shim lets a C++ compiler take the kernel: one thread does what a block does.
const shim = `#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __shared__ static
#define LANES(n) 1
#define EXACT_MATH
static struct { unsigned x; } blockIdx, threadIdx;
static void __trap() { abort(); }
`

// memoryAt is where the tests' memory is in the program that runs the kernels.
const memoryAt = 0x200000000000

// product is a matmul on the tests' memory.
type product struct {
	call   library.Call
	params []byte
	blocks int64
}

// memory is what operands are in.
type memory struct {
	bytes []byte
	rng   *rand.Rand
}

// tensor places a tensor of small numbers behind a gap that aligns nothing.
func (m *memory) tensor(dt dtype.DType, shape []int64, order []int, step int64) library.Tensor {
	size := int64(dt.Size())
	m.bytes = append(m.bytes, make([]byte, (64-int64(len(m.bytes))%64)+size)...)
	t := library.Tensor{At: memoryAt + driver.Ptr(len(m.bytes)), DType: dt, Shape: shape, Strides: make([]int64, len(shape))}
	n := step
	for _, d := range order {
		t.Strides[d] = n
		n *= shape[d]
	}
	data := make([]byte, n*size)
	for i := range n {
		v := m.rng.IntN(7) - 3
		switch {
		case dt.IsFloat():
			dtype.StoreFloat(dt, data[i*size:], float64(v))
		case dt == dtype.Bool:
			data[i*size] = byte(v & 1)
		default:
			var word [8]byte
			binary.LittleEndian.PutUint64(word[:], uint64(v))
			copy(data[i*size:(i+1)*size], word[:])
		}
	}
	m.bytes = append(m.bytes, data...)
	return t
}

func (m *memory) host(t library.Tensor) hostops.Tensor {
	return hostops.Tensor{DType: t.DType, Shape: t.Shape, Strides: t.Strides, Data: m.bytes[t.At-memoryAt:]}
}

// The kernel gives the bits of the host's, for every element type, batches and layouts.
func TestKernel(t *testing.T) {
	gxx, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no g++: the kernel cannot be run without a GPU")
	}
	m := &memory{rng: rand.New(rand.NewPCG(1, 2))}
	types := [][3]dtype.DType{{dtype.F32, dtype.F32, dtype.F64}, {dtype.BF16, dtype.F32, dtype.F32}, {dtype.I32, dtype.F16, dtype.F16}, {dtype.I8, dtype.U8, dtype.I32}}
	for _, dt := range dtype.All() {
		types = append(types, [3]dtype.DType{dt, dt, dt})
	}
	var ps []product
	for i, dt := range types {
		for k, s := range [][4]int64{{1, 5, 7, 3}, {2, 70, 65, 33}, {3, 1, 130, 16}, {1, 66, 1, 0}} {
			b := []int64{s[0]}
			order := [][]int{{2, 1, 0}, {1, 2, 0}, {0, 1, 2}}[(i+k)%3]
			c := library.Call{Op: "matmul", Ins: []library.Tensor{m.tensor(dt[0], append(b, s[1], s[3]), order, 1+int64(k)%2), m.tensor(dt[1], append(b, s[3], s[2]), order, 1)},
				Outs: []library.Tensor{m.tensor(dt[2], append(b, s[1], s[2]), [][]int{{2, 1, 0}, {1, 2, 0}, {0, 1, 2}}[k%3], 1+int64(i)%2)}}
			if k%2 == 1 {
				c.Op, c.Attrs = "addmm", attr.Make(attr.Attr{Key: "alpha", Val: attr.Int(2)}, attr.Attr{Key: "beta", Val: attr.Int(int64(k - 2))})
				c.Ins = append([]library.Tensor{m.tensor(dt[0], []int64{s[1], 1}, []int{1, 0}, 1)}, c.Ins...)
			}
			p, err := problemOf(&c)
			if err != nil {
				t.Fatal(err)
			}
			blocks, across, tiles, _ := p.blocks()
			ps = append(ps, product{c, p.params(across, tiles), blocks})
		}
	}
	got := run(t, gxx, m, ps)
	for i := range ps {
		c := &ps[i].call
		var ins []hostops.Tensor
		for _, x := range c.Ins {
			ins = append(ins, m.host(x))
		}
		if err := hostops.Run(c.Op, c.Attrs, []hostops.Tensor{m.host(c.Outs[0])}, ins); err != nil {
			t.Fatal(err)
		}
	}
	for i := range ps {
		o, end := ps[i].call.Outs[0], len(m.bytes)
		if i+1 < len(ps) {
			end = int(slices.MinFunc(slices.Concat(ps[i+1].call.Ins, ps[i+1].call.Outs), func(a, b library.Tensor) int { return int(a.At) - int(b.At) }).At - memoryAt)
		}
		if lo := int(o.At - memoryAt); !bytes.Equal(got[lo:end], m.bytes[lo:end]) {
			t.Errorf("%s of %v %v and %v %v differs", ps[i].call.Op, ps[i].call.Ins[0].DType, ps[i].call.Ins[0].Shape, o.DType, o.Shape)
		}
	}
	if !bytes.Equal(got, m.bytes) {
		t.Error("memory differs")
	}
}

// run runs the calls by the kernel's text and gives the memory behind them.
func run(t *testing.T, gxx string, m *memory, ps []product) []byte {
	t.Helper()
	var src, body strings.Builder
	src.WriteString(prelude.Source)
	units := map[string]int{}
	for i := range ps {
		p, err := problemOf(&ps[i].call)
		if err != nil {
			t.Fatal(err)
		}
		own := strings.TrimPrefix(p.unit().Source, prelude.Source)
		n, ok := units[own]
		if !ok {
			n = len(units)
			units[own] = n
			fmt.Fprintf(&src, "\nnamespace unit%d {\n#define gemm gemm%d\n%s\n#undef gemm\n", n, n, own)
			for _, d := range []string{"A", "B", "C", "TO", "DOMAIN", "ROUND"} {
				fmt.Fprintf(&src, "#undef %s\n", d)
			}
			src.WriteString("}\n")
		}
		var words []string
		for at := 0; at < len(ps[i].params); at += 4 {
			words = append(words, fmt.Sprintf("0x%xu", binary.LittleEndian.Uint32(ps[i].params[at:])))
		}
		fmt.Fprintf(&body, "  {\n    static const unsigned words[] = {%s};\n    unit%d::args g;\n    if (sizeof g != sizeof words) return 4;\n    memcpy(&g, words, sizeof g);\n    for (blockIdx.x = 0; blockIdx.x < %d; ++blockIdx.x) unit%d::gemm%d(g);\n  }\n", strings.Join(words, ", "), n, ps[i].blocks, n, n)
	}
	clang.Check(t, "gemm.cu", src.String())
	fmt.Fprintf(&src, `
int main(int, char **a) {
  const size_t n = %d;
  char *m = (char *)mmap((void *)0x%xull, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  FILE *f = fopen(a[1], "r+b");
  if (m == MAP_FAILED || !f || fread(m, 1, n, f) != n) return 3;
%s  rewind(f);
  return fwrite(m, 1, n, f) != n || fclose(f);
}
`, len(m.bytes), memoryAt, body.String())
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	bin, mem := filepath.Join(dir, "gemm"), file("memory", m.bytes)
	if out, err := exec.Command(gxx, "-std=c++17", "-O0", "-w", "-ffp-contract=off", "-o", bin, file("gemm.cc", []byte(shim+src.String()))).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%.3000s", err, out)
	}
	if out, err := exec.Command(bin, mem).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := os.ReadFile(mem)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// What is not served and what is wrong are told apart.
func TestRefusals(t *testing.T) {
	x := library.Tensor{DType: dtype.F32, Shape: []int64{2, 3}, Strides: []int64{3, 1}}
	y := library.Tensor{DType: dtype.F32, Shape: []int64{3, 2}, Strides: []int64{2, 1}}
	z := library.Tensor{DType: dtype.F32, Shape: []int64{2, 2}, Strides: []int64{2, 1}}
	if _, err := problemOf(&library.Call{Op: "sum", Ins: []library.Tensor{x}, Outs: []library.Tensor{z}}); !errors.Is(err, library.ErrNotServed) {
		t.Error(err)
	}
	var bad *CallError
	if _, err := problemOf(&library.Call{Op: "matmul", Ins: []library.Tensor{x, x}, Outs: []library.Tensor{z}}); !errors.As(err, &bad) || bad.Error() != "matmul: [2 3] x [2 3] -> [2 2]" {
		t.Error(err)
	}
	if _, err := problemOf(&library.Call{Op: "addmm", Ins: []library.Tensor{y, x, y}, Outs: []library.Tensor{z}}); !errors.As(err, &bad) || bad.Error() != "addmm: [3 2] does not broadcast to the result's [2 2]" {
		t.Error(err)
	}
}
