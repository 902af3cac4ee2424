// Package standard has the table of concert's own passes, and the single-file passes.
package standard

import (
	"slices"

	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/fuse"
	"github.com/seed-ee968945/concert/passes/fusecollectives"
	"github.com/seed-ee968945/concert/passes/hierarchy"
	"github.com/seed-ee968945/concert/passes/overlap"
	"github.com/seed-ee968945/concert/passes/partition"
	"github.com/seed-ee968945/concert/passes/pipeline"
	"github.com/seed-ee968945/concert/passes/pipelinecollectives"
	"github.com/seed-ee968945/concert/passes/reorder"
	"github.com/seed-ee968945/concert/passes/reuse"
	"github.com/seed-ee968945/concert/passes/simplify"
	"github.com/seed-ee968945/concert/passes/spmd"
	"github.com/seed-ee968945/concert/passes/unroll"
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
		unroll.Pass(),
		pipeline.Pass(),
		canonicalize(),
		partition.Pass(),
		simplify.Pass(),
		fusecollectives.Pass(),
		hierarchy.Pass(),
		pipelinecollectives.Pass(),
		overlap.Bucket(),
		reorder.RaiseStarts(),
		reorder.SinkWaits(),
		reorder.Comms(),
		overlap.Pass(),
		fuse.Pass(),
		fuse.AddSlack(),
		collectivesInMatmuls(),
		reuse.Pass(),
		planMemory(),
	}
}

// standardOrder lists which pass has to come before which, and why.
func standardOrder() []passes.Constraint {
	const lives = "what is dead where depends on the final order"
	const fixed = "offsets hold for one order and one choice of buffers only"
	const torn = "the nodes of a region stand next to each other, and what moves nodes afterwards would tear it apart"
	const stale = "a schedule must not be decided around nodes that canonicalize removes"
	const undone = "overlap decides the whole order, what came before counts only as its input"
	const rewritten = "a schedule must not be decided around collectives that simplify-collectives removes, joins or shrinks"
	const slackened = "it gives slack to an order that is decided"
	const whole = "it decides by the whole step what backward repeats, and emits its own order of both halves"
	const chunked = "schedules and buckets must not be decided around matmuls and collectives that are cut into chunks"
	const pieces = "what is decided for the tensors of a global function is wrong for the pieces that ranks have"
	const rounds = "what is decided around a loop is wrong for its rounds"
	const around = "what a round waits for is decided there, and a schedule of the round before that counts for nothing"
	const joined = "it would join again what was taken apart by the machine"
	return slices.Concat(
		constraints(names{"spmd", "canonicalize", "partition"}, names{"hierarchy"}, "what is dead or divided later would be taken apart in vain"),
		constraints(names{"simplify-collectives"}, names{"hierarchy"}, joined),
		constraints(names{"hierarchy"}, names{"bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap", "fuse", "add-slack", "reuse-buffers", "plan-memory"}, "a schedule must not be decided around collectives that are several"),
		constraints(names{"spmd", "unroll", "pipeline", "partition"}, names{"pipeline-collectives"}, "loops that are cut, unrolled or divided later would be pipelined in vain"),
		constraints(names{"canonicalize", "simplify-collectives", "fuse-collectives", "hierarchy"}, names{"pipeline-collectives"}, "what is carried around a loop is not rewritten any more"),
		constraints(names{"pipeline-collectives"}, names{"bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap"}, around),
		constraints(names{"pipeline-collectives"}, names{"fuse", "add-slack", "collectives-in-matmuls", "reuse-buffers", "plan-memory"}, "rounds that are put in front of a loop and behind it come without regions and places"),
		constraints(names{"spmd"}, names{"partition", "simplify-collectives", "fuse-collectives", "bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap", "fuse", "add-slack", "reuse-buffers", "plan-memory"}, pieces),
		constraints(names{"unroll"}, names{"canonicalize"}, "what rounds hand to each other, and what they compute in vain, is found there"),
		constraints(names{"unroll"}, names{"partition", "simplify-collectives", "fuse-collectives", "hierarchy", "bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap", "fuse", "add-slack", "reuse-buffers", "plan-memory"}, rounds),
		constraints(names{"spmd"}, names{"pipeline"}, "stages have ranks of their own, which no mesh of the step has"),
		constraints(names{"pipeline"}, names{"canonicalize", "partition", "simplify-collectives", "fuse-collectives", "hierarchy", "bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap", "fuse", "add-slack", "reuse-buffers", "plan-memory"}, "what is decided for a whole step is wrong for its stages"),
		constraints(names{"canonicalize"}, names{"partition"}, "dead operations and second waits would be kept for backward"),
		constraints(names{"partition"}, names{"simplify-collectives"}, "in a joint function a gather that backward repeats on purpose looks like a duplicate"),
		constraints(names{"partition"}, names{"bucket"}, "a bucket must not join collectives of both halves"),
		constraints(names{"partition"}, names{"raise-starts", "sink-waits", "reorder-comms", "overlap"}, whole),
		constraints(names{"canonicalize"}, names{"simplify-collectives"}, "dead readers and second waits hide that a rewrite is right"),
		constraints(names{"simplify-collectives"}, names{"bucket"}, "rewriting a member takes it out of its bucket"),
		constraints(names{"simplify-collectives"}, names{"raise-starts", "sink-waits", "reorder-comms", "overlap"}, rewritten),
		constraints(names{"partition", "simplify-collectives"}, names{"fuse-collectives"}, "rows are followed through the collectives that stay, in one half of a step"),
		constraints(names{"canonicalize"}, names{"fuse-collectives"}, "what nobody reads would be put together again"),
		constraints(names{"fuse-collectives"}, names{"hierarchy", "bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap", "fuse", "add-slack", "reuse-buffers", "plan-memory"}, chunked),
		constraints(names{"canonicalize"}, names{"bucket"}, "buckets name the collectives that they stand for, dead ones must not be among them"),
		constraints(names{"canonicalize"}, names{"raise-starts"}, stale),
		constraints(names{"canonicalize"}, names{"sink-waits"}, "a dead or forwarded view counts as a use of a wait"),
		constraints(names{"canonicalize"}, names{"reorder-comms", "overlap"}, stale),
		constraints(names{"bucket"}, names{"overlap"}, "overlap forms buckets itself, and would have to keep those that it finds"),
		constraints(names{"raise-starts", "sink-waits", "reorder-comms"}, names{"overlap"}, undone),
		constraints(names{"canonicalize"}, names{"fuse"}, "a region must not compute what nobody reads"),
		constraints(names{"partition", "simplify-collectives", "bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap"}, names{"fuse"}, torn),
		constraints(names{"canonicalize"}, names{"add-slack"}, stale),
		constraints(names{"partition"}, names{"add-slack"}, slackened),
		constraints(names{"simplify-collectives"}, names{"add-slack"}, rewritten),
		constraints(names{"bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap"}, names{"add-slack"}, slackened),
		constraints(names{"fuse"}, names{"add-slack"}, "the room for slack is the memory of what regions do not write"),
		constraints(names{"canonicalize", "partition", "simplify-collectives", "fuse-collectives", "hierarchy", "bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap", "fuse", "add-slack"}, names{"collectives-in-matmuls"}, "what overlaps with a collective is known of the final order only"),
		constraints(names{"fuse", "add-slack"}, names{"reuse-buffers"}, lives),
		constraints(names{"add-slack", "fuse"}, names{"plan-memory"}, fixed),
		constraints(names{"canonicalize", "partition", "simplify-collectives", "bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap"}, names{"reuse-buffers"}, lives),
		constraints(names{"canonicalize", "partition", "simplify-collectives", "bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap", "reuse-buffers"}, names{"plan-memory"}, fixed),
	)
}

type names []string

// constraints is that each pass of before comes before each of after.
func constraints(before, after names, why string) (out []passes.Constraint) {
	for _, b := range before {
		for _, a := range after {
			out = append(out, passes.Constraint{Before: b, After: a, Why: why})
		}
	}
	return out
}

// standardPipelines lists the pipelines that have names.
func standardPipelines() []passes.NamedPipeline {
	return []passes.NamedPipeline{
		{Name: "default", Doc: "everything that makes a program faster at no more memory, and its memory plan", Text: "unroll,canonicalize,simplify-collectives,hierarchy{reassociate=true},pipeline-collectives,overlap{reuse=true},reuse-buffers{inputs=dying},plan-memory"},
		{Name: "cuda", Doc: "default, and regions of operations for one kernel each", Text: "unroll,canonicalize,simplify-collectives{look-up-sums=true},hierarchy{reassociate=true},pipeline-collectives,overlap,fuse{kernels=true},add-slack,reuse-buffers{inputs=dying,updates=false},plan-memory"},
		{Name: "order-only", Doc: "order and buckets only: no traced node is removed, renamed or rewired, so that an outside judge can compare", Text: "overlap"},
		{Name: "arena", Doc: "another name of order-only", Text: "order-only"},
	}
}
