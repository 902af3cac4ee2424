package main

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
	name: "plan", args: "[-capacity=N] [-passes=PIPELINE] [-o FILE] FILE", doc: "places buffers in one arena and prints their offsets as CSV",
	help: `
FILE is a program, whose buffers are placed, or CSV with the columns
id,lower,upper,size (half-open lifetimes; begin and end for inclusive ones), whose
rows are printed again with a column offset. The height, the lower bound and how
it was found go to standard error. A height above -capacity is a finding.

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
}

func (f *planFlags) define(fs *flag.FlagSet) {
	fs.Int64Var(&f.capacity, "capacity", 0, "largest height allowed, in the unit of the sizes; 0 for any")
	f.source.define(fs, "default")
	fs.StringVar(&f.out, "o", "", "write to this file instead of standard output")
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
	prob, write, err := t.placement(ctx, path, &f)
	if err != nil {
		return err
	}
	opt := pack.Options{Capacity: f.capacity, Goal: f.capacity}
	if f.fast {
		opt.Steps = -1
	}
	end := t.busy.phase("placing buffers")
	res, err := pack.Solve(ctx, *prob, opt)
	end()
	if err != nil {
		var full *pack.CapacityError
		if errors.As(err, &full) {
			return fmt.Errorf("%w\n%s", err, atPeak(prob))
		}
		return err
	}
	exact := ""
	if res.Exact {
		exact = ", which is the least possible"
	}
	fmt.Fprintf(t.err, "%d buffers, height %d, lower bound %d, ratio %.4f (%s%s)\n", len(prob.Buffers), res.Height, res.LowerBound,
		float64(res.Height)/float64(max(res.LowerBound, 1)), res.Method, exact)
	return t.output(f.out, func(w io.Writer) error { return write(w, res.Offsets) })
}

// placement reads the problem and returns how to print its solution.
func (t tool) placement(ctx context.Context, path string, f *planFlags) (*pack.Problem, func(io.Writer, []int64) error, error) {
	if strings.EqualFold(filepath.Ext(path), ".csv") {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		table, err := pack.ReadCSV(bytes.NewReader(data))
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		return &table.Problem, table.WriteCSV, nil
	}
	_, fn, err := t.optimised(ctx, path, f.source)
	if err != nil {
		return nil, nil, err
	}
	plan, err := lower.Plan(fn)
	if err != nil {
		return nil, nil, err
	}
	return &plan.Problem, func(w io.Writer, offsets []int64) error { return writePlan(w, plan, offsets) }, nil
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

// atPeak names the largest buffers that live at the time of the highest demand.
func atPeak(p *pack.Problem) string {
	at := pack.Busiest(*p)
	var b strings.Builder
	fmt.Fprintf(&b, "at time %d the buffers that live need %d together; the largest:", at.Time, at.Bytes)
	for i, k := range at.Buffers {
		if i == shownAtPeak {
			fmt.Fprintf(&b, "\n  ... and %d more", len(at.Buffers)-shownAtPeak)
			break
		}
		fmt.Fprintf(&b, "\n  buffer %d of %d bytes", k, p.Buffers[k].Size)
	}
	return b.String()
}
