package compile_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

// ownCommunication is a step of two ranks whose communication concert does not know: y goes
// through it while the second product is computed.
func ownCommunication(t *testing.T) *ir.Module {
	t.Helper()
	b := ir.NewBuilder(2)
	g := b.Group("all", [][]int{{0, 1}})
	f := b.Func("step")
	x := f.Input("x", ir.Tensor(ir.F32, 64, 64))
	y := f.Cost(1).Scalar(ir.OpMul, x, 2)
	sent := f.Named("sent").Cost(2).AsyncCall("my.twice", g, nil, y, ir.Tensor(ir.F32, 64, 64))
	got := f.Wait1(sent)
	z := f.Cost(3).Scalar(ir.OpAdd, f.Cost(3).MatMul(x, x), 1)
	f.Return(f.Cost(1).Add(got, z))
	m, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// An async call overlaps with compute as a collective does, is checked and proved, and gives
// one result in the interpreter, on the host and on fake GPUs.
func TestAsyncCall(t *testing.T) {
	twice := func(out, in []byte) { // 2*in, for all elements
		for i := 0; i < len(in); i += 4 {
			v := math.Float32frombits(binary.LittleEndian.Uint32(in[i:]))
			binary.LittleEndian.PutUint32(out[i:], math.Float32bits(2*v))
		}
	}
	cfg := rt.Config{Funcs: map[string]rt.Func{"my.twice": {Host: func(c *rt.FuncCall) error {
		if c.Group != "all" || len(c.Ins) != 1 || len(c.Outs) != 1 {
			return fmt.Errorf("got %+v", c)
		}
		twice(c.Outs[0].Data, c.Ins[0].Data)
		return nil
	}}}}
	x := make([]byte, 4*64*64)
	for i := 0; i < len(x); i += 4 {
		binary.LittleEndian.PutUint32(x[i:], math.Float32bits(float32(i%7)-2))
	}
	m := ownCommunication(t)
	in := interp.Tensor{DType: ir.F32, Shape: []int64{64, 64}, Data: x}
	wants, err := interp.Run(t.Context(), m.Func("step"), [][]interp.Tensor{{in}, {in}}, interp.Options{Poison: true, Calls: map[string]interp.CallFunc{
		"my.twice": interp.PerRank(func(_ context.Context, _ *ir.Node, _ int, args, results []interp.Tensor) error {
			twice(results[0].Data, args[0].Data)
			return nil
		})}})
	if err != nil {
		t.Fatal(err)
	}
	for _, dev := range []compile.Device{compile.Host, compile.GPU} {
		r, err := compile.Compile(t.Context(), m, compile.Target{Device: dev}, compile.Options{Manager: passes.Manager{Validate: passes.ValidateAlways}})
		if err != nil {
			t.Fatal(err)
		}
		f := r.Func("step")
		if after, err := f.After(); err != nil || after.Exposed != 0 || after.Collectives != 1 {
			t.Errorf("%s: exposed %v ms of %d collectives: %v", dev.Pipeline(), after.Exposed, after.Collectives, err)
		}
		p, err := f.Program()
		if err != nil {
			t.Fatal(err)
		}
		if err := program.Check(p); err != nil {
			t.Errorf("%s: %v\n%s", dev.Pipeline(), err, p)
		}
		mod, err := rt.ModuleOf(p)
		if err != nil {
			t.Fatal(err)
		}
		run := func(ctx context.Context, r *rt.Rank) error {
			outs, err := rt.RunModule(ctx, r, mod, func(x *rt.Exec) { rt.Interpret(x, p) }, []rt.Value{{DType: rt.F32, Shape: in.Shape, Data: x}}, rt.Options{})
			if err == nil && string(outs[0].Data) != string(wants[0][0].Data) {
				err = fmt.Errorf("the result is another")
			}
			return err
		}
		if err := host.Local(t.Context(), 2, cfg, host.Options{}, []*rt.Module{mod}, run); err != nil {
			t.Errorf("%s: %v", dev.Pipeline(), err)
		}
		if dev == compile.Host {
			continue // there are no kernels
		}
		drv := fake.New(2)
		if err := device.Local(t.Context(), drv, []int{0, 1}, cfg, device.Options{Cache: "none", Libraries: device.Standard(device.Paths{})}, []*rt.Module{mod}, run); err != nil {
			t.Errorf("%s: %v", dev.Pipeline(), err)
		}
		if err := drv.Close(); err != nil {
			t.Error(err)
		}
	}
}
