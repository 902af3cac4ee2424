package main

import (
	"fmt"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// layer lists the elements of the nine parameters of a llama 8B layer.
var layer = []uint64{
	4096,         // attention norm
	4096 * 4096,  // wq
	1024 * 4096,  // wk
	1024 * 4096,  // wv
	4096 * 4096,  // wo
	4096,         // feed-forward norm
	14336 * 4096, // w1
	4096 * 14336, // w2
	14336 * 4096, // w3
}

// bucket gathers the layer's parameters from shards in bf16: one launch for all,
// one launch of the summed bytes, and one launch for each.
func (b *bench) bucket() error {
	var total uint64
	for _, n := range layer {
		total += 2 * n
	}
	if total > b.max {
		return fmt.Errorf("a layer has %d bytes: raise -max", total)
	}
	if err := b.fill(total/2, total, 11); err != nil {
		return err
	}
	tensors := func(rank int) []coll.Tensor {
		var out []coll.Tensor
		at, to := b.w.Addr(rank, b.src), b.w.Addr(rank, b.dst)
		for _, n := range layer {
			shard := 2 * n / uint64(b.n)
			out = append(out, coll.Tensor{Src: at, Dst: to, Bytes: shard})
			at, to = at+driver.Ptr(shard), to+driver.Ptr(2*n)
		}
		return out
	}
	for _, algo := range []kernels.Algo{kernels.Direct, kernels.Engine} {
		one := func(rank int) coll.Op {
			return coll.Op{Kind: kernels.AllGather, DType: dtype.BF16, Symmetric: true, Algo: algo, Tensors: tensors(rank)}
		}
		sum := func(rank int) coll.Op {
			o := one(rank)
			o.Tensors = []coll.Tensor{{Src: b.w.Addr(rank, b.src), Dst: b.w.Addr(rank, b.dst), Bytes: total / uint64(b.n)}}
			return o
		}
		for _, c := range []struct {
			name string
			op   func(int) coll.Op
		}{{"one launch", one}, {"summed bytes", sum}} {
			plans, err := b.prepare(c.op)
			if err != nil {
				return err
			}
			us, err := b.timeGraph(5, 9, func(rank int) error { return plans[rank].Enqueue(b.streams[rank]) })
			if err != nil {
				return err
			}
			b.report(figure{Op: "layer_gather", Impl: fmt.Sprintf("concert %v, %s", algo, c.name), Bytes: total, US: us})
		}
	}
	var each [][]*coll.Prepared
	for i := range layer {
		plans, err := b.prepare(func(rank int) coll.Op {
			return coll.Op{Kind: kernels.AllGather, DType: dtype.BF16, Symmetric: true, Tensors: tensors(rank)[i : i+1]}
		})
		if err != nil {
			return err
		}
		each = append(each, plans)
	}
	us, err := b.timeGraph(5, 9, func(rank int) error {
		for _, plans := range each {
			if err := plans[rank].Enqueue(b.streams[rank]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.report(figure{Op: "layer_gather", Impl: "concert, a launch each", Bytes: total, US: us})
	return nil
}
