package cudagen_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/prelude/clang"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/types"
	"github.com/seed-ee968945/concert/lower/cudagen"
)

// A trial is one kernel with inputs and what the host's kernels make of them.
type trial struct {
	name     string
	k        *cudagen.Kernel
	st       *ir.Storages
	ins      []buffer // one for each input of the function
	want     []want   // parallel to k.Outs
	over     []int    // parallel to k.Outs: the input that is donated to it, -1 for none
	args     []int64  // sizes that the kernel takes
	together bool     // threads of a block run at once
	ulp      int64    // largest distance allowed without EXACT_MATH, in units of the last place; -1: a share of the result's largest element
}

type buffer struct {
	storage ir.StorageID
	data    []byte
}

// want is a result as the interpreter gives it: dense.
type want struct {
	t       interp.Tensor
	strides []int64
	bytes   int64 // from the first element to past the last
}

// newTrial runs f by the interpreter, node by node, and generates the kernel of all its nodes, whose
// operands have to be views of its inputs and whose results it has to return; sizes are those that
// are dynamic.
func newTrial(name string, f *ir.Func, ulp int64, seed uint64, sizes map[string]int64) (*trial, error) {
	st, err := ir.ComputeStorages(f)
	if err != nil {
		return nil, err
	}
	order := f.Order()
	k, err := cudagen.Generate(name, st, order[len(f.Inputs()):len(order)-1])
	if err != nil {
		return nil, err
	}
	return newTrialAt(k, st, f, ulp, seed, sizes)
}

// newTrialAt is newTrial of a kernel that is there, with dynamic sizes.
func newTrialAt(k *cudagen.Kernel, st *ir.Storages, f *ir.Func, ulp int64, seed uint64, sizes map[string]int64) (*trial, error) {
	tr := &trial{name: k.Name, k: k, st: st, ulp: ulp}
	for _, d := range k.Sizes {
		n, ok := d.Eval(func(s string) (int64, bool) { n, ok := sizes[s]; return n, ok })
		if !ok {
			return nil, fmt.Errorf("size %s has no value", d)
		}
		tr.args = append(tr.args, n)
	}
	if len(sizes) > 0 {
		tr.name += fmt.Sprint(" at ", sizes)
	}
	ranks := []map[string]int64{sizes}
	if len(sizes) == 0 {
		ranks = nil
	}
	inputs, err := interp.RandomInputs(f, seed, interp.RandomOptions{Symbols: ranks})
	if err != nil {
		return nil, err
	}
	for i, n := range f.Inputs() {
		tr.ins = append(tr.ins, buffer{st.Of(n.Result(0))[0].Storage, laidOut(n.Result(0).Type(), inputs[0][i].Shape, stridesAt(n.Result(0).Type(), sizes), inputs[0][i].Data)})
	}
	outs, err := interp.Run(context.Background(), f, inputs, interp.Options{Symbols: ranks})
	if err != nil {
		return nil, err
	}
	for _, v := range tr.k.Outs {
		w := want{strides: stridesAt(v.Type(), sizes), bytes: int64(v.Type().DType().Size())}
		found := false
		for i, r := range f.Return().Args() {
			if r == v {
				w.t, found = outs[0][i], true
			}
		}
		if !found {
			return nil, fmt.Errorf("%s is not returned", v)
		}
		over := -1
		for _, d := range f.Donations() {
			if f.Return().Arg(d.Result) == v {
				over = d.Input.At()
			}
		}
		tr.over = append(tr.over, over)
		for d, s := range w.strides {
			w.bytes += (w.t.Shape[d] - 1) * s * int64(w.t.DType.Size())
		}
		if w.t.NumElems() == 0 {
			w.bytes = 0
		}
		tr.want = append(tr.want, w)
	}
	return tr, nil
}

// stridesAt are a type's strides for values of its symbols.
func stridesAt(t ir.Type, symbols map[string]int64) []int64 {
	out := make([]int64, t.Rank())
	for d, s := range t.SymbolicStrides() {
		out[d], _ = s.Eval(func(name string) (int64, bool) { n, ok := symbols[name]; return n, ok })
	}
	return out
}

// laidOut is the storage of an input whose dense elements are given, in its layout.
func laidOut(t ir.Type, sizes, strides []int64, dense []byte) []byte {
	if t.Contiguous() {
		return dense
	}
	size := t.DType().Size()
	n, _ := types.Reach(sizes, strides)
	out := make([]byte, n*int64(size))
	for e := 0; e < len(dense)/size; e++ {
		off, rest := int64(0), int64(e)
		for d := len(sizes) - 1; d >= 0; d-- {
			off += rest % sizes[d] * strides[d]
			rest /= sizes[d]
		}
		copy(out[off*int64(size):], dense[e*size:(e+1)*size])
	}
	return out
}

// blocks is how many blocks find something to do.
func (t *trial) blocks() int64 {
	n, ok := t.k.Blocks.Eval(func(name string) (int64, bool) {
		for i, v := range t.args {
			if name == fmt.Sprint("n", i) {
				return v, true
			}
		}
		return 0, false
	})
	if _, fixed := t.k.Blocks.Const(); fixed || !ok {
		return t.k.Grid
	}
	return min(n, t.k.Grid)
}

// shim lets a C++ compiler take a kernel: a block's threads run one after the
// other, and rows are walked by one lane.
const shim = `#ifndef __CUDACC__
#include <math.h>
#include <stdlib.h>
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __shared__ static
#define LANES(n) 1
static struct { unsigned x; } blockIdx, threadIdx;
static void __trap() { abort(); }
#endif
`

// harness reads and writes buffers, and runs kernels on a GPU or, one thread after the other, on
// the host.
const harness = `
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __CUDACC__
static void check(cudaError_t e, const char* what) { if (e) { fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e)); exit(1); } }
static char* make(size_t n) { char* p; check(cudaMalloc(&p, n + 16), "malloc"); check(cudaMemset(p, 0, n + 16), "memset"); return p; }
static void up(char* d, const char* s, size_t n) { check(cudaMemcpy(d, s, n, cudaMemcpyHostToDevice), "up"); }
static void down(char* d, const char* s, size_t n) { check(cudaMemcpy(d, s, n, cudaMemcpyDeviceToHost), "down"); }
#define RUN(k, grid, block, lanes, ...) do { if (grid) k<<<grid, block>>>(__VA_ARGS__); check(cudaDeviceSynchronize(), #k); } while (0)
#else
static char* make(size_t n) { char* p = (char*)aligned_alloc(64, (n + 64) / 64 * 64); memset(p, 0, n); return p; }
static void up(char* d, const char* s, size_t n) { memcpy(d, s, n); }
static void down(char* d, const char* s, size_t n) { memcpy(d, s, n); }
#define RUN(k, grid, block, lanes, ...) \
  for (blockIdx.x = 0; blockIdx.x < (grid); ++blockIdx.x) \
    for (threadIdx.x = 0; threadIdx.x < (block) / (lanes); ++threadIdx.x) k(__VA_ARGS__)
#endif
static FILE *in, *out;
static char* read_buffer(size_t n) {
  char* h = (char*)malloc(n + 1);
  if (fread(h, 1, n, in) != n) exit(2);
  char* d = make(n);
  up(d, h, n);
  free(h);
  return d;
}
static void write_buffer(const char* d, size_t n) {
  char* h = (char*)malloc(n + 1);
  down(h, d, n);
  if (fwrite(h, 1, n, out) != n) exit(2);
  free(h);
}
`

// program is a translation unit that runs all trials: it reads every input from
// its first argument and writes every result to its second.
func program(trials []*trial) string { return programOf(shim+cudagen.Prelude()+harness, trials) }

// programOf is program with another text before the kernels.
func programOf(head string, trials []*trial) string {
	var b strings.Builder
	b.WriteString(head)
	written := map[*cudagen.Kernel]bool{} // look-up only
	for _, t := range trials {
		if !written[t.k] {
			b.WriteString("\n" + t.k.Body)
		}
		written[t.k] = true
	}
	b.WriteString("\nint main(int argc, char** argv) {\n  if (argc != 3 || !(in = fopen(argv[1], \"rb\")) || !(out = fopen(argv[2], \"wb\"))) return 2;\n")
	for _, t := range trials {
		t.call(&b)
	}
	b.WriteString("  return fclose(out);\n}\n")
	return b.String()
}

// call writes a block that runs the trial.
func (t *trial) call(b *strings.Builder) {
	b.WriteString("  {\n")
	for i, x := range t.ins {
		fmt.Fprintf(b, "    char* in%d = read_buffer(%d);\n", i, len(x.data))
	}
	var args []string
	for i, w := range t.want {
		if at := t.over[i]; at >= 0 {
			fmt.Fprintf(b, "    char* o%d = in%d;\n", i, at)
			continue
		}
		fmt.Fprintf(b, "    char* o%d = make(%d);\n", i, w.bytes)
	}
	for _, v := range t.k.Ins {
		p := t.st.Of(v)[0]
		for i, x := range t.ins {
			if x.storage == p.Storage {
				args = append(args, fmt.Sprintf("(const %s*)(in%d + %d)", ctype(v), i, p.Offset*int64(v.Type().DType().Size())))
			}
		}
	}
	for i, v := range t.k.Outs {
		args = append(args, fmt.Sprintf("(%s*)o%d", ctype(v), i))
	}
	for _, n := range t.args {
		args = append(args, fmt.Sprint(n))
	}
	fmt.Fprintf(b, "    RUN(%s, %d, %d, %d, %s);\n", t.k.Name, t.blocks(), t.k.Block, t.k.Lanes, strings.Join(args, ", "))
	for i, w := range t.want {
		fmt.Fprintf(b, "    write_buffer(o%d, %d);\n", i, w.bytes)
	}
	b.WriteString("  }\n")
}

// compiles checks that the kernels' text is CUDA's, in one translation unit.
func compiles(t *testing.T, trials []*trial) {
	t.Helper()
	var b strings.Builder
	b.WriteString(cudagen.Prelude())
	written := map[*cudagen.Kernel]bool{} // look-up only
	for _, t := range trials {
		if !written[t.k] {
			b.WriteString("\n" + t.k.Body)
		}
		written[t.k] = true
	}
	clang.Check(t, t.Name(), b.String())
}

func ctype(v *ir.Value) string {
	if v.Type().DType() == ir.Bool {
		return "b8"
	}
	return v.Type().DType().String()
}

// inputs are the bytes that the program reads.
func inputs(trials []*trial) []byte {
	var b []byte
	for _, t := range trials {
		for _, x := range t.ins {
			b = append(b, x.data...)
		}
	}
	return b
}

// compare checks the bytes that the program wrote. exact asks for equal bits.
func compare(t *testing.T, trials []*trial, got []byte, exact bool) {
	t.Helper()
	for _, tr := range trials {
		for i, w := range tr.want {
			if int64(len(got)) < w.bytes {
				t.Fatalf("%s: the output ends early", tr.name)
			}
			limit := tr.ulp
			switch {
			case exact:
				limit = 0
			case tr.together && limit >= 0:
				limit = max(limit, sumUnits(w.t.DType))
			}
			if limit < 0 {
				if e, most := deviation(w, got); !(e <= most) {
					t.Errorf("%s: result %d (%s) is %g of its largest element off, at most %g is allowed\n%s", tr.name, i, tr.k.Outs[i], e, most, tr.k.Body)
				}
				got = got[w.bytes:]
				continue
			}
			worst, at := distance(w, got)
			if worst > limit {
				t.Errorf("%s: result %d (%s) is %d units in the last place off at element %d, at most %d are allowed\n%s", tr.name, i, tr.k.Outs[i], worst, at, limit, tr.k.Body)
			}
			got = got[w.bytes:]
		}
	}
	if len(got) != 0 {
		t.Errorf("%d bytes left over", len(got))
	}
}

// distance is the largest distance of an element from what it should be.
func distance(w want, got []byte) (worst, at int64) {
	size := int64(w.t.DType.Size())
	n := w.t.NumElems()
	for e := range n {
		off, rest := int64(0), e
		for d := len(w.t.Shape) - 1; d >= 0; d-- {
			off += rest % w.t.Shape[d] * w.strides[d]
			rest /= w.t.Shape[d]
		}
		a, b := ordinal(w.t.DType, w.t.Data[e*size:]), ordinal(w.t.DType, got[off*size:])
		if d := max(a-b, b-a); d > worst {
			worst, at = d, e
		}
	}
	return worst, at
}

// deviation is the largest difference of an element from what it should be, as a
// share of the largest element, and what is allowed: a rounding of the type or two,
// and what sums in single precision lose.
func deviation(w want, got []byte) (worst, most float64) {
	size := int64(w.t.DType.Size())
	most = map[dtype.DType]float64{dtype.BF16: 1.0 / 128, dtype.F16: 1.0 / 1024, dtype.F32: 2e-5}[w.t.DType]
	largest := 0.0
	for e := range w.t.NumElems() {
		off, rest := int64(0), e
		for d := len(w.t.Shape) - 1; d >= 0; d-- {
			off += rest % w.t.Shape[d] * w.strides[d]
			rest /= w.t.Shape[d]
		}
		a, b := number(w.t.DType, w.t.Data[e*size:]), number(w.t.DType, got[off*size:])
		if !math.IsInf(a, 0) && a == a {
			largest = math.Max(largest, math.Abs(a))
		}
		if a == b || a != a && b != b {
			continue
		}
		worst = math.Max(worst, math.Abs(a-b))
	}
	if worst == 0 {
		return 0, most
	}
	return worst / largest, most
}

// number is an element of a tensor.
func number(d dtype.DType, b []byte) float64 {
	le := binary.LittleEndian
	switch d {
	case dtype.F32:
		return float64(math.Float32frombits(le.Uint32(b)))
	case dtype.BF16:
		return float64(math.Float32frombits(uint32(le.Uint16(b)) << 16))
	}
	return float64(ordinal(d, b))
}

// ordinal numbers the values of a type in ascending order, all NaNs alike.
func ordinal(d dtype.DType, b []byte) int64 {
	le := binary.LittleEndian
	flip := func(v uint64, bits uint) int64 {
		if v>>(bits-1) != 0 {
			return -int64(v &^ (1 << (bits - 1)))
		}
		return int64(v)
	}
	switch d {
	case dtype.F32:
		if v := math.Float32frombits(le.Uint32(b)); v != v {
			return math.MaxInt32
		}
		return flip(uint64(le.Uint32(b)), 32)
	case dtype.F64:
		if v := math.Float64frombits(le.Uint64(b)); v != v {
			return math.MaxInt64 / 4
		}
		return flip(le.Uint64(b), 64) / 2
	case dtype.BF16:
		if h := le.Uint16(b); h&0x7fff > 0x7f80 {
			return math.MaxInt16
		}
		return flip(uint64(le.Uint16(b)), 16)
	case dtype.F16:
		if h := le.Uint16(b); h&0x7fff > 0x7c00 {
			return math.MaxInt16
		}
		return flip(uint64(le.Uint16(b)), 16)
	case dtype.I64:
		return int64(le.Uint64(b))
	case dtype.I32:
		return int64(int32(le.Uint32(b)))
	}
	if d.IsFloat8() {
		if v := dtype.F8ToF32(d, b[0]); v != v {
			return math.MaxInt8
		}
		return flip(uint64(b[0]), 8)
	}
	return int64(b[0])
}

// runOnHost compiles the trials with the machine's C++ compiler and runs them.
func runOnHost(t *testing.T, trials []*trial, flags ...string) []byte {
	t.Helper()
	return runText(t, program(trials), trials, flags...)
}

// runText is runOnHost of the program's text.
func runText(t *testing.T, text string, trials []*trial, flags ...string) []byte {
	t.Helper()
	cc, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no g++: generated kernels cannot be run without a GPU")
	}
	dir := t.TempDir()
	src, exe, in, out := filepath.Join(dir, "k.cc"), filepath.Join(dir, "k"), filepath.Join(dir, "in"), filepath.Join(dir, "out")
	write(t, src, []byte(text))
	write(t, in, inputs(trials))
	args := append([]string{"-std=c++17", "-O0", "-w", "-ffp-contract=off", "-ftrivial-auto-var-init=pattern", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
		"-fno-sanitize=null,object-size,vptr", "-fno-exceptions", "-fno-asynchronous-unwind-tables", "-o", exe, src}, flags...) // null to vptr: address finds them
	run := func(more ...string) ([]byte, error) {
		if msg, err := exec.Command(cc, append(args, more...)...).CombinedOutput(); err != nil {
			lines := bytes.SplitN(msg, []byte("\n"), 30)
			t.Fatalf("g++: %v\n%s", err, bytes.Join(lines, []byte("\n")))
		}
		cmd := exec.Command(exe, in, out)
		cmd.Env = append(os.Environ(), "ASAN_OPTIONS=detect_leaks=0") // buffers live as long as the process
		return cmd.CombinedOutput()
	}
	// Messages of what is undefined are a fifth of the compiler's time: only what fails gets them.
	if _, err := run("-fsanitize-undefined-trap-on-error"); err != nil {
		msg, again := run()
		t.Fatalf("generated kernels: %v, with messages %v\n%s", err, again, msg)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
}
