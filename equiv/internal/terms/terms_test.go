package terms

import (
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/ir"
)

// table numbers operations on one input x of f32[4,6] in a world of two ranks.
type table struct {
	*Values
	x ValueID
}

func newTable(excess bool) table {
	v := NewValues(2, excess)
	return table{v, v.Number(Value{Op: ir.OpInput, Group: -1, Tag: "0", Type: ir.Tensor(ir.F32, 4, 6), Node: "x"})}
}

func (t table) op(op ir.Op, typ ir.Type, attrs ir.Attrs, args ...ValueID) ValueID {
	return t.Number(Value{Op: op, Group: -1, Attrs: attrs, Type: typ, Args: args, Node: op.Name()})
}

// Equal operations on equal numbers have one number, whatever their nodes are called.
func TestNumbers(t *testing.T) {
	v := newTable(false)
	a := v.op(ir.OpNeg, ir.Tensor(ir.F32, 4, 6), nil, v.x)
	again := v.Number(Value{Op: ir.OpNeg, Group: -1, Type: ir.Tensor(ir.F32, 4, 6), Args: []ValueID{v.x}, Node: "other"})
	if a != again || v.At(a).Node != "neg" {
		t.Errorf("%d and %d, of %%%s", a, again, v.At(a).Node)
	}
	for _, other := range []ValueID{
		v.op(ir.OpNeg, ir.Tensor(ir.BF16, 4, 6), nil, v.x), v.op(ir.OpAbs, ir.Tensor(ir.F32, 4, 6), nil, v.x), v.op(ir.OpNeg, ir.Tensor(ir.F32, 4, 6), nil, a),
		v.Number(Value{Op: ir.OpNeg, Group: -1, Tag: "%1", Type: ir.Tensor(ir.F32, 4, 6), Args: []ValueID{v.x}}),
	} {
		if other == a {
			t.Errorf("%v has the number of another operation", *v.At(other))
		}
	}
	for excess, same := range map[bool]bool{false: false, true: true} {
		v := newTable(excess)
		if wide, narrow := v.op(ir.OpNeg, ir.Tensor(ir.F32, 4, 6), nil, v.x), v.op(ir.OpNeg, ir.Tensor(ir.BF16, 4, 6), nil, v.x); (wide == narrow) != same {
			t.Errorf("excess precision %v: numbers %d and %d", excess, wide, narrow)
		}
	}
}

// Groups that cut the world alike have one number.
func TestGroups(t *testing.T) {
	v := NewValues(4, false)
	a := v.Group(&ir.Group{Name: "a", Ranks: [][]int{{0, 1}, {2, 3}}})
	if b := v.Group(&ir.Group{Name: "b", Ranks: [][]int{{2, 3}, {0, 1}}}); a != b {
		t.Errorf("the same lists in another order: %d and %d", a, b)
	}
	if c := v.Group(&ir.Group{Name: "c", Ranks: [][]int{{1, 0}, {2, 3}}}); a == c || v.Group(nil) != -1 {
		t.Errorf("ranks in another order: %d", c)
	}
}

// Two transposes are one move of nothing, by an equation that is counted; without it they are not.
func TestNormalForm(t *testing.T) {
	for _, without := range [][]string{nil, {"move-of-itself"}} {
		v := newTable(false)
		turned := v.op(ir.OpPermute, ir.Tensor(ir.F32, 6, 4), ir.A("dims", []int64{1, 0}), v.x)
		back := v.op(ir.OpPermute, ir.Tensor(ir.F32, 4, 6), ir.A("dims", []int64{1, 0}), turned)
		z := New(v.Values, false, without)
		if same := z.Norm(back) == z.Norm(v.x); same != (without == nil) || z.Norm(turned) == z.Norm(v.x) {
			t.Errorf("without %v: %s is the input: %v", without, z.Describe(z.Norm(back)), same)
		}
		var used []string
		done := z.Report(func(name string, count int) { used = append(used, name) })
		if done != 3 || slices.Contains(used, "move-of-itself") != (without == nil) {
			t.Errorf("without %v: %d values, by %v", without, done, used)
		}
	}
}

// What no equation makes equal is equal by elements, or said to differ where it does.
func TestEqual(t *testing.T) {
	v := newTable(false)
	small, half := ir.Tensor(ir.F32, 2), ir.A("dim", 0, "end", 2, "start", 0)
	sum := v.op(ir.OpSum, small, ir.A("dims", []int64{1}), v.op(ir.OpSlice, ir.Tensor(ir.F32, 2, 6), half, v.x))
	other := v.op(ir.OpSlice, small, half, v.op(ir.OpSum, ir.Tensor(ir.F32, 4), ir.A("dims", []int64{1}), v.x))
	z := New(v.Values, false, nil)
	if _, _, ok := z.Equal(sum, other); !ok || z.Norm(sum) == z.Norm(other) {
		t.Errorf("some of the rows' sums: %s and %s are not equal by elements", z.Describe(z.Norm(sum)), z.Describe(z.Norm(other)))
	}
	if _, _, ok := New(v.Values, false, []string{"equal-elements"}).Equal(sum, other); ok {
		t.Error("equal without the equation of elements")
	}
	s, u, ok := z.Equal(v.op(ir.OpNeg, small, nil, sum), v.op(ir.OpAbs, small, nil, other))
	if ok || !strings.Contains(z.Describe(s), "%neg") || !strings.Contains(z.Describe(u), "%abs") || !strings.Contains(z.Tried(s, u), "no equation makes them equal") {
		t.Errorf("%v: %s and %s: %s", ok, z.Describe(s), z.Describe(u), z.Tried(s, u))
	}
}

// Integers that are the same everywhere are known through arithmetic.
func TestInteger(t *testing.T) {
	v := newTable(false)
	i := ir.Tensor(ir.I32)
	three := v.op(ir.OpFull, i, ir.A("value", 3))
	for want, id := range map[int64]ValueID{3: three, 6: v.op(ir.OpAdd, i, nil, three, three), 12: v.op(ir.OpMul, i, ir.A("scalar", 4), three)} {
		if got, ok := New(v.Values, false, nil).Integer(id); !ok || got != want {
			t.Errorf("got %d %v, want %d", got, ok, want)
		}
	}
	if n, ok := New(v.Values, false, nil).Integer(v.x); ok {
		t.Errorf("an input is %d", n)
	}
}

// The stages of a sorting network do not make a term of every path through it.
func TestStages(t *testing.T) {
	const n, stages = 64, 24
	v := newTable(false)
	x := v.op(ir.OpInput, ir.Tensor(ir.F32, n), nil)
	for k := range stages {
		inner := int64(1) << (k % 6)
		outer := n / 2 / inner
		part, row := ir.Tensor(ir.F32, outer, inner), ir.Tensor(ir.F32, outer, 1, inner)
		pairs := v.op(ir.OpView, ir.Tensor(ir.F32, outer, 2, inner), nil, x)
		var halves, rows [2]ValueID
		for i := range halves {
			halves[i] = v.op(ir.OpClone, part, nil, v.op(ir.OpSelect, ir.Tensor(ir.F32, outer, inner).WithStrides([]int64{2 * inner, 1}), ir.A("dim", int64(1), "index", int64(i)), pairs))
		}
		less := v.op(ir.OpLt, ir.Tensor(ir.Bool, outer, inner), nil, halves[0], halves[1])
		for i := range rows {
			rows[i] = v.op(ir.OpView, row, nil, v.op(ir.OpWhere, part, nil, less, halves[i], halves[1-i]))
		}
		both := v.op(ir.OpCat, ir.Tensor(ir.F32, outer, 2, inner), ir.A("dim", int64(1)), rows[0], rows[1])
		x = v.op(ir.OpView, ir.Tensor(ir.F32, n), nil, both)
	}
	z := New(v.Values, false, nil)
	z.Norm(x)
	if len(z.terms) > 1<<17 {
		t.Errorf("%d terms of %d values", len(z.terms), x)
	}
}
