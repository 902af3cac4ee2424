package gomlx

import (
	"context"
	"slices"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/ir/stablehlo"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

// executable is a program in its backend's world.
type executable struct {
	b       *Backend
	name    string
	names   []string
	inputs  []shapes.Shape
	outputs []shapes.Shape
	prog    *program.Program
	mod     *rt.Module
	args    []rt.Value // by input of the module: constants of the text have data, parameters get it
	params  []int      // which of args are parameters

	mu   sync.Mutex // one run at a time
	gone bool
}

// Compile imports, compiles and adds the computation to the world.
func (n *builder) Compile() (compute.Executable, error) {
	if n.done {
		return nil, errors.Errorf("concert: computation %q is compiled", n.name)
	}
	if !n.main.returned {
		return nil, errors.Errorf("concert: the main function of %q has not returned", n.name)
	}
	n.done = true
	m, err := stablehlo.Parse(n.name, n.text())
	if err != nil {
		return nil, errors.WithStack(err)
	}
	p, err := m.Program()
	if err != nil {
		return nil, errors.WithStack(err)
	}
	pipeline, err := standard.Table().Parse(n.b.passes)
	if err != nil {
		return nil, errors.WithStack(err)
	}
	ctx := context.Background()
	r, err := compile.Compile(ctx, p.Module, compile.Target{Device: n.b.device()}, compile.Options{Pipeline: pipeline})
	if err != nil {
		return nil, errors.WithStack(err)
	}
	x := &executable{b: n.b, name: n.name, names: n.main.inputs}
	for _, v := range n.main.params {
		x.inputs = append(x.inputs, v.shape)
	}
	for _, v := range n.main.outs {
		x.outputs = append(x.outputs, v.shape)
	}
	if x.prog, err = r.Func(p.Module.Funcs()[0].Name).Program(); err != nil {
		return nil, errors.WithStack(err)
	}
	if x.mod, err = rt.ModuleOf(x.prog); err != nil {
		return nil, errors.WithStack(err)
	}
	for i, in := range x.mod.Inputs {
		q := in.Tensors[0]
		v := rt.Value{DType: q.DType, Shape: q.Shape}
		if i < len(p.Constants) && p.Constants[i] != nil {
			v.Data = p.Constants[i].Expand()
		} else {
			x.params = append(x.params, i)
		}
		x.args = append(x.args, v)
	}
	rank, err := n.b.world(ctx)
	if err != nil {
		return nil, err
	}
	return x, errors.WithStack(rank.Add(ctx, x.mod, nil))
}

func (x *executable) Inputs() ([]string, []shapes.Shape) {
	return slices.Clone(x.names), slices.Clone(x.inputs)
}

func (x *executable) Outputs() []shapes.Shape { return slices.Clone(x.outputs) }

// Finalize drops the program.
func (x *executable) Finalize() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.gone || x.b.IsFinalized() {
		return
	}
	x.gone = true
	if r, err := x.b.world(context.Background()); err == nil {
		r.Drop(context.Background(), x.mod)
	}
}

// Execute runs the program once.
func (x *executable) Execute(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) ([]compute.Buffer, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.gone:
		return nil, errors.Errorf("concert: computation %q is finalized", x.name)
	case len(inputs) != len(x.inputs):
		return nil, errors.Errorf("concert: computation %q takes %d inputs, not %d", x.name, len(x.inputs), len(inputs))
	case donate != nil && len(donate) != len(inputs):
		return nil, errors.Errorf("concert: %d inputs, and %d say whether they are donated", len(inputs), len(donate))
	}
	args, err := x.arguments(inputs)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	r, err := x.b.world(ctx)
	if err != nil {
		return nil, err
	}
	results, err := rt.RunModule(ctx, r, x.mod, func(e *rt.Exec) { rt.Interpret(e, x.prog) }, args, rt.Options{})
	if err != nil {
		return nil, errors.Wrapf(err, "computation %q", x.name)
	}
	out := make([]compute.Buffer, len(results))
	for i, v := range results {
		u := &Buffer{b: x.b, shape: x.outputs[i], flat: dtypes.MakeAnySlice(x.outputs[i].DType, x.outputs[i].Size())}
		copy(dtypes.UnsafeByteSliceFromAny(u.flat), v.Data)
		out[i] = u
	}
	for i, d := range donate {
		if d {
			if err := inputs[i].Finalize(); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// arguments are the module's inputs: the caller's, and the constants that the text holds.
func (x *executable) arguments(inputs []compute.Buffer) ([]rt.Value, error) {
	args := slices.Clone(x.args)
	for k, i := range x.params {
		u, ok := inputs[k].(*Buffer)
		if !ok || u.b != x.b {
			return nil, errors.Errorf("concert: input %d of computation %q is a buffer of another backend", k, x.name)
		}
		if !u.shape.Equal(x.inputs[k]) {
			return nil, errors.Errorf("concert: input %d (%q) of computation %q is %s, not %s", k, x.names[k], x.name, x.inputs[k], u.shape)
		}
		flat, err := u.Data()
		if err != nil {
			return nil, err
		}
		args[i].Data = dtypes.UnsafeByteSliceFromAny(flat)
	}
	return args, nil
}
