// Command tpmlp is concert from the side of a compiler that integrates it: it
// builds a tensor-parallel MLP over micro-batches, lets the passes hide the
// all_reduces behind the next micro-batch, lowers the result and runs it on four
// ranks, and prints how much of the communication is hidden.
//
//	go run ./examples/tpmlp
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"math"
	"sync"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/sim"
)

const (
	ranks   = 4
	batches = 4 // micro-batches: one computes while another's all_reduce travels
	rows    = 32
	width   = 64
	hidden  = 128
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// build is the program as a user's compiler would write it: in order, each
// all_reduce waited for at once.
func build() (*ir.Module, error) {
	b := ir.NewBuilder(ranks)
	tp := b.Group("tp", [][]int{{0, 1, 2, 3}})
	f := b.Func("mlp")
	up := f.Parameter("up", ir.Tensor(ir.F32, width, hidden/ranks))
	down := f.Parameter("down", ir.Tensor(ir.F32, hidden/ranks, width))
	var outs []*ir.Value
	for i := range batches {
		x := f.Input(fmt.Sprintf("x%d", i), ir.Tensor(ir.F32, rows, width))
		h := f.Unary(ir.OpSilu, f.Cost(0.40).MatMul(x, up))
		part := f.Cost(0.40).MatMul(h, down)
		y := f.Wait(f.Cost(0.30).AllReduce(ir.Sum, tp, part))
		outs = append(outs, y...)
	}
	f.Return(outs...)
	return b.Finish()
}

// exposed simulates a function: its makespan, and how long computing waits, in milliseconds.
func exposed(f *ir.Func, costs *cost.Model) (makespan, waits float64, err error) {
	m, err := sim.FromFunc(f, sim.FuncOptions{Ms: func(n *ir.Node) float64 { ms, _ := costs.NodeMs(n); return ms }})
	if err != nil {
		return 0, 0, err
	}
	tl, err := sim.Evaluate(m, m.InputOrder(), nil)
	if err != nil {
		return 0, 0, err
	}
	return tl.Makespan, tl.Exposed, nil
}

func run(ctx context.Context) error {
	m, err := build()
	if err != nil {
		return err
	}
	h200, err := cost.LookupMachine("h200")
	if err != nil {
		return err
	}
	costs := &cost.Model{Table: cost.H200(), Machine: h200}
	before, waits, err := exposed(m.Func("mlp"), costs)
	if err != nil {
		return err
	}
	fmt.Printf("as written: %.2f ms, %.2f ms of them waiting for communication\n", before, waits)

	pipeline, err := passes.Standard().Parse("canonicalize,overlap{percent=150}")
	if err != nil {
		return err
	}
	if _, err := (&passes.Manager{Costs: costs}).Run(m, pipeline); err != nil {
		return err
	}
	f := m.Func("mlp")
	after, waits, err := exposed(f, costs)
	if err != nil {
		return err
	}
	fmt.Printf("scheduled:  %.2f ms, %.2f ms of them waiting for communication\n", after, waits)

	p, err := lower.Func(f)
	if err != nil {
		return err
	}
	module, err := runtime.ModuleOf(p)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	sums := make([]float64, ranks)
	err = host.Local(ctx, ranks, runtime.Config{}, host.Options{}, []*runtime.Module{module}, func(ctx context.Context, r *runtime.Rank) error {
		outs, err := runtime.Run(ctx, r, p, inputs(f, r.Info().Rank), runtime.Options{})
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for i := 0; i < len(outs[0].Data); i += 4 {
			sums[r.Info().Rank] += float64(math.Float32frombits(binary.LittleEndian.Uint32(outs[0].Data[i:])))
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Printf("ran on %d ranks of the host device; the sum of the first output on each: %.4f\n", ranks, sums)
	return nil
}

// inputs fills the inputs of one rank: the batches are the same everywhere, the
// weights are the rank's shard.
func inputs(f *ir.Func, rank int) []runtime.Value {
	var vs []runtime.Value
	for _, n := range f.Inputs() {
		shape, _ := n.Result(0).Type().Shape().Static()
		data := make([]byte, 4*shape[0]*shape[1])
		seed := 0.0
		if n.Role() == ir.RoleParameter {
			seed = float64(rank)
		}
		for i := 0; i < len(data); i += 4 {
			v := 0.1 * math.Sin(float64(i)+seed)
			binary.LittleEndian.PutUint32(data[i:], math.Float32bits(float32(v)))
		}
		vs = append(vs, runtime.Value{DType: ir.F32, Shape: shape, Data: data})
	}
	return vs
}
