package stablehlo

import (
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// mesh is a grid of ranks with named axes, in row-major order.
type mesh struct {
	names   []string
	sizes   []int
	devices []int // ranks in the order of the grid; nil: 0, 1, ...
}

// mesh finds a mesh of the module.
func (im *importer) mesh(name string) (*mesh, error) {
	for _, o := range im.m.Others {
		if o.Name != "sdy.mesh" || len(o.Flags) < 2 || o.Flags[0].Text != name {
			continue
		}
		p := im.m.Parser(o.Flags[1])
		out := &mesh{}
		p.Expect("[", "before the axes of a mesh")
		for p.Err == nil && !p.Eat("]") {
			if len(out.names) > 0 && !p.Expect(",", "between axes") {
				break
			}
			out.names = append(out.names, p.Str())
			p.Expect("=", "behind the name of an axis")
			at := p.Pos
			n := p.Integer("the size of an axis")
			if n < 1 || n > 1<<20 {
				p.Failf(at, "an axis of %d", n)
			}
			out.sizes = append(out.sizes, int(n))
		}
		if p.Eat(",") && p.Keyword("device_ids") && p.Expect("=", "behind device_ids") {
			ids, err := im.m.Ints(p.Attr(true))
			if err != nil {
				return nil, err
			}
			for _, i := range ids {
				out.devices = append(out.devices, int(i))
			}
		}
		if p.Err != nil {
			return nil, p.Err
		}
		return out, im.fits(out)
	}
	return nil, im.errorf("there is no mesh @%s", name)
}

// fits checks that a mesh is one of the world.
func (im *importer) fits(m *mesh) error {
	n := 1
	for _, s := range m.sizes {
		if n *= s; n > im.cur.world {
			break
		}
	}
	if n != im.cur.world {
		return im.errorf("a mesh of axes %v in a world of %d ranks", m.sizes, im.cur.world)
	}
	if m.devices == nil {
		for r := range n {
			m.devices = append(m.devices, r)
		}
	}
	sorted := slices.Sorted(slices.Values(m.devices))
	for r, d := range sorted {
		if d != r || len(sorted) != n {
			return im.errorf("device_ids %v are not the ranks of the world", m.devices)
		}
	}
	return nil
}

// size is how many ranks an axis has.
func (m *mesh) size(name string) (int, bool) {
	i := slices.Index(m.names, name)
	if i < 0 {
		return 0, false
	}
	return m.sizes[i], true
}

// groups are the ranks along some axes, in their order, for each place on the others.
func (m *mesh) groups(axes []string) [][]int {
	step := make([]int, len(m.sizes))
	n := 1
	for i := len(m.sizes) - 1; i >= 0; i-- {
		step[i] = n
		n *= m.sizes[i]
	}
	along := []int{0} // places of a group's ranks, from its first
	var fixed []int
	for _, a := range axes {
		i := slices.Index(m.names, a)
		var next []int
		for _, at := range along {
			for k := range m.sizes[i] {
				next = append(next, at+k*step[i])
			}
		}
		along = next
	}
	fixed = append(fixed, 0)
	for i, name := range m.names {
		if slices.Contains(axes, name) {
			continue
		}
		var next []int
		for _, at := range fixed {
			for k := range m.sizes[i] {
				next = append(next, at+k*step[i])
			}
		}
		fixed = next
	}
	var out [][]int
	for _, f := range fixed {
		var g []int
		for _, a := range along {
			g = append(g, m.devices[f+a])
		}
		out = append(out, g)
	}
	return out
}

// alongAxes are the groups of #stablehlo.replica_group_mesh_axes<mesh = @m, axes = [...]>.
func (im *importer) alongAxes(a mlir.Attr) ([][]int, error) {
	fields, err := im.m.Fields(a)
	if err != nil {
		return nil, err
	}
	name, ok := fields.Get("mesh")
	if !ok {
		name, ok = fields.Get("mesh_name")
	}
	axes, ok2 := fields.Get("axes")
	if !ok || !ok2 || name.Kind != mlir.KindSymbol && name.Kind != mlir.KindString {
		return nil, im.errorf("replica_groups of axes need a mesh that has a name, and axes")
	}
	m, err := im.mesh(name.Text)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, x := range axes.List {
		ref, err := im.m.Fields(x)
		if err != nil {
			return nil, err
		}
		n, ok := ref.Get("name")
		if _, part := ref.Get("sub_axis_info"); !ok || part {
			return nil, im.errorf("op not supported: %s of a part of an axis", im.op.Name)
		}
		if _, ok := m.size(n.Text); !ok || slices.Contains(names, n.Text) {
			return nil, im.errorf("axis %q: want axes of %v, each once", n.Text, m.names)
		}
		names = append(names, n.Text)
	}
	return m.groups(names), nil
}

// local is the type of the piece of a tensor that each rank has, by a sharding such as
// <@mesh, [{"x"}, {}]>, whose text is given.
func (im *importer) local(t mlir.Type, p *mlir.Parser) (mlir.Type, error) {
	if !p.Expect("@", "before the name of a mesh") {
		return t, p.Err
	}
	m, err := im.mesh(p.Suffix("a mesh"))
	if err != nil {
		return t, err
	}
	p.Expect(",", "behind the name of a mesh")
	p.Expect("[", "before the shardings of dimensions")
	out := mlir.Type{Tensor: true, Elem: t.Elem, Shape: slices.Clone(t.Shape)}
	d := 0
	for p.Err == nil && !p.Eat("]") {
		if d > 0 && !p.Expect(",", "between the shardings of dimensions") {
			break
		}
		if d >= len(out.Shape) {
			p.Failf(p.Pos, "a sharding of more dimensions than %s has", t)
			break
		}
		p.Expect("{", "before axes")
		for first := true; p.Err == nil && !p.Eat("}"); first = false {
			if !first && !p.Expect(",", "between axes") {
				break
			}
			if p.Eat("?") { // open to more axes, of which there are none
				continue
			}
			at := p.Pos
			name := p.Str()
			n, ok := m.size(name)
			if p.Err == nil && (!ok || p.Peek() == ':') {
				p.Failf(at, "axis %q: want whole axes of %v", name, m.names)
			}
			if p.Err == nil && out.Shape[d]%int64(n) != 0 {
				p.Failf(at, "dimension %d of %s in %d pieces", d, t, n)
			}
			if p.Err == nil {
				out.Shape[d] /= int64(n)
			}
		}
		if p.Peek() == 'p' { // a priority
			p.Word()
		}
		d++
	}
	return out, p.Err
}

// manual reports whether a function is a manual computation over all axes, so that it is of each
// rank's pieces. One that does anything beside it, or leaves axes, is a global program.
func (im *importer) manual(f *mlir.Func) (bool, error) {
	for _, o := range f.Body.Ops {
		if o.Name == "sdy.manual_computation" {
			im.op = o
			defer func() { im.op = nil }()
			for _, other := range f.Body.Ops {
				if other != o && other.Name != "func.return" {
					im.op = other
					return false, im.errorf("op not supported: %s beside a manual computation: the program is global and wants a partitioner", other.Name)
				}
			}
			err := im.allAxes(o)
			return err == nil, err
		}
	}
	for _, a := range f.Args {
		if s, ok := a.Attrs.Get("sdy.sharding"); ok && im.cur.world > 1 && strings.Contains(im.m.Source.Text[s.Start:s.End], "{\"") {
			return false, mlir.ErrorAt(im.m.Source, a.At, 1, "stablehlo", "the program is global: its arguments are sharded, and its body wants a partitioner")
		}
	}
	return false, nil
}

// allAxes checks that a manual computation leaves no axis to a partitioner.
func (im *importer) allAxes(o *mlir.Operation) error {
	var names []string
	if a, ok := o.Attr("manual_axes"); ok {
		p := im.m.Parser(a)
		for p.Err == nil && p.Peek() == '"' {
			names = append(names, p.Str())
			p.Eat(",")
		}
	}
	for _, which := range []string{"in_shardings", "out_shardings"} {
		a, ok := o.Attr(which)
		if !ok {
			continue
		}
		p := im.m.Parser(a)
		if !p.Eat("<") || !p.Eat("@") {
			continue
		}
		m, err := im.mesh(p.Suffix("a mesh"))
		if err != nil {
			return err
		}
		for i, n := range m.names {
			if m.sizes[i] > 1 && !slices.Contains(names, n) {
				return im.errorf("op not supported: %s that leaves axis %q to a partitioner", o.Name, n)
			}
		}
	}
	return nil
}

// manualComputation runs the body on each rank's pieces.
func manualComputation(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	if len(o.Regions) != 1 {
		return nil, im.errorf("%s without a body", o.Name)
	}
	b := o.Regions[0]
	if len(b.Args) != len(in) {
		return nil, im.errorf("%d arguments for a body of %d", len(in), len(b.Args))
	}
	if im.global != nil {
		return im.inPieces(o, in)
	}
	for i, a := range b.Args {
		if !sameType(a.Type, in[i].typ) {
			return nil, im.errorf("op not supported: %s without a mesh around it: its body takes the piece of a rank, argument %d is %s, the value is %s", o.Name, i, a.Type, in[i].typ)
		}
	}
	return im.block(b, b.Args, in)
}
