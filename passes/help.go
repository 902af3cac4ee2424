package passes

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteDoc writes the table for people: passes, constraints with their reasons, pipelines;
// with verbose also the options and statistics of every pass. The error is w's.
func (t *Table) WriteDoc(w io.Writer, verbose bool) error {
	b := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(b, "Passes:")
	for _, p := range t.passes {
		fmt.Fprintf(b, "  %s\t%s\n", p.Name, p.Doc)
		if !verbose {
			continue
		}
		for _, o := range p.Options {
			kind := o.Kind.String()
			if o.Choices != nil {
				kind = fmt.Sprint(o.Choices)
			}
			fmt.Fprintf(b, "    %s=%s\t%s (%s)\n", o.Name, o.Default, o.Doc, kind)
		}
		for _, s := range p.Stats {
			fmt.Fprintf(b, "    # %s\t%s\n", s.Name, s.Doc)
		}
	}
	fmt.Fprintln(b, "\nOrder:")
	for _, c := range t.constraints {
		verb := "before"
		if c.Needs {
			verb = "is needed before"
		}
		fmt.Fprintf(b, "  %s %s %s\t%s\n", c.Before, verb, c.After, c.Why)
	}
	fmt.Fprintln(b, "\nPipelines:")
	for _, p := range t.pipelines {
		fmt.Fprintf(b, "  %s\t%s: %s\n", p.Name, p.Doc, p.Text)
	}
	return b.Flush()
}
