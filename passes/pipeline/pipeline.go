// Package pipeline has pass pipeline: it splits a training step into pipeline stages that
// work on micro-batches.
//
// schedule.go has the schedules and their costs, cut.go assigns operations to stages,
// balance.go chooses the cuts of forward, and emit.go writes the functions of the stages.
package pipeline

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// MetaStage on a node of a step is the number of the chunk that computes it and what follows in
// forward, from 0. Where a step has some, they say how it is cut.
const MetaStage = "stage"

// Pass cuts a step.
//
// The step is that of one micro-batch: inputs of role data get as many times its rows, of which
// each micro-batch has its own, and a result is the average over the micro-batches, of floats
// of less than 32 bits summed in f32. So a step whose loss is a mean over its rows gives the
// loss and the gradients of the whole batch. It is cut where forward is: at annotations, or so
// that the longest stage is as short as can be. Backward runs where forward's tensors and inputs are. What ranks sum of
// a result, they sum once, of all micro-batches. What reads neither data nor what follows from it is computed once.
//
// Forward is what the first results are computed from: as many as the annotation "forward" of
// the return says (pass partition has it, too), those that depend on no tangent where there are some, else the first, the loss.
//
// The world gets as many ranks as before for each stage: rank r of stage s is s*ranks + r, and
// the groups of the step are there once in each stage. Groups up.C and down.C connect chunk C
// with the next one.
func Pass() passes.Pass {
	return passes.Pass{
		Name: "pipeline",
		Doc:  "Cuts a training step into stages that work on micro-batches in turns.",
		Options: []passes.Option{
			{Name: "stages", Kind: passes.KindInt, Default: "0", Doc: "stages; 0: the step stays as it is"},
			{Name: "micro-batches", Kind: passes.KindInt, Default: "1", Doc: "micro-batches of a step"},
			{Name: "schedule", Kind: passes.KindString, Default: string(OneFOneB), Choices: Kinds(), Doc: "how stages take turns"},
			{Name: "chunks", Kind: passes.KindInt, Default: "0", Doc: "chunks on each stage; 0: two where the schedule is interleaved, else one"},
			{Name: "scatter-once", Kind: passes.KindBool, Default: "false", Doc: "reduce_scatter gradients once in a step, as all_reduces are, and keep them whole until then"},
			{Name: "most", Kind: passes.KindInt, Default: "0", Doc: "micro-batches whose activations a stage keeps at once; 0: as the schedule needs"},
		},
		Stats: []passes.Stat{
			{Name: "stages", Doc: "stages made"},
			{Name: "reduced-once", Doc: "results that ranks reduce once, and not in each micro-batch"},
			{Name: "transfers", Doc: "transfers between stages in a step, of all ranks of a stage at once"},
			{Name: "transfer-bytes", Doc: "what a rank sends by them, all stages together"},
			{Name: "kept", Doc: "micro-batches whose activations the first stage keeps at most"},
			{Name: "step-ms", Doc: "the micro-batches by the schedule and the costs"},
			{Name: "longest-ms", Doc: "what the stage that has most to do computes in a step"},
			{Name: "bubble-percent", Doc: "part of the step in which stages wait, by the schedule and the costs"},
		},
		Partitions: true,
		Run:        run,
	}
}

func run(ctx *passes.Context, f *ir.Func) error {
	stages, micro := ctx.Int("stages"), ctx.Int("micro-batches")
	if stages == 0 || len(f.Module().Stages()) > 0 || !ctx.Enable(f.Name) {
		return nil
	}
	kind, per := Kind(ctx.Str("schedule")), ctx.Int("chunks")
	if per == 0 {
		per = 1
		if kind == Interleaved {
			per = 2
		}
	}
	const limit = 1 << 16
	if stages < 2 || micro < 1 || per < 1 || max(stages, micro, per) > limit || stages*per > limit || micro*stages*per > 1<<22 || int64(f.Module().World) > ir.MaxWorld/stages {
		return fmt.Errorf("%d micro-batches in %d chunks on each of %d stages of %d ranks: want two stages at least, a micro-batch and a chunk, and fewer in all", micro, per, stages, f.Module().World)
	}
	c := &cut{ctx: ctx, f: f, shape: Shape{Stages: int(stages), Chunks: int(stages * per), Micro: int(micro), MaxInFlight: int(ctx.Int("most"))}}
	if err := c.decide(); err != nil {
		return err
	}
	times := c.times()
	s, err := NewSchedule(kind, c.shape, times)
	if err != nil {
		return err
	}
	l, err := s.Simulate(times)
	if err != nil {
		return err
	}
	c.emit(s)
	ctx.Count("stages", float64(stages))
	ctx.Count("transfers", float64(c.transfers))
	ctx.Count("transfer-bytes", float64(c.moved))
	ctx.Count("kept", float64(l.InFlight[0]))
	ctx.Count("step-ms", l.Makespan)
	ctx.Count("longest-ms", slices.Max(l.Busy))
	ctx.Count("bubble-percent", 100*l.Bubble)
	return nil
}
