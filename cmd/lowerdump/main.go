// Command lowerdump shows what concert does to a program and why: it imports
// traced graphs, runs passes, lowers, simulates and runs the result.
//
// Run lowerdump help for the subcommands, lowerdump help COMMAND for one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/seed-ee968945/concert/passes"
)

// Exit codes.
const (
	exitOK       = 0
	exitFindings = 1 // the input is broken, a check failed, a run went wrong
	exitUsage    = 2 // the command line is broken
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], processTool()))
}

// tool is what a command may use of the process it runs in.
type tool struct {
	in       io.Reader
	out, err io.Writer
	env      func(string) string
	prices   pricing   // where costs come from
	busy     *progress // nil: nobody watches
}

func processTool() tool {
	return tool{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv, busy: newProgress(os.Stderr, os.Getenv)}
}

// command is one subcommand.
type command struct {
	name, args, doc string
	help            string // more text, with examples
	run             func(ctx context.Context, t tool, args []string) error
}

// usageError asks for exit code 2.
type usageError struct{ msg string }

func (e usageError) Error() string { return e.msg }

func usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// errFindings is a failure whose explanation has been printed already.
var errFindings = errors.New("findings")

func commands() []command {
	return []command{
		passesCommand, optCommand, lowerCommand, statsCommand, runCommand, exportCommand, dotCommand, traceCommand, reportCommand, planCommand, checkCommand, calibrateCommand,
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
		return finish(c, c.run(ctx, t, args[1:]), t)
	}
	fmt.Fprintf(t.err, "lowerdump: no command %q; lowerdump help lists them\n", name)
	return exitUsage
}

// finish prints an error and chooses the exit code.
func finish(c command, err error, t tool) int {
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(t.out, c.text())
		return exitOK
	case errors.Is(err, errFindings):
		return exitFindings
	case errors.As(err, &usage):
		fmt.Fprintf(t.err, "lowerdump %s: %s\nusage: lowerdump %s %s\n", c.name, usage.msg, c.name, c.args)
		return exitUsage
	}
	fmt.Fprintf(t.err, "lowerdump %s: %v\n", c.name, err)
	var failed *passes.PassError
	if errors.As(err, &failed) { // the message says how to run the pass again on this file
		if err := os.WriteFile(failed.InName, failed.Before, 0o666); err != nil {
			fmt.Fprintf(t.err, "cannot keep the text before the pass: %v\n", err)
		}
	}
	return exitFindings
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
		fmt.Fprintf(&b, "  %-9s %s\n", c.name, c.doc)
	}
	b.WriteString(`
FILE is IR text (.ir), a traced graph (.graph.json, .graph.json.gz), or - for
standard input; the kind is told by the content.

Exit codes: 0 fine, 1 findings (broken input, failed check, failed run), 2 usage.
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
	"opt":    func(fs *flag.FlagSet) { new(optFlags).define(fs) },
	"lower":  func(fs *flag.FlagSet) { new(lowerFlags).define(fs) },
	"stats":  func(fs *flag.FlagSet) { new(statsFlags).define(fs) },
	"run":    func(fs *flag.FlagSet) { new(runFlags).define(fs) },
	"export": func(fs *flag.FlagSet) { new(exportFlags).define(fs) },
	"dot":    func(fs *flag.FlagSet) { new(dotFlags).define(fs) },
	"trace":  func(fs *flag.FlagSet) { new(traceFlags).define(fs) },
	"report": func(fs *flag.FlagSet) { new(reportFlags).define(fs) },
	"plan":   func(fs *flag.FlagSet) { new(planFlags).define(fs) },
	"check":  func(fs *flag.FlagSet) { new(checkFlags).define(fs) },

	"calibrate": func(fs *flag.FlagSet) { new(calibrateFlags).define(fs) },
}

// flagSet is anything that declares flags.
type flagSet interface{ define(*flag.FlagSet) }

// parse parses a command's flags, which may stand before and after the file
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
			return files, nil
		}
		files = append(files, fs.Arg(0))
		args = fs.Args()[1:]
	}
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
