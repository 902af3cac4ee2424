//go:build linux

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// fakeGraph is captured work: items of several lanes in capture order.
type fakeGraph struct {
	id      uint64
	ended   atomic.Bool
	ops     []fakeOp
	streams []*fakeStream
}

type fakeExec struct{ graph *fakeGraph }

// CaptureBegin starts to collect a stream's work into a graph.
func (f *Fake) CaptureBegin(_ Ctx, s Stream) error {
	st, err := f.stream("cuStreamBeginCapture", s)
	if err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.graph != nil {
		return invalid("cuStreamBeginCapture", "the stream is capturing already")
	}
	st.graph, st.lane = &fakeGraph{id: f.captures.Add(1), streams: []*fakeStream{st}}, 0
	return nil
}

// CaptureEnd ends the capture of all streams that joined it. As with the driver it has to
// be called for the stream that began it, and fails if another stream has work that this
// one has not waited for.
func (f *Fake) CaptureEnd(_ Ctx, s Stream) (Graph, error) {
	st, err := f.stream("cuStreamEndCapture", s)
	if err != nil {
		return 0, err
	}
	st.mu.Lock()
	g, lane := st.graph, st.lane
	st.mu.Unlock()
	if g == nil {
		return 0, invalid("cuStreamEndCapture", "the stream is not capturing")
	}
	if lane != 0 {
		return 0, &Error{Call: "cuStreamEndCapture", Code: 903, Name: "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", Text: "the capture began in another stream"}
	}
	g.ended.Store(true)
	for _, k := range g.streams {
		k.mu.Lock()
		k.graph = nil
		k.mu.Unlock()
	}
	if lane, lost := g.unjoined(); lost > 0 {
		return 0, &Error{Call: "cuStreamEndCapture", Code: 904, Name: "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
			Text: fmt.Sprintf("%d items of the stream that joined the capture as number %d are waited for by nobody", lost, lane)}
	}
	return Graph(f.put(g)), nil
}

// StreamCapture numbers captures from 1.
func (f *Fake) StreamCapture(_ Ctx, s Stream) (uint64, error) {
	st, err := f.stream("cuStreamGetCaptureInfo", s)
	if err != nil {
		return 0, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.graph == nil {
		return 0, nil
	}
	return st.graph.id, nil
}

// unjoined returns the first lane with work that the end of lane 0 does not wait for, and
// how many of its items these are; 0 if the capture is joined.
func (g *fakeGraph) unjoined() (lane, items int) {
	done := make([]int, len(g.streams))   // items of each lane so far
	seen := make([][]int, len(g.streams)) // by lane: how many of each lane's stand before what comes next
	recorded := map[*fakeMark][]int{}     // what stands before a recording
	for i := range seen {
		seen[i] = make([]int, len(g.streams))
	}
	for _, op := range g.ops {
		switch {
		case op.rec != nil:
			recorded[op.rec] = slices.Clone(seen[op.lane])
		case op.wait != nil:
			for k, n := range recorded[op.wait] {
				seen[op.lane][k] = max(seen[op.lane][k], n)
			}
		default:
			done[op.lane]++
			seen[op.lane][op.lane] = done[op.lane]
		}
	}
	for k, n := range done {
		if seen[0][k] < n {
			return k, n - seen[0][k]
		}
	}
	return 0, 0
}

// GraphInstantiate makes a captured graph executable.
func (f *Fake) GraphInstantiate(_ Ctx, g Graph) (Exec, error) {
	if err := f.call(); err != nil {
		return 0, err
	}
	o, err := fakeGet[*fakeGraph](f, "cuGraphInstantiate", uint64(g))
	if err != nil {
		return 0, err
	}
	return Exec(f.put(&fakeExec{graph: o})), nil
}

// GraphUpload has nothing to do.
func (f *Fake) GraphUpload(c Ctx, _ Exec, _ Stream) error {
	return errors.Join(f.call(), f.exclusive("cuGraphUpload", c))
}

// GraphLaunch replays the graph, its lanes side by side, as one item of the stream.
func (f *Fake) GraphLaunch(_ Ctx, x Exec, s Stream) error {
	e, err := fakeGet[*fakeExec](f, "cuGraphLaunch", uint64(x))
	if err != nil {
		return err
	}
	return f.work("cuGraphLaunch", s, func() error { return e.graph.replay(f) })
}

func (g *fakeGraph) replay(f *Fake) error {
	marks := map[*fakeMark]*fakeMark{}
	for _, op := range g.ops {
		if op.rec != nil {
			marks[op.rec] = &fakeMark{done: make(chan struct{})}
		}
	}
	lanes := make([][]fakeOp, len(g.streams))
	for _, op := range g.ops {
		if op.rec != nil {
			op.rec = marks[op.rec]
		}
		if op.wait != nil {
			if m := marks[op.wait]; m != nil { // else recorded before the capture
				op.wait = m
			}
		}
		lanes[op.lane] = append(lanes[op.lane], op)
	}
	errs := make([]error, len(lanes))
	var wg sync.WaitGroup
	for i, ops := range lanes {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for _, op := range ops {
				if err := op.do(f); err != nil && errs[i] == nil {
					errs[i] = err
				}
			}
		}()
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// GraphDestroy forgets a graph; its executables stay.
func (f *Fake) GraphDestroy(_ Ctx, g Graph) error {
	if _, err := fakeDrop[*fakeGraph](f, "cuGraphDestroy", uint64(g)); err != nil {
		return err
	}
	return f.call()
}

// ExecDestroy forgets an executable graph.
func (f *Fake) ExecDestroy(_ Ctx, x Exec) error {
	if _, err := fakeDrop[*fakeExec](f, "cuGraphExecDestroy", uint64(x)); err != nil {
		return err
	}
	return f.call()
}

// GraphUpdate lets later launches of x replay g, which must have the lanes, items and
// events of the graph that x was made from, in the same order.
func (f *Fake) GraphUpdate(_ Ctx, x Exec, g Graph) error {
	const call = "cuGraphExecUpdate"
	if err := f.call(); err != nil {
		return err
	}
	e, err := fakeGet[*fakeExec](f, call, uint64(x))
	if err != nil {
		return err
	}
	o, err := fakeGet[*fakeGraph](f, call, uint64(g))
	if err != nil {
		return err
	}
	if why := e.graph.differs(o); why != "" {
		return &Error{Call: call, Code: codeGraphChanged, Name: "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", Text: why}
	}
	e.graph = o
	return nil
}

// differs says what keeps an executable graph of g from becoming one of o. What an item
// does is its parameters.
func (g *fakeGraph) differs(o *fakeGraph) string {
	if len(g.ops) != len(o.ops) || len(g.streams) != len(o.streams) {
		return "the number or order of nodes differs"
	}
	for i, a := range g.ops {
		b := o.ops[i]
		if a.lane != b.lane || (a.rec == nil) != (b.rec == nil) || (a.wait == nil) != (b.wait == nil) || (a.run == nil) != (b.run == nil) {
			return "the kind of a node differs"
		}
	}
	return ""
}
