package cli

import (
	"fmt"
	"text/tabwriter"

	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/program"
)

// stageResult is what stats -json prints of stages.
type stageResult struct {
	File   string             `json:"file"`
	Name   string             `json:"stages"`
	Step   float64            `json:"step_ms"`
	Bubble float64            `json:"bubble"` // part of all stages' time in which they do not compute
	Each   []stageFigures     `json:"each"`
	Stats  map[string]float64 `json:"stats"`

	Bottlenecks []compile.Bottleneck `json:"helps"`
}

// stageFigures is one stage.
type stageFigures struct {
	Func    string `json:"func"`
	Ranks   []int  `json:"ranks"`
	figures        // makespan_ms is when it ends
}

// stageStats prints what each stage does.
func (t tool) stageStats(c *compiled, json bool) error {
	s := c.Module.Stages()[0]
	end := t.busy.Phase("simulating @" + s.Name)
	m, err := compile.MeasureStages(c.Module, s, c.Costs())
	end()
	if err != nil {
		return err
	}
	res := stageResult{File: c.path, Name: s.Name, Step: m.Step, Bubble: m.Bubble, Stats: map[string]float64{}}
	for place, f := range m.Stages {
		res.Each = append(res.Each, stageFigures{s.Funcs[place], s.Ranks(place), figures(f)})
	}
	for _, step := range c.Report.Steps {
		for _, v := range step.Stats {
			res.Stats[step.Pass+"."+v.Name] += v.Value
		}
	}
	if res.Bottlenecks, err = c.StageBottlenecks(s); err != nil {
		return err
	}
	if json {
		return writeJSON(t.out, res)
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "@%s\tnodes\tcollectives\tcomm bytes\tcompute ms\twaits ms\tends ms\tpeak bytes\t\n", s.Name)
	for _, f := range res.Each {
		fmt.Fprintf(w, "@%s\t%d\t%d\t%d\t%.4f\t%.4f\t%.4f\t%d\t\n", f.Func, f.Nodes, f.Collectives, f.CommBytes, f.Compute, f.Exposed, f.Makespan, f.Peak)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "step: %.4f ms, of which stages wait %.1f%%\n", res.Step, 100*res.Bubble)
	for _, h := range res.Bottlenecks {
		fmt.Fprintln(t.out, "would help:", h)
	}
	return nil
}

// stages lowers the stages of a file.
func (t tool) stages(c *compiled) (program.Stages, error) {
	s := c.Module.Stages()[0]
	defer t.busy.Phase("lowering @" + s.Name)()
	return c.Stages(s)
}

// checkStages proves programs of stages, each alone and all together.
func (t tool) checkStages(s program.Stages, opts program.CheckOptions) error {
	instrs := 0
	for _, p := range s {
		rep, err := program.CheckWith(p, opts)
		if err != nil {
			return err
		}
		if rep.Err() != nil {
			fmt.Fprintf(t.out, "%s\n", rep)
			return errFindings
		}
		instrs += len(p.Instrs)
	}
	if err := program.CheckStages(s); err != nil {
		fmt.Fprintf(t.out, "%v\n", err)
		return errFindings
	}
	fmt.Fprintf(t.out, "%d stages: %d instructions are ordered; nothing races, nothing can block, and stages do not deadlock\n", len(s), instrs)
	return nil
}
