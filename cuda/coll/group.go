// Package coll implements collectives on groups of symmetric memory. Member.Prepare plans a call
// for one rank, as a kernel of package kernels or as copy-engine transfers; the plan can be launched any
// number of times, also from command buffers and captures.
package coll

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/kernels"
)

// Group is a set of world ranks that run collectives together: a group of symmetric
// memory with scratch for packets and, if it is asked for, staging for copy engines.
type Group struct {
	*symm.Group
	sc      kernels.Scratch
	members []*Member
	tuning  kernels.Tuning
	// Staging of collectives by copy engines: two halves of one slot per rank.
	stageSlot uint64
	rankOrder bool
}

// GroupOptions are the knobs of a group. The zero value is the default of each.
type GroupOptions struct {
	Name    string        // for errors
	Job     []int         // the members' ranks in the job, for errors; nil if they are the world's
	Timeout time.Duration // how long a wait may last; 0 is 10 minutes, negative for ever
	Region  uint64        // bytes of each of the four regions of flagless packets; 0 is 32 MiB
	Flagged uint64        // bytes of each half for flagged packets; 0 is 8 MiB
	Staging uint64        // bytes of staging for collectives by copy engines and pushes, see Prepared.Enqueue; 0 is none
	Pad     uint64        // bytes of each rank's pad, see Member.Pad, rounded up to 128; 0 is 16 KiB
	Range   symm.Range    // where all of it is, see symm.GroupOptions.Range
	// Calibration chooses the protocols by the size of the group; nil is the defaults.
	// Every rank of a group needs an equal one: compare Digest.
	Calibration *kernels.Calibration
	Tuning      *kernels.Tuning // instead, for this group
	// RankOrder demands that every sum is taken in the order of the ranks, whatever the
	// protocol, so that its bits do not depend on how it was made. All protocols do but
	// multicast, which then does not serve sums.
	RankOrder bool
	// ManyStreams says that a rank's calls will come in several streams by turns, or in
	// captures in addition to others. Each is followed by an event then, one more call of the
	// driver. Without it a group does so from its first change of streams on; that change
	// waits for all that the caller has enqueued in the stream of the call before.
	ManyStreams bool
}

// Digest identifies what plans depend on besides the program and the tensors. Ranks
// whose groups have different digests must not run together: they might choose different
// protocols for one collective.
func (o *GroupOptions) Digest() string {
	text := fmt.Sprintf("%d %d %d %d %s", o.Region, o.Flagged, o.Staging, o.Pad, o.Calibration.Digest())
	if o.Tuning != nil {
		text += fmt.Sprintf(" %+v", *o.Tuning)
	}
	if o.RankOrder {
		text += " in rank order"
	}
	return kernels.Hash([]byte(text))
}

// Member is one local rank's view of a group.
type Member struct {
	*symm.Member
	Group  *Group
	last   atomic.Uint32 // number of the collective without kernels that was enqueued last
	engine *engine
	// bounce is memory of the rank's own that parts of a call pass through, see split.go.
	bounce      driver.Ptr
	bounceBytes uint64
	planMu      sync.Mutex // plans may need more of the engine's events
}

// NewGroup makes a group of world ranks, in group-rank order. Every process of the world
// makes the same groups in the same order; it returns when all have, or with ctx's cause
// when ctx ends first. Where one process fails, all do, and the others get a
// *CanceledError.
func NewGroup(ctx context.Context, w *symm.World, ranks []int, o GroupOptions) (*Group, error) {
	if err := o.check(w, len(ranks)); err != nil {
		return nil, err
	}
	g := &Group{tuning: o.tuning(len(ranks)), rankOrder: o.RankOrder}
	_, err := symm.NewGroup(ctx, w, ranks, symm.GroupOptions{Name: o.Name, Job: o.Job, Timeout: o.Timeout, Pad: o.Pad, Range: o.Range, ManyStreams: o.ManyStreams,
		Extend: func(s *symm.Group) (func(*symm.Member) (symm.Extension, error), error) {
			g.Group = s
			return g.join, g.allocate(&o)
		}})
	if err != nil {
		return nil, err
	}
	return g, nil
}

func (o *GroupOptions) region() uint64 {
	if o.Region == 0 {
		return 32 << 20
	}
	return (o.Region + 4095) &^ 4095
}

func (o *GroupOptions) flagged() uint64 {
	if o.Flagged == 0 {
		return 8 << 20
	}
	return (o.Flagged + 4095) &^ 4095
}

// Memory is how much symmetric memory a group of these options takes at most.
func (o *GroupOptions) Memory() uint64 {
	const page = 64 << 10 // for each part, and the control page
	return 4*o.region() + 2*o.flagged() + o.Staging + o.Pad + 6*page
}

// SmallScratch is the options with scratch for messages up to a megabyte, and no staging.
func (o GroupOptions) SmallScratch() GroupOptions {
	o.Region, o.Flagged, o.Staging = min(o.region(), 1<<20), min(o.flagged(), 2<<20), 0
	return o
}

// tuning is what the options choose for a group of n.
func (o *GroupOptions) tuning(n int) kernels.Tuning {
	if o.Tuning != nil {
		return *o.Tuning
	}
	return o.Calibration.For(n)
}

// check checks what does not concern the ranks. Sizes are compared with the world's, so
// that no sum of them overflows.
func (o *GroupOptions) check(w *symm.World, n int) error {
	if err := w.Usable(); err != nil {
		return err
	}
	for _, f := range []struct {
		name  string
		bytes uint64
		times uint64
	}{{"Region", o.Region, 4}, {"Flagged", o.Flagged, 2}, {"Staging", o.Staging, 1}} {
		if f.bytes > w.Bytes()/f.times {
			return symm.Invalid("GroupOptions."+f.name, "%d bytes, %d times, are more than the symmetric memory of %d bytes", f.bytes, f.times, w.Bytes())
		}
	}
	what := "GroupOptions.Calibration"
	if o.Tuning != nil {
		what = "GroupOptions.Tuning"
	}
	t := o.tuning(n)
	if err := kernels.CheckTuning(&t); err != nil {
		return symm.Invalid(what, "%v", err)
	}
	return nil
}

// allocate takes the group's scratch and staging from symmetric memory.
func (g *Group) allocate(o *GroupOptions) (err error) {
	g.sc.Ctl, g.sc.Sharing = g.Control(), g.World().Sharing()
	g.sc.Region, g.sc.FlaggedHalf = o.region(), o.flagged()
	if g.sc.Poisoned, err = g.Alloc(4 * g.sc.Region); err != nil {
		return err
	}
	if g.sc.Flagged, err = g.Alloc(2 * g.sc.FlaggedHalf); err != nil || o.Staging == 0 {
		return err
	}
	n := uint64(g.Size())
	g.stageSlot = o.Staging / (2 * n) &^ 4095
	if g.stageSlot == 0 {
		return fmt.Errorf("staging of %d bytes is too small for %d ranks: 4096 bytes for each half and rank are needed", o.Staging, n)
	}
	g.sc.StagingSize = 2 * n * g.stageSlot
	g.sc.Staging, err = g.Alloc(g.sc.StagingSize)
	return err
}

// join makes what a local member has for collectives.
func (g *Group) join(s *symm.Member) (symm.Extension, error) {
	m := &Member{Member: s, Group: g, bounceBytes: g.sc.FlaggedHalf / 2}
	g.members = append(g.members, m)
	var err error
	if m.bounce, err = m.NewMemory(m.bounceBytes); err != nil {
		return nil, err
	}
	if g.stageSlot > 0 {
		err = m.openEngine()
	}
	return extension{m}, err
}

// Scratch is where the group's packets and staging are in symmetric memory.
func (g *Group) Scratch() kernels.Scratch { return g.sc }

// Members lists the local members.
func (g *Group) Members() []*Member {
	if g == nil {
		return nil
	}
	return g.members
}
