//go:build linux

package device

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/library"
	rt "github.com/seed-ee968945/concert/runtime"
)

// lending is a library that knows which of its steps have been released, and whose
// commands fail if theirs has.
type lending struct {
	fn   driver.CFunc
	gate chan struct{} // what the first step runs waits for it, if it is not nil

	mu      sync.Mutex
	planned int
	live    map[int]bool
	most    int // live at a time
	ran     int
	bad     []string
}

type lent struct {
	l  *lending
	id int
}

func (l *lending) Plan(c *library.Call) (library.Step, error) {
	if c.Op != "matmul" {
		return nil, library.ErrNotServed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &lent{l, l.planned}
	l.planned++
	l.live[s.id] = true
	l.most = max(l.most, len(l.live))
	return s, nil
}

func (l *lending) Close() error { return nil }

func (l *lending) run(args []uint64) error {
	if l.gate != nil && args[0] == 0 {
		<-l.gate
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ran++
	if id := int(args[0]); !l.live[id] {
		l.bad = append(l.bad, fmt.Sprintf("step %d ran after its release", id))
	}
	return nil
}

func (s *lent) AddTo(c *driver.Commands) { c.Call(driver.Main, s.l.fn, uint64(s.id)) }
func (s *lent) String() string           { return "lent" }

func (s *lent) Release() error {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if !s.l.live[s.id] {
		s.l.bad = append(s.l.bad, fmt.Sprintf("step %d was released twice", s.id))
	}
	delete(s.l.live, s.id)
	return nil
}

func (l *lending) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.live)
}

func (l *lending) releasedFirst() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.live[0]
}

// withLending runs f on a device that keeps few plans and computes matmuls by lending.
func withLending(t *testing.T, keep int, gate chan struct{}, f func(ctx context.Context, r *rt.Rank, m *rt.Module, l *lending) error) {
	t.Helper()
	drv := fake.New(1)
	l := &lending{live: map[int]bool{}, gate: gate}
	l.fn = drv.RegisterCall(l.run)
	o := Options{Cache: "none", Workspace: 1 << 16, Scratch: 1 << 16, Staging: -1, Libraries: []OpenLibrary{func(LibraryEnv) (library.Library, error) { return l, nil }}}
	m := &rt.Module{Name: "m", World: 1, Arena: 1 << 20, Streams: []string{"compute"}}
	err := Local(t.Context(), drv, []int{0}, rt.Config{Timeout: time.Minute}, o, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
		r.Device().(*Device).most = keep
		return f(ctx, r, m, l)
	})
	if err != nil {
		t.Error(err)
	}
	if len(l.bad) > 0 {
		t.Error(strings.Join(l.bad, "\n"))
	}
	if leaks := drv.Leaks(); len(leaks) > 0 {
		t.Errorf("not released: %v", leaks)
	}
}

// products launches matmuls whose result is at the given places.
func products(from, to int) func(*rt.Exec) {
	return func(x *rt.Exec) {
		for i := from; i < to; i++ {
			x.Launch("compute", "matmul", nil, rt.Ts{rt.C(int64(8192+1024*i), rt.F32, 16, 16)}, rt.Ts{rt.C(0, rt.F32, 16, 16), rt.C(4096, rt.F32, 16, 16)})
		}
	}
}

// What libraries hold for calls that never repeat does not grow without end.
func TestPlansGiveBack(t *testing.T) {
	const keep, calls = 8, 200
	withLending(t, keep, nil, func(ctx context.Context, r *rt.Rank, m *rt.Module, l *lending) error {
		for i := range calls {
			if _, err := rt.RunModule(ctx, r, m, products(i, i+1), nil, rt.Options{}); err != nil {
				return err
			}
		}
		if l.planned != calls || l.ran != calls || l.most > keep+1 {
			t.Errorf("%d planned, %d ran, %d at a time with %d kept", l.planned, l.ran, l.most, keep)
		}
		return nil
	})
}

// A captured step holds what it runs until it is closed, packed or as a graph.
func TestCapturesHold(t *testing.T) {
	const keep, ours = 4, 3
	for _, graph := range []bool{false, true} {
		withLending(t, keep, nil, func(ctx context.Context, r *rt.Rank, m *rt.Module, l *lending) error {
			st, err := rt.Prepare(ctx, r, m, products(0, ours), rt.Options{}, graph)
			if err != nil {
				return err
			}
			for i := range 40 {
				if _, err := rt.RunModule(ctx, r, m, products(10+i, 11+i), nil, rt.Options{}); err != nil {
					return err
				}
				if i%10 == 9 {
					if _, err := st.Run(ctx, nil); err != nil {
						return err
					}
				}
			}
			if n := l.count(); n > keep+ours || l.releasedFirst() {
				t.Errorf("graph %v: %d steps are live, the first was released: %v", graph, n, l.releasedFirst())
			}
			if err := st.Close(); err != nil {
				return err
			}
			if _, err := rt.RunModule(ctx, r, m, products(60, 62), nil, rt.Options{}); err != nil {
				return err
			}
			if n := l.count(); n > 2*keep || !l.releasedFirst() {
				t.Errorf("graph %v: %d steps are live after the capture is closed, the first was released: %v", graph, n, l.releasedFirst())
			}
			return nil
		})
	}
}

// Nothing is given back while it may run: when no more can be held, planning waits.
func TestPlansWait(t *testing.T) {
	const keep = 4
	gate, done := make(chan struct{}), make(chan struct{})
	withLending(t, keep, gate, func(ctx context.Context, r *rt.Rank, m *rt.Module, l *lending) error {
		go func() {
			defer close(done)
			time.Sleep(20 * time.Millisecond)
			if l.releasedFirst() {
				t.Error("a step was released while it ran")
			}
			close(gate)
		}()
		defer func() { <-done }()
		d := r.Device().(*Device)
		s, err := d.NewStream("compute")
		if err != nil {
			return err
		}
		for i := range int64(3 * keep) {
			k := &rt.Kernel{Op: "matmul", Outs: rt.Ts{rt.C(8192+1024*i, rt.F32, 16, 16)}, Ins: rt.Ts{rt.C(0, rt.F32, 16, 16), rt.C(4096, rt.F32, 16, 16)}}
			if err := d.Launch(s, k); err != nil {
				return err
			}
		}
		if !l.releasedFirst() || l.most > 2*keep {
			t.Errorf("%d steps at a time, the first was released: %v", l.most, l.releasedFirst())
		}
		return d.Sync(ctx)
	})
}
