//go:build linux

package cuda

import (
	"context"
	"errors"
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

// TestBadArguments passes what cannot be served to every entry point. Each must answer
// with an error of its kind, without a panic and without anything left behind.
func TestBadArguments(t *testing.T) {
	if *onGPU {
		t.Skip("what is refused never reaches a driver")
	}
	drv := newDriverOf(t, 4)
	set := images(t)
	w, err := symm.NewLocalWorld(drv, []int{0, 1}, symm.WorldOptions{Bytes: 32 << 20, Images: set})
	if err != nil {
		t.Fatal(err)
	}
	lone, err := symm.NewSingleRankWorld(drv, 0, 2, 2, symm.WorldOptions{Bytes: 1 << 20, Images: set})
	if err != nil {
		t.Fatal(err)
	}
	small := coll.GroupOptions{Region: 1 << 20, Flagged: 1 << 20, Timeout: plenty} // no staging
	g, err := coll.NewGroup(t.Context(), w, []int{0, 1}, small)
	if err != nil {
		t.Fatal(err)
	}
	m := g.Members()[0]
	s, err := drv.StreamCreate(m.Rank.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	off, err := w.Alloc(1<<16, 256)
	if err != nil {
		t.Fatal(err)
	}
	a := w.Addr(0, off)
	huge := []uint64{math.MaxUint64, math.MaxUint64 - 4095, 1 << 63, 1 << 62, 1 << 61, 1 << 48}
	world := func(d driver.Driver, devs []int, o symm.WorldOptions) func() error {
		o.Images = set
		return func() error { w, err := symm.NewLocalWorld(d, devs, o); w.Close(); return err }
	}
	group := func(change func(*coll.GroupOptions), ranks ...int) func() error {
		o := small
		change(&o)
		return func() error { g, err := coll.NewGroup(t.Context(), w, ranks, o); g.Close(); return err }
	}
	prepare := func(change func(*coll.Op)) func() error {
		op := coll.Op{Kind: kernels.AllGather, DType: dtype.F32, Symmetric: true, Algo: kernels.Direct, Tensors: []coll.Tensor{{Src: a, Dst: a + 4096, Bytes: 1024}}}
		change(&op)
		return func() error {
			_, err := m.Prepare(op)
			return errors.Join(err, m.Enqueue(s, op))
		}
	}
	var none context.Context
	var noWorld *symm.World
	var noGroup *coll.Group
	var noMember *coll.Member
	var noComm *eager.Comm
	var noSymmGroup *symm.Group
	var noSymmMember *symm.Member
	var noRank *symm.Rank
	var noShared *symm.Shared
	argument := func(err error) bool {
		var e *symm.ArgumentError
		return errors.As(err, &e) && e.What != "" && e.Reason != ""
	}
	plan := func(err error) bool { var e *kernels.PlanError; return errors.As(err, &e) }
	closed := func(err error) bool { return errors.Is(err, symm.ErrClosed) }
	text := func(s string) func(error) bool {
		return func(err error) bool { return err != nil && strings.Contains(err.Error(), s) }
	}
	ends := func(f func()) func() error { return func() error { f(); return nil } }
	type badCall struct {
		name string
		is   func(error) bool // nil for calls that only must not panic
		call func() error
	}
	calls := []badCall{
		{"no driver", argument, world(nil, []int{0}, symm.WorldOptions{Bytes: 1})},
		{"no devices", argument, world(drv, nil, symm.WorldOptions{Bytes: 1})},
		{"65 ranks", argument, world(drv, make([]int, 65), symm.WorldOptions{Bytes: 1, ShareDevice: true})},
		{"device 4", text("this machine has 4 devices"), world(drv, []int{4}, symm.WorldOptions{Bytes: 1})},
		{"device -1", text("this machine has 4 devices"), world(drv, []int{-1}, symm.WorldOptions{Bytes: 1})},
		{"empty images", argument, func() error {
			_, err := symm.NewLocalWorld(drv, []int{0}, symm.WorldOptions{Bytes: 1, Images: &kernels.Set{}})
			return err
		}},
		{"lone rank -1", argument, func() error {
			_, err := symm.NewSingleRankWorld(drv, -1, 2, 0, symm.WorldOptions{Bytes: 1, Images: set})
			return err
		}},
		{"lone rank 2", argument, func() error {
			_, err := symm.NewSingleRankWorld(drv, 2, 2, 0, symm.WorldOptions{Bytes: 1, Images: set})
			return err
		}},
		{"single-rank world of 2^60", argument, func() error {
			_, err := symm.NewSingleRankWorld(drv, 2, 1<<60, 0, symm.WorldOptions{Bytes: 1, Images: set})
			return err
		}},
		{"no group", argument, func() error {
			_, err := symm.NewProcessWorld(t.Context(), drv, nil, 0, symm.WorldOptions{Bytes: 1, Images: set})
			return err
		}},
		{"no context", argument, func() error {
			_, err := symm.NewProcessWorld(none, drv, nil, 0, symm.WorldOptions{Bytes: 1, Images: set})
			return err
		}},
		{"no context for a group", argument, func() error { _, err := coll.NewGroup(none, w, []int{0, 1}, small); return err }},
		{"no context for Meet", argument, func() error { return w.Meet(none) }},
		{"no context for Compare", argument, func() error { _, err := w.Compare(none, ""); return err }},
		{"no context for Check", argument, func() error { return m.Check(none, s) }},
		{"no context for Rejoin", argument, func() error { return g.Rejoin(none) }},
		{"no context for Close", argument, func() error { return w.CloseContext(none) }},
		{"a long text", argument, func() error { _, err := w.Compare(t.Context(), strings.Repeat("x", rendezvous.MaxData+1)); return err }},

		{"no world: group", argument, func() error { _, err := coll.NewGroup(t.Context(), noWorld, []int{0, 1}, small); return err }},
		{"no world: Alloc", argument, func() error { _, err := noWorld.Alloc(1, 1); return err }},
		{"no world: Free", argument, func() error { return noWorld.Free(0) }},
		{"no world: Meet", argument, func() error { return noWorld.Meet(t.Context()) }},
		{"no world: Compare", argument, func() error { _, err := noWorld.Compare(t.Context(), ""); return err }},
		{"no world: Close", nil, func() error { return noWorld.Close() }},
		{"no group: Rejoin", argument, func() error { return noSymmGroup.Rejoin(t.Context()) }},
		{"no group: RejoinAfter", argument, func() error { return noSymmGroup.RejoinAfter(t.Context(), nil) }},
		{"no group: Close", nil, func() error { return noGroup.Close() }},
		{"no group: Members", nil, ends(func() { noGroup.Members() })},
		{"no member: Prepare", argument, func() error { _, err := noMember.Prepare(coll.Op{}); return err }},
		{"no member: Enqueue", argument, func() error { return noMember.Enqueue(s, coll.Op{}) }},
		{"no member: PrepareUneven", argument, func() error { _, err := noMember.PrepareUneven(nil, nil); return err }},
		{"no member: Check", argument, func() error { return noSymmMember.Check(t.Context(), s) }},
		{"no member: Signal", argument, func() error { return noSymmMember.Signal(s, 0) }},
		{"no member: Tend", argument, func() error { return noSymmMember.Poll(0) }},
		{"no member: Abort", nil, ends(func() { noSymmMember.Abort(nil) })},
		{"no member: Tail", nil, ends(func() { noMember.ReductionStream() })},
		{"no rank: Func", argument, func() error { _, err := noRank.Func("x", "y"); return err }},
		{"no member: AllReduce", argument, func() error { _, err := noComm.AllReduce(t.Context(), s, kernels.Sum); return err }},
		{"no member: BarrierOn", argument, func() error { return noSymmMember.BarrierOn(s, 0) }},
		{"no member: Pad", argument, func() error { _, err := noSymmMember.Pad(0); return err }},
		{"no member: Peer", argument, func() error { _, err := noSymmMember.Peer(0, symm.Buffer{}); return err }},
		{"no member: Get", argument, func() error { return noSymmMember.Get(s, 0, symm.Buffer{}, symm.Buffer{}) }},
		{"no member: Put", argument, func() error { return noSymmMember.Put(s, 0, symm.Buffer{}, symm.Buffer{}) }},
		{"no member: WriteValue", argument, func() error { return noSymmMember.WriteValue(s, 0, 0, 1) }},
		{"no member: WaitValue", argument, func() error { return noSymmMember.WaitValue(s, 0, 0, 1) }},
		{"no member: Memset32", argument, func() error { return noSymmMember.Memset32(s, 0, 0, 1, 1) }},
		{"no rank: Buffer", argument, func() error { _, err := noRank.Buffer(0, symm.F32, 1); return err }},
		{"no rank: Symmetric", nil, ends(func() {
			if noRank.Symmetric(symm.Buffer{At: a, Count: 1, DType: symm.F32}) {
				t.Error("memory of no rank")
			}
		})},
		{"no rank: NewShared", argument, func() error { _, err := noRank.NewShared(1); return err }},
		{"no rank: Import", argument, func() error { _, _, err := noRank.Import(t.Context(), rendezvous.NewJob("")); return err }},
		{"no shared memory: Export", argument, func() error { return noShared.Export(t.Context(), rendezvous.NewJob(""), symm.Buffer{}, 1) }},
		{"no shared memory: Buffer", argument, func() error { _, err := noShared.Buffer(0, symm.F32, 1); return err }},
		{"no shared memory: Close", nil, func() error { noShared.Bytes(); return noShared.Close() }},
		{"no work: Wait", argument, func() error { return eager.Work{}.Wait(none) }},
		{"rank of nobody", nil, ends(func() { w.Rank(-1); w.Rank(2); w.Rank(math.MaxInt) })},
		{"empty plan", argument, func() error { return new(coll.Prepared).Enqueue(s) }},

		{"Alloc of an odd alignment", text("power of two"), func() error { _, err := w.Alloc(1, 3); return err }},
		{"Alloc of everything", text("full"), func() error { _, err := w.Alloc(math.MaxUint64, 1<<63); return err }},
		{"Free of nothing", text("not allocated"), func() error { return w.Free(12345) }},

		{"group of a single-rank world", argument, func() error { _, err := coll.NewGroup(t.Context(), lone, []int{0, 1}, small); return err }},
		{"group of none", argument, group(func(*coll.GroupOptions) {})},
		{"group of one", argument, group(func(*coll.GroupOptions) {}, 0)},
		{"group of 17", argument, group(func(*coll.GroupOptions) {}, make([]int, 17)...)},
		{"group with rank -1", argument, group(func(*coll.GroupOptions) {}, 0, -1)},
		{"group with rank 2", argument, group(func(*coll.GroupOptions) {}, 0, 2)},
		{"group of a rank twice", argument, group(func(*coll.GroupOptions) {}, 1, 1)},
		{"zero tuning", argument, group(func(o *coll.GroupOptions) { o.Tuning = &kernels.Tuning{} }, 0, 1)},
		{"tuning of 10^6 blocks", argument, group(func(o *coll.GroupOptions) { t := kernels.DefaultTuning(2); t.Blocks = 1e6; o.Tuning = &t }, 0, 1)},
		{"calibration of no blocks", argument, group(func(o *coll.GroupOptions) {
			o.Calibration = &kernels.Calibration{Groups: map[int]kernels.Tuning{2: {}}}
		}, 0, 1)},
		{"little staging", text("too small"), group(func(o *coll.GroupOptions) { o.Staging = 100 }, 0, 1)},

		{"Signal on channel 60", text("channel"), func() error { return m.Signal(s, symm.UserChannels, 1) }},
		{"Signal to itself", text("itself"), func() error { return m.Signal(s, 0, 0) }},
		{"Wait for rank 2", text("rank must be"), func() error { return m.Wait(s, 0, 2) }},
		{"the default stream", argument, func() error { return m.Enqueue(0, coll.Op{Kind: kernels.Barrier}) }},
		{"Signal on the default stream", argument, func() error { return m.Signal(0, 0, 1) }},
		{"streams of nobody", text("streams of 1 members"), func() error { return g.RejoinAfter(t.Context(), make([][]driver.Stream, 1)) }},
		{"Tail without staging", nil, ends(func() {
			if m.ReductionStream() != 0 {
				t.Error("a stream that is not there")
			}
		})},
		{"Join without staging", nil, ends(func() { m.Join(&driver.Commands{}, driver.Main) })},
		{"words for no command", nil, func() error { return drv.Run(m.Rank.Ctx, new(driver.Commands).On(s)) }},
		{"half a command", text("malformed"), func() error { return drv.Run(m.Rank.Ctx, []uint64{3<<8 | driver.OpLaunch, uint64(s), 1}) }},

		{"kind 99", plan, prepare(func(o *coll.Op) { o.Kind = 99 })},
		{"reduction 99", plan, prepare(func(o *coll.Op) { o.Kind, o.Red = kernels.AllReduce, 99 })},
		{"type 99", plan, prepare(func(o *coll.Op) { o.DType = 99 })},
		{"protocol 99", plan, prepare(func(o *coll.Op) { o.Kind, o.Algo = kernels.AllReduce, 99 })},
		{"no tensors", plan, prepare(func(o *coll.Op) { o.Tensors = nil })},
		{"part 2", plan, prepare(func(o *coll.Op) { o.Part = coll.StagingParts })},
		{"part -1", plan, prepare(func(o *coll.Op) { o.Part = -1 })},
		{"-1 blocks", plan, prepare(func(o *coll.Op) { o.Blocks = -1 })},
		{"10^6 blocks", plan, prepare(func(o *coll.Op) { o.Blocks = 1e6 })},
		{"root -1", plan, prepare(func(o *coll.Op) { o.Kind, o.Root = kernels.Broadcast, -1 })},
		{"root 2", plan, prepare(func(o *coll.Op) { o.Kind, o.Root = kernels.Reduce, 2 })},
		{"pair to rank 9", plan, prepare(func(o *coll.Op) { o.Kind, o.Pairs = kernels.Permute, [][2]int{{0, 9}} })},
		{"no source", plan, prepare(func(o *coll.Op) {
			o.Symmetric, o.Algo, o.Tensors = false, kernels.Auto, []coll.Tensor{{Src: 0, Dst: a, Bytes: 8}}
		})},
		{"no result", plan, prepare(func(o *coll.Op) {
			o.Symmetric, o.Algo, o.Tensors = false, kernels.Auto, []coll.Tensor{{Src: a, Dst: 0, Bytes: 8}}
		})},
		{"a source past the end", plan, prepare(func(o *coll.Op) {
			o.Symmetric, o.Algo, o.Tensors = false, kernels.Auto, []coll.Tensor{{Src: math.MaxUint64 - 7, Dst: a, Bytes: 16}}
		})},
		{"engine without staging", plan, prepare(func(o *coll.Op) { o.Algo = kernels.Engine })},
		{"three pieces of two", plan, func() error { _, err := m.PrepareUneven(make([]coll.Piece, 3), make([]coll.Piece, 2)); return err }},
	}
	for _, n := range []int{-1, 1, 31, 33, 513, 1024, 4096, math.MaxInt, math.MinInt} {
		calls = append(calls, badCall{"threads", plan, prepare(func(o *coll.Op) { o.Threads = n })})
	}
	for _, n := range huge {
		calls = append(calls,
			badCall{"memory", argument, world(drv, []int{0, 1}, symm.WorldOptions{Bytes: n})},
			badCall{"region", argument, group(func(o *coll.GroupOptions) { o.Region = n }, 0, 1)},
			badCall{"flagged", argument, group(func(o *coll.GroupOptions) { o.Flagged = n }, 0, 1)},
			badCall{"staging", argument, group(func(o *coll.GroupOptions) { o.Staging = n }, 0, 1)},
			badCall{"piece to send", plan, func() error {
				_, err := m.PrepareUneven([]coll.Piece{{At: a, Bytes: 0}, {At: a, Bytes: n}}, []coll.Piece{{At: a, Bytes: 0}, {At: a, Bytes: 0}})
				return err
			}},
			badCall{"piece to receive", plan, func() error {
				_, err := m.PrepareUneven([]coll.Piece{{At: a, Bytes: 0}, {At: a, Bytes: 0}}, []coll.Piece{{At: a, Bytes: 0}, {At: a, Bytes: n}})
				return err
			}})
		for kind := kernels.AllReduce; kind <= kernels.Permute; kind++ {
			for _, symmetric := range []bool{false, true} {
				calls = append(calls, badCall{"a tensor", plan, prepare(func(o *coll.Op) {
					o.Kind, o.Symmetric, o.Algo, o.DType, o.Tensors = kind, symmetric, kernels.Auto, dtype.U8, []coll.Tensor{{Src: a, Dst: a, Bytes: n}}
					o.Pairs = [][2]int{{0, 1}, {1, 0}}
				})})
			}
		}
	}
	run := func(c badCall) {
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("%s: panic: %v", c.name, p)
			}
		}()
		switch err := c.call(); {
		case c.is == nil && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.is != nil && !c.is(err):
			t.Errorf("%s: got %v (%T)", c.name, err, err)
		}
	}
	for _, c := range calls {
		run(c)
	}
	if err := m.Err(); err != nil {
		t.Errorf("the group is broken: %v", err)
	}
	// Aborts without a reason, and everything behind a Close.
	run(badCall{"Abort of no reason", nil, ends(func() { m.Abort(nil) })})
	if err := m.Err(); !errors.Is(err, symm.ErrCanceled) {
		t.Errorf("after an Abort without a reason: %v", err)
	}
	if err := g.Rejoin(t.Context()); err != nil {
		t.Fatal(err)
	}
	op := coll.Op{Kind: kernels.AllReduce, DType: dtype.F32, Symmetric: true, Tensors: []coll.Tensor{{Src: a, Dst: a, Bytes: 64}}}
	p, err := m.Prepare(op)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.Close(), g.Close()); err != nil {
		t.Error(err)
	}
	behind := []badCall{
		{"closed group: Prepare", closed, func() error { _, err := m.Prepare(op); return err }},
		{"closed group: PrepareUneven", closed, func() error { _, err := m.PrepareUneven(make([]coll.Piece, 2), make([]coll.Piece, 2)); return err }},
		{"closed group: Enqueue", closed, func() error { return m.Enqueue(s, op) }},
		{"closed group: Enqueue of a plan", closed, func() error { return p.Enqueue(s) }},
		{"closed group: AllReduce", closed, func() error { _, err := eager.New(m).AllReduce(t.Context(), s, kernels.Sum); return err }},
		{"closed group: Signal", closed, func() error { return m.Signal(s, 0, 1) }},
		{"closed group: Wait", closed, func() error { return m.Wait(s, 0, 1) }},
		{"closed group: Check", closed, func() error { return m.Check(t.Context(), s) }},
		{"closed group: Rejoin", closed, func() error { return g.Rejoin(t.Context()) }},
		{"closed group: RejoinAfter", closed, func() error { return g.RejoinAfter(t.Context(), make([][]driver.Stream, 2)) }},
		{"closed group: Err", closed, m.Err},
		{"closed group: Tend", closed, func() error { return m.Poll(time.Hour) }},
		{"closed group: others", nil, ends(func() { m.Abort(nil); m.Aborted(); m.ReductionStream(); m.Join(&driver.Commands{}, driver.Main) })},
	}
	for _, c := range behind {
		run(c)
	}
	if err := errors.Join(drv.StreamDestroy(m.Rank.Ctx, s), w.Close(), w.Close(), lone.Close()); err != nil {
		t.Error(err)
	}
	for _, c := range []badCall{
		{"closed world: Alloc", closed, func() error { _, err := w.Alloc(16, 16); return err }},
		{"closed world: Free", nil, func() error { return w.Free(off) }},
		{"closed world: NewGroup", closed, func() error { _, err := coll.NewGroup(t.Context(), w, []int{0, 1}, small); return err }},
		{"closed world: Meet", closed, func() error { return w.Meet(t.Context()) }},
		{"closed world: Compare", closed, func() error { _, err := w.Compare(t.Context(), ""); return err }},
		{"closed world: Buffer", closed, func() error { _, err := m.Rank.Buffer(off, symm.F32, 1); return err }},
		{"closed world: NewShared", closed, func() error { _, err := m.Rank.NewShared(1); return err }},
		{"closed world: Prepare", closed, func() error { _, err := m.Prepare(op); return err }},
		{"closed world: Check", closed, func() error { return m.Check(t.Context(), s) }},
	} {
		run(c)
	}
	// What an open group held ends with its world.
	if w, err = symm.NewLocalWorld(drv, []int{0, 1}, symm.WorldOptions{Bytes: 32 << 20, Images: set}); err != nil {
		t.Fatal(err)
	}
	if g, err = coll.NewGroup(t.Context(), w, []int{0, 1}, smallGroup(false, 2)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), g.Close()); err != nil {
		t.Error(err)
	}
}
