package passes

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/ir"
)

// MembersKey is the annotation of a bucket: the names of the collectives that it
// stands for, in the order of its operands.
const MembersKey = "members"

// OrderOnlyError names a traced node that a pass removed, renamed or rewired
// although it may decide only order and buckets.
type OrderOnlyError struct {
	Func, Node string
	Reason     string
}

func (e *OrderOnlyError) Error() string {
	return fmt.Sprintf("@%s: %%%s %s; a pass of order and buckets keeps every traced node", e.Func, e.Node, e.Reason)
}

// CheckOrderOnly reports whether after is before in another order and with other
// buckets, and nothing else. Every node of before is in after with the same
// operation, attributes, operands, types and cost, except that
//
//   - a collective may be a member of one bucket: a collective of the same
//     operation, group and attributes, annotated with the members' names, that
//     takes the member's operand at the member's place;
//   - the wait of such a member is an alias, of the same name and type, of the
//     tensor at the member's place of the bucket's one wait.
//
// Nodes of after that are not in before must be buckets and their waits. The
// error is an *OrderOnlyError. Linear.
func CheckOrderOnly(before, after *ir.Module) error {
	if len(before.Funcs()) != len(after.Funcs()) {
		return fmt.Errorf("passes: %d functions became %d", len(before.Funcs()), len(after.Funcs()))
	}
	for i, f := range before.Funcs() {
		g := after.Funcs()[i]
		if f.Name != g.Name {
			return fmt.Errorf("passes: function @%s became @%s", f.Name, g.Name)
		}
		if n, why := checkOrderOnly(f, g); why != "" {
			return &OrderOnlyError{f.Name, n, why}
		}
	}
	return nil
}

// bucketPlace is a place in a bucket.
type bucketPlace struct {
	bucket *ir.Node
	k      int
}

// checkOrderOnly returns the first offending node and what is wrong with it.
func checkOrderOnly(f, g *ir.Func) (node, why string) {
	members := map[string]bucketPlace{} // look-up only
	for _, n := range g.Order() {
		old := f.Lookup(n.Name())
		names := n.Meta().Strs(MembersKey)
		switch {
		case old != nil:
		case n.Op().IsCollective() && len(names) > 0:
			if len(names) != len(n.Args()) {
				return n.Name(), fmt.Sprintf("names %d members for %d operands", len(names), len(n.Args()))
			}
			for k, m := range names {
				if _, twice := members[m]; twice {
					return m, "is a member of two buckets"
				}
				members[m] = bucketPlace{n, k}
			}
		case n.Op() == ir.OpWaitTensor && isNewBucket(f, n.Arg(0).Def()):
		default:
			return n.Name(), "is new and neither a bucket nor the wait of one"
		}
	}
	for _, n := range f.Order() {
		m, bucketed := members[n.Name()]
		now := g.Lookup(n.Name())
		switch {
		case bucketed && now != nil:
			return n.Name(), "is a member of a bucket and still there"
		case bucketed:
			why = checkMember(n, m)
		case now == nil:
			why = "is gone"
		default:
			why = checkKept(n, now, members)
		}
		if why != "" {
			return n.Name(), why
		}
	}
	return "", ""
}

func isNewBucket(f *ir.Func, n *ir.Node) bool {
	return f.Lookup(n.Name()) == nil && len(n.Meta().Strs(MembersKey)) > 0
}

func checkMember(n *ir.Node, m bucketPlace) string {
	b := m.bucket
	switch {
	case !n.Op().IsCollective() || len(n.Args()) != 1:
		return "cannot travel in a bucket"
	case n.Op() != b.Op() || n.Group().Name != b.Group().Name || !n.Attrs().Equal(b.Attrs()):
		return fmt.Sprintf("travels in %%%s, which is another operation", b.Name())
	case n.Arg(0).Name() != b.Arg(m.k).Name():
		return fmt.Sprintf("reads %s, in %%%s it reads %s", n.Arg(0), b.Name(), b.Arg(m.k))
	case !n.Result(0).Type().Elems()[0].Equal(b.Result(0).Type().Elems()[m.k]):
		return fmt.Sprintf("has another type in %%%s", b.Name())
	}
	return ""
}

func checkKept(n, now *ir.Node, members map[string]bucketPlace) string {
	if n.Op() == ir.OpWaitTensor {
		if m, ok := members[n.Arg(0).Def().Name()]; ok {
			return checkMemberWait(n, now, m)
		}
	}
	switch {
	case n.Op() != now.Op() || !n.Attrs().Equal(now.Attrs()) || !n.Meta().Equal(now.Meta()):
		return "became: " + now.String()
	case (n.Group() == nil) != (now.Group() == nil) || n.Group() != nil && n.Group().Name != now.Group().Name:
		return "changed its group"
	case !slices.EqualFunc(n.Args(), now.Args(), func(a, b *ir.Value) bool { return a.Name() == b.Name() }):
		return "was rewired to: " + now.String()
	case !slices.EqualFunc(n.Results(), now.Results(), func(a, b *ir.Value) bool { return a.Type().Equal(b.Type()) }):
		return "changed its type"
	}
	a, hasA := n.Cost()
	b, hasB := now.Cost()
	if hasA != hasB || hasA && a != b {
		return "changed its cost"
	}
	return ""
}

func checkMemberWait(n, now *ir.Node, m bucketPlace) string {
	if now.Op() != ir.OpAlias || now.Arg(0).Index() != m.k || len(n.Results()) != 1 || !now.Result(0).Type().Equal(n.Result(0).Type()) {
		return "is not the alias of its place in the bucket's wait: " + now.String()
	}
	if w := now.Arg(0).Def(); w.Op() != ir.OpWaitTensor || w.Arg(0).Def() != m.bucket {
		return "does not come from its bucket: " + now.String()
	}
	return ""
}
