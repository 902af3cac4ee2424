package layout

import (
	"fmt"
	"testing"
)

// elements are where a layout takes its elements from on a rank.
func elements(l *Layout, r int) (out []string) {
	l.Each(r, func(rank int32, at int64) { out = append(out, fmt.Sprint(rank, ":", at)) })
	return out
}

// What is put together has the elements of its parts, block by block.
func TestJoin(t *testing.T) {
	const world = 2
	plain := func(off int64, digits ...Digit) Layout {
		l, ok := Plain(digits, off)
		if !ok {
			t.Fatalf("%v", digits)
		}
		return l
	}
	for _, c := range []struct {
		name  string
		parts []Layout
		outer int64
	}{
		{"rows", []Layout{plain(0, Digit{N: 3, Stride: 4}, Digit{N: 4, Stride: 1}), plain(12, Digit{N: 2, Stride: 4}, Digit{N: 4, Stride: 1})}, 1},
		{"columns", []Layout{plain(0, Digit{N: 3, Stride: 4}, Digit{N: 1, Stride: 1}), plain(1, Digit{N: 3, Stride: 4}, Digit{N: 3, Stride: 1})}, 3},
		{"rows in another order", []Layout{plain(12, Digit{N: 2, Stride: 4}, Digit{N: 4, Stride: 1}), plain(0, Digit{N: 3, Stride: 4}, Digit{N: 4, Stride: 1})}, 1},
	} {
		whole, ok := Join(c.parts, c.outer, world)
		if !ok {
			t.Errorf("%s: they are not put together", c.name)
			continue
		}
		for r := range world {
			var want []string
			for o := range int(c.outer) {
				for i := range c.parts {
					all := elements(&c.parts[i], r)
					n := len(all) / int(c.outer)
					want = append(want, all[o*n:(o+1)*n]...)
				}
			}
			if got := elements(&whole, r); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s, rank %d: %v, want %v", c.name, r, got, want)
			}
		}
	}
}
