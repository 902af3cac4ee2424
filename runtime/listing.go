package runtime

import (
	"fmt"
	"strings"

	"github.com/seed-ee968945/concert/program"
)

// listing is the text of a module's step: one line for each call, as rank 0 makes it
// with symbols at their hints. It stands in for the program's text, which emitted code
// does not hold, where ranks disagree or a rendezvous fails. Empty if the module has no step.
func (m *Module) listing(world int) *lister {
	d := &lister{m: m}
	if m.Step == nil {
		return d
	}
	r := &Rank{dev: d, env: Env{World: world}}
	x := &Exec{r: r, m: m, l: newLoaded(m, 0), syms: map[string]int64{}, recorded: make([]string, m.Events), ways: all}
	for i := range m.Streams {
		x.l.streams = append(x.l.streams, &namedStream{Stream: Stream(i)})
	}
	x.l.events = make([]Event, m.Events)
	for i := range x.l.events {
		x.l.events[i] = Event(i)
	}
	for _, s := range m.Symbols {
		x.syms[s.Name] = s.Hint
	}
	for _, q := range m.Inputs {
		if q.Async {
			x.recorded[q.Event] = "the caller"
		}
	}
	m.Step(x)
	if x.err != nil {
		fmt.Fprintf(&d.text, "%v\n", x.err)
	}
	return d
}

// lister is a device that writes down what it is told. An Exec makes no other calls
// than those that it has; what else a Device does is missing.
type lister struct {
	Device
	m     *Module
	text  strings.Builder
	first string // name of the first collective
}

func (d *lister) line(s Stream, what string, outs, ins []Tensor) {
	fmt.Fprintf(&d.text, "@%s %s %v -> %v\n", d.m.Streams[s], what, ins, outs)
}

// Launch writes a line.
func (d *lister) Launch(s Stream, k *Kernel) error {
	what := "launch " + k.Name()
	if len(k.Attrs) > 0 && k.Op != "rand" { // whose seed depends on the run
		what += " " + k.Attrs.String()
	}
	if len(k.Sizes) > 0 {
		what += fmt.Sprint(" ", k.Sizes)
	}
	d.line(s, what, k.Outs, k.Ins)
	return nil
}

// Collective writes a line.
func (d *lister) Collective(s Stream, c *Collective) error {
	if d.first == "" {
		d.first = c.Name()
	}
	d.line(s, fmt.Sprintf("%s {reduce=%q, dim=%d, root=%d, pairs=%v, splits=%v %v}", c.Name(), c.Reduce, c.Dim, c.Root, c.Pairs, c.InSplits, c.OutSplits), c.Outs, c.Ins)
	return nil
}

// Copy writes a line.
func (d *lister) Copy(s Stream, dst, src Tensor) error {
	d.line(s, "copy", []Tensor{dst}, []Tensor{src})
	return nil
}

// Record writes a line.
func (d *lister) Record(s Stream, e Event) error {
	fmt.Fprintf(&d.text, "@%s %v %d\n", d.m.Streams[s], program.Record, e)
	return nil
}

// Wait writes a line.
func (d *lister) Wait(s Stream, e Event) error {
	fmt.Fprintf(&d.text, "@%s %v %d\n", d.m.Streams[s], program.Wait, e)
	return nil
}
