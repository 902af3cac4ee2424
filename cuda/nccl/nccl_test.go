package nccl

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/dl"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// plenty is a deadline for what has to come, however busy the machine is.
const plenty = 3 * time.Minute

func fakeDevice(f *Fake, rank int) device {
	return device{stream: uintptr(100 + rank),
		alloc: func(n int) (uintptr, error) { at, _ := f.Alloc(n); return at, nil },
		put: func(at uintptr, b []byte) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			copy(f.bytes(at, uint64(len(b))), b)
			return nil
		},
		get: func(at uintptr, n int) ([]byte, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return append([]byte{}, f.bytes(at, uint64(n))...), nil
		},
		done: func() (bool, error) { return f.Done(uintptr(100 + rank)) }}
}

// member joins a job as a rank of n.
func member(t testing.TB, job *rendezvous.Job, rank, n int) *rendezvous.Group {
	t.Helper()
	g, err := rendezvous.Join(t.Context(), job, rendezvous.Place{Rank: rank, World: n})
	if err != nil {
		t.Error(err)
		runtime.Goexit()
	}
	return g
}

// ranks runs body on n ranks at once and gives their errors.
func ranks(n int, body func(rank int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() { errs[r] = body(r) })
	}
	wg.Wait()
	return errs
}

func noErrors(t *testing.T, errs []error) {
	t.Helper()
	for r, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// group joins n ranks of a fake and runs body on each; leaks fail the test.
func group(t *testing.T, n int, o Options, body func(c *Comm, f *Fake) error) []error {
	t.Helper()
	f, st := NewFake(), rendezvous.NewLocal()
	errs := ranks(n, func(rank int) error {
		c, err := Join(t.Context(), f, member(t, st, rank, n), "g", 0, o)
		if err != nil {
			return err
		}
		return errors.Join(body(c, f), c.Close(t.Context()))
	})
	if l := f.Leaks(); l != 0 {
		t.Errorf("%d communicators leaked", l)
	}
	return errs
}

func TestConformance(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			if testing.Short() && n > 3 {
				t.Skip("many cases")
			}
			noErrors(t, group(t, n, Options{Timeout: plenty}, func(c *Comm, f *Fake) error {
				return conform(t.Context(), c, fakeDevice(f, c.Rank()))
			}))
		})
	}
}

// TestOverlappingGroups runs ops of two groups that share ranks.
func TestOverlappingGroups(t *testing.T) {
	f, st := NewFake(), rendezvous.NewLocal()
	noErrors(t, ranks(3, func(rank int) error {
		all := member(t, st, rank, 3)
		defer all.Close()
		at, b := f.Alloc(8)
		b[0] = byte(rank + 1)
		for _, g := range []struct {
			name  string
			ranks []int
			want  byte
		}{{"a", []int{0, 1}, 1 + 2}, {"b", []int{1, 2}, 3 + 3}, {"c", []int{0, 1, 2}, 3 + 6 + 6}} {
			for _, r := range g.ranks {
				if r != rank {
					continue
				}
				c, err := Join(t.Context(), f, all.Sub(g.name, g.ranks), g.name, 0, Options{Timeout: plenty})
				if err != nil {
					return err
				}
				err = c.Run(t.Context(), 7+uintptr(rank), Op{Kind: AllReduce, DType: dtype.U8, Tensors: []Tensor{{Src: at, Dst: at, Bytes: 1}}})
				if err == nil {
					err = c.Wait(t.Context(), g.name, func() (bool, error) { return f.Done(7 + uintptr(rank)) })
				}
				if err = errors.Join(err, c.Close(t.Context())); err != nil {
					return err
				}
				if b[0] != g.want {
					return fmt.Errorf("group %s, rank %d: %d, want %d", g.name, rank, b[0], g.want)
				}
			}
		}
		return nil
	}))
	if f.Leaks() != 0 {
		t.Errorf("%d communicators leaked", f.Leaks())
	}
}

func TestBadOps(t *testing.T) {
	tensor := []Tensor{{Src: 4096, Dst: 8192, Bytes: 64}}
	f32 := dtype.F32
	for _, tc := range []struct {
		op   Op
		want string
	}{
		{Op{DType: f32, Tensors: tensor}, "unknown operation"},
		{Op{Kind: AllReduce, Tensors: tensor}, "unknown element type"},
		{Op{Kind: AllReduce, DType: f32, Reduce: 9, Tensors: tensor}, "unknown reduction"},
		{Op{Kind: AllReduce, DType: dtype.I32, Reduce: Avg, Tensors: tensor}, "only floats can be averaged"},
		{Op{Kind: Reduce, DType: dtype.Bool, Tensors: tensor}, "bool cannot be reduced"},
		{Op{Kind: Broadcast, DType: f32, Root: 2, Tensors: tensor}, "root 2 in a group of 2"},
		{Op{Kind: Permute, DType: f32, Pairs: []int{0}, Tensors: tensor}, "odd number"},
		{Op{Kind: Permute, DType: f32, Pairs: []int{0, 1, 0, 0}, Tensors: tensor}, "twice"},
		{Op{Kind: Permute, DType: f32, Pairs: []int{0, 2}, Tensors: tensor}, "pair 0 to 2"},
		{Op{Kind: AllReduce, DType: f32, Tensors: []Tensor{{Src: 4096, Dst: 8192, Bytes: 63}}}, "tensor 0: 63 bytes are no whole number of f32"},
		{Op{Kind: AllReduce, DType: f32, Tensors: []Tensor{{Src: 4098, Dst: 8192, Bytes: 64}}}, "not aligned"},
		{Op{Kind: AllReduce, DType: f32, Tensors: []Tensor{{Dst: 8192, Bytes: 64}}}, "no source"},
		{Op{Kind: AllReduce, DType: f32, Tensors: []Tensor{{Src: 8192, Bytes: 64}}}, "no destination"},
		{Op{Kind: AllReduce, DType: f32, Tensors: []Tensor{{Src: 4096, Dst: 4100, Bytes: 64}}}, "overlap"},
		{Op{Kind: AllReduce, DType: f32, Tensors: []Tensor{{Src: 4096, Dst: 8192, Bytes: 1 << 50}}}, "more than can be"},
		{Op{Kind: AllGather, DType: f32, Tensors: []Tensor{{Src: 4096, Dst: 4096, Bytes: 64}}}, "overlap"},
		{Op{Kind: ReduceScatter, DType: f32, Tensors: []Tensor{{Src: 4096, Dst: 4096, Bytes: 64}}}, "overlap"},
		{Op{Kind: AllToAll, DType: f32, Tensors: []Tensor{{Src: 4096, Dst: 4096, Bytes: 64}}}, "need 256 bytes of scratch, 0 are given"},
		{Op{Kind: AllToAll, DType: f32, Tensors: []Tensor{{Src: 4096, Dst: 8192, SendBytes: []uint64{4}, RecvBytes: []uint64{4, 4}}}}, "splits of 1 and 2 parts"},
		{Op{Kind: AllToAll, DType: f32, Tensors: []Tensor{{Src: 4096, Dst: 8192, SendBytes: []uint64{4, 4}, RecvBytes: []uint64{4, 8}}}}, "rank 1 sends itself 4 bytes and expects 8"},
		{Op{Kind: AllReduce, DType: f32, Tensors: []Tensor{{Src: 4096, Dst: 8192, SendBytes: []uint64{4, 4}}}}, "only an all_to_all has splits"},
	} {
		_, err := tc.op.plan(1, 2)
		var oe *OpError
		if !errors.As(err, &oe) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.op, err, tc.want)
		}
	}
	// In place on rank 1 is at another place than on rank 0.
	ok := Op{Kind: AllGather, DType: f32, Tensors: []Tensor{{Src: 4096 + 64, Dst: 4096, Bytes: 64}}}
	if _, err := ok.plan(1, 2); err != nil {
		t.Error(err)
	}
	if _, err := ok.plan(0, 2); err == nil {
		t.Error("a gather on rank 0 over its own result was taken for one in place")
	}
}

// TestBadOpLeavesGroup checks that an op that cannot be does not break the group.
func TestBadOpLeavesGroup(t *testing.T) {
	noErrors(t, group(t, 2, Options{Timeout: plenty}, func(c *Comm, f *Fake) error {
		var oe *OpError
		if err := c.Run(t.Context(), 1, Op{}); !errors.As(err, &oe) {
			return fmt.Errorf("bad op: %v", err)
		}
		return c.Err()
	}))
}

// TestEveryCallFails makes each call of the library fail in turn: the failure comes
// out on all ranks, nothing hangs, nothing leaks.
func TestEveryCallFails(t *testing.T) {
	failed := 0
	for nth := 1; ; nth++ {
		f, st := NewFake(), rendezvous.NewLocal()
		f.FailAt(nth, SystemError)
		cx, cancel := context.WithTimeout(t.Context(), plenty)
		errs := ranks(2, func(rank int) error {
			c, err := Join(cx, f, member(t, st, rank, 2), "g", 0, Options{Timeout: plenty})
			if err != nil {
				return err
			}
			at, _ := f.Alloc(64)
			op := Op{Kind: AllReduce, DType: dtype.F32, Tensors: []Tensor{{Src: at, Dst: at, Bytes: 64}}}
			for range 3 {
				err = c.Run(cx, 100+uintptr(rank), op)
				if err == nil {
					err = c.Wait(cx, "all_reduce", func() (bool, error) { return f.Done(100 + uintptr(rank)) })
				}
				if err != nil {
					break
				}
			}
			return errors.Join(err, c.Close(cx))
		})
		cancel()
		if f.Leaks() != 0 {
			t.Errorf("call %d: %d communicators leaked: %v", nth, f.Leaks(), errs)
		}
		f.mu.Lock()
		reached := f.calls >= f.failAt
		f.mu.Unlock()
		if !reached {
			break
		}
		failed++
		own := 0
		for r, err := range errs {
			if errors.Is(err, &Error{Code: SystemError}) {
				own++
			}
			if errors.Is(err, rendezvous.ErrTimeout) {
				t.Errorf("call %d: rank %d waited for its deadline: %v", nth, r, err)
			}
		}
		if own == 0 {
			t.Errorf("call %d: no rank reports the failure: %v", nth, errs)
		}
	}
	if failed < 10 {
		t.Errorf("only %d calls could be made to fail", failed)
	}
}

// TestEcho lets a rank hear its own failure from another before it knows it itself: that is
// no failure of the other's.
func TestEcho(t *testing.T) {
	noErrors(t, group(t, 2, Options{Timeout: plenty}, func(c *Comm, f *Fake) error {
		if c.Rank() == 0 {
			echo := &rendezvous.CanceledError{Rank: 1, Origin: 0, Err: errors.New("as asked")}
			c.receive(rendezvous.Event{Kind: rendezvous.Broken, Rank: 1, Err: echo})
		}
		return c.Err()
	}))
}

// TestLateRank leaves a rank out of an op.
func TestLateRank(t *testing.T) {
	errs := group(t, 3, Options{Timeout: 300 * time.Millisecond, JoinTimeout: plenty}, func(c *Comm, f *Fake) error {
		at, _ := f.Alloc(64)
		if c.Rank() == 2 {
			<-c.broken
			return c.Err()
		}
		if err := c.Run(t.Context(), uintptr(c.Rank()+1), Op{Kind: AllReduce, DType: dtype.F32, Label: "%3", Tensors: []Tensor{{Src: at, Dst: at, Bytes: 64}}}); err != nil {
			return err
		}
		err := c.Wait(t.Context(), "%3", func() (bool, error) { return f.Done(uintptr(c.Rank() + 1)) })
		if again := c.Run(t.Context(), 1, Op{Kind: AllReduce, DType: dtype.F32}); !errors.Is(again, err) {
			return fmt.Errorf("after %v: %v", err, again)
		}
		return err
	})
	timeouts := 0
	for r, err := range errs {
		var te *rendezvous.TimeoutError
		var b *rendezvous.CanceledError
		switch {
		case errors.As(err, &b):
			if b.Rank != r || b.Origin == r || !errors.Is(err, rendezvous.ErrTimeout) {
				t.Errorf("rank %d: %v", r, err)
			}
		case errors.As(err, &te):
			timeouts++
			if te.Rank != r || te.Step != 1 || te.Op != `%3 on "g"` || te.Group != "g" || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("rank %d: %+v", r, te)
			}
		default:
			t.Errorf("rank %d: %v", r, err)
		}
	}
	if timeouts == 0 {
		t.Errorf("no rank timed out: %v", errs)
	}
}

// TestFailures covers what breaks a group while an op is in flight.
func TestFailures(t *testing.T) {
	gone := errors.New("gone")
	for _, tc := range []struct {
		name string
		do   func(c *Comm, f *Fake, cancel context.CancelCauseFunc)
		want error
	}{
		{"cancel", func(_ *Comm, _ *Fake, cancel context.CancelCauseFunc) { cancel(gone) }, gone},
		{"abort", func(c *Comm, _ *Fake, _ context.CancelCauseFunc) { c.Abort(gone) }, gone},
		{"async", func(_ *Comm, f *Fake, _ context.CancelCauseFunc) { f.Break(0, RemoteError) }, &Error{Code: RemoteError}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			errs := group(t, 2, Options{Timeout: plenty}, func(c *Comm, f *Fake) error {
				if c.Rank() == 1 {
					<-c.broken
					return c.Err()
				}
				at, _ := f.Alloc(64)
				cx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if err := c.Run(cx, 1, Op{Kind: AllReduce, DType: dtype.F32, Tensors: []Tensor{{Src: at, Dst: at, Bytes: 64}}}); err != nil {
					return err
				}
				time.AfterFunc(20*time.Millisecond, func() { tc.do(c, f, cancel) })
				return c.Wait(cx, "x", func() (bool, error) { return f.Done(1) })
			})
			if !errors.Is(errs[0], tc.want) {
				t.Errorf("rank 0: %v, want %v", errs[0], tc.want)
			}
			for r, err := range errs {
				var b *rendezvous.CanceledError
				if !errors.As(err, &b) || b.Rank != r || b.Origin != 0 || b.Group != "g" || !strings.Contains(err.Error(), tc.want.Error()) {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	}
}

// TestRejoin shows that survivors go on under another name.
func TestRejoin(t *testing.T) {
	f, st := NewFake(), rendezvous.NewLocal()
	noErrors(t, ranks(3, func(rank int) error {
		c, err := Join(t.Context(), f, member(t, st, rank, 3), "g", 0, Options{Timeout: plenty})
		if err != nil {
			return err
		}
		if err := c.g.Barrier(t.Context(), "joined"); err != nil { // a break before would fail others' Join
			return err
		}
		if rank == 2 {
			c.Abort(errors.New("leaving"))
		}
		<-c.broken
		if err := c.Close(t.Context()); err != nil {
			return err
		}
		if err := c.Close(t.Context()); !errors.Is(err, ErrClosed) {
			return fmt.Errorf("second close: %v", err)
		}
		if rank == 2 {
			return nil
		}
		if c, err = Join(t.Context(), f, member(t, st, rank, 2), "g/1", 0, Options{Timeout: plenty}); err != nil {
			return err
		}
		return errors.Join(conform(t.Context(), c, fakeDevice(f, rank)), c.Close(t.Context()))
	}))
	if f.Leaks() != 0 {
		t.Errorf("%d communicators leaked", f.Leaks())
	}
}

func TestJoinErrors(t *testing.T) {
	f, st := NewFake(), rendezvous.NewLocal()
	noErrors(t, ranks(2, func(rank int) error {
		g := member(t, st, rank, 2)
		defer g.Close()
		sub := g.Sub("late", []int{0, 1})
		if rank == 1 { // comes when rank 0 has given up, and learns it at once
			if err := g.Barrier(t.Context(), "given up"); err != nil {
				return err
			}
		}
		limit := 50 * time.Millisecond
		if rank == 1 {
			limit = time.Minute
		}
		var te *rendezvous.TimeoutError
		if _, err := Join(t.Context(), f, sub, "g", 0, Options{Timeout: limit}); !errors.As(err, &te) || te.Rank != rank || !slices.Equal(te.Missing, []int{1}) {
			return fmt.Errorf("missing rank: %v", err)
		}
		if rank == 0 {
			if err := g.Barrier(t.Context(), "given up"); err != nil {
				return err
			}
		}
		g.Close()
		if _, err := Join(t.Context(), f, g, "g", 0, Options{}); !errors.Is(err, rendezvous.ErrClosed) {
			return fmt.Errorf("closed group: %v", err)
		}
		return nil
	}))
	if f.Leaks() != 0 {
		t.Errorf("%d communicators leaked", f.Leaks())
	}
}

func TestOpenMissing(t *testing.T) {
	_, err := Open("/nowhere/libnccl.so.2")
	var le *dl.LoadError
	if !errors.Is(err, ErrNoLibrary) || !errors.As(err, &le) || le.Reason == "" {
		t.Errorf("%v", err)
	}
}

// TestMismatch runs different ops on two ranks: a library would hang or corrupt, the
// group ends with an error.
func TestMismatch(t *testing.T) {
	errs := group(t, 2, Options{Timeout: plenty}, func(c *Comm, f *Fake) error {
		at, _ := f.Alloc(128)
		s := uintptr(c.Rank() + 1)
		if err := c.Run(t.Context(), s, Op{Kind: AllReduce, DType: dtype.F32, Tensors: []Tensor{{Src: at, Dst: at, Bytes: uint64(64 - 4*c.Rank())}}}); err != nil {
			return err
		}
		return c.Wait(t.Context(), "x", func() (bool, error) { return f.Done(s) })
	})
	for r, err := range errs {
		if err == nil {
			t.Errorf("rank %d saw nothing", r)
		}
	}
}
