package processgroups

import (
	"slices"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// Mesh is a grid of ranks with named axes, in row-major order.
type Mesh struct {
	Names   []string
	Sizes   []int
	devices []int // ranks in the order of the grid
}

// Mesh finds a mesh of the module, for an operation that names it.
func (r *Reader) Mesh(o *mlir.Operation, name string) (*Mesh, error) {
	for _, d := range r.m.Others {
		if d.Name != "sdy.mesh" || len(d.Flags) < 2 || d.Flags[0].Text != name {
			continue
		}
		p := r.m.Parser(d.Flags[1])
		out := &Mesh{}
		p.Expect("[", "before the axes of a mesh")
		for p.Err == nil && !p.Eat("]") {
			if len(out.Names) > 0 && !p.Expect(",", "between axes") {
				break
			}
			out.Names = append(out.Names, p.Str())
			p.Expect("=", "behind the name of an axis")
			at := p.Pos
			n := p.Integer("the size of an axis")
			if n < 1 || n > 1<<20 {
				p.Failf(at, "an axis of %d", n)
			}
			out.Sizes = append(out.Sizes, int(n))
		}
		if p.Eat(",") && p.Keyword("device_ids") && p.Expect("=", "behind device_ids") {
			ids, err := r.m.Ints(p.Attr(true))
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
		return out, r.fits(o, out)
	}
	return nil, r.errorf(o, "there is no mesh @%s", name)
}

// fits checks that a mesh is one of the world.
func (r *Reader) fits(o *mlir.Operation, m *Mesh) error {
	n, world := 1, r.World()
	for _, s := range m.Sizes {
		if n *= s; n > world {
			break
		}
	}
	if n != world {
		return r.errorf(o, "a mesh of axes %v in a world of %d ranks", m.Sizes, world)
	}
	if m.devices == nil {
		for k := range n {
			m.devices = append(m.devices, k)
		}
	}
	sorted := slices.Sorted(slices.Values(m.devices))
	for k, d := range sorted {
		if d != k || len(sorted) != n {
			return r.errorf(o, "device_ids %v are not the ranks of the world", m.devices)
		}
	}
	return nil
}

// Size is how many ranks an axis has.
func (m *Mesh) Size(name string) (int, bool) {
	i := slices.Index(m.Names, name)
	if i < 0 {
		return 0, false
	}
	return m.Sizes[i], true
}

// Groups are the ranks along some axes, in their order, for each place on the others.
func (m *Mesh) Groups(axes []string) [][]int {
	step := make([]int, len(m.Sizes))
	n := 1
	for i := len(m.Sizes) - 1; i >= 0; i-- {
		step[i] = n
		n *= m.Sizes[i]
	}
	along := []int{0} // places of a group's ranks, from its first
	var fixed []int
	for _, a := range axes {
		i := slices.Index(m.Names, a)
		var next []int
		for _, at := range along {
			for k := range m.Sizes[i] {
				next = append(next, at+k*step[i])
			}
		}
		along = next
	}
	fixed = append(fixed, 0)
	for i, name := range m.Names {
		if slices.Contains(axes, name) {
			continue
		}
		var next []int
		for _, at := range fixed {
			for k := range m.Sizes[i] {
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
func (r *Reader) alongAxes(o *mlir.Operation, a mlir.Attr) ([][]int, error) {
	fields, err := r.m.Fields(a)
	if err != nil {
		return nil, err
	}
	name, ok := fields.Get("mesh")
	if !ok {
		name, ok = fields.Get("mesh_name")
	}
	axes, ok2 := fields.Get("axes")
	if !ok || !ok2 || name.Kind != mlir.KindSymbol && name.Kind != mlir.KindString {
		return nil, r.errorf(o, "replica_groups of axes need a mesh that has a name, and axes")
	}
	m, err := r.Mesh(o, name.Text)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, x := range axes.List {
		ref, err := r.m.Fields(x)
		if err != nil {
			return nil, err
		}
		n, ok := ref.Get("name")
		if _, part := ref.Get("sub_axis_info"); !ok || part {
			return nil, r.errorf(o, "op not supported: %s of a part of an axis", o.Name)
		}
		if _, ok := m.Size(n.Text); !ok || slices.Contains(names, n.Text) {
			return nil, r.errorf(o, "axis %q: want axes of %v, each once", n.Text, m.Names)
		}
		names = append(names, n.Text)
	}
	return m.Groups(names), nil
}

// Local is the type of the piece of a tensor that each rank has, by a sharding such as
// <@mesh, [{"x"}, {}]>, whose text is given.
func (r *Reader) Local(t mlir.Type, p *mlir.Parser) (mlir.Type, error) {
	if !p.Expect("@", "before the name of a mesh") {
		return t, p.Err
	}
	m, err := r.Mesh(nil, p.Suffix("a mesh"))
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
			n, ok := m.Size(name)
			if p.Err == nil && (!ok || p.Peek() == ':') {
				p.Failf(at, "axis %q: want whole axes of %v", name, m.Names)
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
