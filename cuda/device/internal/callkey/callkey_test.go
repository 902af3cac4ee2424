package callkey

import (
	"bytes"
	"testing"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/program"
	rt "github.com/seed-ee968945/concert/runtime"
)

func scatter(change func(c *rt.Collective)) *rt.Collective {
	c := &rt.Collective{Op: rt.ReduceScatter, Group: "g", Reduce: "sum", Ins: []rt.Tensor{rt.C(0, dtype.F32, 8, 4)}, Outs: []rt.Tensor{rt.C(512, dtype.F32, 4, 4)}}
	change(c)
	return c
}

// A key differs with everything that a plan depends on; ranks compare what must be the same on all.
func TestCollective(t *testing.T) {
	same := scatter(func(*rt.Collective) {})
	for _, c := range []struct {
		name     string
		change   func(c *rt.Collective)
		compared bool // ranks that differ in it cannot communicate
	}{
		{"reduction", func(c *rt.Collective) { c.Reduce = "max" }, true},
		{"dimension", func(c *rt.Collective) { c.Dim = 1 }, true},
		{"shape", func(c *rt.Collective) { c.Ins[0].Shape = []int64{16, 2} }, true},
		{"place", func(c *rt.Collective) { c.Outs[0].Off = 1024 }, true},
		{"strides", func(c *rt.Collective) { c.Ins[0].Strides = []int64{1, 8} }, true},
		{"name in the program", func(c *rt.Collective) { c.Label = "x" }, false},
	} {
		other := scatter(c.change)
		if bytes.Equal(Collective(nil, same, 0, nil), Collective(nil, other, 0, nil)) {
			t.Errorf("another %s has the same key", c.name)
		}
		if equal := bytes.Equal(Compared(nil, same, nil), Compared(nil, other, nil)); equal == c.compared {
			t.Errorf("another %s compares equal: %v", c.name, equal)
		}
	}
	if bytes.Equal(Compared(nil, same, nil), Compared(nil, same, []program.Kind{program.Loop})) {
		t.Error("a collective in a loop compares equal to one outside")
	}
	if bytes.Equal(Collective(nil, same, 0, nil), Collective(nil, same, 1, nil)) {
		t.Error("another part of staging has the same key")
	}
}

// Ranks of several stages have operands at places of their own, and ranks of an all_to_all with splits
// rows of their own number.
func TestComparedAcross(t *testing.T) {
	moved := func(c *rt.Collective) { c.CrossStage, c.Outs[0].Off = true, 1024 }
	if !bytes.Equal(Compared(nil, scatter(func(c *rt.Collective) { c.CrossStage = true }), nil), Compared(nil, scatter(moved), nil)) {
		t.Error("offsets of several stages are compared")
	}
	rows := func(n int64) *rt.Collective {
		return scatter(func(c *rt.Collective) {
			c.Op, c.InSplits, c.Ins[0].Shape = rt.AllToAll, [][]int64{{1, n}}, []int64{n, 4}
		})
	}
	if !bytes.Equal(Compared(nil, rows(3), nil), Compared(nil, rows(5), nil)) {
		t.Error("numbers of rows are compared")
	}
}
