package cost

import (
	"github.com/seed-ee968945/concert/ir"
)

// Model gives costs to a whole graph: attached costs first, then the table, then
// the machine's formulas. The zero Model knows attached costs only.
type Model struct {
	Table   *Table   // measured collectives, or nil
	Impl    string   // which implementation's rows of the table; "nccl" if empty
	Machine *Machine // formulas for what has no measurement, or nil

	// Stretch multiplies the cost of communication that cannot be hidden for
	// free: compute and copies beside a collective slow each other down. 1 or 0
	// means no contention. Simulators apply it to overlapped time only.
	Stretch float64
}

// Arena is the model by which schedules of the shared graphs are compared:
// attached costs, and NCCL on H200s for buckets.
func Arena() *Model { return &Model{Table: H200()} }

// Default is the model where nothing else is given: attached costs, NCCL as measured on
// H200s, and an H200's formulas for everything else.
func Default() *Model {
	return &Model{Table: H200(), Machine: machines()["h200"]}
}

// NodeMs is the cost of a node on the compute stream, or of a collective with an
// attached cost, in milliseconds; false if nothing knows it.
func (m *Model) NodeMs(n *ir.Node) (float64, bool) {
	if ms, ok := n.Cost(); ok {
		return ms, true
	}
	if n.Op().IsCollective() {
		return m.CommMs(n.Op(), n.Group(), n.Reduction(), CommBytes(n))
	}
	if m.Machine != nil {
		ms, ok := m.Machine.NodeMs(n)
		return min(ms, ir.MaxCost), ok
	}
	switch n.Op().Class() {
	case ir.ClassInput, ir.ClassOutput, ir.ClassView, ir.ClassWait:
		return 0, true
	}
	return 0, false
}

// CommMs is the cost of a collective of that many bytes on a group. The
// reduction does not matter: all of them are bound by the links.
func (m *Model) CommMs(op ir.Op, g *ir.Group, _ ir.Reduction, size int64) (float64, bool) {
	if g == nil {
		return 0, false
	}
	return m.CommMsOf(op, g.Size(), size)
}

// CommMsOf is CommMs by group size. Costs end at ir.MaxCost, as those of nodes do.
func (m *Model) CommMsOf(op ir.Op, ranks int, size int64) (float64, bool) {
	if m.Table != nil {
		impl := m.Impl
		if impl == "" {
			impl = "nccl"
		}
		if us, ok := m.Table.Micros(op.Name(), impl, ranks, size); ok {
			return min(us/1e3, ir.MaxCost), true
		}
	}
	if m.Machine != nil {
		ms, ok := m.Machine.CommMs(op, ranks, size)
		return min(ms, ir.MaxCost), ok
	}
	return 0, false
}

// PriceCollectives attaches to the collectives of f what the model says of them, in the
// place of what was attached. Those that it does not know keep their cost.
func (m *Model) PriceCollectives(f *ir.Func) {
	for _, n := range f.Order() {
		if n.Op().IsCollective() && n.Group().Size() > 1 {
			if ms, ok := m.CommMs(n.Op(), n.Group(), n.Reduction(), CommBytes(n)); ok {
				f.SetCost(n, ms)
			}
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
