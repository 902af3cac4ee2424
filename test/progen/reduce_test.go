package progen

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/passes/standard"
)

// Reduce shrinks a failing case while it fails in the same way: it drops passes and
// options, results, operations and operands, makes inputs of what others compute,
// and shrinks sizes, symbols, groups and the world. It checks at most so many
// candidates, until ctx ends, and returns the smallest with its failure.
func Reduce(ctx context.Context, c Case, f *Failure, runs Runs, checks int) (Case, *Failure) {
	r := &reducer{ctx: ctx, runs: runs, kind: kindOf(f), best: c, failure: f, left: checks}
	for r.left > 0 && ctx.Err() == nil {
		size := r.size()
		for _, shrink := range []func(*reducer){shrinkPipeline, shrinkSymbols, shrinkDonations, shrinkReturns, shrinkLines, shrinkAnnotations, shrinkOperands, shrinkWorld, shrinkNumbers, shrinkTypes, shrinkDeclarations} {
			shrink(r)
		}
		if r.size() >= size {
			break
		}
	}
	return r.best, r.failure
}

type reducer struct {
	ctx     context.Context
	runs    Runs
	kind    string
	best    Case
	failure *Failure
	left    int
}

func (r *reducer) size() int {
	n := len(r.best.Text) + len(r.best.Pipeline)
	for _, a := range r.best.Symbols {
		for _, m := range a {
			n += len(m)
		}
	}
	return n
}

var after = regexp.MustCompile(` after pass [\w-]+`)

var names = regexp.MustCompile(`[%@][\w.#]+|[\d.]+`)

// kindOf is what two failures of one cause have in common.
func kindOf(f *Failure) string {
	detail := f.Detail
	if i := strings.Index(detail, "error["); i >= 0 {
		return f.Oracle + " " + detail[i:i+strings.IndexByte(detail[i:], ']')]
	}
	if f.Oracle == "numbers" || f.Oracle == "host" || f.Oracle == "cuda" {
		for _, s := range []string{"want", "panic", "timed out"} {
			if strings.Contains(detail, s) {
				return f.Oracle + " " + s
			}
		}
	}
	pass := after.FindString(detail)
	detail = names.ReplaceAllString(detail, "")
	return f.Oracle + " " + detail[:min(len(detail), 50)] + pass
}

// try keeps a candidate that fails in the same way.
func (r *reducer) try(c Case) bool {
	if r.left <= 0 || r.ctx.Err() != nil || c.Text == r.best.Text && c.Pipeline == r.best.Pipeline && len(c.Symbols) == len(r.best.Symbols) {
		return false
	}
	r.left--
	f := c.checkInTime(r.ctx, r.runs)
	if f == nil || kindOf(f) != r.kind || r.ctx.Err() != nil {
		return false
	}
	r.best, r.failure = c, f
	return true
}

func (r *reducer) tryText(text string) bool {
	c := r.best
	c.Text = text
	return r.try(c)
}

func shrinkPipeline(r *reducer) {
	if p, err := standard.Table().Parse(r.best.Pipeline); err == nil && p.Len() > 0 && p.String() != r.best.Pipeline {
		c := r.best
		if c.Pipeline = p.String(); !r.try(c) {
			return
		}
	}
	for i := 0; ; i++ {
		p, err := standard.Table().Parse(r.best.Pipeline)
		if err != nil || i >= p.Len() {
			return
		}
		var specs []string
		for k := range p.Len() {
			specs = append(specs, p.Spec(k))
		}
		c := r.best
		c.Pipeline = strings.Join(slices.Delete(slices.Clone(specs), i, i+1), ",")
		if r.try(c) {
			i--
			continue
		}
		name, opts, ok := strings.Cut(strings.TrimSuffix(specs[i], "}"), "{")
		for list := strings.Split(opts, ","); ok && len(list) > 0; list = list[1:] {
			rest := slices.DeleteFunc(strings.Split(opts, ","), func(o string) bool { return o == list[0] })
			specs[i] = name + "{" + strings.Join(rest, ",") + "}"
			if len(rest) == 0 {
				specs[i] = name
			}
			c.Pipeline = strings.Join(specs, ",")
			if r.try(c) {
				opts = strings.Join(rest, ",")
			}
		}
	}
}

func shrinkSymbols(r *reducer) {
	for len(r.best.Symbols) > 1 {
		done := true
		for i := range r.best.Symbols {
			c := r.best
			c.Symbols = slices.Delete(slices.Clone(c.Symbols), i, i+1)
			if r.try(c) {
				done = false
				break
			}
		}
		if done {
			return
		}
	}
}

// line is a node of the text.
type line struct {
	results []string // what names them
	types   []string
	args    []string
	op      string // and what stands between the operands and the types
	tail    string
	name    string   // of a line without results, where it has one
	region  string   // its annotation
	after   []string // its order-only edges
}

// listing is a program as text taken apart.
type listing struct {
	head   []string // world, groups, symbols
	inputs []line   // of one result each; tail is what comes after the type
	lines  []line
	rets   []string
	meta   string // annotations of the return
}

// split splits at commas outside of brackets.
func split(s string) []string {
	var out []string
	depth, from := 0, 0
	for i, ch := range s {
		switch ch {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case ',':
			if depth == 0 {
				out, from = append(out, strings.TrimSpace(s[from:i])), i+1
			}
		}
	}
	if rest := strings.TrimSpace(s[from:]); rest != "" {
		out = append(out, rest)
	}
	return out
}

// listText takes a text apart; it knows what [New] writes and no more.
func listText(text string) listing {
	var l listing
	for s := range strings.Lines(text) {
		s = strings.TrimSpace(s)
		switch {
		case s == "" || s == "}":
		case strings.HasPrefix(s, "func "):
			open := strings.IndexByte(s, '(')
			for _, in := range split(s[open+1 : strings.LastIndex(s, ") -> (")]) {
				name, typ, _ := strings.Cut(in, ": ")
				end := len(typ)
				for _, sep := range []string{" {", " !"} {
					if i := strings.Index(typ, sep); i >= 0 {
						end = min(end, i)
					}
				}
				l.inputs = append(l.inputs, line{results: []string{name}, types: []string{typ[:end]}, tail: typ[end:]})
			}
		case strings.HasPrefix(s, "return"):
			rets, meta, has := strings.Cut(strings.TrimPrefix(s, "return"), " !")
			if l.rets = split(rets); has {
				l.meta = " !" + meta
			}
		case strings.HasPrefix(s, "world "), strings.HasPrefix(s, "group "), strings.HasPrefix(s, "sym "):
			l.head = append(l.head, s)
		default:
			l.lines = append(l.lines, lineOf(s))
		}
	}
	return l
}

var attached = regexp.MustCompile(`( ms \S+)?( !\{[^}]*\})?( after (.*))?$`)

func lineOf(s string) line {
	var n line
	ends := attached.FindStringSubmatch(s)
	s = strings.TrimSuffix(s, ends[0]) // what it costs seldom matters
	n.region, n.after = ends[2], split(ends[4])
	if name, rest, ok := strings.Cut(s, " = "); ok && strings.HasPrefix(s, "%") {
		s = rest
		base, count, several := strings.Cut(name, ":")
		n.results = []string{base}
		if several {
			n.results, n.name = nil, base
			k := 0
			fmt.Sscan(count, &k)
			for i := range k {
				n.results = append(n.results, fmt.Sprintf("%s#%d", base, i))
			}
		}
	}
	if i := strings.LastIndex(s, " : "); i >= 0 {
		n.types = split(s[i+3:])
		s = s[:i]
	}
	end := strings.IndexAny(s, " ")
	if end < 0 {
		end = len(s)
	}
	n.op, s = s[:end], s[end:]
	cut := len(s)
	for _, sep := range []string{" on @", " {"} {
		if i := strings.Index(s, sep); i >= 0 {
			cut = min(cut, i)
		}
	}
	n.args, n.tail = split(s[:cut]), s[cut:]
	return n
}

func (n line) String() string {
	var b strings.Builder
	switch {
	case len(n.results) == 0 && n.name != "":
		b.WriteString(n.name + ":0 = ")
	case len(n.results) == 1:
		b.WriteString(n.results[0] + " = ")
	case len(n.results) > 1:
		base, _, _ := strings.Cut(n.results[0], "#")
		fmt.Fprintf(&b, "%s:%d = ", base, len(n.results))
	}
	b.WriteString(n.op)
	if len(n.args) > 0 {
		b.WriteString(" " + strings.Join(n.args, ", "))
	}
	b.WriteString(n.tail)
	if len(n.types) > 0 {
		b.WriteString(" : " + strings.Join(n.types, ", "))
	}
	b.WriteString(n.region)
	if len(n.after) > 0 {
		b.WriteString(" after " + strings.Join(n.after, ", "))
	}
	return b.String()
}

// node is the name of a line's operation.
func (n line) node() string {
	if len(n.results) == 0 {
		return n.name
	}
	base, _, _ := strings.Cut(n.results[0], "#")
	return base
}

func (l listing) String() string {
	types := map[string]string{} // by name; look-up only
	var ins, outs []string
	for _, in := range l.inputs {
		types[in.results[0]] = in.types[0]
		ins = append(ins, in.results[0]+": "+in.types[0]+in.tail)
	}
	for _, n := range l.lines {
		for i, name := range n.results {
			types[name] = n.types[i]
		}
	}
	for _, name := range l.rets {
		outs = append(outs, types[name])
	}
	var b strings.Builder
	for _, h := range l.head {
		b.WriteString(h + "\n")
	}
	fmt.Fprintf(&b, "func @f(%s) -> (%s) {\n", strings.Join(ins, ", "), strings.Join(outs, ", "))
	for _, n := range l.lines {
		b.WriteString("  " + n.String() + "\n")
	}
	b.WriteString(strings.TrimRight("  return "+strings.Join(l.rets, ", "), " ") + l.meta + "\n}\n")
	return b.String()
}

func (l listing) clone() listing {
	out := listing{slices.Clone(l.head), slices.Clone(l.inputs), slices.Clone(l.lines), slices.Clone(l.rets), l.meta}
	for i := range out.lines {
		out.lines[i].args = slices.Clone(out.lines[i].args)
	}
	return out
}

// rename makes everything behind line i read to in place of from.
func (l *listing) rename(i int, from, to string) {
	for k := i; k < len(l.lines); k++ {
		for a, name := range l.lines[k].args {
			if name == from {
				l.lines[k].args[a] = to
			}
		}
	}
	for k, name := range l.rets {
		if name == from {
			l.rets[k] = to
		}
	}
}

func (l *listing) used(name string) bool {
	return slices.Contains(l.rets, name) || slices.ContainsFunc(l.lines, func(n line) bool { return slices.Contains(n.args, name) })
}
