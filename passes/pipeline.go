package passes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/diag"
)

// Pipeline is a list of passes with their options, checked against a table.
type Pipeline struct {
	table *Table
	steps []step
}

// step is one pass of a pipeline.
type step struct {
	pass   *Pass
	values []value // parallel to pass.Options
	given  []bool  // parallel: the text named the option
	at, n  int     // where the pipeline's text names the pass
}

// Len returns the number of steps.
func (p *Pipeline) Len() int { return len(p.steps) }

// Pass returns the pass of step i, counted from 0.
func (p *Pipeline) Pass(i int) *Pass { return p.steps[i].pass }

// Spec is the text of step i: the pass and the options that were given.
func (p *Pipeline) Spec(i int) string {
	s := &p.steps[i]
	var opts []string
	for k, given := range s.given {
		if given {
			opts = append(opts, s.pass.Options[k].Name+"="+s.values[k].text)
		}
	}
	if opts == nil {
		return s.pass.Name
	}
	return s.pass.Name + "{" + strings.Join(opts, ",") + "}"
}

// String is the pipeline's text with named pipelines spelled out; parsing it
// gives an equal pipeline.
func (p *Pipeline) String() string {
	specs := make([]string, len(p.steps))
	for i := range p.steps {
		specs[i] = p.Spec(i)
	}
	return strings.Join(specs, ",")
}

// Parse reads a pipeline's text: names of passes and of named pipelines,
// separated by commas, optionally followed by options in braces, as in
//
//	canonicalize,sink-waits{limit=10}
//
// Those of a named pipeline are for all its passes that have them, and go before what
// it says itself.
//
// The empty text is the empty pipeline. The error, if any, is a *diag.Error
// whose findings point into the text: unknown names, malformed options, broken
// order constraints with their reasons.
func (t *Table) Parse(text string) (*Pipeline, error) {
	r := &pipelineReader{t: t, src: diag.NewSource("pipeline", text), s: text}
	p := &Pipeline{table: t}
	if strings.TrimSpace(text) != "" {
		p.steps = r.list()
	}
	if len(r.errs.All) == 0 {
		r.constraints(p.steps)
	}
	if err := r.errs.Err(); err != nil {
		return nil, err
	}
	return p, nil
}

type pipelineReader struct {
	t    *Table
	src  *diag.Source
	s    string
	i    int
	errs diag.List
}

func (r *pipelineReader) failf(at, n int, rule string, notes []string, format string, args ...any) {
	r.errs.Add(&diag.Finding{Source: r.src, Pos: r.src.PosAt(min(at, len(r.s))), Len: n, Rule: rule, Notes: notes, Msg: fmt.Sprintf(format, args...)})
}

func (r *pipelineReader) space() {
	for r.i < len(r.s) && (r.s[r.i] == ' ' || r.s[r.i] == '\t' || r.s[r.i] == '\n') {
		r.i++
	}
}

func (r *pipelineReader) eat(c byte) bool {
	r.space()
	if r.i < len(r.s) && r.s[r.i] == c {
		r.i++
		return true
	}
	return false
}

// until reads up to any of the stop bytes, without surrounding blanks.
func (r *pipelineReader) until(stop string) (text string, at int) {
	r.space()
	at = r.i
	for r.i < len(r.s) && !strings.ContainsRune(stop, rune(r.s[r.i])) {
		r.i++
	}
	return strings.TrimRight(r.s[at:r.i], " \t\n"), at
}

// list reads the whole text; it stops at the first error of syntax, since what
// follows would only be guessed at.
func (r *pipelineReader) list() []step {
	var steps []step
	for {
		name, at := r.until(",{}=")
		if name == "" {
			r.failf(r.i, 1, "syntax", nil, "expected the name of a pass")
			return nil
		}
		pass, named := r.t.Lookup(name), r.t.pipelineIndex(name)
		if pass == nil && named < 0 {
			r.failf(at, len(name), "unknown-pass", r.suggest(name), "there is no pass or pipeline %q", name)
			pass = &Pass{Name: name} // to read on
		}
		if pass != nil {
			s := []step{newStep(pass, at, len(name))}
			if r.eat('{') && !r.options(name, s) {
				return nil
			}
			steps = append(steps, s...)
		} else {
			sub, err := r.t.Parse(r.t.pipelines[named].Text)
			if err != nil { // NewTable has checked it
				r.failf(at, len(name), "pipeline", nil, "%v", err)
				return nil
			}
			for i := range sub.steps {
				sub.steps[i].at, sub.steps[i].n = at, len(name)
			}
			if r.eat('{') && !r.options(name, sub.steps) {
				return nil
			}
			steps = append(steps, sub.steps...)
		}
		r.space()
		if r.i == len(r.s) {
			return steps
		}
		if !r.eat(',') {
			r.failf(r.i, 1, "syntax", nil, "expected ',' before the next pass, found %q", r.s[r.i])
			return nil
		}
	}
}

func newStep(p *Pass, at, n int) step {
	s := step{pass: p, at: at, n: n, values: make([]value, len(p.Options)), given: make([]bool, len(p.Options))}
	for i := range p.Options {
		s.values[i], _ = p.Options[i].parse(p.Options[i].Default) // NewTable has checked it
	}
	return s
}

// options reads name=value pairs up to the closing brace, for a pass or for those of a named
// pipeline; false after an error of syntax.
func (r *pipelineReader) options(of string, steps []step) bool {
	read := map[*Option]bool{}
	for first := true; ; first = false {
		if r.eat('}') {
			return true
		}
		if !first && !r.eat(',') {
			r.failf(r.i, 1, "syntax", nil, "expected ',' or '}' after an option of %s", of)
			return false
		}
		key, at := r.until("=,}{")
		if key == "" || !r.eat('=') {
			r.failf(at, max(len(key), 1), "syntax", nil, "expected option=value")
			return false
		}
		text, vat := r.until(",}{=")
		r.option(of, steps, read, key, at, text, vat)
	}
}

// option sets an option in every step that has it.
func (r *pipelineReader) option(of string, steps []step, read map[*Option]bool, key string, at int, text string, vat int) {
	var have []string
	var found []*Option
	for i := range steps {
		s := &steps[i]
		if s.pass.Run == nil { // the pass is unknown, which has been said
			return
		}
		for k := range s.pass.Options {
			o := &s.pass.Options[k]
			if o.Name != key && (o.FormerName != key || key == "") {
				if !slices.Contains(have, o.Name) {
					have = append(have, o.Name)
				}
				continue
			}
			if read[o] {
				r.failf(at, len(key), "option", nil, "option %s is given twice", key)
				return
			}
			v, err := o.parse(text)
			if err != nil {
				r.failf(vat, len(text), "option", []string{fmt.Sprintf("%s: %s (default %s)", o.Name, o.Doc, o.Default)}, "option %s of %s: %v", key, s.pass.Name, err)
				return
			}
			s.values[k], s.given[k] = v, true
			found = append(found, o)
		}
	}
	for _, o := range found {
		read[o] = true
	}
	if found != nil {
		return
	}
	note := of + " has no options"
	if len(have) > 0 {
		note = of + " has: " + strings.Join(have, " ")
	}
	r.failf(at, len(key), "option", []string{note}, "%s has no option %q", of, key)
}

// suggest names what the table has: what a misspelt name is closest to, else all.
func (r *pipelineReader) suggest(name string) []string {
	var names []string
	for _, p := range r.t.passes {
		names = append(names, p.Name)
	}
	for _, p := range r.t.pipelines {
		names = append(names, p.Name)
	}
	best, most := "", max(1, len(name)/4)
	for _, n := range names {
		if d := editDistance(name, n); d <= most {
			best, most = n, d-1
		}
	}
	if best != "" {
		return []string{"did you mean " + best + "?"}
	}
	return []string{"have: " + strings.Join(names, " ")}
}

// editDistance is the number of bytes to insert, delete or replace that turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}

// constraints checks the order of the steps.
func (r *pipelineReader) constraints(steps []step) {
	for _, c := range r.t.constraints {
		lastBefore, firstAfter := -1, -1
		for i := range steps {
			switch steps[i].pass.Name {
			case c.Before:
				lastBefore = i
			case c.After:
				if firstAfter < 0 {
					firstAfter = i
				}
			}
		}
		switch {
		case firstAfter < 0:
		case lastBefore < 0 && c.Needs:
			s := &steps[firstAfter]
			r.failf(s.at, s.n, "pass-order", []string{"why: " + c.Why}, "%s needs %s before it", c.After, c.Before)
		case lastBefore > firstAfter:
			s := &steps[lastBefore]
			r.failf(s.at, s.n, "pass-order", []string{"why: " + c.Why}, "%s must run before %s", c.Before, c.After)
		}
	}
}
