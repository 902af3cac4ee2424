// Package launch starts one process per rank on this machine, as torchrun does:
// it executes a program once for each rank with the rank's place in the
// environment, and collects how they ended.
package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-ee968945/concert/internal/stall"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// EnvChild is set to "1" for every process that Run starts, so that a program
// which executes itself can tell.
const EnvChild = "CONCERT_CHILD"

// Spec says what to run.
type Spec struct {
	World int
	// Path is the program, default this one.
	Path string
	Args []string // without the program's name
	// Env is added to this process's environment.
	Env []string
	// Ranks are the ranks to start, default all of them.
	Ranks []int
	// Hosts, if more than one, declares the ranks to be on as many hosts, neighbours on the
	// same: they share memory within one only, as on several machines.
	Hosts int
	// Prefix, if not nil, is what stands before a rank's command line, such as ip netns exec.
	Prefix func(rank int) []string
	// Job is where the ranks find each other, default a socket of this machine.
	Job *rendezvous.Job
	// Stdout and Stderr receive the output of all ranks, by whole lines, each
	// preceded by "[rank] "; nil discards. The end of each rank's standard error
	// is part of its error in any case.
	Stdout, Stderr io.Writer
	// Grace is how long the other ranks may take to end by themselves after the
	// first has failed, default 30 s; then they are killed.
	Grace time.Duration
	// Started, if not nil, is told the process of each rank.
	Started func(rank int, p *os.Process)
	// Ended, if not nil, is told when a rank has ended, by one goroutine.
	Ended func(rank int, err error)
}

// RankError says how one rank ended.
type RankError struct {
	Rank   int
	Err    error  // *exec.ExitError as a rule
	Stderr string // the end of its standard error
}

// Error implements error.
func (e *RankError) Error() string {
	s := fmt.Sprintf("rank %d: %v", e.Rank, e.Err)
	if tail := strings.TrimSpace(e.Stderr); tail != "" {
		s += ": " + tail
	}
	return s
}

// Unwrap gives the process's error.
func (e *RankError) Unwrap() error { return e.Err }

// Error says which ranks failed, in order of rank.
type Error struct {
	Ranks []*RankError
	First int // the rank that failed first
}

// Error implements error.
func (e *Error) Error() string {
	lines := make([]string, len(e.Ranks))
	for i, r := range e.Ranks {
		lines[i] = r.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the ranks' errors.
func (e *Error) Unwrap() []error {
	errs := make([]error, len(e.Ranks))
	for i, r := range e.Ranks {
		errs[i] = r
	}
	return errs
}

// Run starts the ranks and waits until all have ended. If some failed the error
// is an *Error. When ctx ends all are killed. Where the system can (Linux), the
// ranks die with this process, however it ends.
func Run(ctx context.Context, s Spec) error {
	if s.World < 1 || s.Hosts > s.World {
		return fmt.Errorf("launch: a world of %d ranks on %d hosts", s.World, max(s.Hosts, 1))
	}
	if s.Ranks == nil {
		for r := range s.World {
			s.Ranks = append(s.Ranks, r)
		}
	}
	if s.Grace <= 0 {
		s.Grace = 30 * time.Second
	}
	if s.Path == "" {
		var err error
		if s.Path, err = os.Executable(); err != nil {
			return fmt.Errorf("launch: %w", err)
		}
	}
	if s.Job == nil {
		var err error
		if s.Job, err = newJob(); err != nil {
			return fmt.Errorf("launch: %w", err)
		}
	}
	l := &launcher{spec: s, ended: make(chan *RankError, len(s.Ranks))}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := l.start(ctx); err != nil {
		cancel()
		l.procs.Wait()
		return fmt.Errorf("launch: %w", err)
	}
	return l.collect(cancel)
}

// launcher is one Run in progress.
type launcher struct {
	spec   Spec
	ended  chan *RankError // one for each rank; Err is nil if it went well
	procs  sync.WaitGroup
	output sync.Mutex // one line at a time
}

// start starts all processes on one thread that lives until they have ended:
// the death signal that the kernel sends to children belongs to the thread that
// started them, not to the process.
func (l *launcher) start(ctx context.Context) error {
	started := make(chan error, 1)
	l.procs.Add(1)
	go func() {
		defer l.procs.Done()
		defer pinThread()()
		var waits sync.WaitGroup
		var err error
		for _, r := range l.spec.Ranks {
			var p *process
			if p, err = l.process(ctx, r); err != nil {
				err = fmt.Errorf("rank %d: %w", r, err)
				break
			}
			waits.Go(func() { l.ended <- p.wait() })
		}
		started <- err
		waits.Wait()
	}()
	return <-started
}

// process is one started rank.
type process struct {
	rank int
	cmd  *exec.Cmd
	tail *tail
	outs []*lines
}

// place says where a rank is on its host.
func (s *Spec) place(rank int) []string {
	e := rt.OnHosts(rank, s.World, s.Hosts)
	env := []string{"LOCAL_RANK=" + strconv.Itoa(e.LocalRank), "LOCAL_WORLD_SIZE=" + strconv.Itoa(e.LocalWorld)}
	if e.Host != "" { // NCCL uses its network, too
		env = append(env, rt.EnvHost+"="+e.Host, "NCCL_HOSTID="+e.Host)
	}
	return env
}

func (l *launcher) process(ctx context.Context, rank int) (*process, error) {
	s := l.spec
	line := append([]string{s.Path}, s.Args...)
	if s.Prefix != nil {
		line = append(slices.Clone(s.Prefix(rank)), line...)
	}
	p := &process{rank: rank, tail: &tail{}, cmd: exec.CommandContext(ctx, line[0], line[1:]...)}
	p.cmd.Env = append(os.Environ(), s.Env...)
	p.cmd.Env = append(p.cmd.Env,
		"RANK="+strconv.Itoa(rank), "WORLD_SIZE="+strconv.Itoa(s.World), rt.EnvJob+"="+s.Job.Token(), EnvChild+"=1")
	p.cmd.Env = append(p.cmd.Env, s.place(rank)...)
	p.cmd.WaitDelay = 5 * time.Second
	p.cmd.SysProcAttr = dieWithParent()
	out := func(w io.Writer) *lines {
		ln := &lines{mu: &l.output, w: w, prefix: fmt.Sprintf("[%d] ", rank)}
		p.outs = append(p.outs, ln)
		return ln
	}
	if s.Stdout != nil {
		p.cmd.Stdout = out(s.Stdout)
	}
	p.cmd.Stderr = p.tail
	if s.Stderr != nil {
		p.cmd.Stderr = io.MultiWriter(p.tail, out(s.Stderr))
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if s.Started != nil {
		s.Started(rank, p.cmd.Process)
	}
	return p, nil
}

func (p *process) wait() *RankError {
	err := p.cmd.Wait()
	for _, o := range p.outs {
		o.flush()
	}
	return &RankError{Rank: p.rank, Err: err, Stderr: string(p.tail.b)}
}

// collect waits for all ranks; after the first failure the rest get the grace
// period.
func (l *launcher) collect(kill context.CancelFunc) error {
	e := &Error{First: -1}
	var grace <-chan struct{}
	for n := 0; n < len(l.spec.Ranks); {
		select {
		case r := <-l.ended:
			n++
			if l.spec.Ended != nil {
				l.spec.Ended(r.Rank, r.Err)
			}
			if r.Err == nil {
				continue
			}
			e.Ranks = append(e.Ranks, r)
			if e.First < 0 {
				e.First = r.Rank
				grace = stall.After(l.spec.Grace)
			}
		case <-grace:
			grace = nil
			kill()
		}
	}
	l.procs.Wait()
	if len(e.Ranks) == 0 {
		return nil
	}
	slices.SortFunc(e.Ranks, func(a, b *RankError) int { return a.Rank - b.Rank })
	return e
}

// ErrorOf returns how a rank ended according to err, which Run returned; nil if
// it went well.
func ErrorOf(err error, rank int) *RankError {
	var e *Error
	if errors.As(err, &e) {
		for _, r := range e.Ranks {
			if r.Rank == rank {
				return r
			}
		}
	}
	return nil
}

// tail keeps the end of what is written to it.
type tail struct{ b []byte }

const tailBytes = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.b = append(t.b, b...)
	if extra := len(t.b) - tailBytes; extra > 0 {
		t.b = append(t.b[:0], t.b[extra:]...)
	}
	return len(b), nil
}

// lines forwards whole lines with a prefix.
type lines struct {
	mu     *sync.Mutex // ranks share writers
	w      io.Writer
	prefix string
	rest   []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	end := slices.Index(l.rest, '\n')
	var out []byte
	for end >= 0 {
		out = append(append(out, l.prefix...), l.rest[:end+1]...)
		l.rest = l.rest[end+1:]
		end = slices.Index(l.rest, '\n')
	}
	return len(b), l.emit(out)
}

func (l *lines) emit(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.w.Write(b)
	return err
}

// flush forwards what is left without an end of line.
func (l *lines) flush() {
	if len(l.rest) > 0 {
		_ = l.emit(append(append([]byte(l.prefix), l.rest...), '\n')) // no reader is left
		l.rest = nil
	}
}
