package program

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/rowmajor"
)

// OpFused is the op of a launch that runs one of the program's kernels, named by
// its attribute KernelKey.
const (
	OpFused   = "fused"
	KernelKey = "kernel"
)

// InMatmulKey is the attribute of an all_gather that a device should do within the matmul that takes its
// rows next, or of a reduce_scatter that it should do within the matmul directly before it, of its operand, if it has
// a kernel for that. The results are the same, but what such a reduce_scatter leaves of its operand is undefined.
const InMatmulKey = "in_matmul"

// SizesKey is the attribute of such a launch with the sizes that its kernel takes,
// expressions over the program's symbols: as many as Kernel.Sizes.
const SizesKey = "sizes"

// SizeParam stands in a shape of a kernel's body for size i of the launch, whose value
// is known at run time only.
func SizeParam(i int) int64 { return -1 - int64(i) }

// Unit is what the kernels of a program are compiled with: one translation unit is
// the prelude and the sources of all kernels behind it.
type Unit struct {
	Prelude string   // source
	Flags   []string // compiler options that the kernels' numbers rely on
	Digest  string   // of a prelude that is not at hand, see Kernel.Digest
}

// Kernel is several operations in one launch: as source for a GPU, and as the
// operations themselves for whoever has no compiler. Both give the same bits up to
// what the source's transcendental functions are off.
//
// The parameters of the function are a pointer to element (0, 0, ...) of each
// operand of the launch, then of each result, then a 64-bit integer for each size that
// is known at run time only.
type Kernel struct {
	Name   string // of the function; unique in the program
	Source string // CUDA C++ of one __global__ function with C linkage, without the prelude; empty if the program has none
	// Digest is the SHA-256 of the source in hexadecimal where the source itself is
	// not at hand: the text form has only that. Empty if there is a source or none
	// was ever made.
	Digest string
	Grid   int64 // blocks; those that the bounds of sizes need
	// Blocks is how many of them find something to do, over the names n0, n1 and so on of
	// the sizes that a launch gives; a number stands for Grid.
	Blocks dim.Dim
	Block  int64 // threads of each
	Shared int64 // dynamic shared memory in bytes
	Sizes  int   // sizes that a launch gives, see SizeParam
	Body   []BodyStep
}

// BodyStep is one operation of a kernel.
type BodyStep struct {
	Op        string
	Attrs     attr.List
	Node      string // of the IR, for messages; of one region if several share the kernel
	Ins, Outs []BodyTensor
}

// BodyTensor is a tensor of a kernel's body: a window on a parameter, or on
// temporary memory that nobody else sees.
type BodyTensor struct {
	Param   int   // number among operands and results of the launch, operands first; -1 for temporary memory
	Temp    int   // number of the temporary, of Param -1
	Offset  int64 // bytes from element (0, 0, ...) of the parameter, or from the temporary's start
	DType   dtype.DType
	Shape   []int64 // sizes; negative ones are those of SizeParam
	Strides []int64 // elements, likewise; nil means row-major without gaps
}

// At returns the kernel's body for given sizes, without SizeParam. The error says which size
// is missing or negative.
func (k *Kernel) At(sizes []int64) ([]BodyStep, error) {
	if len(sizes) != k.Sizes {
		return nil, fmt.Errorf("kernel %s takes %d sizes, the launch has %d", k.Name, k.Sizes, len(sizes))
	}
	if k.Sizes == 0 {
		return k.Body, nil
	}
	body, err := BodyAt(k.Body, sizes)
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", k.Name, err)
	}
	return body, nil
}

// BodyAt returns a body with given sizes in place of SizeParam. The error says which size is
// missing or negative.
func BodyAt(body []BodyStep, sizes []int64) ([]BodyStep, error) {
	out := slices.Clone(body)
	for i := range out {
		for _, ts := range [2]*[]BodyTensor{&out[i].Ins, &out[i].Outs} {
			*ts = slices.Clone(*ts)
			for j := range *ts {
				t := &(*ts)[j]
				var err error
				if t.Shape, err = sizesAt(t.Shape, sizes); err != nil {
					return nil, err
				}
				if t.Strides, err = sizesAt(t.Strides, sizes); err != nil {
					return nil, err
				}
			}
		}
	}
	return out, nil
}

// GridAt is how many blocks a launch with given sizes needs. The error says that the sizes
// give no number of blocks.
func (k *Kernel) GridAt(sizes []int64) (int64, error) {
	return GridAt(k.Grid, k.Blocks, sizes)
}

// GridAt is how many of a grid's blocks find something to do with given sizes, see
// Kernel.Blocks. The error says that the sizes give no number of blocks.
func GridAt(grid int64, blocks dim.Dim, sizes []int64) (int64, error) {
	if _, fixed := blocks.Const(); fixed {
		return grid, nil
	}
	n, ok := blocks.Eval(func(name string) (int64, bool) {
		i, ok := sizeNumber(name)
		if !ok || i >= len(sizes) {
			return 0, false
		}
		return sizes[i], true
	})
	if !ok || n < 0 {
		return 0, fmt.Errorf("%v blocks with the sizes %v", blocks, sizes)
	}
	return min(n, grid), nil
}

// sizesAt returns a shape or strides with the given sizes in place of SizeParam. The error says which
// size is missing or negative.
func sizesAt(list, sizes []int64) ([]int64, error) {
	if !slices.ContainsFunc(list, func(n int64) bool { return n < 0 }) {
		return list, nil
	}
	out := slices.Clone(list)
	for d, n := range list {
		if n >= 0 {
			continue
		}
		if -1-n >= int64(len(sizes)) || sizes[-1-n] < 0 {
			return nil, fmt.Errorf("size parameter %d of %d in %v", -1-n, len(sizes), list)
		}
		out[d] = sizes[-1-n]
	}
	return out, nil
}

// Sizes returns the sizes that a launch of op "fused" gives its kernel. The error is that of
// the attribute, which is no dimension.
func (in *Instr) Sizes() ([]dim.Dim, error) {
	var out []dim.Dim
	for _, s := range in.Attrs.Strs(SizesKey) {
		d, err := dim.Parse(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", SizesKey, err)
		}
		out = append(out, d)
	}
	return out, nil
}

// SourceDigest is the SHA-256 of the source in hexadecimal, empty if there is none.
func (k *Kernel) SourceDigest() string { return digestOf(k.Source, k.Digest) }

// PreludeDigest is the SHA-256 of the prelude in hexadecimal, empty if there is none.
func (u *Unit) PreludeDigest() string { return digestOf(u.Prelude, u.Digest) }

func digestOf(source, digest string) string {
	if source == "" {
		return digest
	}
	h := sha256.Sum256([]byte(source))
	return hex.EncodeToString(h[:])
}

// Source is the translation unit of all kernels, empty if the program has none or
// was read from its text form, which has no source.
func (p *Program) Source() string {
	if p.Unit.Prelude == "" || len(p.Kernels) == 0 {
		return ""
	}
	b := []byte(p.Unit.Prelude)
	for i := range p.Kernels {
		if p.Kernels[i].Source == "" {
			return ""
		}
		b = append(append(b, '\n'), p.Kernels[i].Source...)
	}
	return string(b)
}

// Kernel returns the kernel that a launch of op "fused" runs, nil for any other
// instruction and where there is none of that name.
func (p *Program) Kernel(in *Instr) *Kernel {
	if in.Kind != Launch || in.Op != OpFused {
		return nil
	}
	name := in.Attrs.Str(KernelKey, "")
	i := slices.IndexFunc(p.Kernels, func(k Kernel) bool { return k.Name == name })
	if i < 0 {
		return nil
	}
	return &p.Kernels[i]
}

// Span is the half-open range of bytes, from element (0, 0, ...), that the elements
// of a tensor are in; false if the tensor is malformed or larger than 2^56 bytes.
// No stride is negative.
func Span(d dtype.DType, shape, strides []int64) (bytes int64, ok bool) {
	if !d.Valid() || strides != nil && len(strides) != len(shape) {
		return 0, false
	}
	const most = 1 << 56
	last, run := int64(0), int64(1)
	empty := false
	for i := len(shape) - 1; i >= 0; i-- {
		stride := run
		if strides != nil {
			stride = strides[i]
		}
		n := shape[i]
		if n < 0 || stride < 0 {
			return 0, false
		}
		if n == 0 {
			empty = true
			continue
		}
		if n > 1 && stride > (most-last)/(n-1) || n > most/run {
			return 0, false
		}
		last += (n - 1) * stride
		run *= n
	}
	if empty {
		return 0, true
	}
	size := int64(d.Size())
	if last >= most/size {
		return 0, false
	}
	return (last + 1) * size, true
}

// inPlace reports whether parameter result may be on parameter operand, given that
// both are the same elements. One operation alone may if it works in place. Several
// may if what depends on the operand, the result among it, is pointwise and has its shape
// throughout, and nothing behind the result reads the operand: a kernel's thread then reads
// its elements of the operand before it writes them, and what another has read of them it
// does not use.
func (k *Kernel) inPlace(operand, result int, o *CheckOptions) bool {
	at := slices.IndexFunc(k.Body, func(s BodyStep) bool {
		return slices.ContainsFunc(s.Outs, func(t BodyTensor) bool { return t.Param == result })
	})
	if at < 0 || len(k.Body[at].Outs) != 1 {
		return false
	}
	out := &k.Body[at].Outs[0]
	if len(k.Body) == 1 {
		for i := range k.Body[0].Ins {
			in := &k.Body[0].Ins[i]
			s := &k.Body[0]
			if in.Param == operand && (!in.sameElements(out) || o.InPlace != nil && !o.InPlace(&Instr{Kind: Launch, Op: s.Op, Attrs: s.Attrs, Event: -1, Group: -1}, i)) {
				return false
			}
		}
		return true
	}
	follows := []BodyTensor{*out} // what depends on the operand, each as it was written
	follows[0].Param = operand
	found := false
	for j := range k.Body {
		s := &k.Body[j]
		depends := false
		for i := range s.Ins {
			in := &s.Ins[i]
			w := slices.IndexFunc(follows, func(t BodyTensor) bool { return t.samePlace(in) })
			if w < 0 {
				continue
			}
			if !in.sameElements(&follows[w]) || w == 0 && j > at {
				return false
			}
			depends = true
		}
		if !depends {
			continue
		}
		if o.Pointwise != nil && !o.Pointwise(s.Op) || len(s.Outs) != 1 || !slices.Equal(s.Outs[0].Shape, out.Shape) {
			return false
		}
		follows = append(follows, s.Outs[0])
		found = found || j == at
	}
	return found
}

// samePlace reports whether both are windows on one parameter or one temporary.
func (t *BodyTensor) samePlace(u *BodyTensor) bool {
	return t.Param == u.Param && (t.Param >= 0 || t.Temp == u.Temp)
}

// sameElements reports whether two windows, each on its own start, are alike.
func (t *BodyTensor) sameElements(u *BodyTensor) bool {
	return t.Offset == u.Offset && t.DType == u.DType && slices.Equal(t.Shape, u.Shape) && slices.Equal(stridesOf(t), stridesOf(u))
}

// stridesOf returns the strides, computing those of a tensor without gaps.
func stridesOf(t *BodyTensor) []int64 {
	if t.Strides != nil {
		return t.Strides
	}
	return rowmajor.Strides(t.Shape)
}

// checkKernels checks names and bodies; the launches check the parameters.
func (p *Program) checkKernels() error {
	seen := map[string]bool{}
	for i := range p.Kernels {
		k := &p.Kernels[i]
		switch {
		case k.Name == "" || seen[k.Name]:
			return fmt.Errorf("kernel %q: a kernel has a name of its own", k.Name)
		case k.SourceDigest() != "" && (k.Grid < 0 || k.Block < 1 || k.Shared < 0):
			return fmt.Errorf("kernel %s: %d blocks of %d threads with %d bytes of shared memory", k.Name, k.Grid, k.Block, k.Shared)
		case len(k.Body) == 0:
			return fmt.Errorf("kernel %s: has no operation", k.Name)
		case k.Sizes < 0 || k.Sizes > maxTemps:
			return fmt.Errorf("kernel %s: takes %d sizes", k.Name, k.Sizes)
		}
		seen[k.Name] = true
		// Launches check sizes; here none are in the way.
		body, err := k.At(make([]int64, max(k.Sizes, 0)))
		if err != nil {
			return err
		}
		if _, err := k.GridAt(make([]int64, max(k.Sizes, 0))); err != nil {
			return fmt.Errorf("kernel %s: %w", k.Name, err)
		}
		written := map[int]bool{}
		for j := range body {
			if err := body[j].check(written); err != nil {
				return fmt.Errorf("kernel %s: step %d (%s): %w", k.Name, j, body[j].Node, err)
			}
		}
	}
	return nil
}

// check checks one step; written collects the temporaries with a value.
func (s *BodyStep) check(written map[int]bool) error {
	if s.Op == "" || s.Op == OpFused {
		return fmt.Errorf("the operation is %q", s.Op)
	}
	for i := range s.Ins {
		t := &s.Ins[i]
		if err := t.check(); err != nil {
			return fmt.Errorf("operand %d: %w", i, err)
		}
		if t.Param < 0 && !written[t.Temp] {
			return fmt.Errorf("operand %d: nothing before has written temporary %d", i, t.Temp)
		}
	}
	for i := range s.Outs {
		if err := s.Outs[i].check(); err != nil {
			return fmt.Errorf("result %d: %w", i, err)
		}
		if t := &s.Outs[i]; t.Param < 0 {
			written[t.Temp] = true
		}
	}
	return nil
}

// maxTemps bounds the numbers of temporaries.
const maxTemps = 1 << 20

func (t *BodyTensor) check() error {
	n, ok := Span(t.DType, t.Shape, t.Strides)
	switch {
	case !ok:
		return fmt.Errorf("shape %v with strides %v of %v", t.Shape, t.Strides, t.DType)
	case t.Param < -1 || t.Param < 0 && (t.Temp < 0 || t.Temp >= maxTemps):
		return fmt.Errorf("parameter %d, temporary %d", t.Param, t.Temp)
	case t.Offset < 0 || t.Offset > math.MaxInt64-n:
		return fmt.Errorf("offset %d", t.Offset)
	}
	return nil
}

// With is t as a tensor with the sizes that a launch gives, as many as the kernel takes.
func (t *BodyTensor) With(sizes []dim.Dim) *Tensor {
	q := &Tensor{DType: t.DType, Shape: dimsOf(t.Shape, sizes)}
	if t.Strides != nil {
		q.Strides = dimsOf(t.Strides, sizes)
	}
	return q
}

// dimsOf are sizes or strides with those of a launch in place of SizeParam.
func dimsOf(list []int64, sizes []dim.Dim) []dim.Dim {
	out := make([]dim.Dim, len(list))
	for i, n := range list {
		out[i] = dim.New(n)
		if n < 0 {
			out[i] = sizes[-1-n]
		}
	}
	return out
}

// checkFused compares a launch with the kernel that it names: every parameter that
// the body uses exists, has that type, and has the bytes that the body reaches, for
// every value of the symbols; operands are only read.
func (p *Program) checkFused(in *Instr) error {
	k := p.Kernel(in)
	if k == nil {
		return fmt.Errorf("there is no kernel %q", in.Attrs.Str(KernelKey, ""))
	}
	if len(in.Attrs.Without(SizesKey)) != 1 || in.Group >= 0 || len(in.Outs) == 0 {
		return fmt.Errorf("a fused launch names its kernel and its sizes, has results, and no group")
	}
	dims, err := in.Sizes()
	if err != nil {
		return err
	}
	for _, d := range dims {
		if _, ok := p.Bound(d); !ok {
			return fmt.Errorf("size %v has no bound, or may be negative", d)
		}
	}
	if len(dims) != k.Sizes {
		return fmt.Errorf("kernel %s takes %d sizes, the launch has %d", k.Name, k.Sizes, len(dims))
	}
	params := slices.Concat(in.Ins, in.Outs)
	for i := range params {
		for _, d := range params[i].Shape {
			if _, ok := d.Const(); !ok && k.Sizes == 0 {
				return fmt.Errorf("parameter %d has the symbolic size %v, and the kernel takes none", i, d)
			}
		}
	}
	param := func(t *BodyTensor) error {
		switch {
		case t.Param < 0:
			return nil
		case t.Param >= len(params):
			return fmt.Errorf("parameter %d of %d", t.Param, len(params))
		}
		q := &params[t.Param]
		have, ok := p.Extent(q)
		need, ok2 := p.Extent(t.With(dims))
		room, ok3 := p.Bounds(have.Sub(need).Sub(dim.New(t.Offset)))
		if zero := need.Equal(dim.New(0)); !ok || !ok2 || q.DType != t.DType || !zero && (!ok3 || room.Min < 0) {
			most, _ := p.Bounds(have)
			reach, _ := p.Bounds(need.Add(dim.New(t.Offset)))
			return fmt.Errorf("parameter %d of %d bytes of %v: the body reaches %d bytes of %v", t.Param, most.Max, q.DType, reach.Max, t.DType)
		}
		return nil
	}
	for i := range k.Body {
		s := &k.Body[i]
		for _, list := range [][]BodyTensor{s.Ins, s.Outs} {
			for j := range list {
				if err := param(&list[j]); err != nil {
					return fmt.Errorf("kernel %s: step %d (%s): %w", k.Name, i, s.Node, err)
				}
			}
		}
		for j := range s.Outs {
			if t := &s.Outs[j]; t.Param >= 0 && t.Param < len(in.Ins) {
				return fmt.Errorf("kernel %s: step %d (%s) writes operand %d", k.Name, i, s.Node, t.Param)
			}
		}
	}
	return nil
}
