// Package memory proves that every value is read before its memory is overwritten.
package memory

import (
	"fmt"
	"slices"
	"sort"

	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/ir"
)

// The annotations by which passes say where values lie; package place documents them.
const (
	inPlaceKey       = "inplace"
	offsetKey        = "offset"
	operandOffsetKey = "operand_offset"
	homeKey          = "home"
	regionKey        = "fusion"
)

// Check proves that every read of a function finds what was written for it: bytes
// are given to whoever writes them, in program order, and a read needs all of its
// bytes to belong to its storage still. What a collective has in flight, operands and
// results, must be untouched at its wait. Offsets are those of plan-memory; without any,
// storages lie apart but for those in place of operands, so that reuse alone is proved.
// The error is an *equiv.Error. O(n log n) but for moving the entries of live bytes.
func Check(f *ir.Func) error {
	st, err := ir.ComputeStorages(f)
	if err != nil {
		return nil // nothing is placed where offsets depend on symbols
	}
	m := &memory{f: f, st: st, at: make([]int64, st.Len()), size: make([]int64, st.Len()), launches: launches(f), flights: map[*ir.Node][]span{}}
	m.place()
	for _, nodes := range m.launches {
		m.launch(nodes)
	}
	if m.findings != nil {
		return &equiv.Error{Findings: m.findings}
	}
	return nil
}

// launches lists what runs at once, in order: regions, and nodes that belong to none.
func launches(f *ir.Func) [][]*ir.Node {
	var out [][]*ir.Node
	for _, n := range f.Order() {
		last := len(out) - 1
		if last >= 0 && inRegion(n) && inRegion(out[last][0]) && n.Meta().Int(regionKey, -1) == out[last][0].Meta().Int(regionKey, -1) {
			out[last] = append(out[last], n)
		} else {
			out = append(out, []*ir.Node{n})
		}
	}
	return out
}

func inRegion(n *ir.Node) bool { return n.Meta().Has(regionKey) }

// memory is the state of one Check.
type memory struct {
	f        *ir.Func
	st       *ir.Storages
	at, size []int64 // by storage, in bytes; at is -1 where it has none
	planned  bool
	launches [][]*ir.Node
	owned    []span // sorted, apart from each other
	flights  map[*ir.Node][]span
	findings []equiv.Finding
}

// span is a range of bytes and whose they are.
type span struct {
	lo, hi int64
	owner  int64 // a storage, or -1 - a number of a copy
}

func (m *memory) fail(n *ir.Node, format string, args ...any) {
	if len(m.findings) < equiv.MaxFindings {
		m.findings = append(m.findings, equiv.Finding{Func: m.f.Name, What: "memory", After: n.String(), Rule: fmt.Sprintf(format, args...)})
	}
}

// place finds where storages lie.
func (m *memory) place() {
	for _, n := range m.f.Order() {
		m.planned = m.planned || n.Meta().Has(offsetKey)
	}
	next := int64(0)
	for s := range m.at {
		root, k := m.st.Root(ir.StorageID(s))
		n, tensor := root.Def(), k
		for _, r := range n.Results()[:root.Index()] {
			tensor += len(r.Type().Tensors())
		}
		m.size[s] = m.f.Module().Bound(m.st.Type(ir.StorageID(s)).Extent())
		list, in := n.Meta().Ints(offsetKey), n.Meta().Ints(inPlaceKey)
		switch {
		case tensor < len(in) && in[tensor] >= 0:
			m.at[s] = m.inPlace(n, tensor, int(in[tensor]))
		case tensor < len(n.Meta().Ints(homeKey)) && n.Meta().Ints(homeKey)[tensor] >= 0:
			m.at[s] = m.home(n, ir.StorageID(s), int(n.Meta().Ints(homeKey)[tensor]))
		case !m.planned:
			m.at[s] = next
			next += m.size[s]
		case tensor < len(list):
			m.at[s] = list[tensor]
		default:
			m.at[s] = -1
		}
	}
}

// reads are the values from outside that the launch of nodes reads, in order of first
// reading.
func (m *memory) reads(nodes []*ir.Node) []*ir.Value {
	var out []*ir.Value
	seen := map[*ir.Value]bool{} // look-up only
	first, last := nodes[0].At(), nodes[len(nodes)-1].At()
	for _, n := range nodes {
		if n.Op().IsView() {
			continue
		}
		for _, v := range n.DeclaredArgs() {
			if seen[v] {
				continue
			}
			seen[v] = true
			if root, _ := m.st.Root(m.st.Of(v)[0].Storage); len(nodes) == 1 || root.Def().At() < first || root.Def().At() > last {
				out = append(out, v)
			}
		}
	}
	return out
}

// launchOf is the launch that n belongs to.
func (m *memory) launchOf(n *ir.Node) []*ir.Node {
	i := sort.Search(len(m.launches), func(i int) bool { return m.launches[i][0].At() > n.At() })
	return m.launches[i-1]
}

// inPlace is where a result lies that takes over an operand, and judges whether its
// operation may.
func (m *memory) inPlace(n *ir.Node, tensor, operand int) int64 {
	nodes, ops := m.launchOf(n), n.DeclaredArgs()
	if inRegion(n) {
		ops = m.reads(nodes)
	}
	if operand >= len(ops) {
		m.fail(n, "there is no operand %d to lie in place of", operand)
		return -1
	}
	v := ops[operand]
	p := m.st.Of(v)[0]
	root, _ := m.st.Root(p.Storage)
	var t ir.Type
	var own ir.StorageID
	k := tensor
	for _, v := range n.DeclaredResults() {
		ts := v.Type().Tensors()
		if k >= 0 && k < len(ts) {
			t, own = ts[k], m.st.Of(v)[k].Storage
		}
		k -= len(ts)
	}
	switch d := root.Def(); {
	case !t.Equal(v.Type()):
		m.fail(n, "a result of type %s lies in place of %s, %s", t, v, v.Type())
	case d.Op() == ir.OpInput && (m.kept(d) || root.Type().IsAsync()) && !m.donated(d, own):
		m.fail(n, "a result lies in place of %s, which belongs to the caller", v)
	case n.Op() == ir.OpWhile && tensor == operand: // the first iteration begins with it
	case n.Op().IsCollective() && (tensor != operand || n.Op() != ir.OpAllReduce && n.Op() != ir.OpBroadcast),
		!n.Op().IsCollective() && !m.elementwise(nodes, n, v) && (inRegion(n) || !rowwise(n.Op(), operand)):
		m.fail(n, "%s does not work in place of operand %d, %s", n.Op(), operand, v)
	}
	for i, w := range ops {
		if q := m.st.Of(w)[0]; i != operand && !w.Type().IsAsync() && q.Storage == p.Storage && !(q.Offset == p.Offset && w.Type().Equal(v.Type()) && n.Op().Info().Elementwise && !inRegion(n)) {
			m.fail(n, "a result lies in place of %s, which shares its storage with operand %s", v, w)
		}
	}
	return m.at[p.Storage] + p.Offset*int64(v.Type().DType().Size())
}

// home is where a result lies that takes the place of a donated input.
func (m *memory) home(n *ir.Node, s ir.StorageID, input int) int64 {
	inputs := m.f.Inputs()
	if input >= len(inputs) || !m.donated(inputs[input], s) {
		m.fail(n, "input %d is not donated to it", input)
		return -1
	}
	return m.at[m.st.Of(inputs[input].Result(0))[0].Storage]
}

// donated reports whether what is in a storage at the end is the result that an input is
// donated to, and nothing else.
func (m *memory) donated(in *ir.Node, s ir.StorageID) bool {
	for _, d := range m.f.Donations() {
		if d.Input == in {
			return m.st.Of(m.f.Return().Arg(d.Result))[0].Storage == s && m.st.Type(s).Equal(in.Result(0).Type())
		}
	}
	return false
}

// kept reports whether an input has to be there at the end.
func (m *memory) kept(in *ir.Node) bool {
	return in.Role() != ir.RoleSaved && in.Role() != ir.RoleTangent && !in.Result(0).Type().IsAsync()
}

// rowwise reports whether an operation reads a row before it writes it, or changes a part
// of its operand.
func rowwise(op ir.Op, operand int) bool {
	switch op {
	case ir.OpSoftmax, ir.OpLogSoftmax, ir.OpCumsum:
		return true
	case ir.OpIndexPut, ir.OpIndexAdd, ir.OpScatter, ir.OpSliceScatter:
		return operand == 0
	}
	return false
}

// elementwise reports whether element i of everything that a launch computes from v
// follows from element i of v, which nothing behind n reads, so that n may take its place.
func (m *memory) elementwise(nodes []*ir.Node, n *ir.Node, v *ir.Value) bool {
	if len(nodes) == 1 {
		return n.Op().Info().Elementwise
	}
	follows := map[*ir.Value]bool{v: true} // look-up only
	for _, d := range nodes {
		if !slices.ContainsFunc(d.DeclaredArgs(), func(a *ir.Value) bool { return follows[a] }) {
			continue
		}
		behind := d.At() > n.At() && slices.Contains(d.DeclaredArgs(), v)
		if behind || !d.Op().Info().Elementwise || !d.Result(0).Type().Shape().Equal(v.Type().Shape()) {
			return false
		}
		follows[d.Result(0)] = true
	}
	return follows[n.Result(0)]
}

// launch follows one launch.
func (m *memory) launch(nodes []*ir.Node) {
	n := nodes[0]
	if len(nodes) == 1 && n.Op().IsView() {
		return
	}
	if n.Op() == ir.OpWaitTensor {
		m.land(n, n.Arg(0))
		return
	}
	reads := m.reads(nodes)
	for _, v := range reads {
		if v.Type().IsAsync() {
			m.land(n, v)
			continue
		}
		m.intact(n, v)
	}
	if n.Op() == ir.OpReturn {
		m.callers(n)
	}
	for _, d := range nodes {
		for _, r := range d.Results() {
			m.define(d, r, reads)
		}
	}
	if n.Op().IsCollective() {
		m.start(n)
	}
}

// window is the bytes of a value.
func (m *memory) window(v *ir.Value, k int) span {
	p := m.st.Of(v)[k]
	t := v.Type().Tensors()[k]
	lo := m.at[p.Storage] + p.Offset*int64(t.DType().Size())
	return span{lo, lo + m.f.Module().Bound(t.Extent()), int64(p.Storage)}
}

// intact demands that the bytes of v are those that were written for its storage.
func (m *memory) intact(n *ir.Node, v *ir.Value) {
	w := m.window(v, 0)
	if m.at[w.owner] < 0 && w.hi > w.lo {
		m.fail(n, "%s has no bytes", v)
		return
	}
	if by, ok := m.lost(w); ok {
		m.fail(n, "reads %s, whose bytes %s has overwritten", v, m.name(by))
	}
}

// lost finds bytes of a span that are somebody else's.
func (m *memory) lost(w span) (by int64, lost bool) {
	for at := w.lo; at < w.hi; {
		i := sort.Search(len(m.owned), func(i int) bool { return m.owned[i].hi > at })
		if i == len(m.owned) || m.owned[i].lo > at {
			return w.owner, true
		}
		if m.owned[i].owner != w.owner {
			return m.owned[i].owner, true
		}
		at = m.owned[i].hi
	}
	return 0, false
}

func (m *memory) name(owner int64) string {
	if owner < 0 || owner >= int64(m.st.Len()) {
		return "a copy of an operand"
	}
	root, _ := m.st.Root(ir.StorageID(owner))
	return root.String()
}

// define gives the bytes of the storages that d's result r was made for to them.
func (m *memory) define(d *ir.Node, r *ir.Value, reads []*ir.Value) {
	in := d.Meta().Ints(inPlaceKey)
	tensor := 0
	for _, other := range d.Results()[:r.Index()] {
		tensor += len(other.Type().Tensors())
	}
	for k, p := range m.st.Of(r) {
		if root, _ := m.st.Root(p.Storage); root != r || m.at[p.Storage] < 0 {
			continue
		}
		s := span{m.at[p.Storage], m.at[p.Storage] + m.size[p.Storage], int64(p.Storage)}
		if !(tensor+k < len(in) && in[tensor+k] >= 0) {
			for _, v := range reads {
				if v.Type().IsAsync() {
					continue
				}
				if w := m.window(v, 0); w.lo < s.hi && s.lo < w.hi && m.at[w.owner] >= 0 {
					m.fail(d, "writes %s over operand %s", r, v)
				}
			}
		}
		m.give(s)
	}
}

// give makes bytes somebody's.
func (m *memory) give(s span) {
	if s.lo >= s.hi {
		return
	}
	i := sort.Search(len(m.owned), func(i int) bool { return m.owned[i].hi > s.lo })
	j := i
	var kept []span
	for ; j < len(m.owned) && m.owned[j].lo < s.hi; j++ {
		if o := m.owned[j]; o.lo < s.lo {
			kept = append(kept, span{o.lo, s.lo, o.owner})
		}
	}
	kept = append(kept, s)
	if j > i {
		if o := m.owned[j-1]; o.hi > s.hi {
			kept = append(kept, span{s.hi, o.hi, o.owner})
		}
	}
	m.owned = slices.Replace(m.owned, i, j, kept...)
}

// start notes what a collective has in flight.
func (m *memory) start(n *ir.Node) {
	in, copies := n.Meta().Ints(inPlaceKey), n.Meta().Ints(operandOffsetKey)
	var held []span
	for i, v := range n.DeclaredArgs() {
		switch {
		case i < len(in) && in[i] >= 0:
		case i < len(copies) && copies[i] >= 0:
			t := v.Type()
			c := span{copies[i], copies[i] + m.f.Module().Bound(ir.TensorOf(t.DType(), t.Shape()).Extent()), -1 - int64(len(m.flights))*64 - int64(i)}
			m.give(c)
			held = append(held, c)
		case !v.Type().Contiguous() && !m.planned:
		default:
			held = append(held, m.window(v, 0))
		}
	}
	for k := range n.Result(0).Type().Tensors() {
		held = append(held, m.window(n.Result(0), k))
	}
	m.flights[n] = held
}

// land demands that nobody has touched what is in flight until n waits for it.
func (m *memory) land(n *ir.Node, async *ir.Value) {
	for _, s := range m.flights[async.Def()] {
		if by, ok := m.lost(s); ok {
			m.fail(n, "%%%s is in flight until here, and %s has written to what it carries", async.Def().Name(), m.name(by))
		}
	}
	delete(m.flights, async.Def())
}

// callers demands that what belongs to the caller is there at the end.
func (m *memory) callers(n *ir.Node) {
	for _, in := range m.f.Inputs() {
		v := in.Result(0)
		if !m.kept(in) || in.Donated() {
			continue
		}
		if m.at[m.st.Of(v)[0].Storage] >= 0 {
			m.intact(n, v)
		}
	}
}
