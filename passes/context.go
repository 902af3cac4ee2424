package passes

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/seed-ee968945/concert/ir"
)

// Context is what a pass gets besides the function. It is valid during one call
// of Run.
type Context struct {
	// Log takes what a person who follows the pass wants to read. Never nil.
	Log *slog.Logger

	pass    *Pass
	options []value // parallel to pass.Options
	stats   []float64
	records []CommRecord
	costs   CostModel
	enable  func(site string) bool
	fn      string
	Ctx     context.Context
	err     error // first misuse, reported by the manager
}

// NewContext is a context for what a pass knows of f outside of a pipeline: options have
// their defaults, every site is enabled, and nobody reads what is counted. costs may be nil.
func NewContext(p *Pass, costs CostModel, f *ir.Func) *Context {
	c := &Context{Log: slog.New(slog.DiscardHandler), pass: p, costs: costs, fn: f.Name, stats: make([]float64, len(p.Stats))}
	for i := range p.Options {
		v, err := p.Options[i].parse(p.Options[i].Default)
		if err != nil {
			c.misuse("has a default of option %s: %w", p.Options[i].Name, err)
		}
		c.options = append(c.options, v)
	}
	return c
}

// Tick ends the pass, by a panic that the manager recovers, if the context of the
// manager's run has ended. Passes call it in every loop whose iterations may take
// milliseconds together: a person who interrupts waits for it.
func (c *Context) Tick() {
	if c.Ctx != nil && c.Ctx.Err() != nil {
		panic(ended{})
	}
}

// ended is what Tick panics with.
type ended struct{}

// option finds a declared option; a pass that asks for another one or for the
// wrong kind is broken, which the manager reports.
func (c *Context) option(name string, kind OptionKind) value {
	for i := range c.pass.Options {
		if o := &c.pass.Options[i]; o.Name == name && o.Kind == kind {
			return c.options[i]
		}
	}
	c.misuse("reads option %q of kind %s, which it does not declare", name, kind)
	return value{}
}

func (c *Context) misuse(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// Int returns the value of an option of KindInt.
func (c *Context) Int(name string) int64 { return c.option(name, KindInt).num }

// Float returns the value of an option of KindFloat.
func (c *Context) Float(name string) float64 { return c.option(name, KindFloat).f }

// Bool returns the value of an option of KindBool.
func (c *Context) Bool(name string) bool { return c.option(name, KindBool).num != 0 }

// Str returns the value of an option of KindString.
func (c *Context) Str(name string) string { return c.option(name, KindString).text }

// Bytes returns the value of an option of KindBytes.
func (c *Context) Bytes(name string) int64 { return c.option(name, KindBytes).num }

// Count adds to a declared statistic. Statistics of all functions of a module
// add up.
func (c *Context) Count(stat string, by float64) {
	for i, s := range c.pass.Stats {
		if s.Name == stat {
			c.stats[i] += by
			return
		}
	}
	c.misuse("counts %q, which it does not declare", stat)
}

// Enable reports whether the pass may make a decision, named by the node that it
// is about. A pass that asks before every decision can be bisected: whoever
// searches for a wrong decision disables some of them. The full name of the site
// is pass/function/name.
func (c *Context) Enable(name string) bool {
	if c.enable == nil {
		return true
	}
	return c.enable(c.pass.Name + "/" + c.fn + "/" + name)
}

// Record adds a line to the report about a collective.
func (c *Context) Record(r CommRecord) {
	r.Func = c.fn
	c.records = append(c.records, r)
}

// Cost is the time of a node in milliseconds: the cost attached to it, else the
// model's, else zero. Nodes that do not run (inputs, views, waits, the return)
// cost nothing even if a cost is attached.
func (c *Context) Cost(n *ir.Node) float64 {
	switch n.Op().Class() {
	case ir.ClassInput, ir.ClassOutput, ir.ClassView, ir.ClassWait:
		return 0
	}
	if ms, ok := n.Cost(); ok {
		return ms
	}
	if c.costs != nil {
		if ms, ok := c.costs.NodeMs(n); ok {
			return ms
		}
	}
	return 0
}

// Costs is the cost model for nodes without attached costs, or nil.
func (c *Context) Costs() CostModel { return c.costs }

// DomainSize is how many ranks NVLink joins: ranks 0 to DomainSize-1 are the first domain. It
// is 0 if the cost model knows no machine.
func (c *Context) DomainSize() int {
	if m, ok := c.costs.(interface{ DomainSize() int }); ok {
		return m.DomainSize()
	}
	return 0
}
