//go:build linux

package fake

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/driver"
)

// A graph that is captured in parts iterates as its kernels say, anew in each launch; what
// a driver would refuse is refused, and nothing is left of it.
func TestConditionalNodes(t *testing.T) {
	for _, c := range []struct {
		name string
		body func(r *choosing)
		n    int64  // what decides, at the begin
		want int64  // and in the end
		bad  string // else, what the error says
	}{
		{name: "loop", n: 3, want: 0, body: func(r *choosing) { r.loop(func() { r.add(-1) }) }},
		{name: "no round", n: 0, want: 0, body: func(r *choosing) { r.loop(func() { r.add(-1) }) }},
		{name: "behind it", n: 2, want: 7, body: func(r *choosing) { r.loop(func() { r.add(-1) }); r.add(7) }},
		{name: "loop in a branch", n: 1, want: 0, body: func(r *choosing) { r.branches(func() {}, func() { r.loop(func() { r.add(-1) }) }) }},
		{name: "first branch", n: 0, want: 5, body: func(r *choosing) { r.branches(func() { r.add(5) }, func() { r.add(6) }) }},
		{name: "no such branch", n: 9, want: 15, body: func(r *choosing) { r.branches(func() { r.add(5) }, func() { r.add(6) }) }},
		{name: "before the first", n: -9, want: -3, body: func(r *choosing) { r.branches(func() { r.add(5) }, func() { r.add(6) }) }},
		{name: "another stream in a body", n: 2, want: 0, body: func(r *choosing) {
			r.loop(func() { r.add(-1); r.after(1, 0); r.work(1); r.after(0, 1) })
		}},
		{name: "not set", bad: "nobody has set", body: func(r *choosing) { r.divide(r.number(), true, func() {}) }},
		{name: "flags in a body", bad: "cuStreamWriteValue32", body: func(r *choosing) {
			r.loop(func() { r.ok(r.f.StreamWrite32(r.ctx, r.s[0], r.at, 0)) })
		}},
		{name: "a number of nobody", bad: "no node", body: func(r *choosing) { r.number() }},
		{name: "two nodes of one number", bad: "another node's", body: func(r *choosing) {
			by := r.number()
			r.set(by, 0)
			r.divide(by, true, func() { r.set(by, 0) })
			r.divide(by, true, func() { r.set(by, 0) })
		}},
		{name: "an event of another part", bad: "ended", body: func(r *choosing) {
			e := r.record(0)
			r.loop(func() { r.add(-1); r.bad(r.f.StreamWait(r.ctx, r.s[0], e)) })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newChoosing(t)
			err := r.run(c.body, c.n)
			switch {
			case c.bad == "" && err != nil:
				t.Fatal(err)
			case c.bad != "" && (err == nil || !strings.Contains(err.Error(), c.bad)):
				t.Errorf("got %v, want %q", err, c.bad)
			case c.bad == "" && r.get() != c.want:
				t.Errorf("%d, want %d", r.get(), c.want)
			}
		})
	}
}

// choosing captures a graph in which a number in memory decides.
type choosing struct {
	*capturing
	at, stop driver.Ptr
	choose   driver.Func
	plus     driver.CFunc
	graph    driver.Graph
	err      error
}

func newChoosing(t *testing.T) *choosing {
	r := &choosing{capturing: newCapturing(t)}
	m, err := r.f.ModuleLoad(r.ctx, []byte(".visible .entry choose(...)"))
	r.ok(err)
	t.Cleanup(func() { r.f.ModuleUnload(r.ctx, m) })
	r.choose, err = r.f.Function(r.ctx, m, "choose")
	r.ok(err)
	r.at, err = r.f.MemAlloc(r.ctx, 256)
	r.ok(err)
	t.Cleanup(func() { r.f.MemFree(r.ctx, r.at) })
	r.ok(r.f.Memset32(r.ctx, r.s[0], r.at, 0, 64))
	r.ok(r.f.StreamSync(r.ctx, r.s[0]))
	r.stop = r.at + 64
	r.plus = r.f.RegisterCall(func(args []uint64) error {
		b := driver.HostBytes(r.at, 8)
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)+args[0])
		return nil
	})
	return r
}

func (r *choosing) get() int64 { return int64(binary.LittleEndian.Uint64(driver.HostBytes(r.at, 8))) }

// bad keeps the first error that is looked for.
func (r *choosing) bad(err error) {
	if r.err == nil {
		r.err = err
	}
}

// run captures, and launches the graph twice: the numbers of one launch are not the next one's.
func (r *choosing) run(body func(*choosing), n int64) error {
	r.ok(r.f.CaptureBegin(r.ctx, r.s[0]))
	body(r)
	g, err := r.f.CaptureEnd(r.ctx, r.s[0])
	r.ok(err)
	if r.graph != 0 && g != r.graph {
		r.t.Errorf("the capture ends with graph %d, not %d", g, r.graph)
	}
	defer func() {
		r.ok(r.f.GraphDestroy(r.ctx, g))
		for _, o := range r.f.objects {
			switch o.(type) {
			case *graph, *condition:
				r.t.Errorf("%T is left", o)
			}
		}
	}()
	if r.err != nil {
		return r.err
	}
	x, err := r.f.GraphInstantiate(r.ctx, g)
	if err != nil {
		return err
	}
	defer r.f.ExecDestroy(r.ctx, x)
	for range 2 {
		binary.LittleEndian.PutUint64(driver.HostBytes(r.at, 8), uint64(n))
		r.ok(r.f.GraphLaunch(r.ctx, x, r.s[0]))
		if err := r.f.StreamSync(r.ctx, r.s[0]); err != nil {
			return err
		}
	}
	return nil
}

func (r *choosing) add(n int64) {
	var c driver.Commands
	c.Call(driver.Main, r.plus, uint64(n))
	r.ok(r.f.Run(r.ctx, c.On(r.s[0])))
}

func (r *choosing) number() driver.Condition {
	by, err := r.f.ConditionCreate(r.ctx, r.s[0])
	r.ok(err)
	return by
}

func (r *choosing) set(by driver.Condition, branches int) {
	p := binary.LittleEndian.AppendUint64(nil, uint64(by))
	p = binary.LittleEndian.AppendUint64(p, uint64(r.at))
	p = binary.LittleEndian.AppendUint32(p, 8)
	p = binary.LittleEndian.AppendUint32(p, uint32(branches))
	p = binary.LittleEndian.AppendUint64(p, uint64(r.stop))
	r.ok(r.f.Launch(r.ctx, r.s[0], r.choose, 1, 1, 0, p))
}

func (r *choosing) loop(body func()) {
	by := r.number()
	r.set(by, 0)
	r.divide(by, true, func() { body(); r.set(by, 0) })
}

func (r *choosing) branches(bodies ...func()) {
	by := r.number()
	r.set(by, len(bodies))
	r.divide(by, false, bodies...)
}

func (r *choosing) divide(by driver.Condition, loop bool, bodies ...func()) {
	d, err := r.f.CaptureDivide(r.ctx, r.s[0], by, loop, len(bodies))
	if err != nil {
		r.bad(err)
		r.ok(r.f.CaptureInto(r.ctx, r.s[0], d.Graph, r.last(d.Graph)))
		return
	}
	if r.graph == 0 {
		r.graph = d.Graph
	}
	for i, body := range bodies {
		r.ok(r.f.CaptureInto(r.ctx, r.s[0], d.Bodies[i], 0))
		body()
		if _, err := r.f.CaptureEnd(r.ctx, r.s[0]); err != nil {
			r.t.Fatal(err)
		}
	}
	r.ok(r.f.CaptureInto(r.ctx, r.s[0], d.Graph, d.Node))
}

// last is the last node of a graph.
func (r *choosing) last(g driver.Graph) driver.Node {
	o, err := lookUp[*graph](r.f, "", uint64(g))
	r.ok(err)
	return driver.Node(len(o.ops))
}
