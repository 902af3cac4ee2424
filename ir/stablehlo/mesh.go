package stablehlo

import (
	"slices"
	"strings"
)

// mesh is a grid of ranks with named axes, in row-major order.
type mesh struct {
	names   []string
	sizes   []int
	devices []int // ranks in the order of the grid; nil: 0, 1, ...
}

// mesh finds a mesh of the module.
func (im *importer) mesh(name string) (*mesh, error) {
	for _, o := range im.m.ops {
		if o.name != "sdy.mesh" || len(o.flags) < 2 || o.flags[0].Text != name {
			continue
		}
		p := im.m.inside(o.flags[1])
		out := &mesh{}
		p.expect("[", "before the axes of a mesh")
		for p.err == nil && !p.eat("]") {
			if len(out.names) > 0 && !p.expect(",", "between axes") {
				break
			}
			out.names = append(out.names, p.str())
			p.expect("=", "behind the name of an axis")
			at := p.i
			n := p.integer("the size of an axis")
			if n < 1 || n > 1<<20 {
				p.failf(at, "an axis of %d", n)
			}
			out.sizes = append(out.sizes, int(n))
		}
		if p.eat(",") && p.keyword("device_ids") && p.expect("=", "behind device_ids") {
			ids, err := im.m.ints(p.attr(true))
			if err != nil {
				return nil, err
			}
			for _, i := range ids {
				out.devices = append(out.devices, int(i))
			}
		}
		if p.err != nil {
			return nil, p.err
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
func (im *importer) alongAxes(a attr) ([][]int, error) {
	fields, err := im.m.fields(a)
	if err != nil {
		return nil, err
	}
	name, ok := fields.Get("mesh")
	if !ok {
		name, ok = fields.Get("mesh_name")
	}
	axes, ok2 := fields.Get("axes")
	if !ok || !ok2 || name.Kind != kindSymbol && name.Kind != kindString {
		return nil, im.errorf("replica_groups of axes need a mesh that has a name, and axes")
	}
	m, err := im.mesh(name.Text)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, x := range axes.List {
		ref, err := im.m.fields(x)
		if err != nil {
			return nil, err
		}
		n, ok := ref.Get("name")
		if _, part := ref.Get("sub_axis_info"); !ok || part {
			return nil, im.errorf("op not supported: %s of a part of an axis", im.op.name)
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
func (im *importer) local(t Type, p *parser) (Type, error) {
	if !p.expect("@", "before the name of a mesh") {
		return t, p.err
	}
	m, err := im.mesh(p.suffix("a mesh"))
	if err != nil {
		return t, err
	}
	p.expect(",", "behind the name of a mesh")
	p.expect("[", "before the shardings of dimensions")
	out := Type{Tensor: true, Elem: t.Elem, Shape: slices.Clone(t.Shape)}
	d := 0
	for p.err == nil && !p.eat("]") {
		if d > 0 && !p.expect(",", "between the shardings of dimensions") {
			break
		}
		if d >= len(out.Shape) {
			p.failf(p.i, "a sharding of more dimensions than %s has", t)
			break
		}
		p.expect("{", "before axes")
		for first := true; p.err == nil && !p.eat("}"); first = false {
			if !first && !p.expect(",", "between axes") {
				break
			}
			if p.eat("?") { // open to more axes, of which there are none
				continue
			}
			at := p.i
			name := p.str()
			n, ok := m.size(name)
			if p.err == nil && (!ok || p.peek() == ':') {
				p.failf(at, "axis %q: want whole axes of %v", name, m.names)
			}
			if p.err == nil && out.Shape[d]%int64(n) != 0 {
				p.failf(at, "dimension %d of %s in %d pieces", d, t, n)
			}
			if p.err == nil {
				out.Shape[d] /= int64(n)
			}
		}
		if p.peek() == 'p' { // a priority
			p.word()
		}
		d++
	}
	return out, p.err
}

// manual finds the manual computation that a function is, and the types of its arguments on
// each rank: a function that does anything beside it is a global program.
func (im *importer) manual(f *Func) (bool, error) {
	for _, o := range f.body.ops {
		if o.name == "sdy.manual_computation" {
			im.op = o
			defer func() { im.op = nil }()
			for _, other := range f.body.ops {
				if other != o && other.name != "func.return" {
					im.op = other
					return false, im.errorf("op not supported: %s beside a manual computation: the program is global and wants a partitioner", other.name)
				}
			}
			return true, im.allAxes(o)
		}
	}
	for _, a := range f.Args {
		if s, ok := a.attrs.Get("sdy.sharding"); ok && im.cur.world > 1 && strings.Contains(im.m.src.Text[s.start:s.end], "{\"") {
			return false, errorAt(im.m.src, a.at, 1, "stablehlo", "the program is global: its arguments are sharded, and its body wants a partitioner")
		}
	}
	return false, nil
}

// allAxes checks that a manual computation leaves no axis to a partitioner.
func (im *importer) allAxes(o *op) error {
	var names []string
	if a, ok := o.attr("manual_axes"); ok {
		p := im.m.inside(a)
		for p.err == nil && p.peek() == '"' {
			names = append(names, p.str())
			p.eat(",")
		}
	}
	for _, which := range []string{"in_shardings", "out_shardings"} {
		a, ok := o.attr(which)
		if !ok {
			continue
		}
		p := im.m.inside(a)
		if !p.eat("<") || !p.eat("@") {
			continue
		}
		m, err := im.mesh(p.suffix("a mesh"))
		if err != nil {
			return err
		}
		for i, n := range m.names {
			if m.sizes[i] > 1 && !slices.Contains(names, n) {
				return im.errorf("op not supported: %s that leaves axis %q to a partitioner", o.name, n)
			}
		}
	}
	return nil
}

// manualComputation runs the body on each rank's pieces.
func manualComputation(im *importer, o *op, in []*value) ([]*value, error) {
	if len(o.regions) != 1 {
		return nil, im.errorf("%s without a body", o.name)
	}
	b := o.regions[0]
	if len(b.args) != len(in) {
		return nil, im.errorf("%d arguments for a body of %d", len(in), len(b.args))
	}
	if im.global != nil {
		return im.inPieces(o, in)
	}
	for i, a := range b.args {
		if !sameType(a.Type, in[i].typ) {
			return nil, im.errorf("argument %d is %s on each rank, by its sharding %s", i, a.Type, in[i].typ)
		}
	}
	return im.block(b, b.args, in)
}
