package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/seed-ee968945/concert/ir"
)

var opsCommand = command{
	name: "ops", args: "[-md|-json] [OP...]", doc: "lists the operations of the IR, or explains the given ones",
	help: `
Examples:
  lowerdump ops
  lowerdump ops all_gather permute`,
	run: func(_ context.Context, t tool, args []string) error {
		var f opsFlags
		names, err := parse("ops", &f, args)
		if err != nil {
			return err
		}
		ops := ir.Ops()
		if len(names) > 0 {
			ops = nil
		}
		for _, name := range names {
			op, ok := ir.OpByName(name)
			if !ok {
				return usagef("no operation %q; lowerdump ops lists them", name)
			}
			ops = append(ops, op)
		}
		rows, err := opRows(ops)
		if err != nil {
			return err
		}
		switch {
		case f.json:
			return writeJSON(t.out, rows)
		case f.markdown:
			return writeOpsMarkdown(t.out, rows)
		case len(names) > 0:
			return writeOps(t.out, rows)
		}
		return writeOpTable(t.out, rows)
	},
}

type opsFlags struct{ markdown, json bool }

func (f *opsFlags) define(fs *flag.FlagSet) {
	fs.BoolVar(&f.markdown, "md", false, "print the section of docs/ir.md")
	fs.BoolVar(&f.json, "json", false, "print JSON")
}

// opRow is what is said of an operation.
type opRow struct {
	Name       string    `json:"name"`
	Doc        string    `json:"doc"`
	Class      string    `json:"class"`
	Operands   string    `json:"operands"` // how many, such as 2, 1..2, 1...
	Results    string    `json:"results"`
	Effects    []string  `json:"effects"`
	Attributes []attrRow `json:"attributes"`
	Types      string    `json:"types"`
	Example    string    `json:"example"` // one line
	Module     string    `json:"module"`  // around it
}

type attrRow struct {
	Key      string `json:"key"`
	Kind     string `json:"kind"`
	Required bool   `json:"required"`
	Doc      string `json:"doc"`
}

func (a *attrRow) kind() string {
	if a.Required {
		return a.Kind + ", required"
	}
	return a.Kind
}

func opRows(ops []ir.Op) ([]opRow, error) {
	rows := make([]opRow, len(ops))
	for i, op := range ops {
		m, err := ir.Example(op)
		if err != nil {
			return nil, err
		}
		info := op.Info()
		r := opRow{Name: info.Name, Doc: info.Doc, Class: info.Class.String(), Types: info.Types.Doc, Example: info.Example, Module: m.String(),
			Operands: arity(info.MinArgs, info.MaxArgs), Results: arity(info.NumResults, info.NumResults), Effects: info.EffectNames(), Attributes: []attrRow{}}
		for _, a := range info.Attrs {
			r.Attributes = append(r.Attributes, attrRow{a.Key, a.Kind.String(), a.Required, a.Doc})
		}
		rows[i] = r
	}
	return rows, nil
}

// arity spells a range of numbers whose bounds may be open, as -1.
func arity(least, most int) string {
	switch {
	case least < 0:
		return "any"
	case most < 0:
		return fmt.Sprintf("%d or more", least)
	case least == most:
		return fmt.Sprint(least)
	}
	return fmt.Sprintf("%d to %d", least, most)
}

func (r *opRow) effects() string {
	if len(r.Effects) == 0 {
		return "none"
	}
	return strings.Join(r.Effects, ", ")
}

func writeOpTable(w io.Writer, rows []opRow) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "op\tclass\toperands\tresults\teffects\tattributes")
	for _, r := range rows {
		keys := "none"
		for i, a := range r.Attributes {
			if i == 0 {
				keys = a.Key
			} else {
				keys += " " + a.Key
			}
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, r.Class, r.Operands, r.Results, r.effects(), keys)
	}
	return tw.Flush()
}

func writeOps(w io.Writer, rows []opRow) error {
	var b strings.Builder
	for i, r := range rows {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s: %s\n\n  class %s, operands %s, results %s, effects %s\n  types: %s\n", r.Name, r.Doc, r.Class, r.Operands, r.Results, r.effects(), r.Types)
		for _, a := range r.Attributes {
			fmt.Fprintf(&b, "  %s: %s: %s\n", a.Key, a.kind(), a.Doc)
		}
		fmt.Fprintf(&b, "\n%s", r.Module)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeOpsMarkdown(w io.Writer, rows []opRow) error {
	var b strings.Builder
	b.WriteString("```\n")
	for _, in := range ir.ExampleInputs() {
		fmt.Fprintf(&b, "%%%s: %s\n", in.Name, in.Type)
	}
	b.WriteString("```\n\nControl flow runs these functions:\n\n```" + ir.ExampleFuncs() + "```\n\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "### %s\n\n%s.\n\n", r.Name, markdown(r.Doc))
		fmt.Fprintf(&b, "- class %s, operands: %s, results: %s, effects: %s\n- types: %s\n", r.Class, r.Operands, r.Results, r.effects(), markdown(r.Types))
		for _, a := range r.Attributes {
			fmt.Fprintf(&b, "- attribute `%s`, %s: %s\n", a.Key, a.kind(), markdown(a.Doc))
		}
		if r.Example != "" {
			fmt.Fprintf(&b, "\n```\n%s\n```\n", r.Example)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// markdown escapes what Markdown would take for markup.
func markdown(s string) string {
	return strings.NewReplacer("*", `\*`, "_", `\_`, "<", `\<`, "[", `\[`, "]", `\]`).Replace(s)
}
