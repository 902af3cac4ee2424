package progen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// write adds a line of text and returns what names the results.
func (g *gen) write(op string, gr *group, attrs attr.List, args []*value, results []ir.Type) []string {
	var b strings.Builder
	name := g.name()
	var refs []string
	switch len(results) {
	case 0:
		fmt.Fprintf(&b, "%%%s:0 = ", name)
	case 1:
		fmt.Fprintf(&b, "%%%s = ", name)
		refs = []string{"%" + name}
	default:
		fmt.Fprintf(&b, "%%%s:%d = ", name, len(results))
		for i := range results {
			refs = append(refs, fmt.Sprintf("%%%s#%d", name, i))
		}
	}
	b.WriteString(op)
	if r := attrs.Str("reduce", ""); r != "" && (op == "all_reduce" || op == "reduce_scatter") {
		b.WriteString("." + r)
		attrs = attrs.Without("reduce")
	}
	for i, a := range args {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(" " + a.ref)
	}
	if gr != nil {
		b.WriteString(" on @" + gr.name)
	}
	if len(attrs) > 0 {
		b.WriteString(" " + string(attrs.AppendText(nil)))
	}
	for i, t := range results {
		b.WriteString([]string{" : ", ", "}[min(i, 1)] + t.String())
	}
	if g.r.IntN(3) > 0 {
		fmt.Fprintf(&b, " ms %g", float64(g.r.IntN(20))/10)
	}
	b.WriteString(g.annotations(op, name))
	g.lines = append(g.lines, b.String())
	return refs
}

// donate donates inputs to results of their types where nothing else of what is returned,
// or in flight then, lies in the storage of either.
func (g *gen) donate(rets, types []string) {
	stores := make([]int, len(rets)) // 0: in flight
	held := map[int]int{}            // by storage: how many results lie in it; look-up only
	for i, ref := range rets {
		if k := slices.IndexFunc(g.pool, func(v *value) bool { return v.ref == ref }); k >= 0 {
			stores[i] = g.pool[k].store
			held[stores[i]]++
		}
	}
	isInput := func(s int) bool { return slices.ContainsFunc(g.params, func(p *param) bool { return p.of.store == s }) }
	taken := make([]bool, len(rets))
	for _, p := range g.params {
		own := p.of.store
		for i := range rets {
			other := stores[i] != own && (held[own] > 0 || isInput(stores[i]))
			if taken[i] || types[i] != p.of.typ.String() || other || stores[i] == own && held[own] > 1 || g.r.IntN(4) == 0 {
				continue
			}
			taken[i] = true
			g.inputs[p.at] += fmt.Sprintf(" {donate=%d}", i)
			break
		}
		g.inputs[p.at] += p.role
	}
}

// annotations are the checkpointed region of an operation and its order-only edges.
func (g *gen) annotations(op, name string) string {
	s := ""
	if g.joint && g.r.IntN(8) == 0 {
		g.region = g.r.IntN(3)
	}
	if g.region > 0 {
		s = fmt.Sprintf(" !{checkpoint=%d}", g.region)
	}
	if o, ok := ir.OpByName(op); ok && o.IsView() {
		return s
	}
	if g.edges && len(g.runs) > 0 && g.r.IntN(8) == 0 {
		s += " after %" + g.runs[g.r.IntN(len(g.runs))]
	}
	g.runs = append(g.runs, name)
	return s
}

// finish returns some values and everything in flight, and gives the text.
func (g *gen) finish() string {
	for len(g.flights) > 0 && g.r.IntN(4) > 0 {
		g.wait()
	}
	type result struct {
		ref, typ string
		late     bool
	}
	var results []result
	for _, f := range g.flights {
		results = append(results, result{f.ref, f.typ.String(), f.late})
	}
	for i, v := range g.pool {
		if i >= len(g.pool)-3 && g.r.IntN(4) > 0 || g.r.IntN(5) == 0 {
			results = append(results, result{v.ref, v.typ.String(), g.isLate(v)})
			if g.r.IntN(12) == 0 {
				results = append(results, results[len(results)-1])
			}
		}
	}
	forward := ""
	if g.joint && g.r.IntN(3) == 0 { // forward's results come first
		early := slices.DeleteFunc(slices.Clone(results), func(r result) bool { return r.late })
		forward = fmt.Sprintf(" !{forward=%d}", g.r.IntN(len(early)+1))
		results = append(early, slices.DeleteFunc(results, func(r result) bool { return !r.late })...)
	}
	var rets, types []string
	for _, r := range results {
		rets, types = append(rets, r.ref), append(types, r.typ)
	}
	g.donate(rets, types)
	var b strings.Builder
	fmt.Fprintf(&b, "world %d\n", g.world)
	for _, gr := range g.groups {
		var subs []string
		for _, s := range gr.ranks {
			subs = append(subs, strings.ReplaceAll(fmt.Sprint(s), " ", ", "))
		}
		fmt.Fprintf(&b, "group @%s = [%s]\n", gr.name, strings.Join(subs, ", "))
	}
	for _, s := range g.syms {
		hint := s.max
		if s.values != nil {
			hint = s.values[len(s.values)-1][0]
		}
		least := ""
		if s.min > 0 {
			least = fmt.Sprintf("min %d ", s.min)
		}
		fmt.Fprintf(&b, "sym %s hint %d %smax %d\n", s.name, hint, least, s.max)
	}
	fmt.Fprintf(&b, "func @f(%s) -> (%s) {\n", strings.Join(g.inputs, ", "), strings.Join(types, ", "))
	for _, l := range g.lines {
		b.WriteString("  " + l + "\n")
	}
	b.WriteString(strings.TrimRight("  return "+strings.Join(rets, ", "), " ") + forward + "\n}\n" + strings.Join(g.bodies, ""))
	return b.String()
}
