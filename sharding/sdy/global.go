package sdy

import (
	"strings"

	"github.com/seed-ee968945/concert/ir/stablehlo"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
	"github.com/seed-ee968945/concert/sharding"
)

// global says how the values of a function lie on its meshes.
type global struct {
	p     *Program
	lines map[*Function]map[*mlir.Operation]*Line // look-up only
	entry *Function
	at    *Function // that is imported

	stated []bool // by value: the text says how it lies; nil: all that is known is said
	mesh   *sharding.Mesh
}

// Given finds the shardings that a text states; what it says nothing of is replicated where
// it enters and leaves a function.
func Given(m *mlir.Module, f *mlir.Func) (stablehlo.Global, error) {
	return find(m, f, false)
}

// Inferred finds the shardings that a text states, and of what enters and leaves a function
// those that follow, as Shardy's pipeline infers them. What lies between is left to who
// partitions it, who knows prices.
func Inferred(m *mlir.Module, f *mlir.Func) (stablehlo.Global, error) {
	return find(m, f, true)
}

func find(m *mlir.Module, f *mlir.Func, infer bool) (stablehlo.Global, error) {
	if err := older(m); err != nil {
		return nil, err
	}
	if !meshed(m) {
		return nil, nil
	}
	p, err := Load(m, Options{Pipeline: true})
	var stated []bool
	if err == nil && infer {
		for i := range p.Graph.Values {
			stated = append(stated, p.Graph.Values[i].Sharding != nil)
		}
		err = p.Graph.Propagate(sharding.UserPriority)
	}
	if err != nil {
		return nil, err
	}
	p.Close()
	g := &global{p: p, stated: stated, lines: map[*Function]map[*mlir.Operation]*Line{}}
	for _, fn := range p.Funcs {
		if fn.f == f && g.entry == nil {
			g.entry, g.at = fn, fn
		}
		g.lines[fn] = map[*mlir.Operation]*Line{}
		for i := range fn.Lines {
			g.lines[fn][fn.Lines[i].Op] = &fn.Lines[i]
		}
	}
	if g.entry == nil {
		return nil, nil
	}
	if g.mesh = g.meshOf(g.entry); g.mesh == nil {
		return nil, nil
	}
	return g, nil
}

// meshed reports whether a module has meshes, which every sharding needs.
func meshed(m *mlir.Module) bool {
	for _, o := range m.Others {
		if o.Name == "sdy.mesh" {
			return true
		}
	}
	return false
}

// meshOf is the mesh of the first value of a function that lies on one.
func (g *global) meshOf(fn *Function) *sharding.Mesh {
	values := append([]int{}, fn.Args...)
	for i := range fn.Lines {
		values = append(values, fn.Lines[i].Results...)
		values = append(values, fn.Lines[i].values...)
	}
	for _, v := range append(values, fn.Results...) {
		if s := g.p.Graph.Values[v].Sharding; s != nil && !s.Mesh.Maximal() {
			return s.Mesh
		}
	}
	return nil
}

func (g *global) World() int {
	n := 1
	for _, a := range g.mesh.Axes {
		n *= int(a.Size)
	}
	return n
}

func (g *global) text(v int) string { return sharding.Text(g.p.Graph.Values[v].Sharding) }

func (g *global) Replicated(rank int) string {
	s := sharding.Open(g.mesh, rank)
	s.Close()
	return sharding.Text(s)
}

// edge is what is said of a value at the edge of a function.
func (g *global) edge(v int) string {
	if t := g.text(v); t != "" {
		return t
	}
	return g.Replicated(len(g.p.Graph.Values[v].Shape))
}

func (g *global) Argument(_ *mlir.Func, i int) string { return g.edge(g.entry.Args[i]) }

func (g *global) Result(_ *mlir.Func, i int) string { return g.edge(g.entry.Results[i]) }

// Call goes into the copy of a function that a call has.
func (g *global) Call(o *mlir.Operation) func() {
	from := g.at
	if l := g.line(o); l != nil && l.callee != nil {
		g.at = l.callee
	}
	return func() { g.at = from }
}

// line is an operation of the function that is imported.
func (g *global) line(o *mlir.Operation) *Line { return g.lines[g.at][o] }

func (g *global) Value(o *mlir.Operation, i int) string {
	if l := g.line(o); l != nil && i < len(l.Results) && (g.stated == nil || g.stated[l.Results[i]]) {
		return g.text(l.Results[i])
	}
	return ""
}

// Axes are the ranks along the axes of an all_reduce or a reduce_scatter.
func (g *global) Axes(o *mlir.Operation) ([][]int, error) {
	l := g.line(o)
	if l == nil {
		return nil, g.p.m.ErrorAt(o, 0, "a reduction in a place where shardings are not known")
	}
	axes, mesh, err := g.along(l)
	if err != nil {
		return nil, err
	}
	switch g.partial(l, axes) {
	case parts:
		return nil, nil
	case unclear:
		return nil, g.p.m.ErrorAt(o, 0, "op not supported: %s of what is computed of parts of a sum otherwise than by operations that a sum goes through: put it behind what adds up, or say what is unreduced", o.Name)
	}
	return mesh.Groups(axes), nil
}

// along are the axes of an all_reduce or a reduce_scatter.
func (g *global) along(l *Line) ([]sharding.Ref, *sharding.Mesh, error) {
	a, ok := l.Op.Attr("axes")
	if !ok || len(l.Results) != 1 || g.p.Graph.Values[l.Results[0]].Sharding == nil {
		return nil, nil, g.p.m.ErrorAt(l.Op, 0, "want axes and the sharding of the result")
	}
	text, at := g.p.m.Inside(a)
	text = "{" + strings.Trim(strings.NewReplacer("{}", "", "{", "", "}", "", " ", "").Replace(text), ",") + "}"
	for strings.Contains(text, ",,") {
		text = strings.ReplaceAll(text, ",,", ",")
	}
	mesh := g.p.Graph.Values[l.Results[0]].Sharding.Mesh
	axes, err := sharding.ParseAxes(text, mesh)
	if err != nil {
		return nil, nil, g.p.textError(err, at-1)
	}
	return axes, mesh, nil
}

// Manual says how operands come into a manual computation and results out of it, or what a call
// goes to pieces of, and back.
func (g *global) Manual(o *mlir.Operation) (in, out []stablehlo.Along, err error) {
	if a, ok := o.Attr(piecesOf); ok {
		s, err := g.p.single(a)
		if err != nil {
			return nil, nil, err
		}
		one := stablehlo.Along{Inside: g.Replicated(len(s.Dims))}
		for _, d := range s.Dims {
			var groups [][]int
			if len(d.Axes) > 0 {
				groups = s.Mesh.Groups(d.Axes)
			}
			one.Groups = append(one.Groups, groups)
		}
		return []stablehlo.Along{one}, []stablehlo.Along{one}, nil
	}
	l := g.line(o)
	if l == nil {
		return nil, nil, g.p.m.ErrorAt(o, 0, "a manual computation in a place where shardings are not known")
	}
	inputs := len(l.values) - len(l.Results)
	for i, v := range l.values {
		m := l.manual[i]
		if len(m.Outer.Unreduced) > 0 {
			return nil, nil, g.p.m.ErrorAt(o, 0, "op not supported: %s with axes that are unreduced outside of it: add up before and behind it", o.Name)
		}
		var a stablehlo.Along
		for _, d := range m.Outer.Dims {
			var axes []sharding.Ref
			for _, x := range d.Axes {
				if m.Has(x) {
					axes = append(axes, x)
				}
			}
			var groups [][]int
			if len(axes) > 0 {
				groups = m.Outer.Mesh.Groups(axes)
			}
			a.Groups = append(a.Groups, groups)
		}
		if i < inputs {
			a.Inside = g.text(v)
			in = append(in, a)
		} else {
			out = append(out, a)
		}
	}
	return in, out, nil
}
