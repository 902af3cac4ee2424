package symm

import (
	"fmt"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/kernels"
)

// FirstUser is the first of the 64 channels of a control page that Signal and Wait have;
// those before it are the Extension's.
const FirstUser = 4

// UserChannels is how many channels Signal and Wait have.
const UserChannels = 64 - FirstUser

// Signal adds to channel on the chosen peers, given as group ranks, when the
// stream has got here. Wait holds the stream until each chosen peer has signalled
// once more. Channels are 0 to UserChannels-1.
func (m *Member) Signal(s driver.Stream, channel int, peers ...int) error {
	return m.userChannel(s, callSignal, "signal", channel, peers)
}

// Wait is Signal's other half.
func (m *Member) Wait(s driver.Stream, channel int, peers ...int) error {
	return m.userChannel(s, callWait, "wait", channel, peers)
}

func (m *Member) userChannel(s driver.Stream, kind CallKind, kernel string, channel int, peers []int) error {
	if err := m.Begin(); err != nil {
		return err
	}
	defer m.Done()
	if channel < 0 || channel >= UserChannels {
		return fmt.Errorf("channel must be in [0, %d), got %d", UserChannels, channel)
	}
	var mask uint32
	for _, r := range peers {
		if r < 0 || r >= len(m.Group.ranks) {
			return fmt.Errorf("rank must be in [0, %d), got %d", len(m.Group.ranks), r)
		}
		if r == m.Index {
			return fmt.Errorf("rank %d cannot %s itself", r, kernel)
		}
		mask |= 1 << r
	}
	if err := m.works(); err != nil {
		return err
	}
	var c driver.Commands
	if err := m.AddSignal(&c, driver.Main, kind, kernel, FirstUser+channel, mask); err != nil {
		return err
	}
	var orders []*Order
	for _, waits := range []bool{false, true} { // a barrier does both
		if kind == callBarrier || waits == (kind == callWait) {
			t, err := m.orderOf(direction{channel: channel, waits: waits})
			if err != nil {
				return err
			}
			orders = append(orders, t)
		}
	}
	return m.inTurn(s, func() error { return m.Rank.World.drv.Run(m.Rank.Ctx, c.On(s)) }, orders...)
}

// AllPeers is the mask of all peers.
func (m *Member) AllPeers() uint32 {
	return (uint32(1)<<len(m.Group.ranks) - 1) &^ (1 << m.Index)
}

// AddSignal adds a kernel, "signal", "wait" or "barrier", on a channel with the peers of
// mask, a bit for each group rank, as part of a call of that kind.
func (m *Member) AddSignal(c *driver.Commands, s driver.Stream, k CallKind, kernel string, channel int, mask uint32) error {
	f, err := m.Rank.Func("barrier", kernel)
	if err != nil {
		return err
	}
	a := m.Args(k, max(channel-FirstUser, 0))
	a.Per, a.Units = uint32(channel), mask
	c.Launch(s, f, 1, 32, 0, a.Pack(nil, 1))
	return nil
}

// Args are the arguments that depend on the rank only, and the number of the call, which
// is of that kind. channel is the user's, 0 for collectives.
func (m *Member) Args(k CallKind, channel int) kernels.Args {
	return kernels.Args{Peer: m.peer, Ctl: uint64(m.ctl), Host: uint64(m.hostDev), Timeout: uint64(m.Timeout()),
		N: uint32(len(m.Group.ranks)), Rank: uint32(m.Index), Seq: m.Number(k, channel)}
}
