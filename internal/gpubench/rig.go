package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/seed-ee968945/concert/cost/calibration"
	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
)

// rig is a local world with one group of all ranks, and on every rank a source
// and a destination of the largest size.
type rig struct {
	drv     driver.Driver
	w       *symm.World
	g       *coll.Group
	n       int
	share   bool
	src     uint64 // offsets
	dst     uint64
	wrong   uint64
	staging uint64
	max     uint64
	members []*coll.Member // by rank, nil for other processes'
	streams []driver.Stream
	events  [][2]driver.Event
}

// worldOptions asks for room for two buffers of the limit and the scratch of two groups.
func worldOptions(o options) symm.WorldOptions {
	return symm.WorldOptions{Bytes: 2*o.limit + 2*o.staging + 10*o.region, ShareDevice: o.share, PTX: o.ptx, Measure: true}
}

func newRig(drv driver.Driver, w *symm.World, o options) (*rig, error) {
	start := time.Now()
	r := &rig{drv: drv, w: w, n: w.Size(), share: o.share, max: o.limit, staging: o.staging, members: make([]*coll.Member, w.Size()),
		streams: make([]driver.Stream, w.Size()), events: make([][2]driver.Event, w.Size())}
	t, err := tuningOf(o.use, r.n)
	if err != nil {
		return nil, err
	}
	if o.piece > 0 {
		t.OverlappedPiece = o.piece
	}
	if o.reduce > 0 {
		t.CoresidentReduce = o.reduce
	}
	if o.share {
		t.Blocks, t.PushBlocks = 96/r.n, 96/r.n
	}
	g := coll.GroupOptions{Timeout: o.timeout, Staging: o.staging, Region: o.region, Tuning: &t}
	if r.n > 1 { // one rank multiplies matrices
		if r.g, err = coll.NewGroup(context.Background(), w, seq(r.n), g); err != nil {
			return nil, err
		}
		for _, m := range r.g.Members() {
			r.members[m.Index] = m
		}
	}
	for _, a := range []struct {
		at    *uint64
		bytes uint64
	}{{&r.src, o.limit + 4096}, {&r.dst, o.limit + 4096}, {&r.wrong, 256}} {
		if *a.at, err = w.Alloc(a.bytes, 1<<12); err != nil {
			return nil, err
		}
	}
	for _, k := range w.Local() {
		if r.streams[k.ID], err = drv.StreamCreateHighPriority(k.Ctx); err != nil {
			return nil, err
		}
		for i := range r.events[k.ID] {
			if r.events[k.ID][i], err = drv.EventCreate(k.Ctx, true); err != nil {
				return nil, err
			}
		}
	}
	fmt.Printf("%d ranks, %d here, ready in %v\n", r.n, len(w.Local()), time.Since(start).Round(time.Millisecond))
	return r, nil
}

// tuningOf is the tuning of groups of n in a calibration file, or the default without one.
func tuningOf(file string, n int) (kernels.Tuning, error) {
	if file == "" {
		return kernels.DefaultTuning(n), nil
	}
	f, err := os.Open(file)
	if err != nil {
		return kernels.Tuning{}, err
	}
	defer f.Close()
	var c *kernels.Calibration
	_, err = calibration.Read(file, f, func(f *calibration.File) (err error) {
		c, err = kernels.CalibrationOf(f)
		return err
	})
	return c.For(n), err
}

func seq(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func (r *rig) close() {
	for _, k := range r.w.Local() {
		for _, e := range r.events[k.ID] {
			r.drv.EventDestroy(k.Ctx, e)
		}
		r.drv.StreamDestroy(k.Ctx, r.streams[k.ID])
	}
	if r.g != nil {
		if err := r.g.Close(); err != nil {
			fmt.Println("closing the group:", err)
		}
	}
	if err := r.w.Close(); err != nil {
		fmt.Println("closing the world:", err)
	}
}

// launch starts a kernel of the bench images with packed words as parameters.
func (r *rig) launch(rank int, image, name string, grid, block, shared int, buf []byte) error {
	k := r.w.Rank(rank)
	f, err := k.Func(image, name)
	if err != nil {
		return err
	}
	if shared > 48<<10 {
		if err := r.drv.AllowShared(k.Ctx, f, shared); err != nil {
			return err
		}
	}
	return r.drv.Launch(k.Ctx, r.streams[rank], f, grid, block, shared, buf)
}

func (r *rig) addr(rank int, off uint64) uint64 { return uint64(r.w.Addr(rank, off)) }

func u64s(b []byte, v ...uint64) []byte {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b
}

func u32s(b []byte, v ...uint32) []byte {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

// each runs f on every rank of this process at once and gives the first error.
func (r *rig) each(f func(rank int) error) error {
	errs := make([]error, r.n)
	var wg sync.WaitGroup
	for _, k := range r.w.Local() {
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[k.ID] = f(k.ID)
		}()
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("rank %d: %w", i, err)
		}
	}
	return nil
}

// fill writes every rank's input of count elements of bf16 and poisons the destination.
func (r *rig) fill(count, outBytes uint64, seed uint32) error {
	return r.each(func(rank int) error {
		b := u32s(u64s(nil, r.addr(rank, r.src), count), uint32(dtype.BF16), seed, uint32(rank))
		if err := r.launch(rank, "bench", "fill", 256, 256, 0, b); err != nil {
			return err
		}
		k := r.w.Rank(rank)
		if err := r.drv.Memset32(k.Ctx, r.streams[rank], driver.Ptr(r.addr(rank, r.dst)), 0xcdcdcdcd, (outBytes+4095)/4); err != nil {
			return err
		}
		if err := r.drv.Memset32(k.Ctx, r.streams[rank], driver.Ptr(r.addr(rank, r.wrong)), 0, 1); err != nil {
			return err
		}
		return r.drv.StreamSync(k.Ctx, r.streams[rank])
	})
}

var kinds = map[kernels.Collective]uint32{kernels.AllReduce: 0, kernels.AllGather: 1, kernels.ReduceScatter: 2, kernels.AllToAll: 3}

// checkAll compares every rank's result at off+shift with what it must be.
func (r *rig) checkAll(op kernels.Collective, t dtype.DType, count, shard uint64, seed uint32, at uint64) (uint32, error) {
	wrong := make([]uint32, r.n)
	err := r.each(func(rank int) error {
		b := u32s(u64s(nil, r.addr(rank, at), count), uint32(t), seed, uint32(rank), uint32(r.n), kinds[op], 0)
		b = u64s(b, shard, r.addr(rank, r.wrong))
		if err := r.launch(rank, "bench", "check", 512, 256, 0, b); err != nil {
			return err
		}
		var v [4]byte
		k := r.w.Rank(rank)
		if err := r.drv.CopyOut(k.Ctx, r.streams[rank], v[:], driver.Ptr(r.addr(rank, r.wrong))); err != nil {
			return err
		}
		wrong[rank] = binary.LittleEndian.Uint32(v[:])
		return nil
	})
	var sum uint32
	for _, v := range wrong {
		sum += v
	}
	return sum, err
}

// op describes a collective over full bytes of bf16: the larger of operand and result.
func (r *rig) op(kind kernels.Collective, full uint64, rank int, inPlace bool) coll.Op {
	o := coll.Op{Kind: kind, DType: dtype.BF16, Symmetric: true}
	src, dst := r.w.Addr(rank, r.src), r.w.Addr(rank, r.dst)
	if inPlace {
		dst = src
	}
	bytes := full
	if kind != kernels.AllReduce {
		bytes = full / uint64(r.n)
	}
	o.Tensors = []coll.Tensor{{Src: src, Dst: dst, Bytes: bytes}}
	return o
}

// prepare plans an op on every rank.
func (r *rig) prepare(f func(rank int) coll.Op) ([]*coll.Prepared, error) {
	out := make([]*coll.Prepared, r.n)
	for _, m := range r.g.Members() {
		p, err := m.Prepare(f(m.Index))
		if err != nil {
			return nil, err
		}
		out[m.Index] = p
	}
	return out, nil
}

// timeGraph captures inner calls of enqueue on every rank and gives the median
// time of one call, in microseconds, on the slowest rank.
func (r *rig) timeGraph(inner, reps int, enqueue func(rank int) error) (float64, error) {
	execs, err := r.capture(inner, enqueue)
	if err != nil {
		return 0, err
	}
	times := make([][]float64, r.n)
	var gate barrier
	gate.n = len(r.w.Local())
	pause := uint64(100_000) // hides the launch
	if gate.n < r.n {
		pause = 400_000 // and the rendezvous of the processes
	}
	err = r.each(func(rank int) error {
		for j := 0; j < reps+2; j++ {
			gate.wait()
			ms, err := r.timeOnce(rank, execs[rank], pause)
			if err != nil {
				return err
			}
			if j >= 2 {
				times[rank] = append(times[rank], float64(ms)*1e3/float64(inner))
			}
		}
		return nil
	})
	for _, k := range r.w.Local() {
		r.drv.ExecDestroy(k.Ctx, execs[k.ID])
	}
	if err != nil {
		return 0, err
	}
	worst := 0.0
	for _, t := range times {
		if len(t) == 0 {
			continue // another process's rank
		}
		sort.Float64s(t)
		worst = max(worst, t[len(t)/2])
	}
	return worst, nil
}

// capture makes a graph of inner calls of enqueue for each local rank, by rank.
func (r *rig) capture(inner int, enqueue func(rank int) error) ([]driver.Exec, error) {
	execs := make([]driver.Exec, r.n)
	for _, k := range r.w.Local() {
		i := k.ID
		if err := r.drv.CaptureBegin(k.Ctx, r.streams[i]); err != nil {
			return nil, err
		}
		for j := 0; j < inner; j++ {
			if err := enqueue(i); err != nil {
				return nil, err
			}
		}
		g, err := r.drv.CaptureEnd(k.Ctx, r.streams[i])
		if err != nil {
			return nil, err
		}
		if execs[i], err = r.drv.GraphInstantiate(k.Ctx, g); err != nil {
			return nil, err
		}
		r.drv.GraphDestroy(k.Ctx, g)
		if err := r.drv.GraphUpload(k.Ctx, execs[i], r.streams[i]); err != nil {
			return nil, err
		}
		if err := r.drv.StreamSync(k.Ctx, r.streams[i]); err != nil {
			return nil, err
		}
	}
	return execs, nil
}

// timeOnce runs a graph on a rank and gives its milliseconds. The ranks start together,
// however far apart the host launched them.
func (r *rig) timeOnce(rank int, exec driver.Exec, pause uint64) (float32, error) {
	k, s, ev := r.w.Rank(rank), r.streams[rank], r.events[rank]
	if err := r.w.Barrier(context.Background()); err != nil {
		return 0, err
	}
	if err := r.launch(rank, "bench", "delay", 1, 1, 0, u64s(nil, pause)); err != nil {
		return 0, err
	}
	if err := r.members[rank].Enqueue(s, coll.Op{Kind: kernels.Barrier}); err != nil {
		return 0, err
	}
	if err := r.drv.EventRecord(k.Ctx, ev[0], s); err != nil {
		return 0, err
	}
	if err := r.drv.GraphLaunch(k.Ctx, exec, s); err != nil {
		return 0, err
	}
	if err := r.drv.EventRecord(k.Ctx, ev[1], s); err != nil {
		return 0, err
	}
	if err := r.members[rank].Check(context.Background(), s); err != nil {
		return 0, err
	}
	return r.drv.EventElapsed(k.Ctx, ev[0], ev[1])
}

// barrier is one of n goroutines.
type barrier struct {
	n, at, turn int
	mu          sync.Mutex
	cond        *sync.Cond
}

func (b *barrier) wait() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cond == nil {
		b.cond = sync.NewCond(&b.mu)
	}
	turn := b.turn
	if b.at++; b.at == b.n {
		b.at, b.turn = 0, b.turn+1
		b.cond.Broadcast()
		return
	}
	for turn == b.turn {
		b.cond.Wait()
	}
}

// with runs f while another group of all ranks takes the rig's place.
func (r *rig) with(t kernels.Tuning, f func() error) error {
	g, err := coll.NewGroup(context.Background(), r.w, seq(r.n), coll.GroupOptions{Timeout: 5 * time.Second, Staging: r.staging, Region: 16 << 20, Flagged: 1 << 20, Tuning: &t})
	if err != nil {
		return err
	}
	old, members := r.g, r.members
	r.g, r.members = g, make([]*coll.Member, r.n)
	for _, m := range g.Members() {
		r.members[m.Index] = m
	}
	err = f()
	r.g, r.members = old, members
	if cerr := g.Close(); err == nil {
		err = cerr
	}
	return err
}
