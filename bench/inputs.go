package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/fillrand"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

// makeInputs makes the inputs of all ranks; those made by hash are made by each rank
// when it needs them.
func (j *Job) makeInputs() (err error) {
	if err := j.readData(); err != nil {
		return err
	}
	switch {
	case j.Inputs != "" && j.StableHLO != nil:
		j.inputs, err = j.numbered(j.Inputs, "in", interp.InputSlots(j.pair.Forward))
	case j.Inputs != "":
		j.inputs, err = j.pair.ReadAllInputs(j.Inputs)
	case j.Random == "valid" || j.Random == "quick" && !staticInputs(j.traced.Forward):
		j.inputs, err = j.traced.RandomInputs(j.Seed, interp.RandomOptions{Symbols: j.Symbols})
	case j.Random == "quick":
		j.indices, err = indices(j.traced, j.Seed)
	}
	for k := range j.data {
		if t, ok := j.fixed(k); ok {
			for _, in := range j.inputs {
				in[k] = t
			}
		}
	}
	if err == nil && j.StableHLO != nil {
		err = j.constants()
	}
	return err
}

// staticInputs reports whether all inputs are single tensors of fixed size.
func staticInputs(f *ir.Func) bool {
	return !slices.ContainsFunc(interp.InputSlots(f), func(s interp.Slot) bool {
		_, fixed := s.Type.Shape().Static()
		return s.Async || !fixed
	})
}

// indices makes the integers among the inputs of all ranks, in reach of what they may
// index.
func indices(p *step.Pair, seed uint64) ([][]interp.Tensor, error) {
	return p.RandomInputs(seed, interp.RandomOptions{Skip: func(n *ir.Node) bool { return !n.Result(0).Type().DType().IsInt() }})
}

// inputsOf returns one rank's forward inputs.
func (j *Job) inputsOf(rank int) ([]interp.Tensor, error) {
	if j.inputs != nil {
		return j.inputs[rank], nil
	}
	var out []interp.Tensor
	for k, s := range interp.InputSlots(j.pair.Forward) {
		t, err := j.hashed(k, s, rank)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// allInputs returns every rank's forward inputs.
func (j *Job) allInputs() ([][]interp.Tensor, error) {
	if j.inputs != nil {
		return j.inputs, nil
	}
	out := make([][]interp.Tensor, j.pair.World())
	for r := range out {
		var err error
		if out[r], err = j.inputsOf(r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// hashed makes forward input number k of a rank by hash.
func (j *Job) hashed(k int, s interp.Slot, rank int) (interp.Tensor, error) {
	shape, ok := s.Type.Shape().Static()
	if !ok {
		return interp.Tensor{}, fmt.Errorf("-random=hash: input %%%s has a symbolic shape", s.Name)
	}
	if t, ok := j.fixed(k); ok {
		return t, nil
	}
	part, q := j.routing(k, rank)
	if j.Same == "data" && (s.Value.Def().Role() == ir.RoleData || len(shape) < 2) {
		rank = 0
	}
	if j.indices != nil && s.Type.DType().IsInt() {
		return j.indices[rank][k], nil
	}
	t, err := interp.NewTensor(s.Type.DType(), shape...)
	if err != nil {
		return t, err
	}
	from := fillrand.New(uint32(j.Seed), k, rank, len(shape))
	if q != nil {
		return t, q.Fill(part, from, t.Data, t.DType, shape)
	}
	return t, from.Fill(t.Data, t.DType)
}

// routing is the part that forward input number k of a rank has in routing, if whoever
// recorded what is expected gave it one.
func (j *Job) routing(k, rank int) (fillrand.Part, *fillrand.Routing) {
	if rank >= len(j.prints) {
		return fillrand.Part{}, nil
	}
	q := j.prints[rank].Routing[j.pair.Name+"."+halfNames[0]]
	if q == nil {
		return fillrand.Part{}, nil
	}
	part, ok := q.Inputs[k]
	if !ok {
		return fillrand.Part{}, nil
	}
	return part, q
}

// given brings a rank's forward inputs to what the runtime takes. Plain inputs are
// uploaded one by one, so that no rank holds all of them twice.
func (j *Job) given(ctx context.Context, r *rt.Rank, h *half) ([]rt.Value, error) {
	rank, m := r.Info().Rank, h.step.Module
	if j.inputs != nil || slices.ContainsFunc(m.Inputs, func(q rt.Param) bool { return q.Async || q.Dims != nil }) {
		in, err := j.inputsOf(rank)
		if err != nil {
			return nil, err
		}
		return hostrun.Inputs(ctx, r, m, in)
	}
	var out []rt.Value
	for k, s := range interp.InputSlots(j.pair.Forward) {
		t, err := j.hashed(k, s, rank)
		if err != nil {
			return nil, err
		}
		at, err := r.In(m, m.Inputs[k].Tensors[0])
		if err != nil {
			return nil, err
		}
		if err := r.Upload(at, t.Data); err != nil {
			return nil, err
		}
		v := rt.Value{DType: t.DType, Shape: t.Shape, Resident: true}
		if h.overwrites[k] {
			v.Data = t.Data // to bring it in again
		}
		out = append(out, v)
	}
	return out, nil
}

// backwardInputs are the backward inputs: forward outputs, where they are, and tangents.
func (j *Job) backwardInputs(fw []rt.Value) ([]rt.Value, error) {
	sources, err := j.pair.Sources()
	if err != nil {
		return nil, err
	}
	slots := interp.InputSlots(j.pair.Backward)
	var out []rt.Value
	for i, src := range sources {
		if src != step.Tangent {
			out = append(out, rt.Value{DType: fw[src].DType, Shape: fw[src].Shape, Data: fw[src].Data, Place: fw[src].Place})
			continue
		}
		shape, ok := slots[i].Type.Shape().Static()
		if !ok {
			return nil, fmt.Errorf("tangent %%%s has a symbolic shape", slots[i].Name)
		}
		ones, err := interp.Fill(slots[i].Type.DType(), 1, shape...)
		if err != nil {
			return nil, err
		}
		out = append(out, rt.Value{DType: ones.DType, Shape: ones.Shape, Data: ones.Data})
	}
	return out, nil
}

// rebind is what binds inputs for another run after a first one: what the program
// has overwritten is brought in anew, the rest is there.
func (h *half) rebind(first []rt.Value) []rt.Value {
	out := slices.Clone(first)
	for i := range out {
		out[i].Resident = !h.overwrites[i]
	}
	return out
}

// overwritten reports, for each input of a program, whether an instruction writes
// where it is.
func overwritten(p *program.Program) []bool {
	type span struct{ lo, hi int64 }
	spanOf := func(t *program.Tensor) span {
		lo := p.Buffers[t.Buffer].Offset + t.Offset
		n, ok := p.Span(t)
		if !ok {
			return span{p.Buffers[t.Buffer].Offset, p.Buffers[t.Buffer].Offset + p.Buffers[t.Buffer].Size}
		}
		return span{lo, lo + n}
	}
	var writes []span
	for i := range p.Instrs {
		for _, t := range p.Instrs[i].Written() {
			writes = append(writes, spanOf(&t))
		}
	}
	out := make([]bool, len(p.Inputs))
	for i := range p.Inputs {
		for k := range p.Inputs[i].Tensors {
			in := spanOf(&p.Inputs[i].Tensors[k])
			out[i] = out[i] || slices.ContainsFunc(writes, func(w span) bool { return w.lo < in.hi && in.lo < w.hi })
		}
	}
	return out
}
