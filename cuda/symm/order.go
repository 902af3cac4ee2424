package symm

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/seed-ee968945/concert/cuda/driver"
)

// A group's calls follow each other on every rank: they share its control page. Calls in
// one stream do so by themselves. For those in several streams each call waits for the
// one before it, by an event, which costs nothing as long as the stream stays the same:
//
// The first change of streams records an event in the stream of the call before, which
// therefore stands for all that is in that stream by then. From then on the group records
// one behind each of its calls, so that a later change waits for the call and not for what
// the caller enqueued behind it. GroupOptions.ManyStreams begins with that. A stream that
// is destroyed through the world's driver leaves its event behind; streams from
// elsewhere must live until the group's next call, or its Close.
//
// A capture is apart from all else: what is captured runs later, if ever. So calls in it
// wait for the captured call before them, in the same capture, and calls outside wait for
// the call before them outside. Where a graph is launched is the caller's to order.
//
// User channels have an order for each direction of each channel. What is done to pads and buffers is in
// no order but its stream's: one for each stream says when that has ended.

// StreamOrderError means that a call cannot be put behind the group's last one, because
// that one's stream is being captured and has nothing behind the call that could be
// waited for. GroupOptions.ManyStreams avoids it.
type StreamOrderError struct {
	Rank       int // group rank
	Last, Next driver.Stream
}

// Error names the streams.
func (e *StreamOrderError) Error() string {
	return fmt.Sprintf("rank %d: a call in stream %#x cannot follow the group's last one in stream %#x, which is being captured: end the capture first, or set GroupOptions.ManyStreams", e.Rank, uint64(e.Next), uint64(e.Last))
}

// Order puts calls of a member in order. Its lock is held from Begin to End or EndFailed: hosts
// with several threads enqueue one call after the other.
type Order struct {
	mu    sync.Mutex
	m     *Member
	seen  bool // last is alive and had the last call
	last  driver.Stream
	many  bool   // every call leaves a mark
	eager mark   // the last call that was not captured, or may not have been
	held  mark   // the last call of a capture
	in    uint64 // which capture that is
	now   uint64 // the capture of the call between begin and end
}

// mark is where a call ended.
type mark struct {
	any      bool
	gone     bool // the stream has been destroyed
	recorded bool // ev comes after the call
	stream   driver.Stream
	ev       driver.Event
}

// Begin locks t and makes s wait for the call before. On an error t is not locked.
func (t *Order) Begin(s driver.Stream) error {
	t.mu.Lock()
	err := t.m.works()
	if err == nil {
		err = t.turn(s)
	}
	if err != nil {
		t.mu.Unlock()
	}
	return err
}

// turn makes s wait for the call before.
func (t *Order) turn(s driver.Stream) error {
	if t.seen && t.last == s && !t.many {
		return nil
	}
	return t.change(s)
}

// End marks the end of the call in s, and unlocks t.
func (t *Order) End(s driver.Stream) error {
	defer t.mu.Unlock()
	if !t.many {
		return nil
	}
	at := &t.eager
	if t.now != 0 {
		at = &t.held
	}
	watch := !at.any || at.gone || at.stream != s
	*at = mark{any: true, stream: s, ev: at.ev}
	if watch {
		t.m.Rank.World.drv.Shared().Watch(s, t)
	}
	return t.record(at)
}

// Lock keeps calls of other threads away until Unlock.
func (t *Order) Lock() { t.mu.Lock() }

// Unlock lets them go on.
func (t *Order) Unlock() { t.mu.Unlock() }

// failed is End where there was no call.
func (t *Order) failed() { t.mu.Unlock() }

// EndFailed is End where the driver failed, maybe behind a part of the call, which the next one
// follows, too. What the driver said first is the caller's error.
func (t *Order) EndFailed(s driver.Stream) { t.End(s) }

// change is turn's part for a stream that is not the last one's, or may not be.
func (t *Order) change(s driver.Stream) (err error) {
	d, c := t.m.Rank.World.drv, t.m.Rank.Ctx
	if !t.seen && !t.many && !t.eager.any { // the first call
		return t.follow(s)
	}
	if t.now, err = d.StreamCapture(c, s); err != nil {
		return err
	}
	if !t.many {
		if t.eager.gone && t.now == 0 { // a stream has taken another's place
			if err := d.StreamWait(c, s, t.eager.ev); err != nil {
				return err
			}
			return t.follow(s)
		}
		if !t.eager.gone {
			in, err := d.StreamCapture(c, t.last)
			if err != nil {
				return err
			}
			if in != 0 {
				t.in, t.held = in, mark{any: true, stream: t.last, ev: t.held.ev}
			}
		}
		t.many = true
	}
	before := &t.eager
	if t.now != 0 {
		if before = &t.held; t.in != t.now {
			t.in, t.held = t.now, mark{ev: t.held.ev}
		}
	}
	if !before.any || before.stream == s && !before.gone {
		return nil
	}
	if !before.recorded {
		in, err := d.StreamCapture(c, before.stream)
		if err != nil {
			return err
		}
		if in != t.now {
			return &StreamOrderError{Rank: t.m.Index, Last: before.stream, Next: s}
		}
		if err := t.record(before); err != nil {
			return err
		}
	}
	return d.StreamWait(c, s, before.ev)
}

// follow makes s the one stream of the calls.
func (t *Order) follow(s driver.Stream) error {
	t.seen, t.last = true, s
	t.eager = mark{any: true, stream: s, ev: t.eager.ev}
	t.m.Rank.World.drv.Shared().Watch(s, t)
	return nil
}

// record puts a mark's event into its stream.
func (t *Order) record(at *mark) error {
	err := t.m.Rank.World.drv.EventRecord(t.m.Rank.Ctx, at.ev, at.stream)
	at.recorded = err == nil
	return err
}

// StreamDestroyed takes leave of a stream. Where the driver fails there is nothing that the next
// call could wait for.
func (t *Order) StreamDestroyed(s driver.Stream) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen && t.last == s {
		t.seen = false
	}
	if t.held.any && t.held.stream == s {
		t.held.gone = true
	}
	if e := &t.eager; e.any && e.stream == s && !e.gone {
		if !e.recorded {
			if err := t.record(e); err != nil {
				*e = mark{ev: e.ev}
				return err
			}
		}
		e.gone = true
	}
	return nil
}

// reset forgets all calls: they have ended.
func (t *Order) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen, t.in = false, 0
	t.eager, t.held = mark{ev: t.eager.ev}, mark{ev: t.held.ev}
}

// idle reports whether the last call outside of captures has ended. What is captured runs
// later, if ever.
func (t *Order) idle() (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d, c, e := t.m.Rank.World.drv, t.m.Rank.Ctx, &t.eager
	if !e.any {
		return true, nil
	}
	if !e.recorded {
		if in, err := d.StreamCapture(c, e.stream); in != 0 || err != nil {
			return in != 0, err
		}
		if err := t.record(e); err != nil {
			return false, err
		}
	}
	return d.EventQuery(c, e.ev)
}

// CheckStream is nil for a stream that is not the default one, else an *ArgumentError.
func CheckStream(s driver.Stream) error {
	if s == 0 {
		return Invalid("stream", "the default stream waits for all others, which a call of a group may need: create one")
	}
	return nil
}

// inTurn enqueues a call on s that belongs into one or several orders.
func (m *Member) inTurn(s driver.Stream, call func() error, orders ...*Order) error {
	if err := CheckStream(s); err != nil {
		return err
	}
	if len(orders) == 0 {
		return call()
	}
	t := orders[0]
	if err := t.Begin(s); err != nil {
		return err
	}
	if err := m.inTurn(s, call, orders[1:]...); err != nil {
		t.failed()
		return err
	}
	return t.End(s)
}

// uponPads enqueues on s what is done to pads or buffers, also while the group is broken. Close waits for it.
func (m *Member) uponPads(s driver.Stream, call func() error) error {
	t, err := m.orderOf(direction{stream: s})
	if err != nil {
		return err
	}
	t.mu.Lock()
	if err = t.turn(s); err == nil {
		err = call()
	}
	if err != nil {
		t.failed()
		return err
	}
	return t.End(s)
}

// direction is one of a user channel's, or a stream's to pads and buffers.
type direction struct {
	channel int
	waits   bool
	stream  driver.Stream
}

// orderOf gives the order of a direction.
func (m *Member) orderOf(d direction) (*Order, error) {
	m.orderMu.Lock()
	defer m.orderMu.Unlock()
	if t := m.channels[d]; t != nil {
		return t, nil
	}
	t, err := m.newOrder()
	if err != nil {
		return nil, err
	}
	if m.channels == nil {
		m.channels = map[direction]*Order{}
	}
	m.channels[d] = t
	return t, nil
}

// allOrders lists all orders of the member.
func (m *Member) allOrders() []*Order {
	m.orderMu.Lock()
	defer m.orderMu.Unlock()
	return append(slices.Collect(maps.Values(m.channels)), m.order)
}

// newOrder makes an order of the member's, with the events of its marks: what a group holds does not
// depend on when its streams change.
func (m *Member) newOrder() (*Order, error) {
	t := &Order{m: m, many: m.Group.many}
	for _, at := range []*mark{&t.eager, &t.held} {
		var err error
		if at.ev, err = m.Rank.own(m.Group.life).Event(false); err != nil {
			return nil, err
		}
	}
	return t, m.Group.life.Defer("order of calls", func() error { m.Rank.World.drv.Shared().Unwatch(t); return nil })
}
