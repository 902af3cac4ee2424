package symm

import (
	"math"

	"github.com/seed-ee968945/concert/cuda/driver"
)

// Every member of a group has a pad: words of 32 bits in symmetric memory for signals
// between streams that callers lay out themselves. They are zero at first and after
// Rejoin, and nothing of the group touches them. Streams write and wait for words without
// a kernel, so neither takes a multiprocessor.
//
// Signal, Wait and BarrierOn need no words: their channels count in the control page.
//
// Pads and buffers can be read and written while the group is broken.

// defaultPad is the size of a pad in bytes where none is asked for.
const defaultPad = 16 << 10

// PadBytes is the size of each rank's pad.
func (g *Group) PadBytes() uint64 { return g.padBytes }

// Pad is the pad of a group rank: words of 32 bits, as I32. Buffer.As and Buffer.Slice
// give other views.
func (m *Member) Pad(rank int) (Buffer, error) {
	if err := m.inGroup(rank); err != nil {
		return Buffer{}, err
	}
	g := m.Group
	return Buffer{At: g.world.Addr(g.ranks[rank], g.pad), Count: g.padBytes / 4, DType: I32}, nil
}

// Peer is the buffer of a group rank that is where b is here, in symmetric memory.
func (m *Member) Peer(rank int, b Buffer) (Buffer, error) {
	if err := m.inGroup(rank); err != nil {
		return Buffer{}, err
	}
	if why := b.Check(); why != nil {
		return Buffer{}, Invalid("buffer", "%s", why)
	}
	r := m.Rank
	if !r.Holds(b.At, b.Bytes()) {
		return Buffer{}, Invalid("buffer", "%v is not in the symmetric memory of rank %d", b, r.ID)
	}
	w := m.Group.world
	b.At = b.At - w.Addr(r.ID, 0) + w.Addr(m.Group.ranks[rank], 0)
	return b, nil
}

// Get copies, when s has got here, from the buffer of a group rank that is where from
// is here into the first elements of to, which may be any memory of this device and
// keeps what is behind them. The other rank takes no part: signals say when its data are
// there and when they may be overwritten.
func (m *Member) Get(s driver.Stream, rank int, from, to Buffer) error {
	peer, err := m.Peer(rank, from)
	if err != nil {
		return err
	}
	return m.transfer(s, peer, to)
}

// Put copies, when s has got here, from into the first elements of the buffer of a group
// rank that is where to is here. It is visible there before what s signals afterwards.
func (m *Member) Put(s driver.Stream, rank int, from, to Buffer) error {
	peer, err := m.Peer(rank, to)
	if err != nil {
		return err
	}
	return m.transfer(s, from, peer)
}

func (m *Member) transfer(s driver.Stream, from, to Buffer) error {
	if err := m.Begin(); err != nil {
		return err
	}
	defer m.Done()
	if err := CheckStream(s); err != nil {
		return err
	}
	for _, b := range [...]Buffer{from, to} {
		if why := b.Check(); why != nil {
			return Invalid("buffer", "%s", why)
		}
	}
	switch {
	case from.DType != to.DType:
		return Invalid("buffer", "%v into %v: their types differ", from, to)
	case from.Count > to.Count:
		return Invalid("buffer", "%d elements exceed the %d of %v", from.Count, to.Count, to)
	case from.Count > 0 && from.overlaps(to) && from.At != to.At:
		return Invalid("buffer", "%v overlaps %v", from, to)
	}
	if from.Count == 0 || from.At == to.At {
		return nil
	}
	return m.uponPads(s, func() error { return m.Rank.World.drv.Copy(m.Rank.Ctx, s, to.At, from.At, from.Bytes()) })
}

// WriteValue writes v into a word of a group rank's pad, this rank's or a peer's, when s
// has got here. What s did before is visible to the whole system first.
func (m *Member) WriteValue(s driver.Stream, rank, word int, v uint32) error {
	if err := m.Begin(); err != nil {
		return err
	}
	defer m.Done()
	at, err := m.words(s, rank, word, 1)
	if err != nil {
		return err
	}
	return m.uponPads(s, func() error { return m.Rank.World.drv.StreamWrite32(m.Rank.Ctx, s, at, v) })
}

// WaitValue holds s until a word of this rank's pad has reached v, counted so that it may
// wrap: int32(word - v) >= 0. from is the group rank that is expected to write it, for the
// error. It is for eager streams: a captured wait would have the same v in each replay;
// Wait counts by itself.
//
// No driver ends such a wait, so the host watches it (padwatch.go): past the group's
// timeout, counted from when s has come to it, the group is broken as by any other wait,
// with a *TimeoutError that names the word, and the stream goes on. The same happens
// when the group is aborted. What s does behind the wait it does then without the value: it
// is to be thrown away, as all results of a broken group. Captures that other libraries
// begin meanwhile in the driver's global mode are ended by the watch's questions; those of
// this package are in the relaxed one, which allows them.
func (m *Member) WaitValue(s driver.Stream, from, word int, v uint32) error {
	if err := m.Begin(); err != nil {
		return err
	}
	defer m.Done()
	if err := m.inGroup(from); err != nil {
		return err
	}
	at, err := m.words(s, m.Index, word, 1)
	if err == nil {
		err = m.works()
	}
	if err != nil {
		return err
	}
	return m.watched(s, from, word, at, v)
}

// Memset32 writes v into count words of a group rank's pad from word on, when s has got
// here.
func (m *Member) Memset32(s driver.Stream, rank, word, count int, v uint32) error {
	if err := m.Begin(); err != nil {
		return err
	}
	defer m.Done()
	if count <= 0 {
		return Invalid("count", "%d words: at least one is needed", count)
	}
	at, err := m.words(s, rank, word, count)
	if err != nil {
		return err
	}
	return m.uponPads(s, func() error { return m.Rank.World.drv.Memset32(m.Rank.Ctx, s, at, v, uint64(count)) })
}

// words is the address of count words of a group rank's pad, for a stream.
func (m *Member) words(s driver.Stream, rank, word, count int) (driver.Ptr, error) {
	if err := m.inGroup(rank); err != nil {
		return 0, err
	}
	if err := CheckStream(s); err != nil {
		return 0, err
	}
	if n := int(m.Group.padBytes / 4); word < 0 || word >= n || count > n-word {
		return 0, Invalid("word", "[%d, +%d) exceeds the pad's %d words", word, count, n)
	}
	return m.Group.world.Addr(m.Group.ranks[rank], m.Group.pad) + driver.Ptr(4*word), nil
}

// inGroup is nil for a rank of the member's group, which is open.
func (m *Member) inGroup(rank int) error {
	if err := m.Usable(); err != nil {
		return err
	}
	if n := len(m.Group.ranks); rank < 0 || rank >= n {
		return Invalid("rank", "must be in [0, %d), got %d", n, rank)
	}
	return nil
}

// padSize is the size of a pad for that option.
func padSize(asked uint64) (uint64, error) {
	if asked == 0 {
		return defaultPad, nil
	}
	if asked > math.MaxInt32 {
		return 0, Invalid("GroupOptions.Pad", "%d bytes: at most %d are possible", asked, math.MaxInt32)
	}
	return (asked + 127) &^ 127, nil
}

// BarrierOn holds s until each chosen peer has called it once more on that channel with
// this rank among its own, and signals it to them: Signal and Wait in one. Without peers it
// is for all of the group.
func (m *Member) BarrierOn(s driver.Stream, channel int, peers ...int) error {
	if err := m.Usable(); err != nil {
		return err
	}
	if len(peers) == 0 {
		for r := range m.Group.ranks {
			if r != m.Index {
				peers = append(peers, r)
			}
		}
	}
	return m.userChannel(s, callBarrier, "barrier", channel, peers)
}
