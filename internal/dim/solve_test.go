package dim

import (
	"fmt"
	"maps"
	"testing"
)

func TestSolveEquations(t *testing.T) {
	for _, c := range []struct {
		sizes  []string
		values []int64
		want   string // values, and the equations that gave them
	}{
		{[]string{"a*b", "2*b+1"}, []int64{6, 7}, "map[a:2 b:3] map[a:0 b:1]"},
		{[]string{"2*a", "a"}, []int64{6, 4}, "map[a:4] map[a:1]"}, // a alone counts, whatever the other says
		{[]string{"a*b*c", "b*c", "c"}, []int64{24, 6, 3}, "map[a:4 b:2 c:3] map[a:0 b:1 c:2]"},
		{[]string{"a+b"}, []int64{5}, "map[] map[]"},
		{[]string{"a+k", "k*r"}, []int64{12, 20}, "map[a:2] map[a:0]"}, // k is given, r not wanted
		{[]string{"2*a", "4*a"}, []int64{5, 8}, "map[a:2] map[a:1]"},
	} {
		var equations []Equation
		for i, s := range c.sizes {
			d, err := Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			equations = append(equations, Equation{d, c.values[i]})
		}
		values := map[string]int64{"k": 10}
		by := Solve(equations, []string{"a", "b", "c", "k"}, values)
		if values["k"] != 10 {
			t.Errorf("%v: a given value changed to %d", c.sizes, values["k"])
		}
		maps.DeleteFunc(values, func(s string, _ int64) bool { return s == "k" })
		if got := fmt.Sprint(values, by); got != c.want {
			t.Errorf("%v are %v: %s, want %s", c.sizes, c.values, got, c.want)
		}
	}
}
