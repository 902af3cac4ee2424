// Package fingerprint says in a few kilobytes what a tensor of gigabytes holds,
// well enough to compare two runtimes' results: some of its elements and the sum
// of its squares. bench/peer_step.py writes the same files.
//
// A file is in the safetensors format: for output K of a function it holds
// FUNCTION/outK.sample, the elements j*Step mod n for j = 0, 1, ... in row-major
// order of the tensor's n elements, in its own element type, and
// FUNCTION/outK.stat, two f64: the sum of squares and n. Step is a prime beyond
// every n in use, so that the first n samples are distinct. The metadata says how
// the inputs were made.
package fingerprint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/safetensors"
	"github.com/seed-ee968945/concert/interp"
)

// Step is the distance between samples.
const Step = 2654435761

// Samples is how many elements Of keeps at most, the same as the peer's script.
const Samples = 1024

// Print is the fingerprint of one tensor.
type Print struct {
	Sample  interp.Tensor // of one dimension
	Squares float64       // sum over all elements
	Elems   int64
}

// Of takes a tensor's fingerprint. The sum of squares is added up in chunks of
// fixed size, in order: it does not depend on the number of cores.
func Of(t interp.Tensor) (Print, error) {
	if err := t.Check(); err != nil {
		return Print{}, err
	}
	n, size := t.NumElems(), int64(t.DType.Size())
	p := Print{Elems: n, Sample: interp.Tensor{DType: t.DType, Shape: []int64{min(n, Samples)}}}
	for j := range uint64(min(n, Samples)) {
		at := int64(j*Step%uint64(n)) * size
		p.Sample.Data = append(p.Sample.Data, t.Data[at:at+size]...)
	}
	const chunk = 1 << 20
	sums := make([]float64, (n+chunk-1)/chunk)
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(runtime.GOMAXPROCS(0), len(sums)) {
		wg.Go(func() {
			for i := range next {
				at := int64(i) * chunk
				sums[i] = squares(t.DType, t.Data[at*size:min(at+chunk, n)*size])
			}
		})
	}
	for i := range sums {
		next <- i
	}
	close(next)
	wg.Wait()
	for _, s := range sums {
		p.Squares += s
	}
	return p, nil
}

// squares is the sum of squares of dense elements.
func squares(d dtype.DType, data []byte) float64 {
	sum := 0.0
	switch d { // the two that there are gigabytes of
	case dtype.BF16:
		for ; len(data) >= 2; data = data[2:] {
			x := float64(dtype.BF16ToF32(binary.LittleEndian.Uint16(data)))
			sum += x * x
		}
		return sum
	case dtype.F32:
		for ; len(data) >= 4; data = data[4:] {
			x := float64(math.Float32frombits(binary.LittleEndian.Uint32(data)))
			sum += x * x
		}
		return sum
	}
	t := interp.Tensor{DType: d, Shape: []int64{int64(len(data) / d.Size())}, Data: data}
	for _, x := range t.Float64s() {
		sum += x * x
	}
	return sum
}

// Compare measures how far got is from want: Rel is the larger of the samples'
// relative error in the 2-norm and the relative difference of the tensors' norms;
// At counts samples. It fails if they are of different tensors.
func Compare(got, want Print) (interp.Diff, error) {
	if got.Elems != want.Elems {
		return interp.Diff{}, fmt.Errorf("fingerprint: got %d elements, want %d", got.Elems, want.Elems)
	}
	n := min(got.Sample.NumElems(), want.Sample.NumElems())
	if n == 0 && got.Elems > 0 {
		return interp.Diff{}, errors.New("fingerprint: no samples")
	}
	d, err := interp.Compare(first(got.Sample, n), first(want.Sample, n))
	if err != nil {
		return d, err
	}
	d.Bitwise = d.Bitwise && got.Squares == want.Squares
	a, b := math.Sqrt(got.Squares), math.Sqrt(want.Squares)
	norm := 0.0
	switch {
	case a == b || math.IsNaN(a) && math.IsNaN(b):
	case b == 0:
		norm = math.Inf(1)
	default:
		norm = math.Abs(a-b) / b
	}
	if !(norm <= d.Rel) {
		d.Rel = norm
	}
	if math.IsNaN(d.Rel) {
		d.Rel = math.Inf(1)
	}
	return d, nil
}

// first is the first n elements of a tensor of one dimension.
func first(t interp.Tensor, n int64) interp.Tensor {
	return interp.Tensor{DType: t.DType, Shape: []int64{n}, Data: t.Data[:n*int64(t.DType.Size())]}
}

// Key is the fingerprint of which output: that of function Func, such as
// "step.fw", at a place among its outputs as traced.
type Key struct {
	Func   string
	Output int
}

// Set is the fingerprints of one rank.
type Set struct {
	// Seed and Same say how the inputs were made: see package fillrand. Same is
	// "data" if inputs of role data and of fewer than two dimensions are equal on
	// all ranks, else "none".
	Seed   uint32
	Same   string
	Prints map[Key]Print
}

// Funcs lists the functions in order.
func (s *Set) Funcs() []string {
	var out []string
	for k := range s.Prints {
		if !slices.Contains(out, k.Func) {
			out = append(out, k.Func)
		}
	}
	slices.Sort(out)
	return out
}

const generator = "fillrand"

// Write writes a file.
func (s *Set) Write(path string) error {
	f := &safetensors.File{Metadata: map[string]string{"generator": generator, "seed": strconv.FormatUint(uint64(s.Seed), 10), "same": s.Same, "step": strconv.Itoa(Step)}}
	for k, p := range s.Prints {
		name := fmt.Sprintf("%s/out%d", k.Func, k.Output)
		stat, err := interp.FromFloats(dtype.F64, []float64{p.Squares, float64(p.Elems)}, 2)
		if err != nil {
			return err
		}
		f.Tensors = append(f.Tensors,
			safetensors.Tensor{Name: name + ".sample", DType: p.Sample.DType, Shape: p.Sample.Shape, Data: p.Sample.Data},
			safetensors.Tensor{Name: name + ".stat", DType: stat.DType, Shape: stat.Shape, Data: stat.Data})
	}
	return safetensors.WriteFile(path, f)
}

// Read reads a file.
func Read(path string) (*Set, error) {
	f, err := safetensors.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &Set{Same: f.Metadata["same"], Prints: map[Key]Print{}}
	seed, err := strconv.ParseUint(f.Metadata["seed"], 10, 32)
	if err != nil || f.Metadata["generator"] != generator || f.Metadata["step"] != strconv.Itoa(Step) || s.Same != "data" && s.Same != "none" {
		return nil, fmt.Errorf("%s: metadata %v are not those of fingerprints: want generator=%s, step=%d, a seed, and same=data or none", path, f.Metadata, generator, Step)
	}
	s.Seed = uint32(seed)
	for _, t := range f.Tensors {
		name, isStat := strings.CutSuffix(t.Name, ".stat")
		if !isStat {
			continue
		}
		k, err := parseKey(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		sample, ok := f.Get(name + ".sample")
		if !ok || len(sample.Shape) != 1 || t.DType != dtype.F64 || !slices.Equal(t.Shape, []int64{2}) {
			return nil, fmt.Errorf("%s: %s: want a .sample of one dimension beside a .stat of two f64", path, name)
		}
		stat := interp.Tensor{DType: t.DType, Shape: t.Shape, Data: t.Data}.Float64s()
		s.Prints[k] = Print{interp.Tensor{DType: sample.DType, Shape: sample.Shape, Data: sample.Data}, stat[0], int64(stat[1])}
	}
	return s, nil
}

func parseKey(name string) (Key, error) {
	fn, out, ok := strings.Cut(name, "/out")
	n, err := strconv.Atoi(out)
	if !ok || err != nil || n < 0 {
		return Key{}, fmt.Errorf("tensor %s is no output", name)
	}
	return Key{fn, n}, nil
}
