package passes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
)

// MembersKey is the annotation of a bucket: the names of the collectives that it
// stands for, in the order of its operands.
const MembersKey = "members"

// MemberNames returns for each operand of a collective the traced collective
// that it stands for: those of a bucket, else itself.
func MemberNames(n *ir.Node) []string {
	if names := n.Meta().Strs(MembersKey); len(names) == len(n.Args()) {
		return names
	}
	names := make([]string, len(n.Args()))
	for i := range names {
		names[i] = n.Name()
	}
	return names
}

// WaitOf returns the wait of a collective, nil if it leaves in flight.
func WaitOf(n *ir.Node) *ir.Node {
	if u := n.Result(0).Uses(); len(u) == 1 && u[0].Node.Op() == ir.OpWaitTensor {
		return u[0].Node
	}
	return nil
}

// OrderOnlyError names a traced node that a pass removed, renamed or rewired
// although it may decide only order and buckets.
type OrderOnlyError struct {
	Func, Node string
	Reason     string
}

// Error implements error.
func (e *OrderOnlyError) Error() string {
	return fmt.Sprintf("@%s: %%%s %s; a pass of order and buckets keeps every traced node", e.Func, e.Node, e.Reason)
}

// CheckOrderOnly reports whether after is before in another order and with other
// buckets, and nothing else. Every node of before is in after with the same
// operation, attributes, operands, types and cost, except that
//
//   - a collective may be a member of one bucket: a collective of the same
//     operation, group and attributes, annotated with the members' names once for
//     each operand, that takes the member's operands at the member's place; the
//     sizes of uneven parts, which are listed by operand, stand there, too;
//   - the wait of such a member is an alias, of the same name and type, of the
//     tensor at the member's place of the bucket's one wait; the wait of a member
//     of several operands is gone, and whoever read it reads the bucket's wait at
//     the member's place.
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

// orderChecker holds what checkOrderOnly has found about buckets. Both maps are
// for look-up only.
type orderChecker struct {
	before, after *ir.Func
	members       map[string]bucketPlace // member -> place of its first operand
	moved         map[string]string      // value of a wait that is gone -> value of the bucket's wait
}

// checkOrderOnly returns the first offending node and what is wrong with it.
func checkOrderOnly(f, g *ir.Func) (node, why string) {
	c := &orderChecker{f, g, map[string]bucketPlace{}, map[string]string{}}
	if node, why := c.buckets(); why != "" {
		return node, why
	}
	for _, n := range f.Order() {
		if m, ok := c.placeOfWait(n); ok && len(n.Results()) > 1 && g.Lookup(n.Name()) == nil {
			w := WaitOf(m.bucket)
			if w == nil || m.k+len(n.Results()) > len(w.Results()) {
				return n.Name(), fmt.Sprintf("is gone, and the wait of bucket %%%s does not stand for it", m.bucket.Name())
			}
			for i, r := range n.Results() {
				c.moved[r.Name()] = w.Result(m.k + i).Name()
			}
		}
	}
	for _, n := range f.Order() {
		if why := c.check(n); why != "" {
			return n.Name(), why
		}
	}
	return "", ""
}

// buckets finds the buckets and checks that nothing else is new.
func (c *orderChecker) buckets() (node, why string) {
	for _, n := range c.after.Order() {
		names := n.Meta().Strs(MembersKey)
		switch {
		case c.before.Lookup(n.Name()) != nil:
		case n.Op().IsCollective() && len(names) > 0:
			if len(names) != len(n.Args()) {
				return n.Name(), fmt.Sprintf("names %d members for %d operands", len(names), len(n.Args()))
			}
			for k, m := range names {
				if was := c.before.Lookup(m); k > 0 && names[k-1] == m && (was == nil || len(was.Args()) > 1) {
					continue // another operand of the same
				}
				if _, twice := c.members[m]; twice {
					return m, "is a member of two buckets"
				}
				c.members[m] = bucketPlace{n, k}
			}
		case n.Op() == ir.OpWaitTensor && isNewBucket(c.before, n.Arg(0).Def()):
		default:
			return n.Name(), "is new and neither a bucket nor the wait of one"
		}
	}
	return "", ""
}

// place returns where collective n of before travels, if it is a member.
func (c *orderChecker) place(n *ir.Node) (bucketPlace, bool) {
	m, ok := c.members[n.Name()]
	if names := MemberNames(n); !ok && len(names) > 0 && c.after.Lookup(n.Name()) == nil {
		m, ok = c.members[names[0]] // a bucket that went into another
	}
	return m, ok
}

// placeOfWait returns where the collective travels that n of before waits for.
func (c *orderChecker) placeOfWait(n *ir.Node) (bucketPlace, bool) {
	if n.Op() != ir.OpWaitTensor || !n.Arg(0).Def().Op().IsCollective() {
		return bucketPlace{}, false
	}
	return c.place(n.Arg(0).Def())
}

// name returns the name in after of a value of before.
func (c *orderChecker) name(v *ir.Value) string {
	if base := v.Base(); base != v {
		return c.name(base) + strings.TrimPrefix(v.Name(), base.Name())
	}
	if now, ok := c.moved[v.Name()]; ok {
		return now
	}
	return v.Name()
}

// check says what is wrong with a node of before; empty if nothing is.
func (c *orderChecker) check(n *ir.Node) string {
	now := c.after.Lookup(n.Name())
	if n.Op().IsCollective() {
		switch m, ok := c.place(n); {
		case ok && now != nil:
			return "is a member of a bucket and still there"
		case ok:
			return c.checkMember(n, m)
		}
	}
	if m, ok := c.placeOfWait(n); ok {
		if now == nil && len(n.Results()) > 1 {
			return ""
		}
		if now != nil {
			return checkMemberWait(n, now, m)
		}
	}
	if now == nil {
		return "is gone"
	}
	return c.checkKept(n, now)
}

func isNewBucket(f *ir.Func, n *ir.Node) bool {
	return f.Lookup(n.Name()) == nil && len(n.Meta().Strs(MembersKey)) > 0
}

func (c *orderChecker) checkMember(n *ir.Node, m bucketPlace) string {
	b, names := m.bucket, MemberNames(n)
	if n.Op() != b.Op() || n.Group().Name != b.Group().Name || !sameAttrs(n, m) {
		return fmt.Sprintf("is in bucket %%%s, which is another operation", b.Name())
	}
	for i, a := range n.Args() {
		k := m.k + i
		switch {
		case k >= len(b.Args()) || b.Meta().Strs(MembersKey)[k] != names[i]:
			return fmt.Sprintf("is in bucket %%%s without its operand %d", b.Name(), i)
		case c.name(a) != b.Arg(k).Name():
			return fmt.Sprintf("reads %s, in %%%s it reads %s", a, b.Name(), b.Arg(k))
		case !n.Result(0).Type().Elems()[i].Equal(b.Result(0).Type().Elems()[k]):
			return fmt.Sprintf("has another type in %%%s", b.Name())
		}
	}
	return ""
}

// sameAttrs reports whether a collective and its bucket agree
// in all attributes, and in the sizes of uneven parts at the collective's place.
func sameAttrs(n *ir.Node, m bucketPlace) bool {
	a, b := n.Attrs(), m.bucket.Attrs()
	for _, key := range []string{"in_splits", "out_splits"} {
		own, all := a.Strs(key), b.Strs(key)
		if a.Has(key) != b.Has(key) || a.Has(key) && (m.k+len(own) > len(all) || !slices.Equal(own, all[m.k:m.k+len(own)])) {
			return false
		}
		a, b = a.Without(key), b.Without(key)
	}
	return a.Equal(b)
}

func (c *orderChecker) checkKept(n, now *ir.Node) string {
	switch {
	case n.Op() != now.Op() || !n.Attrs().Equal(now.Attrs()) || !n.Meta().Equal(now.Meta()):
		return "became: " + now.String()
	case (n.Group() == nil) != (now.Group() == nil) || n.Group() != nil && n.Group().Name != now.Group().Name:
		return "changed its group"
	case !slices.EqualFunc(n.DeclaredArgs(), now.DeclaredArgs(), func(a, b *ir.Value) bool { return c.name(a) == b.Name() }):
		return "was rewired to: " + now.String()
	case !slices.EqualFunc(n.DeclaredResults(), now.DeclaredResults(), func(a, b *ir.Value) bool { return a.Type().Equal(b.Type()) }):
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
