package outside

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/passtest"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

var update = flag.Bool("update", false, "rewrite golden cases")

// compiled is a step on two hosts after pipeline mine.
func compiled(t *testing.T) ([]*Op, *compile.Function) {
	ops := Step(4)
	machine := must(cost.ReadMachine("machine.json", bytes.NewReader(must(os.ReadFile("testdata/machine.json")))))
	target := compile.Target{Costs: &cost.Model{Machine: machine}, Reprice: compile.RepriceCollectives}
	o := compile.Options{Pipeline: must(Table().Parse("mine")), Manager: passes.Manager{Validate: passes.ValidateAlways}}
	return ops, must(compile.Compile(t.Context(), must(Build(ops)), target, o)).Func("step")
}

func TestTakeBack(t *testing.T) {
	ops, f := compiled(t)
	must(0, TakeBack(ops, f))
	buckets, offsets := 0, map[int64]bool{}
	for _, o := range ops {
		for _, a := range o.Args {
			if a.Issue > o.Issue && f.ValueOf(o.value) != nil {
				t.Errorf("%s runs at %d, before its operand %s at %d", o.Name, o.Issue, a.Name, a.Issue)
			}
		}
		if o.Bucket > 1 {
			buckets++
		}
		if o.Kind == "weight" && offsets[o.Offset] {
			t.Errorf("%s shares its offset", o.Name)
		}
		offsets[o.Offset] = true
	}
	if buckets == 0 {
		t.Error("nothing was bucketed")
	}
}

func TestPass(t *testing.T) {
	passtest.Run(t, "testdata/share", passtest.Config{Table: Table(), Update: *update, Package: "."})
}

// The kernel computes on the host and on fake GPUs: rank r has weights of r, each layer is
// 1.5*(x/2 + w), and a reduction is a shard of that from every rank.
func TestKernels(t *testing.T) {
	_, f := compiled(t)
	p := must(f.Program())
	mod := must(rt.ModuleOf(p))
	run := func(ctx context.Context, r *rt.Rank) error {
		rank := r.Info().Rank
		var in []rt.Value
		for i, q := range mod.Inputs { // x is the first
			v := rt.Value{DType: rt.F32, Shape: q.Tensors[0].Shape}
			for range q.Tensors[0].NumElems() {
				v.Data = binary.LittleEndian.AppendUint32(v.Data, math.Float32bits(float32(rank*min(i, 1))))
			}
			in = append(in, v)
		}
		outs, err := rt.RunModule(ctx, r, mod, func(x *rt.Exec) { rt.Interpret(x, p) }, in, rt.Options{})
		want := float32(0)
		for i, o := range outs {
			want = 0.75*want + world*1.5*float32(rank)
			if binary.LittleEndian.Uint32(o.Data) != math.Float32bits(want) {
				return fmt.Errorf("output %d begins with %x, want %v", i, o.Data[:4], want)
			}
		}
		return err
	}
	cfg, drv := rt.Config{Funcs: map[string]rt.Func{"my.scale": {Host: scale}}}, fake.New(world)
	err := errors.Join(host.Local(t.Context(), world, cfg, host.Options{}, []*rt.Module{mod}, run),
		device.Local(t.Context(), drv, []int{0, 1, 2, 3}, cfg, device.Options{Cache: "none"}, []*rt.Module{mod}, run), drv.Close())
	if err != nil {
		t.Error(err)
	}
}
