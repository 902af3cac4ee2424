package gomlx

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	rt "github.com/seed-ee968945/concert/runtime"
)

// executable is a program, which is loaded into a world when it first runs there.
type executable struct {
	b          *Backend
	name       string
	names      []string
	inputs     []shapes.Shape // of each device
	whole      []shapes.Shape // of all together
	outputs    []shapes.Shape
	replicated []bool              // by output: all devices have the same
	devices    []compute.DeviceNum // nil: any one
	prog       *compiled
	sites      *sites

	mu   sync.Mutex
	on   map[*world]*loaded
	gone bool
}

// Compile imports, partitions and compiles the computation.
func (n *builder) Compile() (compute.Executable, error) {
	if n.done {
		return nil, errors.Errorf("concert: computation %q is compiled", n.name)
	}
	if !n.main.returned {
		return nil, errors.Errorf("concert: the main function of %q has not returned", n.name)
	}
	n.done = true
	x := &executable{b: n.b, name: n.name, names: n.main.inputs, sites: &n.sites, on: map[*world]*loaded{}}
	all := n.onMesh()
	if n.fixed() {
		x.devices = n.assigned()
	}
	if err := n.donate(); err != nil {
		return nil, err
	}
	for i, v := range n.main.params {
		x.inputs, x.whole = append(x.inputs, n.local(v.shape, n.main.specs[i])), append(x.whole, v.shape)
	}
	for i, v := range n.main.outs {
		s := n.main.outSpecs[i]
		x.outputs, x.replicated = append(x.outputs, n.local(v.shape, s)), append(x.replicated, n.sharded() && replicated(s))
	}
	var err error
	if x.prog, err = n.b.compile(n); err != nil || !all {
		return x, n.sites.explain(err)
	}
	s := &spread{executable: x, results: shapesOf(n.main.outs)}
	for i, v := range n.main.params {
		s.ins = append(s.ins, n.tiles(v.shape, n.main.specs[i]))
	}
	for i, v := range n.main.outs {
		s.outs = append(s.outs, n.tiles(v.shape, n.main.outSpecs[i]))
	}
	return s, nil
}

func (x *executable) Inputs() ([]string, []shapes.Shape) {
	return slices.Clone(x.names), slices.Clone(x.inputs)
}

func (x *executable) Outputs() []shapes.Shape { return slices.Clone(x.outputs) }

// Finalize drops the program.
func (x *executable) Finalize() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.gone = true
	for _, l := range x.on {
		l.drop()
	}
	clear(x.on)
}

// load is the program in the world that it is to run in.
func (x *executable) load(device compute.DeviceNum, inputs []compute.Buffer) (*loaded, error) {
	devices := x.devices
	if devices == nil {
		if device < 0 || int(device) >= x.b.devices {
			return nil, errors.Errorf("concert: there is no device %d of %d", device, x.b.devices)
		}
		devices = []compute.DeviceNum{device}
	}
	w, err := x.b.world(devices)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.gone {
		return nil, errors.Errorf("concert: computation %q is finalized", x.name)
	}
	l := x.on[w]
	if l == nil || l.c.initial { // which stays for one run
		if l, err = w.load(x.prog, inputs); err != nil {
			return nil, errors.WithMessagef(x.sites.explain(err), "computation %q", x.name)
		}
		x.on[w] = l
	}
	return l, nil
}

// Execute runs the program once on every device.
func (x *executable) Execute(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) ([]compute.Buffer, error) {
	l, err := x.load(device, inputs)
	if err != nil {
		return nil, err
	}
	bufs, err := x.check(l, inputs, donate)
	if err != nil {
		return nil, err
	}
	l.w.running.Lock()
	defer l.w.running.Unlock()
	if l.users == 0 {
		return nil, errors.Errorf("concert: computation %q is finalized", x.name)
	}
	outs, err := x.execute(l, bufs, donate)
	return outs, errors.WithMessagef(x.sites.explain(err), "computation %q", x.name)
}

// check gives the inputs as buffers that are no other world's.
func (x *executable) check(l *loaded, inputs []compute.Buffer, donate []bool) ([]*Buffer, error) {
	np, n := len(x.inputs), len(l.w.devices)
	switch {
	case len(inputs) != np*n:
		return nil, errors.Errorf("concert: computation %q takes %d inputs on %d devices, not %d in all", x.name, np, n, len(inputs))
	case donate != nil && len(donate) != len(inputs):
		return nil, errors.Errorf("concert: %d inputs, and %d say whether they are donated", len(inputs), len(donate))
	}
	bufs := make([]*Buffer, len(inputs))
	for i, in := range inputs {
		u, ok := in.(*Buffer)
		if !ok || u == nil || u.b != x.b {
			return nil, errors.Errorf("concert: %s is a buffer of another backend", x.input(i))
		}
		if k := i % np; !u.shape.Equal(x.inputs[k]) {
			return nil, errors.Errorf("concert: %s is %s, not %s%s", x.input(i), u.shape, x.inputs[k], x.hint(k, u.shape))
		}
		if u.elsewhere(l.w) { // or in pieces
			if _, err := u.fetch(); err != nil {
				return nil, errors.WithMessage(err, x.input(i))
			}
		}
		bufs[i] = u
	}
	return bufs, nil
}

// input names an input in errors.
func (x *executable) input(i int) string {
	k := i % len(x.inputs)
	text := fmt.Sprintf("input %d (%q) of computation %q", k, x.names[k], x.name)
	if len(x.devices) > 1 {
		text += fmt.Sprintf(" on device %d", x.devices[i/len(x.inputs)])
	}
	return text
}

// hint says why a variable may have come whole.
func (x *executable) hint(k int, shape shapes.Shape) string {
	if x.b.sharded || !strings.HasPrefix(x.names[k], "/") || !shape.Equal(x.whole[k]) {
		return ""
	}
	return "; if the computation that gave it was asked for replicated results, as GoMLX's Trainer asks, configure the backend with variables=sharded"
}

func (u *Buffer) elsewhere(w *world) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.at != nil && u.at.l.w != w || u.home != nil && u.home.l.w != w || u.pieces != nil
}

// execute runs the program; the world is locked.
func (x *executable) execute(l *loaded, bufs []*Buffer, donate []bool) ([]compute.Buffer, error) {
	if l.w.ranks == nil {
		return nil, errFinalized
	}
	np := len(x.inputs)
	args := make([][]rt.Value, len(l.w.ranks))
	stays := map[*Buffer]bool{} // donated where the next result goes
	var brought []func()        // what is there only when the run has ended well
	for j := range args {
		if l.w.ranks[j] == nil {
			continue
		}
		args[j] = slices.Clone(l.c.constants)
		for i := range args[j] {
			args[j][i].Resident = l.ran && args[j][i].Data != nil
		}
	}
	if err := l.narrow(args, bufs); err != nil {
		return nil, err
	}
	for j := range args {
		if args[j] == nil {
			continue
		}
		for k, i := range l.c.params {
			at := j*np + k
			u, gives := bufs[at], donate != nil && donate[at]
			if err := l.bindCopy(args[j], u, j, i); err != nil {
				return nil, errors.WithMessage(err, x.input(at))
			}
			same, err := l.bind(&args[j][i], u, j, i)
			if err != nil {
				return nil, errors.WithMessage(err, x.input(at))
			}
			if gives && same {
				stays[u] = true
			}
			if l.there[j][i] = (weak.Pointer[Buffer]{}); !gives && !l.c.donated(i) {
				brought = append(brought, func() { l.there[j][i] = weak.Make(u) })
			}
		}
	}
	if err := l.save(stays); err != nil {
		return nil, err
	}
	results, err := l.run(args)
	if err != nil {
		return nil, err
	}
	for _, say := range brought {
		say()
	}
	for i, gives := range donate {
		if gives {
			bufs[i].Finalize()
		}
	}
	var out []compute.Buffer
	for j := range results {
		vs := results[j]
		if vs == nil { // another process's: results have one place on all ranks
			vs = results[l.w.mine]
		}
		for i, v := range vs[:len(x.outputs)] {
			u := &Buffer{b: x.b, shape: x.outputs[i], dev: l.w.devices[j], at: &place{l: l, rank: j, t: v.Place}}
			if x.b.place != nil && len(l.w.ranks) > 1 {
				u.spread(x.replicated[i])
			}
			l.left(u, i)
			out = append(out, u)
		}
	}
	if l.c.initial {
		return out, l.once()
	}
	return out, nil
}

// bind says where input i of rank j comes from, and whether it is there already.
func (l *loaded) bind(v *rt.Value, u *Buffer, j, i int) (there bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.at != nil && u.at.rank == j {
		v.Place = u.at.t
		if there = same(u.at.t, l.wants[i]); there || !l.clashes(u.at) {
			return there, nil
		}
		v.Place = rt.Tensor{}
	}
	if err := u.bring(); err != nil {
		return false, err
	}
	v.Data = dtypes.UnsafeByteSliceFromAny(u.flat)
	v.Resident = !u.given && l.there[j][i].Value() == u
	return false, nil
}

// same reports whether two tensors are the same bytes, seen alike.
func same(a, b rt.Tensor) bool {
	return a.Off == b.Off && a.DType == b.DType && slices.Equal(a.Shape, b.Shape) && slices.Equal(a.StridesOrDense(), b.StridesOrDense())
}

// clashes reports whether some input goes where a value is: a result of the last run, or what was
// there when the program took its memory.
func (l *loaded) clashes(at *place) bool {
	if at.l != l && !slices.Contains(l.taken, at.room) {
		return false
	}
	lo, hi, _ := at.t.Span()
	return slices.ContainsFunc(l.wants, func(t rt.Tensor) bool {
		a, b, _ := t.Span()
		return a < hi && lo < b
	})
}

// donated reports whether a result takes the place of input i.
func (c *compiled) donated(i int) bool { return c.prog.Donated(i) >= 0 }
