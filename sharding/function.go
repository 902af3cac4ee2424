package sharding

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
)

// Key is the annotation of a node that says how its results lie on a mesh: a list with the
// text of one sharding for each, empty where nothing is said; of a return for each operand.
// Quotes may be single, and the mesh stands in the text:
//
//	%w: f32[8,8] !{sharding=["<mesh<['x'=2]>, [{'x'}, {}]>"]}
const Key = ir.ShardingKey

// Annotate is the annotation of shardings, of which some may be nil.
func Annotate(meta ir.Attrs, shardings ...*Sharding) ir.Attrs {
	out := make([]string, len(shardings))
	for i, s := range shardings {
		out[i] = Text(s)
	}
	return meta.With(Key, ir.A(Key, out)[0].Val)
}

// Text is what an annotation says of one value.
func Text(s *Sharding) string {
	if s == nil {
		return ""
	}
	c := *s
	c.Mesh = &Mesh{Axes: s.Mesh.Axes, Devices: s.Mesh.Devices}
	return strings.ReplaceAll(c.String(), `"`, "'")
}

// Annotated reports whether a function says of any value how it lies on a mesh.
func Annotated(f *ir.Func) bool {
	for _, n := range f.Order() {
		if n.Meta().Has(Key) {
			return true
		}
	}
	return false
}

// Function is a function of package ir as propagation sees it. Values are those of the
// function, by their ids.
type Function struct {
	Graph   Graph
	Results []int // values behind those of the function, one for each that it returns
	meshes  []*Mesh
	sets    map[int][]int64 // shapes of what lies alike, by number; look-up only
}

// Read makes a graph of a function's nodes and annotations. Nodes without a rule, or with
// sizes that are symbols, are steps through which nothing passes.
func Read(f *ir.Func) (*Function, error) {
	x := &Function{}
	x.Graph.Values = make([]Value, f.NumValueIDs())
	for _, n := range f.Order() {
		for _, v := range n.Results() {
			x.Graph.Values[v.ID()] = Value{Name: v.String(), Shape: shapeOf(v)}
		}
	}
	for _, n := range f.Order() {
		values := n.Results()
		if n.Op() == ir.OpReturn {
			values = n.Args()
		}
		given, err := x.annotations(n, values)
		if err != nil {
			return nil, err
		}
		if n.Op() == ir.OpReturn {
			x.results(n, given)
			continue
		}
		for i, s := range given {
			x.Graph.Values[values[i].ID()].Sharding = s
		}
		if err := x.group(n); err != nil {
			return nil, err
		}
		x.step(n)
	}
	return x, nil
}

// shapeOf is the shape of a tensor; none of what is no tensor of known sizes.
func shapeOf(v *ir.Value) []int64 {
	if v.Type().IsAsync() {
		return nil
	}
	s, _ := v.Type().Shape().Static()
	return s
}

// annotations are the shardings that a node states of values.
func (x *Function) annotations(n *ir.Node, values []*ir.Value) ([]*Sharding, error) {
	if !n.Meta().Has(Key) {
		return make([]*Sharding, len(values)), nil
	}
	texts := n.Meta().Strs(Key)
	if s := n.Meta().Str(Key, ""); s != "" {
		texts = []string{s}
	}
	if len(texts) != len(values) {
		return nil, fmt.Errorf("sharding: %%%s states %d shardings of %d values", n.Name(), len(texts), len(values))
	}
	out := make([]*Sharding, len(values))
	for i, text := range texts {
		if text == "" {
			continue
		}
		s, end, err := Parse(strings.ReplaceAll(text, "'", `"`), func(string) (*Mesh, bool) { return nil, false })
		if err == nil && end != len(text) {
			err = fmt.Errorf("what comes after %q", text[:end])
		}
		if err == nil {
			err = s.Check(len(shapeOf(values[i])))
		}
		if err != nil {
			return nil, fmt.Errorf("sharding: %%%s: %s: %w", n.Name(), text, err)
		}
		x.intern(s)
		s.DropSmall()
		out[i] = s
	}
	return out, nil
}

// group puts a node's result into the set of those that lie alike.
func (x *Function) group(n *ir.Node) error {
	if !n.Meta().Has(ir.ShardingGroupKey) {
		return nil
	}
	id := n.Meta().Int(ir.ShardingGroupKey, 0)
	if len(n.Results()) != 1 || id < 1 {
		return fmt.Errorf("sharding: %%%s: want one result and a number from 1 for its set", n.Name())
	}
	v := &x.Graph.Values[n.Result(0).ID()]
	v.Group = int(id)
	if x.sets == nil {
		x.sets = map[int][]int64{}
	}
	if first, ok := x.sets[v.Group]; ok && !slices.Equal(first, v.Shape) {
		return fmt.Errorf("sharding: %%%s of %v lies in a set of %v", n.Name(), v.Shape, first)
	}
	x.sets[v.Group] = v.Shape
	return nil
}

// intern makes shardings of equal meshes share one.
func (x *Function) intern(s *Sharding) {
	for _, m := range x.meshes {
		if m.String() == s.Mesh.String() {
			s.Mesh = m
			return
		}
	}
	x.meshes = append(x.meshes, s.Mesh)
}

// results adds the values that a function's results are.
func (x *Function) results(n *ir.Node, given []*Sharding) {
	both := Both
	for i, v := range n.Args() {
		at := len(x.Graph.Values)
		shape := shapeOf(v)
		x.Graph.Values = append(x.Graph.Values, Value{Name: fmt.Sprintf("result %d", i), Shape: shape, Sharding: given[i]})
		x.Results = append(x.Results, at)
		x.Graph.Returns = append(x.Graph.Returns, Step{Op: "return", Rule: Identity(shape, 1, 1), Operands: []int{int(v.ID())}, Results: []int{at}, Edge: true, Allowed: &both})
	}
}

// step adds the step of a node.
func (x *Function) step(n *ir.Node) {
	if n.Op() == ir.OpInput {
		return
	}
	r, err := Of(n)
	if err != nil || n.Op().IsCollective() || n.Op() == ir.OpWaitTensor || n.Group() != nil {
		return // what communicates relates the pieces of ranks
	}
	st := Step{Op: n.Op().Name(), Line: int(n.Pos().Line), Rule: r, Elementwise: n.Op().Info().Elementwise}
	for _, v := range n.Args() {
		st.Operands = append(st.Operands, int(v.ID()))
		st.MultiUse = st.MultiUse || len(v.Uses()) > 1 && v.Type().Rank() > 0
	}
	for _, v := range n.Results() {
		st.Results = append(st.Results, int(v.ID()))
	}
	switch {
	case n.Op() == ir.OpExpand:
		st.Class = Broadcast
	case n.Op().IsView(), st.Elementwise:
		st.Class = Through
	}
	x.Graph.Steps = append(x.Graph.Steps, st)
}
