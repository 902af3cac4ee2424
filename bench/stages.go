package bench

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	rt "github.com/seed-ee968945/concert/runtime"
)

// staged is a step of which each rank runs the function of its stage.
type staged struct {
	s     *ir.Stages // after the passes
	r     *compile.Result
	whole *ir.Func // the step of one micro-batch that pass pipeline has cut; nil if the stages came in
	pairs []*step.Pair
	want  [][]interp.Tensor // by rank of the step and result: averages over the micro-batches
	micro int
}

// NewStages readies a run of the stages of a compiled module. whole is the function, as it came
// in, that pass pipeline has cut into them, nil if they came in as they are. What is expected is
// what the interpreter makes of the stages that came in, or of the whole, once for each
// micro-batch, on average.
func NewStages(c Config, name string, r *compile.Result, whole *ir.Func) (*Job, error) {
	switch {
	case c.Inputs != "" || c.Record != "" || c.Expect != "" && c.Expect != "interp":
		return nil, usagef("stages have random inputs, and are compared with what the interpreter makes of them")
	case c.Random == "hash":
		return nil, usagef("-random=hash: inputs of stages are valid ones")
	case c.Symbols != nil || len(r.Module.Symbols()) > 0:
		return nil, usagef("stages with sizes known at run time only are not run")
	}
	j := &Job{Config: c, stages: &staged{s: r.Module.Stages()[0], r: r, whole: whole}}
	for _, f := range j.stages.s.Funcs {
		j.stages.pairs = append(j.stages.pairs, &step.Pair{Name: name, Forward: r.Module.Func(f)})
	}
	j.pair = j.stages.pairs[0]
	if j.Steps == 0 {
		return j, nil
	}
	return j, j.stages.inputs(j)
}

// pairOf is what a rank runs, as a step.
func (j *Job) pairOf(rank int) *step.Pair {
	if j.stages == nil {
		return j.pair
	}
	return j.stages.pairs[j.stages.s.Index(rank)]
}

// ran is a function that ranks run.
type ran struct {
	name  string // among those of the step
	f     *ir.Func
	ranks []int
	at    int // its stage among what each of them found
}

// functions lists the functions of the step: the halves, or the stages.
func (j *Job) functions() []ran {
	var out []ran
	if j.stages != nil {
		for stage, p := range j.stages.pairs {
			out = append(out, ran{p.Forward.Name, p.Forward, j.stages.s.Ranks(stage), 0})
		}
		return out
	}
	all := make([]int, j.pair.World())
	for r := range all {
		all[r] = r
	}
	for i, f := range []*ir.Func{j.pair.Forward, j.pair.Backward} {
		if f != nil {
			out = append(out, ran{halfNames[i], f, all, i})
		}
	}
	return out
}

// inputs makes those of all ranks.
func (s *staged) inputs(j *Job) error {
	m := s.r.Module
	j.inputs = make([][]interp.Tensor, m.World)
	if s.whole != nil {
		return s.cutInputs(j)
	}
	for stage, name := range s.s.Funcs {
		all, err := interp.RandomInputs(s.r.Input.Func(name), j.Seed, interp.RandomOptions{})
		if err != nil {
			return err
		}
		for _, rank := range s.s.Ranks(stage) {
			j.inputs[rank] = all[rank]
		}
	}
	return nil
}

// cutInputs makes the inputs of a step that was cut: data are the rows of all micro-batches. It
// also makes what is expected, if something is.
func (s *staged) cutInputs(j *Job) error {
	slots, world := interp.InputSlots(s.whole), s.whole.Module().World
	at := map[string]int{} // by name
	for i, q := range slots {
		at[q.Name] = i
	}
	s.micro = 1
	for _, p := range s.pairs {
		for _, q := range interp.InputSlots(p.Forward) {
			i, ok := at[q.Name]
			if !ok {
				return fmt.Errorf("@%s: input %%%s is none of @%s", p.Forward.Name, q.Name, s.whole.Name)
			}
			have, _ := q.Type.Shape().Static()
			if one, _ := slots[i].Type.Shape().Static(); slots[i].Value.Def().Role() == ir.RoleData && len(one) > 0 && one[0] > 0 {
				s.micro = int(have[0] / one[0])
			}
		}
	}
	var parts [][][]interp.Tensor // by micro-batch and rank of the step
	for k := range s.micro {
		in, err := interp.RandomInputs(s.whole, j.Seed+uint64(k), interp.RandomOptions{})
		if err != nil {
			return err
		}
		for i, q := range slots {
			for rank := range in {
				if k > 0 && q.Value.Def().Role() != ir.RoleData {
					in[rank][i] = parts[0][rank][i]
				}
			}
		}
		parts = append(parts, in)
	}
	for rank := range j.inputs {
		for _, q := range interp.InputSlots(j.pairOf(rank).Forward) {
			i := at[q.Name]
			x := parts[0][rank%world][i]
			if slots[i].Value.Def().Role() == ir.RoleData {
				x = interp.Tensor{DType: x.DType, Shape: slices.Clone(x.Shape)}
				x.Shape[0] *= int64(s.micro)
				for k := range parts {
					x.Data = append(x.Data, parts[k][rank%world][i].Data...)
				}
			}
			j.inputs[rank] = append(j.inputs[rank], x)
		}
	}
	return s.average(j, parts)
}

// average runs the step on each micro-batch.
func (s *staged) average(j *Job, parts [][][]interp.Tensor) error {
	if j.Expect == "" {
		return nil
	}
	var sums [][][]float64
	var outs [][]interp.Tensor
	for k := range parts {
		var err error
		if outs, err = interp.Run(context.Background(), s.whole, parts[k], interp.Options{}); err != nil {
			return err
		}
		for rank := range outs {
			if k == 0 {
				sums = append(sums, make([][]float64, len(outs[rank])))
			}
			for i, x := range outs[rank] {
				if k == 0 {
					sums[rank][i] = make([]float64, x.NumElems())
				}
				for e, v := range x.Float64s() {
					sums[rank][i][e] += v / float64(len(parts))
				}
			}
		}
	}
	s.want = make([][]interp.Tensor, len(outs))
	for rank := range outs {
		for i, x := range outs[rank] {
			x, err := interp.FromFloats(x.DType, sums[rank][i], x.Shape...)
			if err != nil {
				return err
			}
			s.want[rank] = append(s.want[rank], x)
		}
	}
	return nil
}

// lowered lowers the stages, in order.
func (s *staged) lowered() ([]half, error) {
	progs, err := s.r.Stages(s.s)
	if err != nil {
		return nil, err
	}
	mods, err := rt.ModulesOf(s.s.Name, progs)
	if err != nil {
		return nil, err
	}
	var out []half
	for i, p := range progs {
		out = append(out, half{
			name: p.Name, f: s.pairs[i].Forward, program: p, overwrites: overwritten(p),
			step: hostrun.Step{Module: mods[i], Run: func(x *rt.Exec) { rt.Interpret(x, p) }},
		})
	}
	return out, nil
}

// interpret runs the stages by the reference interpreter.
func (s *staged) interpret(ctx context.Context, m *ir.Module, in [][]interp.Tensor) ([][]interp.Tensor, error) {
	at := slices.IndexFunc(m.Stages(), func(o *ir.Stages) bool { return o.Name == s.s.Name })
	return interp.RunStages(ctx, m, m.Stages()[at], in, interp.Options{})
}

// numbers gives each result of a stage's function its number among those of all: of the step
// that was cut, that which it has there.
func (s *staged) numbers(stage int) []int {
	if s.whole != nil {
		var out []int
		for _, k := range s.pairs[stage].Forward.Return().Meta().Ints(ir.MetaPlaces) {
			out = append(out, int(k))
		}
		return out
	}
	first := 0
	for _, p := range s.pairs[:stage] {
		first += len(interp.OutputSlots(p.Forward))
	}
	out := make([]int, len(interp.OutputSlots(s.pairs[stage].Forward)))
	for i := range out {
		out[i] = first + i
	}
	return out
}

// compared measures the results of all ranks.
func (s *staged) compared(ctx context.Context, j *Job, got [][][]interp.Tensor) ([]step.Result, error) {
	want := make([][]interp.Tensor, len(got))
	var err error
	if s.whole == nil {
		if want, err = s.interpret(ctx, s.r.Input, j.inputs); err != nil {
			return nil, err
		}
	}
	bounds := s.bounds(j.rounding())
	var all []step.Result
	for rank := range got {
		numbers := s.numbers(s.s.Index(rank))
		var expected []step.Expected
		for i, q := range interp.OutputSlots(j.pairOf(rank).Forward) {
			if s.whole != nil {
				want[rank] = append(want[rank], s.want[rank%len(s.want)][numbers[i]])
			}
			expected = append(expected, step.Expected{Output: i, Name: q.Name, Tensor: want[rank][i]})
		}
		rs, err := step.Compare(rank, expected, got[rank][0], nil)
		if err != nil {
			return nil, err
		}
		for i := range rs {
			rs[i].Output = numbers[rs[i].Output]
			rs[i].Bound = bounds[rs[i].Output]
		}
		all = append(all, rs...)
	}
	return all, nil
}

// bounds are those of the results of all stages, by number. Of a step that was cut, they allow for
// the sums over micro-batches, which nothing fixes the order of.
func (s *staged) bounds(kind step.Rounding) []step.Bound {
	if s.whole == nil {
		var out []step.Bound
		m := s.r.Input
		for _, l := range step.StageBounds(m, m.Stages()[0], kind) {
			out = append(out, l...)
		}
		return out
	}
	out := step.FuncBounds(s.whole, step.OtherRoundings)
	for i, q := range interp.OutputSlots(s.whole) {
		unit := math.Ldexp(1, -1-q.Type.DType().Mantissa())
		acc := min(unit, 0x1p-24)
		most := max(step.GradientTolerance, out[i].Rel)
		out[i] = step.Bound{Rel: min(math.Hypot(out[i].Rel, 2*math.Sqrt(float64(s.micro+1)*acc*acc+unit*unit)), most), Steps: out[i].Steps + s.micro + 1}
	}
	return out
}
