package cost

import (
	"sync"

	"github.com/seed-ee968945/concert/ir"
)

// Model gives costs to a whole graph: attached costs first, then the table, then
// the machine's formulas. The zero Model knows attached costs only.
type Model struct {
	Table   *Table   // measured collectives, or nil
	Impl    string   // which implementation's rows of the table; "nccl" if empty
	Machine *Machine // formulas for what has no measurement, or nil

	fitted map[fitKey]*fit // see ScaledTo
	spans  *sync.Map       // of groups, by where their ranks are: *[]int to Span; see ScaledTo
}

// TracedH200 is the model of graphs traced on H200s: attached costs, and NCCL as measured
// there for buckets. It has no formulas for other nodes.
func TracedH200() *Model { return &Model{Table: H200()} }

// Default is the model where nothing else is given: attached costs, NCCL as measured on
// H200s, and an H200's formulas for everything else.
func Default() *Model {
	return &Model{Table: H200(), Machine: machines()["h200"]}
}

// Source says where a cost comes from.
type Source uint8

// The sources, in order of precedence.
const (
	Unknown    Source = iota // nothing knows it; it counts as 0
	Attached                 // to the node, in the graph
	Calibrated               // measured by a calibration
	Tabled                   // a table of collectives
	Modelled                 // the machine's formulas
)

// String is the source as printed.
func (s Source) String() string {
	return [...]string{"unknown", "attached", "calibration", "table", "formula"}[s]
}

// NodeMs is the cost of a node on the compute stream, or of a collective with an
// attached cost, in milliseconds; false if nothing knows it.
func (m *Model) NodeMs(n *ir.Node) (float64, bool) {
	ms, from := m.CostOf(n)
	return ms, from != Unknown
}

// CostOf is NodeMs with the source of the cost. Inputs, views, waits and the return cost
// nothing by formula.
func (m *Model) CostOf(n *ir.Node) (float64, Source) {
	if ms, ok := n.Cost(); ok {
		return ms, Attached
	}
	return m.modelled(n)
}

// modelled is what the model says without attached costs.
func (m *Model) modelled(n *ir.Node) (float64, Source) {
	if n.Op().IsCollective() {
		return m.comm(n.Op(), n.Group(), CommBytes(n))
	}
	if n.Op().Info().Bodies != nil {
		return m.bodies(n)
	}
	if m.Machine != nil {
		if ms, ok := m.Machine.NodeMs(n); ok {
			return min(ms, ir.MaxCost), Modelled
		}
		return 0, Unknown
	}
	switch n.Op().Class() {
	case ir.ClassInput, ir.ClassOutput, ir.ClassView, ir.ClassWait:
		return 0, Modelled
	}
	return 0, Unknown
}

// bodies is what the bodies of a node take, one operation after the other: those of a while as
// often as it says, of a case the branch that takes longest.
func (m *Model) bodies(n *ir.Node) (float64, Source) {
	total := 0.0
	for _, b := range n.Bodies() {
		if b == nil { // the node was copied to a module without it
			return 0, Unknown
		}
		ms := 0.0
		for _, o := range b.Order() {
			one, from := m.CostOf(o)
			if from == Unknown {
				return 0, Unknown
			}
			ms += one
		}
		if n.Op() == ir.OpCase {
			total = max(total, ms)
		} else {
			total += ms * float64(max(n.Attrs().Int("trips", 1), 1))
		}
	}
	return min(total, ir.MaxCost), Modelled
}

// CommMs is the cost, in milliseconds, of a collective of that many bytes (CommBytes) on a
// group; false if nothing knows it. The reduction does not matter: all of them are bound by
// the links. Costs end at ir.MaxCost, as those of nodes do.
func (m *Model) CommMs(op ir.Op, g *ir.Group, _ ir.Reduction, size int64) (float64, bool) {
	ms, from := m.comm(op, g, size)
	return ms, from != Unknown
}

// DomainSize is the number of ranks of the machine's NVLink domains, 0 without a machine.
func (m *Model) DomainSize() int {
	if m.Machine == nil {
		return 0
	}
	return m.Machine.DomainSize()
}

// comm is CommMs with the source, on the scale of what a module's collectives cost.
func (m *Model) comm(op ir.Op, g *ir.Group, size int64) (float64, Source) {
	switch {
	case g == nil:
		return 0, Unknown
	case g.Size() <= 1:
		return 0, Modelled
	}
	f := m.fitOf(op, g)
	ms, from := m.unscaled(op, g, size, f.matchesTable())
	return min(ms*f.at(size), ir.MaxCost), from
}

// unscaled is what the table or the machine says. A table is of one NVLink domain, unless
// it has groups that fit into none; anywhere takes it for all groups.
func (m *Model) unscaled(op ir.Op, g *ir.Group, size int64, anywhere bool) (float64, Source) {
	span := Span{Ranks: g.Size(), Domains: 1}
	if m.Machine != nil {
		span = m.span(g)
	}
	tabled := func() (float64, Source) {
		if m.Table != nil {
			if us, ok := m.Table.Micros(op.Name(), m.impl(), span.Ranks, size); ok {
				return us / 1e3, Tabled
			}
		}
		return 0, Unknown
	}
	wide := m.Machine != nil && m.Table != nil && span.Ranks > m.Machine.DomainSize() && m.Table.has(op.Name(), m.impl(), span.Ranks)
	if anywhere || wide || span.Domains <= 1 {
		if ms, from := tabled(); from != Unknown {
			return ms, from
		}
	}
	if m.Machine != nil {
		if ms, ok := m.Machine.CommMs(op, span, size); ok {
			return ms, Modelled
		}
	}
	return tabled()
}

// span is where the ranks of a group are. Thousands of collectives share a group of thousands of
// ranks, and passes make groups: a fitted model looks once at each. Copies of a module share the
// lists of ranks, and a list that is a key stays where it is.
func (m *Model) span(g *ir.Group) Span {
	if m.spans == nil {
		return m.Machine.Span(g.Ranks)
	}
	if known, ok := m.spans.Load(&g.Ranks[0]); ok {
		return known.(Span)
	}
	s := m.Machine.Span(g.Ranks)
	m.spans.Store(&g.Ranks[0], s)
	return s
}

// impl is whose rows of the table count.
func (m *Model) impl() string {
	if m.Impl == "" {
		return "nccl"
	}
	return m.Impl
}

// Reprice attaches to the nodes of f what the model says of them, in place of what was
// attached: to collectives only, or to all. Those that it does not know keep their cost;
// the others are entered into from.
func (m *Model) Reprice(f *ir.Func, all bool, from map[*ir.Node]Source) {
	for _, n := range f.Order() {
		if _, attached := n.Cost(); !attached || !n.Op().IsCollective() && !all {
			continue
		}
		if ms, source := m.modelled(n); source != Unknown {
			f.SetCost(n, ms)
			from[n] = source
		}
	}
}

// CommBytes is the size by which a collective is costed: the sum over its
// members of the larger of operand and result, in bytes, symbols at their hints.
func CommBytes(n *ir.Node) int64 {
	mod := n.Func().Module()
	total := int64(0)
	for i, t := range n.Result(0).Type().Tensors() {
		size := mod.Hint(t.Bytes())
		if i < len(n.Args()) {
			size = max(size, mod.Hint(n.Arg(i).Type().Bytes()))
		}
		total += size
	}
	return total
}
