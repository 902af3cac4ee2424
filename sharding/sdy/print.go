package sdy

import (
	"fmt"
	"io"
	"strings"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
	"github.com/seed-ee968945/concert/sharding"
)

// Print says what is printed beside shardings.
type Print struct {
	Rules   bool // each operation's rule
	Explain bool // where each inferred sharding comes from
}

// Close forbids more axes everywhere, as Shardy's pipeline does in the end.
func (p *Program) Close() {
	for i := range p.Graph.Values {
		if s := p.Graph.Values[i].Sharding; s != nil {
			s = s.Clone()
			s.Close()
			p.Graph.Values[i].Sharding = s
		}
	}
	for _, fn := range p.Funcs {
		if len(fn.calls) > 0 {
			for i, b := range fn.returns {
				p.Graph.Values[fn.Results[i]].Sharding = p.Graph.Values[b.id].Sharding
			}
		}
	}
	p.merge()
}

// Write prints functions with the shardings of their arguments, results and operations, in
// the words of the sdy dialect. Operations show no attributes but these.
func (p *Program) Write(w io.Writer, opt Print) error {
	var b strings.Builder
	for _, m := range p.mesh {
		fmt.Fprintf(&b, "sdy.mesh @%s = %s\n", m.Name, m)
	}
	for _, fn := range p.Funcs {
		p.function(&b, fn, opt)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// function prints one function.
func (p *Program) function(b *strings.Builder, fn *Function, opt Print) {
	typed := func(name string, v int, t mlir.Type) string {
		out := name + t.String()
		if s := p.Graph.Values[v].Sharding; s != nil {
			out += " {sdy.sharding = #sdy.sharding" + s.String() + "}"
		}
		return out
	}
	var args, results []string
	for i, a := range fn.f.Args {
		args = append(args, typed("%"+a.Name+": ", fn.Args[i], a.Type))
	}
	for i, t := range fn.f.Results {
		results = append(results, typed("", fn.Results[i], t))
	}
	private := ""
	if fn.f.Private {
		private = "private "
	}
	fmt.Fprintf(b, "func.func %s@%s(%s) -> (%s) {\n", private, fn.Name, strings.Join(args, ", "), strings.Join(results, ", "))
	for _, v := range fn.Args {
		p.explain(b, v, "  ", opt)
	}
	for i := range fn.Lines {
		p.line(b, &fn.Lines[i], opt)
	}
	for _, v := range fn.Results {
		p.explain(b, v, "  ", opt)
	}
	b.WriteString("}\n")
}

// line prints one operation.
func (p *Program) line(b *strings.Builder, l *Line, opt Print) {
	indent := strings.Repeat("  ", l.Depth+1)
	b.WriteString(indent)
	for i, u := range l.Defines {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name(u))
	}
	if len(l.Results) > 0 {
		b.WriteString(" = ")
	}
	op, t := "sdy.sharding_constraint", ""
	if l.Op != nil {
		op, t = l.Op.Name, (&subject{op: l.Op}).target()
	}
	if p.opt.Pipeline && op == "sdy.sharding_constraint" { // it holds from here on
		op = "sdy.reshard"
	}
	b.WriteString(op)
	if l.callee != nil {
		t = l.callee.Name
	}
	if strings.HasSuffix(op, "call") && t != "" {
		b.WriteString(" @" + t)
	}
	for i, u := range l.Uses {
		sep := ", "
		if i == 0 {
			sep = " "
		}
		b.WriteString(sep + name(u))
	}
	if l.manual != nil {
		in := len(l.values) - len(l.Results)
		fmt.Fprintf(b, " in_shardings=[%s] out_shardings=[%s]", p.outer(l, 0, in), p.outer(l, in, len(l.values)))
	} else if attrs := p.attrs(l, opt); attrs != "" {
		fmt.Fprintf(b, " {%s}", attrs)
	}
	b.WriteString("\n")
	for _, v := range l.Results {
		p.explain(b, v, indent, opt)
	}
}

// attrs are the shardings of an operation's results, and its rule.
func (p *Program) attrs(l *Line, opt Print) string {
	var out, list []string
	some := false
	for _, v := range l.Results {
		x := &p.Graph.Values[v]
		switch {
		case x.Sharding != nil:
			some = true
			list = append(list, x.Sharding.String())
		default:
			list = append(list, "")
		}
	}
	if l.Sharding != "" {
		out = append(out, "sdy.sharding = #sdy.sharding_per_value<["+l.Sharding+"]>")
	}
	if some {
		var m *sharding.Mesh
		for _, v := range l.Results {
			if s := p.Graph.Values[v].Sharding; s != nil && m == nil {
				m = s.Mesh
			}
		}
		for i, v := range l.Results {
			if list[i] == "" {
				s := sharding.Open(m, len(p.Graph.Values[v].Shape))
				if p.opt.Pipeline {
					s.Close()
				}
				list[i] = s.String()
			}
		}
		out = append(out, "sdy.sharding = #sdy.sharding_per_value<["+strings.Join(list, ", ")+"]>")
	}
	if opt.Rules && l.Rule != nil {
		out = append(out, "sdy.sharding_rule = #sdy.op_sharding_rule"+l.Rule.String())
	}
	return strings.Join(out, ", ")
}

// outer are the shardings of a manual computation's operands or results, with manual axes.
func (p *Program) outer(l *Line, from, to int) string {
	var out []string
	for i := from; i < to; i++ {
		s := p.Graph.Values[l.values[i]].Sharding
		if l.manual[i].In {
			s = l.manual[i].Add(s)
		}
		if s == nil || !p.edges { // edges that the text names know more than the operation
			s = l.manual[i].Outer
		}
		if p.opt.Pipeline {
			s = s.Clone()
			s.Close()
		}
		out = append(out, s.String())
	}
	return strings.Join(out, ", ")
}

// explain prints where a sharding comes from.
func (p *Program) explain(b *strings.Builder, v int, indent string, opt Print) {
	x := &p.Graph.Values[v]
	if !opt.Explain || x.Why == nil {
		return
	}
	var from []string
	for _, o := range x.Why.From {
		from = append(from, p.Graph.Values[o].Name)
	}
	fmt.Fprintf(b, "%s// %s: from %s by %s", indent, x.Name, strings.Join(from, ", "), x.Why.Step.Op)
	if x.Why.Step.Line > 0 {
		fmt.Fprintf(b, " of line %d", x.Why.Step.Line)
	}
	fmt.Fprintf(b, ", rule %s, %s, operations' turn %d\n", x.Why.Step.Rule, x.Why.Mode, x.Why.Op)
}

func name(u mlir.Use) string {
	if u.Index > 0 {
		return fmt.Sprintf("%%%s#%d", u.Name, u.Index)
	}
	return "%" + u.Name
}

// Shard reads the module, propagates and prints what was inferred. Mode "pipeline" is Shardy's
// whole pipeline, "pipeline-joined" that with all calls of a function sharded alike, the others
// are those of package sharding.
func Shard(m *mlir.Module, mode string, w io.Writer, opt Print) error {
	o := Options{Conserve: mode == "conservative", Pipeline: strings.HasPrefix(mode, "pipeline"), Joined: mode == "pipeline-joined"}
	how := sharding.UserPriority
	if !o.Pipeline {
		var err error
		if how, err = sharding.ModeByName(mode); err != nil {
			return err
		}
	}
	p, err := Load(m, o)
	if err != nil {
		return err
	}
	if !opt.Rules {
		if err := p.Graph.Propagate(how); err != nil {
			return err
		}
	}
	if o.Pipeline {
		p.Close()
	}
	return p.Write(w, opt)
}

// Mode reports whether [Shard] has a mode of that name.
func Mode(name string) bool {
	_, err := sharding.ModeByName(name)
	return err == nil || name == "pipeline" || name == "pipeline-joined"
}
