package proof

import (
	"fmt"
	"maps"
	"slices"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/program"
)

// signature compares what both say of the caller.
func (c *comparison) signature() {
	m := c.f.Module()
	if m.World != c.p.World {
		c.fail("world", "", "", fmt.Sprintf("%d ranks became %d", m.World, c.p.World))
	}
	var syms []program.Symbol
	for _, s := range m.Symbols() {
		syms = append(syms, program.Symbol{Name: s.Name, Hint: s.Hint, Min: s.Min, Max: s.Max})
	}
	if !slices.Equal(syms, c.p.Symbols) {
		c.fail("symbols", fmt.Sprint(syms), fmt.Sprint(c.p.Symbols), "a program has its function's symbols")
	}
	var read []string
	for _, n := range c.f.SizeReads() {
		read = append(read, n.Attrs().Strs(ir.SymbolsKey)...)
	}
	slices.Sort(read)
	if in := slices.Sorted(maps.Keys(c.p.SizesRead())); !slices.Equal(read, in) {
		c.fail("symbols", fmt.Sprint(read), fmt.Sprint(in), "a program reads the symbols from tensors that its function does")
	}
	var ins, outs []param
	for _, n := range c.f.Inputs() {
		t := n.Result(0).Type()
		ins = append(ins, param{n.Name(), string(n.Role()), t.IsAsync(), int(n.Attrs().Int(ir.DonateKey, -1)), t.Tensors()})
	}
	for _, v := range c.f.Return().DeclaredArgs() {
		outs = append(outs, param{"", "", v.Type().IsAsync(), -1, v.Type().Tensors()})
	}
	c.params("input", ins, c.p.Inputs)
	c.params("output", outs, c.p.Outputs)
	c.needs()
}

// param is an input, or an output, which has no name or role of its own.
type param struct {
	name, role string
	async      bool
	donated    int // to the output of that number, or -1
	types      []ir.Type
}

func (q param) equal(o param) bool {
	return q.name == o.name && q.role == o.role && q.async == o.async && q.donated == o.donated && slices.EqualFunc(q.types, o.types, ir.Type.Equal)
}

func (q param) String() string {
	return fmt.Sprintf("%s {%s}, in flight: %t, donated to %d: %v", q.name, q.role, q.async, q.donated, q.types)
}

func (c *comparison) params(what string, want []param, have []program.Param) {
	const rule = "a program keeps its function's signature"
	if len(have) != len(want) {
		c.fail(what, fmt.Sprint(len(want)), fmt.Sprint(len(have)), rule)
		return
	}
	for i := range have {
		got := param{role: have[i].Role, async: have[i].Async, donated: -1}
		if what == "input" {
			got.name, got.donated = have[i].Name, c.p.Donated(i)
		}
		if got.types = (&machine{}).types(have[i].Tensors, nil); !got.equal(want[i]) {
			c.fail(fmt.Sprintf("%s %d", what, i), want[i].String(), got.String(), rule)
		}
	}
}

// needs demands that the program says which sizes have to be checked when it runs.
func (c *comparison) needs() {
	need := func(d ir.Dim, before string) {
		if r, ok := c.f.Module().Bounds(d); ok && r.Min >= 0 {
			return
		}
		if !slices.ContainsFunc(c.p.Needs, func(o program.Need) bool { return o.Size.Equal(d) }) {
			c.fail("needs", before, "", fmt.Sprintf("the program does not check that %v is not negative", d))
		}
	}
	for _, k := range c.f.Module().Checks() {
		need(k.Size, "need "+k.Size.String())
	}
	seen := map[*ir.Func]bool{} // look-up only
	var of func(f *ir.Func)
	of = func(f *ir.Func) {
		seen[f] = true
		for _, n := range f.Order() {
			for _, d := range n.Needs() {
				need(d, n.String())
			}
			for _, body := range n.Bodies() {
				if !seen[body] {
					of(body)
				}
			}
		}
	}
	of(c.f)
}
