package ir

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/diag"
)

// Axis is a named axis of a mesh.
type Axis struct {
	Name string
	Size int64
}

// Mesh is the grid of a module's ranks, the first axis major. Values of a program for one
// device are told how they lie on it; pass spmd makes that of each rank's pieces
// (compile.Partition).
//
//	mesh := b.Mesh(ir.Axis{"data", 2}, ir.Axis{"model", 4})
//	x := f.Input("x", ir.Tensor(ir.BF16, 256, 4096)).Shard(mesh, "data", "")
type Mesh struct {
	b    *Builder
	axes []Axis
	text string
	kin  int64 // sets of values that lie alike
}

// Mesh declares a mesh of all ranks of the world. Axes have names, each once, and sizes
// whose product is the world's.
func (b *Builder) Mesh(axes ...Axis) *Mesh {
	m := &Mesh{b: b, axes: axes}
	n, parts := int64(1), make([]string, len(axes))
	for i, a := range axes {
		if a.Name == "" || strings.ContainsAny(a.Name, `'", :?()`) || slices.ContainsFunc(axes[:i], func(o Axis) bool { return o.Name == a.Name }) {
			m.fail("axis %q: want names, each once, without quotes, spaces and : ? ( ) ,", a.Name)
		}
		if a.Size < 1 || a.Size > MaxWorld/n {
			m.fail("axis %q of %d in a world of %d ranks", a.Name, a.Size, b.m.World)
			return m
		}
		n *= a.Size
		parts[i] = fmt.Sprintf("'%s'=%d", a.Name, a.Size)
	}
	if n != int64(b.m.World) {
		m.fail("axes of %d ranks in a world of %d", n, b.m.World)
	}
	m.text = "mesh<[" + strings.Join(parts, ", ") + "]>"
	return m
}

func (m *Mesh) fail(format string, args ...any) {
	m.b.errs.Add(&diag.Finding{Rule: "builder", Msg: "mesh: " + fmt.Sprintf(format, args...)})
}

// Shard says how a value lies on a mesh, and returns it: for each dimension the axes along
// which it is cut, the major one first and with spaces between, or none. A part of an axis is
// written as in the sdy dialect: x:(2)4 are four places of an axis that is split in two. What
// ends in ? may be cut further by what is said of other values.
func (v *Value) Shard(m *Mesh, dims ...string) *Value {
	if v == nil || v.def == nil { // an earlier operation failed
		return v
	}
	if len(dims) != v.typ.Rank() || v.typ.IsAsync() {
		m.fail("%s: %d dimensions said of %s", v, len(dims), v.typ)
		return v
	}
	out := make([]string, len(dims))
	for d, text := range dims {
		text, open := strings.CutSuffix(text, "?")
		var l []string
		for _, a := range strings.Fields(text) {
			name, part, ok := strings.Cut(a, ":")
			if !slices.ContainsFunc(m.axes, func(o Axis) bool { return o.Name == name }) {
				m.fail("%s: dimension %d: there is no axis %q", v, d, name)
			}
			if ok {
				part = ":" + part
			}
			l = append(l, "'"+name+"'"+part)
		}
		if open {
			l = append(l, "?")
		}
		out[d] = "{" + strings.Join(l, ", ") + "}"
	}
	n := v.def
	texts := n.meta.Strs(ShardingKey)
	if len(texts) == 0 {
		texts = make([]string, len(n.results))
	}
	texts = slices.Clone(texts)
	texts[v.index] = "<" + m.text + ", [" + strings.Join(out, ", ") + "]>"
	n.fn.SetMeta(n, n.meta.With(ShardingKey, attr.Strings(texts...)))
	return v
}

// ShardingGroup says that values of one shape lie alike: what is said of one, such as a layer's weight,
// or inferred, holds for all. Each is its operation's only result, and in one such set.
func (m *Mesh) ShardingGroup(vs ...*Value) {
	m.kin++
	for _, v := range vs {
		if v == nil || v.def == nil {
			continue
		}
		n := v.def
		if len(n.results) != 1 || !v.typ.Equal(vs[0].typ) || n.meta.Has(ShardingGroupKey) {
			m.fail("%s cannot lie like %s: want single results of one type, each said once", v, vs[0])
			return
		}
		n.fn.SetMeta(n, n.meta.With(ShardingGroupKey, attr.Int(m.kin)))
	}
}

// String lists the axes: data=2,model=4.
func (m *Mesh) String() string {
	l := make([]string, len(m.axes))
	for i, a := range m.axes {
		l[i] = a.Name + "=" + strconv.FormatInt(a.Size, 10)
	}
	return strings.Join(l, ",")
}
