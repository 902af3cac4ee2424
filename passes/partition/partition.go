// Package partition has pass partition, which splits a joint function into forward and
// backward, and the trade-off of memory and recomputation behind it ([Curve]).
package partition

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/sim"
)

// The annotations by which a joint function and its halves speak to partition.
const (
	// MetaCheckpoint on a node of a joint function is the number of the checkpointed
	// region that it belongs to, from 1. A region is recomputed in backward as a
	// whole, its collectives included, at any budget.
	MetaCheckpoint = "checkpoint"

	// MetaForward on the return of a joint function says how many of its operands,
	// from the first, forward has to give. Without it forward gives those that do
	// not depend on a tangent.
	MetaForward = "forward"

	// MetaRecompute marks nodes of a backward half that forward runs as well.
	MetaRecompute = "recompute"

	// MetaPlaces on the return of a half lists which results of the joint function
	// its first operands are. It is left out where forward's come first and then
	// backward's.
	MetaPlaces = ir.MetaPlaces

	metaFrom = "from" // of a backward input: the forward value that feeds it, as in traced graphs
	metaHalf = "half" // on the return of a half: forward or backward
)

// Pass splits a joint function into a forward and a backward half.
//
// A joint function computes a step: inputs of role tangent are incoming
// gradients, and what depends on them is backward. The pass replaces @NAME by
// @NAME.fw and @NAME.bw. Forward takes the inputs without the tangents and
// returns its outputs, then what backward needs of the inputs, then the saved
// values. Backward takes the same in the same order, with their roles and the
// annotation from, then the tangents; it returns the gradients. This is the form
// of traced pairs of graphs. Functions without tangents, or that take saved
// values, are left alone.
//
// What is saved and what is recomputed in backward:
//
//   - A collective, a wait, a random operation and any other with effects runs
//     exactly as often as the joint function has it, at every budget. Neither is
//     an operation repeated whose operands are overwritten later. The exception is
//     a region that the user marked with the annotation checkpoint: where backward
//     needs its inner values, the whole region is repeated, collectives included.
//     Even there random operations and in-place writes are not, since they would
//     draw other numbers or write twice: their results are saved.
//   - Everything else may be repeated. budget=0 saves the fewest bytes, and of
//     those choices repeats the least; budget=1 repeats nothing that costs time,
//     and saves the fewest bytes at that. In between the limit of bytes lies
//     linearly between the two, and the least time within it is sought: exactly
//     on the convex hull of all choices, by a knapsack between its corners (see
//     cutter.plan). Bytes count by storage, symbols at their upper bounds; views
//     and parameters cost nothing; symbols count at their hints for time.
//   - Where backward gathers again what forward gathered, recomputation reads the
//     second gather. So sharded parameters need not be saved to repeat a matmul.
//
// Repeated operations stand directly before their first use and live to their
// last. So the fewest saved bytes are not the lowest peak: where nothing at all is
// saved, backward begins by repeating all of forward, and holds it. A few percent
// of budget, about a value per layer, give the lowest peak; the statistics and
// [Curve] show it. Nothing depends on
// the rank, so that all ranks save the same; the saved values stand in backward's
// signature, which makes them part of every digest of the module (SavedDigest is
// theirs alone).
func Pass() passes.Pass {
	return passes.Pass{
		Name: "partition",
		Doc:  "Splits a joint forward and backward function under an activation-memory budget, without ever repeating a collective.",
		Options: []passes.Option{
			{Name: "budget", Kind: passes.KindFloat, Default: "1", Doc: "0 saves the fewest bytes, 1 repeats nothing that costs time, in between the limit of bytes is linear"},
		},
		Stats: []passes.Stat{
			{Name: "split", Doc: "functions that were split"},
			{Name: "saved", Doc: "values that forward saves for backward"},
			{Name: "saved-bytes", Doc: "their size"},
			{Name: "limit-bytes", Doc: "size that the budget allows"},
			{Name: "least-bytes", Doc: "size at budget 0"},
			{Name: "most-bytes", Doc: "size at budget 1"},
			{Name: "recomputed", Doc: "operations that run in both the forward and the backward function"},
			{Name: "recompute-ms", Doc: "their time"},
			{Name: "forward-peak-bytes", Doc: "peak memory of forward in the order in which it is emitted, inputs included"},
			{Name: "backward-peak-bytes", Doc: "peak memory of backward"},
			{Name: "forward-collectives", Doc: "collectives in forward"},
			{Name: "backward-collectives", Doc: "collectives in backward"},
			{Name: "recomputed-collectives", Doc: "of them those that forward runs too, of checkpointed regions"},
			{Name: "cuts", Doc: "minimum cuts that were solved"},
		},
		Run: runPartition,
	}
}

func runPartition(ctx *passes.Context, f *ir.Func) error {
	budget := ctx.Float("budget")
	if budget > 1 {
		return fmt.Errorf("budget=%g: a budget lies between 0 and 1", budget)
	}
	j, err := readJoint(ctx, f)
	if err != nil || j == nil || !ctx.Enable(f.Return().Name()) {
		return err
	}
	for _, n := range f.Order() {
		if len(n.After()) > 0 {
			return &Error{Node: n.Name(), Reason: "it has order-only edges, which partition cannot keep over two functions: leave one of them out", Whole: true}
		}
	}
	if reads := f.SizeReads(); len(reads) > 0 {
		return &Error{Node: reads[0].Name(), Reason: "it reads sizes from a tensor, which two functions cannot share: give backward a function of its own", Whole: true}
	}
	m := f.Module()
	for _, half := range []string{".fw", ".bw"} {
		if m.Func(f.Name+half) != nil {
			return fmt.Errorf("the module has a function @%s%s already", f.Name, half)
		}
	}
	c := newCutter(j)
	p, err := c.plan(budget)
	if err != nil {
		return err
	}
	if d := j.keptDonation(p); d != nil {
		return &Error{Node: d.Input.Name(), Reason: fmt.Sprintf("it is donated to result %d of forward, and backward reads it: donate it to a result of backward, or return a copy", d.Result), Whole: true}
	}
	fw, bw := emitHalves(m, j, p)
	fwPeak, bwPeak, err := peaks(fw, bw)
	if err != nil {
		return err
	}
	m.RemoveFunc(f)
	ctx.Count("split", 1)
	for _, s := range p.saved {
		if s {
			ctx.Count("saved", 1)
		}
	}
	ctx.Count("saved-bytes", float64(p.bytes))
	ctx.Count("limit-bytes", float64(p.limit))
	ctx.Count("least-bytes", float64(p.least))
	ctx.Count("most-bytes", float64(p.most))
	ctx.Count("recomputed", float64(p.repeat))
	ctx.Count("recompute-ms", p.ms)
	ctx.Count("forward-peak-bytes", float64(fwPeak))
	ctx.Count("backward-peak-bytes", float64(bwPeak))
	ctx.Count("forward-collectives", float64(countCollectives(fw, false)))
	ctx.Count("backward-collectives", float64(countCollectives(bw, false)))
	ctx.Count("recomputed-collectives", float64(countCollectives(bw, true)))
	ctx.Count("cuts", float64(c.solves))
	ctx.Log.Info("partition", "func", f.Name, "budget", budget, "saved", passes.Bytes(p.bytes), "of", passes.Bytes(p.most), "recompute-ms", p.ms, "digest", SavedDigest(bw))
	return nil
}

// peaks is the peak memory of forward and backward in their order.
func peaks(fw, bw *ir.Func) (fwPeak, bwPeak int64, err error) {
	var out [2]int64
	for i, f := range []*ir.Func{fw, bw} {
		m, err := sim.FromFunc(f, sim.FuncOptions{Ms: func(*ir.Node) float64 { return 0 }}) // of memory only
		if err != nil {
			return 0, 0, err
		}
		t, err := sim.Evaluate(m, m.InputOrder(), nil)
		if err != nil {
			return 0, 0, err
		}
		out[i] = t.Peak
	}
	return out[0], out[1], nil
}

func countCollectives(f *ir.Func, repeated bool) int {
	n := 0
	for _, x := range f.Order() {
		if x.Op().IsCollective() && (!repeated || x.Meta().Bool(MetaRecompute, false)) {
			n++
		}
	}
	return n
}

// SavedDigest is the SHA-256, in hexadecimal, of what a backward half takes from
// its forward half: name, type and source of every input of role saved, in order.
// Ranks agree on the digest exactly if they agree on what is saved. The digest of
// the module covers the same list, since it stands in the signature.
func SavedDigest(bw *ir.Func) string {
	var b []byte
	for _, n := range bw.Inputs() {
		if n.Role() == ir.RoleSaved {
			b = append(append(b, n.Name()...), ' ')
			b = append(append(b, n.Result(0).Type().String()...), ' ')
			b = append(append(b, n.Meta().Str(metaFrom, "")...), '\n')
		}
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
