package cli

import (
	"context"
	"flag"
	"fmt"

	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/program"
)

var checkCommand = command{
	name: "check", args: "[-passes=PIPELINE] [-json] FILE", doc: "proves a lowered program free of races and deadlocks, or reports the missing edges",
	help: `
FILE is a function, which is lowered after the passes, or a program's text form
(the output of lowerdump lower). The proof: every pair of conflicting accesses is
ordered by streams, events and collectives; no buffer is overwritten while a peer
may still read it; no wait can block forever; the collectives of a group are
issued in one order. The programs of pipeline stages are also checked against each other: they
issue matching collectives, and none deadlocks. A finding names both instructions, the buffer,
the missing edge and the IR nodes behind them.

Examples:
  lowerdump check step.graph.json.gz
  lowerdump lower mlp.ir | lowerdump check -`,
	run: runCheck,
}

type checkFlags struct {
	source
	inFlight int
	json     bool
}

// checkResult is what -json prints.
type checkResult struct {
	Program      string   `json:"program"`
	Instructions int      `json:"instructions"`
	Streams      int      `json:"streams"`
	Findings     []string `json:"findings"` // as text; empty: nothing races, nothing can block
	More         int      `json:"more"`     // findings that are not listed
}

func (f *checkFlags) define(fs *flag.FlagSet) {
	f.source.define(fs, "default")
	fs.BoolVar(&f.json, "json", false, "print JSON")
	fs.IntVar(&f.inFlight, "in-flight", 0, "most collectives in flight at the same time; 0: default")
}

func runCheck(ctx context.Context, t tool, args []string) error {
	var f checkFlags
	path, err := parseOne("check", &f, args)
	if err != nil {
		return err
	}
	if f.inFlight < 0 {
		return usagef("-in-flight=%d: want at least 0", f.inFlight)
	}
	f.staged = true
	all, err := t.program(ctx, path, f.source)
	if err != nil {
		return err
	}
	opts := lower.CheckOptions()
	if f.inFlight > 0 {
		opts.InFlight = f.inFlight
	}
	if len(all) > 1 || all[0].Ranks != nil {
		if f.json {
			return usagef("-json: the programs are stages, which are checked as text")
		}
		return t.checkStages(all, opts)
	}
	p := all[0]
	end := t.busy.Phase("checking @" + p.Name)
	rep, err := program.CheckWith(p, opts)
	end()
	if err != nil {
		return err
	}
	if f.json {
		out := checkResult{p.Name, len(p.Instrs), len(p.Streams), []string{}, rep.More}
		for i := range rep.Findings {
			out.Findings = append(out.Findings, string(rep.AppendFinding(nil, &rep.Findings[i])))
		}
		if err := writeJSON(t.out, out); err != nil || rep.Err() == nil {
			return err
		}
		return errFindings
	}
	if rep.Err() != nil {
		fmt.Fprintf(t.out, "%s\n", rep)
		return errFindings
	}
	fmt.Fprintf(t.out, "%s: %d instructions on %d streams are ordered; nothing races, nothing can block\n", p.Name, len(p.Instrs), len(p.Streams))
	return nil
}

// program reads a program's text, or lowers what the file holds: one program, or those of stages.
func (t tool) program(ctx context.Context, path string, src source) (program.Stages, error) {
	data, name, err := t.read(path)
	if err != nil {
		return nil, err
	}
	if kindOf(data) == programFile {
		return program.ParseStages(name, string(data))
	}
	in, err := t.parse(name, data)
	if err != nil {
		return nil, err
	}
	c, err := t.compile(ctx, in, src, nil)
	if err != nil {
		return nil, err
	}
	if c.function == nil {
		return t.stages(c)
	}
	p, err := t.lowered(c)
	return program.Stages{p}, err
}
