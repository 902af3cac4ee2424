//go:build linux

package cuda

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/leak"
	"github.com/seed-ee968945/concert/kernels"
)

var kills = flag.Int("kills", 4, "how often a rank is killed in a replayed graph")

const envRounds = "CONCERT_TEST_ROUNDS"

// loop is a stream and a captured graph of all_reduces on one rank.
type loop struct {
	m     *coll.Member
	drv   driver.Driver
	s     driver.Stream
	graph driver.Graph
	exec  driver.Exec
	op    coll.Op
}

// newLoop captures calls all_reduces of 4 KiB over off, in place.
func newLoop(w *symm.World, m *coll.Member, off uint64, calls int) (*loop, error) {
	l := &loop{m: m, drv: w.Driver()}
	at := w.Addr(m.Rank.ID, off)
	l.op = coll.Op{Kind: kernels.AllReduce, DType: dtype.F32, Symmetric: true, Red: kernels.Avg, Tensors: []coll.Tensor{{Src: at, Dst: at, Bytes: 4096}}}
	c := m.Rank.Ctx
	var err error
	if l.s, err = l.drv.StreamCreate(c); err != nil {
		return nil, err
	}
	if err := l.drv.CaptureBegin(c, l.s); err != nil {
		return nil, err
	}
	for i := 0; i < calls; i++ {
		if err := m.Enqueue(l.s, l.op); err != nil {
			return nil, err
		}
	}
	if l.graph, err = l.drv.CaptureEnd(c, l.s); err != nil {
		return nil, err
	}
	l.exec, err = l.drv.GraphInstantiate(c, l.graph)
	return l, err
}

// replay launches the graph and waits for it.
func (l *loop) replay() error {
	if err := l.m.Err(); err != nil {
		return err
	}
	if err := l.drv.GraphLaunch(l.m.Rank.Ctx, l.exec, l.s); err != nil {
		return err
	}
	return l.m.Check(context.Background(), l.s)
}

func (l *loop) close() error {
	c := l.m.Rank.Ctx
	return errors.Join(l.drv.ExecDestroy(c, l.exec), l.drv.GraphDestroy(c, l.graph), l.drv.StreamDestroy(c, l.s))
}

func callsInGraph() int {
	if os.Getenv("CONCERT_TEST_GPU") != "" {
		return 300 // about a millisecond
	}
	return 20
}

// alive copies bytes to the device and back in the member's context.
func (l *loop) alive(w *symm.World, off uint64) error {
	in, out := bytes.Repeat([]byte{7, 9}, 512), make([]byte, 1024)
	at := w.Addr(l.m.Rank.ID, off)
	if err := l.drv.CopyIn(l.m.Rank.Ctx, l.s, at, in); err != nil {
		return err
	}
	if err := l.drv.CopyOut(l.m.Rank.Ctx, l.s, out, at); err != nil {
		return err
	}
	if !bytes.Equal(in, out) {
		return errors.New("the context lives, but a copy came back wrong")
	}
	return nil
}

// killed: the last rank dies before an eager call; the others must learn it within a
// second although the deadline is far, and build a new world.
func (c *childT) killed(w *symm.World) error {
	when := func(i int, l *loop) error {
		if i == 20 && c.rank == c.n-1 {
			fmt.Println("KILLED", time.Now().UnixNano())
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		if err := l.m.Enqueue(l.s, l.op); err != nil {
			return err
		}
		return l.m.Check(context.Background(), l.s)
	}
	if err := c.untilLost(w, when); err != nil {
		return err
	}
	return c.survivors(jobOf(envSecond))
}

// untilLost runs step until it fails because a rank was lost, prints when, and closes
// the world. The context must have survived.
func (c *childT) untilLost(w *symm.World, step func(int, *loop) error) error {
	o := smallGroup(false, c.n)
	o.Timeout = time.Hour
	g, err := coll.NewGroup(context.Background(), w, seqInts(c.n), o)
	if err != nil {
		return err
	}
	a, err := w.Alloc(1<<16, 256)
	if err != nil {
		return err
	}
	l, err := newLoop(w, g.Members()[0], a, callsInGraph())
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		if err := step(i, l); err != nil {
			fmt.Println("NOTICED", time.Now().UnixNano())
			var lost *symm.PeerLostError
			if !errors.As(err, &lost) && !errors.Is(err, symm.ErrCanceled) {
				return fmt.Errorf("want a lost peer, got %w", err)
			}
			break
		}
	}
	return errors.Join(l.alive(w, a), l.close(), g.Close(), w.Close())
}

// survivors builds a world of all but the last rank in this process and uses it.
func (c *childT) survivors(m testJob) error {
	w, err := processWorld(context.Background(), c.drv, m, c.rank, c.n-1, c.dev, c.o)
	if err != nil {
		return fmt.Errorf("survivors: %w", err)
	}
	if c.n > 2 { // a group needs two
		err = c.collectives(w, seqInts(c.n-1), 1)
	}
	return errors.Join(err, w.Close())
}

// killedOften lives through several deaths of the last rank, each in the middle of a
// replay, in the same process and context, and counts what is held after each.
func (c *childT) killedOften() error {
	rounds, err := strconv.Atoi(os.Getenv(envRounds))
	if err != nil {
		return err
	}
	ctx, err := c.drv.CtxRetain(c.dev) // one context for all rounds
	if err != nil {
		return err
	}
	defer c.drv.CtxRelease(c.dev)
	first := 0
	if c.rank == c.n-1 { // a victim sees one round only
		first = rounds - 1
	}
	var held leak.Held // after the first death
	for r := first; r < rounds; r++ {
		at := jobOf(envJob).Part(strconv.Itoa(r))
		w, err := processWorld(context.Background(), c.drv, at, c.rank, c.n, c.dev, c.o)
		if err != nil {
			return fmt.Errorf("round %d: %w", r, err)
		}
		step := func(i int, l *loop) error {
			if i == 5 && c.rank == c.n-1 {
				time.AfterFunc(time.Duration(rand.IntN(20000))*time.Microsecond, func() {
					fmt.Println("KILLED", time.Now().UnixNano())
					syscall.Kill(os.Getpid(), syscall.SIGKILL)
				})
			}
			return l.replay()
		}
		if err := c.untilLost(w, step); err != nil {
			return fmt.Errorf("round %d: %w", r, err)
		}
		if err := c.survivors(at.Part("rest")); err != nil {
			return fmt.Errorf("round %d: %w", r, err)
		}
		free, _, err := c.drv.MemInfo(ctx)
		if err != nil {
			return err
		}
		if r == 0 {
			held = leak.Now()
		} else if l := held.More(); l != "" {
			return fmt.Errorf("round %d: %s", r, l)
		}
		fmt.Println("HELD", countMaps(), free)
	}
	return nil
}

// countMaps counts mappings of devices and of shared memory.
func countMaps() int {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return -1
	}
	return strings.Count(string(b), "/dev/nvidia") + strings.Count(string(b), "memfd:")
}

// stallDeadline is long beside what a busy machine takes from a process that is not meant to stall.
const stallDeadline = 5 * time.Second

// stalled: the last rank stops enqueuing until the others have given it up, which they
// do by their deadline; then all join anew and go on.
func (c *childT) stalled(w *symm.World) error {
	o := smallGroup(false, c.n)
	o.Timeout = stallDeadline
	g, err := coll.NewGroup(context.Background(), w, seqInts(c.n), o)
	if err != nil {
		return err
	}
	defer g.Close()
	a, err := w.Alloc(1<<16, 256)
	if err != nil {
		return err
	}
	l, err := newLoop(w, g.Members()[0], a, callsInGraph())
	if err != nil {
		return err
	}
	defer l.close()
	last := time.Now()
	for i := 0; ; i++ {
		if i == 5 && c.rank == c.n-1 {
			for l.m.Poll(0) == nil {
				time.Sleep(time.Millisecond)
			}
		}
		if err := l.replay(); err != nil {
			var te *symm.TimeoutError
			if !errors.As(err, &te) && !errors.Is(err, symm.ErrCanceled) {
				return fmt.Errorf("want a timeout, got %w", err)
			}
			if te != nil && te.Peer != c.n-1 {
				return fmt.Errorf("rank %d is named, but rank %d stalled: %w", te.Peer, c.n-1, err)
			}
			fmt.Println("NOTICED", time.Since(last).Nanoseconds())
			break
		}
		last = time.Now()
	}
	again := func() error {
		if err := l.alive(w, a); err != nil {
			return err
		}
		if err := g.Rejoin(context.Background()); err != nil {
			return fmt.Errorf("rejoining: %w", err)
		}
		for i := 0; i < 5; i++ { // the same graph again
			if err := l.replay(); err != nil {
				return fmt.Errorf("after rejoining: %w", err)
			}
		}
		return w.Barrier(context.Background())
	}
	if err := again(); err != nil {
		return err
	}
	// A rank that gives up with nothing in flight is heard in the other processes: from
	// itself, or sooner through the memory of one that heard it.
	if c.rank == c.n-1 {
		time.Sleep(100 * time.Millisecond)
		l.m.Abort(errors.New("enough"))
	}
	err = l.replay()
	var gave *symm.CanceledError
	if !errors.As(err, &gave) || gave.Origin != c.n-1 {
		return fmt.Errorf("after a rank gave up: %w", err)
	}
	return again()
}

// TestKilledProcess kills one of the ranks before an eager call.
func TestKilledProcess(t *testing.T) {
	n := processRanks(t, 4)
	if n < 3 {
		t.Skip("survivors need company")
	}
	out := spawn(t, "killed", n)
	passed(t, out[:n-1])
	for i, d := range delays(t, out[n-1], out[:n-1], 0) {
		t.Logf("rank %d noticed after %v", i, d)
	}
}

// passed fails for outcomes that are no pass, or leaked.
func passed(t *testing.T, out []outcome) {
	t.Helper()
	for _, o := range out {
		if _, ok := line(o, "PASS"); !ok || o.err != nil {
			t.Errorf("rank %d: %v %q", o.rank, o.err, o.lines)
		}
		if l, ok := line(o, "LEAK"); ok {
			t.Errorf("rank %d did not release %s", o.rank, l)
		}
	}
}

// delays gives how long after the victim's death the others noticed it in a round,
// and fails for more than a second.
func delays(t *testing.T, victim outcome, others []outcome, round int) []time.Duration {
	t.Helper()
	when, ok := line(victim, "KILLED")
	if !ok {
		t.Fatalf("the victim lived: %q", victim.lines)
	}
	at, _ := strconv.ParseInt(when, 10, 64)
	var out []time.Duration
	for _, o := range others {
		noticed := lines(o, "NOTICED")
		if round >= len(noticed) {
			t.Errorf("rank %d did not notice death %d", o.rank, round)
			continue
		}
		n, _ := strconv.ParseInt(noticed[round], 10, 64)
		d := time.Duration(n - at)
		if d < 0 || d > plenty {
			t.Errorf("rank %d noticed after %v", o.rank, d)
		}
		out = append(out, d)
	}
	return out
}

func lines(o outcome, prefix string) []string {
	var out []string
	for _, l := range o.lines {
		if rest, ok := strings.CutPrefix(l, prefix); ok {
			out = append(out, strings.TrimSpace(rest))
		}
	}
	return out
}

// TestKilledInReplay kills the last rank in the middle of a replayed graph, again and
// again with a new process in its place; the others live on in the same processes.
func TestKilledInReplay(t *testing.T) {
	for _, n := range []int{2, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			if processRanks(t, n) < n {
				t.Skip("too few GPUs")
			}
			job := newJob(0)
			env := func(rounds int) []string {
				return []string{envJob + "=" + job.Token(), envRounds + "=" + strconv.Itoa(rounds)}
			}
			done := make(chan outcome)
			for i := 0; i < n-1; i++ {
				start(t, "killed in a replay", i, n, env(*kills), done)
			}
			// The next victim starts while its predecessor runs: starting takes seconds.
			victims, others := make([]outcome, *kills), make([]outcome, n-1)
			ended := 0                           // others
			dead := make([]chan outcome, *kills) // one each: two that die soon after each other may be heard of in either order
			for r := range victims {
				for next := r + min(r, 1); next <= r+1 && next < len(victims); next++ {
					dead[next] = make(chan outcome)
					start(t, "killed in a replay", n-1, n, env(next+1), dead[next])
				}
				for alive := true; alive; {
					select {
					case victims[r] = <-dead[r]:
						alive = false
					case o := <-done: // or the victim would wait for it as long as ranks do
						if others[o.rank], ended = o, ended+1; o.err != nil {
							t.Fatalf("rank %d ended before victim %d of %d: %v\n%s", o.rank, r+1, len(victims), o.err, strings.Join(o.lines, "\n"))
						}
					}
				}
				t.Logf("victim %d of %d has ended", r+1, len(victims))
			}
			for ; ended < len(others); ended++ {
				o := <-done
				others[o.rank] = o
			}
			passed(t, others)
			for r, v := range victims {
				t.Logf("death %d noticed after %v", r+1, delays(t, v, others, r))
			}
			for _, o := range others {
				held := lines(o, "HELD")
				t.Logf("rank %d holds mappings, free bytes: first %s, last %s", o.rank, held[0], held[len(held)-1])
				if grown(t, held) > 1 { // a leak grows with every death, a pool of the driver's once
					t.Errorf("rank %d holds more and more: %q", o.rank, held)
				}
			}
		})
	}
}

// grown is how often more was held than ever before, by lines of mappings and free bytes.
func grown(t *testing.T, held []string) (times int) {
	t.Helper()
	mostMaps, leastFree := 0, uint64(0)
	for i, l := range held {
		var maps int
		var free uint64
		if _, err := fmt.Sscan(l, &maps, &free); err != nil {
			t.Fatal(err)
		}
		if i > 0 && (maps > mostMaps || free < leastFree) {
			times++
		}
		if mostMaps = max(mostMaps, maps); i == 0 || free < leastFree {
			leastFree = free
		}
	}
	return times
}

// TestStalledProcess leaves a rank asleep beyond the deadline.
func TestStalledProcess(t *testing.T) {
	n := processRanks(t, 4)
	out := spawn(t, "stalled", n)
	passed(t, out)
	var longest time.Duration // of who noticed by itself; others hear of it, however late they have come
	for i, o := range out[:n-1] {
		noticed, _ := line(o, "NOTICED")
		d, _ := strconv.ParseInt(noticed, 10, 64)
		t.Logf("rank %d noticed after %v", i, time.Duration(d))
		longest = max(longest, time.Duration(d))
	}
	if longest > plenty || longest < stallDeadline {
		t.Errorf("noticed after %v, the deadline is %v", longest, stallDeadline)
	}
}

// TestCancelledReplay cancels one rank of a process whose ranks all replay graphs.
func TestCancelledReplay(t *testing.T) {
	const n = 4
	r := newRigT(t, n)
	a := r.alloc(4096)
	loops := make([]*loop, n)
	for i, m := range r.g.Members() {
		l, err := newLoop(r.w, m, a, 20)
		if err != nil {
			t.Fatal(err)
		}
		defer l.close()
		loops[i] = l
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(30*time.Millisecond, func() { cancel(cause) })
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i, l := range loops {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for errs[i] == nil {
				if i == 1 && ctx.Err() != nil { // one rank stops, the others find out
					l.m.Abort(context.Cause(ctx))
				}
				errs[i] = l.replay()
			}
		}()
	}
	wg.Wait()
	for i, err := range errs {
		if !errors.Is(err, symm.ErrCanceled) {
			t.Errorf("rank %d: %v", i, err)
		}
	}
	if !errors.Is(errs[1], cause) {
		t.Errorf("the cancelled rank reports %v", errs[1])
	}
	if err := r.g.Rejoin(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, l := range loops {
		if err := l.alive(r.w, a); err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
	}
	for _, algo := range []kernels.Algo{kernels.OneShot, kernels.TwoShot, kernels.LL, kernels.Direct, kernels.Push, kernels.Engine} {
		c := caseT{kind: kernels.AllReduce, t: dtype.F32, algo: algo, counts: []int{1000}}
		if err := r.runCase(c, rand.New(rand.NewPCG(1, 1))); err != nil {
			t.Errorf("after rejoining, %v: %v", algo, err)
		}
	}
}
