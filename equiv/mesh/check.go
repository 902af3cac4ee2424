package mesh

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
	"github.com/seed-ee968945/concert/equiv/mesh/placement"
	"github.com/seed-ee968945/concert/ir"
)

// Options say how the two programs are related.
type Options struct {
	Mesh placement.Mesh

	// Inputs and Results say which pieces the ranks have, in the order of the signature. What is
	// missing or nil follows from the shapes: of an input where they leave no choice, of a result
	// any piece will do that has its shape.
	Inputs, Results []placement.Placement

	// Budget bounds the work of the proof; 0: DefaultBudget. It is counted in expressions and not
	// timed, so that a proof ends alike on every machine.
	Budget int
}

// Annotated are the options that the annotations of the two programs say (placement.Annotated).
func Annotated(device, ranks *ir.Func) (Options, error) {
	a, err := placement.Annotated(device, ranks)
	return Options{Mesh: a.Mesh, Inputs: a.Inputs, Results: a.Results}, err
}

// Report says what a proof took.
type Report struct {
	Values  int // of both programs
	Bases   int
	Unknown []Unknown             // of either program
	Results []placement.Placement // of results that are proved: as they lie
}

// Finding is a result that is not proved.
type Finding struct {
	Result int
	Why    string
	Steps  []string // nodes from which on it is something that the other program does not have
}

// String is the finding on one line or more.
func (f Finding) String() string {
	out := fmt.Sprintf("result %d: %s", f.Result, f.Why)
	for _, s := range f.Steps {
		out += "\n  " + s
	}
	return out
}

// Error lists the results that are not proved.
type Error struct{ Findings []Finding }

// Error implements error.
func (e *Error) Error() string {
	lines := make([]string, len(e.Findings))
	for i, f := range e.Findings {
		lines[i] = f.String()
	}
	return "not proved equal: " + strings.Join(lines, "\n")
}

// Check proves that ranks, a program on a mesh, computes what device does on one device; see
// the package's head. The error is an *Error where it could not, and says what does not fit where
// the two cannot be related. Both functions must be verified. A device that is a program of as
// many ranks as the mesh has is run by all of them, each with all of every input.
func Check(device, ranks *ir.Func, o Options) (*Report, error) {
	g, err := o.Mesh.Grid()
	if err != nil {
		return nil, err
	}
	if w := ranks.Module().World; w != g.World {
		return nil, fmt.Errorf("a program of %d ranks on a mesh of %d", w, g.World)
	}
	a, b := device.Inputs(), ranks.Inputs()
	if len(a) != len(b) {
		return nil, fmt.Errorf("%d inputs became %d", len(a), len(b))
	}
	t := newTable(o.Budget)
	lost := map[*expr]string{}
	one, many := &side{t: t, name: "device", f: device, lost: lost}, &side{t: t, name: "ranks", g: g, f: ranks, lost: lost}
	if g.World > 1 && device.Module().World == g.World { // all ranks run it, with all of every input
		one.g = g
	}
	var given, local []*piece
	for i, n := range a {
		sizes, ok := n.Result(0).Type().Shape().Static()
		if !ok {
			return nil, fmt.Errorf("input %s has sizes that are no numbers", n.Name())
		}
		p := t.whole(fmt.Sprintf("input %d", i), sizes)
		to, err := p.related(g, n.Result(0), b[i].Result(0), at(o.Inputs, i))
		var q *piece
		if err == nil {
			q, err = p.placed(t, g, to)
		}
		if err != nil {
			return nil, fmt.Errorf("input %d (%s): %w", i, n.Name(), err)
		}
		if one.g != nil {
			if p, err = p.placed(t, g, nil); err != nil {
				return nil, err
			}
		}
		given, local = append(given, p), append(local, q)
	}
	wants := one.read(device, given)
	known := len(t.exprs)
	many.made = slices.Repeat([]*ir.Node{nil}, known)
	has := many.read(ranks, local)
	rep := &Report{Values: device.NumValueIDs() + ranks.NumValueIDs(), Bases: len(t.exprs), Unknown: slices.Concat(one.unknown, many.unknown)}
	if len(wants) != len(has) {
		return rep, fmt.Errorf("%d results became %d", len(wants), len(has))
	}
	var findings []Finding
	for i, w := range wants {
		x, y := device.Return().Arg(i), ranks.Return().Arg(i)
		places := []placement.Placement{at(o.Results, i)}
		if places[0] == nil {
			places = g.Mesh.Choices(x.Type(), y.Type())
		}
		why := "no piece of it has this shape"
		if t.work > t.most {
			why, places = t.why(), nil
		}
		for _, at := range places {
			at, err := w.related(g, x, y, at)
			if err != nil {
				return rep, fmt.Errorf("result %d: %w", i, err)
			}
			if why = many.differs(w, has[i], at); why == "" {
				rep.Results = append(rep.Results, at)
				break
			}
		}
		if why != "" {
			findings = append(findings, many.finding(i, why, w.base, has[i].base, known))
		}
	}
	if findings != nil {
		return rep, &Error{findings}
	}
	return rep, nil
}

func at(l []placement.Placement, i int) placement.Placement {
	if i < len(l) {
		return l[i]
	}
	return nil
}

// related is where a rank's piece of a tensor lies: by a placement or, without one, by the only
// axis that makes the shape what it is.
func (p *piece) related(g *placement.Grid, device, rank *ir.Value, to placement.Placement) (placement.Placement, error) {
	x, y := device.Type(), rank.Type()
	whole, ok := x.Shape().Static()
	local, ok2 := y.Shape().Static()
	if x.IsAsync() || y.IsAsync() || !ok || !ok2 || len(whole) != len(local) || x.DType() != y.DType() {
		return nil, fmt.Errorf("%s cannot be a piece of %s", y, x)
	}
	if to == nil {
		to = make(placement.Placement, len(whole))
		for d := range whole {
			if whole[d] == local[d] {
				continue
			}
			var fit []string
			for _, a := range g.Mesh.Axes {
				if (whole[d]+a.Size-1)/a.Size == local[d] {
					fit = append(fit, a.Name)
				}
			}
			if len(fit) != 1 {
				return nil, fmt.Errorf("%s may be more than one piece of %s: say where it lies", y, x)
			}
			to[d] = fit
		}
	}
	atoms, err := p.atoms(g, to)
	if err != nil {
		return nil, err
	}
	for d, l := range atoms {
		pieces := int64(1)
		for _, a := range l {
			pieces *= g.Atoms[a].Size
		}
		if (whole[d]+pieces-1)/pieces != local[d] {
			return nil, fmt.Errorf("%s is not the piece of %s that %s says", y, x, to)
		}
	}
	return to, nil
}

// differs says how what ranks have is not what it should be; empty if it is. What lies behind
// the end of a tensor does not count.
func (s *side) differs(want, has *piece, at placement.Placement) (why string) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case spent:
			why = s.t.why()
		default:
			panic(r)
		}
	}()
	atoms, err := want.atoms(s.g, at)
	if err != nil {
		return err.Error()
	}
	for _, l := range atoms {
		for _, a := range l {
			if a < len(want.held) && want.held[a].Dim != digits.None {
				return "ranks that should have pieces of it differ in the program of one device already"
			}
		}
	}
	if !digits.Attempt(func() bool {
		has = s.gatheredAll(want, has, atoms)
		for d := range at {
			if len(at[d]) > 0 {
				want, has = s.t.rejoined(want, d), s.t.rejoined(has, d)
			}
		}
		return true
	}) {
		return "its pieces are cut at places that are no parts of each other"
	}
	switch {
	case want.base != has.base:
		return "the ranks compute something else"
	case !sameNumber(want.coef, has.coef):
		return fmt.Sprintf("it is %.6g times what it should be", has.coef/want.coef)
	}
	for d := range want.dims {
		if !slices.Equal(digits.Joined(want.dims[d]), digits.Joined(has.dims[d])) {
			return fmt.Sprintf("its elements lie elsewhere along dimension %d", d)
		}
	}
	for a, d := range has.held {
		if a < len(want.held) && d != want.held[a] || a >= len(want.held) && d.Dim != digits.None {
			return "the ranks have other pieces of it"
		}
	}
	return ""
}

// gatheredAll is a tensor by its pieces, one after the other as they should lie.
func (s *side) gatheredAll(want, p *piece, atoms [][]int) *piece {
	u := &use{s: s, t: s.t}
	for d, l := range atoms {
		p = s.gathered(p, l, d)
	}
	for d, l := range want.dims {
		if n := digits.Places(l); digits.Places(p.dims[d]) != n {
			p = u.sliced(p, d, 0, n, 1)
		}
	}
	return p
}

// maxSteps bounds the steps that a finding names.
const maxSteps = 3

// finding names the unknown nodes that a result depends on in either program or, without any, the
// nodes that made what of it is new, where all that they read is of the program of one device.
func (s *side) finding(result int, why string, want, has *expr, known int) Finding {
	seen := map[*expr]bool{}
	var all []*expr
	var walk func(e *expr)
	walk = func(e *expr) {
		if seen[e] {
			return
		}
		seen[e], all = true, append(all, e)
		for _, a := range e.args {
			walk(a.base)
		}
	}
	walk(want)
	walk(has)
	slices.SortFunc(all, func(a, b *expr) int { return a.id - b.id })
	var unknown, first []string
	for _, e := range all {
		if n, ok := s.lost[e]; ok {
			unknown = append(unknown, n)
		}
		newer := func(a arg) bool { return a.base.id >= known }
		if e.id >= known && e.id < len(s.made) && s.made[e.id] != nil && !slices.ContainsFunc(e.args, newer) {
			first = append(first, s.made[e.id].String())
		}
	}
	if unknown != nil && s.t.work <= s.t.most {
		why, first = "it depends on unknown steps, so it may be right or wrong", unknown
	}
	return Finding{result, why, first[:min(len(first), maxSteps)]}
}
