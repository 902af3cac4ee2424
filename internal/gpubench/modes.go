package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

func inner(bytes uint64) int {
	switch {
	case bytes <= 1<<20:
		return 200
	case bytes <= 16<<20:
		return 20
	}
	return 5
}

func size(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%dG", n>>30)
	case n >= 1<<20:
		return fmt.Sprintf("%dM", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%dK", n>>10)
	}
	return fmt.Sprint(n)
}

// check runs a form on bf16 and counts the elements that are not what they must be, or
// says that it does not serve.
func (b *bench) check(f way, per uint64) (wrong uint32, ran bool, err error) {
	const t, seed = dtype.BF16, 31
	kind, n, sz := f.kind, uint64(b.n), uint64(t.Size())
	in, out := per*n, per*n
	switch kind {
	case kernels.AllGather:
		in = per
	case kernels.ReduceScatter:
		out = per
	}
	plans, err := b.prepare(func(rank int) coll.Op {
		o := b.op(kind, per*n*sz, rank, f.inPlace)
		o.Algo = f.algo
		if f.algo == kernels.Push {
			o.Blocks = 3 // several chunks for each block
		}
		if b.share && f.algo != kernels.Direct && f.algo != kernels.Push {
			o.Blocks = 8
		}
		return o
	})
	if err != nil {
		if plan := (*kernels.PlanError)(nil); errors.As(err, &plan) && f.algo != kernels.Auto {
			return 0, false, nil
		}
		return 0, false, err
	}
	if err := b.fill(in, out*sz, seed); err != nil {
		return 0, false, err
	}
	for _, m := range b.g.Members() {
		if err := plans[m.Index].Enqueue(b.streams[m.Index]); err != nil {
			return 0, false, err
		}
	}
	for _, m := range b.g.Members() {
		if err := m.Check(context.Background(), b.streams[m.Index]); err != nil {
			return 0, false, err
		}
	}
	at := b.dst
	if f.inPlace {
		at = b.src
	}
	wrong, err = b.checkAll(kind, t, out, per, seed, at)
	return wrong, true, err
}

type config struct {
	algo            kernels.Algo
	blocks, threads int
}

func (b *bench) measure(kind kernels.Collective, full uint64, c config) (float64, *kernels.Launch, error) {
	plans, err := b.prepare(func(rank int) coll.Op {
		o := b.op(kind, full, rank, false)
		o.Algo, o.Blocks, o.Threads = c.algo, c.blocks, c.threads
		if kind == kernels.Barrier {
			o = coll.Op{Kind: kind}
		}
		return o
	})
	if err != nil {
		return 0, nil, err
	}
	us, err := b.timeGraph(inner(full), 7, func(rank int) error { return plans[rank].Enqueue(b.streams[rank]) })
	l := plans[b.w.Local()[0].ID].Launch()
	if l == nil {
		l = &kernels.Launch{Algo: kernels.Engine}
	}
	return us, l, err
}

func (b *bench) line(f figure) {
	f.World = b.n
	fmt.Fprintf(b.out, `{"op":%q,"impl":%q,"bytes":%d,"us":%.3f,"world":%d,"note":%q}`+"\n", f.Op, f.Impl, f.Bytes, f.US, f.World, f.Note)
}

// bench times what the planner chooses.
func (b *bench) bench() error {
	if err := b.fill(b.max/2, b.max, 7); err != nil {
		return err
	}
	us, err := b.timeGraph(200, 11, func(rank int) error { return b.launch(rank, "bench", "empty", 1, 32, 0, nil) })
	if err != nil {
		return err
	}
	b.report(figure{Op: "empty", Impl: "kernel", US: us})
	if us, _, err = b.measure(kernels.Barrier, 0, config{}); err != nil {
		return err
	}
	b.report(figure{Op: "barrier", Impl: "concert", US: us})
	for _, kind := range []kernels.Collective{kernels.AllReduce, kernels.AllGather, kernels.ReduceScatter, kernels.AllToAll} {
		if !b.only.MatchString(kind.String()) {
			continue
		}
		for full := b.minSize; full <= b.maxSize; full *= 4 {
			us, l, err := b.measure(kind, full, config{})
			if err != nil {
				return err
			}
			b.report(figure{Op: kind.String(), Impl: "concert", Bytes: full, US: us, Note: fmt.Sprintf("%v %dx%d", l.Algo, l.Grid, l.Block)})
		}
	}
	if !b.only.MatchString("all_reduce in place") {
		return nil
	}
	for full := max(b.minSize, 16<<20); full <= b.maxSize; full *= 4 {
		us, ok, err := b.time(comparison{kind: kernels.AllReduce, inPlace: true}, config{}, full)
		if err != nil {
			return err
		}
		if ok {
			b.report(figure{Op: "all_reduce", Impl: "concert, in place", Bytes: full, US: us})
		}
	}
	return nil
}

// links shows what plain transfers between all ranks at once reach: bytes that
// leave each rank, over the time.
func (b *bench) links() error {
	bytes := min(b.max, 256<<20)
	if err := b.fill(b.max/2, b.max, 7); err != nil {
		return err
	}
	for _, name := range []string{"links_load", "links_store", "links_both", "links_bulk_push", "links_bulk_pull"} {
		for _, phases := range []uint32{0, 1} {
			for _, blocks := range []int{32, 64, 128} {
				image, block, shared := "bench", 512, 0
				if strings.Contains(name, "bulk") {
					image, block, shared = "bench_bulk", 32, 8*24576
				}
				us, err := b.timeGraph(3, 5, func(rank int) error {
					a := kernels.Args{N: uint32(b.n), Rank: uint32(rank)}
					for k := 0; k < b.n; k++ {
						a.Peer[k] = b.addr((rank+k)%b.n, 0)
					}
					buf := u64s(a.Pack(nil, 1), b.src, b.dst)
					return b.launch(rank, image, name, blocks, block, shared, u32s(buf, uint32(bytes/16), phases))
				})
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				moved := bytes * uint64(b.n-1)
				if name == "links_both" {
					moved *= 2
				}
				fmt.Printf("%-16s %3d blocks phases %d %9.1f us %7.1f GB/s each way\n", name, blocks, phases, us, float64(moved)/us/1e3)
				if b.out != nil {
					b.line(figure{Op: name, Impl: "links", Bytes: moved, US: us, Note: fmt.Sprintf("%d blocks phases %d", blocks, phases)})
				}
			}
		}
	}
	us, err := b.timeGraph(3, 5, func(rank int) error {
		for k := 1; k < b.n; k++ {
			to := driver.Ptr(b.addr((rank+k)%b.n, b.dst))
			if err := b.drv.Copy(b.w.Rank(rank).Ctx, b.streams[rank], to, driver.Ptr(b.addr(rank, b.src)), bytes); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Printf("copy engine, push, one at a time %9.1f us %7.1f GB/s\n", us, float64(bytes*uint64(b.n-1))/us/1e3)
	return nil
}

// litmus runs write, barrier, read, barrier in a graph and counts stale values.
func (b *bench) litmus() error {
	const at, words = 0, 64 * 512 * 64
	plans, err := b.prepare(func(int) coll.Op { return coll.Op{Kind: kernels.Barrier} })
	if err != nil {
		return err
	}
	round := b.src + words
	for _, k := range b.w.Local() {
		i := k.ID
		if err := b.drv.Memset32(k.Ctx, b.streams[i], driver.Ptr(b.addr(i, b.src)), 0, (words+4096)/4); err != nil {
			return err
		}
		if err := b.drv.StreamSync(k.Ctx, b.streams[i]); err != nil {
			return err
		}
	}
	const inner, reps = 100, 198
	_, err = b.timeGraph(inner, reps, func(rank int) error {
		a := kernels.Args{N: uint32(b.n), Rank: uint32(rank)}
		for k := 0; k < b.n; k++ {
			a.Peer[k] = b.addr((rank+k)%b.n, 0)
		}
		base := a.Pack(nil, 1)
		if err := b.launch(rank, "bench", "litmus_write", 64, 512, 0, u64s(append([]byte(nil), base...), b.src+at, round)); err != nil {
			return err
		}
		if err := plans[rank].Enqueue(b.streams[rank]); err != nil {
			return err
		}
		buf := u64s(append([]byte(nil), base...), b.src+at, round, b.addr(rank, round+64))
		if err := b.launch(rank, "bench", "litmus_read", 64, 512, 0, buf); err != nil {
			return err
		}
		if err := plans[rank].Enqueue(b.streams[rank]); err != nil {
			return err
		}
		return b.launch(rank, "bench", "litmus_next", 1, 1, 0, u64s(nil, b.addr(rank, round)))
	})
	if err != nil {
		return err
	}
	for _, k := range b.w.Local() {
		i := k.ID
		var v [68]byte
		if err := b.drv.CopyOut(k.Ctx, b.streams[i], v[:], driver.Ptr(b.addr(i, round))); err != nil {
			return err
		}
		rounds, wrong := binary.LittleEndian.Uint32(v[:]), binary.LittleEndian.Uint32(v[64:])
		fmt.Printf("litmus rank %d: %d rounds, %d stale words\n", i, rounds, wrong)
		if rounds != inner*(reps+2) || wrong != 0 {
			return fmt.Errorf("barriers do not order the data of earlier kernels")
		}
	}
	return nil
}
