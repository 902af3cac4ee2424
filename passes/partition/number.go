package partition

import (
	"strconv"

	"github.com/seed-ee968945/concert/ir"
)

// numbering gives equal numbers to values that are equal by construction: the
// same pure operation on values of equal numbers. Results of operations with
// effects are equal to nothing else.
type numbering struct {
	of   []int32          // ValueID -> number
	seen map[string]int32 // look-up only
	next int32
	buf  []byte
}

// numberValues numbers the values of a joint function. O(size of the text).
func numberValues(j *jointFunc) *numbering {
	g := &numbering{of: make([]int32, j.f.NumValueIDs()), seen: map[string]int32{}}
	for _, n := range j.f.Order() {
		pure := n.Pure() && n.Op().Class() != ir.ClassWait && n.Op() != ir.OpInput
		if u := j.unitOf[n.ID()]; pure && u >= 0 {
			pure = !j.units[u].overrun && len(j.units[u].after) == 0
		}
		if !pure {
			for _, v := range n.Results() {
				g.of[v.ID()] = g.fresh()
			}
			continue
		}
		key := g.nodeKey(n)
		first, ok := g.seen[key]
		if !ok {
			first = g.next
			g.seen[key] = first
			g.next += int32(len(n.Results()))
		}
		for k, v := range n.Results() {
			g.of[v.ID()] = first + int32(k)
		}
	}
	return g
}

func (g *numbering) fresh() int32 {
	g.next++
	return g.next - 1
}

// nodeKey is a text that two nodes share exactly if they do the same to equal operands.
func (g *numbering) nodeKey(n *ir.Node) string {
	b := append(g.buf[:0], n.Op().Name()...)
	for _, a := range n.Args() {
		b = append(b, ' ')
		b = strconv.AppendInt(b, int64(g.of[a.ID()]), 10)
	}
	if n.Group() != nil {
		b = append(b, '@')
		b = strconv.AppendInt(b, int64(n.Group().Index()), 10)
	}
	b = n.Attrs().AppendText(b)
	for _, v := range n.Results() {
		b = append(b, ' ')
		b = append(b, v.Type().String()...)
	}
	g.buf = b
	return string(b)
}
