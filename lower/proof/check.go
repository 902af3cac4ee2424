package proof

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/equiv"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
)

// Check proves that a program computes what a verified function does, see the
// package's head. The error is an *equiv.Error with what could not be proved, or says why the
// program is malformed. O(n log n) in nodes and instructions, but for moving the entries of
// live bytes, and copying them for each branch.
func Check(f *ir.Func, p *program.Program) error {
	if err := p.Validate(); err != nil {
		return err
	}
	b := newTermStore(f.Module(), len(f.Order()))
	c := &comparison{f: f, p: p, b: b, foreign: map[termID]bool{}}
	if c.signature(); c.findings != nil {
		return &equiv.Error{Findings: c.findings}
	}
	want, err := b.meaningOf(f)
	if err != nil {
		c.fail("views", "", "", err.Error())
		return &equiv.Error{Findings: c.findings}
	}
	c.mine = termID(len(b.terms))
	c.want = want
	m := &machine{b: b, p: p, m: &meaning{}, mem: newMemory(p), kernel: map[string]*program.Kernel{}, known: c.known, lost: map[termID]string{}, want: want, wrong: c.wrong}
	c.m = m
	switch err := m.run().(type) {
	case nil:
		c.compare(want, m.m)
	case *failure:
		c.fail(c.site(err.instr), c.node(p.Instrs[err.instr].Node), c.line(err.instr), err.rule)
	default:
		c.fail("program", "", "", err.Error())
	}
	if c.findings != nil {
		return &equiv.Error{Findings: c.findings}
	}
	return nil
}

// maxFindings bounds the findings: one wrong operand near the start makes all results
// differ.
const maxFindings = 8

// comparison is the state of one Check.
type comparison struct {
	f        *ir.Func
	p        *program.Program
	b        *termStore
	m        *machine
	want     *meaning
	mine     termID          // terms from here on the program alone has made
	foreign  map[termID]bool // results that are none of the function, which has been said; look-up only
	findings []equiv.Finding
}

func (c *comparison) fail(what, before, after, rule string) {
	if len(c.findings) < maxFindings {
		c.findings = append(c.findings, equiv.Finding{Func: c.f.Name, What: what, Before: before, After: after, Rule: rule})
	}
}

func (c *comparison) site(instr int) string { return fmt.Sprintf("instruction %d", instr) }

func (c *comparison) line(instr int) string {
	return string(c.p.AppendInstr(nil, &c.p.Instrs[instr]))
}

func (c *comparison) node(name string) string {
	if _, n := c.lookUp(name); n != nil {
		return n.String()
	}
	return ""
}

// lookUp finds a node that has the path of its body before its name.
func (c *comparison) lookUp(name string) (*frame, *ir.Node) {
	for path, end := "", len(name); ; {
		if fr := c.want.frames[path]; fr != nil {
			if n := fr.f.Lookup(name[len(path):]); n != nil {
				return fr, n
			}
		}
		i := strings.LastIndex(name[:end], "/")
		if i < 0 {
			return nil, nil
		}
		path, end = name[:i+1], i
	}
}

// wrong says what a loop or a branch holds and should not.
func (c *comparison) wrong(what string, want, got termID) {
	i := int(c.b.instr)
	c.fail(what, c.name(want), c.name(got), "at "+c.site(i)+", "+c.line(i))
}

// compare compares what can be seen.
func (c *comparison) compare(want, got *meaning) {
	c.tensors(want.results, got.results, "a result is what the function returns")
	c.tensors(want.kept, got.kept, "inputs of the caller hold what the function leaves in them")
	c.apart(slices.Concat(want.results, want.kept), slices.Concat(got.results, got.kept))
	c.events("effects", want.effects, got.effects)
	c.groups(want.comms, got.comms)
	c.order()
}

// order holds the program to order-only edges, where both ends are instructions: a node
// that a wait stands for need not have one.
func (c *comparison) order() {
	var first map[string]int // look-up only
	for _, path := range slices.Sorted(maps.Keys(c.want.frames)) {
		for _, n := range c.want.frames[path].f.Order() {
			if len(n.After()) == 0 {
				continue
			}
			if first == nil {
				first = map[string]int{}
				for i := range c.p.Instrs {
					in := &c.p.Instrs[i]
					if _, ok := first[in.Node]; !ok && in.Kind != program.Record && in.Kind != program.Wait {
						first[in.Node] = i
					}
				}
			}
			for _, o := range n.After() {
				i, ok := first[path+n.Name()]
				j, ok2 := first[path+o.Name()]
				if ok && ok2 && i < j {
					c.fail("order", n.String(), c.line(i), "the node comes after %"+o.Name())
				}
			}
		}
	}
}

func (c *comparison) tensors(want, got []seen, rule string) {
	for i, w := range want {
		if g := got[i]; w.holds != g.holds {
			c.differ(w.what, rule, w.holds, g.holds)
		}
	}
}

// apart refuses tensors of the caller that share bytes and are in two storages of the
// function: the caller may write to one while it holds the other.
func (c *comparison) apart(want, got []seen) {
	order := make([]int, 0, len(got))
	for i, g := range got {
		if g.lo < g.hi {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(i, j int) int {
		if got[i].lo != got[j].lo {
			return int(min(max(got[i].lo-got[j].lo, -1), 1))
		}
		return i - j
	})
	last := -1 // that which reaches furthest
	for _, i := range order {
		if last >= 0 && got[last].hi > got[i].lo && want[last].root != want[i].root {
			c.fail(want[i].what, "", fmt.Sprintf("bytes %d..%d and %d..%d of the arena", got[last].lo, got[last].hi, got[i].lo, got[i].hi),
				"it shares bytes with "+want[last].what+", as it does not in the function")
		}
		if last < 0 || got[i].hi > got[last].hi {
			last = i
		}
	}
}

// events compares effects one by one.
func (c *comparison) events(what string, want, got []event) {
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got):
			c.fail(what, c.node(want[i].node), "", "the program does not do it")
		case i >= len(want):
			c.fail(what, "", c.line(int(got[i].instr)), "the function does not do it")
		case want[i].what != got[i].what || want[i].group != got[i].group || len(want[i].args) != len(got[i].args):
			c.fail(what, c.node(want[i].node), c.line(int(got[i].instr)), "they keep their order and their operands")
		default:
			for k, x := range want[i].args {
				if y := got[i].args[k]; x != y {
					c.differ(fmt.Sprintf("operand %d of %%%s", k, want[i].node), "they keep their order and their operands", x, y)
					return
				}
			}
			continue
		}
		return
	}
}

// groups compares what communicates, group by group. The members of one bucket have no
// order.
func (c *comparison) groups(want, got []event) {
	split := func(es []event) [][]event {
		out := make([][]event, len(c.b.sizes)+1)
		for _, e := range es {
			out[e.group+1] = append(out[e.group+1], e)
		}
		return out
	}
	ws, gs := split(want), split(got)
	for g := range ws {
		w, h := ws[g], gs[g]
		for i := 0; i < len(w) && len(w) == len(h); {
			n := 1
			for i+n < len(w) && w[i+n].node == w[i].node {
				n++
			}
			sorted(w[i : i+n])
			sorted(h[i : i+n])
			i += n
		}
		c.events("communication", w, h)
	}
}

func sorted(es []event) {
	slices.SortStableFunc(es, func(x, y event) int {
		if x.what != y.what {
			return strings.Compare(x.what, y.what)
		}
		return slices.Compare(x.args, y.args)
	})
}
