// Package cli is the command lowerdump as a library, for compilers that want the same command
// with their own passes:
//
//	func main() { os.Exit(cli.Main(os.Args[1:], table)) }
//
// where table is standard.Table() extended by them (passes.Table.Extend).
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/seed-ee968945/concert/bench"
	"github.com/seed-ee968945/concert/cmd/lowerdump/cli/internal/foreground"
	"github.com/seed-ee968945/concert/compile"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
)

// Exit codes.
const (
	exitOK       = 0
	exitFindings = 1 // the input is broken, a check failed, a run went wrong
	exitUsage    = 2 // the command line is broken
)

// Main runs a command line, without the command's own name, in this process with the
// passes of a table, and returns the exit status: 0 fine, 1 findings, 2 usage, 130 and 143
// ended by SIGINT and SIGTERM. Process ranks are started from the same executable, whose
// main must call Main likewise. After a signal Main returns within a tenth of a second,
// with or without the command: the process should then exit.
func Main(args []string, table *passes.Table) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	t := processTool(table)
	return foreground.Run(signals, t.err, strings.Join(append([]string{"lowerdump"}, args[:min(1, len(args))]...), " "), func(ctx context.Context) int { return run(ctx, args, t) })
}

// tool is what a command may use of the process it runs in.
type tool struct {
	in       io.Reader
	out, err io.Writer
	env      func(string) string
	table    *passes.Table        // nil: the standard one
	busy     *foreground.Progress // nil: nobody watches
	compiler compiler
	global   bool   // programs with shardings stay those of one device
	entry    string // which function of a text with several public ones is its program; empty: @main
}

// compiler is compile.Compile, or what a test watches it by.
type compiler func(context.Context, *ir.Module, compile.Target, compile.Options) (*compile.Result, error)

func processTool(table *passes.Table) tool {
	return tool{compiler: compile.Compile, table: table, in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv, busy: foreground.NewProgress(os.Stderr, os.Getenv)}
}

// command is one subcommand.
type command struct {
	name, args, doc string
	help            string // more text, with examples
	run             func(ctx context.Context, t tool, args []string) error
}

// usagef is an error that asks for exit code 2.
func usagef(format string, args ...any) error {
	return &bench.UsageError{Msg: fmt.Sprintf(format, args...)}
}

// errFindings is a failure whose explanation has been printed already.
var errFindings = bench.ErrFindings

// console is who a run of ranks speaks to.
func (t tool) console() *bench.Console {
	return &bench.Console{Out: t.out, Err: t.err, Env: t.env, Colour: t.colour, Phase: t.busy.Phase}
}

func commands() []command {
	return []command{
		passesCommand, opsCommand, optCommand, lowerCommand, statsCommand, runCommand, exportCommand, dotCommand, traceCommand, reportCommand, planCommand, checkCommand, calibrateCommand, topoCommand, shardCommand, equivCommand, completionCommand(),
	}
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, t tool) int {
	if len(args) == 0 {
		fmt.Fprint(t.err, overview())
		return exitUsage
	}
	name := args[0]
	if name == "help" || name == "-h" || name == "-help" || name == "--help" {
		return help(args[1:], t)
	}
	for _, c := range commands() {
		if c.name != name {
			continue
		}
		err := c.run(ctx, t, args[1:])
		if err != nil && foreground.Interrupted(ctx) {
			return exitFindings // who noticed the signal says so
		}
		return finish(c, err, t)
	}
	fmt.Fprintf(t.err, "lowerdump: no command %q; lowerdump help lists them\n", name)
	return exitUsage
}

// finish prints an error and chooses the exit code.
func finish(c command, err error, t tool) int {
	var usage *bench.UsageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(t.out, c.text())
		return exitOK
	case errors.Is(err, errFindings):
		return exitFindings
	case errors.As(err, &usage):
		fmt.Fprintf(t.err, "lowerdump %s: %s\nusage: lowerdump %s %s\n", c.name, usage.Msg, c.name, c.args)
		return exitUsage
	}
	var failed *passes.PassError
	if errors.As(err, &failed) {
		keep(failed, t)
	}
	fmt.Fprintf(t.err, "lowerdump %s: %s\n", c.name, t.highlight(err.Error()))
	return exitFindings
}

// keep writes the text before a pass that failed to a folder for temporary files, where the
// message about it then says how to run the pass again.
func keep(failed *passes.PassError, t tool) {
	dir, err := os.MkdirTemp("", "lowerdump-")
	if err == nil {
		failed.InName = filepath.Join(dir, failed.InName)
		err = os.WriteFile(failed.InName, failed.Before, 0o600)
	}
	if err != nil {
		fmt.Fprintf(t.err, "cannot keep the text before the pass: %v\n", err)
	}
}

func help(args []string, t tool) int {
	if len(args) == 0 {
		fmt.Fprint(t.out, overview())
		return exitOK
	}
	for _, c := range commands() {
		if c.name == args[0] {
			fmt.Fprint(t.out, c.text())
			return exitOK
		}
	}
	fmt.Fprintf(t.err, "lowerdump: no command %q; lowerdump help lists them\n", args[0])
	return exitUsage
}

func overview() string {
	var b strings.Builder
	b.WriteString("lowerdump shows what concert does to a program and why.\n\nusage: lowerdump COMMAND [flags] FILE\n\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %-10s %s\n", c.name, c.doc)
	}
	b.WriteString(`
FILE is IR text (.ir), a traced graph (.graph.json), StableHLO text (.mlir) or HLO text
(.hlo, .hlo.txt), the latter three also gzipped (.gz), or - for standard input; the format is
detected from the content.

Exit status: 0 success, 1 findings (invalid input, failed check, failed run), 2 usage,
130 and 143 terminated by SIGINT and SIGTERM.
lowerdump help COMMAND explains one command.
`)
	return b.String()
}

func (c command) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: lowerdump %s %s\n\n%s%s.\n", c.name, c.args, strings.ToUpper(c.doc[:1]), c.doc[1:])
	if c.help != "" {
		fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(c.help))
	}
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(&b)
	if define := flagsOf[c.name]; define != nil {
		define(fs)
		b.WriteString("\nFlags:\n")
		shown := flag.NewFlagSet(c.name, flag.ContinueOnError)
		shown.SetOutput(&b)
		fs.VisitAll(func(f *flag.Flag) {
			if !strings.HasPrefix(f.Usage, hidden) {
				shown.Var(f.Value, f.Name, f.Usage)
			}
		})
		shown.PrintDefaults()
	}
	return b.String()
}

// hidden precedes the usage of flags that are for tests: help leaves them out.
const hidden = "(hidden) "

// flagsOf lets help print a command's flags; each command's file has its entry's function.
var flagsOf = map[string]func(*flag.FlagSet){
	"passes": func(fs *flag.FlagSet) { new(passesFlags).define(fs) },
	"ops":    func(fs *flag.FlagSet) { new(opsFlags).define(fs) },
	"opt":    func(fs *flag.FlagSet) { new(optFlags).define(fs) },
	"lower":  func(fs *flag.FlagSet) { new(lowerFlags).define(fs) },
	"stats":  func(fs *flag.FlagSet) { new(statsFlags).define(fs) },
	"run":    func(fs *flag.FlagSet) { new(runFlags).define(fs) },
	"export": func(fs *flag.FlagSet) { new(exportFlags).define(fs) },
	"dot":    func(fs *flag.FlagSet) { new(outFlags).define(fs) },
	"trace":  func(fs *flag.FlagSet) { (&outFlags{passes: "default"}).define(fs) },
	"report": func(fs *flag.FlagSet) { new(reportFlags).define(fs) },
	"plan":   func(fs *flag.FlagSet) { new(planFlags).define(fs) },
	"check":  func(fs *flag.FlagSet) { new(checkFlags).define(fs) },

	"topo": func(fs *flag.FlagSet) { new(topoFlags).define(fs) },

	"calibrate": func(fs *flag.FlagSet) { new(calibrateFlags).define(fs) },
}

// flagSet is anything that declares flags.
type flagSet interface{ define(*flag.FlagSet) }

// parse parses a command's flags, which may come before and after the file
// names, and returns the files.
func parse(name string, f flagSet, args []string) ([]string, error) {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	f.define(fs)
	var files []string
	for {
		if err := fs.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, err
			}
			return nil, usagef("%v", err)
		}
		if fs.NArg() == 0 {
			return files, checkOutputs(fs)
		}
		files = append(files, fs.Arg(0))
		args = fs.Args()[1:]
	}
}

// checkOutputs finds files that cannot be written before a command works for them.
func checkOutputs(fs *flag.FlagSet) error {
	for _, name := range []string{"o", "raw", "record", "trace"} {
		f := fs.Lookup(name)
		if f == nil || f.Value.String() == "" || f.Value.String() == "-" {
			continue
		}
		path := f.Value.String()
		if dir := filepath.Dir(path); !isDir(dir) {
			return fmt.Errorf("-%s=%s: there is no directory %s", name, path, dir)
		}
		if name != "record" && isDir(path) {
			return fmt.Errorf("-%s=%s is a directory", name, path)
		}
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// parseOne parses the flags of a command that takes one file, and returns it.
func parseOne(name string, f flagSet, args []string) (string, error) {
	files, err := parse(name, f, args)
	if err != nil {
		return "", err
	}
	if len(files) != 1 {
		return "", usagef("want one FILE, got %d", len(files))
	}
	return files[0], nil
}
