package cost

import (
	"fmt"
	"strings"

	"github.com/seed-ee968945/concert/cost/calibration"
	"github.com/seed-ee968945/concert/ir"
)

// TableOf is what a calibration has of collectives, as curves.
func TableOf(c *calibration.File) *Table {
	t := &Table{}
	for _, e := range c.Collectives {
		t.Add(e.Op, e.Impl, e.Ranks, Point{e.Bytes, e.Us})
	}
	return t
}

// Calibrated is the model with what was measured of collectives, which are this runtime's
// if any of those were. A table of the same implementation keeps what was not measured.
func (m *Model) Calibrated(c *calibration.File) *Model {
	out := *m
	t := TableOf(c)
	if len(t.curves) == 0 {
		return &out
	}
	if t.hasImpl(calibration.Own) {
		out.Impl = calibration.Own
	}
	if m.Table != nil && out.Impl == m.Impl {
		t.PerRankMicros = m.Table.PerRankMicros
		for _, c := range m.Table.curves {
			if !t.has(c.op, c.impl, c.ranks) {
				for _, p := range c.points {
					t.Add(c.op, c.impl, c.ranks, p)
				}
			}
		}
	}
	out.Table = t
	return &out
}

// Launch says which nodes of a function one instruction of its program does.
type Launch struct {
	Key   string   // of the instruction
	Nodes []string // by name
}

// Apply gives the nodes of f the costs that were measured. Collectives get theirs by
// the curves. The nodes of a launch of which something was measured share its time in
// proportion to what they cost so far. launches may be empty: they are known only once
// f was lowered, and a program made with these costs may have others. Other nodes of
// class compute get the time of an instruction that does the same on whatever layout,
// others MemoryScale times what they cost so far, or without a cost base says. Nodes
// of which nothing was measured keep their cost. Late instructions do not count. Nodes that
// have got a cost are entered into from, unless it is nil.
func Apply(c *calibration.File, f *ir.Func, base *Model, launches []Launch, from map[*ir.Node]Source) {
	set := func(n *ir.Node, ms float64) {
		f.SetCost(n, ms)
		if from != nil {
			from[n] = Calibrated
		}
	}
	done := share(c, f, base, launches, set)
	loose := map[string]float64{}
	for _, e := range c.Instructions {
		if e.Late {
			continue
		}
		k := withoutStrides(e.Key)
		if us, ok := loose[k]; !ok || e.Us < us {
			loose[k] = e.Us
		}
	}
	model := base.Calibrated(c)
	for _, n := range f.Order() {
		if done[n] {
			continue
		}
		switch n.Op().Class() {
		case ir.ClassCollective:
			if model.Impl != calibration.Own {
				continue
			}
			if ms, from := model.unscaled(n.Op(), n.Group(), CommBytes(n), false); from == Tabled {
				set(n, ms)
			}
		case ir.ClassCompute:
			if us, ok := loose[nodeKey(n)]; ok {
				set(n, us/1e3)
			}
		case ir.ClassMemory:
			if ms, ok := base.NodeMs(n); ok && c.MemoryScale > 0 && len(launches) == 0 {
				set(n, ms*c.MemoryScale)
			}
		}
	}
}

// share spreads the times of launches over their nodes, and reports which have theirs.
func share(c *calibration.File, f *ir.Func, base *Model, launches []Launch, set func(*ir.Node, float64)) map[*ir.Node]bool {
	done := map[*ir.Node]bool{}
	for _, l := range launches {
		us, ok := c.Timed(l.Key)
		if !ok {
			continue
		}
		var nodes []*ir.Node
		var costs []float64
		sum := 0.0
		for _, name := range l.Nodes {
			n := f.Lookup(name)
			if n == nil || done[n] || n.Op().IsCollective() {
				continue
			}
			if c := n.Op().Class(); c != ir.ClassCompute && c != ir.ClassMemory {
				continue
			}
			ms, _ := base.NodeMs(n)
			nodes, costs, sum = append(nodes, n), append(costs, ms), sum+ms
		}
		for i, n := range nodes {
			part := 1 / float64(len(nodes))
			if sum > 0 {
				part = costs[i] / sum
			}
			set(n, us/1e3*part)
			done[n] = true
		}
	}
	return done
}

// nodeKey is the key of a node's launch, without strides.
func nodeKey(n *ir.Node) string {
	mod := n.Func().Module()
	var b strings.Builder
	b.WriteString(n.Op().Name())
	if text := n.Attrs().String(); text != "" {
		b.WriteByte(' ')
		b.WriteString(text)
	}
	add := func(t ir.Type) {
		fmt.Fprintf(&b, " %v[", t.DType())
		for i, d := range t.Shape() {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprint(&b, mod.Hint(d))
		}
		b.WriteByte(']')
	}
	for _, a := range n.DeclaredArgs() {
		add(a.Type())
	}
	b.WriteString(" ->")
	for _, r := range n.DeclaredResults() {
		add(r.Type())
	}
	return b.String()
}

// withoutStrides drops ":strides" from the types of a key.
func withoutStrides(key string) string {
	var b strings.Builder
	skip := false
	for _, c := range key {
		switch {
		case c == ':':
			skip = true
		case c == ']':
			skip = false
		}
		if !skip {
			b.WriteRune(c)
		}
	}
	return b.String()
}
