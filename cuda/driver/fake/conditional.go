//go:build linux

package fake

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// Conditional nodes. A graph with one is several captures: each is an item of the graph that
// it was captured into, in order, and so is the node, which runs its bodies. The fake is
// stricter than a driver: a node whose number is not set in this iteration is an error,
// and so is a body with anything but kernels, copies, fills and such nodes.

// condition is the number of a node: not set, or one more than its value.
type condition struct {
	graph *graph // the outermost, or a body
	node  bool
	value atomic.Uint64
}

// division is a conditional node.
type division struct {
	by     *condition
	loop   bool
	bodies []*graph
}

// NoConditions takes conditional nodes away, as a driver that is too old.
func (f *Driver) NoConditions() { f.unconditional = true }

// Conditions is nil unless NoConditions was called.
func (f *Driver) Conditions() error {
	if f.unconditional {
		return fmt.Errorf("%w: the driver is too old", driver.ErrNoConditions)
	}
	return f.call()
}

// ConditionCreate makes a number that lives as long as its graph.
func (f *Driver) ConditionCreate(_ driver.Ctx, s driver.Stream) (driver.Condition, error) {
	const call = "cuGraphConditionalHandleCreate"
	st, err := f.stream(call, s)
	if err != nil {
		return 0, err
	}
	st.mu.Lock()
	g := st.graph
	st.mu.Unlock()
	if g == nil {
		return 0, invalid(call, "the stream is not capturing")
	}
	g = g.target()
	h := f.put(&condition{graph: g})
	g.owned = append(g.owned, h)
	return driver.Condition(h), nil
}

// CaptureDivide ends the capture of s and adds the node.
func (f *Driver) CaptureDivide(c driver.Ctx, s driver.Stream, by driver.Condition, loop bool, bodies int) (*driver.Division, error) {
	const call = "cuGraphAddNode"
	v, err := lookUp[*condition](f, call, uint64(by))
	if err != nil {
		return nil, err
	}
	h, err := f.CaptureEnd(c, s)
	if err != nil {
		return nil, err
	}
	g, err := lookUp[*graph](f, call, uint64(h))
	if err != nil {
		return nil, err
	}
	d := &driver.Division{Graph: h}
	if g != v.graph || v.node || bodies < 1 || loop && bodies != 1 {
		return d, invalid(call, "a node of %d bodies, whose number is another graph's or another node's", bodies)
	}
	v.node = true
	n := &division{by: v, loop: loop}
	for range bodies {
		b := &graph{body: true}
		n.bodies = append(n.bodies, b)
		at := f.put(b)
		b.handle = at
		g.owned, d.Bodies = append(g.owned, at), append(d.Bodies, driver.Graph(at))
	}
	g.ops = append(g.ops, operation{what: "conditional node", from: traceHere(), divide: n, run: func() error { return n.replay(f) }})
	d.Node = driver.Node(len(g.ops))
	return d, nil
}

// CaptureInto begins a capture that becomes an item of g.
func (f *Driver) CaptureInto(c driver.Ctx, s driver.Stream, to driver.Graph, behind driver.Node) error {
	const call = "cuStreamBeginCaptureToGraph"
	st, err := f.stream(call, s)
	if err != nil {
		return err
	}
	g, err := lookUp[*graph](f, call, uint64(to))
	if err != nil {
		return err
	}
	if int(behind) != len(g.ops) {
		return invalid(call, "behind node %d of %d, which is not the last", behind, len(g.ops))
	}
	return f.begin(c, call, s, st, &graph{id: f.captures.Add(1), into: g, streams: []*stream{st}})
}

// target is the graph that a capture becomes a part of.
func (g *graph) target() *graph {
	if g.into != nil {
		return g.into
	}
	return g
}

// unfit is what keeps a graph from being made executable.
func (g *graph) unfit(f *Driver) string {
	allowed := []string{"cuMemcpyAsync", "cuMemsetD32Async", "called function", "conditional node", "captured part"}
	for _, op := range g.ops {
		if known := op.run == nil || slices.Contains(allowed, op.what) || len(op.what) > 7 && op.what[:7] == "kernel "; g.body && !known {
			return "the body of a conditional node has " + op.what
		}
		var inner []*graph
		if op.divide != nil {
			inner = op.divide.bodies
		}
		if op.part != nil {
			op.part.body = g.body
			inner = append(inner, op.part)
		}
		for _, b := range inner {
			if why := b.unfit(f); why != "" {
				return why
			}
		}
	}
	for _, h := range g.owned {
		if v, err := lookUp[*condition](f, "", h); err == nil && !v.node {
			return "a number belongs to no node"
		}
	}
	return ""
}

func (n *division) replay(f *Driver) error {
	for {
		set := n.by.value.Swap(0)
		switch {
		case set == 0:
			return invalid("conditional node", "nobody has set its number")
		case n.loop && set == 1 || !n.loop && set > uint64(len(n.bodies)):
			return nil
		}
		at := set - 1
		if n.loop {
			at = 0
		}
		if err := n.bodies[at].replay(f); err != nil || !n.loop {
			return err
		}
	}
}

// choose is the kernel that sets a number: condition, address, bytes and 16 without a sign,
// branches or 0 for a truth value, and the address of a word that ends loops, with one behind
// it that counts their tests.
func (f *Driver) choose(buf []byte) (func() error, error) {
	if len(buf) < 32 {
		return nil, fmt.Errorf("choose: parameters of %d bytes, 32 are needed", len(buf))
	}
	v, err := lookUp[*condition](f, "choose", binary.LittleEndian.Uint64(buf))
	if err != nil {
		return nil, err
	}
	at, t := driver.Ptr(binary.LittleEndian.Uint64(buf[8:])), map[byte]dtype.DType{1: dtype.I8, 17: dtype.U8, 2: dtype.I16, 18: dtype.U16, 4: dtype.I32, 20: dtype.U32, 8: dtype.I64}[buf[16]]
	if t == dtype.Invalid {
		return nil, fmt.Errorf("choose: a number of type %d", buf[16])
	}
	branches, stop := int64(binary.LittleEndian.Uint32(buf[20:])), binary.LittleEndian.Uint64(buf[24:])
	return func() error {
		n := dtype.LoadInt(t, bytesAt(at, uint64(t.Size())))
		if branches == 0 {
			addWord(stop+4, 1)
		}
		switch {
		case branches == 0 && (n == 0 || word(stop) != 0):
			n = 0
		case branches == 0:
			n = 1
		case branches > 0 && (n < 0 || n >= branches):
			n = branches - 1
		}
		v.value.Store(uint64(n) + 1)
		return nil
	}, nil
}
