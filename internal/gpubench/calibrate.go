package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/seed-ee968945/concert/cost/calibration"
	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/library"
	"github.com/seed-ee968945/concert/kernels"
)

// calibrate finds the sizes at which protocols take over from each other in a group of
// this many ranks and writes them to the calibration file, which keeps what it holds of
// other groups. What the planner then reaches is for lowerdump calibrate to measure. With
// cuBLASLt it also finds from where the forms overlapped with compute pay.
func (b *bench) calibrate() error {
	if b.n != len(b.w.Local()) {
		return errors.New("one process calibrates for all: leave -procs out")
	}
	file, err := b.calibration()
	if err != nil {
		return err
	}
	infos, err := b.drv.Devices()
	if err != nil {
		return err
	}
	file.Machine = fmt.Sprintf("%d x %s", len(infos), infos[0].Name)
	if err := b.fill(b.max/2, b.max, 7); err != nil {
		return err
	}
	t, err := b.thresholds()
	if err != nil {
		return err
	}
	if err := b.overlapThresholds(&t); err != nil {
		return err
	}
	file.Protocols = slices.DeleteFunc(file.Protocols, func(p calibration.Protocols) bool { return p.Ranks == b.n })
	file.Protocols = append(file.Protocols, calibration.Protocols{Ranks: b.n, Limits: t})
	return b.write(file)
}

// calibration is the file that is added to, or an empty one.
func (b *bench) calibration() (*calibration.File, error) {
	f, err := os.Open(b.tuning)
	if errors.Is(err, os.ErrNotExist) {
		return &calibration.File{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return calibration.Read(b.tuning, f)
}

// comparison is two ways to do a collective.
type comparison struct {
	kind      kernels.Collective
	low, high config // better for small and for large sizes
	from, to  uint64 // sizes tried, by factors of two
	inPlace   bool
}

// time is the time of c, or false where its protocol does not serve.
func (b *bench) time(k comparison, c config, full uint64) (float64, bool, error) {
	plans, err := b.prepare(func(rank int) coll.Op {
		o := b.op(k.kind, full, rank, k.inPlace)
		o.Algo, o.Blocks, o.Threads = c.algo, c.blocks, c.threads
		if k.kind == kernels.AllReduce {
			o.Red = kernels.Avg // stays finite in place
		}
		return o
	})
	var plan *kernels.PlanError
	if errors.As(err, &plan) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	us, err := b.timeGraph(inner(full), 7, func(rank int) error { return plans[rank].Enqueue(b.streams[rank]) })
	return us, err == nil, err
}

// cross gives the largest size up to which low wins, 0 when it never does. A protocol
// has lost for good when it lost at two sizes in a row, or cannot serve a size.
func (b *bench) cross(k comparison) (uint64, error) {
	best, lost := uint64(0), 0
	for full := k.from; full <= min(k.to, b.max) && lost < 2; full *= 2 {
		low, ok, err := b.time(k, k.low, full)
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		high, served, err := b.time(k, k.high, full)
		if err != nil {
			return 0, err
		}
		fmt.Printf("%-14v %8s: %v %.2f us, %v %.2f us\n", k.kind, size(full), k.low.algo, low, k.high.algo, high)
		if served && high < low {
			lost++
			continue
		}
		best, lost = full, 0
	}
	return best, nil
}

// above turns the last size at which the other protocol wins into the first one from
// which this one does; 0 is never.
func above(last, from, to uint64) uint64 {
	switch {
	case last == 0:
		return from
	case last >= to:
		return 0
	}
	return 2 * last
}

func (b *bench) thresholds() (kernels.Tuning, error) {
	t := kernels.DefaultTuning(b.n)
	alg := func(a kernels.Algo) config { return config{algo: a} }
	small := alg(kernels.OneShot)
	if b.n != 2 && b.n != 4 && b.n != 8 { // no specialised kernels
		small = alg(kernels.LL)
	}
	const most = 1 << 30
	var err error
	find := func(k comparison) uint64 {
		if err != nil {
			return 0
		}
		var at uint64
		at, err = b.cross(k)
		return at
	}
	set := func(to *uint64, v uint64) {
		if v > 0 {
			*to = v
		}
	}
	two, direct, push, engine := alg(kernels.TwoShot), alg(kernels.Direct), alg(kernels.Push), alg(kernels.Engine)
	if small.algo == kernels.OneShot {
		set(&t.OneShot, find(comparison{kind: kernels.AllReduce, low: small, high: two, from: 16 << 10, to: 8 << 20}))
		set(&t.TwoShot, find(comparison{kind: kernels.AllReduce, low: two, high: push, from: 1 << 20, to: 64 << 20}))
		set(&t.Push, max(t.TwoShot, find(comparison{kind: kernels.AllReduce, low: direct, high: push, from: t.TwoShot, to: 256 << 20})))
		set(&t.PushScatter, find(comparison{kind: kernels.ReduceScatter, low: direct, high: push, from: 16 << 20, to: 512 << 20}))
	}
	set(&t.PacketGather, find(comparison{kind: kernels.AllGather, low: alg(kernels.LL), high: direct, from: 64 << 10, to: 8 << 20}))
	set(&t.PacketAll, find(comparison{kind: kernels.AllToAll, low: alg(kernels.LL), high: direct, from: 64 << 10, to: 8 << 20}))
	set(&t.PacketReduce, find(comparison{kind: kernels.ReduceScatter, low: small, high: direct, from: 64 << 10, to: 64 << 20}))
	t.EngineMove = above(find(comparison{kind: kernels.AllGather, low: direct, high: engine, from: 32 << 20, to: most}), 32<<20, most)
	if small.algo == kernels.OneShot {
		t.EngineInPlace = above(find(comparison{kind: kernels.AllReduce, low: push, high: engine, from: 64 << 20, to: most, inPlace: true}), 64<<20, most)
		t.EngineReduce = above(find(comparison{kind: kernels.AllReduce, low: push, high: engine, from: 64 << 20, to: most}), 64<<20, most)
	}
	return t, err
}

// overlapThresholds finds from where the forms overlapped with compute cost less in all: the time
// of the collective overlapped with matmuls, and what the matmuls lose to it.
func (b *bench) overlapThresholds(t *kernels.Tuning) error {
	if b.max < movedBytes+3*matrix {
		return nil
	}
	side := make([]compute, b.n)
	defer b.closeSide(side)
	if err := b.openSide(side); err != nil {
		if errors.Is(err, library.ErrUnavailable) {
			fmt.Println("no cuBLASLt: the forms overlapped with compute keep their defaults:", err)
			return nil
		}
		return err
	}
	for _, k := range []struct {
		kind kernels.Collective
		to   *uint64
	}{{kernels.AllGather, &t.OverlappedMove}, {kernels.ReduceScatter, &t.OverlappedReduce}} {
		*k.to = 0
		for full := uint64(64 << 20); full >= 128<<10; full /= 4 {
			cost := [2]float64{}
			for i, beside := range []bool{true, false} {
				f := form{kind: k.kind, beside: beside, short: true}
				if beside {
					f.algo = kernels.Engine
				}
				r, err := b.beside(side, f, full)
				if err != nil {
					return err
				}
				cost[i] = r.call + r.lost
			}
			if cost[0] > cost[1] {
				break
			}
			*k.to = full
		}
	}
	return nil
}
