package fx

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
)

// synthesise writes a function that has no traced source as a graph document:
// targets and arguments come from the ops, so that importing the document gives
// the function again, views of single results aside.
func synthesise(f *ir.Func) (*File, error) {
	m := f.Module()
	file := &File{Name: f.Name, World: m.World, label: "@" + f.Name}
	for _, g := range m.Groups() {
		file.Groups = append(file.Groups, Group{Name: g.Name, Ranks: g.Ranks})
	}
	s := &synth{names: make(map[*ir.Node]string), taken: map[string]bool{KindOutput: true}, items: map[*ir.Value]string{}}
	s.name = s.valueName
	for _, n := range f.Order() {
		name := KindOutput
		if n.Op() != ir.OpReturn {
			name = s.fresh(tracedName(n))
			s.names[n] = name
		}
		out, err := s.node(n, name)
		if err != nil {
			return nil, err
		}
		file.Nodes = append(file.Nodes, *out)
		file.Nodes = append(file.Nodes, s.getitems(n, name, out)...)
	}
	return file, nil
}

// synth writes nodes from the IR. name gives the exported name of a value.
type synth struct {
	name  func(v *ir.Value) (string, error)
	names map[*ir.Node]string
	taken map[string]bool
	items map[*ir.Value]string // getitems added for results that others than aliases read
}

// fresh makes an unused Python name.
func (s *synth) fresh(name string) string {
	name = pytext.Ident(name)
	for s.taken[name] {
		name += "_x"
	}
	s.taken[name] = true
	return name
}

func (s *synth) valueName(v *ir.Value) (string, error) {
	v = v.Base() // a trace names tensors, not what they hold
	if name, ok := s.items[v]; ok {
		return name, nil
	}
	return s.names[v.Def()], nil
}

// getitems adds a getitem for each of several results that an op reads directly.
func (s *synth) getitems(n *ir.Node, name string, out *Node) []Node {
	if len(n.DeclaredResults()) < 2 {
		return nil
	}
	var extra []Node
	for k, r := range n.DeclaredResults() {
		if !slices.ContainsFunc(r.Uses(), func(u ir.Use) bool { return u.Node.Op() != ir.OpAlias }) {
			continue
		}
		item := s.fresh(name + "_" + strconv.Itoa(k))
		s.items[r] = item
		extra = append(extra, Node{Name: item, Kind: KindView, Target: "<built-in function getitem>", Inputs: []string{name},
			Args: pytext.FormatTuple(name, pytext.FormatInts(int64(itemIndex(n, k)))), Out: out.Out[k : k+1]})
	}
	return extra
}

// itemIndex is the place of result k in the traced operator's result tuple.
func itemIndex(n *ir.Node, k int) int {
	if n.Op() == ir.OpAttention {
		return [...]int{0, 1, 6, 7}[k]
	}
	return k
}

// node writes one node under the given name.
func (s *synth) node(n *ir.Node, name string) (*Node, error) {
	out := &Node{Name: name, Kind: n.Op().Class().String()}
	if n.Op() == ir.OpCall && n.Attrs().Str("class", "") == "compute" {
		out.Kind = KindCompute
	}
	if n.Op() == ir.OpCall && n.Effects()&ir.EffectAlias != 0 {
		out.Kind = KindView
	}
	if ms, known := n.Cost(); known {
		out.Ms = ms
	} else {
		switch out.Kind {
		case KindCompute, KindMemory, KindCollective: // the others cost nothing
			out.NoMs = true
		}
	}
	for _, r := range n.DeclaredResults() {
		ts, err := tensorsOut(n, r.Type())
		if err != nil {
			return nil, err
		}
		out.Out = append(out.Out, ts...)
	}
	var args []string
	for _, v := range n.DeclaredArgs() {
		x, err := s.name(v)
		if err != nil {
			return nil, err
		}
		args = append(args, x)
	}
	if n.Op() == ir.OpAlias && len(n.Arg(0).Def().DeclaredResults()) > 1 { // a getitem
		args[0] = s.names[n.Arg(0).Def()]
	}
	out.Inputs = unique(args)
	switch {
	case n.Op() == ir.OpInput:
		out.Target, out.Args = name, "()"
		out.Role, out.From = n.Meta().Str(MetaRole, ""), n.Meta().Str(MetaFrom, "")
	case n.Op() == ir.OpReturn:
		out.Target, out.Args, out.Updates = KindOutput, outputText(n, args), s.updates(n.Func())
	case n.Op().IsCollective():
		out.Group, out.Op, out.Reduce = n.Group().Name, n.Op().Name(), string(n.Reduction())
		out.Members = n.Meta().Strs(MetaMembers)
		out.Target, out.Args = collectiveText(n, args, n.Group().Name, len(args) > 1 || len(out.Members) > 0)
	default:
		if !opText(n, args, out) {
			return nil, &Error{File: "@" + n.Func().Name, Node: n.Name(), Rule: "export", Msg: n.Op().Name() + " cannot be written as a traced operator"}
		}
	}
	return out, nil
}

func tensorsOut(n *ir.Node, t ir.Type) ([]Tensor, error) {
	list := []ir.Type{t}
	if t.IsAsync() {
		if n.Op() == ir.OpInput {
			return nil, &Error{File: "@" + n.Func().Name, Node: n.Name(), Rule: "export", Msg: "a graph document has no inputs that are in flight"}
		}
		list = t.Elems()
	}
	var out []Tensor
	for _, e := range list {
		shape, ok := e.Shape().Static()
		if !ok || e.Strides() == nil {
			return nil, &Error{File: "@" + n.Func().Name, Node: n.Name(), Rule: "export", Msg: "a graph document has no symbolic sizes: " + e.String()}
		}
		out = append(out, Tensor{Shape: shape, Stride: e.Strides(), DType: pytext.DTypeName(e.DType())})
	}
	return out, nil
}

// outputText lists the results with None where the trace had it.
func outputText(n *ir.Node, args []string) string {
	places := n.Meta().Ints(MetaOutputs)
	if places == nil {
		return "(" + pytext.FormatTuple(args...) + ",)"
	}
	list := make([]string, len(places))
	for k, p := range places {
		list[k] = "None"
		if p >= 0 && int(p) < len(args) {
			list[k] = args[p]
		}
	}
	return "(" + pytext.FormatTuple(list...) + ",)"
}

// collectiveText writes target and arguments of a collective over the operands.
func collectiveText(n *ir.Node, operands []string, group string, list bool) (target, args string) {
	names := map[ir.Op]string{ir.OpAllReduce: "all_reduce", ir.OpAllGather: "all_gather_into_tensor", ir.OpReduceScatter: "reduce_scatter_tensor",
		ir.OpAllToAll: "all_to_all_single", ir.OpBroadcast: "broadcast", ir.OpCollectivePermute: "permute_tensor"}
	target, space := names[n.Op()], "_c10d_functional"
	x := operands[0]
	if list {
		target += "_coalesced"
		x = pytext.FormatList(operands)
		if n.Op() != ir.OpAllReduce && n.Op() != ir.OpAllGather && n.Op() != ir.OpReduceScatter {
			space = "concert" // PyTorch has no such form
		}
	}
	size := strconv.Itoa(n.Group().Size())
	parts := []string{x}
	switch n.Op() {
	case ir.OpAllReduce:
		parts = append(parts, pytext.Quote(string(n.Reduction())))
	case ir.OpAllGather:
		parts = append(parts, size)
	case ir.OpReduceScatter:
		parts = append(parts, pytext.Quote(string(n.Reduction())), size)
	case ir.OpAllToAll:
		parts = append(parts, splitsText(n, "out_splits", list), splitsText(n, "in_splits", list))
	case ir.OpBroadcast:
		parts = append(parts, pytext.FormatInts(n.Attrs().Int("root", 0)))
	case ir.OpCollectivePermute:
		dst := make([]int64, n.Group().Size())
		for k := range dst {
			dst[k] = int64(k)
		}
		for p := n.Attrs().Ints("pairs"); len(p) >= 2; p = p[2:] {
			if p[0] >= 0 && p[0] < int64(len(dst)) {
				dst[p[0]] = p[1]
			}
		}
		parts = append(parts, "["+pytext.FormatInts(dst...)+"]")
	}
	return space + "." + target + ".default", pytext.FormatTuple(append(parts, pytext.Quote(group))...)
}

// splitsText writes the split sizes, equal ones where the IR has none.
func splitsText(n *ir.Node, key string, list bool) string {
	texts := n.Attrs().Strs(key)
	var out []string
	for k, v := range n.Args() {
		if k < len(texts) {
			out = append(out, "["+strings.ReplaceAll(texts[k], ",", ", ")+"]")
			continue
		}
		size := n.Group().Size()
		each := make([]int64, size)
		if d := staticSizes(v); len(d) > 0 {
			for i := range each {
				each[i] = d[0] / int64(size)
			}
		}
		out = append(out, "["+pytext.FormatInts(each...)+"]")
	}
	if list {
		return pytext.FormatList(out)
	}
	return out[0]
}

// placed says where PyTorch would make a new tensor.
func placed(dt ir.DType) string {
	return fmt.Sprintf("{'dtype': torch.%s, 'layout': torch.strided, 'device': device(type='cuda', index=0), 'pin_memory': False}", pytext.DTypeName(dt))
}

// staticSizes are a value's sizes; nil where one is known at run time only.
func staticSizes(v *ir.Value) []int64 {
	s, _ := v.Type().Shape().Static()
	return s
}
