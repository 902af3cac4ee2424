package placement

import (
	"fmt"
	"testing"

	"github.com/seed-ee968945/concert/ir"
)

// TestOrder wants the prime factors of an axis in the order that groups and placements need.
func TestOrder(t *testing.T) {
	pairs := [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}}
	thirds := [][]int{{0, 4, 8}, {1, 5, 9}, {2, 6, 10}, {3, 7, 11}}
	for _, c := range []struct {
		groups [][][]int
		part   string
		want   string
	}{
		{nil, "", "[2 2 3]"},
		{[][][]int{pairs, thirds}, "", "[3 2 2]"},
		{[][][]int{pairs}, "", "[2 3 2]"},
		{nil, "x:(2)3", "[2 3 2]"},
		{nil, "x:(3)4", "[3 2 2]"},
		{[][][]int{pairs}, "x:(3)2", "[3 2 2]"},
	} {
		m := ir.NewModule(12)
		for i, l := range c.groups {
			m.AddGroup(fmt.Sprint("g", i), l)
		}
		var at []Placement
		if c.part != "" {
			at = append(at, Placement{{c.part}})
		}
		g, err := Mesh{Axes: []Axis{{"x", 12}}}.GridFor(m.Groups(), at...)
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, a := range g.Atoms {
			got = append(got, a.Size)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%v %s: %v, want %s", c.groups, c.part, got, c.want)
		}
		for _, of := range m.Groups() {
			if _, ok := g.Group(of); !ok {
				t.Errorf("group %v does not run along %v", of.Ranks, got)
			}
		}
	}
}
