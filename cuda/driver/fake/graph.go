//go:build linux

package fake

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed-ee968945/concert/cuda/driver"
)

// graph is captured work: items of several lanes in capture order.
type graph struct {
	id      uint64
	ended   atomic.Bool
	invalid atomic.Bool // all work of the context was waited for meanwhile
	ops     []operation
	streams []*stream
	into    *graph   // that this capture becomes a part of, nil for none
	body    bool     // of a conditional node
	owned   []uint64 // handles that go with it: bodies and numbers of its nodes
	handle  uint64
}

type executable struct{ graph *graph }

// CaptureBegin starts to collect a stream's work into a graph.
func (f *Driver) CaptureBegin(c driver.Ctx, s driver.Stream) error {
	st, err := f.stream("cuStreamBeginCapture", s)
	if err != nil {
		return err
	}
	return f.begin(c, "cuStreamBeginCapture", s, st, &graph{id: f.captures.Add(1), streams: []*stream{st}})
}

func (f *Driver) begin(c driver.Ctx, call string, s driver.Stream, st *stream, g *graph) error {
	return f.common.BeginCapture(c, s, func() error {
		st.mu.Lock()
		defer st.mu.Unlock()
		if st.graph != nil {
			return invalid(call, "the stream is capturing already")
		}
		st.graph, st.lane = g, 0
		return nil
	})
}

// invalidate makes the stream's capture, if there is one, worthless.
func (st *stream) invalidate() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.graph == nil {
		return false
	}
	st.graph.invalid.Store(true)
	return true
}

// CaptureEnd ends the capture of all streams that joined it. As with the driver it has to
// be called for the stream that began it, and fails if another stream has work that this
// one has not waited for.
func (f *Driver) CaptureEnd(c driver.Ctx, s driver.Stream) (driver.Graph, error) {
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
		return 0, &driver.Error{Call: "cuStreamEndCapture", Code: 903, Name: "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", Text: "the capture began in another stream"}
	}
	g.ended.Store(true)
	for _, k := range g.streams {
		k.mu.Lock()
		k.graph = nil
		k.mu.Unlock()
	}
	f.common.CaptureEnded(c, s)
	if g.invalid.Load() {
		return 0, &driver.Error{Call: "cuStreamEndCapture", Code: 901, Name: "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", Text: "the context was synchronised meanwhile"}
	}
	if lane, lost := g.unjoined(); lost > 0 {
		return 0, &driver.Error{Call: "cuStreamEndCapture", Code: 904, Name: "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
			Text: fmt.Sprintf("%d items of the stream that joined the capture as number %d are waited for by nobody", lost, lane)}
	}
	if to := g.into; to != nil {
		to.ops = append(to.ops, operation{what: "captured part", part: g, run: func() error { return g.replay(f) }})
		return driver.Graph(to.handle), nil
	}
	g.handle = f.put(g)
	return driver.Graph(g.handle), nil
}

// GraphWaits is how many waits for events a graph holds.
func (f *Driver) GraphWaits(g driver.Graph) (int, error) {
	o, err := lookUp[*graph](f, "GraphWaits", uint64(g))
	if err != nil {
		return 0, err
	}
	n := 0
	for _, op := range o.ops {
		if op.wait != nil {
			n++
		}
	}
	return n, nil
}

// StreamCapture numbers captures from 1.
func (f *Driver) StreamCapture(_ driver.Ctx, s driver.Stream) (uint64, error) {
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
func (g *graph) unjoined() (lane, items int) {
	done := make([]int, len(g.streams))   // items of each lane so far
	seen := make([][]int, len(g.streams)) // by lane: how many of each lane's stand before what comes next
	recorded := map[*mark][]int{}         // what stands before a recording
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
func (f *Driver) GraphInstantiate(_ driver.Ctx, g driver.Graph) (driver.Exec, error) {
	if err := f.call(); err != nil {
		return 0, err
	}
	o, err := lookUp[*graph](f, "cuGraphInstantiate", uint64(g))
	if err != nil {
		return 0, err
	}
	if why := o.unfit(f); why != "" {
		return 0, invalid("cuGraphInstantiate", "%s", why)
	}
	return driver.Exec(f.put(&executable{graph: o})), nil
}

// GraphUpload has nothing to do.
func (f *Driver) GraphUpload(c driver.Ctx, _ driver.Exec, _ driver.Stream) error {
	return errors.Join(f.call(), f.exclusive("cuGraphUpload", c))
}

// GraphLaunch replays the graph, its lanes side by side, as one item of the stream.
func (f *Driver) GraphLaunch(_ driver.Ctx, x driver.Exec, s driver.Stream) error {
	e, err := lookUp[*executable](f, "cuGraphLaunch", uint64(x))
	if err != nil {
		return err
	}
	return f.work("cuGraphLaunch", s, func() error { return e.graph.replay(f) })
}

func (g *graph) replay(f *Driver) error {
	marks := map[*mark]*mark{}
	for _, op := range g.ops {
		if op.rec != nil {
			marks[op.rec] = &mark{done: make(chan struct{})}
		}
	}
	lanes := make([][]operation, max(len(g.streams), 1))
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

// GraphDestroy forgets a graph, with the bodies of its nodes; its executables stay.
func (f *Driver) GraphDestroy(_ driver.Ctx, g driver.Graph) error {
	o, err := lookUp[*graph](f, "cuGraphDestroy", uint64(g))
	if err != nil {
		return err
	}
	if o.body {
		return invalid("cuGraphDestroy", "the graph belongs to a node")
	}
	f.forget(uint64(g), o)
	return f.call()
}

func (f *Driver) forget(h uint64, g *graph) {
	for _, h := range g.owned {
		if b, err := lookUp[*graph](f, "", h); err == nil {
			f.forget(h, b)
			continue
		}
		f.mu.Lock()
		delete(f.objects, h)
		f.mu.Unlock()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.objects, h)
}

// ExecDestroy forgets an executable graph.
func (f *Driver) ExecDestroy(_ driver.Ctx, x driver.Exec) error {
	if _, err := drop[*executable](f, "cuGraphExecDestroy", uint64(x)); err != nil {
		return err
	}
	return f.call()
}
