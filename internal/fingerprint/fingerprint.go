// Package fingerprint says in a few kilobytes what a tensor of gigabytes holds,
// well enough to measure how far two runtimes' results are apart. bench/peer_step.py
// writes the same files.
//
// The print of a tensor of n elements x[0], x[1], ... in row-major order is a count
// sketch (Charikar, Chen, Farach-Colton 2002) of all of them: Buckets sums
//
//	S[b] = sum of s(i) x[i] over the i with i mod Buckets = b
//
// where s(i) is 1 or -1 by a hash of i. Sketches are linear, and the sum of the
// squares of a sketch is, over hashes, the sum of the squares of the tensor in the
// mean, with a relative standard deviation of at most sqrt(2/Buckets): 2.2%, and 1.1%
// of the 2-norm. So the norm of the difference of two sketches estimates the norm of
// the difference of two tensors, wherever in them they differ. Tensors of at most
// Buckets elements are kept whole. Elements that are not finite count as 0 and are
// counted.
//
// A file is in the safetensors format: for output K of a function it holds
// FUNCTION/outK.sketch, f64, and FUNCTION/outK.stat, f64: the sum of squares, n, the
// numbers of NaN, of positive and of negative infinities, and how far the recording
// runtime's ordinary results are from these, if these were made with more care, else
// 0. FUNCTION/exactK.sketch and .stat are those of the same computation in float64, where there is
// one. The metadata says how the inputs were made: generator, seed, same and, as JSON by
// function, routing, as of package fillrand.
package fingerprint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/fillrand"
	"github.com/seed-ee968945/concert/internal/safetensors"
	"github.com/seed-ee968945/concert/interp"
)

// Buckets is the number of sums that Of keeps at most, the same as the peer's script.
const Buckets = 4096

// chunk is how many elements are added up at a time: a multiple of Buckets.
const chunk = 1 << 20

// Print is the fingerprint of one tensor.
type Print struct {
	Sketch  []float64 // min(Elems, Buckets) sums
	Squares float64   // sum over all finite elements
	Elems   int64
	NaN     int64    // how many elements are
	Inf     [2]int64 // how many elements are positive and negative infinities
	// Own is how far the recording runtime's ordinary results are from these, in the
	// 2-norm relative to these; 0 if these are ordinary.
	Own float64
}

// Sign is s(i): 1 or -1.
func Sign(i uint64) float64 {
	if negative(i) == 0 {
		return 1
	}
	return -1
}

// negative is bit 31 where s(i) is -1.
func negative(i uint64) uint32 {
	return fillrand.Mix(uint32(i)+uint32(i>>32)*0x9e3779b9) & (1 << 31)
}

// Of takes a tensor's fingerprint. Elements are added up in chunks of fixed size, in
// order: the result does not depend on the number of cores.
func Of(t interp.Tensor) (Print, error) {
	if err := t.Check(); err != nil {
		return Print{}, err
	}
	n, size := t.NumElems(), int64(t.DType.Size())
	p := Print{Elems: n, Sketch: make([]float64, min(n, Buckets))}
	parts := make([]Print, (n+chunk-1)/chunk)
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(runtime.GOMAXPROCS(0), len(parts)) {
		wg.Go(func() {
			for i := range next {
				at := int64(i) * chunk
				parts[i] = part(t.DType, t.Data[at*size:min(at+chunk, n)*size], uint64(at))
			}
		})
	}
	for i := range parts {
		next <- i
	}
	close(next)
	wg.Wait()
	for i := range parts {
		q := &parts[i]
		for b, v := range q.Sketch {
			p.Sketch[b] += v
		}
		p.Squares += q.Squares
		p.NaN += q.NaN
		p.Inf[0] += q.Inf[0]
		p.Inf[1] += q.Inf[1]
	}
	return p, nil
}

// part is the share of dense elements, the first of which is number from, a multiple
// of Buckets.
func part(d dtype.DType, data []byte, from uint64) Print {
	n := len(data) / d.Size()
	p := Print{Sketch: make([]float64, min(n, Buckets))}
	switch d { // the two that there are gigabytes of
	case dtype.BF16:
		for i := range n {
			p.add(i, from, float64(dtype.BF16ToF32(binary.LittleEndian.Uint16(data[2*i:]))))
		}
	case dtype.F32:
		for i := range n {
			p.add(i, from, float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))))
		}
	default:
		t := interp.Tensor{DType: d, Shape: []int64{int64(n)}, Data: data}
		for i, x := range t.Float64s() {
			p.add(i, from, x)
		}
	}
	return p
}

// add counts element from+i; from is a multiple of Buckets.
func (p *Print) add(i int, from uint64, x float64) {
	if x-x != 0 {
		p.odd(x)
		return
	}
	p.Sketch[i%Buckets] += math.Float64frombits(math.Float64bits(x) ^ uint64(negative(from+uint64(i)))<<32)
	p.Squares += x * x
}

// odd counts an element that is not finite.
func (p *Print) odd(x float64) {
	switch {
	case x > 0:
		p.Inf[0]++
	case x < 0:
		p.Inf[1]++
	default:
		p.NaN++
	}
}

// First is the first element of a tensor that is kept whole.
func (p *Print) First() (x float64, ok bool) {
	if p.Elems < 1 || p.Elems > Buckets {
		return 0, false
	}
	return Sign(0) * p.Sketch[0], true
}

// Uniform reports whether the tensor's elements are one number, which it returns, as far
// as a print tells: of tensors that are not kept whole it knows zeros and NaN only.
func (p *Print) Uniform() (x float64, ok bool) {
	finite := p.Elems - p.NaN - p.Inf[0] - p.Inf[1]
	switch {
	case p.Elems == 0:
		return 0, false
	case p.NaN == p.Elems:
		return math.NaN(), true
	case finite < p.Elems:
		return 0, false
	case p.Squares == 0:
		return 0, true
	}
	x, ok = p.First()
	for i := range p.Sketch {
		ok = ok && Sign(uint64(i))*p.Sketch[i] == x
	}
	return x, ok
}

// Compare measures how far got is from want: Rel is the estimate of the relative error
// in the 2-norm, or the relative difference of the norms if that is larger; MaxAbs is
// the largest difference of a bucket, and At the bucket. Rel is infinite if the numbers
// of elements that are not finite differ. It fails if the tensors have not the same
// number of elements.
func Compare(got, want Print) (interp.Diff, error) {
	if got.Elems != want.Elems || len(got.Sketch) != len(want.Sketch) {
		return interp.Diff{}, fmt.Errorf("fingerprint: got %d elements, want %d", got.Elems, want.Elems)
	}
	d := interp.Diff{At: -1, Bitwise: got.Squares == want.Squares && got.NaN == want.NaN && got.Inf == want.Inf}
	sum := 0.0
	for b, v := range got.Sketch {
		e := math.Abs(v - want.Sketch[b])
		sum += e * e
		d.Bitwise = d.Bitwise && v == want.Sketch[b]
		if e > d.MaxAbs {
			d.MaxAbs, d.At = e, int64(b)
		}
	}
	a, b := math.Sqrt(got.Squares), math.Sqrt(want.Squares)
	d.Rel = max(math.Sqrt(sum), math.Abs(a-b))
	if b > 0 {
		d.Rel /= b
	}
	if math.IsNaN(d.Rel) || got.NaN != want.NaN || got.Inf != want.Inf {
		d.Rel = math.Inf(1)
	}
	return d, nil
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
	// Exact has the prints of the results that float64 gives, from the same inputs, where they are known.
	Exact map[Key]Print
	// Routing says, by function, how this rank's inputs were made where routers of
	// experts had to be made decisive.
	Routing map[string]*fillrand.Routing
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

// statistics is the number of figures in a .stat.
const statistics = 6

// Write writes a file.
func (s *Set) Write(path string) error {
	f := &safetensors.File{Metadata: map[string]string{"generator": generator, "seed": strconv.FormatUint(uint64(s.Seed), 10), "same": s.Same, "buckets": strconv.Itoa(Buckets)}}
	if len(s.Routing) > 0 {
		text, err := json.Marshal(s.Routing)
		if err != nil {
			return err
		}
		f.Metadata["routing"] = string(text)
	}
	for what, prints := range s.kinds() {
		for k, p := range prints {
			name := fmt.Sprintf("%s/%s%d", k.Func, what, k.Output)
			stat := []float64{p.Squares, float64(p.Elems), float64(p.NaN), float64(p.Inf[0]), float64(p.Inf[1]), p.Own}
			for part, values := range map[string][]float64{".sketch": p.Sketch, ".stat": stat} {
				t, err := interp.FromFloats(dtype.F64, values, int64(len(values)))
				if err != nil {
					return err
				}
				f.Tensors = append(f.Tensors, safetensors.Tensor{Name: name + part, DType: t.DType, Shape: t.Shape, Data: t.Data})
			}
		}
	}
	return safetensors.WriteFile(path, f)
}

// kinds lists the prints by how a file names them.
func (s *Set) kinds() map[string]map[Key]Print {
	return map[string]map[Key]Print{"out": s.Prints, "exact": s.Exact}
}

// Read reads a file.
func Read(path string) (*Set, error) {
	f, err := safetensors.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &Set{Same: f.Metadata["same"], Prints: map[Key]Print{}, Exact: map[Key]Print{}}
	seed, err := strconv.ParseUint(f.Metadata["seed"], 10, 32)
	if err != nil || f.Metadata["generator"] != generator || f.Metadata["buckets"] != strconv.Itoa(Buckets) || s.Same != "data" && s.Same != "none" {
		return nil, fmt.Errorf("%s: metadata %v are not those of fingerprints: want generator=%s, buckets=%d, a seed, and same=data or none", path, f.Metadata, generator, Buckets)
	}
	s.Seed = uint32(seed)
	if err := s.readRouting(f.Metadata["routing"]); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, t := range f.Tensors {
		name, isStat := strings.CutSuffix(t.Name, ".stat")
		if !isStat {
			continue
		}
		what, k, err := parseKey(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		sketch, ok := f.Get(name + ".sketch")
		if !ok || sketch.DType != dtype.F64 || len(sketch.Shape) != 1 || t.DType != dtype.F64 || !slices.Equal(t.Shape, []int64{statistics}) {
			return nil, fmt.Errorf("%s: %s: want a .sketch of one dimension beside a .stat of %d, both f64", path, name, statistics)
		}
		v := interp.Tensor{DType: t.DType, Shape: t.Shape, Data: t.Data}.Float64s()
		s.kinds()[what][k] = Print{Sketch: interp.Tensor{DType: sketch.DType, Shape: sketch.Shape, Data: sketch.Data}.Float64s(),
			Squares: v[0], Elems: int64(v[1]), NaN: int64(v[2]), Inf: [2]int64{int64(v[3]), int64(v[4])}, Own: v[5]}
	}
	return s, nil
}

// readRouting reads the metadata that say how inputs were made for routers.
func (s *Set) readRouting(text string) error {
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &s.Routing); err != nil {
		return fmt.Errorf("metadata routing: %w", err)
	}
	for fn, q := range s.Routing {
		if q == nil {
			return fmt.Errorf("metadata routing: nothing for %s", fn)
		}
		if err := q.Check(); err != nil {
			return fmt.Errorf("metadata routing: %s: %w", fn, err)
		}
	}
	return nil
}

// parseKey takes a name apart: FUNCTION/outK or FUNCTION/exactK.
func parseKey(name string) (what string, k Key, err error) {
	slash := strings.LastIndex(name, "/")
	what = strings.TrimRight(name[slash+1:], "0123456789")
	n, err := strconv.Atoi(name[slash+1+len(what):])
	if slash < 0 || err != nil || what != "out" && what != "exact" {
		return "", Key{}, fmt.Errorf("tensor %s is not an output", name)
	}
	return what, Key{name[:slash], n}, nil
}
