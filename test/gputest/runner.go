package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// runner runs what the record lacks.
type runner struct {
	home, out string
	match     *regexp.Regexp
	each      time.Duration
	end       time.Time
	env       []string
	libs      libraries
	record    *record
	log       io.Writer

	// after calls f when the test has run for too long; stop says that it has ended.
	after func(test string, f func()) (stop func() bool)
}

func (r *runner) all(ctx context.Context) error {
	r.record.Left = 0
	for _, s := range suites {
		for first := true; ; first = false {
			left, err := r.left(ctx, s)
			if err != nil {
				return err
			}
			if len(left) == 0 {
				break
			}
			if ctx.Err() != nil || time.Until(r.end) < 5*time.Second {
				r.record.Left += len(left)
				break
			}
			if first {
				fmt.Fprintf(r.log, "%s: %d tests\n", s.name, len(left))
			}
			if err := r.part(ctx, s, left); err != nil {
				return err
			}
		}
	}
	return r.record.write()
}

func (r *runner) command(ctx context.Context, s suite, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(r.home, s.name+".test"), args...)
	cmd.Dir = filepath.Join(r.home, s.dir)
	cmd.Env = append(os.Environ(), r.env...)
	// A test may start ranks: all of them end with it. A Go process that is told to quit
	// says where its goroutines are.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		err := cmd.Process.Signal(syscall.SIGQUIT)
		time.AfterFunc(2*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		return err
	}
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// left lists the tests of a suite that the record has no outcome of.
func (r *runner) left(ctx context.Context, s suite) ([]string, error) {
	text, err := r.command(context.WithoutCancel(ctx), s, "-test.list=.*").Output()
	if err != nil {
		return nil, fmt.Errorf("%s -test.list: %w", s.name, err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		name := strings.TrimSpace(line)
		if strings.HasPrefix(name, "Test") && r.match.MatchString(s.name+"/"+name) && !r.record.has(s.name, name) {
			out = append(out, name)
		}
	}
	return out, nil
}

// part runs tests in one process until all are done, one takes it down or too long, or
// time is up.
func (r *runner) part(ctx context.Context, s suite, tests []string) error {
	ctx, cancel := context.WithDeadline(ctx, r.end)
	defer cancel()
	args := append([]string{"-test.v=test2json", "-test.timeout=0", "-gpu", "-test.run=^(" + strings.Join(tests, "|") + ")$"}, s.args(r.libs)...)
	cmd := r.command(ctx, s, args...)
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	cmd.Stdout, cmd.Stderr = write, write
	err = cmd.Start()
	write.Close()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(r.out, s.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer log.Close()
	p := &parser{suite: s.name, done: r.record.add, now: time.Now}
	var slow atomic.Bool
	stop := func() bool { return true }
	lines := bufio.NewScanner(read)
	lines.Buffer(make([]byte, 1<<16), 1<<24)
	for lines.Scan() {
		fmt.Fprintln(log, lines.Text())
		if slow.Load() {
			continue // the rest is goroutines
		}
		began := p.test
		if err := p.line(lines.Text()); err != nil {
			return err
		}
		if p.test != began {
			stop()
			stop = r.after(p.test, func() { slow.Store(true); cancel() })
		}
	}
	stop()
	werr := cmd.Wait()
	if p.test != "" && (time.Until(r.end) > 0 || slow.Load()) { // it died or took too long; else time was up
		why := fmt.Sprintf("its process ended: %v", werr)
		if slow.Load() {
			why = fmt.Sprintf("took longer than %v", r.each)
		}
		return p.end(failed, p.elapsed().Seconds(), why)
	}
	if p.count == 0 && time.Until(r.end) > 0 { // else the same would be tried for ever
		return fmt.Errorf("%s ran no test: %v", s.name, werr)
	}
	return nil
}

// parser reads what a test binary prints with -test.v=test2json.
type parser struct {
	suite string
	done  func(result) error
	now   func() time.Time

	test  string // the test function that runs, empty between two
	begun time.Time
	res   result
	tail  []string            // last lines of the test
	says  map[string][]string // by subtest: its last lines
	at    string              // the test or subtest that prints
	count int
}

var verdict = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) \(([0-9.]+)s\)`)

// keep is how many lines of a failure the record holds.
const keep = 12

func (p *parser) elapsed() time.Duration { return p.now().Sub(p.begun) }

func (p *parser) line(text string) error {
	text = strings.TrimLeft(text, "\x16")
	if name, ok := strings.CutPrefix(text, "=== RUN   "); ok {
		if !strings.Contains(name, "/") {
			p.test, p.begun, p.tail, p.says = name, p.now(), nil, map[string][]string{}
			p.res = result{Suite: p.suite, Test: name}
		}
		p.at = name
		return nil
	}
	for _, says := range []string{"=== NAME  ", "=== CONT  "} {
		if name, ok := strings.CutPrefix(text, says); ok {
			p.at = name
			return nil
		}
	}
	if p.test == "" || strings.HasPrefix(text, "=== ") {
		return nil
	}
	m := verdict.FindStringSubmatch(text)
	if m == nil {
		p.tail = last(append(p.tail, text), keep)
		p.says[p.at] = last(append(p.says[p.at], text), keep)
		return nil
	}
	outcome := map[string]string{"PASS": passed, "FAIL": failed, "SKIP": skipped}[m[1]]
	if name := m[2]; name != p.test {
		p.subtest(name, outcome)
		return nil
	}
	var seconds float64
	if _, err := fmt.Sscan(m[3], &seconds); err != nil {
		return err
	}
	// The time of a test lacks that of subtests that ran side by side.
	return p.end(outcome, max(seconds, p.elapsed().Round(10*time.Millisecond).Seconds()), "")
}

func (p *parser) subtest(name, outcome string) {
	switch outcome {
	case passed:
		p.res.Cases++
	case failed:
		p.res.Failed = append(p.res.Failed, name)
	case skipped:
		p.res.Skipped = append(p.res.Skipped, name+": "+reason(p.says[name]))
	}
}

// end takes down the outcome of the test function that runs.
func (p *parser) end(outcome string, seconds float64, why string) error {
	p.res.Outcome, p.res.Seconds = outcome, seconds
	switch outcome {
	case failed:
		lines := p.tail
		if len(p.res.Failed) > 0 && why == "" {
			lines = slices.Concat(p.says[p.res.Failed[0]], p.says[p.test])
		}
		if why != "" {
			lines = append(lines, why)
		}
		p.res.Reason = strings.Join(last(lines, keep), "\n")
	case skipped:
		p.res.Reason = reason(p.says[p.test])
	}
	p.test = ""
	p.count++
	return p.done(p.res)
}

// reason is what a skipped test said, without file and line.
func reason(lines []string) string {
	if len(lines) == 0 {
		return "no reason given"
	}
	text := strings.TrimSpace(lines[len(lines)-1])
	if _, after, ok := strings.Cut(text, ".go:"); ok {
		if _, after, ok = strings.Cut(after, ": "); ok {
			return after
		}
	}
	return text
}

func last(lines []string, n int) []string { return lines[max(0, len(lines)-n):] }
