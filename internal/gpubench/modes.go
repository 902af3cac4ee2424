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

// info lists the resources of every kernel as loaded, and whether fabric handles work.
func (b *bench) info() error {
	r := b.w.Local()[0]
	if err := r.Fabric(); err != nil {
		fmt.Println(err)
	} else {
		fmt.Printf("device %d: fabric handles work\n", r.Dev)
	}
	for _, t := range []dtype.DType{dtype.BF16, dtype.F32} {
		for _, c := range []struct{ image, name string }{
			{"allreduce_oneshot", "all_reduce_oneshot_%v_n4"}, {"allreduce_twoshot", "all_reduce_twoshot_%v_n4"},
			{"allreduce_direct", "all_reduce_direct_%v_n4"}, {"allreduce_direct", "all_reduce_direct_%v_n8"},
			{"reducescatter_direct", "reduce_scatter_direct_%v_n4"}, {"reducescatter_ll", "reduce_scatter_oneshot_%v_n4"},
		} {
			name := fmt.Sprintf(c.name, t)
			f, err := r.Func(c.image, name)
			if err != nil {
				return err
			}
			i, err := b.drv.FuncInfo(r.Ctx, f)
			if err != nil {
				return err
			}
			fmt.Printf("%-40s %3d registers %4d local bytes, sm_%d from PTX %d\n", name, i.Registers, i.LocalBytes, i.Binary, i.PTX)
		}
	}
	return nil
}

// verify runs every collective with every protocol over awkward sizes and shifts.
func (b *bench) verify() error {
	seed, cases, bad := uint32(1), 0, 0
	if err := b.checkTheCheck(); err != nil {
		return err
	}
	for _, t := range []dtype.DType{dtype.BF16, dtype.F32, dtype.F16} {
		for _, kind := range []kernels.Collective{kernels.AllReduce, kernels.AllGather, kernels.ReduceScatter, kernels.AllToAll} {
			for _, algo := range []kernels.Algo{kernels.Auto, kernels.OneShot, kernels.TwoShot, kernels.LL, kernels.Direct, kernels.Push, kernels.Engine, besideEngine} {
				name := fmt.Sprintf("%v %v %v", t, algo, kind)
				if algo == besideEngine {
					name = fmt.Sprintf("%v engine beside %v", t, kind)
				}
				if !b.only.MatchString(name) {
					continue
				}
				for _, per := range []uint64{1, 3, 8, 64, 1000, 4099, 16384, 300001} {
					for _, shift := range []uint64{0, 4, 2} {
						for _, inPlace := range []bool{false, true} {
							if shift%uint64(t.Size()) != 0 || inPlace && (kind != kernels.AllReduce || shift != 0) || shift != 0 && per > 10000 {
								continue
							}
							if kind == kernels.AllReduce && per == 300001 && algo == kernels.LL {
								continue // larger than its scratch
							}
							seed++
							wrong, ran, err := b.verifyOne(kind, t, algo, per, shift, inPlace, seed)
							if err != nil {
								return fmt.Errorf("%v %v %v per %d shift %d in place %v: %w", kind, t, algo, per, shift, inPlace, err)
							}
							if !ran {
								continue
							}
							cases++
							if wrong != 0 {
								bad++
								fmt.Printf("WRONG %v %v %v per %d shift %d in place %v: %d elements\n", kind, t, algo, per, shift, inPlace, wrong)
							}
						}
					}
				}
			}
		}
	}
	fmt.Printf("verify: %d cases, %d wrong\n", cases, bad)
	if bad > 0 {
		return fmt.Errorf("%d of %d cases are wrong", bad, cases)
	}
	return nil
}

// besideEngine stands for copies and flags in the forms beside compute.
const besideEngine = kernels.Algo(100)

// checkTheCheck makes sure that a wrong result is noticed.
func (b *bench) checkTheCheck() error {
	const per = 1000
	for i, kind := range []kernels.Collective{kernels.AllReduce, kernels.AllGather} { // in one order on all ranks
		name := []string{"sums", "shards"}[i]
		wrong, _, err := b.verifyOne(kind, dtype.BF16, kernels.Auto, per, 0, false, 99)
		if err != nil || wrong != 0 {
			return fmt.Errorf("%s: %d wrong, %v", name, wrong, err)
		}
		wrong, err = b.checkAll(kind, dtype.BF16, per*uint64(b.n), per, 98, b.dst)
		if err != nil {
			return err
		}
		if wrong < uint32(per/2*len(b.w.Local())/b.n) {
			return fmt.Errorf("the check took %s of another seed for right: only %d elements of %d differ", name, wrong, per*b.n*b.n)
		}
	}
	return nil
}

func (b *bench) verifyOne(kind kernels.Collective, t dtype.DType, algo kernels.Algo, per, shift uint64, inPlace bool, seed uint32) (uint32, bool, error) {
	n, sz := uint64(b.n), uint64(t.Size())
	in, out := per*n, per*n
	switch kind {
	case kernels.AllGather:
		in = per
	case kernels.ReduceScatter:
		out = per
	}
	plans, err := b.prepare(func(rank int) coll.Op {
		o := b.op(kind, t, per*n*sz, rank, inPlace, shift)
		o.Algo = algo
		if algo == besideEngine {
			o.Algo, o.Beside = kernels.Engine, true
		}
		if algo == kernels.Push {
			o.Blocks = 3 // several chunks for each block
		}
		if b.share && algo != kernels.Direct && algo != kernels.Push {
			o.Blocks = 8
		}
		return o
	})
	if err != nil {
		if plan := (*kernels.PlanError)(nil); errors.As(err, &plan) && algo != kernels.Auto {
			return 0, false, nil
		}
		return 0, false, err
	}
	if err := b.fill(t, in, out*sz, seed, shift); err != nil {
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
	at := b.dst + shift
	if inPlace {
		at = b.src + shift
	}
	wrong, err := b.checkAll(kind, t, out, per, seed, at)
	return wrong, true, err
}

type config struct {
	algo            kernels.Algo
	blocks, threads int
}

func (b *bench) measure(kind kernels.Collective, full uint64, c config) (float64, *kernels.Launch, error) {
	plans, err := b.prepare(func(rank int) coll.Op {
		o := b.op(kind, dtype.BF16, full, rank, false, 0)
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

// tune tries protocols, grids and blocks and prints the best few of each size.
func (b *bench) tune() error {
	if err := b.fill(dtype.BF16, b.max/2, b.max, 7, 0); err != nil {
		return err
	}
	us, err := b.timeGraph(200, 7, func(rank int) error { return b.launch(rank, "bench", "empty", 1, 32, 0, nil) })
	if err != nil {
		return err
	}
	b.report(figure{Op: "empty", Impl: "kernel", US: us})
	if us, _, err = b.measure(kernels.Barrier, 0, config{}); err != nil {
		return err
	}
	b.report(figure{Op: "barrier", Impl: "concert", US: us})
	for _, kind := range []kernels.Collective{kernels.AllReduce, kernels.AllGather, kernels.ReduceScatter, kernels.AllToAll} {
		for full := b.minSize; full <= b.maxSize; full *= 4 {
			if !b.only.MatchString(kind.String()) {
				continue
			}
			for _, algo := range []kernels.Algo{kernels.OneShot, kernels.TwoShot, kernels.LL, kernels.Direct, kernels.Push, kernels.Engine} {
				best := figure{US: 1e18}
				for _, c := range b.configs(kind, algo, full) {
					us, l, err := b.measure(kind, full, c)
					if err != nil {
						if plan := (*kernels.PlanError)(nil); errors.As(err, &plan) {
							continue
						}
						return fmt.Errorf("%v %v %d %v: %w", kind, algo, full, c, err)
					}
					f := figure{Op: kind.String(), Impl: "concert_" + algo.String(), Bytes: full, US: us, Note: fmt.Sprintf("%dx%d", l.Grid, l.Block)}
					if b.out != nil {
						b.line(f)
					}
					if us < best.US {
						best = f
					}
				}
				if best.US < 1e17 {
					fmt.Printf("%-14s %-8s %5s %9.2f us %7.1f GB/s %s\n", best.Op, algo, size(full), best.US, float64(full)/best.US/1e3, best.Note)
				}
			}
		}
	}
	return nil
}

func (b *bench) configs(kind kernels.Collective, algo kernels.Algo, full uint64) []config {
	var out []config
	if algo == kernels.Engine {
		if full < 16<<20 {
			return nil
		}
		return []config{{algo, 16, 0}, {algo, 32, 0}, {algo, 64, 0}}
	}
	if algo == kernels.Push {
		if full < 4<<20 {
			return nil
		}
		return []config{{algo, 128, 512}, {algo, 192, 512}, {algo, 256, 512}}
	}
	if algo == kernels.OneShot && kind == kernels.ReduceScatter && full > 1<<20 && full <= 128<<20 {
		return []config{{algo, 64, 512}, {algo, 128, 256}, {algo, 128, 512}, {algo, 256, 512}}
	}
	if algo == kernels.Direct {
		if full < 128<<10 {
			return nil
		}
		for _, blocks := range []int{8, 16, 24, 32, 48, 64, 96, 128} {
			if blocks > 32 && full < 1<<20 || blocks < 24 && full >= 4<<20 || blocks > 96 && full < 4<<20 {
				continue
			}
			out = append(out, config{algo, blocks, 512})
		}
		return out
	}
	if algo != kernels.TwoShot && full > 1<<20 || algo == kernels.TwoShot && (full < 32<<10 || full > 64<<20) {
		return nil
	}
	for _, threads := range []int{64, 128, 256, 512} {
		for _, blocks := range []int{64, 128, 256} {
			if blocks == 256 && full < 4<<20 || blocks == 64 && full <= 64<<10 || threads == 64 && full > 64<<10 || threads < 256 && full > 512<<10 {
				continue
			}
			out = append(out, config{algo, blocks, threads})
		}
	}
	return out
}

func (b *bench) line(f figure) {
	f.World = b.n
	fmt.Fprintf(b.out, `{"op":%q,"impl":%q,"bytes":%d,"us":%.3f,"world":%d,"note":%q}`+"\n", f.Op, f.Impl, f.Bytes, f.US, f.World, f.Note)
}

// bench times what the planner chooses.
func (b *bench) bench() error {
	if err := b.fill(dtype.BF16, b.max/2, b.max, 7, 0); err != nil {
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
		us, ok, err := b.time(contest{kind: kernels.AllReduce, inPlace: true}, config{}, full)
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
	if err := b.fill(dtype.BF16, b.max/2, b.max, 7, 0); err != nil {
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
