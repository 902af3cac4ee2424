package ir

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// checkLinks verifies the equations stated at the fields of Node, Value and Func.
func checkLinks(t *testing.T, f *Func) {
	t.Helper()
	uses := 0
	for i, n := range f.Order() {
		if n.At() != i || f.NodeByID(n.id) != n || f.Lookup(n.name) != n {
			t.Fatalf("%s: position %d, want %d, or not found by id or name", n.name, n.At(), i)
		}
		for j, v := range n.args {
			if u := v.uses[n.argUse[j]]; u.Node != n || u.Index != j {
				t.Fatalf("use of operand %d of %s is %v", j, n.name, u)
			}
			uses++
		}
		for j, v := range n.results {
			if v.def != n || int(v.index) != j || f.values[v.id] != v {
				t.Fatalf("result %d of %s is not linked", j, n.name)
			}
			uses -= len(v.uses)
		}
	}
	if uses != 0 {
		t.Fatalf("operands minus uses = %d", uses)
	}
}

// Random edits keep every link, on the function and on its clone.
func TestEditsKeepLinks(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := NewModule(1)
		f := m.AddFunc("f")
		typ := Tensor(F32, 4)
		f.Append(NodeSpec{Op: OpInput, Name: "x", Results: []Type{typ}})
		f.Append(NodeSpec{Op: OpReturn})
		for range 300 {
			order := f.Order()
			pick := func() *Node { return order[r.IntN(len(order))] }
			n := pick()
			switch k := r.IntN(7); {
			case k < 3:
				at := 1 + r.IntN(len(order)-1)
				a := order[r.IntN(at)].results
				if len(a) == 1 {
					f.InsertBefore(order[at], NodeSpec{Op: OpAdd, Args: []*Value{a[0], a[0]}, Results: []Type{typ}})
				}
			case k == 3 && n.op == OpAdd && len(n.results[0].uses) == 0:
				f.Remove(n)
			case k == 4 && n.op == OpAdd:
				f.SetArg(n, r.IntN(len(n.args)), order[r.IntN(n.At())].results[0])
			case k == 5 && n.op == OpAdd:
				f.ReplaceUses(n.results[0], n.args[0])
			case k == 6 && n.op == OpAdd:
				f.Rename(n, "add")
			}
			checkLinks(t, f)
		}
		if err := m.Verify(); err != nil {
			t.Fatal(err)
		}
		c := m.Clone()
		checkLinks(t, c.Funcs()[0])
		if c.String() != m.String() {
			t.Fatal("the clone prints differently")
		}
	}
}

func TestSetOrder(t *testing.T) {
	m, err := Parse("t.ir", chain(13))
	if err != nil {
		t.Fatal(err)
	}
	f := m.Funcs()[0]
	before := m.String()
	order := append([]*Node(nil), f.Order()...)
	order[3] = order[2]
	if err := f.SetOrder(order); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a repeated node: %v", err)
	}
	if err := f.SetOrder(order[:4:4][:2]); err == nil {
		t.Error("a short order is accepted")
	}
	if m.String() != before {
		t.Error("a rejected order changed the function")
	}
	good := append([]*Node(nil), f.Order()...)
	good[2], good[3] = good[3], good[2]
	if err := f.SetOrder(good); err != nil {
		t.Fatal(err)
	}
	checkLinks(t, f)
	f.MoveBefore(good[2], good[4])
	f.MoveAfter(good[5], good[2])
	checkLinks(t, f)
}

// What passes make names what it was made from, through copies of copies, removals and
// clones of the module; the caller's objects come along, also those that cannot be compared.
func TestSources(t *testing.T) {
	m := NewModule(1)
	f := m.AddFunc("f")
	typ := Tensor(F32, 4)
	x := f.Append(NodeSpec{Op: OpInput, Name: "x", Results: []Type{typ}})
	one := []int{1}
	a := f.Append(NodeSpec{Op: OpNeg, Name: "a", Args: []*Value{x.Result(0)}, Results: []Type{typ}, Origin: one})
	b := f.Append(NodeSpec{Op: OpNeg, Name: "b", Args: []*Value{x.Result(0)}, Results: []Type{typ}, Origin: "b"})
	again := f.Append(NodeSpec{Op: OpNeg, Name: "a", Args: []*Value{x.Result(0)}, Results: []Type{typ}, From: []*Node{a}})
	both := f.Append(NodeSpec{Op: OpAdd, Args: []*Value{x.Result(0), x.Result(0)}, Results: []Type{typ}, From: []*Node{again, b}})
	ids := []NodeID{a.ID(), b.ID()}
	f.Derive(both, a, both) // says nothing new
	f.Remove(a)
	c := m.Clone().Func("f").NodeByID(both.ID())
	if got := c.Sources(); !slices.Equal(got, ids) {
		t.Errorf("sources %v, want %v", got, ids)
	}
	if got := c.Origins(); len(got) != 2 || &got[0].([]int)[0] != &one[0] || got[1] != "b" {
		t.Errorf("origins %v", got)
	}
	if x.Sources() != nil || len(x.Origins()) != 0 {
		t.Errorf("an input was made from %v, %v", x.Sources(), x.Origins())
	}
	g := m.AddFunc("g")
	if n := g.Append(NodeSpec{Op: OpInput, Results: []Type{typ}, From: []*Node{b}}); n.Sources() != nil || n.Origins()[0] != "b" {
		t.Errorf("in another function: sources %v, origins %v", n.Sources(), n.Origins())
	}
}
