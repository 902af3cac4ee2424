// Package standard is the table of concert's own passes, and those of one file.
package standard

import (
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/fuse"
	"github.com/seed-ee968945/concert/passes/overlap"
	"github.com/seed-ee968945/concert/passes/partition"
	"github.com/seed-ee968945/concert/passes/reorder"
	"github.com/seed-ee968945/concert/passes/reuse"
	"github.com/seed-ee968945/concert/passes/simplify"
	"github.com/seed-ee968945/concert/passes/spmd"
)

// Table returns the table of concert's own passes.
func Table() *passes.Table {
	t, err := passes.NewTable(standardPasses(), standardOrder(), standardPipelines())
	if err != nil {
		panic(err) // the table is constant and a test builds it
	}
	return t
}

// standardPasses lists the passes in the order in which a full pipeline runs them.
func standardPasses() []passes.Pass {
	return []passes.Pass{
		spmd.Pass(),
		canonicalize(),
		partition.Pass(),
		simplify.Pass(),
		overlap.Bucket(),
		reorder.RaiseStarts(),
		reorder.SinkWaits(),
		reorder.Comms(),
		overlap.Pass(),
		fuse.Pass(),
		fuse.AddSlack(),
		reuse.Pass(),
		planMemory(),
	}
}

// standardOrder lists which pass has to stand before which, and why.
func standardOrder() []passes.Constraint {
	const lives = "what is dead where depends on the final order"
	const fixed = "offsets hold for one order and one choice of buffers only"
	const torn = "the nodes of a region stand next to each other, and what moves nodes afterwards would tear it apart"
	const stale = "a schedule must not be decided around nodes that canonicalize removes"
	const undone = "overlap decides the whole order, what came before counts only as its input"
	const rewritten = "a schedule must not be decided around collectives that simplify-collectives removes, joins or shrinks"
	const slackened = "it gives slack to an order that is decided"
	const whole = "it decides by the whole step what backward repeats, and emits its own order of both halves"
	const pieces = "what is decided for the tensors of a global function is wrong for the pieces that ranks have"
	return []passes.Constraint{
		{Before: "spmd", After: "partition", Why: pieces},
		{Before: "spmd", After: "simplify-collectives", Why: pieces},
		{Before: "spmd", After: "bucket", Why: pieces},
		{Before: "spmd", After: "raise-starts", Why: pieces},
		{Before: "spmd", After: "sink-waits", Why: pieces},
		{Before: "spmd", After: "reorder-comms", Why: pieces},
		{Before: "spmd", After: "overlap", Why: pieces},
		{Before: "spmd", After: "fuse", Why: pieces},
		{Before: "spmd", After: "add-slack", Why: pieces},
		{Before: "spmd", After: "reuse-buffers", Why: pieces},
		{Before: "spmd", After: "plan-memory", Why: pieces},
		{Before: "canonicalize", After: "partition", Why: "dead operations and second waits would be kept for backward"},
		{Before: "partition", After: "simplify-collectives", Why: "in a joint function a gather that backward repeats on purpose looks like a duplicate"},
		{Before: "partition", After: "bucket", Why: "a bucket must not join collectives of both halves"},
		{Before: "partition", After: "raise-starts", Why: whole},
		{Before: "partition", After: "sink-waits", Why: whole},
		{Before: "partition", After: "reorder-comms", Why: whole},
		{Before: "partition", After: "overlap", Why: whole},
		{Before: "canonicalize", After: "simplify-collectives", Why: "dead readers and second waits hide that a rewrite is right"},
		{Before: "simplify-collectives", After: "bucket", Why: "rewriting a member takes it out of its bucket"},
		{Before: "simplify-collectives", After: "raise-starts", Why: rewritten},
		{Before: "simplify-collectives", After: "sink-waits", Why: rewritten},
		{Before: "simplify-collectives", After: "reorder-comms", Why: rewritten},
		{Before: "simplify-collectives", After: "overlap", Why: rewritten},
		{Before: "canonicalize", After: "bucket", Why: "buckets name the collectives that they stand for, dead ones must not be among them"},
		{Before: "canonicalize", After: "raise-starts", Why: stale},
		{Before: "canonicalize", After: "sink-waits", Why: "a dead or forwarded view counts as a use of a wait"},
		{Before: "canonicalize", After: "reorder-comms", Why: stale},
		{Before: "canonicalize", After: "overlap", Why: stale},
		{Before: "bucket", After: "overlap", Why: "overlap forms buckets itself, and would have to keep those that it finds"},
		{Before: "raise-starts", After: "overlap", Why: undone},
		{Before: "sink-waits", After: "overlap", Why: undone},
		{Before: "reorder-comms", After: "overlap", Why: undone},
		{Before: "canonicalize", After: "fuse", Why: "a region must not compute what nobody reads"},
		{Before: "partition", After: "fuse", Why: torn},
		{Before: "simplify-collectives", After: "fuse", Why: torn},
		{Before: "bucket", After: "fuse", Why: torn},
		{Before: "raise-starts", After: "fuse", Why: torn},
		{Before: "sink-waits", After: "fuse", Why: torn},
		{Before: "reorder-comms", After: "fuse", Why: torn},
		{Before: "overlap", After: "fuse", Why: torn},
		{Before: "canonicalize", After: "add-slack", Why: stale},
		{Before: "partition", After: "add-slack", Why: slackened},
		{Before: "simplify-collectives", After: "add-slack", Why: rewritten},
		{Before: "bucket", After: "add-slack", Why: slackened},
		{Before: "raise-starts", After: "add-slack", Why: slackened},
		{Before: "sink-waits", After: "add-slack", Why: slackened},
		{Before: "reorder-comms", After: "add-slack", Why: slackened},
		{Before: "overlap", After: "add-slack", Why: slackened},
		{Before: "fuse", After: "add-slack", Why: "the room for slack is the memory of what regions do not write"},
		{Before: "fuse", After: "reuse-buffers", Why: lives},
		{Before: "add-slack", After: "reuse-buffers", Why: lives},
		{Before: "add-slack", After: "plan-memory", Why: fixed},
		{Before: "fuse", After: "plan-memory", Why: fixed},
		{Before: "canonicalize", After: "reuse-buffers", Why: lives},
		{Before: "partition", After: "reuse-buffers", Why: lives},
		{Before: "simplify-collectives", After: "reuse-buffers", Why: lives},
		{Before: "bucket", After: "reuse-buffers", Why: lives},
		{Before: "raise-starts", After: "reuse-buffers", Why: lives},
		{Before: "sink-waits", After: "reuse-buffers", Why: lives},
		{Before: "reorder-comms", After: "reuse-buffers", Why: lives},
		{Before: "overlap", After: "reuse-buffers", Why: lives},
		{Before: "canonicalize", After: "plan-memory", Why: fixed},
		{Before: "partition", After: "plan-memory", Why: fixed},
		{Before: "simplify-collectives", After: "plan-memory", Why: fixed},
		{Before: "bucket", After: "plan-memory", Why: fixed},
		{Before: "raise-starts", After: "plan-memory", Why: fixed},
		{Before: "sink-waits", After: "plan-memory", Why: fixed},
		{Before: "reorder-comms", After: "plan-memory", Why: fixed},
		{Before: "overlap", After: "plan-memory", Why: fixed},
		{Before: "reuse-buffers", After: "plan-memory", Why: fixed},
	}
}

// standardPipelines lists the pipelines that have names.
func standardPipelines() []passes.NamedPipeline {
	return []passes.NamedPipeline{
		{Name: "default", Doc: "everything that makes a program faster at no more memory, and its memory plan", Text: "canonicalize,simplify-collectives,overlap{reuse=true},reuse-buffers{inputs=dying},plan-memory"},
		{Name: "cuda", Doc: "default, and regions of operations for one kernel each", Text: "canonicalize,simplify-collectives{look-up-sums=true},overlap,fuse{kernels=true},add-slack,reuse-buffers{inputs=dying,updates=false},plan-memory"},
		{Name: "order-only", Doc: "order and buckets only: no traced node is removed, renamed or rewired, so that an outside judge can compare", Text: "overlap"},
		{Name: "arena", Doc: "another name of order-only", Text: "order-only"},
	}
}
