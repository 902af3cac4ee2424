package symm

import (
	"context"
	"math/bits"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/kernels"
)

// What callers pass is checked before anything is done with it. Launches of what has been
// prepared check that the group works (Member.Err), which Close makes an ErrClosed, and
// nothing else.

// mostWorld bounds the ranks of a single-rank world, which keeps a little for each.
const mostWorld = 1 << 20

// mostAddress is what the range of all ranks' memory may take: GPUs address 47 bits.
const mostAddress = 1 << 47

// checkWorld checks what every kind of world is made of.
func checkWorld(drv driver.Driver, n int, o *WorldOptions, lone bool) error {
	most := 64
	if lone {
		most = mostWorld
	}
	switch {
	case drv == nil:
		return Invalid("driver", "none was given")
	case n < 1 || n > most:
		return Invalid("ranks", "a world has 1 to %d on one host, got %d", most, n)
	}
	if lone {
		n = 1
	}
	bytes := max(o.Bytes, o.Addresses)
	if hi, all := bits.Mul64(bytes, uint64(n)); hi != 0 || all > mostAddress || bytes > mostAddress {
		return Invalid("WorldOptions.Bytes", "%d bytes for each of %d ranks are more than GPUs address", bytes, n)
	}
	if o.Multicast && o.Addresses > 0 {
		return Invalid("WorldOptions.Multicast", "a world that grows has none")
	}
	if o.Images != nil && o.Images.Manifest == nil {
		return Invalid("WorldOptions.Images", "the set is empty: make it by kernels.NewSet")
	}
	return nil
}

// CheckContext is nil for a context, and an *ArgumentError for none.
func CheckContext(ctx context.Context) error {
	if ctx == nil {
		return Invalid("context", "it is nil: context.Background() never ends")
	}
	return nil
}

// Usable is nil for a world that is open, else an *ArgumentError or ErrClosed.
func (w *World) Usable() error {
	switch {
	case w == nil:
		return Invalid("world", "it is nil")
	}
	return w.life.Err()
}

// usable is nil for a rank of a world that is open.
func (r *Rank) usable() error {
	if r == nil {
		return Invalid("rank", "it is nil")
	}
	return r.World.Usable()
}

// usable is nil for a group that is open.
func (g *Group) usable() error {
	switch {
	case g == nil:
		return Invalid("group", "it is nil")
	}
	return g.life.Err()
}

// begin starts a call of a group that is open; done ends it.
func (g *Group) begin() error {
	if g == nil {
		return g.usable()
	}
	return g.life.Begin()
}

func (g *Group) done() { g.life.Done() }

// Begin starts a call of a member whose group is open, which Done ends.
func (m *Member) Begin() error {
	if m == nil {
		return m.Usable()
	}
	return m.Group.life.Begin()
}

// Done ends a call.
func (m *Member) Done() { m.Group.life.Done() }

// Usable is nil for a member of a group that is open, else an *ArgumentError or ErrClosed.
func (m *Member) Usable() error {
	if m == nil {
		return Invalid("member", "it is nil")
	}
	return m.Group.usable()
}

// checkRanks checks the ranks of a group.
func (w *World) checkRanks(ranks []int) error {
	if err := w.Usable(); err != nil {
		return err
	}
	if w.single {
		return Invalid("world", "no rank of it reaches another's memory, so it has no groups")
	}
	if len(ranks) < 2 || len(ranks) > kernels.MaxRanks {
		return Invalid("ranks", "a group of %d: 2 to %d are possible", len(ranks), kernels.MaxRanks)
	}
	seen := map[int]bool{}
	for _, r := range ranks {
		if r < 0 || r >= w.n {
			return Invalid("ranks", "rank must be in [0, %d), got %d", w.n, r)
		}
		if seen[r] {
			return Invalid("ranks", "rank %d is in the group twice", r)
		}
		seen[r] = true
	}
	return nil
}
