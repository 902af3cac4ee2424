package runtime

import (
	"maps"
	"slices"

	"github.com/seed-ee968945/concert/program"
)

// memo keeps what the instructions of a program were for the device when they were
// enqueued last, so that enqueueing them again with the same sizes looks nothing up
// and makes nothing.
type memo struct {
	syms map[string]int64
	made []made // by instruction
}

// made is an instruction as the device takes it: a launch or a collective; neither
// stands for one that is made anew each time.
type made struct {
	stream Stream
	kernel *Kernel
	launch func() error // of the kernel, on a device that prepares launches
	coll   *Collective
}

// memory is what is known of p's instructions at the sizes of x.
func (x *Exec) memory(p *program.Program) []made {
	m := x.l.memo[p]
	if m == nil || !maps.Equal(m.syms, x.syms) {
		m = &memo{syms: x.syms, made: make([]made, len(p.Instrs))}
		if x.l.memo == nil {
			x.l.memo = map[*program.Program]*memo{}
		}
		x.l.memo[p] = m
	}
	return m.made
}

// again enqueues an instruction that has been enqueued before; false if it has not.
func (x *Exec) again(m *made) bool {
	switch {
	case m.launch != nil:
		x.done(m.launch())
		x.reads(m.stream, m.kernel)
	case m.kernel != nil:
		x.done(x.r.dev.Launch(m.stream, m.kernel))
		x.reads(m.stream, m.kernel)
	case m.coll == nil:
		return false
	case !x.skips(m.coll):
		x.done(x.r.dev.Collective(m.stream, m.coll))
	}
	return true
}

// remember keeps what a call became: as that of the instruction at hand, or else of c.
func (x *Exec) remember(c *called, m made) {
	switch {
	case x.keep != nil && x.varies: // another one in the next run
	case x.keep != nil:
		*x.keep = m
	case c != nil:
		c.made = m
	}
}

// atSizes gives a launch its kernel for the sizes at hand.
func (l *loaded) atSizes(kernel int, k *Kernel) error {
	last, ok := l.sized[kernel]
	if ok && slices.Equal(last.sizes, k.Sizes) {
		k.Code = last.code
		return nil
	}
	code, err := k.Code.at(k.Sizes)
	if err != nil || code == k.Code {
		return err
	}
	if l.sized == nil {
		l.sized = map[int]sized{}
	}
	k.Code, l.sized[kernel] = code, sized{slices.Clone(k.Sizes), code}
	delete(l.checked, kernel)
	return nil
}

// fits reports whether a kernel's parameters have the layouts that it was checked for
// last.
func (l *loaded) fits(kernel int, k *Kernel) bool {
	was := l.checked[kernel]
	if len(was) != len(k.Ins)+len(k.Outs) || len(was) == 0 {
		return false
	}
	for i := range was {
		t := &was[i]
		var u *Tensor
		if i < len(k.Ins) {
			u = &k.Ins[i]
		} else {
			u = &k.Outs[i-len(k.Ins)]
		}
		if !t.SameType(*u) || !slices.Equal(t.Strides, u.Strides) {
			return false
		}
	}
	return true
}
