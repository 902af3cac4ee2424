package mesh

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/normal"
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

// DefaultBudget is 200 times what a step of 405 billion parameters on 512 ranks takes.
const DefaultBudget = 1 << 22

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
	g, err := o.Mesh.GridFor(ranks.Module().Groups(), slices.Concat(o.Inputs, o.Results)...)
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
	t := normal.NewTable(cmp.Or(o.Budget, DefaultBudget))
	lost := map[normal.Expr]string{}
	one, many := newSide(t, "device", nil, lost), newSide(t, "ranks", g, lost)
	if g.World > 1 && device.Module().World == g.World { // all ranks run it, with all of every input
		one = newSide(t, "device", g, lost)
	}
	var given, local []*normal.Tensor
	for i, n := range a {
		sizes, ok := n.Result(0).Type().Shape().Static()
		if !ok {
			return nil, fmt.Errorf("input %s has sizes that are no numbers", n.Name())
		}
		_, atoms, err := related(g, n.Result(0), b[i].Result(0), at(o.Inputs, i))
		if err != nil {
			return nil, fmt.Errorf("input %d (%s): %w", i, n.Name(), err)
		}
		p, name := (*normal.Tensor)(nil), fmt.Sprintf("input %d", i)
		if why := t.Try(func() { p = many.m.Place(many.m.Leaf(name, sizes...), atoms) }); why != "" {
			return nil, fmt.Errorf("input %d (%s): %s", i, n.Name(), why)
		}
		given, local = append(given, one.m.Leaf(name, sizes...)), append(local, p)
	}
	wants := one.read(device, given)
	known := t.Len()
	many.made = slices.Repeat([]*ir.Node{nil}, known)
	has := many.read(ranks, local)
	rep := &Report{Values: device.NumValueIDs() + ranks.NumValueIDs(), Bases: t.Len(), Unknown: slices.Concat(one.unknown, many.unknown)}
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
		why := "no shard of it has this shape"
		if spent := t.Spent(); spent != "" {
			why, places = spent, nil
		}
		for _, at := range places {
			at, atoms, err := related(g, x, y, at)
			if err != nil {
				return rep, fmt.Errorf("result %d: %w", i, err)
			}
			var differs string
			if why = cmp.Or(t.Try(func() { differs = many.m.Differs(w, has[i], atoms) }), differs); why == "" {
				rep.Results = append(rep.Results, at)
				break
			}
		}
		if why != "" {
			findings = append(findings, many.finding(i, why, known, w.Expr(), has[i].Expr()))
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

// related is the placement of a tensor, and the atoms along each of its dimensions: a given one or,
// without one, by the only axis that makes the shape what it is.
func related(g *placement.Grid, device, rank *ir.Value, to placement.Placement) (placement.Placement, [][]int, error) {
	x, y := device.Type(), rank.Type()
	whole, ok := x.Shape().Static()
	local, ok2 := y.Shape().Static()
	if x.IsAsync() || y.IsAsync() || !ok || !ok2 || len(whole) != len(local) || x.DType() != y.DType() {
		return nil, nil, fmt.Errorf("%s cannot be a shard of %s", y, x)
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
				return nil, nil, fmt.Errorf("%s may be more than one shard of %s: give its placement", y, x)
			}
			to[d] = fit
		}
	}
	atoms, err := atomsOf(g, to, len(whole))
	if err != nil {
		return nil, nil, err
	}
	for d, l := range atoms {
		pieces := int64(1)
		for _, a := range l {
			pieces *= g.Atoms[a].Size
		}
		if (whole[d]+pieces-1)/pieces != local[d] {
			return nil, nil, fmt.Errorf("%s is not the shard of %s in placement %s", y, x, to)
		}
	}
	return to, atoms, nil
}

// atomsOf are those along each dimension of a tensor in a placement.
func atomsOf(g *placement.Grid, at placement.Placement, dims int) ([][]int, error) {
	if at != nil && len(at) != dims {
		return nil, fmt.Errorf("placement %s of %d dimensions for a tensor of %d", at, len(at), dims)
	}
	out := make([][]int, dims)
	used := make([]bool, len(g.Atoms))
	for d, axes := range at {
		for _, name := range axes {
			atoms, err := g.Axis(name)
			if err != nil {
				return nil, err
			}
			for _, a := range atoms {
				if used[a] {
					return nil, fmt.Errorf("placement %s has axis %q twice", at, name)
				}
				used[a] = true
			}
			out[d] = append(out[d], atoms...)
		}
	}
	return out, nil
}

// maxSteps bounds the steps that a finding names.
const maxSteps = 3

// finding names the unknown nodes that a result depends on in either program or, without any, the
// nodes that made what of it is new, where all that they read is of the program of one device.
func (s *side) finding(result int, why string, known int, roots ...normal.Expr) Finding {
	seen := map[normal.Expr]bool{}
	var all []normal.Expr
	var walk func(e normal.Expr)
	walk = func(e normal.Expr) {
		if seen[e] {
			return
		}
		seen[e], all = true, append(all, e)
		for _, x := range e.Operands() {
			walk(x)
		}
	}
	for _, e := range roots {
		walk(e)
	}
	slices.SortFunc(all, func(a, b normal.Expr) int { return a.ID() - b.ID() })
	var unknown, first []string
	for _, e := range all {
		if n, ok := s.lost[e]; ok {
			unknown = append(unknown, n)
		}
		newer := func(e normal.Expr) bool { return e.ID() >= known }
		if newer(e) && e.ID() < len(s.made) && s.made[e.ID()] != nil && !slices.ContainsFunc(e.Operands(), newer) {
			first = append(first, s.made[e.ID()].String())
		}
	}
	if unknown != nil && s.t.Spent() == "" {
		why, first = "it depends on unknown steps, so it may be right or wrong", unknown
	}
	return Finding{result, why, first[:min(len(first), maxSteps)]}
}
