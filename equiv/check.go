package equiv

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/equiv/internal/terms"
	"github.com/seed-ee968945/concert/ir"
)

// Options say which equations a proof may use.
type Options struct {
	// Reassociate allows equations that add or multiply floats in another order or
	// round at another place.
	Reassociate bool

	// ExcessPrecision allows 16-bit floats to be float32 anywhere: a proof does not tell them apart.
	ExcessPrecision bool

	// Without names equations that are not used.
	Without []string
}

// Prover holds the values of functions of one world, so that what several
// functions share is numbered and brought into normal form once. The zero Prover
// is not valid; see [NewProver].
type Prover struct {
	opts Options
	vals *terms.Values
	z    *terms.Normalizer

	loops      int                   // in each other, that are being read
	iterations int                   // operations of their iterations, so far
	long       []*long               // that have been read by induction
	bodies     map[string][]*Meaning // by function name: those read so far that are not known to be equal
}

// NewProver returns a prover for functions of modules of that many ranks.
func NewProver(world int, o Options) *Prover {
	vals := terms.NewValues(world, o.ExcessPrecision)
	return &Prover{opts: o, vals: vals, z: terms.New(vals, o.Reassociate, o.Without), bodies: map[string][]*Meaning{}}
}

// Finding is something that could not be proved.
type Finding struct {
	Func          string
	What          string // what was compared: result 2, effect 0, ...
	Before, After string // the nodes at which the functions part, as lines; either may be empty
	Rule          string // the equations that were tried, or what has to hold
}

// String is the finding on one to three lines.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "@%s: %s: %s", f.Func, f.What, f.Rule)
	if f.Before != "" {
		fmt.Fprintf(&b, "\n  before: %s", f.Before)
	}
	if f.After != "" {
		fmt.Fprintf(&b, "\n  after:  %s", f.After)
	}
	return b.String()
}

// Error lists what could not be proved.
type Error struct{ Findings []Finding }

// Error implements error.
func (e *Error) Error() string {
	lines := make([]string, len(e.Findings))
	for i, f := range e.Findings {
		lines[i] = f.String()
	}
	return "not proved equal: " + strings.Join(lines, "\n")
}

// Report says what a proof took.
type Report struct {
	Before, After int           // values of the functions
	Rewritten     int           // values that were brought into normal form
	Used          []EquationUse // in the order of the table, without those that were not used
}

// count adds what a normalizer did.
func (r *Report) count(z *terms.Normalizer) {
	r.Rewritten = z.Report(func(name string, count int) { r.Used = append(r.Used, EquationUse{name, count}) })
}

// EquationUse counts how often an equation was used.
type EquationUse struct {
	Name  string
	Count int
}

// Check proves that after computes what before does; see the package's head. The
// error is an *Error with everything that could not be proved. Both functions must
// be verified and of one world. Linear where no equation is needed; with equations,
// linear in the terms that they make.
func Check(before, after *ir.Func, o Options) (*Report, error) {
	if a, b := before.Module().World, after.Module().World; a != b {
		return nil, &Error{[]Finding{{Func: before.Name, What: "world", Rule: fmt.Sprintf("%d ranks became %d", a, b)}}}
	}
	p := NewProver(before.Module().World, o)
	return p.Compare(p.Read(before), p.Read(after))
}

// Compare proves that two functions, both read by p, compute the same. The error is an *Error
// with everything that could not be proved.
func (p *Prover) Compare(before, after *Meaning) (*Report, error) {
	c := &comparison{p: p, a: before, b: after}
	c.signature()
	c.results()
	c.effects()
	c.stages()
	c.order()
	rep := &Report{Before: before.values, After: after.values}
	rep.count(p.z)
	if c.findings != nil {
		return rep, &Error{c.findings}
	}
	return rep, nil
}

// comparison is the state of one Compare.
type comparison struct {
	p        *Prover
	a, b     *Meaning
	findings []Finding
}

func (c *comparison) fail(what, rule, before, after string) {
	c.findings = append(c.findings, Finding{c.a.name, what, before, after, rule})
}

func (c *comparison) signature() {
	if !slices.EqualFunc(c.a.inputs, c.b.inputs, ir.Type.Equal) {
		c.fail("inputs", "a function keeps its signature", fmt.Sprint(c.a.inputs), fmt.Sprint(c.b.inputs))
	}
	if !slices.Equal(c.a.donated, c.b.donated) {
		c.fail("inputs", "the same inputs are donated to the same results", fmt.Sprint(c.a.donated), fmt.Sprint(c.b.donated))
	}
}

func (c *comparison) results() {
	if len(c.a.outputs) != len(c.b.outputs) {
		c.fail("results", "a function keeps its signature", fmt.Sprint(len(c.a.outputs), " results"), fmt.Sprint(len(c.b.outputs), " results"))
		return
	}
	for i, x := range c.a.outputs {
		y := c.b.outputs[i]
		what := fmt.Sprintf("result %d", i)
		if !x.typ.Equal(y.typ) {
			c.fail(what, "a function keeps its signature", x.typ.String(), y.typ.String())
			continue
		}
		for k := range x.tensors {
			c.same(what, x.tensors[k], y.tensors[k])
		}
	}
	c.sharing()
	if !slices.EqualFunc(c.a.left, c.b.left, func(x, y leftover) bool { return x.of == y.of }) {
		c.fail("inputs", "the same inputs are written in place", "", "")
		return
	}
	for i, x := range c.a.left {
		c.same(fmt.Sprintf("input %d at the end", x.of.input), x.value, c.b.left[i].value)
	}
}

// sharing refuses results that share a storage which they did not share before:
// the caller may write to one while it holds the other.
func (c *comparison) sharing() {
	type tensor struct{ out, k int }
	seen := map[home]tensor{} // the first result of a storage of after; look-up only
	for i, y := range c.b.outputs {
		for k, h := range y.homes {
			x := c.a.outputs[i].homes[k]
			if h.input >= 0 && x != h {
				c.fail(fmt.Sprintf("result %d", i), fmt.Sprintf("it lies in the storage of input %d, as it did not before", h.input), "", "")
			}
			if f, ok := seen[h]; ok && c.a.outputs[f.out].homes[f.k] != x {
				c.fail(fmt.Sprintf("result %d", i), fmt.Sprintf("it shares the storage of result %d, as it did not before", f.out), "", "")
			} else if !ok {
				seen[h] = tensor{i, k}
			}
		}
	}
}

// effects compares what communicates and what draws random numbers in order, and
// in-place writes as a set: each write of the one function is one of the other.
func (c *comparison) effects() {
	for _, kind := range ordered {
		pick := func(m *Meaning) []effect {
			return slices.DeleteFunc(slices.Clone(m.effects), func(e effect) bool { return e.kind&kind == 0 })
		}
		c.paired("effects of a kind are kept, in their order", pick(c.a), pick(c.b))
	}
	plain := func(m *Meaning) []effect {
		return slices.DeleteFunc(slices.Clone(m.effects), func(e effect) bool {
			return slices.ContainsFunc(ordered[:], func(kind ir.Effect) bool { return e.kind&kind != 0 })
		})
	}
	before, after := unmatched(plain(c.a), plain(c.b), func(e effect) string { return fmt.Sprint(e.what, e.args) })
	before, after = withoutRounds(before, after)
	c.paired("in-place writes are kept", before, after)
}

// withoutRounds leaves out the writes of rounds that the other side does not have: a loop whose body writes
// storages of its own has no effect, and goes where nothing reads what it gives.
func withoutRounds(before, after []effect) (b, a []effect) {
	for len(before)+len(after) > 0 {
		same := len(before) > 0 && len(after) > 0 && before[0].what == after[0].what
		switch {
		case !same && len(before) > 0 && before[0].round:
			before = before[1:]
			continue
		case !same && len(after) > 0 && after[0].round:
			after = after[1:]
			continue
		}
		if len(before) > 0 {
			b, before = append(b, before[0]), before[1:]
		}
		if len(after) > 0 {
			a, after = append(a, after[0]), after[1:]
		}
	}
	return b, a
}

// paired compares effects one by one.
func (c *comparison) paired(rule string, before, after []effect) {
	for i := range max(len(before), len(after)) {
		var x, y effect
		if i < len(before) {
			x = before[i]
		}
		if i < len(after) {
			y = after[i]
		}
		if x.what != y.what || len(x.args) != len(y.args) {
			c.fail("effects", rule, line(x), line(y))
			return
		}
		for k := range x.args {
			c.same(fmt.Sprintf("operand %d of %%%s", k, x.node), x.args[k], y.args[k])
		}
	}
}

func line(e effect) string {
	if e.node == "" {
		return "none"
	}
	return "%" + e.node + " = " + e.what
}

// order checks that collectives stay on their side of opaque calls that
// communicate: what is new between two such calls stands for something that is
// gone from there, and is not what is gone from between two others, or repeats what is there.
func (c *comparison) order() {
	if c.a.fences == 0 || c.a.fences != c.b.fences || c.b.halves {
		return
	}
	what := func(m comm) string {
		var of []terms.TermID
		for _, a := range m.args {
			of = append(of, c.p.z.Norm(a))
		}
		return fmt.Sprint(m.what, of)
	}
	was, is := unmatched(c.a.comms, c.b.comms, func(m comm) string { return fmt.Sprint(m.epoch, m.what, m.args) })
	was, is = unmatched(was, is, func(m comm) string { return fmt.Sprint(m.epoch, what(m)) })
	gone, from, there := make([]bool, c.a.fences+1), map[string]bool{}, map[string]bool{} // look-up only
	for _, m := range was {
		gone[m.epoch], from[what(m)] = true, true
	}
	if len(is) > 0 {
		for _, m := range c.a.comms {
			there[fmt.Sprint(m.epoch, what(m))] = true
		}
	}
	for _, m := range is {
		if there[fmt.Sprint(m.epoch, what(m))] {
			continue
		}
		if !gone[m.epoch] || from[what(m)] {
			c.fail("order", "a collective keeps its side of opaque calls that communicate", "", "%"+m.node+" is new between two of them")
			return
		}
	}
}

// unmatched are those of a and of b that the other does not have, one for one.
func unmatched[T any](a, b []T, key func(T) string) (x, y []T) {
	left := func(list, others []T) []T {
		count := map[string]int{} // look-up only
		for _, o := range others {
			count[key(o)]++
		}
		return slices.DeleteFunc(slices.Clone(list), func(o T) bool {
			count[key(o)]--
			return count[key(o)] >= 0
		})
	}
	return left(a, b), left(b, a)
}

// MaxFindings bounds the findings of one comparison: one wrong value near the
// inputs makes all results differ.
const MaxFindings = 8

// same proves that two values are equal.
func (c *comparison) same(what string, x, y terms.ValueID) {
	if x == y || len(c.findings) >= MaxFindings {
		return
	}
	if s, t, ok := c.p.z.Equal(x, y); !ok {
		c.fail(what, c.p.z.Tried(s, t), c.p.z.Describe(s), c.p.z.Describe(t))
	}
}
