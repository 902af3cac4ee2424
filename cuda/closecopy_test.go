//go:build linux

package cuda

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/stall"
)

// lateCopy enqueues one copy late: after a close of the world has begun, and has had time to ask
// the device whether it is idle. The copy waits for a word.
type lateCopy struct {
	*fake.Driver
	entered chan struct{} // closed when it holds the copy back; nil when there is none to hold
	closing func() bool
	asked   atomic.Bool
	word    driver.Ptr
}

func (d *lateCopy) CtxSync(c driver.Ctx) error {
	d.asked.Store(true)
	return d.Driver.CtxSync(c)
}

func (d *lateCopy) Copy(c driver.Ctx, s driver.Stream, to, from driver.Ptr, n uint64) error {
	if d.entered != nil {
		close(d.entered)
		d.entered = nil
		stall.Until(10_000, d.closing)
		stall.Until(50, d.asked.Load)
		if err := d.StreamWait32(c, s, d.word, 1); err != nil {
			return err
		}
	}
	return d.Driver.Copy(c, s, to, from, n)
}

// TestCloseDuringGet: a world that is closed during a call keeps its memory for what the call has
// enqueued, of which no group knows.
func TestCloseDuringGet(t *testing.T) {
	fakeOnly(t)
	f := fake.New(2)
	d := &lateCopy{Driver: f}
	w := got(symm.NewLocalWorld(d, []int{0, 1}, symm.WorldOptions{Bytes: 1 << 20, Images: images(t)}))(t)
	g := got(symm.NewGroup(t.Context(), w, []int{0, 1}, symm.GroupOptions{}))(t)
	m := g.Members()[0]
	c := m.Rank.Ctx
	must := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	must(f.CtxSync(c))
	d.word = got(f.MemAlloc(c, 4))(t)
	s, free := got(f.StreamCreate(c))(t), got(f.StreamCreate(c))(t)
	must(f.Memset32(c, s, d.word, 0, 1), f.StreamSync(c, s))
	at := got(w.Alloc(8<<10, 256))(t)
	from, to := got(m.Rank.Buffer(at, symm.I32, 1<<10))(t), got(m.Rank.Buffer(at+4<<10, symm.I32, 1<<10))(t)
	entered, called, closed := make(chan struct{}), make(chan error, 1), make(chan error, 1)
	d.closing, d.entered = func() bool { return w.Usable() != nil }, entered
	go func() { called <- m.Get(s, 1, from, to) }()
	<-entered
	go func() { closed <- w.Close() }()
	must(<-called)
	if stall.Until(50, func() bool { return len(closed) > 0 }) {
		t.Error("the world is closed, and the copy is still to come")
	}
	must(f.StreamWrite32(c, free, d.word, 1), f.StreamSync(c, s), <-closed)
	must(f.StreamDestroy(c, s), f.StreamDestroy(c, free), f.MemFree(c, d.word))
	if l := f.Leaks().String(); l != "" {
		t.Error(l)
	}
}

// TestGroupCloseAwaitsPads: a closed group's memory is another's at once, so it waits for what streams are still
// to write there.
func TestGroupCloseAwaitsPads(t *testing.T) {
	fakeOnly(t)
	f := fake.New(2)
	w := got(symm.NewLocalWorld(f, []int{0, 1}, symm.WorldOptions{Bytes: 1 << 20, Images: images(t)}))(t)
	at := got(w.Alloc(4<<10, 256))(t)
	for name, call := range map[string]func(m *symm.Member, s driver.Stream) error{
		"write":  func(m *symm.Member, s driver.Stream) error { return m.WriteValue(s, 1, 3, 7) },
		"memset": func(m *symm.Member, s driver.Stream) error { return m.Memset32(s, 1, 3, 2, 7) },
		"put": func(m *symm.Member, s driver.Stream) error {
			b := got(m.Rank.Buffer(at, symm.I32, 1<<10))(t)
			pad := got(m.Pad(0))(t)
			return m.Put(s, 1, got(b.Slice(0, 4))(t), pad)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := got(symm.NewGroup(t.Context(), w, []int{0, 1}, symm.GroupOptions{}))(t)
			m := g.Members()[0]
			c := m.Rank.Ctx
			s := got(f.StreamCreate(c))(t)
			hold := make(chan struct{})
			var cmds driver.Commands
			cmds.Call(driver.Main, f.RegisterCall(func([]uint64) error { <-hold; return nil }))
			if err := errors.Join(f.Run(c, cmds.On(s)), call(m, s)); err != nil {
				t.Fatal(err)
			}
			closed := make(chan error, 1)
			go func() { closed <- g.Close() }()
			if stall.Until(50, func() bool { return len(closed) > 0 }) {
				t.Error("the group is closed, and the write is still to come")
			}
			close(hold)
			if err := errors.Join(<-closed, f.StreamDestroy(c, s)); err != nil {
				t.Fatal(err)
			}
		})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if l := f.Leaks().String(); l != "" {
		t.Error(l)
	}
}
