package cli

import (
	"bytes"
	"context"
	"flag"
	"fmt"

	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/program"
)

var checkCommand = command{
	name: "check", args: "[-passes=PIPELINE] FILE", doc: "proves a lowered program free of races and deadlocks, or says what is missing",
	help: `
FILE is a function, which is lowered after the passes, or a program's text form
(what lowerdump lower prints). Proved is: every pair of conflicting accesses is
ordered by streams, events and collectives; no buffer is overwritten while a peer
may still read it; no wait can block for ever; the collectives of a group are
issued in one order. A finding names both instructions, the buffer, the missing
edge and the IR nodes behind them.

Examples:
  lowerdump check step.graph.json.gz
  lowerdump lower mlp.ir | lowerdump check -`,
	run: runCheck,
}

type checkFlags struct {
	source
	inFlight int
}

func (f *checkFlags) define(fs *flag.FlagSet) {
	f.source.define(fs, "default")
	fs.IntVar(&f.inFlight, "in-flight", 0, "most collectives that may wait for peers at one time; 0 for the default")
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
	p, err := t.program(ctx, path, f.source)
	if err != nil {
		return err
	}
	opts := lower.CheckOptions()
	if f.inFlight > 0 {
		opts.InFlight = f.inFlight
	}
	rep, err := program.CheckWith(p, opts)
	if err != nil {
		return err
	}
	if rep.Err() != nil {
		fmt.Fprintf(t.out, "%s\n", rep)
		return errFindings
	}
	fmt.Fprintf(t.out, "%s: %d instructions on %d streams are ordered; nothing races, nothing can block\n", p.Name, len(p.Instrs), len(p.Streams))
	return nil
}

// program reads a program's text, or lowers what the file holds.
func (t tool) program(ctx context.Context, path string, src source) (*program.Program, error) {
	data, name, err := t.read(path)
	if err != nil {
		return nil, err
	}
	if looksLikeProgram(data) {
		return program.Parse(name, string(data))
	}
	in, err := t.parse(name, data)
	if err != nil {
		return nil, err
	}
	c, err := t.compile(ctx, in, src, nil)
	if err != nil {
		return nil, err
	}
	return c.function.Program()
}

// looksLikeProgram tells a program's text by its first word.
func looksLikeProgram(data []byte) bool {
	for _, line := range bytes.Split(data[:min(len(data), 4096)], []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && !bytes.HasPrefix(line, []byte("//")) {
			return bytes.HasPrefix(line, []byte("program "))
		}
	}
	return false
}
