package program

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/rowmajor"
)

// OpFused is the op of a launch that runs one of the program's kernels, named by
// its attribute KernelKey.
const (
	OpFused   = "fused"
	KernelKey = "kernel"
)

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
// operand of the launch, then of each result. Sizes are constants.
type Kernel struct {
	Name   string // of the function; unique in the program
	Source string // CUDA C++ of one __global__ function with C linkage, without the prelude; empty if the program has none
	// Digest is the SHA-256 of the source in hexadecimal where the source itself is
	// not at hand: the text form has only that. Empty if there is a source or none
	// was ever made.
	Digest string
	Grid   int64 // blocks
	Block  int64 // threads of each
	Shared int64 // dynamic shared memory in bytes
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
	Shape   []int64
	Strides []int64 // elements; nil means row-major without gaps
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
// of a tensor lie in; false if the tensor is malformed or larger than 2^56 bytes.
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

// inPlace reports whether parameter result may lie on parameter operand, given that
// both are the same elements. One operation alone may if it works in place. Several
// may, in whatever order and how often they are computed, if all are pointwise, what
// depends on the operand has its shape throughout, and the result alone, of all
// parameters, depends on it and is computed last.
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
	for j := range k.Body {
		s := &k.Body[j]
		if o.Pointwise != nil && !o.Pointwise(s.Op) {
			return false
		}
		depends := false
		for i := range s.Ins {
			in := &s.Ins[i]
			w := slices.IndexFunc(follows, func(t BodyTensor) bool { return t.samePlace(in) })
			if w < 0 {
				continue
			}
			if !in.sameElements(&follows[w]) {
				return false
			}
			depends = true
		}
		if !depends {
			continue
		}
		w := s.Outs[0]
		if j > at || len(s.Outs) != 1 || !slices.Equal(w.Shape, out.Shape) || w.Param >= 0 && j != at {
			return false
		}
		follows = append(follows, w)
	}
	return follows[len(follows)-1].Param == result
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
		}
		seen[k.Name] = true
		written := map[int]bool{}
		for j := range k.Body {
			if err := k.Body[j].check(written); err != nil {
				return fmt.Errorf("kernel %s: step %d (%s): %w", k.Name, j, k.Body[j].Node, err)
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

// checkFused compares a launch with the kernel that it names: every parameter that
// the body uses exists, has that type, and has the bytes that the body reaches;
// operands are only read.
func (p *Program) checkFused(in *Instr) error {
	k := p.Kernel(in)
	if k == nil {
		return fmt.Errorf("there is no kernel %q", in.Attrs.Str(KernelKey, ""))
	}
	if len(in.Attrs) != 1 || in.Group >= 0 || len(in.Outs) == 0 {
		return fmt.Errorf("a fused launch names its kernel, has results, and no group")
	}
	params := slices.Concat(in.Ins, in.Outs)
	for i := range params {
		for _, d := range params[i].Shape {
			if _, ok := d.Const(); !ok {
				return fmt.Errorf("parameter %d has the symbolic size %v", i, d)
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
		have, ok := p.Span(q)
		need, _ := Span(t.DType, t.Shape, t.Strides)
		if !ok || q.DType != t.DType || t.Offset+need > have && need > 0 {
			return fmt.Errorf("parameter %d of %d bytes of %v: the body reaches %d bytes of %v", t.Param, have, q.DType, t.Offset+need, t.DType)
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
