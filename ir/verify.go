package ir

import (
	"fmt"
	"slices"
	"strings"

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
	{"group", "a group partitions the world, or in a module with stages some ranks of it, into subgroups of one size", ruleGroup},
	{"symbol", "a symbol's hint is within its bounds", ruleSymbol},
	{"check", "a size that a module needs is 0 or more for some values of its symbols", ruleCheck},
	{"nesting", "no function is recursive, and bodies are nested 32 deep at most", ruleNesting},
	{"stages", "each rank is in the group of the stages and in the groups that it uses; stages that share a group issue the same collectives, without deadlock", ruleStages},
}

var funcRules = []rule{
	{"name", "names are printable text of one line", ruleName},
	{"order", "inputs come first, one return comes last, and operands are defined before their use", ruleOrder},
	{"arity", "the op takes that many operands and results", ruleArity},
	{"attributes", "attributes are declared by the op, present where required, and of the declared kind", ruleAttributes},
	{"communicator", "collectives and nodes that depend on the rank's index in a group name one; no other node does", ruleCommunicator},
	{"call", "an opaque call names its target and known effects", ruleCall},
	{"dimensions", "dimensions use declared symbols and are not negative, whatever their values, and element counts fit", ruleDimensions},
	{"layout", "strides reach 2^50 elements at most; elements of results other than views do not overlap, and results of collectives are row-major", ruleLayout},
	{"cost", "an attached cost is not negative and at most MaxCost", ruleCost},
	{"async-use", "an async value has exactly one consumer: a wait or the return", ruleAsyncUse},
	{"type", "result types follow from the operands by the op's type rule", ruleType},
	{"body", "the functions that a node runs take its operands, return its results, and have no other effect; where they communicate, all ranks take the same path", ruleBody},
	{"sizes", "a symbol is read once in a function, before nodes that name it, and not in a body", ruleSizes},
	{"version", "operands are the newest versions of their storages, nothing is written while a collective reads it, and nothing twice by one call", ruleVersion},
	{"donation", "an input is donated to a result of its type, and no other input to the same result", ruleDonation},
	{"range", "splits are not negative, whatever the values of symbols, and pieces are within their operands for some", ruleRange},
}

// verifier is the state of one Verify.
type verifier struct {
	m    *Module
	f    *Func
	rule string
	bad  []bool // by NodeID: an earlier rule rejected the node
	errs diag.List

	uniform *uniformity // computed when first needed
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
	if strings.HasPrefix(rest, "%") && n.op != OpInput {
		if i := strings.Index(rest, " = ") + 1; i > 0 {
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
				for end < len(rest) && (text.IdentByte(rest[end]) || rest[end] == '#' || rest[end] == '@') {
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
					v.module(g.pos, "rank %d appears in @%s twice", r, g.Name)
				default:
					seen[r] = k + 1
					count++
				}
			}
		}
		if count != v.m.World && len(v.m.stages) == 0 {
			v.module(g.pos, "@%s covers %d of the world's %d ranks", g.Name, count, v.m.World)
		}
	}
}

func ruleSymbol(v *verifier) {
	for _, s := range v.m.syms {
		if s.Min < 0 || s.Hint < s.Min || s.Hint > s.Max {
			v.module(s.pos, "symbol %s has hint %d outside %d..%d", s.Name, s.Hint, s.Min, s.Max)
		}
		if !text.PlainName(s.Name) || v.m.Symbol(s.Name) != s || s.Name[0] >= '0' && s.Name[0] <= '9' {
			v.module(s.pos, "symbol name %q is taken or not a name", s.Name)
		}
	}
}

func ruleCheck(v *verifier) {
	for _, c := range v.m.checks {
		for _, s := range c.Size.Symbols(nil) {
			if v.m.Symbol(s) == nil {
				v.module(c.pos, "symbol %s is not declared", s)
				return
			}
		}
		if r, ok := v.m.Bounds(c.Size); !ok || r.Max < 0 {
			v.module(c.pos, "%s is never 0 or more", c.Size)
		}
	}
}

func ruleName(v *verifier) {
	for _, n := range v.f.Order() {
		if !text.ValidName(n.name) {
			v.at(n, -1, nil, "%q is not a name: want printable text of one line", n.name)
		}
	}
}

func ruleOrder(v *verifier) {
	order := v.f.Order()
	inputs := len(v.f.Inputs())
	for i, n := range order {
		if n.op == OpInput && i >= inputs {
			v.at(n, -1, nil, "input %%%s appears after the first operation", n.name)
		}
		if n.op == OpReturn && i != len(order)-1 {
			v.at(n, -1, nil, "a return appears before the end")
		}
		for j, a := range n.args {
			if a.def.fn != v.f || v.f.nodes[a.def.id] != a.def {
				v.at(n, j, nil, "operand %s is not of this function", a)
			} else if int(a.def.at) >= i {
				v.at(n, j, nil, "%s is used before it is defined", a)
			}
		}
		for _, o := range n.after {
			switch c := o.op.Class(); {
			case int(o.at) >= i:
				v.at(n, -1, nil, "it comes before %%%s, after which it has to come", o.name)
			case n.op.IsView() || c == ClassView || c == ClassInput:
				v.at(n, -1, nil, "an order-only edge joins operations that run, not views or inputs such as %%%s", o.name)
			}
		}
	}
	if v.f.Return() == nil {
		v.module(v.f.pos, "function @%s does not end with a return", v.f.Name)
	}
}
