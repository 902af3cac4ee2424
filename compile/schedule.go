package compile

import (
	"fmt"

	"github.com/seed-ee968945/concert/internal/place"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// Schedule is a function in the order in which it runs, with simulated times, in terms of
// the caller's own objects (ir.FuncBuilder.Origin).
type Schedule struct {
	Items   []Item
	Figures Figures
}

// ItemKind says what an item of a schedule does.
type ItemKind uint8

// The kinds.
const (
	Compute ItemKind = iota // runs on the compute stream
	Start                   // issues a collective on its group's stream
	Wait                    // blocks the compute stream until a collective has finished
)

// String returns the lower-case name of the kind.
func (k ItemKind) String() string { return [...]string{"compute", "start", "wait"}[k] }

// Item is one step of a schedule. Inputs, views and the return are none.
type Item struct {
	Kind    ItemKind
	Node    *ir.Node  // after the passes
	Origins []any     // the caller's objects that it stands for
	Group   *ir.Group // of a Start, a Wait, or a call that has one; else nil

	// Members are the collectives that share a bucket in a Start or end together in a
	// Wait, one for each collective that there was before buckets were formed.
	Members []Member

	// Started, of a Wait, is the item of its Start; -1 where the caller started it.
	Started int

	// Region numbers the kernel that nodes are computed in together; -1 for none.
	Region int64

	// IssueMs is when the compute stream reaches the item, BeginMs when it begins to run,
	// EndMs when it has finished: of a Start on its own stream, of a Wait when the compute
	// stream goes on. Milliseconds since the function began.
	IssueMs, BeginMs, EndMs float64
}

// Member is a collective within a bucket.
type Member struct {
	Name     string
	Origins  []any
	Operands int // how many of the bucket's, which stand in the order of members
}

// Schedule returns the order that the passes decided. Times are simulated with the costs of
// the target. Errors are Simulate's.
func (f *Function) Schedule() (*Schedule, error) {
	_, tl, err := Simulate(f.Func, f.result.costs)
	if err != nil {
		return nil, err
	}
	s := &Schedule{}
	if s.Figures, err = f.After(); err != nil {
		return nil, err
	}
	started := map[*ir.Node]int{} // look-up only
	for i, n := range f.Func.Order() {
		it := Item{Node: n, Origins: n.Origins(), Group: n.Group(), Started: -1, Region: n.Meta().Int(passes.FusionKey, -1), IssueMs: tl.Issue[i], BeginMs: tl.Begin[i], EndMs: tl.End[i]}
		switch n.Op().Class() {
		case ir.ClassInput, ir.ClassView, ir.ClassOutput:
			continue
		case ir.ClassCollective:
			it.Kind, it.Members = Start, f.members(n)
			started[n] = len(s.Items)
		case ir.ClassWait:
			it.Kind = Wait
			if at, ok := started[n.Arg(0).Def()]; ok {
				it.Started, it.Group, it.Members = at, s.Items[at].Group, s.Items[at].Members
			}
		}
		s.Items = append(s.Items, it)
	}
	return s, nil
}

// members expands a collective.
func (f *Function) members(n *ir.Node) []Member {
	var out []Member
	if list := n.Members(); len(list) == len(n.Args()) {
		for i, m := range list {
			if i > 0 && m == list[i-1] {
				out[len(out)-1].Operands++
				continue
			}
			out = append(out, Member{m.Name, m.Origins, 1})
		}
		return out
	}
	for _, name := range n.Meta().Strs(passes.MembersKey) { // read from text
		if k := len(out); k > 0 && out[k-1].Name == name {
			out[k-1].Operands++
			continue
		}
		m := Member{Name: name, Operands: 1}
		if was := f.Input; was != nil && was.Lookup(name) != nil {
			m.Origins = was.Lookup(name).Origins()
		}
		out = append(out, m)
	}
	return out
}

// Placement is where a tensor lies in the arena of every rank.
type Placement struct {
	Offset int64 // bytes from the start of the arena to element (0, 0, ...)
	Bytes  int64 // of its elements without gaps, symbols at their bounds
}

// ValueOf returns the value after the passes that stands for one of the module that was
// compiled, or of Input; nil if the passes have removed it. A value of Func stands for
// itself.
func (f *Function) ValueOf(v *ir.Value) *ir.Value {
	was := v.Def()
	if was.Func() == f.Func {
		return v
	}
	n := f.Func.NodeByID(was.ID())
	if n == nil {
		if n = f.Func.Lookup(was.Name()); n == nil {
			return nil // what replaces a node has its name
		}
	}
	if v.Index() >= len(n.Results()) {
		return nil
	}
	return n.Result(v.Index())
}

// Place says where a value lies: one placement for each of its tensors, of which an async
// value may have several. Views lie in what they are of, and results that take the place
// of an operand where that lies. The value is one of Func, of Input, or of the module that
// was compiled. It is an error if the passes have removed it or if it has no bytes, being
// computed within a kernel.
func (f *Function) Place(v *ir.Value) ([]Placement, error) {
	now := f.ValueOf(v)
	if now == nil {
		return nil, fmt.Errorf("compile: %s of @%s is gone: the passes have removed it", v, f.Func.Name)
	}
	p, err := f.Program()
	if err != nil {
		return nil, err
	}
	if f.layout == nil {
		if f.layout, err = place.Of(f.Func); err != nil {
			return nil, err
		}
	}
	var out []Placement
	types := now.Type().Tensors()
	for i, w := range f.layout.Windows(now) {
		if w.Buffer < 0 {
			return nil, fmt.Errorf("compile: %s of @%s has no bytes: it is computed within a kernel", now, f.Func.Name)
		}
		out = append(out, Placement{p.Buffers[w.Buffer].Offset + w.Offset, f.Func.Module().Bound(types[i].Bytes())})
	}
	return out, nil
}
