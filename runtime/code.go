package runtime

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/program"
)

// Code is a kernel of a module's own: several operations in one launch. A GPU runs
// the function Name of the module's source; the host runs Body. Launches give the
// sizes that are known at run time only, which the function takes behind its pointers.
type Code struct {
	Name string
	Grid int64 // blocks; those that the bounds of sizes need
	// Blocks is how many of them a launch needs, an expression over n0, n1 and so on, the
	// sizes that it gives; empty for Grid.
	Blocks string
	Block  int64 // threads of each
	Shared int64 // dynamic shared memory in bytes
	Sizes  int   // sizes that a launch gives
	Body   []CodeStep
}

// N stands in a shape of a body for size i of the launch.
func N(i int) int64 { return program.SizeParam(i) }

// at returns the kernel for the sizes of a launch, without N.
func (c *Code) at(sizes []int64) (*Code, error) {
	if len(sizes) != c.Sizes {
		return nil, fmt.Errorf("kernel %s takes %d sizes, not %d", c.Name, c.Sizes, len(sizes))
	}
	if c.Sizes == 0 {
		return c, nil
	}
	out := *c
	out.Sizes, out.Blocks = 0, ""
	if c.Blocks != "" {
		blocks, err := dim.Parse(c.Blocks)
		if err == nil {
			out.Grid, err = program.GridAt(c.Grid, blocks, sizes)
		}
		if err != nil {
			return nil, fmt.Errorf("kernel %s: %w", c.Name, err)
		}
	}
	var err error
	if out.Body, err = program.BodyAt(c.Body, sizes); err != nil {
		return nil, fmt.Errorf("kernel %s: %w", c.Name, err)
	}
	return &out, nil
}

// sized is a kernel for the sizes that it was launched with last.
type sized struct {
	sizes []int64
	code  *Code
}

// CodeStep is one operation of a Code.
type CodeStep = program.BodyStep

// CodeTensor is a tensor of a Code's body.
type CodeTensor = program.BodyTensor

// Cs is a list of tensors of a body.
type Cs = []CodeTensor

// P is a window on parameter n of a launch; strides nil: row-major without gaps.
func P(n int, off int64, d DType, shape, strides Dims) CodeTensor {
	return CodeTensor{Param: n, Offset: off, DType: d, Shape: shape, Strides: strides}
}

// T is a window on temporary n; strides nil: row-major without gaps.
func T(n int, off int64, d DType, shape, strides Dims) CodeTensor {
	return CodeTensor{Param: -1, Temp: n, Offset: off, DType: d, Shape: shape, Strides: strides}
}

// window is t at its offset from the start of its parameter or temporary.
func window(t *CodeTensor) Tensor {
	return Tensor{Off: t.Offset, DType: t.DType, Shape: t.Shape, Strides: t.Strides}
}

// Unit is what a device compiles of one module before it opens: see Spec.Units.
type Unit struct {
	Name    string // of the module
	Source  string // empty if the module has no source: its fused launches run on the host only
	Flags   []string
	Kernels []Code
}

// codesOf translates the kernels of a valid program.
func codesOf(p *program.Program) []Code {
	var out []Code
	for i := range p.Kernels {
		k := &p.Kernels[i]
		c := Code{Name: k.Name, Grid: k.Grid, Block: k.Block, Shared: k.Shared, Sizes: k.Sizes, Body: k.Body}
		if _, fixed := k.Blocks.Const(); !fixed {
			c.Blocks = k.Blocks.String()
		}
		out = append(out, c)
	}
	return out
}

// maxSizes bounds how many sizes a kernel takes.
const maxSizes = 1 << 16

// checkCodes checks that names are unique and that every step can be understood
// without its launch.
func checkCodes(codes []Code) error {
	seen := map[string]bool{}
	for i := range codes {
		c := &codes[i]
		if c.Name == "" || seen[c.Name] {
			return fmt.Errorf("kernel %q: a kernel has a name of its own", c.Name)
		}
		seen[c.Name] = true
		if c.Sizes < 0 || c.Sizes > maxSizes {
			return fmt.Errorf("kernel %s: %d sizes", c.Name, c.Sizes)
		}
		empty, err := c.at(make([]int64, c.Sizes)) // launches check sizes
		if err != nil {
			return err
		}
		for j := range empty.Body {
			if err := checkStep(&empty.Body[j]); err != nil {
				return fmt.Errorf("kernel %s: step %d (%s): %w", c.Name, j, c.Body[j].Op, err)
			}
		}
	}
	return nil
}

func checkStep(s *CodeStep) error {
	if v, bad := s.Attrs.Get(malformed); bad {
		return fmt.Errorf("malformed attributes: %v", v)
	}
	for _, t := range slices.Concat(s.Outs, s.Ins) {
		lo, _, err := window(&t).Span()
		switch {
		case err != nil:
			return err
		case lo < 0:
			return fmt.Errorf("%v lies before its start", window(&t))
		case t.Param < -1 || t.Param < 0 && t.Temp < 0:
			return fmt.Errorf("parameter %d, temporary %d", t.Param, t.Temp)
		}
	}
	return nil
}

// Place is where a tensor of a body is: parameters (operands, then results) are params;
// temporaries stay relative to their own start. The error says that the launch has no
// such parameter, or one that is too small.
func Place(t *CodeTensor, params []Tensor) (Tensor, error) {
	w := window(t)
	if t.Param < 0 {
		return w, nil
	}
	if t.Param >= len(params) {
		return w, fmt.Errorf("parameter %d of %d", t.Param, len(params))
	}
	q := params[t.Param]
	w = w.At(q.Off)
	lo, hi, err := w.Span()
	if err != nil {
		return w, err
	}
	qlo, qhi, err := q.Span()
	if err == nil && (q.DType != t.DType || lo < hi && (lo < qlo || hi > qhi)) {
		err = fmt.Errorf("parameter %d is %v, the kernel works on %v", t.Param, q, w)
	}
	return w, err
}

// Fused runs a kernel of the module's own, with the sizes that it takes.
func (x *Exec) Fused(stream, kernel string, outs, ins []Tensor, sizes ...int64) {
	x.kernel(stream, kind{op: program.OpFused, target: kernel}, nil, outs, ins, sizes)
}

// code finds the kernel of a fused launch and checks its parameters.
func (x *Exec) code(k *Kernel) error {
	if k.Target == "" {
		k.Target = k.Attrs.Str(program.KernelKey, "")
	}
	i, ok := x.l.codes[k.Target]
	if !ok {
		return fmt.Errorf("module %s has no kernel %q", x.m.Name, k.Target)
	}
	k.Attrs, k.Code, k.Unit = nil, &x.m.Kernels[i], x.l.unit
	if k.Dynamic != nil {
		k.Dynamic.code = k.Code
	}
	if err := x.l.atSizes(i, k); err != nil {
		return err
	}
	if x.l.fits(i, k) {
		return nil
	}
	params := slices.Concat(k.Ins, k.Outs)
	for j := range k.Code.Body {
		s := &k.Code.Body[j]
		for _, list := range [][]CodeTensor{s.Ins, s.Outs} {
			for n := range list {
				if _, err := Place(&list[n], params); err != nil {
					return fmt.Errorf("step %d (%s): %w", j, s.Op, err)
				}
			}
		}
		for n := range s.Outs {
			if p := s.Outs[n].Param; p >= 0 && p < len(k.Ins) {
				return fmt.Errorf("step %d (%s) writes operand %d", j, s.Op, p)
			}
		}
	}
	x.l.checked[i] = params
	return nil
}
