// Command tpmlp is an example of a compiler that integrates concert: it builds
// a tensor-parallel MLP over micro-batches, lets the passes hide all_reduces behind
// other micro-batches, lowers the result to a program with kernels, and runs it on up to
// four GPUs, as a CUDA graph each, or on the host. It prints how long compute waits
// for communication, simulated, and on GPUs also measured. Ranks are goroutines, or
// processes if started by a launcher such as torchrun.
//
//	go run ./examples/tpmlp
package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes/standard"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

const batches = 4 // micro-batches: one computes while another's all_reduce travels

// size is how large the MLP is and how many ranks share it.
type size struct{ ranks, rows, width, hidden int64 }

// build is the program as a user's compiler would write it: in order, each all_reduce
// waited for at once.
func build(s size) (*ir.Module, error) {
	b := ir.NewBuilder(int(s.ranks))
	tp := b.Group("tp", [][]int{[]int{0, 1, 2, 3}[:s.ranks]})
	f := b.Func("mlp")
	up := f.Parameter("up", ir.Tensor(ir.BF16, s.width, s.hidden/s.ranks))
	down := f.Parameter("down", ir.Tensor(ir.BF16, s.hidden/s.ranks, s.width))
	var outs []*ir.Value
	for i := range batches {
		x := f.Input(fmt.Sprintf("x%d", i), ir.Tensor(ir.BF16, s.rows, s.width))
		h := f.Unary(ir.OpSilu, f.MatMul(x, up))
		outs = append(outs, f.Wait(f.AllReduce(ir.Sum, tp, f.MatMul(h, down)))...)
	}
	f.Return(outs...)
	return b.Finish()
}

// must ends the program for an error.
func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// compiled schedules and lowers the program, and says what the simulator makes of it.
func compiled(w io.Writer, s size) (*rt.Module, func(*rt.Exec)) {
	pipeline := must(standard.Table().Parse("canonicalize,overlap{percent=150},fuse{kernels=true},reuse-buffers,plan-memory"))
	r := must(compile.Compile(context.Background(), must(build(s)), compile.Target{Device: compile.GPU}, compile.Options{Pipeline: pipeline}))
	f := r.Func("mlp")
	for _, stage := range []struct {
		name    string
		figures func() (compile.Figures, error)
	}{{"as written", f.Before}, {"scheduled", f.After}} {
		t := must(stage.figures())
		fmt.Fprintf(w, "%s: %.3f ms, of these exposed communication %.3f ms (simulated, %d H200)\n", stage.name, t.Makespan, t.Exposed, s.ranks)
	}
	p := must(f.Program())
	return must(rt.ModuleOf(p)), func(x *rt.Exec) { rt.Interpret(x, p) }
}

// run runs the program's ranks, or env's one, on GPUs of drv, or on the host without one.
func run(ctx context.Context, w io.Writer, drv driver.Driver, s size, o device.Options, env rt.Env) (err error) {
	mod, step := compiled(w, s)
	said := make([]string, s.ranks)
	rank := func(ctx context.Context, r *rt.Rank) error {
		k := r.Info().Rank
		outs, err := rt.RunModule(ctx, r, mod, step, inputs(mod, k), rt.Options{})
		if err != nil {
			return err
		}
		said[k] = fmt.Sprintf("rank %d: first output %.8x", k, sha256.Sum256(outs[0].Data))
		steps, ms := [2]*rt.Step{}, [2][]float64{} // the step, and the step without communication
		for i := 0; i < 20 && drv != nil; i++ {    // in turns: the GPU's clock changes as it gets warm
			k := i % 2
			if i < 2 {
				steps[k] = must(rt.Prepare(ctx, r, mod, step, rt.Options{SkipCollectives: k == 1}, true))
				defer steps[k].Close()
			}
			ms[k] = append(ms[k], must(steps[k].Time(ctx, 5))...)
			slices.Sort(ms[k])
		}
		if drv != nil {
			all, compute := ms[0][len(ms[0])/2], ms[1][len(ms[1])/2]
			said[k] += fmt.Sprintf("; %.3f ms a step, of these exposed communication %.3f ms (measured)", all, all-compute)
		}
		return nil
	}
	switch {
	case env.World > 1:
		open := map[bool]rt.Opener{true: host.Opener(host.Options{}), false: device.Opener(drv, o)}[drv == nil]
		r := must(rt.Join(ctx, open, rt.Config{Env: &env}, mod))
		err = errors.Join(rank(ctx, r), r.Close())
	case drv == nil:
		err = host.Local(ctx, int(s.ranks), rt.Config{}, host.Options{}, []*rt.Module{mod}, rank)
	default:
		err = device.Local(ctx, drv, []int{0, 1, 2, 3}[:s.ranks], rt.Config{}, o, []*rt.Module{mod}, rank)
	}
	fmt.Fprintln(w, strings.TrimSpace(strings.Join(said, "\n")))
	return err
}

// inputs are those of one rank: weights are its shard, batches are the same for all.
func inputs(m *rt.Module, rank int) []rt.Value {
	var vs []rt.Value
	for i, q := range m.Inputs {
		t, r := q.Tensors[0], rand.New(rand.NewPCG(uint64(i), uint64(max(2-i, 0)*rank)))
		v := rt.Value{DType: t.DType, Shape: t.Shape}
		for range t.NumElems() { // a bf16 is the upper half of an f32
			v.Data = binary.LittleEndian.AppendUint16(v.Data, uint16(math.Float32bits(0.1*r.Float32())>>16))
		}
		vs = append(vs, v)
	}
	return vs
}

func main() {
	env := must(rt.EnvFrom(os.Getenv))
	s, drv := size{ranks: 4, rows: 64, width: 128, hidden: 512}, driver.Driver(nil)
	if d, err := driver.Open(""); err != nil {
		fmt.Println("no GPU, so the host:", err)
	} else if gpus := must(d.Devices()); len(gpus) > 0 {
		drv, s = d, size{ranks: int64(min(len(gpus), 4)), rows: 4096, width: 4096, hidden: 12288}
	}
	if env.World > 1 {
		s.ranks = int64(env.World)
	}
	o := device.Options{Libraries: device.Standard(device.Paths{})}
	must(0, run(context.Background(), os.Stdout, drv, s, o, env))
}
