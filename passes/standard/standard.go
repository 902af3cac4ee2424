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
		regather(),
		fusecollectives.Pass(),
		narrowMatmuls(),
		widenReductions(),
		denseCollectives(),
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

// standardOrder lists the order constraints with their reasons.
func standardOrder() []passes.Constraint {
	const lives = "which buffers are dead at a node depends on the final order"
	const fixed = "offsets are valid for one order and one assignment of buffers only"
	const torn = "the nodes of a region are contiguous, and a later pass that moves nodes would split it"
	const stale = "the schedule must not account for nodes that canonicalize removes"
	const undone = "overlap decides the whole order; earlier moves are only its input"
	const rewritten = "the schedule must not account for collectives that simplify-collectives removes, merges or shrinks"
	const slackened = "it adds slack to the final order"
	const whole = "it decides from the whole step what backward recomputes, and emits its own order of forward and backward"
	const chunked = "schedules and buckets must see the chunks of matmuls and collectives, not the whole ones"
	const pieces = "decisions for the tensors of a global function are wrong for the shards of the ranks"
	const rounds = "decisions about a loop are wrong for its unrolled iterations"
	const around = "it decides what an iteration waits for, which invalidates an earlier schedule of the loop body"
	const joined = "it would merge the collectives that hierarchy split"
	return slices.Concat(
		constraints(names{"spmd", "canonicalize", "partition"}, names{"hierarchy"}, "collectives that are removed or partitioned later would be split in vain"),
		constraints(names{"simplify-collectives"}, names{"hierarchy"}, joined),
		constraints(names{"spmd", "unroll", "pipeline", "canonicalize", "partition", "simplify-collectives"}, names{"regather"}, "what they remove or save is not live"),
		constraints(names{"regather"}, names{"fuse-collectives", "hierarchy", "bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap", "fuse", "add-slack", "collectives-in-matmuls", "reuse-buffers", "plan-memory"}, "the schedule must see the repeated gathers, and each takes one tensor"),
		constraints(names{"spmd", "unroll", "pipeline", "canonicalize", "partition", "simplify-collectives", "fuse-collectives"}, names{"widen-reductions"}, "they would take conversions around a collective for computation"),
		constraints(names{"spmd", "unroll", "pipeline", "canonicalize", "partition", "simplify-collectives", "fuse-collectives"}, names{"dense-collectives"}, "they know what follows from a dimension that is gathered or scattered"),
		constraints(names{"dense-collectives"}, names{"hierarchy", "pipeline-collectives", "bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap", "fuse", "add-slack", "reuse-buffers", "plan-memory"}, "the schedule must see the copies"),
		constraints(names{"spmd", "unroll", "pipeline", "canonicalize", "partition", "simplify-collectives"}, names{"narrow-matmuls"}, "they bring conversions and matmuls together"),
		constraints(names{"narrow-matmuls"}, names{"hierarchy", "pipeline-collectives", "bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap", "fuse", "add-slack", "reuse-buffers", "plan-memory"}, "the schedule must see the time that matmuls take"),
		constraints(names{"widen-reductions"}, names{"hierarchy", "pipeline-collectives", "bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap", "fuse", "add-slack", "reuse-buffers", "plan-memory"}, "the schedule must see the conversions and the bytes of the other type"),
		constraints(names{"hierarchy"}, names{"bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap", "fuse", "add-slack", "reuse-buffers", "plan-memory"}, "the schedule must see the collectives that hierarchy makes"),
		constraints(names{"spmd", "unroll", "pipeline", "partition"}, names{"pipeline-collectives"}, "loops that are unrolled, partitioned or split into stages later would be pipelined in vain"),
		constraints(names{"canonicalize", "simplify-collectives", "fuse-collectives", "hierarchy"}, names{"pipeline-collectives"}, "values carried by a loop are not rewritten afterwards"),
		constraints(names{"pipeline-collectives"}, names{"bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap"}, around),
		constraints(names{"pipeline-collectives"}, names{"fuse", "add-slack", "collectives-in-matmuls", "reuse-buffers", "plan-memory"}, "the iterations peeled off before and after a loop have no regions and no offsets"),
		constraints(names{"spmd"}, names{"partition", "simplify-collectives", "fuse-collectives", "bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap", "fuse", "add-slack", "reuse-buffers", "plan-memory"}, pieces),
		constraints(names{"unroll"}, names{"canonicalize"}, "it removes what the unrolled iterations forward to each other and compute in vain"),
		constraints(names{"unroll"}, names{"partition", "simplify-collectives", "fuse-collectives", "hierarchy", "bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap", "fuse", "add-slack", "reuse-buffers", "plan-memory"}, rounds),
		constraints(names{"spmd"}, names{"pipeline"}, "each stage has ranks of its own, which the mesh of the step does not describe"),
		constraints(names{"pipeline"}, names{"canonicalize", "partition", "simplify-collectives", "fuse-collectives", "hierarchy", "bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap", "fuse", "add-slack", "reuse-buffers", "plan-memory"}, "decisions for a whole step are wrong for its stages"),
		constraints(names{"canonicalize"}, names{"partition"}, "dead operations and duplicate waits would be saved for backward"),
		constraints(names{"partition"}, names{"simplify-collectives"}, "in a joint function a gather that backward repeats on purpose looks like a duplicate"),
		constraints(names{"partition"}, names{"bucket"}, "a bucket must not hold collectives of both forward and backward"),
		constraints(names{"partition"}, names{"raise-starts", "sink-waits", "reorder-comms", "overlap"}, whole),
		constraints(names{"canonicalize"}, names{"simplify-collectives"}, "dead readers and duplicate waits hide legal rewrites"),
		constraints(names{"simplify-collectives"}, names{"bucket"}, "rewriting a member takes it out of its bucket"),
		constraints(names{"simplify-collectives"}, names{"raise-starts", "sink-waits", "reorder-comms", "overlap"}, rewritten),
		constraints(names{"partition", "simplify-collectives"}, names{"fuse-collectives"}, "rows are followed through the remaining collectives, within forward or backward"),
		constraints(names{"canonicalize"}, names{"fuse-collectives"}, "it would reassemble results that are never read"),
		constraints(names{"fuse-collectives"}, names{"hierarchy", "bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap", "fuse", "add-slack", "reuse-buffers", "plan-memory"}, chunked),
		constraints(names{"canonicalize"}, names{"bucket"}, "buckets name their members, of which none may be dead"),
		constraints(names{"canonicalize"}, names{"raise-starts"}, stale),
		constraints(names{"canonicalize"}, names{"sink-waits"}, "a dead or forwarded view counts as a use of a wait"),
		constraints(names{"canonicalize"}, names{"reorder-comms", "overlap"}, stale),
		constraints(names{"bucket"}, names{"overlap"}, "overlap forms buckets itself, and would have to keep existing ones"),
		constraints(names{"raise-starts", "sink-waits", "reorder-comms"}, names{"overlap"}, undone),
		constraints(names{"canonicalize"}, names{"fuse"}, "a region must not compute results that are never read"),
		constraints(names{"partition", "simplify-collectives", "bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap"}, names{"fuse"}, torn),
		constraints(names{"canonicalize"}, names{"add-slack"}, stale),
		constraints(names{"partition"}, names{"add-slack"}, slackened),
		constraints(names{"simplify-collectives"}, names{"add-slack"}, rewritten),
		constraints(names{"bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap"}, names{"add-slack"}, slackened),
		constraints(names{"fuse"}, names{"add-slack"}, "values inside regions take no memory, which leaves room for slack"),
		constraints(names{"canonicalize", "partition", "simplify-collectives", "fuse-collectives", "hierarchy", "bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap", "fuse", "add-slack"}, names{"collectives-in-matmuls"}, "what overlaps with a collective is known only in the final order"),
		constraints(names{"fuse", "add-slack"}, names{"reuse-buffers"}, lives),
		constraints(names{"add-slack", "fuse"}, names{"plan-memory"}, fixed),
		constraints(names{"canonicalize", "partition", "simplify-collectives", "bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap"}, names{"reuse-buffers"}, lives),
		constraints(names{"canonicalize", "partition", "simplify-collectives", "bucket", "raise-starts", "sink-waits", "reorder-comms", "overlap", "reuse-buffers"}, names{"plan-memory"}, fixed),
	)
}

type names []string

// constraints says that each pass of before runs before each of after.
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
		{Name: "default", Doc: "everything that makes a program faster without more memory, and its memory plan", Text: "unroll,canonicalize,simplify-collectives,regather,hierarchy{reassociate=true},pipeline-collectives,overlap{reuse=true},reuse-buffers{inputs=dying},plan-memory"},
		{Name: "cuda", Doc: "default, with operations fused into regions, one kernel each, reductions in types that GPUs have, and what is gathered in blocks", Text: "unroll,canonicalize,simplify-collectives{gather-sums=true},regather,narrow-matmuls,widen-reductions,dense-collectives,hierarchy{reassociate=true},pipeline-collectives,overlap,fuse{kernels=true},add-slack,reuse-buffers{inputs=dying,updates=false},plan-memory"},
		{Name: "order-only", Doc: "order and buckets only: no traced node is removed, renamed or rewired, so that another tool can compare", Text: "overlap"},
		{Name: "arena", Doc: "another name of order-only", Text: "order-only"},
	}
}
