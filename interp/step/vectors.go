package step

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/seed-ee968945/concert/internal/safetensors"
	"github.com/seed-ee968945/concert/interp"
)

// How far a run may be from the recorded one, whose bfloat16 arithmetic rounds in
// places and orders of its own: relative error of the loss, and of each gradient
// in the 2-norm.
const (
	LossTolerance     = 1e-2
	GradientTolerance = 2e-2
)

// ReadInputs reads one rank's recorded forward inputs from dir, in signature order. What is
// not among them, constants that only backward reads, is in NAME.data.safetensors.
func (p *Pair) ReadInputs(dir string, rank int) ([]interp.Tensor, error) {
	path := filepath.Join(dir, fmt.Sprintf("%s.fw.rank%d.in.safetensors", p.Name, rank))
	file, err := safetensors.ReadFile(path)
	if err != nil {
		return nil, err
	}
	data, err := safetensors.ReadFile(filepath.Join(dir, p.Name+".data.safetensors"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var in []interp.Tensor
	for _, s := range interp.InputSlots(p.Forward) {
		t, ok := file.Get(tracedName(s.Value.Def()))
		if !ok && data != nil {
			t, ok = data.Get(tracedName(s.Value.Def()))
		}
		if !ok {
			return nil, fmt.Errorf("%s: no tensor %s, which is an input of @%s", path, tracedName(s.Value.Def()), p.Forward.Name)
		}
		in = append(in, interp.Tensor{DType: t.DType, Shape: t.Shape, Data: t.Data})
	}
	return in, nil
}

// ReadAllInputs is ReadInputs for every rank.
func (p *Pair) ReadAllInputs(dir string) ([][]interp.Tensor, error) {
	in := make([][]interp.Tensor, p.World())
	for r := range in {
		var err error
		if in[r], err = p.ReadInputs(dir, r); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// Expected is one recorded result.
type Expected struct {
	Backward bool
	Output   int    // place among the function's output tensors
	Name     string // name of the output value
	Tensor   interp.Tensor
}

// ReadExpected reads one rank's recorded results from dir: those of the forward
// function, then those of the backward function, each in order of output.
func (p *Pair) ReadExpected(dir string, rank int) ([]Expected, error) {
	out, err := p.readExpected(dir, rank, false)
	if err != nil || p.Backward == nil {
		return out, err
	}
	bw, err := p.readExpected(dir, rank, true)
	return append(out, bw...), err
}

func (p *Pair) readExpected(dir string, rank int, backward bool) ([]Expected, error) {
	f, half := p.Forward, "fw"
	if backward {
		f, half = p.Backward, "bw"
	}
	path := filepath.Join(dir, fmt.Sprintf("%s.%s.rank%d.out.safetensors", p.Name, half, rank))
	file, err := safetensors.ReadFile(path)
	if err != nil {
		return nil, err
	}
	slots := interp.OutputSlots(f)
	traced, err := tracedOutputs(f)
	if err != nil {
		return nil, err
	}
	var out []Expected
	for _, t := range file.Tensors {
		k, err := strconv.Atoi(strings.TrimPrefix(t.Name, "out"))
		if err != nil || k < 0 || k >= len(traced) || traced[k] < 0 {
			return nil, fmt.Errorf("%s: tensor %s is not an output of @%s", path, t.Name, f.Name)
		}
		out = append(out, Expected{backward, traced[k], slots[traced[k]].Name, interp.Tensor{DType: t.DType, Shape: t.Shape, Data: t.Data}})
	}
	slices.SortFunc(out, func(a, b Expected) int { return cmp.Compare(a.Output, b.Output) })
	return out, nil
}

// Result is how far one output of one rank is from its recording.
type Result struct {
	Rank     int
	Backward bool
	Output   int
	Name     string
	Diff     interp.Diff
	Bound    Bound          // what is allowed
	recorded *interp.Tensor // what is expected, nil: what the interpreter gives
	// Flat says what is expected where that is the same throughout, so that to agree with
	// it shows little: see Flat. Else it is empty.
	Flat string
}

// Flat names a result of so many elements that are all x where ok says so, if it shows
// little: "zeros", "all NaN", "all 1", or "empty". A single number shows little if it is 0
// or NaN; all else is "".
func Flat(elems int64, x float64, ok bool) string {
	switch {
	case elems == 0:
		return "empty"
	case !ok:
		return ""
	case x == 0:
		return "zeros"
	case math.IsNaN(x) || elems > 1:
		return fmt.Sprintf("all %.4g", x)
	}
	return ""
}

// OK reports whether the output is within its bound; NaN is not, where a number is
// expected.
func (r Result) OK() bool {
	if r.Bound.Bits {
		return r.Diff.Exact
	}
	return r.Diff.Rel <= r.Bound.Rel
}

// Compare measures one rank's results against what was recorded. It fails if an
// output is missing or of another type.
func Compare(rank int, want []Expected, fw, bw []interp.Tensor) ([]Result, error) {
	var out []Result
	for _, e := range want {
		got, limit := fw, LossTolerance
		if e.Backward {
			got, limit = bw, GradientTolerance
		}
		if e.Output >= len(got) {
			return nil, fmt.Errorf("step: rank %d has %d outputs, output %d is expected", rank, len(got), e.Output)
		}
		d, err := interp.Compare(got[e.Output], e.Tensor)
		if err != nil {
			return nil, fmt.Errorf("step: rank %d output %d, %%%s: %w", rank, e.Output, e.Name, err)
		}
		x, ok := e.Tensor.Uniform()
		out = append(out, Result{rank, e.Backward, e.Output, e.Name, d, Bound{Rel: limit}, &e.Tensor, Flat(e.Tensor.NumElems(), x, ok)})
	}
	return out, nil
}

// Check runs the step on the inputs recorded in dir and measures every rank's
// results. It fails only where it cannot measure; see Result.OK.
func (p *Pair) Check(ctx context.Context, run Runner, dir string) ([]Result, error) {
	in, err := p.ReadAllInputs(dir)
	if err != nil {
		return nil, err
	}
	fw, bw, err := p.Run(ctx, run, in)
	if err != nil {
		return nil, err
	}
	var out []Result
	for r := range fw {
		want, err := p.ReadExpected(dir, r)
		if err != nil {
			return nil, err
		}
		var b []interp.Tensor
		if bw != nil {
			b = bw[r]
		}
		rs, err := Compare(r, want, fw[r], b)
		if err != nil {
			return nil, err
		}
		out = append(out, rs...)
	}
	return out, nil
}

// Worst returns the loss and the gradient with the largest share of their limits;
// nil where there is none.
func Worst(rs []Result) (loss, gradient *Result) {
	for i := range rs {
		r, at := &rs[i], &loss
		if r.Backward {
			at = &gradient
		}
		if *at == nil || !(r.Diff.Rel <= (*at).Diff.Rel) {
			*at = r
		}
	}
	return loss, gradient
}

// Table formats results as text, one line each, in the order given. The last column says
// what is too far off, and else what is the same throughout.
func Table(rs []Result) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "rank\thalf\toutput\tname\trel. error\tlimit\tmax. diff\t")
	for _, r := range rs {
		half, verdict := "fw", r.Flat
		if r.Backward {
			half = "bw"
		}
		switch {
		case r.OK():
		case r.Bound.Bits:
			verdict = fmt.Sprintf("OTHER BITS at element %d", r.Diff.At)
		default:
			verdict = "TOO FAR"
		}
		fmt.Fprintf(w, "%d\t%s\t%d\t%s\t%.3g\t%v\t%.3g\t%s\n", r.Rank, half, r.Output, r.Name, r.Diff.Rel, r.Bound, r.Diff.MaxAbs, verdict)
	}
	w.Flush() // writing to memory cannot fail
	return b.String()
}
