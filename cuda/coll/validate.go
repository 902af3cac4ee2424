package coll

import (
	"fmt"

	"github.com/seed-ee968945/concert/kernels"
)

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
	room := max(m.Rank.Info.Memory, m.Rank.World.Bytes())
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
