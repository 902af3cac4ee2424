package hostrun

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Training is a traced step whose backward half updates the parameters where they lie. In a
// living world forward's inputs and what backward takes of its outputs are buffers, so that
// nothing but the loss leaves the device between two steps.
type Training struct {
	Pair     *step.Pair
	Backward *ir.Func // with updates
	Inputs   [][]interp.Tensor

	Fw, Bw Step
	Progs  [2]*program.Program // of the halves
	feeds  []feed              // by input of Backward
	fw, bw map[string]string   // by parameter: its buffer; look-up only
}

// feed is where an input of backward comes from: an output or an input of forward, by
// number, or neither: then it is a tangent.
type feed struct{ out, in int }

// NewTraining reads a step and its recorded inputs from the folder testdata, and compiles its
// halves.
func NewTraining(testdata, name string, rate float64, compile func(*ir.Func) (*program.Program, error)) (*Training, error) {
	pair, err := step.Load(testdata+"/graphs", name)
	if err != nil {
		return nil, err
	}
	t := &Training{Pair: pair}
	if t.Inputs, err = pair.ReadAllInputs(testdata + "/vectors"); err != nil {
		return nil, err
	}
	if t.Backward, err = step.SGD(pair, rate); err != nil {
		return nil, err
	}
	sources, err := pair.Sources()
	if err != nil {
		return nil, err
	}
	for i, s := range interp.InputSlots(t.Backward) {
		f := feed{out: -1, in: t.input(s.Name)}
		if i < len(sources) && sources[i] != step.Tangent {
			f = feed{out: sources[i], in: t.input(interp.OutputSlots(pair.Forward)[sources[i]].Value.Name())}
		}
		t.feeds = append(t.feeds, f)
	}
	return t, t.compile(compile)
}

// input is the number of forward's input of that name, -1 if there is none.
func (t *Training) input(name string) int {
	return slices.IndexFunc(interp.InputSlots(t.Pair.Forward), func(s interp.Slot) bool { return s.Name == name })
}

// compile makes the programs, with what is to lie in buffers apart.
func (t *Training) compile(compile func(*ir.Func) (*program.Program, error)) error {
	t.fw, t.bw = map[string]string{}, map[string]string{}
	fwIn, bwIn := interp.InputSlots(t.Pair.Forward), interp.InputSlots(t.Backward)
	var outs, ins []string
	for _, s := range fwIn {
		t.fw[s.Name], outs = s.Name, append(outs, s.Name)
	}
	fw, err := compile(t.Pair.Forward)
	if err != nil {
		return err
	}
	bw, err := compile(t.Backward)
	if err != nil {
		return err
	}
	for i, f := range t.feeds {
		switch name := bwIn[i].Name; {
		case f.in >= 0:
			t.bw[name], ins = fwIn[f.in].Name, append(ins, name)
		case f.out >= 0:
			buffer, out := fmt.Sprint("saved", f.out), fw.Outputs[f.out].Name
			ins, outs = append(ins, name), append(outs, out)
			t.bw[name], t.fw[out] = buffer, buffer
		}
	}
	if t.Progs[0], err = fw.Isolate(outs...); err != nil {
		return err
	}
	if t.Progs[1], err = bw.Isolate(ins...); err != nil {
		return err
	}
	if t.Fw, err = OfProgram(t.Progs[0]); err != nil {
		return err
	}
	t.Bw, err = OfProgram(t.Progs[1])
	return err
}

// tangent is ones, of the type of an input of backward.
func (t *Training) tangent(i int) (interp.Tensor, error) {
	typ := interp.InputSlots(t.Backward)[i].Type
	shape, _ := typ.Shape().Static()
	return interp.Fill(typ.DType(), 1, shape...)
}

// Reference runs the loop with the interpreter: losses by step and rank, and the inputs of
// the step after the last, by rank.
func (t *Training) Reference(ctx context.Context, steps int) (losses, in [][]interp.Tensor, _ error) {
	in = t.Inputs
	o := interp.Options{SkipVerify: true}
	for range steps {
		fw, err := interp.Run(ctx, t.Pair.Forward, in, o)
		if err != nil {
			return nil, nil, err
		}
		given := make([][]interp.Tensor, len(in))
		for r := range given {
			for i, f := range t.feeds {
				var x interp.Tensor
				var err error
				switch {
				case f.in >= 0:
					x = in[r][f.in]
				case f.out >= 0:
					x = fw[r][f.out]
				default:
					x, err = t.tangent(i)
				}
				if err != nil {
					return nil, nil, err
				}
				given[r] = append(given[r], x)
			}
		}
		bw, err := interp.Run(ctx, t.Backward, given, o)
		if err == nil {
			given, err = interp.Next(t.Backward, given, bw)
		}
		if err != nil {
			return nil, nil, err
		}
		next, err := interp.Next(t.Pair.Forward, in, fw) // with what forward updates itself
		if err != nil {
			return nil, nil, err
		}
		for r := range in {
			for i, f := range t.feeds {
				if f.in >= 0 {
					next[r][f.in] = given[r][i]
				}
			}
		}
		in = next
		var loss []interp.Tensor
		for r := range fw {
			loss = append(loss, fw[r][t.Pair.Loss()])
		}
		losses = append(losses, loss)
	}
	return losses, in, nil
}

// Trainee is a training on one rank of a living world.
type Trainee struct {
	Training *Training
	r        *rt.Rank
	buffers  map[string]*rt.Buffer
	first    []rt.Value // the inputs of the next forward half
	tangents []rt.Value
}

// On makes the buffers on a rank, and adds forward and backward.
func (t *Training) On(ctx context.Context, r *rt.Rank) (*Trainee, error) {
	x := &Trainee{Training: t, r: r, buffers: map[string]*rt.Buffer{}}
	if err := x.add(ctx, t.Fw.Module, t.fw); err != nil {
		return nil, err
	}
	if err := x.add(ctx, t.Bw.Module, t.bw); err != nil {
		return nil, err
	}
	for _, in := range t.Inputs[r.Info().Rank] {
		x.first = append(x.first, rt.Value{DType: in.DType, Shape: in.Shape, Data: in.Data})
	}
	for i, f := range t.feeds {
		var v rt.Value
		if f.in < 0 && f.out < 0 {
			ones, err := t.tangent(i)
			if err != nil {
				return nil, err
			}
			v = rt.Value{DType: ones.DType, Shape: ones.Shape, Data: ones.Data}
		}
		x.tangents = append(x.tangents, v)
	}
	return x, nil
}

func (x *Trainee) add(ctx context.Context, m *rt.Module, names map[string]string) error {
	b := rt.Bindings{}
	for _, q := range slices.Concat(m.Inputs, m.Outputs) {
		name, ok := names[q.Name]
		if !ok {
			continue
		}
		if x.buffers[name] == nil {
			var err error
			if x.buffers[name], err = x.r.NewBuffer(ctx, name, q.Room); err != nil {
				return fmt.Errorf("%s: %w", q.Name, err)
			}
		}
		b[q.Name] = x.buffers[name]
	}
	return x.r.Add(ctx, m, b)
}

// Step runs forward and backward once, each by a function that is given its inputs, and returns the
// loss. It fails if anything else is given to the host.
func (x *Trainee) Step(fw, bw func(inputs []rt.Value) ([]rt.Value, error)) (loss []byte, err error) {
	got, err := fw(x.first)
	if err != nil {
		return nil, err
	}
	x.first = make([]rt.Value, len(x.first)) // all are where they were
	for i, v := range got {
		if (v.Data != nil) != (i == x.Training.Pair.Loss()) {
			return nil, fmt.Errorf("output %d is given to the host: %v", i, v.Data != nil)
		}
	}
	loss = got[x.Training.Pair.Loss()].Data
	if got, err = bw(x.tangents); err != nil {
		return nil, err
	}
	for i, v := range got {
		if v.Data != nil {
			return nil, fmt.Errorf("gradient %d is given to the host", i)
		}
	}
	return loss, nil
}

// State is what the inputs of forward are now.
func (x *Trainee) State() ([]interp.Tensor, error) {
	var out []interp.Tensor
	for i, s := range interp.InputSlots(x.Training.Pair.Forward) {
		in := x.Training.Inputs[x.r.Info().Rank][i]
		view, err := x.buffers[s.Name].View(0, in.DType, in.Shape...)
		if err != nil {
			return nil, err
		}
		data, err := x.r.Download(view)
		if err != nil {
			return nil, err
		}
		out = append(out, interp.Tensor{DType: in.DType, Shape: in.Shape, Data: data})
	}
	return out, nil
}

// Close drops forward and backward and frees the buffers.
func (x *Trainee) Close(ctx context.Context) error {
	t := x.Training
	if err := x.r.Drop(ctx, t.Bw.Module); err != nil {
		return err
	}
	if err := x.r.Drop(ctx, t.Fw.Module); err != nil {
		return err
	}
	var names []string
	for name := range x.buffers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := x.buffers[name].Free(ctx); err != nil {
			return err
		}
	}
	return nil
}
