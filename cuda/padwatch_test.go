//go:build linux

package cuda

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/kernels"
)

// idlePad fails the test if the watch does not end.
func (r *rigT) idlePad(m *coll.Member) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), plenty)
	defer cancel()
	r.must(m.Drain(ctx, func() (bool, error) { return m.PendingWaits() == 0, nil }))
}

// shortGroup is a group of all ranks with a short deadline.
func (r *rigT) shortGroup(timeout time.Duration) *coll.Group {
	r.t.Helper()
	o := smallGroup(r.w.Shares(), r.w.Size())
	o.Timeout = timeout
	g := got(coll.NewGroup(r.t.Context(), r.w, seqInts(r.w.Size()), o))(r.t)
	r.t.Cleanup(func() { r.must(g.Close()) })
	return g
}

// TestWaitValueTimeout waits for a word that nobody writes, and on channels that nobody
// signals: each ends with an error that names all there is to name, the device works on,
// and the group does when it is rejoined.
func TestWaitValueTimeout(t *testing.T) {
	if process != nil {
		t.Skip("one rank of two in one process")
	}
	const timeout = 100 * time.Millisecond
	for _, c := range []struct {
		name, op, detail string
		wait             func(m *coll.Member, s driver.Stream) error
	}{
		{"value", "wait for a value", "word 77", func(m *coll.Member, s driver.Stream) error { return m.WaitValue(s, 1, 77, 5) }},
		{"two values of a word", "wait for a value", "word 8", func(m *coll.Member, s driver.Stream) error {
			defer m.Group.SetTimeout(timeout) // behind the last, however long they take
			m.Group.SetTimeout(plenty)
			return errors.Join(m.WaitValue(s, 1, 8, 1<<30), m.WaitValue(s, 1, 8, 1<<31-1), m.WaitValue(s, 1, 9, 1))
		}},
		{"wait", "wait", "channel 59", func(m *coll.Member, s driver.Stream) error { return m.Wait(s, 59, 1) }},
		{"barrier", "barrier on a channel", "channel 3", func(m *coll.Member, s driver.Stream) error { return m.BarrierOn(s, 3, 1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRigT(t, 2)
			g := r.shortGroup(timeout)
			m, s := g.Members()[0], r.streams[0]
			start := time.Now()
			r.must(c.wait(m, s))
			if err := r.drv.StreamSync(m.Rank.Ctx, s); err != nil { // whoever waits for the stream goes on
				t.Fatal(err)
			}
			if d := time.Since(start); d < timeout || d > plenty {
				t.Errorf("it took %v", d)
			}
			var te *symm.TimeoutError
			err := m.Check(t.Context(), s)
			if !errors.As(err, &te) || te.Op != c.op || te.Detail != c.detail || te.Rank != 0 || te.Peer != 1 || te.Elapsed < timeout || !errors.Is(err, symm.ErrTimeout) {
				t.Fatalf("got %v, %+v", err, te)
			}
			if text := te.Error(); !strings.HasPrefix(text, "rank 0: "+c.op+": timed out") || !strings.Contains(text, " for rank 1 (") {
				t.Error(text)
			}
			if err := m.WaitValue(s, 1, 0, 1); !errors.Is(err, symm.ErrTimeout) {
				t.Errorf("a broken group waits: %v", err)
			}
			r.must(g.Rejoin(t.Context()))
			if v := r.words(m, got(m.Pad(0))(t)); v[77] != 0 || v[8] != 0 {
				t.Error("the pad is not clear")
			}
			// The same again, with a peer.
			g.SetTimeout(plenty)
			r.must(m.WaitValue(s, 1, 77, 5), g.Members()[1].WriteValue(r.streams[1], 0, 77, 6))
			r.must(g.Members()[0].BarrierOn(s, 3), g.Members()[1].BarrierOn(r.streams[1], 3))
			r.must(m.Check(t.Context(), s), g.Members()[1].Check(t.Context(), r.streams[1]))
			r.idlePad(m)
		})
	}
}

// The deadline runs from when the stream has come to the wait, not from the call.
func TestWaitValueBehindWork(t *testing.T) {
	const timeout = 150 * time.Millisecond
	if process != nil {
		t.Skip("one rank of two in one process")
	}
	r := newRigT(t, 2)
	long := r.shortGroup(plenty)
	g := r.shortGroup(timeout)
	m, s := g.Members()[0], r.streams[0]
	r.must(long.Members()[0].Wait(s, 0, 1), m.WaitValue(s, 1, 0, 1))
	time.Sleep(2 * timeout)
	if err := m.Err(); err != nil {
		t.Fatalf("it timed out before it began: %v", err)
	}
	g.SetTimeout(plenty)
	r.must(g.Members()[1].WriteValue(r.streams[1], 0, 0, 1), r.drv.StreamSync(r.w.Rank(1).Ctx, r.streams[1]), long.Members()[1].Signal(r.streams[1], 0, 0))
	r.must(m.Check(t.Context(), s), long.Members()[0].Check(t.Context(), s))
}

// TestWaitValueAborted ends waits for words when the group ends: by this rank, by a peer
// of this process, and by a peer's kernel, which tells nobody but the devices.
func TestWaitValueAborted(t *testing.T) {
	if process != nil {
		t.Skip("two ranks in one process")
	}
	why := errors.New("enough")
	for _, c := range []struct {
		name  string
		end   func(r *rigT, g *coll.Group) error
		cause error
	}{
		{"own", func(_ *rigT, g *coll.Group) error { g.Members()[0].Abort(why); return nil }, why},
		{"peer", func(_ *rigT, g *coll.Group) error { g.Members()[1].Abort(why); return nil }, symm.ErrCanceled},
		{"peer's kernel", func(r *rigT, g *coll.Group) error {
			for _, m := range g.Members() { // as a kernel does that has waited too long
				if err := r.drv.Memset32(m.Rank.Ctx, r.streams[1], ctl(m), 1, 1); err != nil {
					return err
				}
			}
			return nil
		}, symm.ErrCanceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRigT(t, 2)
			g := r.shortGroup(plenty)
			m, s := g.Members()[0], r.streams[0]
			r.must(m.WaitValue(s, 1, 4, 1), m.WaitValue(s, 1, 5, 1))
			if ok, err := r.drv.StreamQuery(m.Rank.Ctx, s); ok || err != nil {
				t.Fatal("it does not wait", err)
			}
			r.must(c.end(r, g), r.drv.StreamSync(m.Rank.Ctx, s))
			if err := m.Check(t.Context(), s); !errors.Is(err, symm.ErrCanceled) || !errors.Is(err, c.cause) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A group that is closed while streams wait lets them go on.
func TestWaitValueClosed(t *testing.T) {
	r := newRigT(t, 2)
	o := smallGroup(r.w.Shares(), 2)
	o.Timeout = -1
	g := got(coll.NewGroup(t.Context(), r.w, []int{0, 1}, o))(t)
	for _, m := range g.Members() {
		r.must(m.WaitValue(r.streams[m.Rank.ID], (m.Index+1)%2, 0, 1))
	}
	r.must(g.Close())
	for _, id := range r.local() {
		r.sync(id, r.streams[id])
	}
}

// A capture takes no wait for a value: in a replay it would be over at once.
func TestWaitValueCaptured(t *testing.T) {
	r := newRigT(t, 2)
	m := r.g.Members()[0]
	s := r.streams[m.Rank.ID]
	r.must(r.drv.CaptureBegin(m.Rank.Ctx, s))
	var wrong *symm.ArgumentError
	if err := m.WaitValue(s, (m.Index+1)%2, 0, 1); !errors.As(err, &wrong) {
		t.Errorf("got %v", err)
	}
	r.must(r.drv.GraphDestroy(m.Rank.Ctx, got(r.drv.CaptureEnd(m.Rank.Ctx, s))(t)))
	r.idlePad(m)
}

// watchedDriver counts how often the host asks for each event.
type watchedDriver struct {
	driver.Driver
	mu    sync.Mutex
	asked map[driver.Event]int
	// recorded are a stream's events in the order of their recording. The watch records its own,
	// in the host's stream.
	recorded map[driver.Stream][]driver.Event
	broken   error // of StreamCapture
}

func (d *watchedDriver) EventQuery(c driver.Ctx, e driver.Event) (bool, error) {
	d.mu.Lock()
	d.asked[e]++
	d.mu.Unlock()
	return d.Driver.EventQuery(c, e)
}

func (d *watchedDriver) EventRecord(c driver.Ctx, e driver.Event, s driver.Stream) error {
	d.mu.Lock()
	d.recorded[s] = append(d.recorded[s], e)
	d.mu.Unlock()
	return d.Driver.EventRecord(c, e, s)
}

func (d *watchedDriver) StreamCapture(c driver.Ctx, s driver.Stream) (uint64, error) {
	if d.broken != nil {
		return 0, d.broken
	}
	return d.Driver.StreamCapture(c, s)
}

// TestWaitValueMany has many waits in a stream. The host asks for the one that the stream
// has come to, and now and then for those behind it.
func TestWaitValueMany(t *testing.T) {
	if process != nil {
		t.Skip("one rank of two in one process")
	}
	const many = 200
	r := newRigT(t, 2)
	g := r.shortGroup(plenty)
	m, s := g.Members()[0], r.streams[0]
	d := &watchedDriver{Driver: r.drv, asked: map[driver.Event]int{}, recorded: map[driver.Stream][]driver.Event{}}
	r.sw.Driver = d
	defer func() { r.sw.Driver = r.drv }()
	for i := range uint32(many) {
		r.must(m.WaitValue(s, 1, 0, i+1))
	}
	d.mu.Lock()
	first, last := d.recorded[s][1], d.recorded[s][2*many-1] // each wait has an event before and one after it
	d.mu.Unlock()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		<-tick.C
		d.mu.Lock()
		f, l := d.asked[first], d.asked[last]
		d.mu.Unlock()
		if 4*l > f+64 {
			t.Fatalf("asked %d times for the first wait and %d times for the last", f, l)
		}
		if f > 200 {
			break
		}
	}
	for i := range uint32(many) {
		r.must(g.Members()[1].WriteValue(r.streams[1], 0, 0, i+1))
	}
	r.must(m.Check(t.Context(), s))
	r.idlePad(m)
	d.broken = errors.New("no answer")
	var wrong *symm.ArgumentError
	if err := m.WaitValue(s, 1, 0, 1); !errors.Is(err, d.broken) || errors.As(err, &wrong) {
		t.Errorf("the driver fails: %v", err)
	}
}

// A wait that is late has the number it got when it was called.
func TestWaitValueNumber(t *testing.T) {
	if process != nil {
		t.Skip("one rank of two in one process")
	}
	r := newRigT(t, 2)
	g := r.shortGroup(plenty)
	m := g.Members()[0]
	_, _, before := symm.Called(m.Number(0, 0))
	r.must(m.WaitValue(r.streams[0], 1, 0, 1))
	for range 10 {
		got(m.Prepare(coll.Op{Kind: kernels.Barrier}))(t)
	}
	g.SetTimeout(50 * time.Millisecond)
	var te *symm.TimeoutError
	if err := m.Check(t.Context(), r.streams[0]); !errors.As(err, &te) {
		t.Fatal(err)
	}
	if te.Step != uint64(before+1) {
		t.Errorf("call %d, and not %d", te.Step, before+1)
	}
}

// unwilling is a driver that answers no questions for a while, because somebody captures.
type unwilling struct {
	driver.Driver
	left atomic.Int32
}

func (d *unwilling) EventQuery(c driver.Ctx, e driver.Event) (bool, error) {
	if d.left.Add(-1) >= 0 {
		return false, &driver.Error{Call: "cuEventQuery", Code: 900, Name: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}
	}
	return d.Driver.EventQuery(c, e)
}

// A watch that gets no answer goes on: without it the wait would have no end.
func TestWaitValueUnwilling(t *testing.T) {
	if process != nil {
		t.Skip("one rank of two in one process")
	}
	r := newRigT(t, 2)
	g := r.shortGroup(50 * time.Millisecond)
	m, s := g.Members()[0], r.streams[0]
	d := &unwilling{Driver: r.drv}
	d.left.Store(10)
	r.sw.Driver = d
	defer func() { r.sw.Driver = r.drv }()
	r.must(m.WaitValue(s, 1, 0, 1))
	ctx, cancel := context.WithTimeout(t.Context(), plenty)
	defer cancel()
	if err := m.Check(ctx, s); !errors.Is(err, symm.ErrTimeout) {
		t.Errorf("got %v", err)
		r.must(m.WriteValue(s, 0, 0, 1))
		r.must(g.Members()[1].WriteValue(r.streams[1], 0, 0, 1))
	}
	r.idlePad(m)
}

// newOneQueueRig has two ranks whose devices have one hardware queue each: a wait holds up all streams.
func newOneQueueRig(t *testing.T) (*rigT, *fake.Driver) {
	t.Helper()
	fakeOnly(t)
	f := newDriverOf(t, 2).(*fake.Driver)
	f.Queues(1)
	return newRigOn(t, f, []int{0, 1}, symm.WorldOptions{Bytes: 24 << 20, Images: images(t)}), f
}

// TestWaitValueSharedQueue: a wait that holds up all queues of its device, the host's too, ends
// the group nevertheless: the host waits for no copy.
func TestWaitValueSharedQueue(t *testing.T) {
	r, f := newOneQueueRig(t)
	g := r.shortGroup(100 * time.Millisecond)
	m := g.Members()[0]
	r.must(m.WaitValue(r.streams[0], 1, 0, 1))
	var late *symm.TimeoutError
	until(t, func() bool { return errors.As(m.Err(), &late) })
	if late.Rank != 0 || late.Peer != 1 {
		t.Errorf("got %+v", late)
	}
	r.must(f.StreamWrite32(r.w.Rank(1).Ctx, r.streams[1], got(m.Pad(0))(t).At, 1)) // the peer comes after all
	r.must(g.Rejoin(t.Context()))
	r.idlePad(m)
}

// TestCheckSharedQueue: the end of its context ends a Check of an idle stream, too, where another
// stream's wait holds up all queues of the device.
func TestCheckSharedQueue(t *testing.T) {
	r, f := newOneQueueRig(t)
	m := r.g.Members()[0]
	idle := got(f.StreamCreate(m.Rank.Ctx))(t)
	defer f.StreamDestroy(m.Rank.Ctx, idle)
	r.must(m.WaitValue(r.streams[0], 1, 0, 1))
	enough := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, enough)
	defer cancel()
	if err := m.Check(ctx, idle); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	r.must(f.StreamWrite32(r.w.Rank(1).Ctx, r.streams[1], got(m.Pad(0))(t).At, 1)) // the peer comes after all
	r.must(r.g.Rejoin(t.Context()))
	r.idlePad(m)
}
