//go:build linux

package cuda

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/eager"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/kernels"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// What a NewGroup that failed has given answers as other bad arguments do, and does not panic.
// Left out is what is for use within a call that has begun.
func TestNilGroups(t *testing.T) {
	within := []string{"Drain", "Failure", "NewStream", "NewEvent", "NewMemory", "AddSignal", "Run", "TimedOut"}
	for _, v := range []any{(*coll.Member)(nil), (*coll.Group)(nil), (*symm.Member)(nil), (*symm.Group)(nil)} {
		of := reflect.ValueOf(v)
		for i := range of.NumMethod() {
			m := of.Type().Method(i)
			f := of.Method(i).Type()
			if n := f.NumOut(); n == 0 || f.Out(n-1) != reflect.TypeFor[error]() || slices.Contains(within, m.Name) {
				continue
			}
			in := make([]reflect.Value, f.NumIn())
			for k := range in {
				if in[k] = reflect.Zero(f.In(k)); f.In(k) == reflect.TypeFor[context.Context]() {
					in[k] = reflect.ValueOf(t.Context())
				}
			}
			call := of.Method(i).Call
			if f.IsVariadic() {
				call = of.Method(i).CallSlice
			}
			out := call(in)
			err, _ := out[len(out)-1].Interface().(error)
			var bad *symm.ArgumentError
			if m.Name == "Close" {
				if err != nil {
					t.Errorf("%v.Close: %v", of.Type(), err)
				}
			} else if !errors.As(err, &bad) || !strings.Contains(err.Error(), "it is nil") {
				t.Errorf("%v.%s: %v", of.Type(), m.Name, err)
			}
		}
	}
	(*coll.Member)(nil).Abort(nil)
	(*symm.Member)(nil).Abort(nil)
}

// A badCall cannot be served. It must answer with an error of its kind, without a panic.
type badCall struct {
	name string
	is   func(error) bool // nil for calls that only must not panic
	call func() error
}

func (c badCall) run(t *testing.T) {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("panic: %v", p)
		}
	}()
	switch err := c.call(); {
	case c.is == nil && err != nil:
		t.Error(err)
	case c.is != nil && !c.is(err):
		t.Errorf("got %v (%T)", err, err)
	}
}

func runBad(t *testing.T, calls []badCall) {
	for _, c := range calls {
		t.Run(c.name, c.run)
	}
}

func isArgument(err error) bool {
	var e *symm.ArgumentError
	return errors.As(err, &e) && e.What != "" && e.Reason != ""
}

func isPlan(err error) bool { var e *kernels.PlanError; return errors.As(err, &e) }

func isClosed(err error) bool { return errors.Is(err, symm.ErrClosed) }

func says(s string) func(error) bool {
	return func(err error) bool { return err != nil && strings.Contains(err.Error(), s) }
}

func ends(f func()) func() error { return func() error { f(); return nil } }

func refuse(wrong bool, why string) error {
	if wrong {
		return errors.New(why)
	}
	return nil
}

// refusals is a world of two ranks with a group, to which bad calls are made.
type refusals struct {
	ctx     context.Context
	drv     driver.Driver
	set     *kernels.Set
	w, lone *symm.World
	small   coll.GroupOptions // no staging
	g       *coll.Group
	m       *coll.Member
	s       driver.Stream
	off     uint64
	a       driver.Ptr
	op      coll.Op // a good one
}

func newRefusals(t *testing.T) *refusals {
	r := &refusals{ctx: t.Context(), drv: newDriverOf(t, 4), set: images(t)}
	r.small = coll.GroupOptions{Region: 1 << 20, Flagged: 1 << 20, Timeout: plenty}
	r.w = got(symm.NewLocalWorld(r.drv, []int{0, 1}, symm.WorldOptions{Bytes: 32 << 20, Images: r.set}))(t)
	r.lone = got(symm.NewSingleRankWorld(r.drv, 0, 2, 2, symm.WorldOptions{Bytes: 1 << 20, Images: r.set}))(t)
	r.g = got(coll.NewGroup(r.ctx, r.w, []int{0, 1}, r.small))(t)
	r.m = r.g.Members()[0]
	r.s = got(r.drv.StreamCreate(r.m.Rank.Ctx))(t)
	r.off = got(r.w.Alloc(1<<16, 256))(t)
	r.a = r.w.Addr(0, r.off)
	r.op = coll.Op{Kind: kernels.AllReduce, DType: dtype.F32, Symmetric: true, Tensors: []coll.Tensor{{Src: r.a, Dst: r.a, Bytes: 64}}}
	return r
}

func (r *refusals) world(d driver.Driver, devs []int, o symm.WorldOptions) func() error {
	o.Images = r.set
	return func() error { w, err := symm.NewLocalWorld(d, devs, o); w.Close(); return err }
}

func (r *refusals) group(change func(*coll.GroupOptions), ranks ...int) func() error {
	o := r.small
	change(&o)
	return func() error { g, err := coll.NewGroup(r.ctx, r.w, ranks, o); g.Close(); return err }
}

func (r *refusals) prepare(change func(*coll.Op)) func() error {
	op := coll.Op{Kind: kernels.AllGather, DType: dtype.F32, Symmetric: true, Algo: kernels.Direct, Tensors: []coll.Tensor{{Src: r.a, Dst: r.a + 4096, Bytes: 1024}}}
	change(&op)
	return func() error {
		_, err := r.m.Prepare(op)
		return errors.Join(err, r.m.Enqueue(r.s, op))
	}
}

func (r *refusals) ofWorlds() []badCall {
	var none context.Context
	return []badCall{
		{"no driver", isArgument, r.world(nil, []int{0}, symm.WorldOptions{Bytes: 1})},
		{"no devices", isArgument, r.world(r.drv, nil, symm.WorldOptions{Bytes: 1})},
		{"65 ranks", isArgument, r.world(r.drv, make([]int, 65), symm.WorldOptions{Bytes: 1, ShareDevice: true})},
		{"device 4", says("this machine has 4 devices"), r.world(r.drv, []int{4}, symm.WorldOptions{Bytes: 1})},
		{"device -1", says("this machine has 4 devices"), r.world(r.drv, []int{-1}, symm.WorldOptions{Bytes: 1})},
		{"empty images", isArgument, func() error {
			_, err := symm.NewLocalWorld(r.drv, []int{0}, symm.WorldOptions{Bytes: 1, Images: &kernels.Set{}})
			return err
		}},
		{"lone rank -1", isArgument, func() error {
			_, err := symm.NewSingleRankWorld(r.drv, -1, 2, 0, symm.WorldOptions{Bytes: 1, Images: r.set})
			return err
		}},
		{"lone rank 2", isArgument, func() error {
			_, err := symm.NewSingleRankWorld(r.drv, 2, 2, 0, symm.WorldOptions{Bytes: 1, Images: r.set})
			return err
		}},
		{"single-rank world of 2^60", isArgument, func() error {
			_, err := symm.NewSingleRankWorld(r.drv, 2, 1<<60, 0, symm.WorldOptions{Bytes: 1, Images: r.set})
			return err
		}},
		{"no group", isArgument, func() error {
			_, err := symm.NewProcessWorld(r.ctx, r.drv, nil, 0, symm.WorldOptions{Bytes: 1, Images: r.set})
			return err
		}},
		{"no context", isArgument, func() error {
			_, err := symm.NewProcessWorld(none, r.drv, nil, 0, symm.WorldOptions{Bytes: 1, Images: r.set})
			return err
		}},
		{"no context for a group", isArgument, func() error { _, err := coll.NewGroup(none, r.w, []int{0, 1}, r.small); return err }},
		{"no context for Barrier", isArgument, func() error { return r.w.Barrier(none) }},
		{"no context for Compare", isArgument, func() error { _, err := r.w.Compare(none, ""); return err }},
		{"no context for Check", isArgument, func() error { return r.m.Check(none, r.s) }},
		{"no context for Rejoin", isArgument, func() error { return r.g.Rejoin(none) }},
		{"no context for Close", isArgument, func() error { return r.w.CloseContext(none) }},
		{"a long text", isArgument, func() error { _, err := r.w.Compare(r.ctx, strings.Repeat("x", rendezvous.MaxData+1)); return err }},
		{"Alloc of an odd alignment", says("power of two"), func() error { _, err := r.w.Alloc(1, 3); return err }},
		{"Alloc of everything", says("full"), func() error { _, err := r.w.Alloc(math.MaxUint64, 1<<63); return err }},
		{"Free of nothing", says("not allocated"), func() error { return r.w.Free(12345) }},
	}
}

func (r *refusals) ofNil() []badCall {
	var (
		none         context.Context
		noWorld      *symm.World
		noGroup      *coll.Group
		noMember     *coll.Member
		noComm       *eager.Comm
		noSymmGroup  *symm.Group
		noSymmMember *symm.Member
		noRank       *symm.Rank
		noShared     *symm.Shared
	)
	return []badCall{
		{"no world: group", isArgument, func() error { _, err := coll.NewGroup(r.ctx, noWorld, []int{0, 1}, r.small); return err }},
		{"no world: Alloc", isArgument, func() error { _, err := noWorld.Alloc(1, 1); return err }},
		{"no world: Free", isArgument, func() error { return noWorld.Free(0) }},
		{"no world: Barrier", isArgument, func() error { return noWorld.Barrier(r.ctx) }},
		{"no world: Compare", isArgument, func() error { _, err := noWorld.Compare(r.ctx, ""); return err }},
		{"no world: Close", nil, func() error { return noWorld.Close() }},
		{"no group: Rejoin", isArgument, func() error { return noSymmGroup.Rejoin(r.ctx) }},
		{"no group: RejoinAfter", isArgument, func() error { return noSymmGroup.RejoinAfter(r.ctx, nil) }},
		{"no group: Close", nil, func() error { return noGroup.Close() }},
		{"no group: Members", nil, ends(func() { noGroup.Members() })},
		{"no member: Prepare", isArgument, func() error { _, err := noMember.Prepare(coll.Op{}); return err }},
		{"no member: Enqueue", isArgument, func() error { return noMember.Enqueue(r.s, coll.Op{}) }},
		{"no member: PrepareUneven", isArgument, func() error { _, err := noMember.PrepareAllToAllV(nil, nil); return err }},
		{"no member: Check", isArgument, func() error { return noSymmMember.Check(r.ctx, r.s) }},
		{"no member: Signal", isArgument, func() error { return noSymmMember.Signal(r.s, 0) }},
		{"no member: Tend", isArgument, func() error { return noSymmMember.Poll(0) }},
		{"no member: Abort", nil, ends(func() { noSymmMember.Abort(nil) })},
		{"no member: Tail", nil, ends(func() { noMember.ReductionStream() })},
		{"no rank: Func", isArgument, func() error { _, err := noRank.Func("x", "y"); return err }},
		{"no member: AllReduce", isArgument, func() error { _, err := noComm.AllReduce(r.ctx, r.s, kernels.Sum); return err }},
		{"no member: BarrierOn", isArgument, func() error { return noSymmMember.BarrierOn(r.s, 0) }},
		{"no member: Pad", isArgument, func() error { _, err := noSymmMember.Pad(0); return err }},
		{"no member: Peer", isArgument, func() error { _, err := noSymmMember.Peer(0, symm.Buffer{}); return err }},
		{"no member: Get", isArgument, func() error { return noSymmMember.Get(r.s, 0, symm.Buffer{}, symm.Buffer{}) }},
		{"no member: Put", isArgument, func() error { return noSymmMember.Put(r.s, 0, symm.Buffer{}, symm.Buffer{}) }},
		{"no member: WriteValue", isArgument, func() error { return noSymmMember.WriteValue(r.s, 0, 0, 1) }},
		{"no member: WaitValue", isArgument, func() error { return noSymmMember.WaitValue(r.s, 0, 0, 1) }},
		{"no member: Memset32", isArgument, func() error { return noSymmMember.Memset32(r.s, 0, 0, 1, 1) }},
		{"no rank: Buffer", isArgument, func() error { _, err := noRank.Buffer(0, symm.F32, 1); return err }},
		{"no rank: Symmetric", nil, func() error {
			return refuse(noRank.Symmetric(symm.Buffer{At: r.a, Count: 1, DType: symm.F32}), "memory of no rank")
		}},
		{"no rank: NewShared", isArgument, func() error { _, err := noRank.NewShared(1); return err }},
		{"no rank: Import", isArgument, func() error { _, _, err := noRank.Import(r.ctx, rendezvous.NewJob("")); return err }},
		{"no shared memory: Export", isArgument, func() error { return noShared.Export(r.ctx, rendezvous.NewJob(""), symm.Buffer{}, 1) }},
		{"no shared memory: Buffer", isArgument, func() error { _, err := noShared.Buffer(0, symm.F32, 1); return err }},
		{"no shared memory: Close", nil, func() error { noShared.Bytes(); return noShared.Close() }},
		{"no work: Wait", isArgument, func() error { return eager.Work{}.Wait(none) }},
		{"rank of nobody", nil, ends(func() { r.w.Rank(-1); r.w.Rank(2); r.w.Rank(math.MaxInt) })},
		{"empty plan", isArgument, func() error { return new(coll.Prepared).Enqueue(r.s) }},
	}
}

func (r *refusals) ofGroups() []badCall {
	return []badCall{
		{"group of a single-rank world", isArgument, func() error { _, err := coll.NewGroup(r.ctx, r.lone, []int{0, 1}, r.small); return err }},
		{"group of none", isArgument, r.group(func(*coll.GroupOptions) {})},
		{"group of one", isArgument, r.group(func(*coll.GroupOptions) {}, 0)},
		{"group of 17", isArgument, r.group(func(*coll.GroupOptions) {}, make([]int, 17)...)},
		{"group with rank -1", isArgument, r.group(func(*coll.GroupOptions) {}, 0, -1)},
		{"group with rank 2", isArgument, r.group(func(*coll.GroupOptions) {}, 0, 2)},
		{"group of a rank twice", isArgument, r.group(func(*coll.GroupOptions) {}, 1, 1)},
		{"zero tuning", isArgument, r.group(func(o *coll.GroupOptions) { o.Tuning = &kernels.Tuning{} }, 0, 1)},
		{"tuning of 10^6 blocks", isArgument, r.group(func(o *coll.GroupOptions) { t := kernels.DefaultTuning(2); t.Blocks = 1e6; o.Tuning = &t }, 0, 1)},
		{"calibration of no blocks", isArgument, r.group(func(o *coll.GroupOptions) {
			o.Calibration = &kernels.Calibration{Groups: map[int]kernels.Tuning{2: {}}}
		}, 0, 1)},
		{"little staging", says("too small"), r.group(func(o *coll.GroupOptions) { o.Staging = 100 }, 0, 1)},
	}
}

func (r *refusals) ofMembers() []badCall {
	return []badCall{
		{"Signal on channel 60", says("channel"), func() error { return r.m.Signal(r.s, symm.UserChannels, 1) }},
		{"Signal to itself", says("itself"), func() error { return r.m.Signal(r.s, 0, 0) }},
		{"Wait for rank 2", says("rank must be"), func() error { return r.m.Wait(r.s, 0, 2) }},
		{"the default stream", isArgument, func() error { return r.m.Enqueue(0, coll.Op{Kind: kernels.Barrier}) }},
		{"Signal on the default stream", isArgument, func() error { return r.m.Signal(0, 0, 1) }},
		{"streams of nobody", says("streams of 1 members"), func() error { return r.g.RejoinAfter(r.ctx, make([][]driver.Stream, 1)) }},
		{"Tail without staging", nil, func() error { return refuse(r.m.ReductionStream() != 0, "a stream that is not there") }},
		{"Join without staging", nil, ends(func() { r.m.Join(&driver.Commands{}, driver.Main) })},
		{"words for no command", nil, func() error { return r.drv.Run(r.m.Rank.Ctx, new(driver.Commands).On(r.s)) }},
		{"half a command", says("malformed"), func() error { return r.drv.Run(r.m.Rank.Ctx, []uint64{3<<8 | driver.OpLaunch, uint64(r.s), 1}) }},
	}
}

func (r *refusals) ofOps() []badCall {
	calls := []badCall{
		{"kind 99", isPlan, r.prepare(func(o *coll.Op) { o.Kind = 99 })},
		{"reduction 99", isPlan, r.prepare(func(o *coll.Op) { o.Kind, o.Red = kernels.AllReduce, 99 })},
		{"type 99", isPlan, r.prepare(func(o *coll.Op) { o.DType = 99 })},
		{"protocol 99", isPlan, r.prepare(func(o *coll.Op) { o.Kind, o.Algo = kernels.AllReduce, 99 })},
		{"no tensors", isPlan, r.prepare(func(o *coll.Op) { o.Tensors = nil })},
		{"part 2", isPlan, r.prepare(func(o *coll.Op) { o.Part = coll.StagingParts })},
		{"part -1", isPlan, r.prepare(func(o *coll.Op) { o.Part = -1 })},
		{"-1 blocks", isPlan, r.prepare(func(o *coll.Op) { o.Blocks = -1 })},
		{"10^6 blocks", isPlan, r.prepare(func(o *coll.Op) { o.Blocks = 1e6 })},
		{"root -1", isPlan, r.prepare(func(o *coll.Op) { o.Kind, o.Root = kernels.Broadcast, -1 })},
		{"root 2", isPlan, r.prepare(func(o *coll.Op) { o.Kind, o.Root = kernels.Reduce, 2 })},
		{"pair to rank 9", isPlan, r.prepare(func(o *coll.Op) { o.Kind, o.Pairs = kernels.Permute, [][2]int{{0, 9}} })},
		{"no source", isPlan, r.prepare(func(o *coll.Op) {
			o.Symmetric, o.Algo, o.Tensors = false, kernels.Auto, []coll.Tensor{{Src: 0, Dst: r.a, Bytes: 8}}
		})},
		{"no result", isPlan, r.prepare(func(o *coll.Op) {
			o.Symmetric, o.Algo, o.Tensors = false, kernels.Auto, []coll.Tensor{{Src: r.a, Dst: 0, Bytes: 8}}
		})},
		{"a source past the end", isPlan, r.prepare(func(o *coll.Op) {
			o.Symmetric, o.Algo, o.Tensors = false, kernels.Auto, []coll.Tensor{{Src: math.MaxUint64 - 7, Dst: r.a, Bytes: 16}}
		})},
		{"engine without staging", isPlan, r.prepare(func(o *coll.Op) { o.Algo = kernels.Engine })},
		{"three pieces of two", isPlan, func() error { _, err := r.m.PrepareAllToAllV(make([]coll.Piece, 3), make([]coll.Piece, 2)); return err }},
	}
	for _, n := range []int{-1, 1, 31, 33, 513, 1024, 4096, math.MaxInt, math.MinInt} {
		calls = append(calls, badCall{fmt.Sprintf("%d threads", n), isPlan, r.prepare(func(o *coll.Op) { o.Threads = n })})
	}
	return calls
}

// ofBytes asks for more than there can be, everywhere.
func (r *refusals) ofBytes(n uint64) []badCall {
	good, bad := []coll.Piece{{At: r.a}, {At: r.a}}, []coll.Piece{{At: r.a}, {At: r.a, Bytes: n}}
	calls := []badCall{
		{"memory", isArgument, r.world(r.drv, []int{0, 1}, symm.WorldOptions{Bytes: n})},
		{"region", isArgument, r.group(func(o *coll.GroupOptions) { o.Region = n }, 0, 1)},
		{"flagged", isArgument, r.group(func(o *coll.GroupOptions) { o.Flagged = n }, 0, 1)},
		{"staging", isArgument, r.group(func(o *coll.GroupOptions) { o.Staging = n }, 0, 1)},
		{"piece to send", isPlan, func() error { _, err := r.m.PrepareAllToAllV(bad, good); return err }},
		{"piece to receive", isPlan, func() error { _, err := r.m.PrepareAllToAllV(good, bad); return err }},
	}
	for kind := kernels.AllReduce; kind <= kernels.Permute; kind++ {
		for _, symmetric := range []bool{false, true} {
			calls = append(calls, badCall{fmt.Sprintf("a tensor of %v, symmetric %v", kind, symmetric), isPlan, r.prepare(func(o *coll.Op) {
				o.Kind, o.Symmetric, o.Algo, o.DType, o.Tensors = kind, symmetric, kernels.Auto, dtype.U8, []coll.Tensor{{Src: r.a, Dst: r.a, Bytes: n}}
				o.Pairs = [][2]int{{0, 1}, {1, 0}}
			})})
		}
	}
	return calls
}

func (r *refusals) ofClosedGroup(p *coll.Prepared) []badCall {
	return []badCall{
		{"closed group: Prepare", isClosed, func() error { _, err := r.m.Prepare(r.op); return err }},
		{"closed group: PrepareUneven", isClosed, func() error { _, err := r.m.PrepareAllToAllV(make([]coll.Piece, 2), make([]coll.Piece, 2)); return err }},
		{"closed group: Enqueue", isClosed, func() error { return r.m.Enqueue(r.s, r.op) }},
		{"closed group: Enqueue of a plan", isClosed, func() error { return p.Enqueue(r.s) }},
		{"closed group: AllReduce", isClosed, func() error { _, err := eager.New(r.m).AllReduce(r.ctx, r.s, kernels.Sum); return err }},
		{"closed group: Signal", isClosed, func() error { return r.m.Signal(r.s, 0, 1) }},
		{"closed group: Wait", isClosed, func() error { return r.m.Wait(r.s, 0, 1) }},
		{"closed group: Check", isClosed, func() error { return r.m.Check(r.ctx, r.s) }},
		{"closed group: Rejoin", isClosed, func() error { return r.g.Rejoin(r.ctx) }},
		{"closed group: RejoinAfter", isClosed, func() error { return r.g.RejoinAfter(r.ctx, make([][]driver.Stream, 2)) }},
		{"closed group: Err", isClosed, r.m.Err},
		{"closed group: Tend", isClosed, func() error { return r.m.Poll(time.Hour) }},
		{"closed group: others", nil, ends(func() {
			r.m.Abort(nil)
			r.m.Aborted()
			r.m.ReductionStream()
			r.m.Join(&driver.Commands{}, driver.Main)
		})},
	}
}

func (r *refusals) ofClosedWorld() []badCall {
	return []badCall{
		{"closed world: Alloc", isClosed, func() error { _, err := r.w.Alloc(16, 16); return err }},
		{"closed world: Free", nil, func() error { return r.w.Free(r.off) }},
		{"closed world: NewGroup", isClosed, func() error { _, err := coll.NewGroup(r.ctx, r.w, []int{0, 1}, r.small); return err }},
		{"closed world: Barrier", isClosed, func() error { return r.w.Barrier(r.ctx) }},
		{"closed world: Compare", isClosed, func() error { _, err := r.w.Compare(r.ctx, ""); return err }},
		{"closed world: Buffer", isClosed, func() error { _, err := r.m.Rank.Buffer(r.off, symm.F32, 1); return err }},
		{"closed world: NewShared", isClosed, func() error { _, err := r.m.Rank.NewShared(1); return err }},
		{"closed world: Prepare", isClosed, func() error { _, err := r.m.Prepare(r.op); return err }},
		{"closed world: Check", isClosed, func() error { return r.m.Check(r.ctx, r.s) }},
	}
}

// TestBadArguments passes what cannot be served to every entry point. Nothing is left behind.
func TestBadArguments(t *testing.T) {
	if *onGPU {
		t.Skip("what is refused never reaches a driver")
	}
	r := newRefusals(t)
	for _, calls := range [][]badCall{r.ofWorlds(), r.ofNil(), r.ofGroups(), r.ofMembers(), r.ofOps()} {
		runBad(t, calls)
	}
	for _, n := range []uint64{math.MaxUint64, math.MaxUint64 - 4095, 1 << 63, 1 << 62, 1 << 61, 1 << 48} {
		t.Run(fmt.Sprintf("%d bytes", n), func(t *testing.T) { runBad(t, r.ofBytes(n)) })
	}
	if err := r.m.Err(); err != nil {
		t.Errorf("the group is broken: %v", err)
	}
	// Aborts without a reason, and everything behind a Close.
	runBad(t, []badCall{{"Abort of no reason", nil, ends(func() { r.m.Abort(nil) })}})
	if err := r.m.Err(); !errors.Is(err, symm.ErrCanceled) {
		t.Errorf("after an Abort without a reason: %v", err)
	}
	if err := r.g.Rejoin(r.ctx); err != nil {
		t.Fatal(err)
	}
	p := got(r.m.Prepare(r.op))(t)
	if err := errors.Join(r.g.Close(), r.g.Close()); err != nil {
		t.Error(err)
	}
	runBad(t, r.ofClosedGroup(p))
	if err := errors.Join(r.drv.StreamDestroy(r.m.Rank.Ctx, r.s), r.w.Close(), r.w.Close(), r.lone.Close()); err != nil {
		t.Error(err)
	}
	runBad(t, r.ofClosedWorld())
	// What an open group held ends with its world.
	w := got(symm.NewLocalWorld(r.drv, []int{0, 1}, symm.WorldOptions{Bytes: 32 << 20, Images: r.set}))(t)
	g := got(coll.NewGroup(r.ctx, w, []int{0, 1}, smallGroup(false, 2)))(t)
	if err := errors.Join(w.Close(), g.Close()); err != nil {
		t.Error(err)
	}
}
