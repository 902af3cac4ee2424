package cuda

import (
	"context"
	"fmt"
	"math/bits"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/kernels"
)

// What callers pass is checked before anything is done with it. Launches of what has been
// prepared check that the group works (Member.Err), which Close makes an ErrClosed, and
// nothing else.

// mostWorld bounds the ranks of a lone world, which keeps a little for each.
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
		return bad("driver", "none was given")
	case n < 1 || n > most:
		return bad("ranks", "a world has 1 to %d on one host, got %d", most, n)
	}
	if hi, all := bits.Mul64(o.Bytes, uint64(n)); hi != 0 || all > mostAddress || o.Bytes > mostAddress {
		return bad("WorldOptions.Bytes", "%d bytes for each of %d ranks are more than GPUs address", o.Bytes, n)
	}
	if o.Images != nil && o.Images.Manifest == nil {
		return bad("WorldOptions.Images", "the set is empty: make it by kernels.NewSet")
	}
	return nil
}

// given is nil for a context.
func given(ctx context.Context) error {
	if ctx == nil {
		return bad("context", "it is nil: context.Background() never ends")
	}
	return nil
}

// usable is nil for a world that is open.
func (w *World) usable() error {
	switch {
	case w == nil:
		return bad("world", "it is nil")
	}
	return w.life.Err()
}

// usable is nil for a rank of a world that is open.
func (r *Rank) usable() error {
	if r == nil {
		return bad("rank", "it is nil")
	}
	return r.World.usable()
}

// usable is nil for a group that is open.
func (g *Group) usable() error {
	switch {
	case g == nil:
		return bad("group", "it is nil")
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

// begin starts a call of a member whose group is open; done ends it.
func (m *Member) begin() error {
	if m == nil {
		return m.usable()
	}
	return m.Group.life.Begin()
}

func (m *Member) done() { m.Group.life.Done() }

// usable is nil for a member of a group that is open.
func (m *Member) usable() error {
	if m == nil {
		return bad("member", "it is nil")
	}
	return m.Group.usable()
}

// checkGroup checks ranks and sizes of a group. Sizes are compared with the world's, so
// that no sum of them overflows.
func (w *World) checkGroup(ranks []int, o *GroupOptions) error {
	if err := w.usable(); err != nil {
		return err
	}
	if w.lone {
		return bad("world", "no rank of it reaches another's memory, so it has no groups")
	}
	if len(ranks) < 2 || len(ranks) > kernels.MaxRanks {
		return bad("ranks", "a group of %d: 2 to %d are possible", len(ranks), kernels.MaxRanks)
	}
	seen := map[int]bool{}
	for _, r := range ranks {
		if r < 0 || r >= w.n {
			return bad("ranks", "rank must be in [0, %d), got %d", w.n, r)
		}
		if seen[r] {
			return bad("ranks", "rank %d is in the group twice", r)
		}
		seen[r] = true
	}
	for _, f := range []struct {
		name  string
		bytes uint64
		times uint64
	}{{"Region", o.Region, 4}, {"Flagged", o.Flagged, 2}, {"Staging", o.Staging, 1}} {
		if f.bytes > w.size/f.times {
			return bad("GroupOptions."+f.name, "%d bytes, %d times, are more than the symmetric memory of %d bytes", f.bytes, f.times, w.size)
		}
	}
	t := o.Calibration.For(len(ranks))
	what := "GroupOptions.Calibration"
	if o.Tuning != nil {
		t, what = *o.Tuning, "GroupOptions.Tuning"
	}
	if err := t.Check(); err != nil {
		return bad(what, "%v", err)
	}
	return nil
}

// mostThreads is what the kernels are compiled for.
const mostThreads = 512

// checkOp checks what the planner takes for granted. Tensors are compared with the
// memory there is, so that no multiple of theirs overflows.
func (m *Member) checkOp(op *Op) error {
	kind := op.Kind // and not op, which stays on the caller's stack
	fail := func(format string, args ...any) error {
		return &kernels.PlanError{Op: kind, Reason: fmt.Sprintf(format, args...)}
	}
	if op.Threads != 0 && (op.Threads < 32 || op.Threads > mostThreads || op.Threads%32 != 0) {
		return fail("blocks of %d threads: 0, or a multiple of 32 up to %d", op.Threads, mostThreads)
	}
	if op.Blocks < 0 || op.Blocks > kernels.MaxBlocks {
		return fail("%d blocks: 0 to %d are possible", op.Blocks, kernels.MaxBlocks)
	}
	if op.Part < 0 || op.Part >= StagingParts {
		return fail("staging has parts 0 to %d, got %d", StagingParts-1, op.Part)
	}
	gives, gets := m.roles(op)
	room := max(m.Rank.Info.Memory, m.Group.world.size)
	for i, t := range op.Tensors {
		switch {
		case t.Bytes == 0:
		case t.Bytes > room:
			return fail("tensor %d has %d bytes: the device has %d", i, t.Bytes, room)
		case gives && (t.Src == 0 || uint64(t.Src)+t.Bytes < t.Bytes):
			return fail("tensor %d has no source: %d bytes at address %#x", i, t.Bytes, uint64(t.Src))
		case gets && (t.Dst == 0 || uint64(t.Dst)+t.Bytes < t.Bytes):
			return fail("tensor %d has no result: %d bytes at address %#x", i, t.Bytes, uint64(t.Dst))
		}
	}
	return nil
}

// roles says whether this rank's sources are read and its results written.
func (m *Member) roles(op *Op) (gives, gets bool) {
	switch op.Kind {
	case kernels.Broadcast:
		return m.Index == op.Root, true
	case kernels.Reduce:
		return true, m.Index == op.Root
	case kernels.Permute:
		for _, p := range op.Pairs {
			gives, gets = gives || p[0] == m.Index, gets || p[1] == m.Index
		}
		return gives, gets
	}
	return true, true
}
