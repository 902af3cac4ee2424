package sdy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
	"github.com/seed-ee968945/concert/sharding"
)

// maxCopied bounds the operations of a program whose calls have copies of their own; in one
// that would be larger all calls of a function are sharded alike.
const maxCopied = 1 << 20

// functions reads the functions in the order of the text, the copies of one behind it.
func (p *Program) functions() error {
	size, called := map[string]int{}, map[string]bool{}
	p.copies = p.opt.Pipeline && !p.opt.Joined
	for _, f := range p.m.Funcs {
		p.copies = p.copied(f, size, called) <= maxCopied && p.copies
	}
	for _, f := range p.m.Funcs {
		if !called[f.Name] {
			if _, err := p.callee(f); err != nil {
				return err
			}
		}
	}
	for _, f := range p.m.Funcs { // what only calls itself
		if len(p.funcs[f.Name]) == 0 {
			if _, err := p.load(f); err != nil {
				return err
			}
		}
	}
	at := map[*mlir.Func]int{}
	for i, f := range p.m.Funcs {
		at[f] = i
	}
	slices.SortStableFunc(p.Funcs, func(a, b *Function) int { return at[a.f] - at[b.f] })
	return nil
}

// copied is how many operations a function has with those of the copies that it calls; too
// many for one that calls itself.
func (p *Program) copied(f *mlir.Func, size map[string]int, called map[string]bool) int {
	if n, ok := size[f.Name]; ok {
		return n
	}
	size[f.Name] = maxCopied + 1
	n := 0
	if f.Body != nil {
		eachOp(f.Body, func(o *mlir.Operation) {
			n++
			if g := p.m.Func(calleeName(o)); g != nil && g.Name == calleeName(o) {
				called[g.Name] = true
				n = min(n+p.copied(g, size, called), maxCopied+1)
			}
		})
	}
	size[f.Name] = n
	return n
}

// calleeName is what a call calls; empty of another operation.
func calleeName(o *mlir.Operation) string {
	if o.Name != "func.call" {
		return ""
	}
	if a, ok := o.Attr("callee"); ok {
		return a.Text
	}
	return (&subject{op: o}).target()
}

// callee is what a call of a function calls.
func (p *Program) callee(f *mlir.Func) (*Function, error) {
	if fs := p.funcs[f.Name]; len(fs) > 0 && !p.copies {
		return fs[0], nil
	}
	return p.load(f)
}

// name is that of a function's next copy.
func (p *Program) name(of string) string {
	if len(p.funcs[of]) == 0 {
		return of
	}
	for i := len(p.funcs[of]) - 1; ; i++ {
		if n := fmt.Sprintf("%s_%d", of, i); p.m.Func(n) == nil {
			return n
		}
	}
}

// call reads a call, and what it calls.
func (x *visit) call() error {
	f := x.p.m.Func(calleeName(x.o))
	if f == nil {
		return x.p.m.ErrorAt(x.o, 0, "there is no function @%s", calleeName(x.o))
	}
	if f.Name != calleeName(x.o) {
		return nil // a twin runs without shardings
	}
	if len(f.Args) != len(x.args) || len(f.Results) != len(x.results) {
		return x.p.m.ErrorAt(x.o, 0, "@%s has %d arguments and %d results", f.Name, len(f.Args), len(f.Results))
	}
	fn, err := x.p.callee(f)
	if err != nil {
		return err
	}
	fn.calls = append(fn.calls, call{x.args, x.results})
	x.fn.Lines[x.line].callee = fn
	return nil
}

// callEdges lets shardings pass between callers and what they call.
func (p *Program) callEdges() {
	for _, fn := range p.Funcs {
		if len(fn.calls) == 0 {
			continue
		}
		for i, b := range fn.args {
			var from []*binding
			for _, c := range fn.calls {
				from = append(from, c.args[i])
			}
			p.callEdge("edge into @"+fn.Name, from, b)
		}
		for _, c := range fn.calls {
			for i, b := range c.results {
				if v := &p.Graph.Values[b.id]; i < len(fn.returns) {
					if r := p.Graph.Values[fn.Results[i]].Sharding; v.Sharding == nil {
						v.Sharding = r
					}
					p.callEdge("edge out of @"+fn.Name, fn.returns[i:i+1], b)
				}
			}
		}
	}
}

func (p *Program) callEdge(op string, from []*binding, to *binding) {
	shape := p.Graph.Values[to.id].Shape
	to.flow = true
	p.steps = append(p.steps, pending{operands: from, results: []*binding{to}, step: sharding.Step{
		Op: op, Rule: sharding.Identity(shape, len(from), 1), Class: sharding.Through, Edge: true,
	}})
}

// merge leaves one of a function's copies whose arguments and results are sharded alike: that
// of the first call.
func (p *Program) merge() {
	first, kept := map[string]*Function{}, map[*Function]bool{}
	for _, fn := range p.Funcs {
		for i := range fn.Lines {
			if l := &fn.Lines[i]; l.callee != nil {
				k := p.signature(l.callee)
				if first[k] == nil {
					first[k] = l.callee
				}
				l.callee = first[k]
			}
		}
	}
	var keep func(fn *Function)
	keep = func(fn *Function) {
		if kept[fn] {
			return
		}
		kept[fn] = true
		for _, l := range fn.Lines {
			if l.callee != nil {
				keep(l.callee)
			}
		}
	}
	for _, fn := range p.Funcs {
		if len(fn.calls) == 0 {
			keep(fn)
		}
	}
	if p.copies {
		p.Funcs = slices.DeleteFunc(p.Funcs, func(fn *Function) bool { return !kept[fn] })
	}
}

// signature is a function's name in the text and the shardings of its arguments and results.
func (p *Program) signature(fn *Function) string {
	var b strings.Builder
	b.WriteString(fn.f.Name)
	for _, v := range slices.Concat(fn.Args, fn.Results) {
		b.WriteString(" ")
		if s := p.Graph.Values[v].Sharding; s != nil {
			b.WriteString(s.String())
		}
	}
	return b.String()
}
