package ir

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
)

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
		case n.versions > 0 && n.op != OpCall:
			v.at(n, -1, nil, "%s writes nothing in place, so it makes no versions", i.Name)
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
			if k < 0 && i.AnyAttrs && a.Key != attr.Malformed {
				continue
			}
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
		if n.op != OpCall && n.op != OpAsyncCall || v.bad[n.id] {
			continue
		}
		if n.attrs.Str("target", "") == "" {
			v.at(n, -1, nil, "a call needs a target")
		}
		for _, e := range n.attrs.Strs("effects") {
			if _, ok := effectByName(e); !ok {
				v.at(n, -1, nil, "%q is not an effect; have alias communicates random writes", e)
			}
		}
		if c := n.attrs.Str("class", "memory"); c != "memory" && c != "compute" {
			v.at(n, -1, nil, "class %q of a call; have compute memory", c)
		}
		for _, i := range n.attrs.Ints("writes") {
			if i < 0 || i >= int64(n.declaredArgs()) || n.Effects()&EffectWrites == 0 {
				v.at(n, -1, nil, "writes=[%d] names no operand of a call with the effect writes", i)
			}
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
	room := of.Extent()
	for _, r := range n.DeclaredResults() {
		switch {
		case r.typ.IsAsync() || r.typ.DType() != of.DType():
			v.at(n, -1, nil, "result %s is %s, but aliases an operand of %s", r, r.typ, of)
		case !v.notNegative(room.Sub(r.typ.Extent())):
			v.at(n, -1, nil, "result %s of type %s does not fit into operand 0, %s, which it aliases", r, r.typ, of)
		}
	}
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
	args, want := make([]Type, n.declaredArgs()), make([]Type, n.declaredResults())
	for i, a := range n.DeclaredArgs() {
		args[i] = a.typ
	}
	for i, r := range n.DeclaredResults() {
		want[i] = r.typ
	}
	return n.op.info().Types.Infer(n.group.ranks(), n.attrs, args, want...)
}

func (v *verifier) compareTypes(n *Node, got []Type) {
	if len(got) != n.declaredResults() {
		v.at(n, -1, nil, "%s gives %d results here, %d are declared", n.op.Name(), len(got), n.declaredResults())
		return
	}
	exact := n.op.IsView() || n.op == OpWaitTensor // the layout of an alias is a fact, not a choice
	for i, r := range n.DeclaredResults() {
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
	return a.IsAsync() == b.IsAsync() && slices.EqualFunc(a.Tensors(), b.Tensors(), Type.SameTensor)
}
