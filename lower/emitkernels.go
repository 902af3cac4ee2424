package lower

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/program"
)

// EmitCUDA prints the CUDA source of a program's kernels: one translation unit. It
// is what emitted Go embeds. A program without source is an error: one that was
// lowered without Options.Kernels, has no kernels, or was read from its text form.
func EmitCUDA(p *program.Program) ([]byte, error) {
	s := p.Source()
	if s == "" {
		return nil, errors.New("emit: the program has no CUDA source")
	}
	return []byte(s), nil
}

// opsOf lists the operations of a kernel for a comment.
func opsOf(k *program.Kernel) string {
	const most = 8
	var ops []string
	for i := range k.Body {
		if i == most {
			ops = append(ops, fmt.Sprintf("%d more", len(k.Body)-most))
			break
		}
		ops = append(ops, k.Body[i].Op)
	}
	return strings.Join(ops, "+")
}

// kernels declares what the fused launches run.
func (e *emitter) kernels() {
	if len(e.p.Kernels) == 0 {
		return
	}
	e.printf("// kernels is what the fused launches run.\nfunc kernels() []rt.Code {\nreturn []rt.Code{\n")
	for i := range e.p.Kernels {
		k := &e.p.Kernels[i]
		e.printf("{Name: %q, ", k.Name)
		if k.Source != "" {
			e.printf("Grid: %d, ", k.Grid)
			if _, fixed := k.Blocks.Const(); !fixed {
				e.printf("Blocks: %q, ", k.Blocks.String())
			}
			e.printf("Block: %d, ", k.Block)
			if k.Shared > 0 {
				e.printf("Shared: %d, ", k.Shared)
			}
		}
		if k.Sizes > 0 {
			e.printf("Sizes: %d, ", k.Sizes)
		}
		e.printf("Body: []rt.CodeStep{\n")
		for j := range k.Body {
			e.bodyStep(&k.Body[j])
		}
		e.printf("}},\n")
	}
	e.printf("}\n}\n\n")
}

func (e *emitter) bodyStep(s *program.BodyStep) {
	e.printf("{Op: %q, ", s.Op)
	if len(s.Attrs) > 0 {
		e.printf("Attrs: ")
		e.attrs(s.Attrs)
		e.printf(", ")
	}
	if s.Node != "" {
		e.printf("Node: %q, ", s.Node)
	}
	e.printf("Outs: ")
	e.bodyTensors(s.Outs)
	if len(s.Ins) > 0 {
		e.printf(", Ins: ")
		e.bodyTensors(s.Ins)
	}
	e.printf("},\n")
}

func (e *emitter) bodyTensors(ts []program.BodyTensor) {
	e.printf("rt.Cs{")
	for i := range ts {
		t := &ts[i]
		if i > 0 {
			e.printf(", ")
		}
		what, n := "rt.P", t.Param
		if t.Param < 0 {
			what, n = "rt.T", t.Temp
		}
		strides := "nil"
		if t.Strides != nil {
			strides = bodyDims(t.Strides)
		}
		e.printf("%s(%d, %d, %s, %s, %s)", what, n, t.Offset, goDType(t.DType), bodyDims(t.Shape), strides)
	}
	e.printf("}")
}

// bodyDims spells the shape or the strides of a body's tensor.
func bodyDims(list []int64) string {
	parts := make([]string, len(list))
	for d, n := range list {
		parts[d] = strconv.FormatInt(n, 10)
		if n < 0 {
			parts[d] = fmt.Sprintf("rt.N(%d)", -1-n)
		}
	}
	return "rt.Dims{" + strings.Join(parts, ", ") + "}"
}
