package fx

import (
	"errors"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/diag"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
	"github.com/seed-ee968945/concert/ir/fx/internal/traced"
)

// Result is an imported graph.
type Result struct {
	Module   *ir.Module // one function; verified
	Func     *ir.Func   // the function
	Warnings []Warning  // in program order
}

// Import turns the graph into a module of one function, verified. It fails with
// an *Error that names a node and a field when the file contradicts itself.
// Linear in the size of the file.
func (f *File) Import() (*Result, error) {
	im, err := f.importGraph()
	if err != nil {
		return nil, err
	}
	im.fn.ResolveVersions()
	if err := im.m.Verify(); err != nil {
		return nil, f.unverified(err)
	}
	return &Result{Module: im.m, Func: im.fn, Warnings: im.warnings}, nil
}

// importGraph builds the graph without verifying it.
func (f *File) importGraph() (*importer, error) {
	im := &importer{file: f, m: ir.NewModule(f.World), index: make(map[string]int32, len(f.Nodes)),
		nodes: make([]state, len(f.Nodes)), groups: make(map[string]*ir.Group, len(f.Groups))}
	if err := im.declareGroups(); err != nil {
		return nil, err
	}
	if err := im.declareSymbols(); err != nil {
		return nil, err
	}
	im.pairComplex()
	f = im.file
	im.fn = im.m.AddFunc(traced.TextName(f.Name, "graph"))
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if j, ok := im.index[n.Name]; ok {
			return nil, f.errorf(n.Name, "name", "name", "node #%d has the name of node #%d", i, j)
		}
		im.index[n.Name] = int32(i)
	}
	for i := range f.Nodes {
		if err := im.node(int32(i)); err != nil {
			return nil, err
		}
	}
	if err := im.finish(); err != nil {
		return nil, err
	}
	return im, nil
}

// unverified makes the verifier's findings speak of the file and its nodes.
func (f *File) unverified(err error) error {
	e := &Error{File: f.label, Rule: "verify", Msg: err.Error(), cause: err}
	var d *diag.Error
	if !errors.As(err, &d) {
		return e
	}
	for i, x := range d.Findings {
		name := ""
		if x.Source != nil {
			name, _, _ = strings.Cut(strings.TrimPrefix(x.Source.Text, "%"), " ")
			name, _, _ = strings.Cut(strings.TrimSuffix(name, ":"), ":")
			if strings.HasPrefix(name, "return") {
				name = "output"
			}
			x.Source = diag.NewSource(f.label+": node \""+name+"\", imported as", x.Source.Text)
		} else {
			x.Source = diag.NewSource(f.label, "")
		}
		if i == 0 {
			e.Node, e.Rule, e.Msg = name, x.Rule, x.Msg
		}
	}
	return e
}

// importer is the state of one Import.
type importer struct {
	file     *File
	m        *ir.Module
	fn       *ir.Func
	index    map[string]int32 // node of each traced name
	nodes    []state          // by traced node
	groups   map[string]*ir.Group
	flights  []*flight
	written  map[storage]mutation // storages that an in-place operator has overwritten
	warnings []Warning
	zeros    []ir.Dim        // sizes that are 0 after all
	counts   []maskCount     // in the order of the trace
	pairs    map[string]bool // traced names of complex tensors
	pastIn   bool            // an operation has been seen
	done     bool            // the output has been seen
}

// state is what a traced name stands for: tensors, or part of a collective that
// is still in flight.
type state struct {
	vals   []*ir.Value // the tensor results; of a waited flight see current
	flight *flight     // set while and after the value belongs to a collective
	item   int         // place among the flight's tensors, allItems for the whole list
	items  []int       // places of vals in the result tuple, where that holds more than tensors; nil for others
	lists  int         // for a pair of a tensor, or None, and a list: 1 + the first of vals in the list
	size   *ir.Dim     // set for a number that is known at run time only
	float  *float      // set for one that is computed from such numbers
	holds  []ir.Dim    // set for a comparison of sizes: true if none is negative
	root   storage
	known  bool // the node has been imported
}

// storage identifies a tensor's storage: result item of a node.
type storage struct {
	node int32
	item int32
}

// declareGroups checks the groups and adds them to the module.
func (im *importer) declareGroups() error {
	f := im.file
	names := f.groupNames()
	for k := range f.Groups {
		g := &f.Groups[k]
		seen := make(map[int]bool, f.World)
		for _, sub := range g.Ranks {
			if len(sub) == 0 || len(sub) != len(g.Ranks[0]) {
				return f.errorf("", "groups", "group", "group %q has subgroups of %d and %d ranks", g.Name, len(g.Ranks[0]), len(sub))
			}
			for _, r := range sub {
				if r < 0 || r >= f.World || seen[r] {
					return f.errorf("", "groups", "group", "rank %d of group %q is outside the world of %d or named twice", r, g.Name, f.World)
				}
				seen[r] = true
			}
		}
		if len(seen) != f.World {
			return f.errorf("", "groups", "group", "group %q covers %d of the world's %d ranks", g.Name, len(seen), f.World)
		}
		im.groups[g.Name] = im.m.AddGroup(names[k], g.Ranks)
	}
	return nil
}

// groupNames gives each group's name in the text form.
func (f *File) groupNames() []string {
	out := make([]string, len(f.Groups))
	taken := make(map[string]bool, len(f.Groups))
	for k := range f.Groups {
		name := traced.TextName(f.Groups[k].Name, "group")
		for taken[name] {
			name += "_"
		}
		taken[name], out[k] = true, name
	}
	return out
}

// maxText bounds the length of a node's Python text: its parsed form is some
// fifty times as large.
const maxText = 4 << 20

// node imports one traced node.
func (im *importer) node(i int32) error {
	c := im.newNode(i)
	if im.done {
		return c.Fail("kind", "order", "the node appears after the output")
	}
	if err := c.parse(); err != nil {
		return err
	}
	var err error
	switch c.n.Kind {
	case KindSize:
		err = c.sizeNode()
	case KindInput:
		err = c.input()
	case KindOutput:
		im.done = true
		err = c.output()
	default:
		im.pastIn = true
		err = c.operation()
	}
	if err != nil {
		return err
	}
	im.nodes[i].known = true
	return nil
}

// parse reads args and kwargs and checks that the names in them are the inputs.
func (c *node) parse() error {
	for _, text := range []struct{ field, s string }{{"args", c.n.Args}, {"kwargs", c.n.Kwargs}} {
		if len(text.s) > maxText {
			return c.Fail(text.field, "size", "the text is longer than %d bytes", maxText)
		}
		if text.s == "" && (text.field == "kwargs" || c.n.Kind == KindInput) {
			continue
		}
		v, perr := pytext.Parse(text.s)
		if perr != nil {
			return c.FailAt(text.field, perr.At+1, "syntax", "%s", perr.Msg)
		}
		want := pytext.Tuple
		if text.field == "kwargs" {
			want, c.Kwargs = pytext.Dict, v
		} else {
			c.Args = v
		}
		if v.Kind != want {
			return c.FailAt(text.field, 1, "syntax", "expected %s, found %s", want, v.Kind)
		}
	}
	if err := c.checkInputs(); err != nil {
		return err
	}
	c.fold(&c.Args)
	c.fold(&c.Kwargs)
	return nil
}

// checkInputs compares the field inputs with the names in the arguments.
func (c *node) checkInputs() error {
	im := c.im
	listed := make(map[string]bool, len(c.n.Inputs))
	for _, name := range c.n.Inputs {
		if listed[name] {
			return c.Fail("inputs", "inputs", "%q appears twice", pytext.Clip(name))
		}
		listed[name] = true
		j, ok := im.index[name]
		switch {
		case !ok:
			return c.Fail("inputs", "inputs", "%q is not a node of the graph", pytext.Clip(name))
		case j == c.i:
			return c.Fail("inputs", "order", "the node reads itself")
		case !im.nodes[j].known:
			return c.Fail("inputs", "order", "%q is used before it is defined: it is node #%d, this is node #%d", pytext.Clip(name), j, c.i)
		}
	}
	used := make(map[string]bool, len(listed))
	for _, t := range []struct {
		field string
		v     *pytext.Value
	}{{"args", &c.Args}, {"kwargs", &c.Kwargs}} {
		if bad := namesIn(t.v, used, listed); bad != nil {
			return c.FailAt(t.field, int(bad.Col), "inputs", "%q is named here but not listed in inputs", pytext.Clip(bad.Text))
		}
	}
	for _, name := range c.n.Inputs {
		if !used[name] {
			return c.Fail("inputs", "inputs", "%q is listed but appears neither in args nor in kwargs", pytext.Clip(name))
		}
	}
	return nil
}

// namesIn notes the names in v; it returns the first that is not listed.
func namesIn(v *pytext.Value, used, listed map[string]bool) *pytext.Value {
	if v.Kind == pytext.Name {
		if !listed[v.Text] {
			return v
		}
		used[v.Text] = true
	}
	for i := range v.List {
		if bad := namesIn(&v.List[i], used, listed); bad != nil {
			return bad
		}
	}
	return nil
}

func (c *node) input() error {
	n := c.n
	if c.im.pastIn {
		return c.Fail("kind", "order", "an input appears after the first operation")
	}
	if len(n.Inputs) > 0 {
		return c.Fail("inputs", "inputs", "an input reads nothing")
	}
	if len(n.Out) != 1 {
		return c.Fail("out", "results", "an input has one tensor, out lists %d", len(n.Out))
	}
	var meta attr.List
	if n.From != "" {
		meta = meta.With(MetaFrom, attr.String(n.From))
	}
	switch ir.Role(n.Role) {
	case ir.RoleParameter, ir.RoleData, ir.RoleSaved, ir.RoleTangent:
		meta = meta.With(MetaRole, attr.String(n.Role))
	case "":
	default:
		return c.Fail("role", "role", "%q is not a role; have parameter data saved tangent", pytext.Clip(n.Role))
	}
	_, err := c.emit(ir.OpInput, nil, meta)
	return err
}

// output turns the output node into the return.
func (c *node) output() error {
	entries, err := c.outputEntries()
	if err != nil {
		return err
	}
	var args []*ir.Value
	places := make([]int64, len(entries))
	for k := range entries {
		places[k] = -1
		if entries[k].Kind == pytext.None || c.im.open(&entries[k]) || entries[k].Kind == pytext.Int || entries[k].Kind == pytext.Float {
			continue // a size is what the inputs' shapes say, on every rank
		}
		v, err := c.returned(&entries[k])
		if err != nil {
			return err
		}
		places[k] = int64(len(args))
		args = append(args, v)
	}
	if err := c.donate(args, places); err != nil {
		return err
	}
	var meta attr.List
	if len(args) != len(entries) {
		meta = meta.With(MetaOutputs, attr.Ints(places...))
	}
	if c.n.Name != ir.OpReturn.Name() && c.n.Name != KindOutput {
		meta = meta.With(MetaName, attr.String(c.n.Name))
	}
	if len(c.n.Out) > 0 {
		return c.Fail("out", "results", "the output has no results of its own")
	}
	c.im.fn.Append(ir.NodeSpec{Op: ir.OpReturn, Args: args, Meta: meta})
	return nil
}

// outputEntries lists the entries of the output's tuple: names and None.
func (c *node) outputEntries() ([]pytext.Value, error) {
	list := c.Args.List
	if len(list) == 1 && (list[0].Kind == pytext.Tuple || list[0].Kind == pytext.List) {
		list = list[0].List
	}
	for k := range list {
		if v := &list[k]; v.Kind != pytext.Name && v.Kind != pytext.None && v.Kind != pytext.Int && v.Kind != pytext.Float {
			return nil, c.FailAt("args", int(v.Col), "output", "an output is a node's name or None, found %s", v.Kind)
		}
	}
	return list, nil
}

// returned is the value of an output; a collective in flight leaves as it is.
func (c *node) returned(v *pytext.Value) (*ir.Value, error) {
	st := &c.im.nodes[c.im.index[v.Text]]
	if fl := st.flight; fl != nil && fl.wait == nil {
		if !fl.list {
			if fl.taken {
				return nil, c.FailAt("args", int(v.Col), "async", "%q is in flight and leaves twice", v.Text)
			}
			fl.taken = true
			return fl.coll.Result(0), nil
		}
		if err := fl.waitAll(c.im); err != nil {
			return nil, err
		}
	}
	return c.Value(v)
}

// finish checks that nothing is left open.
func (im *importer) finish() error {
	if !im.done {
		return im.file.errorf("", "nodes", "output", "the graph has no output node")
	}
	for _, fl := range im.flights {
		if fl.wait == nil && !fl.taken {
			return im.file.errorf(im.file.Nodes[fl.node].Name, "", "async", "nobody waits for this collective")
		}
	}
	return nil
}

func (im *importer) warn(n *Node, rule, msg string) {
	im.warnings = append(im.warnings, Warning{Node: n.Name, Loc: n.Loc, Rule: rule, Msg: msg})
}
