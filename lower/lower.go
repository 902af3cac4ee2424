// Package lower turns a scheduled function into a flat program, and a program
// into Go source.
//
// The function's order is the schedule: lowering follows it and decides nothing
// about order. Views become windows on buffers and vanish. The nodes of a region
// become one fused launch. A collective goes to
// its group's stream, after an event that the compute stream records where the
// collective stands; a wait becomes the compute stream's wait for the event that
// the collective's stream records after it. Everything else is launched on the
// compute stream. Where more collectives could be in flight than a device supports,
// the stream of one waits for another (program.LimitInFlight).
//
// # Why buffers may share bytes
//
// A storage is free after its last use in the order; for operands and results of
// a collective that is at the earliest its wait. All uses by launches are on the
// compute stream, and uses by a collective have ended when the compute stream
// has passed its wait. The next writer of the bytes is a launch, later on the
// compute stream, or a collective, which starts after an event of the compute
// stream. So order in the list is order in time, and a plan over list positions
// is safe. Peers read a collective's operands only until it has finished on this
// rank too (the protocols end with a signal), so the same holds across ranks.
package lower

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/place"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
)

// Func lowers a verified function. The rank plays no part: every rank that lowers the same
// text gets the same program. Linear but for the placement of buffers, which is O(n log n).
// The error names the node that has no lowered form.
func Func(f *ir.Func) (*program.Program, error) {
	p, _, err := lowered(f, Options{})
	return p, err
}

// lowered is Func, with options. If kernels could not
// be written as regions and annotations want them, it gives the nodes of these instead
// of a program.
func lowered(f *ir.Func, o Options) (*program.Program, []*ir.Node, error) {
	lay, err := place.Of(f)
	if err != nil {
		return nil, nil, fmt.Errorf("lower: @%s: %w", f.Name, err)
	}
	l := &lowering{frame: frame{f: f, lay: lay}, m: f.Module(), source: o.Kernels, shared: map[string]int{}, named: map[string]bool{}, p: &program.Program{Name: f.Name, World: f.Module().World}}
	l.declare()
	if err := l.place(o.Unpacked); err != nil {
		return nil, nil, fmt.Errorf("lower: @%s: %w", f.Name, err)
	}
	if err := l.body(); err != nil {
		return nil, nil, fmt.Errorf("lower: @%s: %w", f.Name, err)
	}
	if len(l.refused) > 0 {
		return nil, l.refused, nil
	}
	l.p.LimitInFlight(program.DefaultInFlight)
	if err := l.p.Validate(); err != nil {
		return nil, nil, fmt.Errorf("lower: %w", err)
	}
	return l.p, nil, nil
}

// lowering is the state of one Func. Buffer i is buffer i of the layout.
type lowering struct {
	frame
	m *ir.Module
	p *program.Program

	named   map[string]bool // buffers of the program; look-up only
	source  bool            // kernels get source, and launches become kernels
	shared  map[string]int  // kernels by what they do; look-up only
	refused []*ir.Node      // nodes of kernels that could not be written

	streamOf []int // by group index: its stream, 0 if it has none yet

	// Events. clock counts what the compute stream has been given; an event of it
	// is reused while the clock stands still.
	clock      int
	lastEvent  int   // event of the compute stream's latest record, -1 for none
	lastClock  int   // clock at that record
	seenByComm []int // by stream: compute clock that the stream has waited for
	order      []int // by event: place in its stream's order of records, from 1
	onStream   []int // by event: the stream that records it, -1 for async inputs
	records    []int // by stream: how many events it has recorded
	lastOn     []int // by stream: the latest of them, -1 for none
	seenOfComm []int // by stream: latest order of its events that the compute stream has waited for
}

// declare fills in what does not depend on the order.
func (l *lowering) declare() {
	for _, g := range l.m.Groups() {
		l.p.Groups = append(l.p.Groups, program.Group{Name: g.Name, Ranks: g.Ranks})
	}
	for _, s := range l.m.Symbols() {
		l.p.Symbols = append(l.p.Symbols, program.Symbol{Name: s.Name, Hint: s.Hint, Min: s.Min, Max: s.Max})
	}
	for _, c := range l.m.Checks() {
		l.need(c.Size, "")
	}
	if s, place := l.m.StagesOf(l.f); s != nil {
		l.p.Ranks = s.Ranks(place)
	}
	l.p.Streams = []program.Stream{{Name: "compute", Group: -1}}
	l.streamOf = make([]int, len(l.p.Groups))
	l.seenByComm, l.seenOfComm, l.records, l.lastOn = []int{0}, []int{0}, []int{0}, []int{-1}
	l.lastEvent = -1
	l.finished = make([]int, l.f.NumNodeIDs())
}

// stream returns the stream of a group, made at its first collective.
func (l *lowering) stream(g *ir.Group) int {
	if l.streamOf[g.Index()] == 0 {
		l.streamOf[g.Index()] = len(l.p.Streams)
		l.p.Streams = append(l.p.Streams, program.Stream{Name: "comm." + g.Name, Group: g.Index()})
		l.seenByComm = append(l.seenByComm, 0)
		l.seenOfComm = append(l.seenOfComm, 0)
		l.records = append(l.records, 0)
		l.lastOn = append(l.lastOn, -1)
	}
	return l.streamOf[g.Index()]
}

func (l *lowering) event(stream int) int {
	e := l.p.Events
	l.p.Events++
	n := 0
	if stream >= 0 {
		l.records[stream]++
		n = l.records[stream]
	}
	l.onStream = append(l.onStream, stream)
	l.order = append(l.order, n)
	return e
}

func (l *lowering) emit(in program.Instr) {
	if in.Node != "" {
		in.Node = l.path + in.Node
	}
	l.p.Instrs = append(l.p.Instrs, in)
	if in.Stream == 0 && in.Kind != program.Record {
		l.clock++
	}
}

// body emits one node, or one region, after the other.
func (l *lowering) body() error {
	regions := l.lay.Regions()
	for i, n := range l.f.Order() {
		var err error
		l.needs(n)
		for len(regions) > 0 && regions[0].Last < i {
			regions = regions[1:]
		}
		if len(regions) > 0 && regions[0].First <= i {
			if i == regions[0].First {
				err = l.region(regions[0].Nodes)
			}
			if err != nil {
				return err
			}
			continue
		}
		switch n.Op().Class() {
		case ir.ClassInput:
			if l.where == nil {
				l.input(n)
			}
		case ir.ClassView:
		case ir.ClassCollective:
			err = l.collective(n)
		case ir.ClassWait:
			l.wait(n)
		case ir.ClassOutput:
			l.output(n)
		default:
			err = l.launch(n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// needs notes the sizes that have to be checked at run time.
func (l *lowering) needs(n *ir.Node) {
	for _, d := range n.Needs() {
		l.need(d, n.Name())
	}
}

// need notes a size that must not be negative, for a node or for the whole program.
func (l *lowering) need(d ir.Dim, node string) {
	r, ok := l.m.Bounds(d)
	if ok && r.Min >= 0 || slices.ContainsFunc(l.p.Needs, func(o program.Need) bool { return o.Size.Equal(d) }) {
		return
	}
	l.p.Needs = append(l.p.Needs, program.Need{Size: d, Node: node})
}

// tensors are the windows of a value's tensors.
func (l *lowering) tensors(v *ir.Value) []program.Tensor {
	var out []program.Tensor
	ts := v.Type().Tensors()
	for k, at := range l.lay.Windows(v) {
		t := ts[k]
		b := l.at(at.Buffer)
		w := program.Tensor{Buffer: b.Buffer, Offset: b.Offset + at.Offset, DType: t.DType(), Shape: t.Shape()}
		if !t.Contiguous() {
			w.Strides = t.SymbolicStrides()
		}
		out = append(out, w)
	}
	return out
}

func (l *lowering) input(n *ir.Node) {
	v := n.Result(0)
	q := program.Param{Name: n.Name(), Role: string(n.Role()), Event: -1, Tensors: l.tensors(v)}
	if v.Type().IsAsync() {
		q.Async, q.Event = true, l.event(-1)
		l.finished[n.ID()] = q.Event
	}
	l.p.Inputs = append(l.p.Inputs, q)
}

// copyDonated copies results into the places of donated inputs that they are not in yet.
func (l *lowering) copyDonated(n *ir.Node) {
	for i, h := range l.lay.Donated {
		if h.Copied {
			for _, start := range h.Flights {
				l.waitFor(start, start.Name())
			}
			v := n.Arg(h.Result)
			l.emit(program.Instr{Kind: program.Copy, Event: -1, Group: -1, Ins: l.tensors(v), Outs: l.donated(i), Node: h.Input.Name()})
		}
	}
}

// donated is the result in donated buffer i.
func (l *lowering) donated(i int) []program.Tensor {
	h := &l.lay.Donated[i]
	t := l.tensors(h.Input.Result(0))[0]
	t.Buffer = l.at(len(l.lay.Buffers) + i).Buffer
	return []program.Tensor{t}
}

func (l *lowering) output(n *ir.Node) {
	l.copyDonated(n)
	if l.where != nil {
		for _, v := range n.Args() {
			l.outs = append(l.outs, l.tensors(v)...)
		}
		for i, h := range l.lay.Donated {
			l.outs[h.Result] = l.donated(i)[0]
		}
		return
	}
	for _, d := range l.f.Donations() {
		l.p.Donations = append(l.p.Donations, program.Donation{Input: d.Input.At(), Output: d.Result})
	}
	for _, v := range n.Args() {
		q := program.Param{Name: place.ValueName(v), Event: -1, Tensors: l.tensors(v)}
		if v.Type().IsAsync() {
			q.Async, q.Event = true, l.finished[v.Def().ID()]
		}
		l.p.Outputs = append(l.p.Outputs, q)
	}
	for i, h := range l.lay.Donated {
		l.p.Outputs[h.Result].Tensors = l.donated(i)
	}
}

func (l *lowering) launch(n *ir.Node) error {
	if n.Op().Info().Bodies != nil {
		return l.control(n)
	}
	if done, err := l.singleKernel(n); done || err != nil {
		return err
	}
	in := program.Instr{Kind: program.Launch, Event: -1, Group: -1, Op: n.Op().Name(), Attrs: n.Attrs(), Node: n.Name()}
	if n.Group() != nil {
		in.Group = n.Group().Index()
		l.behindGroup(n)
	}
	for _, a := range n.DeclaredArgs() {
		in.Ins = append(in.Ins, l.tensors(a)...)
	}
	for _, r := range n.DeclaredResults() {
		in.Outs = append(in.Outs, l.tensors(r)...)
	}
	l.emit(in)
	return nil
}

// behindGroup makes a call that has a group wait for the collectives of that group:
// ranks start them in one order.
func (l *lowering) behindGroup(n *ir.Node) {
	if s := l.streamOf[n.Group().Index()]; s > 0 && n.Op() == ir.OpCall && l.seenOfComm[s] < l.records[s] {
		l.seenOfComm[s] = l.records[s]
		l.emit(program.Instr{Kind: program.Wait, Event: l.lastOn[s], Group: -1, Node: n.Name()})
	}
}

func (l *lowering) collective(n *ir.Node) error {
	s := l.stream(n.Group())
	in := program.Instr{Kind: program.Collective, Stream: s, Event: -1, Group: n.Group().Index(), Op: n.Op().Name(), Attrs: n.Attrs(), Node: n.Name()}
	if n.Op() == ir.OpAsyncCall { // a call like any other, on another stream
		in.Kind, in.Op, in.Attrs = program.Launch, ir.OpCall.Name(), n.Attrs().With("effects", attr.Strings("communicates"))
	}
	if n.Meta().Bool(place.InMatmulKey, false) && (n.Op() == ir.OpAllGather || place.ScatteredMatmul(n) != nil) {
		in.Attrs = in.Attrs.With(program.InMatmulKey, attr.Bool(true))
	}
	for i, a := range n.Args() {
		t := l.tensors(a)[0]
		if b, ok := l.lay.Copy(n, i); ok {
			t = l.contiguous(b, n, a)
		}
		in.Ins = append(in.Ins, t)
	}
	for i, t := range n.Result(0).Type().Tensors() {
		if !t.Contiguous() {
			return fmt.Errorf("%%%s: result %d of a collective is declared %s; collectives write row-major results", n.Name(), i, t)
		}
	}
	in.Outs = l.tensors(n.Result(0))
	if l.clock > l.seenByComm[s] {
		if l.lastEvent < 0 || l.lastClock != l.clock {
			l.lastEvent, l.lastClock = l.event(0), l.clock
			l.emit(program.Instr{Kind: program.Record, Event: l.lastEvent, Group: -1})
		}
		l.emit(program.Instr{Kind: program.Wait, Stream: s, Event: l.lastEvent, Group: -1})
		l.seenByComm[s] = l.clock
	}
	l.emit(in)
	e := l.event(s)
	l.finished[n.ID()], l.lastOn[s] = e, e
	l.emit(program.Instr{Kind: program.Record, Stream: s, Event: e, Group: -1})
	return nil
}

// contiguous copies a strided operand into a buffer of its own.
func (l *lowering) contiguous(buffer int, n *ir.Node, a *ir.Value) program.Tensor {
	dst := program.Tensor{Buffer: l.at(buffer).Buffer, DType: a.Type().DType(), Shape: a.Type().Shape()}
	l.emit(program.Instr{Kind: program.Copy, Event: -1, Group: -1, Ins: l.tensors(a), Outs: []program.Tensor{dst}, Node: n.Name()})
	return dst
}

func (l *lowering) wait(n *ir.Node) { l.waitFor(n.Arg(0).Def(), n.Name()) }

// waitFor makes the compute stream wait for a collective, or an async input.
func (l *lowering) waitFor(start *ir.Node, node string) {
	e := l.finished[start.ID()]
	if s := l.onStream[e]; s >= 0 {
		if l.seenOfComm[s] >= l.order[e] {
			return // a later collective of the same stream was waited for already
		}
		l.seenOfComm[s] = l.order[e]
	}
	l.emit(program.Instr{Kind: program.Wait, Event: e, Group: -1, Node: node})
}

// place gives every buffer its offset: what plan-memory decided, or else a plan
// made here.
func (l *lowering) place(unpacked bool) error {
	plan, ok, err := l.lay.Annotated()
	if err == nil && !ok && unpacked {
		plan = l.lay.Unpacked()
	} else if err == nil && !ok {
		plan, err = l.lay.Place(context.Background(), 0)
	}
	if err != nil {
		return err
	}
	for i := range l.lay.Buffers {
		b := &l.lay.Buffers[i]
		l.buffer(b.Name, plan.Offsets[i], b.Bytes)
	}
	for _, h := range l.lay.Donated {
		l.buffer(h.Name, plan.Offsets[h.Buffer], l.lay.Buffers[h.Buffer].Bytes)
	}
	l.p.Arena = plan.Height
	return nil
}
