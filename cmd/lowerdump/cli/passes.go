package cli

import (
	"context"
	"flag"

	"github.com/seed-ee968945/concert/passes"
)

var passesCommand = command{
	name: "passes", args: "[-v|-json]", doc: "lists passes, constraints on their order with reasons, and named pipelines",
	help: `
Examples:
  lowerdump passes
  lowerdump passes -v`,
	run: func(_ context.Context, t tool, args []string) error {
		var f passesFlags
		files, err := parse("passes", &f, args)
		if err != nil {
			return err
		}
		if len(files) > 0 {
			return usagef("takes no FILE")
		}
		if f.json {
			return writeJSON(t.out, rowsOf(t.passes()))
		}
		return t.passes().WriteDoc(t.out, f.verbose)
	},
}

type passesFlags struct{ verbose, json bool }

// passRows is what passes -json prints.
type passRows struct {
	Passes    []passRow     `json:"passes"`
	Order     []passOrder   `json:"order"`
	Pipelines []pipelineRow `json:"pipelines"`
}

// passOrder is a constraint on the order of two passes.
type passOrder struct {
	Before string `json:"before"`
	After  string `json:"after"`
	Needs  bool   `json:"needs"` // after cannot stand without before
	Why    string `json:"why"`
}

type pipelineRow struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
	Text string `json:"passes"`
}

type passRow struct {
	Name       string      `json:"name"`
	Doc        string      `json:"doc"`
	Options    []passValue `json:"options"`
	Statistics []passValue `json:"statistics"`
}

// passValue is an option or a statistic.
type passValue struct {
	Name    string   `json:"name"`
	Doc     string   `json:"doc"`
	Kind    string   `json:"kind,omitempty"`
	Choices []string `json:"choices,omitempty"`
	Default *string  `json:"default,omitempty"`
}

func rowsOf(t *passes.Table) passRows {
	var out passRows
	for _, p := range t.Passes() {
		row := passRow{p.Name, p.Doc, []passValue{}, []passValue{}}
		for _, o := range p.Options {
			row.Options = append(row.Options, passValue{o.Name, o.Doc, o.Kind.String(), o.Choices, &o.Default})
		}
		for _, s := range p.Stats {
			row.Statistics = append(row.Statistics, passValue{Name: s.Name, Doc: s.Doc})
		}
		out.Passes = append(out.Passes, row)
	}
	for _, c := range t.Constraints() {
		out.Order = append(out.Order, passOrder(c))
	}
	for _, p := range t.Pipelines() {
		out.Pipelines = append(out.Pipelines, pipelineRow(p))
	}
	return out
}

func (f *passesFlags) define(fs *flag.FlagSet) {
	fs.BoolVar(&f.json, "json", false, "print JSON")
	fs.BoolVar(&f.verbose, "v", false, "also list every pass's options and statistics")
}
