// Command gputest runs every GPU test of concert on a machine that has GPUs but
// neither Go nor the source tree, and writes the record of the run.
//
// `make gpu` packs it with the test binaries and their data into bin/gpu.tar.gz.
// There:
//
//	tar xzf gpu.tar.gz && gpu/gputest -out results
//
// A run ends after -budget, or when all is done; called again with the same -out it
// goes on where it stopped, test by test. A test whose process dies has failed, and
// the rest of its suite is run by a new process. At the end, and after every part, it
// prints one table and writes record.json, which `gputest -table record.json` prints
// again. Exit status: 0 all passed or were skipped, 1 a test failed, 2 usage, 3 tests
// are left for the next part.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status, err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "gputest:", err)
	}
	os.Exit(status)
}

func run(ctx context.Context, args []string, out io.Writer) (status int, err error) {
	fs := flag.NewFlagSet("gputest", flag.ContinueOnError)
	dir := fs.String("out", "gputest.out", "folder of the record and of the tests' output; a run that was cut goes on there")
	table := fs.String("table", "", "print the table of this record and end")
	budget := fs.Duration("budget", 8*time.Minute, "end after this time; what is left is for the next call")
	each := fs.Duration("timeout", 4*time.Minute, "a test that takes longer has failed")
	only := fs.String("run", "", "run the tests SUITE/NAME that match this expression only")
	libs := fs.String("libs", "/usr/local/cuda,/usr/lib/x86_64-linux-gnu", "folders, with commas between, below which NVRTC, cuBLASLt, cuDNN and NCCL are looked for")
	devices := fs.String("devices", "", "run as if the machine had these GPUs only, as 0,1; empty: all")
	if err := fs.Parse(args); err != nil {
		return 2, err
	}
	if fs.NArg() > 0 {
		return 2, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if *table != "" {
		rec, err := readRecord(*table)
		if err != nil {
			return 2, err
		}
		rec.print(out)
		return rec.status(), nil
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return 2, fmt.Errorf("-run: %w", err)
	}
	home, err := os.Executable()
	if err != nil {
		return 2, err
	}
	home = filepath.Dir(home)
	if err := os.MkdirAll(*dir, 0o777); err != nil {
		return 2, err
	}
	abs, err := filepath.Abs(*dir)
	if err != nil {
		return 2, err
	}
	r := &runner{home: home, out: abs, match: match, each: *each, end: time.Now().Add(*budget), log: out,
		after: func(_ string, f func()) func() bool { return time.AfterFunc(*each, f).Stop }}
	if r.record, err = openRecord(filepath.Join(abs, "record.json"), home); err != nil {
		return 2, err
	}
	if *devices != "" {
		r.env = append(r.env, "CUDA_VISIBLE_DEVICES="+*devices)
	}
	r.record.Machine = machine(*devices)
	r.libs = findLibraries(*libs)
	r.record.Libraries = r.libs.names()
	if err := r.all(ctx); err != nil {
		return 2, err
	}
	r.record.print(out)
	return r.record.status(), nil
}
