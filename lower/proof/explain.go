package proof

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/program"
)

// known is asked for what an instruction has computed. That has to be something that the
// function computes, too: so what goes wrong is found where it does, also if nobody reads
// it. It is the function's term for x.
func (c *comparison) known(in *program.Instr, k int, x termID) termID {
	if x < c.mine || c.foreign[x] {
		return x
	}
	t := c.b.terms[x]
	for _, a := range t.args {
		if c.tainted(a) {
			c.foreign[x] = true
			return x
		}
	}
	if w := c.resolved(in, x); w != x {
		return w
	}
	c.foreign[x] = true
	rule := "the function computes no such thing"
	if w := c.meant(in, k, &t); w != nil {
		rule = c.parts(in, k, &t, w)
	}
	c.fail(fmt.Sprintf("instruction %d, result %d", c.b.instr, k), c.node(in.Node), c.line(int(c.b.instr)), rule)
	return x
}

// meant is what the function has for result k of an instruction, of a kernel's something
// like t; nil if there is nothing.
func (c *comparison) meant(in *program.Instr, k int, t *term) *term {
	fr, n := c.lookUp(in.Node)
	if n == nil {
		return nil
	}
	made := fr.made[n.ID()]
	if in.Op == program.OpFused {
		made = fr.region(n)
		k = slices.IndexFunc(made, func(w termID) bool { return c.b.terms[w].op == t.op && c.b.terms[w].typ.Equal(t.typ) })
	}
	if k < 0 || k >= len(made) {
		return nil
	}
	return &c.b.terms[made[k]]
}

// tainted reports whether x has come of a result that is none of the function.
func (c *comparison) tainted(x termID) bool {
	t := &c.b.terms[x]
	return x >= c.mine && (c.foreign[x] || t.kind == window && c.tainted(t.args[0]))
}

// parts says where result k of an instruction, t, and the function's, w, part.
func (c *comparison) parts(in *program.Instr, k int, t, w *term) string {
	switch {
	case t.op != w.op && t.kind == applied:
		return fmt.Sprintf("it is %s and not %s", t.op, w.op)
	case t.group != w.group:
		return "it has another group"
	case !t.attrs.Equal(w.attrs):
		return fmt.Sprintf("its attributes are %s and not %s", t.attrs, w.attrs)
	case t.kind != w.kind || t.index != w.index || len(t.args) != len(w.args):
		return "it is another operation"
	}
	if in.Kind != program.Collective {
		k = 0 // else a result has the operand of its number
	}
	for i, a := range t.args {
		if b := w.args[i]; a != b {
			return fmt.Sprintf("operand %d%s holds %s and not %s", k+i, c.where(in, k+i), c.name(a), c.name(b))
		}
	}
	if !t.typ.Equal(w.typ) {
		return fmt.Sprintf("it gives %s and not %s", t.typ, w.typ)
	}
	return "it is told apart by " + t.self
}

// where is the range of an operand.
func (c *comparison) where(in *program.Instr, k int) string {
	if in.Op == program.OpFused || k >= len(in.Ins) {
		return ""
	}
	lo, hi := c.m.bytes(&in.Ins[k], c.m.typeOf(&in.Ins[k]))
	return fmt.Sprintf(" at bytes %d..%d", lo, hi)
}

// name says what a term is, in a few words.
func (c *comparison) name(x termID) string {
	if t := &c.b.terms[x]; t.kind == unknown {
		return c.m.lost[x]
	}
	return c.b.name(x)
}

func (b *termStore) name(x termID) string {
	t := &b.terms[x]
	who := "%" + t.node
	if t.node == "" {
		who = fmt.Sprintf("instruction %d", t.instr)
	}
	switch t.kind {
	case given:
		return fmt.Sprintf("input %d", t.index)
	case carried:
		return fmt.Sprintf("what %%%s carries as its result %d", t.self, t.index)
	case applied:
		switch {
		case t.instr >= 0:
			return "what the program has for " + who
		case t.op.IsCollective():
			if x := &b.terms[t.args[0]]; x.node != "" {
				return who + " of %" + x.node
			}
		case t.index > 0:
			return fmt.Sprintf("%s#%d", who, t.index)
		}
		return who
	case window:
		return fmt.Sprintf("%s from byte %d of %s (%s)", t.typ, t.at, b.name(t.args[0]), t.in)
	case changed:
		return fmt.Sprintf("what %s has left of its operand %d", who, t.index)
	case nothing:
		return "no element"
	}
	return "bytes of several tensors"
}

// differ reports two terms that are not equal.
func (c *comparison) differ(what, rule string, want, got termID) {
	c.fail(what, c.name(want), c.name(got), rule)
}
