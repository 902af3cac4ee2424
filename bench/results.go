package bench

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/fingerprint"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
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
	if bad > 0 && j.Expect != "interp" && j.prints == nil && j.stages == nil {
		if err := j.allowNoise(ctx, t, all); err != nil {
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
		if value, ok := got.loss(j, r.Rank); ok && !r.Backward && r.Output == 0 {
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

// loss is forward output 0 of a rank, if it is a scalar.
func (got results) loss(j *Job, rank int) (float64, bool) {
	if s := got.prints[rank]; s != nil {
		p, ok := s.Prints[fingerprint.Key{Func: j.pair.Name + ".fw"}]
		if !ok || p.Elems != 1 {
			return 0, false
		}
		return p.First()
	}
	if len(got.outs[rank][0]) == 0 {
		return 0, false // a stage
	}
	t := got.outs[rank][0][0]
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

// printsPath is the file of one rank's fingerprints.
func printsPath(prefix string, rank int) string {
	return fmt.Sprintf("%s.rank%d.safetensors", prefix, rank)
}

// readPrints reads the fingerprints that -expect names, if it names some: what
// they say of how inputs were made then holds for this run, unless flags say
// otherwise, which is an error.
func (j *Job) readPrints() error {
	f := &j.Config
	if f.Expect == "" || f.Expect == "interp" {
		return nil
	}
	if _, err := os.Stat(printsPath(f.Expect, 0)); err != nil {
		return j.checkRecordings()
	}
	if f.Inputs != "" {
		return usagef("-expect=%s holds results of inputs made by hash: leave out -inputs", f.Expect)
	}
	for r := range j.pair.World() {
		s, err := fingerprint.Read(printsPath(f.Expect, r))
		if err != nil {
			return err
		}
		j.prints = append(j.prints, s)
	}
	f.Random, f.Seed, f.Same = "hash", uint64(j.prints[0].Seed), j.prints[0].Same
	return nil
}

// checkRecordings finds what is wrong with the recordings that Expect names before
// anything runs: those of rank 0 stand for all.
func (j *Job) checkRecordings() error {
	info, err := os.Stat(j.Expect)
	switch {
	case err != nil || !info.IsDir():
		return usagef("-expect=%s: neither a directory of recordings nor a prefix of fingerprints (no file %s)", j.Expect, printsPath(j.Expect, 0))
	case j.StableHLO != nil:
		_, err = j.numbered(j.Expect, "out", interp.OutputSlots(j.pair.Forward))
	default:
		_, err = j.pair.ReadExpected(j.Expect, 0)
	}
	return err
}

// comparedPrints measures fingerprints.
func (j *Job) comparedPrints(got []*fingerprint.Set) ([]step.Result, error) {
	var all []step.Result
	for i, f := range []*ir.Func{j.pair.Forward, j.pair.Backward} {
		if f == nil {
			continue
		}
		name := j.pair.Name + "." + halfNames[i]
		slots := interp.OutputSlots(f)
		places, err := tracedPlaces(f)
		if err != nil {
			return nil, err
		}
		for r := range got {
			for k, s := range slots {
				if len(places[k]) == 0 || isRandomState(s.Value) {
					continue
				}
				key := fingerprint.Key{Func: name, Output: places[k][0]}
				want, found := j.prints[r].Prints[key]
				if !found {
					return nil, fmt.Errorf("%s has no output %d of %s; it has %v", printsPath(j.Expect, r), key.Output, name, j.prints[r].Funcs())
				}
				d, err := fingerprint.Compare(got[r].Prints[key], want)
				if err != nil {
					return nil, fmt.Errorf("rank %d output %d of %s, %%%s: %w", r, key.Output, name, s.Name, err)
				}
				limit := printLimit(s, i > 0, want.Elems, j.own(key))
				x, ok := want.Uniform()
				all = append(all, step.Result{Rank: r, Backward: i > 0, Output: k, Name: s.Name, Diff: d, Bound: step.Bound{Rel: limit}, Flat: step.Flat(want.Elems, x, ok)})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b step.Result) int { return cmp.Compare(a.Rank, b.Rank) })
	return all, nil
}

// Limits of the relative errors of fingerprints of two runs on GPUs.
const (
	// Inputs handed on must be the same numbers; sums of them are rounded in another
	// order.
	inputLimit = 1e-12
	// The loss is the mean of thousands of tokens' in float32: on steps of real shapes
	// 2.5e-5 was the most.
	lossLimit = 2e-4
	// One rounding to bfloat16 is an error of 2^-8 at most and of about 0.0015 in the
	// 2-norm. A hundred independent ones, as on the way of a gradient through four
	// layers, make 0.015; 0.0127 was the most on steps of real shapes, and PyTorch's own
	// runs are up to 0.029 from those that round their sums over ranks once.
	roundingLimit = step.GradientTolerance
)

// ownRuns is how often as far from the precise results as the recording runtime's other runs
// ours may be. Gradients that are sums of what cancels out, as that of a bias of keys is, are
// rounding errors in every run: PyTorch's own are apart by as much as they are large.
const ownRuns = 3

// printLimit is how far from what is expected an output of an ordinary program may be, relative
// in the 2-norm.
func printLimit(s interp.Slot, backward bool, elems int64, own float64) float64 {
	n, d := s.Value.Viewed().Def(), s.Type.DType()
	limit := roundingLimit
	switch {
	case d == dtype.Bool: // a comparison of rounded values: the share of elements that differ
		limit = math.Sqrt(roundingLimit)
	case d.IsInt(): // what was chosen, above all
		return 0
	case backward:
	case n.Op() == ir.OpInput:
		return inputLimit
	case elems == 1:
		limit = lossLimit
	}
	return max(limit, ownLimit(own))
}

// own is how far the recording runtime's other runs are off in an output, on the rank where it is
// most: that of a loss, one number, is by chance small on some rank.
func (j *Job) own(key fingerprint.Key) float64 {
	most := 0.0
	for _, p := range j.prints {
		most = max(most, p.Prints[key].Own)
	}
	return most
}

// ownLimit is the limit that follows from how far the recording runtime's other runs are off,
// which is 1e30 where one of them has NaN.
func ownLimit(own float64) float64 { return ownRuns * min(own, 1) }

// reportOwn says next to our errors how far the other runs of the runtime that recorded what is
// expected are from it, and how many limits follow from that.
func (j *Job) reportOwn(t *Console, all []step.Result) {
	var ours, theirs []float64
	wide := 0
	for _, r := range all {
		half, f := halfNames[0], j.pair.Forward
		if r.Backward {
			half, f = halfNames[1], j.pair.Backward
		}
		places, err := tracedPlaces(f)
		if err != nil {
			return
		}
		own := j.own(fingerprint.Key{Func: j.pair.Name + "." + half, Output: places[r.Output][0]})
		ours, theirs = append(ours, r.Diff.Rel), append(theirs, own)
		if own > 0 && r.Bound.Rel == ownLimit(own) {
			wide++
		}
	}
	if len(theirs) == 0 || slices.Max(theirs) == 0 {
		return
	}
	fmt.Fprintf(t.Out, "relative errors: ours at most %.3g, median %.3g; of PyTorch's other runs at most %.3g, median %.3g, which widens %s\n",
		slices.Max(ours), median(ours), slices.Max(theirs), median(theirs), count(wide, "limit"))
}

// isRandomState tells the state of the random numbers of attention, which every
// library keeps in its own way, from results. Where ours keeps none it is a constant that belongs
// to the traced call.
func isRandomState(v *ir.Value) bool {
	n := v.Viewed().Def()
	if !v.Type().DType().IsInt() {
		return false
	}
	if of := n.Func().Lookup(n.Meta().Str(fx.MetaHelper, "")); of != nil && n.Op() == ir.OpFull {
		return of.Op() == ir.OpAttention
	}
	return n.Op() == ir.OpAttention && n.Results()[0] != v.Viewed()
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
