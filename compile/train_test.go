package compile_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

// training is a traced step whose backward half updates the parameters.
type training struct {
	pair  *step.Pair
	bw    *ir.Func // with updates
	feeds []feed   // by input of bw
}

// feed is where an input of backward comes from: an output or an input of forward, by
// number, or neither: then it is a tangent.
type feed struct{ out, in int }

const (
	trainSteps = 100
	trainRate  = 0.5
)

func newTraining(t *testing.T, name string) *training {
	t.Helper()
	pair, err := step.Load("../testdata/graphs", name)
	if err != nil {
		t.Fatal(err)
	}
	tr := &training{pair: pair}
	if tr.bw, err = step.SGD(pair, trainRate); err != nil {
		t.Fatal(err)
	}
	sources, err := step.Sources(pair.Forward, pair.Backward)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range interp.InputSlots(tr.bw) {
		f := feed{out: -1, in: tr.input(s.Name)}
		if i < len(sources) && sources[i] != step.Tangent {
			v := interp.OutputSlots(pair.Forward)[sources[i]].Value
			f = feed{out: sources[i], in: tr.input(v.Name())}
		}
		tr.feeds = append(tr.feeds, f)
	}
	return tr
}

// input is the number of forward's input of that name, -1 if there is none.
func (tr *training) input(name string) int {
	return slices.IndexFunc(interp.InputSlots(tr.pair.Forward), func(s interp.Slot) bool { return s.Name == name })
}

// reference runs the loop with the interpreter: losses by step, and the inputs of the step
// behind the last, by rank.
func (tr *training) reference(t *testing.T, in [][]interp.Tensor) (losses []interp.Tensor, _ [][]interp.Tensor) {
	t.Helper()
	o := interp.Options{SkipVerify: true}
	for range trainSteps {
		fw, err := interp.Run(t.Context(), tr.pair.Forward, in, o)
		if err != nil {
			t.Fatal(err)
		}
		given := make([][]interp.Tensor, len(in))
		for r := range given {
			for i, f := range tr.feeds {
				var x interp.Tensor
				var err error
				switch typ := interp.InputSlots(tr.bw)[i].Type; {
				case f.in >= 0:
					x = in[r][f.in]
				case f.out >= 0:
					x = fw[r][f.out]
				default:
					shape, _ := typ.Shape().Static()
					x, err = interp.Fill(typ.DType(), 1, shape...)
				}
				if err != nil {
					t.Fatal(err)
				}
				given[r] = append(given[r], x)
			}
		}
		bw, err := interp.Run(t.Context(), tr.bw, given, o)
		if err == nil {
			given, err = interp.Next(tr.bw, given, bw)
		}
		if err != nil {
			t.Fatal(err)
		}
		next := make([][]interp.Tensor, len(in))
		for r := range in {
			next[r] = slices.Clone(in[r])
			for i, f := range tr.feeds {
				if f.in >= 0 {
					next[r][f.in] = given[r][i]
				}
			}
		}
		in, losses = next, append(losses, fw[0][0])
	}
	return losses, in
}

// program compiles a function for the host, with what is to lie in buffers apart.
func (tr *training) program(t *testing.T, f *ir.Func, apart []string) (*program.Program, *rt.Module) {
	t.Helper()
	r, err := compile.Compile(t.Context(), f.Module(), compile.Target{}, compile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Func(f.Name).Program()
	if err == nil {
		p, err = p.Apart(apart...)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Check(p); err != nil {
		t.Error(err)
	}
	for _, in := range p.Instrs {
		if in.Kind == program.Copy {
			t.Errorf("@%s copies %s", f.Name, in.Node)
		}
	}
	m, err := rt.ModuleOf(p)
	if err != nil {
		t.Fatal(err)
	}
	return p, m
}

// TestTrainLoop trains a sharded model for a hundred steps in one living world: forward's
// parameters, what it saves and backward's updates lie in buffers, so that between two
// steps nothing but the loss leaves the device and nothing is copied in it. Losses and
// parameters are the interpreter's, to the bit.
func TestTrainLoop(t *testing.T) {
	tr := newTraining(t, "tiny_fsdp2")
	in, err := tr.pair.ReadAllInputs("../testdata/vectors")
	if err != nil {
		t.Fatal(err)
	}
	losses, last := tr.reference(t, in)

	bindFw, bindBw := map[string]string{}, map[string]string{} // parameter -> buffer; look-up only
	var outs, ins []string
	fwIn := interp.InputSlots(tr.pair.Forward)
	for _, s := range fwIn {
		bindFw[s.Name] = s.Name
	}
	for i, f := range tr.feeds {
		name := interp.InputSlots(tr.bw)[i].Name
		switch {
		case f.in >= 0:
			bindBw[name] = fwIn[f.in].Name
		case f.out >= 0:
			ins, bindBw[name] = append(ins, name), fmt.Sprint("saved", f.out)
		}
	}
	fw, _ := tr.program(t, tr.pair.Forward, nil)
	for _, f := range tr.feeds {
		if f.in < 0 && f.out >= 0 {
			name := fw.Outputs[f.out].Name
			outs, bindFw[name] = append(outs, name), fmt.Sprint("saved", f.out)
		}
	}
	fw, fwMod := tr.program(t, tr.pair.Forward, outs)
	bw, bwMod := tr.program(t, tr.bw, ins)

	err = host.Local(t.Context(), 2, rt.Config{}, host.Options{}, nil, func(ctx context.Context, r *rt.Rank) error {
		buffers := map[string]*rt.Buffer{}
		bind := func(m *rt.Module, names map[string]string) error {
			b := rt.Bindings{}
			for _, q := range slices.Concat(m.Inputs, m.Outputs) {
				name, ok := names[q.Name]
				if !ok {
					continue
				}
				if buffers[name] == nil {
					var err error
					if buffers[name], err = r.NewBuffer(ctx, name, q.Room); err != nil {
						return fmt.Errorf("%s: %w", q.Name, err)
					}
				}
				b[q.Name] = buffers[name]
			}
			return r.Add(ctx, m, b)
		}
		if err := bind(fwMod, bindFw); err != nil {
			return err
		}
		if err := bind(bwMod, bindBw); err != nil {
			return err
		}
		rank := r.Info().Rank
		first := make([]rt.Value, len(fw.Inputs))
		for i, x := range in[rank] {
			first[i] = rt.Value{DType: x.DType, Shape: x.Shape, Data: x.Data}
		}
		tangents := make([]rt.Value, len(bw.Inputs))
		for i, f := range tr.feeds {
			if f.in < 0 && f.out < 0 {
				q := bwMod.Inputs[i].Tensors[0]
				x, err := interp.Fill(q.DType, 1, q.Shape...)
				if err != nil {
					return err
				}
				tangents[i] = rt.Value{DType: x.DType, Shape: x.Shape, Data: x.Data}
			}
		}
		for n := range trainSteps {
			got, err := rt.Run(ctx, r, fw, first, rt.Options{})
			if err != nil {
				return err
			}
			first = make([]rt.Value, len(fw.Inputs)) // all are where they were
			for i, v := range got {
				if (v.Data != nil) != (i == 0) {
					return fmt.Errorf("output %d is given to the host: %v", i, v.Data != nil)
				}
			}
			if rank == 0 && !slices.Equal(got[0].Data, losses[n].Data) {
				return fmt.Errorf("step %d: the loss differs: %v, want %v", n, got[0].Data, losses[n])
			}
			if _, err := rt.Run(ctx, r, bw, tangents, rt.Options{}); err != nil {
				return err
			}
		}
		for i, s := range fwIn {
			x := last[rank][i]
			view, err := buffers[s.Name].View(0, x.DType, x.Shape...)
			if err != nil {
				return err
			}
			if data, err := r.Download(view); err != nil || !slices.Equal(data, x.Data) {
				return fmt.Errorf("rank %d: %s differs behind %d steps (%v)", rank, s.Name, trainSteps, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("loss %v at first, %v behind %d steps", losses[0], losses[trainSteps-1], trainSteps)
}
