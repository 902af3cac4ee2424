package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/seed-ee968945/concert/compile/suggest"
	"github.com/seed-ee968945/concert/equiv/mesh/placement"
	"github.com/seed-ee968945/concert/ir"
)

// suggest prints the frontier of strategies on a mesh, and what the best one says.
func (t tool) suggest(ctx context.Context, file string, f shardFlags) error {
	m, err := placement.ParseMesh(f.mesh)
	if err != nil {
		return usagef("-mesh: %v", err)
	}
	var axes []ir.Axis
	for _, a := range m.Axes {
		axes = append(axes, ir.Axis{Name: a.Name, Size: a.Size})
	}
	t.entry = f.fn
	in, err := t.load(file)
	if err != nil {
		return err
	}
	fn, err := in.funcNamed(f.fn)
	if err != nil {
		return err
	}
	base, err := (&pricing{machine: f.machine}).base()
	if err != nil {
		return err
	}
	r, err := suggest.Search(ctx, fn, axes, suggest.Options{Costs: base})
	if err != nil {
		return err
	}
	return t.suggested(r, f)
}

// suggested prints what a search has found.
func (t tool) suggested(r *suggest.Result, f shardFlags) error {
	fmt.Fprintf(t.out, "%d strategies", r.Tried)
	if r.Layers > 0 {
		fmt.Fprintf(t.out, ", %d layers that repeat", r.Layers)
	}
	fmt.Fprintf(t.out, "\n%10s %10s  axes\n", "ms", "peak GiB")
	best := -1
	for i := range r.Frontier {
		a := &r.Frontier[i]
		gib := float64(a.Peak) / (1 << 30)
		if best < 0 && (f.memory <= 0 || gib <= f.memory) {
			best = i
		}
		fmt.Fprintf(t.out, "%10.4g %10.4g  %s\n", a.Time, gib, r.String(a))
	}
	if best < 0 {
		return fmt.Errorf("no strategy fits into %v GiB", f.memory)
	}
	a := &r.Frontier[best]
	says, err := r.Annotations(a)
	if err != nil {
		return err
	}
	fmt.Fprintf(t.out, "\n%s\n%s\n", r.String(a), strings.Join(says, "\n"))
	if f.out == "" {
		return nil
	}
	annotated, err := r.Annotated(a)
	if err != nil {
		return err
	}
	return t.output(f.out, func(w io.Writer) error {
		_, err := annotated.WriteTo(w)
		return err
	})
}
