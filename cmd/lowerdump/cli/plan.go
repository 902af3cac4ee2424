package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/pack"
	"github.com/seed-ee968945/concert/lower"
)

var planCommand = command{
	name: "plan", args: "[-capacity=N] [-passes=PIPELINE] [-json] [-o FILE] FILE", doc: "places buffers in one arena and prints their offsets as CSV",
	help: `
FILE is a program, whose buffers are placed, or CSV with the columns
id,lower,upper,size (half-open lifetimes; begin and end for inclusive ones), whose
rows are printed with an added column offset. The height, the lower bound and the method
go to standard error. A height above -capacity is a finding (exit status 1).

Examples:
  lowerdump plan -capacity=1048576 testdata/minimalloc/A.1048576.csv
  lowerdump plan -passes=default step.graph.json.gz`,
	run: runPlan,
}

type planFlags struct {
	source
	capacity int64
	out      string
	fast     bool
	json     bool
}

// planResult is what -json prints.
type planResult struct {
	Height     int64     `json:"height"`
	LowerBound int64     `json:"lower_bound"`
	Method     string    `json:"method"`
	Exact      bool      `json:"exact"` // no height is less
	Buffers    []planRow `json:"buffers"`
}

// planRow is a buffer: its half-open lifetime, size and place.
type planRow struct {
	Name   string `json:"name,omitempty"` // of a function's value; rows of CSV are in order
	Lower  int64  `json:"lower"`
	Upper  int64  `json:"upper"`
	Size   int64  `json:"size"`
	Offset int64  `json:"offset"`
}

func (f *planFlags) define(fs *flag.FlagSet) {
	fs.Int64Var(&f.capacity, "capacity", 0, "largest height allowed, in the unit of the sizes; 0: any")
	f.source.define(fs, "default")
	fs.StringVar(&f.out, "o", "", "write to this file instead of standard output")
	fs.BoolVar(&f.json, "json", false, "print JSON")
	fs.BoolVar(&f.fast, "fast", false, "best fit only, no search")
}

func runPlan(ctx context.Context, t tool, args []string) error {
	var f planFlags
	path, err := parseOne("plan", &f, args)
	if err != nil {
		return err
	}
	if f.capacity < 0 {
		return usagef("-capacity=%d: want at least 0", f.capacity)
	}
	prob, err := t.packing(ctx, path, &f)
	if err != nil {
		return err
	}
	opt := pack.Options{Capacity: f.capacity, Goal: f.capacity}
	if f.fast {
		opt.Steps = -1
	}
	end := t.busy.Phase("placing buffers")
	res, err := pack.Solve(ctx, *prob.problem, opt)
	end()
	if err != nil {
		return prob.explain(err)
	}
	exact := ""
	if res.Exact {
		exact = ", which is the least possible"
	}
	fmt.Fprintf(t.err, "%d buffers, height %d, lower bound %d, ratio %.4f (%s%s)\n", len(prob.problem.Buffers), res.Height, res.LowerBound,
		float64(res.Height)/float64(max(res.LowerBound, 1)), res.Method, exact)
	return t.output(f.out, func(w io.Writer) error {
		if !f.json {
			return prob.write(w, res.Offsets)
		}
		out := planResult{res.Height, res.LowerBound, fmt.Sprint(res.Method), res.Exact, []planRow{}}
		for i, b := range prob.problem.Buffers {
			row := planRow{Lower: b.Lower, Upper: b.Upper, Size: b.Size, Offset: res.Offsets[i]}
			if prob.names != nil {
				row.Name = prob.names(i)
			}
			out.Buffers = append(out.Buffers, row)
		}
		return writeJSON(w, out)
	})
}

// packing is a problem and how to speak about it.
type packing struct {
	problem *pack.Problem
	write   func(io.Writer, []int64) error
	explain func(error) error // names buffers in errors
	names   func(i int) string
}

// packing reads the problem.
func (t tool) packing(ctx context.Context, path string, f *planFlags) (*packing, error) {
	if strings.EqualFold(filepath.Ext(path), ".csv") {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		table, err := pack.ReadCSV(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		explain := func(err error) error { return explainRows(&table.Problem, err) }
		return &packing{problem: &table.Problem, write: table.WriteCSV, explain: explain}, nil
	}
	c, err := t.compiled(ctx, path, f.source)
	if err != nil {
		return nil, err
	}
	plan, err := c.function.Plan()
	if err != nil {
		return nil, err
	}
	write := func(w io.Writer, offsets []int64) error { return writePlan(w, plan, offsets) }
	names := func(i int) string { return plan.Buffers[i].Name }
	return &packing{&plan.Problem, write, plan.Explain, names}, nil
}

func writePlan(w io.Writer, plan *lower.MemoryPlan, offsets []int64) error {
	c := csv.NewWriter(w)
	rows := [][]string{{"id", "lower", "upper", "size", "offset"}}
	for i, b := range plan.Problem.Buffers {
		num := func(n int64) string { return strconv.FormatInt(n, 10) }
		rows = append(rows, []string{plan.Buffers[i].Name, num(b.Lower), num(b.Upper), num(b.Size), num(offsets[i])})
	}
	return c.WriteAll(rows)
}

// shownAtPeak bounds the list of buffers in a capacity error.
const shownAtPeak = 10

// explainRows adds the largest rows at the peak to an error about a capacity.
func explainRows(p *pack.Problem, err error) error {
	var full *pack.CapacityError
	if !errors.As(err, &full) {
		return err
	}
	var b strings.Builder
	for i, k := range full.Peak {
		if i == shownAtPeak {
			fmt.Fprintf(&b, "\n  ... and %d more", len(full.Peak)-shownAtPeak)
			break
		}
		fmt.Fprintf(&b, "\n  row %d of size %d", k+1, p.Buffers[k].Size)
	}
	return fmt.Errorf("%w; the largest:%s", err, b.String())
}
