package passes

import (
	"fmt"
	"slices"
	"strings"
)

// Table is a set of passes with the order constraints between them and the named
// pipelines. A Table is immutable and may be shared.
type Table struct {
	passes      []*Pass
	constraints []Constraint
	pipelines   []NamedPipeline
}

// NewTable builds a table and checks it: names are unique and well formed, every
// pass has a sentence and a function, defaults are valid, every constraint names
// two passes and its reason, the constraints have no cycle, and the named
// pipelines obey them. The error names what breaks which of these rules.
func NewTable(passes []Pass, constraints []Constraint, pipelines []NamedPipeline) (*Table, error) {
	t := &Table{constraints: constraints, pipelines: pipelines}
	for i := range passes {
		p := &passes[i]
		if err := t.checkPass(p); err != nil {
			return nil, err
		}
		t.passes = append(t.passes, p)
	}
	if err := t.checkConstraints(); err != nil {
		return nil, err
	}
	for i, n := range pipelines {
		if !validName(n.Name) || n.Doc == "" {
			return nil, fmt.Errorf("passes: pipeline %q: a pipeline needs a name of lower-case words and a sentence", n.Name)
		}
		if t.Lookup(n.Name) != nil || t.pipelineIndex(n.Name) != i {
			return nil, fmt.Errorf("passes: pipeline %s: the name is taken", n.Name)
		}
		if _, err := t.Parse(n.Text); err != nil {
			return nil, fmt.Errorf("passes: pipeline %s: %w", n.Name, err)
		}
	}
	return t, nil
}

// Extend returns a table with more passes, constraints and pipelines, checked as NewTable
// does: a compiler's own passes beside the standard ones, in pipelines of either. New passes
// come after those of t. The error names the rule of NewTable that is broken.
func (t *Table) Extend(passes []Pass, constraints []Constraint, pipelines []NamedPipeline) (*Table, error) {
	all := make([]Pass, 0, len(t.passes)+len(passes))
	for _, p := range t.passes {
		all = append(all, *p)
	}
	return NewTable(append(all, passes...), slices.Concat(t.constraints, constraints), slices.Concat(t.pipelines, pipelines))
}

func (t *Table) checkPass(p *Pass) error {
	switch {
	case !validName(p.Name):
		return fmt.Errorf("passes: %q is not a name of lower-case words joined by '-'", p.Name)
	case t.Lookup(p.Name) != nil:
		return fmt.Errorf("passes: two passes are called %s", p.Name)
	case p.Run == nil:
		return fmt.Errorf("passes: %s has no function", p.Name)
	case !strings.HasSuffix(p.Doc, ".") || strings.Contains(p.Doc, ". "):
		return fmt.Errorf("passes: the doc of %s is not one sentence: %q", p.Name, p.Doc)
	}
	for i := range p.Options {
		o := &p.Options[i]
		if !validName(o.Name) || o.Doc == "" {
			return fmt.Errorf("passes: option %q of %s: an option needs a name of lower-case words and a doc", o.Name, p.Name)
		}
		if _, err := o.parse(o.Default); err != nil {
			return fmt.Errorf("passes: default of option %s of %s: %w", o.Name, p.Name, err)
		}
		for j := range i {
			if p.Options[j].Name == o.Name {
				return fmt.Errorf("passes: %s declares option %s twice", p.Name, o.Name)
			}
		}
	}
	for i, s := range p.Stats {
		if !validName(s.Name) || s.Doc == "" {
			return fmt.Errorf("passes: statistic %q of %s: a statistic needs a name of lower-case words and a doc", s.Name, p.Name)
		}
		for _, e := range p.Stats[:i] {
			if e.Name == s.Name {
				return fmt.Errorf("passes: %s declares statistic %s twice", p.Name, s.Name)
			}
		}
	}
	return nil
}

// checkConstraints also rejects cycles, which no pipeline with these passes could obey.
func (t *Table) checkConstraints() error {
	after := make([][]int, len(t.passes))
	for _, c := range t.constraints {
		b, a := t.index(c.Before), t.index(c.After)
		switch {
		case b < 0 || a < 0:
			return fmt.Errorf("passes: constraint %q before %q names a pass that is not in the table", c.Before, c.After)
		case a == b:
			return fmt.Errorf("passes: constraint of %s with itself", c.Before)
		case strings.TrimSpace(c.Why) == "":
			return fmt.Errorf("passes: constraint %s before %s gives no reason", c.Before, c.After)
		}
		after[b] = append(after[b], a)
	}
	state := make([]byte, len(t.passes)) // 1 on the path, 2 done
	var visit func(i int) error
	visit = func(i int) error {
		state[i] = 1
		for _, j := range after[i] {
			if state[j] == 1 {
				return fmt.Errorf("passes: the constraints that order %s and %s form a cycle", t.passes[i].Name, t.passes[j].Name)
			}
			if state[j] == 0 {
				if err := visit(j); err != nil {
					return err
				}
			}
		}
		state[i] = 2
		return nil
	}
	for i := range t.passes {
		if state[i] == 0 {
			if err := visit(i); err != nil {
				return err
			}
		}
	}
	return nil
}

func validName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		word := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !word && (c != '-' || i == 0 || i == len(s)-1 || s[i-1] == '-') {
			return false
		}
	}
	return s != ""
}

// Passes lists the passes in table order. The caller must not change the list.
func (t *Table) Passes() []*Pass { return t.passes }

// Constraints lists the order constraints. The caller must not change the list.
func (t *Table) Constraints() []Constraint { return t.constraints }

// Pipelines lists the named pipelines. The caller must not change the list.
func (t *Table) Pipelines() []NamedPipeline { return t.pipelines }

// Lookup returns the pass of that name, present or former, or nil.
func (t *Table) Lookup(name string) *Pass {
	if i := t.index(name); i >= 0 {
		return t.passes[i]
	}
	return nil
}

func (t *Table) index(name string) int {
	for i, p := range t.passes {
		if p.Name == name || p.FormerName == name && name != "" {
			return i
		}
	}
	return -1
}

func (t *Table) pipelineIndex(name string) int {
	for i, p := range t.pipelines {
		if p.Name == name {
			return i
		}
	}
	return -1
}
