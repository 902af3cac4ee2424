package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/fingerprint"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
)

// results are the outputs of all ranks: tensors, or fingerprints of them.
type results struct {
	outs   [][][]interp.Tensor // by rank, half and output
	prints []*fingerprint.Set
}

func resultsOf(found []*outcome) results {
	var out results
	for _, o := range found {
		out.outs = append(out.outs, o.outs)
		out.prints = append(out.prints, o.prints)
	}
	return out
}

// report compares the results and prints a table.
func (j *Job) report(ctx context.Context, t *Console, got results) error {
	if j.Record != "" {
		for r, s := range got.prints {
			if r < len(j.prints) {
				s.Routing = j.prints[r].Routing // the inputs were made so
			}
			if err := s.Write(printsPath(j.Record, r)); err != nil {
				return err
			}
		}
	}
	if j.Expect == "" {
		if got.outs[0] == nil {
			return nil
		}
		return j.summary(t, got.outs)
	}
	all, err := j.compared(ctx, t, got)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("%s holds no result to compare with", j.Expect)
	}
	for i := range all {
		if j.Tolerance > 0 {
			all[i].Bound = step.Bound{Rel: j.Tolerance}
		}
	}
	bad := tooFar(all)
	if bad > 0 && j.Tolerance == 0 && (j.Expect != "interp" || j.rounding() >= step.OtherRoundings) && j.prints == nil && j.stages == nil {
		if err := j.allowNoise(ctx, t, all, got.outs); err != nil {
			return err
		}
		bad = tooFar(all)
	}
	shown := all
	if !j.All {
		shown = worstRanks(all)
	}
	fmt.Fprint(t.Out, step.Table(shown))
	got.worst(t, j, all)
	if j.prints != nil {
		j.reportOwn(t, all)
	}
	if bad > 0 {
		fmt.Fprintf(t.Out, "%s: %d of %d outputs are too far from what is expected\n", t.Colour("31", "FAIL"), bad, len(all))
		return ErrFindings
	}
	fmt.Fprintf(t.Out, "%s: all %s agree\n", t.Colour("32", "ok"), count(len(all), "output"))
	reportNoise(t, all)
	reportFlat(t, all)
	return nil
}

// reportFlat counts the outputs that agree with what is expected but show little, because
// that is the same throughout: what computes nothing may agree with zeros.
func reportFlat(t *Console, all []step.Result) {
	const most = 6 // named
	flat := 0
	var names []string
	for _, r := range all {
		if r.Flat == "" {
			continue
		}
		flat++
		if name := fmt.Sprintf("%%%s (%s)", r.Name, r.Flat); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if flat == 0 {
		return
	}
	named := strings.Join(names[:min(most, len(names))], ", ")
	if len(names) > most {
		named += fmt.Sprintf(" and %d more", len(names)-most)
	}
	fmt.Fprintf(t.Out, "%s: %d of them show little, being the same throughout: %s\n", t.Colour("33", "note"), flat, named)
}

// worst says how far the loss, the forward results and the gradients are from what is
// expected where they are furthest.
func (got results) worst(t *Console, j *Job, all []step.Result) {
	for _, r := range worstRanks(all) {
		if value, ok := got.loss(j, r.Rank); ok && !r.Backward && r.Output == j.pair.Loss() {
			fmt.Fprintf(t.Out, "loss %.6f, relative error %.2g\n", value, r.Diff.Rel)
		}
	}
	forward, gradient := step.Worst(all)
	if forward != nil {
		fmt.Fprintf(t.Out, "worst forward error %.2g (rank %d, %s)\n", forward.Diff.Rel, forward.Rank, forward.Name)
	}
	if gradient != nil {
		fmt.Fprintf(t.Out, "worst gradient error %.2g (rank %d, %s)\n", gradient.Diff.Rel, gradient.Rank, gradient.Name)
	}
}

// loss is the loss of a rank, if it is a scalar.
func (got results) loss(j *Job, rank int) (float64, bool) {
	at := j.pair.Loss()
	if s := got.prints[rank]; s != nil {
		p, ok := s.Prints[fingerprint.Key{Func: j.pair.Name + ".fw", Output: at}]
		if !ok || p.Elems != 1 {
			return 0, false
		}
		return p.First()
	}
	if len(got.outs[rank][0]) <= at {
		return 0, false // a stage
	}
	t := got.outs[rank][0][at]
	if len(t.Shape) > 0 {
		return 0, false
	}
	return t.Float64s()[0], true
}

// compared measures the outputs of all ranks against what is expected.
func (j *Job) compared(ctx context.Context, t *Console, got results) ([]step.Result, error) {
	defer t.Phase("computing what is expected")()
	if j.prints != nil {
		return j.comparedPrints(got.prints)
	}
	if j.stages != nil {
		return j.stages.compared(ctx, j, got.outs)
	}
	want, err := j.expected(ctx)
	if err != nil {
		return nil, err
	}
	var all []step.Result
	for r := range got.outs {
		var b []interp.Tensor
		if len(got.outs[r]) > 1 {
			b = got.outs[r][1]
		}
		rs, err := step.Compare(r, want[r], got.outs[r][0], b)
		if err != nil {
			return nil, err
		}
		all = append(all, rs...)
	}
	if j.Expect != "interp" {
		if j.StableHLO != nil {
			floats, others := numberedBounds(j.traced.Forward)
			for i := range all {
				if all[i].Bound = others; got.outs[all[i].Rank][0][all[i].Output].DType.IsFloat() {
					all[i].Bound = floats
				}
			}
		}
		return all, nil
	}
	fw, bw, err := j.traced.Bounds(j.rounding())
	if err != nil {
		return nil, err
	}
	for i, r := range all {
		if all[i].Bound = fw[r.Output]; r.Backward {
			all[i].Bound = bw[r.Output]
		}
	}
	return all, nil
}

// rounding says how a run rounds beside the interpreter on the program before the
// passes.
func (j *Job) rounding() step.Rounding {
	if j.Device == "cuda" {
		return max(j.Rounding, step.OtherRoundings)
	}
	return j.Rounding
}

// worstRanks keeps of every output the rank with the largest error, of those beyond
// their bounds if there are some.
func worstRanks(all []step.Result) []step.Result {
	type output struct {
		backward bool
		number   int
	}
	at := map[output]int{}
	var out []step.Result
	for _, r := range all {
		k := output{r.Backward, r.Output}
		i, seen := at[k]
		switch {
		case !seen:
			at[k] = len(out)
			out = append(out, r)
		case out[i].OK() && !r.OK() || out[i].OK() == r.OK() && !(r.Diff.Rel <= out[i].Diff.Rel): // or NaN
			out[i] = r
		}
	}
	return out
}

// expected returns what to compare with, by rank.
func (j *Job) expected(ctx context.Context) ([][]step.Expected, error) {
	out := make([][]step.Expected, j.pair.World())
	if j.Expect != "interp" && j.StableHLO != nil {
		slots := interp.OutputSlots(j.pair.Forward)
		ts, err := j.numbered(j.Expect, "out", slots)
		for r := range ts {
			for k, t := range ts[r] {
				out[r] = append(out[r], step.Expected{Output: k, Name: slots[k].Name, Tensor: t})
			}
		}
		return out, err
	}
	if j.Expect != "interp" {
		for r := range out {
			var err error
			if out[r], err = j.pair.ReadExpected(j.Expect, r); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	in, err := j.allInputs()
	if err != nil {
		return nil, err
	}
	fw, bw, err := j.traced.Run(ctx, step.Interpret(interp.Options{Symbols: j.Symbols}), in)
	if err != nil {
		return nil, err
	}
	add := func(f *ir.Func, ts [][]interp.Tensor, backward bool) {
		for r := range ts {
			for k, s := range interp.OutputSlots(f) {
				out[r] = append(out[r], step.Expected{Backward: backward, Output: k, Name: s.Name, Tensor: ts[r][k]})
			}
		}
	}
	add(j.traced.Forward, fw, false)
	if bw != nil {
		add(j.traced.Backward, bw, true)
	}
	return out, nil
}

// tracedPlaces lists, for each output tensor of a function, its places among the
// outputs as they were traced.
func tracedPlaces(f *ir.Func) ([][]int, error) {
	traced, err := step.TracedOutputs(f)
	if err != nil {
		return nil, err
	}
	out := make([][]int, len(interp.OutputSlots(f)))
	for place, k := range traced {
		if k >= 0 {
			out[k] = append(out[k], place)
		}
	}
	return out, nil
}

// summary prints the outputs where there is nothing to compare them with.
func (j *Job) summary(t *Console, outs [][][]interp.Tensor) error {
	for i := range outs[0] {
		for r := range outs {
			slots := interp.OutputSlots([]*ir.Func{j.pairOf(r).Forward, j.pair.Backward}[i])
			for k, out := range outs[r][i] {
				if k >= 4 && !j.All {
					fmt.Fprintf(t.Out, "rank %d %s  ... %d more outputs; -all lists them\n", r, halfNames[i], len(outs[r][i])-k)
					break
				}
				note := ""
				if !out.Finite() {
					note = "  NOT FINITE"
				}
				fmt.Fprintf(t.Out, "rank %d %s  %%%s = %v%s\n", r, halfNames[i], slots[k].Name, out, note)
			}
		}
	}
	return nil
}
