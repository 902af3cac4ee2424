package sched

import "github.com/seed-ee968945/concert/sim"

// chain describes a synthetic backward pass: a chain of layers, each with a
// parameter gather, a tensor-parallel gather and scatter on the critical chain,
// two weight-gradient matmuls off it, and the reductions of their gradients.
type chain struct {
	Layers int
	DxMs   float64 // matmul on the chain
	DwMs   float64 // both weight gradients together
	TPMs   float64 // each of the two tensor-parallel collectives, 0 for none
	FSDPMs float64 // parameter gather and gradient reduction, each; 0 for none
	Act    int64   // bytes of a saved activation, and of what flows along the chain
	Weight int64   // bytes of a gathered weight and of its gradient
	Small  int     // cheap pointwise nodes per layer, each with a view, to make the graph long
}

// defaultChain is a chain of n layers about as demanding as a large language model
// with sharded parameters and tensor parallelism.
func defaultChain(layers int) chain {
	return chain{Layers: layers, DxMs: 0.6, DwMs: 0.6, TPMs: 0.2, FSDPMs: 0.25, Act: 64 << 20, Weight: 112 << 20, Small: 8}
}

// NodesPerLayer returns how many nodes each layer adds.
func (c chain) NodesPerLayer() int {
	n := 5 + 2*c.Small // saved input, shard, dx, two dw, and the small ones
	if c.TPMs > 0 {
		n += 4
	}
	if c.FSDPMs > 0 {
		n += 6
	}
	return n
}

// Model builds the chain as a trace would have it: gathers first, gradients
// reduced and waited for at once.
func (c chain) Model() (*sim.Model, error) {
	b := sim.NewBuilder(c.Layers * c.NodesPerLayer())
	const ranks = 8
	saved := make([]int32, c.Layers)
	weight := make([]int32, c.Layers)
	grad := b.Input(false, c.Act)
	for i := range saved {
		saved[i] = b.Input(false, c.Act)
		shard := c.Weight
		if c.FSDPMs > 0 {
			shard /= ranks
		}
		weight[i] = b.Input(true, shard)
	}
	gather := sim.Key{Op: "all_gather", Group: "fsdp", GroupSize: ranks}
	reduce := sim.Key{Op: "reduce_scatter", Group: "fsdp", GroupSize: ranks, Reduce: "sum"}
	tpGather := sim.Key{Op: "all_gather", Group: "tp", GroupSize: ranks}
	tpReduce := sim.Key{Op: "reduce_scatter", Group: "tp", GroupSize: ranks, Reduce: "sum"}
	var out []int32
	for i := range saved {
		w, x := weight[i], grad
		if c.FSDPMs > 0 {
			w = b.Wait(b.Start(c.FSDPMs, gather, true, c.Weight, []int32{w}, c.Weight))
		}
		for range c.Small {
			x = b.View(b.Compute(0.002, []int32{x}, c.Act))
		}
		if c.TPMs > 0 {
			x = b.Wait(b.Start(c.TPMs, tpGather, true, c.Act, []int32{x}, c.Act))
		}
		for range 2 {
			dw := b.Compute(c.DwMs/2, []int32{x, saved[i]}, c.Weight/2)
			if c.FSDPMs > 0 {
				dw = b.Wait(b.Start(c.FSDPMs/2, reduce, true, c.Weight/2, []int32{dw}, c.Weight/2/ranks))
			}
			out = append(out, dw)
		}
		grad = b.Compute(c.DxMs, []int32{x, w}, c.Act)
		if c.TPMs > 0 {
			grad = b.Wait(b.Start(c.TPMs, tpReduce, true, c.Act, []int32{grad}, c.Act/ranks))
		}
	}
	b.Output(append(out, grad)...)
	return b.Build()
}
