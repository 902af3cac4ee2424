package fx

import (
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// flight is a traced collective until its wait. The IR allows an async value one
// consumer, while a trace may wait for each tensor of a coalesced collective, or
// twice for one tensor: the first wait takes the whole flight.
type flight struct {
	node     int32    // the traced collective
	coll     *ir.Node // its IR node
	list     bool     // the traced result is a list of tensors
	wait     *ir.Node // nil while in flight
	taken    bool     // returned in flight
	inPlace  bool     // overwrites other names
	deferred []*node  // getitems seen before the wait
}

// allItems stands for the whole list of a flight's tensors.
const allItems = -1

// mutation records that the traced node target stands for new content from node at on.
type mutation struct {
	at, target int32
}

// collectiveForm is a collective operator taken apart.
type collectiveForm struct {
	op        ir.Op
	legacy    bool // c10d_functional: groups by rank list
	inPlace   bool
	out       bool
	coalesced bool
}

// collectiveOperator finds the row of a collective or wait, in any of its spellings:
//
//	_c10d_functional.NAME[_coalesced][_ or _out].default   PyTorch 2.2 and later
//	_c10d_functional_autograd.NAME.default                 the same with gradients
//	c10d_functional.NAME[_coalesced].default               PyTorch 2.1: tag, ranks, size instead of a group
//	concert.NAME_coalesced.default                         buckets that Export writes and PyTorch cannot name
//	concert.shard.default                                  a rank's piece of what all have: the exporter's, for DTensor
//	_dtensor.shard_dim_alltoall.default                    DTensor's, from pieces along one dimension to those along another
func collectiveOperator(target string) (signature string, build func(c *node) error, ok bool) {
	part := strings.Split(target, ".")
	if len(part) < 2 || len(part) > 3 || len(part) == 3 && part[2] != "default" && part[2] != "out" {
		return "", nil, false
	}
	form := collectiveForm{}
	switch part[0] {
	case "_c10d_functional", "_c10d_functional_autograd", "concert":
	case "c10d_functional":
		form.legacy = true
	case "symm_mem":
		return symmOperator(target)
	case "_dtensor":
		return "input gather_dim shard_dim group_name", (*node).shardAlongOther, part[1] == "shard_dim_alltoall"
	default:
		return "", nil, false
	}
	name := part[1]
	switch {
	case name == "wait_tensor":
		return "tensor", (*node).wait, true
	case target == "concert.shard.default":
		return "input dim group_name", (*node).shard, true
	}
	name, form.out = strings.CutSuffix(name, "_out")
	name, form.inPlace = strings.CutSuffix(name, "_")
	name, form.coalesced = strings.CutSuffix(name, "_coalesced")
	tail := " group_name"
	if form.legacy {
		tail = " tag ranks group_size"
	}
	sized := " group_size group_name"
	if form.legacy {
		sized = tail
	}
	switch name {
	case "all_reduce":
		form.op, signature = ir.OpAllReduce, "input reduce_op"+tail
	case "all_gather_into_tensor":
		form.op, signature = ir.OpAllGather, "input"+sized
	case "reduce_scatter_tensor":
		form.op, signature = ir.OpReduceScatter, "input reduce_op"+sized
	case "all_to_all_single":
		form.op, signature = ir.OpAllToAll, "input output_split_sizes input_split_sizes"+tail
	case "broadcast":
		form.op, signature = ir.OpBroadcast, "input src"+tail
	case "permute_tensor":
		form.op, signature = ir.OpCollectivePermute, "input src_dst"+tail
	default:
		return "", nil, false
	}
	sameShape := form.op == ir.OpAllReduce || form.op == ir.OpBroadcast || form.op == ir.OpCollectivePermute
	if form.inPlace && (!sameShape || form.out) {
		return "", nil, false
	}
	if form.out {
		signature += " * out"
	}
	return signature, func(c *node) error { return c.collective(form) }, true
}

// collective imports the start of a collective.
func (c *node) collective(form collectiveForm) error {
	if form.op.Info().Reduces && !ir.Reduction(strings.ToLower(c.Str("reduce_op"))).Valid() && c.Err == nil {
		return traced.ErrForm // a reduction of the library's own
	}
	if c.n.Kind != KindCollective {
		return c.Fail("kind", "kind", "%s is a collective, the kind says %s", c.n.Target, c.n.Kind)
	}
	var args []*ir.Value
	var names []pytext.Value
	if form.coalesced {
		args, names = c.Tensors("input"), c.ListOf("input")
	} else if x := c.Tensor("input"); x != nil {
		args, names = []*ir.Value{x}, []pytext.Value{*c.Arg("input")}
	}
	group, err := c.group(form)
	if err != nil {
		return err
	}
	if c.Err != nil {
		return c.Err
	}
	attrs, err := c.collectiveAttrs(form, group, args)
	if err != nil {
		return err
	}
	if err := c.checkFields(form, attrs); err != nil {
		return err
	}
	if form.op == ir.OpAllToAll && attrs.Has("pairs") {
		form.op = ir.OpCollectivePermute
	}
	ts, err := c.Types()
	if err != nil {
		return err
	}
	if len(ts) != len(args) || len(ts) == 0 {
		return c.Fail("out", "results", "%d operands, out lists %d results", len(args), len(ts))
	}
	for k, x := range args {
		if x.Type().Rank() == 0 && form.op == ir.OpAllGather { // gathered scalars form a vector
			args[k] = c.Helper(ir.OpView, nil, ir.Tensor(x.Type().DType(), 1), x)
		}
	}
	var meta attr.List
	if len(c.n.Members) > 0 {
		if len(c.n.Members) != len(args) {
			return c.Fail("members", "members", "%d members for %d operands", len(c.n.Members), len(args))
		}
		meta = meta.With(MetaMembers, attr.Strings(c.n.Members...))
	}
	n := c.Append(form.op, attrs, meta, []ir.Type{ir.Async(ts...)}, group, args)
	fl := &flight{node: c.i, coll: n, list: form.coalesced}
	c.im.flights = append(c.im.flights, fl)
	st := &c.im.nodes[c.i]
	st.flight, st.root = fl, storage{node: c.i}
	if fl.list {
		st.item = allItems
	}
	return c.overwrite(form, fl, names)
}

// overwrite makes the names that an in-place or _out form writes stand for the flight.
func (c *node) overwrite(form collectiveForm, fl *flight, operands []pytext.Value) error {
	if form.out {
		v := c.Arg("out")
		if v == nil {
			c.Want("out", "a tensor", v)
			return c.Err
		}
		operands = []pytext.Value{*v}
		if form.coalesced {
			operands = c.ListOf("out")
		}
	} else if !form.inPlace {
		return nil
	}
	if len(operands) != len(fl.coll.Args()) {
		return c.Fail("kwargs", "arguments", "out: %d tensors for %d operands", len(operands), len(fl.coll.Args()))
	}
	im := c.im
	fl.inPlace = true
	for k := range operands {
		v := &operands[k]
		if v.Kind != pytext.Name {
			return c.FailAt("kwargs", int(v.Col), "arguments", "out: expected a tensor, found %s", v.Kind)
		}
		j := im.index[v.Text]
		st := &im.nodes[j]
		if err := im.checkOverwritten(c, v, st); err != nil {
			return err
		}
		if st.flight != nil && st.flight.wait == nil && st.flight != fl {
			return c.Fail("args", "async", "%q is still in flight; wait for it first", pytext.Clip(v.Text))
		}
		if im.written == nil {
			im.written = map[storage]mutation{}
		}
		im.written[st.root] = mutation{c.i, j}
		if im.file.Nodes[st.root.node].Kind == KindInput {
			im.warn(c.n, "mutation", "overwrites the storage of input "+pytext.Clip(im.file.Nodes[st.root.node].Name)+"; the caller will not see that")
		}
		st.flight, st.item, st.vals = fl, k, nil
	}
	return nil
}

// checkOverwritten rejects a read of a name whose storage an in-place operator
// has overwritten under another name: its tensor in the IR is the old one.
func (im *importer) checkOverwritten(c *node, v *pytext.Value, st *state) error {
	m, ok := im.written[st.root]
	j := im.index[v.Text]
	if !ok || j == m.target || j >= m.at {
		return nil
	}
	return c.Fail("inputs", "alias", "%q shares storage with %q, which %q has overwritten; functionalise the trace first",
		pytext.Clip(v.Text), pytext.Clip(im.file.Nodes[m.target].Name), pytext.Clip(im.file.Nodes[m.at].Name))
}

// group finds the process group and checks the group's size where it is given.
func (c *node) group(form collectiveForm) (*ir.Group, error) {
	var g *ir.Group
	name := c.n.Group
	if form.legacy {
		if name == "" {
			return c.groupByRanks()
		}
	} else if name = c.Str("group_name"); c.Err != nil {
		return nil, c.Err
	}
	if g = c.im.groups[name]; g == nil {
		e := c.Fail("group", "group", "group %q is not declared", pytext.Clip(name))
		if v := c.Arg("group_name"); v != nil {
			e = c.FailAt("args", int(v.Col), "group", "group %q is not declared", pytext.Clip(name))
		}
		return nil, e
	}
	if c.n.Group != "" && c.n.Group != name {
		return nil, c.Fail("group", "group", "the field says %q, the arguments say %q", pytext.Clip(c.n.Group), pytext.Clip(name))
	}
	if v := c.Arg("group_size"); v != nil && c.Int("group_size", 0) != int64(g.Size()) {
		return nil, c.FailAt("args", int(v.Col), "group", "group_size=%d, group %q has %d ranks", v.Int, pytext.Clip(name), g.Size())
	}
	return g, nil
}

// groupByRanks finds the group of the older spelling: all ranks in one list, or
// those of one subgroup, and the size of a subgroup.
func (c *node) groupByRanks() (*ir.Group, error) {
	ranks, size := c.Ints("ranks"), c.Need("group_size")
	if c.Err != nil {
		return nil, c.Err
	}
	same := func(sub []int, want []int64) bool {
		return slices.EqualFunc(sub, want, func(a int, b int64) bool { return int64(a) == b })
	}
	for k := range c.im.file.Groups {
		g := &c.im.file.Groups[k]
		if len(g.Ranks) == 0 || int64(len(g.Ranks[0])) != size {
			continue
		}
		if len(ranks) == c.im.file.World && same(slices.Concat(g.Ranks...), ranks) || slices.ContainsFunc(g.Ranks, func(sub []int) bool { return same(sub, ranks) }) {
			return c.im.groups[g.Name], nil
		}
	}
	return nil, c.Fail("args", "group", "no group has subgroups of %d ranks that match the list of %d ranks", size, len(ranks))
}

// collectiveAttrs reads what the operator says beyond operands and group.
func (c *node) collectiveAttrs(form collectiveForm, g *ir.Group, args []*ir.Value) (attr.List, error) {
	var l attr.List
	switch form.op {
	case ir.OpAllReduce, ir.OpReduceScatter:
		l = l.With("reduce", attr.String(strings.ToLower(c.Str("reduce_op"))))
	case ir.OpAllToAll:
		return c.splits(form, g, args)
	case ir.OpBroadcast:
		root := c.Need("src")
		if form.legacy { // a rank of the world
			if len(g.Ranks) != 1 {
				return nil, c.Fail("args", "group", "src=%d is one rank of the world, the group has %d subgroups", root, len(g.Ranks))
			}
			root = int64(slices.Index(g.Ranks[0], int(root)))
		}
		if root < 0 || root >= int64(g.Size()) {
			return nil, c.Fail("args", "group", "src is not one of the %d ranks of group %q", g.Size(), g.Name)
		}
		l = l.With("root", attr.Int(root))
	case ir.OpCollectivePermute:
		dst := c.Ints("src_dst")
		if c.Err == nil && len(dst) != g.Size() {
			return nil, c.Fail("args", "group", "src_dst names %d destinations, group %q has %d ranks", len(dst), g.Name, g.Size())
		}
		l = pairs(dst)
	}
	return l, c.Err
}

// checkFields compares the fields op and reduce with the arguments.
func (c *node) checkFields(form collectiveForm, attrs attr.List) error {
	name := form.op.Name()
	if c.n.Op != "" && c.n.Op != name && !(form.op == ir.OpCollectivePermute && strings.HasPrefix(c.n.Op, "permute")) {
		return c.Fail("op", "operator", "the field says %q, the target %s is %s", pytext.Clip(c.n.Op), pytext.Clip(c.n.Target), name)
	}
	if r := attrs.Str("reduce", ""); c.n.Reduce != "" && c.n.Reduce != r {
		return c.Fail("reduce", "operator", "the field says %q, the arguments say %q", pytext.Clip(c.n.Reduce), r)
	}
	return nil
}

// wait imports a wait: the first of a flight takes it, later ones are aliases.
func (c *node) wait() error {
	v := c.Arg("tensor")
	if v == nil || v.Kind != pytext.Name {
		c.Want("tensor", "a tensor", v)
		return c.Err
	}
	st := &c.im.nodes[c.im.index[v.Text]]
	fl := st.flight
	if fl == nil || fl.wait != nil {
		x, err := c.Value(v)
		if err != nil {
			return err
		}
		_, err = c.emit(ir.OpAlias, nil, nil, x)
		return err
	}
	if err := c.im.checkOverwritten(c, v, st); err != nil {
		return err
	}
	c.operandRoot = storage{fl.node, int32(max(st.item, 0)) + 1}
	if !fl.list || st.item == allItems {
		n, err := c.emit(ir.OpWaitTensor, nil, nil, fl.coll.Result(0))
		if err != nil {
			return err
		}
		if len(n.Results()) != len(fl.coll.Args()) {
			return c.Fail("out", "results", "out lists %d tensors, %q carries %d", len(n.Results()), v.Text, len(fl.coll.Args()))
		}
		fl.wait = n
		return fl.landed(c.im)
	}
	if err := fl.waitAll(c.im); err != nil {
		return err
	}
	x, err := c.Value(v)
	if err != nil {
		return err
	}
	_, err = c.emit(ir.OpAlias, nil, nil, x)
	return err
}

// waitAll adds the wait for a coalesced collective's whole list.
func (fl *flight) waitAll(im *importer) error {
	src := im.file.Nodes[fl.node].Name
	fl.wait = im.fn.Append(ir.NodeSpec{Op: ir.OpWaitTensor, Name: traced.TextName(src, "node") + ".wait", Args: []*ir.Value{fl.coll.Result(0)},
		Results: fl.coll.Result(0).Type().Elems(), Meta: attr.Make(attr.Attr{Key: MetaHelper, Val: attr.String(src)})})
	return fl.landed(im)
}

// landed imports the getitems that had to stand back until the wait.
func (fl *flight) landed(im *importer) error {
	for _, c := range fl.deferred {
		st := &im.nodes[c.i]
		c.operandRoot, c.hasRoot = st.root, true
		if _, err := c.emit(ir.OpAlias, nil, nil, fl.wait.Result(st.item)); err != nil {
			return err
		}
		st.flight = nil
	}
	fl.deferred = nil
	return nil
}

// getitemInFlight picks one tensor of a coalesced collective.
func (c *node) getitemInFlight(fl *flight, index int64) error {
	if index < 0 || index >= int64(len(fl.coll.Args())) {
		return c.FailAt("args", int(c.Arg("index").Col), "arguments", "item %d of a collective of %d tensors", index, len(fl.coll.Args()))
	}
	root := storage{fl.node, int32(index) + 1}
	if fl.wait != nil {
		c.operandRoot = root
		_, err := c.emit(ir.OpAlias, nil, nil, fl.wait.Result(int(index)))
		return err
	}
	if len(c.n.Out) != 1 {
		return c.Fail("out", "results", "getitem gives 1 results, out lists %d", len(c.n.Out))
	}
	fl.deferred = append(fl.deferred, c)
	st := &c.im.nodes[c.i]
	st.flight, st.item, st.root = fl, int(index), root
	return nil
}
