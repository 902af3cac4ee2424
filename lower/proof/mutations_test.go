package proof_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dim"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
)

// mutation is a way in which a program could be wrong: it changes instruction i of a copy, or
// returns false.
type mutation struct {
	name  string
	apply func(r *rand.Rand, p *program.Program, i int) bool
}

// pick is one of several tensors of an instruction.
func pick(r *rand.Rand, ts []program.Tensor) *program.Tensor {
	if len(ts) == 0 {
		return nil
	}
	return &ts[r.IntN(len(ts))]
}

// shifted moves a tensor by one element; its buffer grows if it has to.
func shifted(r *rand.Rand, p *program.Program, t *program.Tensor) bool {
	if t == nil {
		return false
	}
	by := int64(t.DType.Size())
	if t.Offset >= by && r.IntN(2) == 0 {
		by = -by
	}
	t.Offset += by
	n, _ := p.Span(t)
	if b := p.Buffers[t.Buffer]; t.Offset+n > b.Size {
		p.Buffers = slices.Clone(p.Buffers)
		p.Buffers[t.Buffer].Size += by
		p.Arena = max(p.Arena, (b.Offset+b.Size+by+program.Align-1)/program.Align*program.Align)
	}
	return true
}

// elsewhere moves a tensor to another buffer that has room for it.
func elsewhere(r *rand.Rand, p *program.Program, t *program.Tensor) bool {
	if t == nil {
		return false
	}
	n, _ := p.Span(t)
	for range 20 {
		b := r.IntN(len(p.Buffers))
		if b != t.Buffer && p.Buffers[b].Size >= n && n > 0 {
			t.Buffer, t.Offset = b, 0
			return true
		}
	}
	return false
}

// crooked gives a tensor other strides within the bytes that it has.
func crooked(r *rand.Rand, t *program.Tensor) bool {
	if t == nil {
		return false
	}
	sizes, ok := ir.Shape(t.Shape).Static()
	if !ok || len(sizes) == 0 {
		return false
	}
	s, _ := ir.Shape(t.SymbolicStrides()).Static()
	i, j := r.IntN(len(s)), r.IntN(len(s))
	if i != j && sizes[i] > 1 && sizes[j] > 1 {
		s[i], s[j] = s[j], s[i]
	} else if s[i] > 0 && sizes[i] > 1 {
		s[i]--
	} else {
		return false
	}
	t.Strides = ir.Dims(s...)
	return true
}

func computes(in *program.Instr) bool {
	return in.Kind != program.Record && in.Kind != program.Wait
}

func kernelOf(p *program.Program, i int) *program.Kernel {
	k := p.Kernel(&p.Instrs[i])
	if k == nil {
		return nil
	}
	k.Body = slices.Clone(k.Body)
	for j := range k.Body {
		k.Body[j].Ins, k.Body[j].Outs = slices.Clone(k.Body[j].Ins), slices.Clone(k.Body[j].Outs)
	}
	return k
}

var mutations = []mutation{
	{"swapped operands", func(r *rand.Rand, p *program.Program, i int) bool {
		ts := p.Instrs[i].Ins
		if len(ts) < 2 {
			return false
		}
		a := r.IntN(len(ts) - 1)
		ts[a], ts[a+1] = ts[a+1], ts[a]
		return fmt.Sprint(ts[a]) != fmt.Sprint(ts[a+1])
	}},
	{"swapped results", func(r *rand.Rand, p *program.Program, i int) bool {
		ts := p.Instrs[i].Outs
		if len(ts) < 2 {
			return false
		}
		a := r.IntN(len(ts) - 1)
		ts[a], ts[a+1] = ts[a+1], ts[a]
		return true
	}},
	{"operand off by one element", func(r *rand.Rand, p *program.Program, i int) bool { return shifted(r, p, pick(r, p.Instrs[i].Ins)) }},
	{"result off by one element", func(r *rand.Rand, p *program.Program, i int) bool { return shifted(r, p, pick(r, p.Instrs[i].Outs)) }},
	{"operand from another buffer", func(r *rand.Rand, p *program.Program, i int) bool { return elsewhere(r, p, pick(r, p.Instrs[i].Ins)) }},
	{"result in another buffer", func(r *rand.Rand, p *program.Program, i int) bool { return elsewhere(r, p, pick(r, p.Instrs[i].Outs)) }},
	{"wrong strides of an operand", func(r *rand.Rand, p *program.Program, i int) bool { return crooked(r, pick(r, p.Instrs[i].Ins)) }},
	{"wrong strides of a result", func(r *rand.Rand, p *program.Program, i int) bool { return crooked(r, pick(r, p.Instrs[i].Outs)) }},
	{"dropped instruction", func(_ *rand.Rand, p *program.Program, i int) bool {
		in := &p.Instrs[i]
		*in = program.Instr{Kind: program.Record, Stream: in.Stream, Event: p.Events, Group: -1}
		p.Events++
		return true
	}},
	{"repeated instruction", func(_ *rand.Rand, p *program.Program, i int) bool {
		p.Instrs = slices.Insert(p.Instrs, i, p.Instrs[i])
		return true
	}},
	{"swapped instructions", func(_ *rand.Rand, p *program.Program, i int) bool {
		for j := i + 1; j < len(p.Instrs); j++ {
			if computes(&p.Instrs[j]) && p.Instrs[j].Stream == p.Instrs[i].Stream {
				p.Instrs[i], p.Instrs[j] = p.Instrs[j], p.Instrs[i]
				return true
			}
		}
		return false
	}},
	{"wrong group", func(r *rand.Rand, p *program.Program, i int) bool {
		in := &p.Instrs[i]
		g := r.IntN(len(p.Groups) + 1)
		if in.Group < 0 || g == len(p.Groups) || g == in.Group || p.Groups[g].Size() != p.Groups[in.Group].Size() {
			return false
		}
		in.Group = g
		return true
	}},
	{"wrong ranks of a group", func(r *rand.Rand, p *program.Program, i int) bool {
		if p.Instrs[i].Group < 0 {
			return false
		}
		p.Groups = slices.Clone(p.Groups)
		g := &p.Groups[p.Instrs[i].Group]
		g.Ranks = slices.Clone(g.Ranks)
		l := slices.Clone(g.Ranks[0])
		if len(l) < 2 {
			return false
		}
		l[0], l[1] = l[1], l[0]
		g.Ranks[0] = l
		return true
	}},
	{"wrong attribute", func(r *rand.Rand, p *program.Program, i int) bool {
		in := &p.Instrs[i]
		var ok bool
		in.Attrs, ok = other(r, in.Attrs)
		return ok
	}},
	{"wrong operation", func(_ *rand.Rand, p *program.Program, i int) bool {
		to, ok := map[string]string{"add": "sub", "sub": "add", "mul": "add", "maximum": "minimum", "neg": "abs", "relu": "neg", "sum": "mean", "mean": "sum", "tanh": "sigmoid", "matmul": "", "copy": ""}[p.Instrs[i].Op]
		p.Instrs[i].Op = to
		return ok && to != ""
	}},
	{"another kernel", func(r *rand.Rand, p *program.Program, i int) bool {
		if p.Kernel(&p.Instrs[i]) == nil || len(p.Kernels) < 2 {
			return false
		}
		name := p.Kernels[r.IntN(len(p.Kernels))].Name
		if name == p.Instrs[i].Attrs.Str(program.KernelKey, "") {
			return false
		}
		p.Instrs[i].Attrs = p.Instrs[i].Attrs.With(program.KernelKey, attr.String(name))
		return true
	}},
	{"kernel: swapped operands", func(r *rand.Rand, p *program.Program, i int) bool {
		k := kernelOf(p, i)
		if k == nil {
			return false
		}
		s := &k.Body[r.IntN(len(k.Body))]
		if len(s.Ins) < 2 {
			return false
		}
		s.Ins[0], s.Ins[1] = s.Ins[1], s.Ins[0]
		return fmt.Sprint(s.Ins[0]) != fmt.Sprint(s.Ins[1])
	}},
	{"kernel: another operand", func(r *rand.Rand, p *program.Program, i int) bool {
		k := kernelOf(p, i)
		if k == nil || len(p.Instrs[i].Ins) < 2 {
			return false
		}
		s := &k.Body[r.IntN(len(k.Body))]
		if len(s.Ins) == 0 || s.Ins[0].Param < 0 || s.Ins[0].Param >= len(p.Instrs[i].Ins) {
			return false
		}
		s.Ins[0].Param = (s.Ins[0].Param + 1) % len(p.Instrs[i].Ins)
		return true
	}},
	{"kernel: operand off by one element", func(r *rand.Rand, p *program.Program, i int) bool {
		k := kernelOf(p, i)
		if k == nil {
			return false
		}
		s := &k.Body[r.IntN(len(k.Body))]
		if len(s.Ins) == 0 {
			return false
		}
		t := &s.Ins[r.IntN(len(s.Ins))]
		by := int64(t.DType.Size())
		if t.Offset >= by {
			by = -by
		}
		t.Offset += by
		return true
	}},
	{"kernel: wrong attribute", func(r *rand.Rand, p *program.Program, i int) bool {
		k := kernelOf(p, i)
		if k == nil {
			return false
		}
		s := &k.Body[r.IntN(len(k.Body))]
		var ok bool
		s.Attrs, ok = other(r, s.Attrs)
		return ok
	}},
	{"kernel: dropped operation", func(r *rand.Rand, p *program.Program, i int) bool {
		k := kernelOf(p, i)
		if k == nil || len(k.Body) < 2 {
			return false
		}
		j := r.IntN(len(k.Body))
		k.Body = slices.Delete(k.Body, j, j+1)
		return true
	}},
	{"kernel: wrong operation", func(r *rand.Rand, p *program.Program, i int) bool {
		k := kernelOf(p, i)
		if k == nil {
			return false
		}
		s := &k.Body[r.IntN(len(k.Body))]
		to, ok := map[string]string{"add": "sub", "sub": "add", "mul": "add", "maximum": "minimum", "neg": "abs", "relu": "neg", "sum": "mean", "mean": "sum", "tanh": "sigmoid", "sigmoid": "tanh"}[s.Op]
		s.Op = to
		return ok
	}},
	{"output from elsewhere", func(r *rand.Rand, p *program.Program, _ int) bool {
		p.Outputs = clonedParams(p.Outputs)
		o := &p.Outputs[r.IntN(len(p.Outputs))]
		return elsewhere(r, p, pick(r, o.Tensors))
	}},
	{"output off by one element", func(r *rand.Rand, p *program.Program, _ int) bool {
		p.Outputs = clonedParams(p.Outputs)
		return shifted(r, p, pick(r, p.Outputs[r.IntN(len(p.Outputs))].Tensors))
	}},
	{"swapped outputs", func(r *rand.Rand, p *program.Program, _ int) bool {
		if len(p.Outputs) < 2 {
			return false
		}
		p.Outputs = slices.Clone(p.Outputs)
		a := r.IntN(len(p.Outputs) - 1)
		p.Outputs[a], p.Outputs[a+1] = p.Outputs[a+1], p.Outputs[a]
		return true
	}},
	{"input elsewhere", func(r *rand.Rand, p *program.Program, _ int) bool {
		if len(p.Inputs) == 0 {
			return false
		}
		p.Inputs = clonedParams(p.Inputs)
		return elsewhere(r, p, pick(r, p.Inputs[r.IntN(len(p.Inputs))].Tensors))
	}},
	{"swapped inputs", func(r *rand.Rand, p *program.Program, _ int) bool {
		if len(p.Inputs) < 2 {
			return false
		}
		p.Inputs = clonedParams(p.Inputs)
		a := r.IntN(len(p.Inputs) - 1)
		p.Inputs[a].Tensors, p.Inputs[a+1].Tensors = p.Inputs[a+1].Tensors, p.Inputs[a].Tensors
		return true
	}},
	{"moved buffer", func(r *rand.Rand, p *program.Program, _ int) bool {
		p.Buffers = slices.Clone(p.Buffers)
		a, b := r.IntN(len(p.Buffers)), r.IntN(len(p.Buffers))
		if p.Buffers[a].Offset == p.Buffers[b].Offset {
			return false
		}
		p.Buffers[a].Offset = p.Buffers[b].Offset
		p.Arena = max(p.Arena, (p.Buffers[a].Offset+p.Buffers[a].Size+program.Align-1)/program.Align*program.Align)
		return true
	}},
	{"smaller operand", func(r *rand.Rand, p *program.Program, i int) bool {
		t := pick(r, p.Instrs[i].Ins)
		if t == nil || len(t.Shape) == 0 || t.Strides != nil {
			return false
		}
		t.Shape = slices.Clone(t.Shape)
		d := r.IntN(len(t.Shape))
		t.Shape[d] = t.Shape[d].Sub(dim.New(1))
		n, ok := t.Shape[d].Const()
		return !ok || n >= 0
	}},
}

func clonedParams(qs []program.Param) []program.Param {
	out := slices.Clone(qs)
	for i := range out {
		out[i].Tensors = slices.Clone(out[i].Tensors)
	}
	return out
}

// other changes one attribute.
func other(r *rand.Rand, l attr.List) (attr.List, bool) {
	if len(l) == 0 {
		return l, false
	}
	a := l[r.IntN(len(l))]
	switch v := a.Val; v.Kind() {
	case attr.KindInt:
		n, _ := v.AsInt()
		return l.With(a.Key, attr.Int(max(n-1, 1-n))), true
	case attr.KindFloat:
		x, _ := v.AsFloat()
		return l.With(a.Key, attr.Float(x+1)), true
	case attr.KindBool:
		b, _ := v.AsBool()
		return l.With(a.Key, attr.Bool(!b)), true
	case attr.KindInts:
		ns := slices.Clone(l.Ints(a.Key))
		if len(ns) < 2 || ns[0] == ns[1] {
			return l, false
		}
		ns[0], ns[1] = ns[1], ns[0]
		return l.With(a.Key, attr.Ints(ns...)), true
	case attr.KindString:
		to, ok := map[string]string{"sum": "max", "max": "sum", "avg": "sum", "min": "max", "product": "sum"}[l.Str(a.Key, "")]
		return l.With(a.Key, attr.String(to)), ok
	}
	return l, false
}
