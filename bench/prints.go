package bench

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/fingerprint"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
)

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
				x, ok := want.Uniform()
				res := step.Result{Rank: r, Backward: i > 0, Output: k, Name: s.Name, Diff: d,
					Bound: step.Bound{Rel: printLimit(s, i > 0, want.Elems, j.own(key))}, Flat: step.Flat(want.Elems, x, ok)}
				if exact, ok := j.prints[r].Exact[key]; ok && !res.OK() && asExact(got[r].Prints[key], want, exact) {
					res.Bound = step.Bound{Rel: d.Rel, Exact: true}
				}
				all = append(all, res)
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
	// The loss is the mean of lossMean or more tokens' in float32: on steps of real shapes
	// 2.5e-5 was the most. See meanLimit for that of fewer samples.
	lossLimit = 2e-4
	lossMean  = 4096
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

// exactRuns is how many times as far from what float64 gives as the expected result our result may be: the
// factor by which PyTorch judges compiled models (torch._dynamo.utils.same).
const exactRuns = 2

// asExact reports whether a result that is far from the expected one is about as close to what float64
// gives. That tells another rounding from an error where the limits do not: the loss of a model
// with batch norms, masks and indices of what is nearly equal, gradients that nearly cancel out.
func asExact(got, want, exact fingerprint.Print) bool {
	ours, err := fingerprint.Compare(got, exact)
	if err != nil {
		return false
	}
	theirs, err := fingerprint.Compare(want, exact)
	return err == nil && !math.IsInf(theirs.Rel, 1) && ours.Rel <= exactRuns*theirs.Rel
}

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
		limit = meanLimit(n)
	}
	return max(limit, ownLimit(own))
}

// meanLimit is the limit of one number that is the mean of others: their errors are independent, and
// that of a mean of sixteen images is sixteen times that of 4,096 tokens.
func meanLimit(n *ir.Node) float64 {
	for len(n.Args()) > 0 {
		of := n.Args()[0].Viewed()
		if elems, ok := of.Type().Shape().NumElems().Const(); ok && elems > 1 {
			return lossLimit * math.Sqrt(max(1, lossMean/float64(elems)))
		}
		n = of.Def()
	}
	return lossLimit
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
