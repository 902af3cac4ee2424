package ir

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/diag"
	"github.com/seed-ee968945/concert/internal/text"
)

// Verify checks every rule of the IR and returns all findings at once as a
// *diag.Error, or nil. Each rule is one function below; rules that need the
// outcome of an earlier one (types need arity) skip the nodes it rejected.
// Linear in the size of the module.
func (m *Module) Verify() error {
	v := &verifier{m: m}
	for _, r := range moduleRules {
		v.rule = r.name
		r.check(v)
	}
	for _, f := range m.funcs {
		v.f = f
		v.bad = make([]bool, len(f.nodes))
		for _, r := range funcRules {
			v.rule = r.name
			r.check(v)
		}
	}
	return v.errs.Err()
}

// Rules lists the names of the verifier's rules in the order they run, with what each demands.
func Rules() []struct{ Name, Doc string } {
	var out []struct{ Name, Doc string }
	for _, r := range append(slices.Clone(moduleRules), funcRules...) {
		out = append(out, struct{ Name, Doc string }{r.name, r.doc})
	}
	return out
}

type rule struct {
	name, doc string
	check     func(v *verifier)
}

var moduleRules = []rule{
	{"world", "the world has 1 to MaxWorld ranks", ruleWorld},
	{"group", "a group partitions the world into subgroups of one size", ruleGroup},
	{"symbol", "a symbol's hint lies within 0..max", ruleSymbol},
}

var funcRules = []rule{
	{"name", "names are made of letters, digits, '_', '.' and '$'", ruleName},
	{"order", "inputs come first, one return comes last, and operands are defined before their use", ruleOrder},
	{"arity", "operands and results are as many as the op takes", ruleArity},
	{"attributes", "attributes are declared by the op, present where required, and of the declared kind", ruleAttributes},
	{"communicator", "a collective names a group, and so does what depends on the rank's place in one; nothing else does", ruleCommunicator},
	{"call", "an opaque call names its target and known effects", ruleCall},
	{"dimensions", "dimensions are not negative, use declared symbols, and element counts fit", ruleDimensions},
	{"cost", "an attached cost is not negative and at most MaxCost", ruleCost},
	{"async-use", "an async value has exactly one consumer: a wait or the return", ruleAsyncUse},
	{"type", "result types follow from the operands by the op's type rule", ruleType},
}

// verifier is the state of one Verify.
type verifier struct {
	m    *Module
	f    *Func
	rule string
	bad  []bool // by NodeID: an earlier rule rejected the node
	errs diag.List
}

// at reports a finding about a node; operand is the operand to point at, or -1 for the node.
func (v *verifier) at(n *Node, operand int, notes []string, format string, args ...any) {
	v.bad[n.id] = true
	f := &diag.Finding{Rule: v.rule, Msg: fmt.Sprintf(format, args...), Notes: notes}
	f.Source, f.Pos, f.Len = v.place(n, operand)
	v.errs.Add(f)
}

// module reports a finding about a declaration.
func (v *verifier) module(pos diag.Pos, format string, args ...any) {
	v.errs.Add(&diag.Finding{Source: v.m.source, Pos: pos, Len: 1, Rule: v.rule, Msg: fmt.Sprintf(format, args...)})
}

// place finds where a node or operand stands in the source; a node without one is shown as its own line of text.
func (v *verifier) place(n *Node, operand int) (*diag.Source, diag.Pos, int) {
	src, pos := v.m.source, n.pos
	if src == nil || !pos.Known() {
		src, pos = diag.NewSource("@"+v.f.Name, n.String()), diag.Pos{Line: 1, Col: 1}
	}
	line := src.Line(pos.Line)
	col := min(int(pos.Col)-1, len(line))
	rest := line[col:]
	skip := 0
	if len(n.results) > 0 && n.op != OpInput {
		if i := strings.IndexByte(rest, '='); i >= 0 {
			skip = i + 1
			for skip < len(rest) && rest[skip] == ' ' {
				skip++
			}
		}
	}
	if operand < 0 {
		return src, diag.Pos{Line: pos.Line, Col: int32(col + skip + 1)}, len(n.op.Name())
	}
	for i := skip; i < len(rest); i++ {
		if rest[i] == '%' {
			if operand == 0 {
				end := i + 1
				for end < len(rest) && (text.IdentByte(rest[end]) || rest[end] == '#') {
					end++
				}
				return src, diag.Pos{Line: pos.Line, Col: int32(col + i + 1)}, end - i
			}
			operand--
		}
	}
	return src, pos, 1
}

func ruleWorld(v *verifier) {
	if v.m.World < 1 || v.m.World > MaxWorld {
		v.module(diag.Pos{}, "a world has 1 to %d ranks, not %d", MaxWorld, v.m.World)
	}
}

func ruleGroup(v *verifier) {
	seen := make([]int, max(v.m.World, 0))
	for k, g := range v.m.groups {
		if !text.ValidName(g.Name) || v.m.Group(g.Name) != g {
			v.module(g.pos, "group name %q is taken or not a name", g.Name)
		}
		count := 0
		for i, sub := range g.Ranks {
			if len(sub) == 0 || len(sub) != len(g.Ranks[0]) {
				v.module(g.pos, "subgroup %d of @%s has %d ranks, subgroup 0 has %d", i, g.Name, len(sub), len(g.Ranks[0]))
			}
			for _, r := range sub {
				switch {
				case r < 0 || r >= v.m.World:
					v.module(g.pos, "rank %d of @%s is outside the world of %d", r, g.Name, v.m.World)
				case seen[r] == k+1:
					v.module(g.pos, "rank %d stands in @%s twice", r, g.Name)
				default:
					seen[r] = k + 1
					count++
				}
			}
		}
		if count != v.m.World {
			v.module(g.pos, "@%s covers %d of the world's %d ranks", g.Name, count, v.m.World)
		}
	}
}

func ruleSymbol(v *verifier) {
	for _, s := range v.m.syms {
		if s.Hint < 0 || s.Hint > s.Max {
			v.module(s.pos, "symbol %s has hint %d outside 0..%d", s.Name, s.Hint, s.Max)
		}
		if !text.ValidName(s.Name) || v.m.Symbol(s.Name) != s || s.Name[0] >= '0' && s.Name[0] <= '9' {
			v.module(s.pos, "symbol name %q is taken or not a name", s.Name)
		}
	}
}

func ruleName(v *verifier) {
	for _, n := range v.f.Order() {
		if !text.ValidName(n.name) {
			v.at(n, -1, nil, "%q is not a name", n.name)
		}
	}
}

func ruleOrder(v *verifier) {
	order := v.f.Order()
	inputs := len(v.f.Inputs())
	for i, n := range order {
		if n.op == OpInput && i >= inputs {
			v.at(n, -1, nil, "input %%%s stands after the first operation", n.name)
		}
		if n.op == OpReturn && i != len(order)-1 {
			v.at(n, -1, nil, "a return stands before the end")
		}
		for j, a := range n.args {
			if a.def.fn != v.f || v.f.nodes[a.def.id] != a.def {
				v.at(n, j, nil, "operand %s is not of this function", a)
			} else if int(a.def.at) >= i {
				v.at(n, j, nil, "%s is used before it is defined", a)
			}
		}
	}
	if v.f.Return() == nil {
		v.module(v.f.pos, "function @%s does not end with a return", v.f.Name)
	}
}

func ruleArity(v *verifier) {
	for _, n := range v.f.Order() {
		i := n.op.info()
		switch {
		case n.op == OpInvalid:
			v.at(n, -1, nil, "a node without an operation")
		case len(n.args) < i.MinArgs || i.MaxArgs >= 0 && len(n.args) > i.MaxArgs:
			v.at(n, -1, nil, "%s takes %s, got %d", i.Name, argCount(i), len(n.args))
		case i.NumResults >= 0 && len(n.results) != i.NumResults:
			v.at(n, -1, nil, "%s gives %d results, %d are declared", i.Name, i.NumResults, len(n.results))
		case i.NumResults < 0 && len(n.results) == 0 && n.op != OpCall:
			v.at(n, -1, nil, "%s gives at least one result", i.Name)
		}
	}
}

func argCount(i *OpInfo) string {
	switch {
	case i.MaxArgs < 0:
		return fmt.Sprintf("at least %d operands", i.MinArgs)
	case i.MinArgs == i.MaxArgs:
		return fmt.Sprintf("%d operands", i.MinArgs)
	}
	return fmt.Sprintf("%d to %d operands", i.MinArgs, i.MaxArgs)
}

func ruleAttributes(v *verifier) {
	for _, n := range v.f.Order() {
		if v.bad[n.id] {
			continue
		}
		i := n.op.info()
		for _, a := range n.attrs {
			k := slices.IndexFunc(i.Attrs, func(s AttrSpec) bool { return s.Key == a.Key })
			if k < 0 {
				v.at(n, -1, nil, "%s has no attribute %q", i.Name, a.Key)
			} else if !kindFits(i.Attrs[k].Kind, a.Val) {
				v.at(n, -1, nil, "attribute %s of %s is of kind %s, want %s", a.Key, i.Name, a.Val.Kind(), i.Attrs[k].Kind)
			}
		}
		for _, s := range i.Attrs {
			if s.Required && !n.attrs.Has(s.Key) {
				v.at(n, -1, nil, "%s needs attribute %s: %s", i.Name, s.Key, s.Doc)
			}
		}
		v.attributeValues(n)
	}
}

// kindFits allows an integer where a float is declared, and an empty list of either kind.
func kindFits(want attr.Kind, val attr.Value) bool {
	if val.Kind() == want || want == attr.KindFloat && val.Kind() == attr.KindInt {
		return true
	}
	l, ok := val.AsInts()
	return want == attr.KindStrings && ok && len(l) == 0
}

// attributeValues checks what kinds cannot say.
func (v *verifier) attributeValues(n *Node) {
	i := n.op.info()
	if i.Reduces && n.attrs.Has("reduce") && !n.Reduction().Valid() {
		v.at(n, -1, nil, "%q is not a reduction; have sum avg product min max", n.Reduction())
	}
	if i.MinArgs == 1 && i.MaxArgs == 2 && i.Elementwise && len(n.args) == 1 != n.attrs.Has("scalar") {
		v.at(n, -1, nil, "%s takes two operands, or one and the attribute scalar", i.Name)
	}
	if n.op == OpScatter && len(n.args) == 2 != n.attrs.Has("value") {
		v.at(n, -1, nil, "scatter takes a source operand or the attribute value")
	}
	if n.group == nil {
		return
	}
	size := int64(n.group.Size())
	if root := n.attrs.Int("root", 0); root < 0 || root >= size {
		v.at(n, -1, nil, "root=%d is outside the %d ranks of @%s", root, size, n.group.Name)
	}
	v.permutePairs(n, size)
}

func (v *verifier) permutePairs(n *Node, size int64) {
	pairs := n.attrs.Ints("pairs")
	if len(pairs)%2 != 0 {
		v.at(n, -1, nil, "pairs holds %d numbers; they come as source, destination", len(pairs))
		return
	}
	seen := make(map[int64]bool, len(pairs))
	for k, r := range pairs {
		key := r*2 + int64(k%2) // a rank sends once and receives once
		if r < 0 || r >= size || seen[key] {
			v.at(n, -1, nil, "pairs: rank %d is outside the %d ranks of @%s or named twice as %s", r, size, n.group.Name, [2]string{"source", "destination"}[k%2])
			return
		}
		seen[key] = true
	}
}

func ruleCommunicator(v *verifier) {
	for _, n := range v.f.Order() {
		switch {
		case (n.op.IsCollective() || n.op.info().Grouped) && n.group == nil:
			v.at(n, -1, nil, "%s needs a group, as in: %s ... on @tp", n.op.Name(), n.op.Name())
		case !n.op.IsCollective() && !n.op.info().Grouped && n.group != nil && n.op != OpCall:
			v.at(n, -1, nil, "%s takes no group", n.op.Name())
		case n.group != nil && (n.group.index >= len(v.m.groups) || v.m.groups[n.group.index] != n.group):
			v.at(n, -1, nil, "group @%s is not of this module", n.group.Name)
		}
	}
}

func ruleCall(v *verifier) {
	for _, n := range v.f.Order() {
		if n.op != OpCall || v.bad[n.id] {
			continue
		}
		if n.attrs.Str("target", "") == "" {
			v.at(n, -1, nil, "a call needs a target")
		}
		for _, e := range n.attrs.Strs("effects") {
			if _, ok := callEffects[e]; !ok {
				v.at(n, -1, nil, "%q is not an effect; have alias communicates random writes", e)
			}
		}
		if c := n.attrs.Str("class", "memory"); c != "memory" && c != "compute" {
			v.at(n, -1, nil, "class %q of a call; have compute memory", c)
		}
		if n.Effects()&EffectAlias != 0 {
			v.aliasCall(n)
		}
	}
}

// aliasCall checks a call whose results lie in operand 0's storage, from its
// first element on.
func (v *verifier) aliasCall(n *Node) {
	if len(n.args) == 0 || n.args[0].typ.IsAsync() {
		v.at(n, -1, nil, "a call that aliases needs a tensor as operand 0, whose storage its results share")
		return
	}
	of := n.args[0].typ
	for _, r := range n.results {
		switch {
		case r.typ.IsAsync() || r.typ.DType() != of.DType():
			v.at(n, -1, nil, "result %s is %s, but aliases an operand of %s", r, r.typ, of)
		case reach(r.typ) > reach(of) && reach(of) >= 0:
			v.at(n, -1, nil, "result %s of type %s does not fit into operand 0, %s, which it aliases", r, r.typ, of)
		}
	}
}

// reach is one past the last element of its storage that a tensor occupies,
// counted from its own first; -1 if a size is symbolic.
func reach(t Type) int64 {
	sizes, ok := t.Shape().Static()
	if !ok {
		return -1
	}
	return span(sizes, t.Strides())
}

// MaxCost is the largest cost of a node in milliseconds, some thirty years. It keeps
// the sums that simulators and schedulers form finite and exact enough to compare.
const MaxCost = 1e12

func ruleCost(v *verifier) {
	for _, n := range v.f.Order() {
		if ms, ok := n.Cost(); ok && !(ms >= 0 && ms <= MaxCost) {
			v.at(n, -1, nil, "a cost of %g ms is not within 0..%g", ms, float64(MaxCost))
		}
	}
}

// maxElems bounds element counts, so that sizes in bytes never overflow.
const maxElems = int64(1) << 50

func ruleDimensions(v *verifier) {
	for _, n := range v.f.Order() {
		for _, r := range n.results {
			for _, t := range tensorsOf(r.typ) {
				v.dimensions(n, t)
			}
		}
	}
}

// tensorsOf lists the tensors in a type.
func tensorsOf(t Type) []Type {
	if t.IsAsync() {
		return t.async
	}
	return []Type{t}
}

func (v *verifier) dimensions(n *Node, t Type) {
	total := int64(1)
	for _, d := range t.shape {
		c, static := d.Const()
		if !static {
			for _, s := range d.Symbols(nil) {
				if v.m.Symbol(s) == nil {
					v.at(n, -1, nil, "symbol %s is not declared", s)
					return
				}
			}
			c = v.m.Bound(d)
		}
		switch {
		case c < 0:
			v.at(n, -1, nil, "dimension %s of %s is negative", d, t)
			return
		case c > 0 && total > maxElems/c:
			v.at(n, -1, nil, "%s holds more than 2^50 elements", t)
			return
		}
		total *= c
	}
}

func ruleAsyncUse(v *verifier) {
	for _, n := range v.f.Order() {
		for _, r := range n.results {
			if !r.typ.IsAsync() {
				continue
			}
			if !n.op.IsCollective() && n.op != OpInput {
				v.at(n, -1, nil, "%s cannot give an async value", n.op.Name())
				continue
			}
			v.asyncConsumers(n, r)
		}
	}
}

func (v *verifier) asyncConsumers(n *Node, r *Value) {
	ok := 0
	for _, u := range r.uses {
		if u.Node.op == OpWaitTensor || u.Node.op == OpReturn {
			ok++
			continue
		}
		v.at(u.Node, u.Index, []string{fmt.Sprintf("%s comes from %s; wait for it first: %%t = wait_tensor %s", r, n.op.Name(), r)},
			"%s reads %s, which is still in flight", u.Node.op.Name(), r)
	}
	switch {
	case len(r.uses) == 0:
		v.at(n, -1, []string{fmt.Sprintf("add: %%t = wait_tensor %s, or return it", r)}, "nobody waits for %s", r)
	case ok > 1:
		v.at(n, -1, []string{"later waits of the same collective are written: alias of the first wait"}, "%s has %d consumers, want one", r, ok)
	}
}

func ruleType(v *verifier) {
	for _, n := range v.f.Order() {
		if v.bad[n.id] {
			continue
		}
		for i, a := range n.args {
			if a.typ.IsAsync() && n.op != OpWaitTensor && n.op != OpReturn {
				v.at(n, i, nil, "operand %s is async", a)
			}
		}
		if v.bad[n.id] {
			continue
		}
		got, err := n.inferTypes()
		if err != nil {
			v.at(n, -1, nil, "%v", err)
			continue
		}
		v.compareTypes(n, got)
	}
}

// inferTypes applies the op's type rule to the node.
func (n *Node) inferTypes() ([]Type, error) {
	c := inferCtx{attrs: n.attrs}
	for _, a := range n.args {
		c.args = append(c.args, a.typ)
	}
	for _, r := range n.results {
		c.want = append(c.want, r.typ)
	}
	if n.group != nil {
		c.group = n.group.Size()
	}
	return n.op.info().Infer(&c)
}

func (v *verifier) compareTypes(n *Node, got []Type) {
	if len(got) != len(n.results) {
		v.at(n, -1, nil, "%s gives %d results here, %d are declared", n.op.Name(), len(got), len(n.results))
		return
	}
	exact := n.op.IsView() || n.op == OpWaitTensor // the layout of an alias is a fact, not a choice
	for i, r := range n.results {
		same := got[i].Equal(r.typ)
		if !same && !exact {
			same = sameTensors(got[i], r.typ)
		}
		if !same {
			v.at(n, -1, nil, "%s has type %s, the operands give %s", r, r.typ, got[i])
			return
		}
	}
}

// sameTensors compares types without their layouts.
func sameTensors(a, b Type) bool {
	return a.IsAsync() == b.IsAsync() && slices.EqualFunc(tensorsOf(a), tensorsOf(b), Type.SameTensor)
}
