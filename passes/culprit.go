package passes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/internal/bisect"
	"github.com/seed-ee968945/concert/ir"
)

// Culprit is the outcome of a bisect.
type Culprit struct {
	Number int      // the pass with which the failure begins, from 1
	Pass   string   // its name
	Before []string // names of the passes that ran before it
	Sites  []string // decisions of that pass that make the failure when they alone are enabled; nil if the pass does not name its decisions
}

// String says what was found and how to see it again.
func (c *Culprit) String() string {
	s := fmt.Sprintf("the failure begins with pass %d, %s", c.Number, c.Pass)
	if len(c.Sites) == 0 {
		return s
	}
	return fmt.Sprintf("%s, at %s; rerun with limit %d and bisect pattern %s", s, strings.Join(c.Sites, " "), c.Number, c.Pattern())
}

// Pattern is the bisect pattern that, with Manager.Limit set to Number, shows the
// failure with no decision too many: everything before the culprit, then its Sites.
func (c *Culprit) Pattern() string {
	if len(c.Sites) == 0 {
		return "all"
	}
	var terms []string
	for _, p := range c.Before {
		if term := "=" + p + "/*"; p != c.Pass && !slices.Contains(terms, term) {
			terms = append(terms, term)
		}
	}
	for _, site := range c.Sites {
		terms = append(terms, "="+site)
	}
	return strings.Join(terms, "+")
}

// Culprit finds the pass, and within it the decisions, that make a failure.
// fails gets the module after some of the pipeline and says whether the failure
// shows; a pass that itself fails counts as a failure. The search is binary, by
// pass number first, then by site with the passes before the culprit complete.
// m is not changed. Errors: [bisect.ErrNoFailure] and [bisect.ErrAlwaysFails] of
// package internal/bisect, and those of fails.
func (g *Manager) Culprit(m *ir.Module, p *Pipeline, fails func(*ir.Module) (bool, error)) (*Culprit, error) {
	quiet := *g
	quiet.Dump, quiet.Progress, quiet.Limit = nil, nil, 0
	try := func(mgr *Manager, q *Pipeline, from *ir.Module) (bool, error) {
		c := from.Clone()
		if _, err := mgr.Run(c, q); err != nil {
			return true, nil
		}
		return fails(c)
	}
	number, err := bisect.First(p.Len(), func(limit int) (bool, error) { return try(&quiet, p.slice(0, limit), m) })
	if err != nil {
		return nil, err
	}
	c := &Culprit{Number: number, Pass: p.Pass(number - 1).Name}
	for i := range number - 1 {
		c.Before = append(c.Before, p.Pass(i).Name)
	}
	before := m.Clone()
	if _, err := quiet.Run(before, p.slice(0, number-1)); err != nil {
		return nil, err
	}
	last := p.slice(number-1, number)
	var sites []string
	known := map[string]bool{} // look-up only
	record := quiet
	record.Enable = func(site string) bool {
		ok := g.Enable == nil || g.Enable(site)
		if ok && !known[site] {
			known[site] = true
			sites = append(sites, site)
		}
		return ok
	}
	if _, err := try(&record, last, before); err != nil {
		return nil, err
	}
	if len(sites) == 0 {
		return c, nil
	}
	c.Sites, err = bisect.Search(sites, func(enabled func(string) bool) (bool, error) {
		some := quiet
		some.Enable = enabled
		return try(&some, last, before)
	})
	if err == bisect.ErrAlwaysFails { // the pass acts without asking
		c.Sites, err = nil, nil
	}
	return c, err
}
