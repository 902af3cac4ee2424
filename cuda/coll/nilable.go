package coll

import (
	"context"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
)

// Promoted methods would panic before they could say that the member or group is nil, as the
// result of a NewGroup that failed is. So those that return an error are here once more.

// symm is the member of symmetric memory, nil if m is.
func (m *Member) symm() *symm.Member {
	if m == nil {
		return nil
	}
	return m.Member
}

// symm is the group of symmetric memory, nil if g is.
func (g *Group) symm() *symm.Group {
	if g == nil {
		return nil
	}
	return g.Group
}

// Begin is symm.Member.Begin.
func (m *Member) Begin() error { return m.symm().Begin() }

// Usable is symm.Member.Usable.
func (m *Member) Usable() error { return m.symm().Usable() }

// Err is symm.Member.Err.
func (m *Member) Err() error { return m.symm().Err() }

// Abort is symm.Member.Abort.
func (m *Member) Abort(reason error) { m.symm().Abort(reason) }

// Check is symm.Member.Check.
func (m *Member) Check(ctx context.Context, s driver.Stream) error { return m.symm().Check(ctx, s) }

// Poll is symm.Member.Tend.
func (m *Member) Poll(waited time.Duration) error { return m.symm().Poll(waited) }

// Pad is symm.Member.Pad.
func (m *Member) Pad(rank int) (symm.Buffer, error) { return m.symm().Pad(rank) }

// Peer is symm.Member.Peer.
func (m *Member) Peer(rank int, b symm.Buffer) (symm.Buffer, error) { return m.symm().Peer(rank, b) }

// Get is symm.Member.Get.
func (m *Member) Get(s driver.Stream, rank int, from, to symm.Buffer) error {
	return m.symm().Get(s, rank, from, to)
}

// Put is symm.Member.Put.
func (m *Member) Put(s driver.Stream, rank int, from, to symm.Buffer) error {
	return m.symm().Put(s, rank, from, to)
}

// WriteValue is symm.Member.WriteValue.
func (m *Member) WriteValue(s driver.Stream, rank, word int, v uint32) error {
	return m.symm().WriteValue(s, rank, word, v)
}

// WaitValue is symm.Member.WaitValue.
func (m *Member) WaitValue(s driver.Stream, from, word int, v uint32) error {
	return m.symm().WaitValue(s, from, word, v)
}

// Memset32 is symm.Member.Memset32.
func (m *Member) Memset32(s driver.Stream, rank, word, count int, v uint32) error {
	return m.symm().Memset32(s, rank, word, count, v)
}

// Signal is symm.Member.Signal.
func (m *Member) Signal(s driver.Stream, channel int, peers ...int) error {
	return m.symm().Signal(s, channel, peers...)
}

// Wait is symm.Member.Wait.
func (m *Member) Wait(s driver.Stream, channel int, peers ...int) error {
	return m.symm().Wait(s, channel, peers...)
}

// BarrierOn is symm.Member.BarrierOn.
func (m *Member) BarrierOn(s driver.Stream, channel int, peers ...int) error {
	return m.symm().BarrierOn(s, channel, peers...)
}

// Close is symm.Group.Close.
func (g *Group) Close() error { return g.symm().Close() }

// Rejoin is symm.Group.Rejoin.
func (g *Group) Rejoin(ctx context.Context) error { return g.symm().Rejoin(ctx) }

// RejoinAfter is symm.Group.RejoinAfter.
func (g *Group) RejoinAfter(ctx context.Context, streams [][]driver.Stream) error {
	return g.symm().RejoinAfter(ctx, streams)
}

// Alloc is symm.Group.Alloc.
func (g *Group) Alloc(bytes uint64) (uint64, error) { return g.symm().Alloc(bytes) }

// Multicast is symm.Group.Multicast.
func (g *Group) Multicast() error { return g.symm().Multicast() }
