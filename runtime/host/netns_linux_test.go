package host_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/internal/joint"
	"github.com/seed-ee968945/concert/internal/leak"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/launch"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// What a child of these tests is told.
const (
	envFSDP    = "MLP_FSDP"    // number of steps of tiny_fsdp2
	envSilence = "MLP_SILENCE" // how long another host may be silent
)

// fsdp is the step of tiny_fsdp2, forward and backward, over two replicas of two ranks that
// have a shard each: shards of one replica are on different hosts.
type fsdp struct {
	step hostrun.Step
	in   [][]interp.Tensor // by shard
}

func newFSDP() (*fsdp, error) {
	f, _, err := joint.Load("../../testdata/graphs", "tiny_fsdp2")
	if err != nil {
		return nil, err
	}
	in, err := interp.RandomInputs(f, 1, interp.RandomOptions{})
	if err != nil {
		return nil, err
	}
	p, err := lower.Func(f)
	if err != nil {
		return nil, err
	}
	p.World = 4
	for i := range p.Groups {
		p.Groups[i].Ranks = [][]int{{0, 2}, {1, 3}}
	}
	s, err := hostrun.OfProgram(p)
	return &fsdp{s, in}, err
}

// run runs steps on one rank, and gives a digest of what the last one computed.
func (f *fsdp) run(ctx context.Context, r *rt.Rank, steps int, each func(step int)) (string, error) {
	var sum string
	for step := range steps {
		in, err := hostrun.Inputs(ctx, r, f.step.Module, f.in[r.Info().Rank/2])
		if err != nil {
			return "", err
		}
		out, err := rt.RunModule(ctx, r, f.step.Module, f.step.Run, in, rt.Options{})
		if err != nil {
			return "", fmt.Errorf("step %d: %w", step, err)
		}
		ts, err := hostrun.Tensors(ctx, r, out)
		if err != nil {
			return "", err
		}
		h := sha256.New()
		for _, t := range ts {
			h.Write(t.Data)
		}
		sum = fmt.Sprintf("%x", h.Sum(nil)[:8])
		each(step)
	}
	return sum, nil
}

// childFSDP runs the step as a rank. An error that is not of a type, and what is left when
// the rank has been closed, is said.
func childFSDP(steps string) error {
	n, err := strconv.Atoi(steps)
	if err != nil {
		return err
	}
	silence, err := time.ParseDuration(os.Getenv(envSilence))
	if err != nil {
		return err
	}
	f, err := newFSDP()
	if err != nil {
		return err
	}
	held, ctx := leak.Now(), context.Background()
	r, err := rt.Join(ctx, host.Opener(host.Options{}), rt.Config{Timeout: time.Hour, Silence: silence}, f.step.Module)
	if err != nil {
		return err
	}
	sum, err := f.run(ctx, r, n, func(step int) { fmt.Println("step", step) })
	if err == nil {
		err = r.Barrier(ctx)
	}
	if err == nil {
		fmt.Println("result", sum)
	} else if !errors.Is(err, rt.ErrPeerLost) {
		err = fmt.Errorf("not of a type: %w", err)
	}
	err = errors.Join(err, r.Close())
	if more := held.More(); more != "" {
		err = errors.Join(err, fmt.Errorf("a leak: %s", more))
	}
	return err
}

// links is two network namespaces, joined by a bridge in a third over links of 200 Mbit/s.
type links struct {
	t    *testing.T
	name string
}

var linked atomic.Int32

// newLinks makes them, or skips the test where that is not allowed.
func newLinks(t *testing.T) *links {
	t.Helper()
	l := &links{t, fmt.Sprintf("concert-%d-%d-", os.Getpid(), linked.Add(1))}
	if out, err := exec.Command("ip", "netns", "add", l.name+"r").CombinedOutput(); err != nil {
		t.Skipf("cannot make network namespaces: %v: %s", err, out)
	}
	t.Cleanup(func() { l.ip("netns", "del", l.name+"r") })
	l.ip("-n", l.name+"r", "link", "add", "bridge0", "type", "bridge")
	l.ip("-n", l.name+"r", "link", "set", "bridge0", "up")
	for i, side := range []string{"a", "b"} {
		ns := l.name + side
		l.ip("netns", "add", ns)
		t.Cleanup(func() { l.ip("netns", "del", ns) })
		l.ip("-n", ns, "link", "add", "eth", "type", "veth", "peer", "name", "to"+side, "netns", l.name+"r")
		l.ip("-n", ns, "addr", "add", fmt.Sprintf("10.77.0.%d/24", i+1), "dev", "eth")
		l.ip("-n", ns, "link", "set", "eth", "up")
		l.ip("-n", ns, "link", "set", "lo", "up")
		l.ip("-n", l.name+"r", "link", "set", "to"+side, "master", "bridge0", "up")
		l.run("tc", "-n", l.name+"r", "qdisc", "add", "dev", "to"+side, "root", "tbf", "rate", "200mbit", "burst", "64kb", "latency", "50ms")
	}
	if t.Failed() {
		t.FailNow()
	}
	return l
}

func (l *links) ip(args ...string) { l.run("ip", args...) }

func (l *links) run(name string, args ...string) {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		l.t.Errorf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// cut lets nothing through any more, and no one sees that it does; mend undoes it.
func (l *links) cut()  { l.ip("-n", l.name+"r", "link", "set", "tob", "nomaster") }
func (l *links) mend() { l.ip("-n", l.name+"r", "link", "set", "tob", "master", "bridge0") }

// spec is a job of two ranks in each namespace.
func (l *links) spec(out *output, steps int, silence time.Duration) launch.Spec {
	spec := mlpSpec(out, 0, time.Hour, time.Hour)
	spec.Env = append(spec.Env, envFSDP+"="+strconv.Itoa(steps), envSilence+"="+silence.String())
	spec.Job = rendezvous.NewJob("tcp:10.77.0.1:29500")
	spec.Prefix = func(rank int) []string { return []string{"ip", "netns", "exec", l.name + "ab"[rank/2:rank/2+1]} }
	return spec
}

// whole runs a job that nothing may keep from computing what ranks with shared memory do.
func whole(t *testing.T, out *output, spec launch.Spec) {
	t.Helper()
	f, err := newFSDP()
	if err != nil {
		t.Fatal(err)
	}
	want := make([]string, 4)
	err = host.Local(t.Context(), 4, rt.Config{}, host.Options{}, []*rt.Module{f.step.Module}, func(ctx context.Context, r *rt.Rank) (err error) {
		want[r.Info().Rank], err = f.run(ctx, r, 1, func(int) {})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := launch.Run(t.Context(), spec); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for r, sum := range want {
		if line := fmt.Sprintf("[%d] result %s\n", r, sum); !strings.Contains(out.String(), line) {
			t.Errorf("%q is missing:\n%s", line, out.String())
		}
	}
}

// atStep calls f once, on a goroutine of its own, when a rank has finished a step.
func (o *output) atStep(rank, step int, f func()) {
	want, done := fmt.Sprintf("[%d] step %d\n", rank, step), false
	o.seen = func(line string) {
		if line == want && !done {
			done = true
			go f()
		}
	}
}

// TestLinksFail computes over links of a rate; over one that drops for two seconds, which
// costs these two seconds; over one that dies, where all ranks lose those of the other host;
// and with a host that is gone with its processes. All at a time: most of it is waiting.
func TestLinksFail(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for silence")
	}
	leak.Check(t)
	const silence = 3 * time.Second
	// lost runs until the ranks of the other host are lost to those that live.
	lost := func(t *testing.T, live []int, end func(l *links, kill func(rank int))) {
		l, out := newLinks(t), &output{}
		spec := l.spec(out, 1<<30, silence)
		of := processes(&spec)
		ended := make(chan struct{})
		out.atStep(0, 1, func() {
			defer close(ended)
			end(l, func(rank int) { of(rank).Kill() })
		})
		err := launch.Run(t.Context(), spec)
		<-ended
		survivors(t, err, out.String(), live, func(rank int) []string {
			return []string{"FAILED: step ", fmt.Sprintf(": rank %d: ", rank), " died"}
		})
		for _, bad := range []string{"a leak", "not of a type"} {
			if strings.Contains(out.String(), bad) {
				t.Errorf("%s:\n%s", bad, out.String())
			}
		}
	}
	var wg sync.WaitGroup
	for name, f := range map[string]func(t *testing.T){
		"rate": func(t *testing.T) {
			out := &output{}
			whole(t, out, newLinks(t).spec(out, 2, rendezvous.Silence))
		},
		"drop": func(t *testing.T) {
			l, out := newLinks(t), &output{}
			mended := make(chan struct{})
			out.atStep(0, 1, func() {
				defer close(mended)
				l.cut()
				time.Sleep(2 * time.Second)
				l.mend()
			})
			whole(t, out, l.spec(out, 4, rendezvous.Silence))
			<-mended
		},
		"link": func(t *testing.T) {
			lost(t, []int{0, 1, 2, 3}, func(l *links, _ func(int)) { l.cut() })
		},
		"host": func(t *testing.T) {
			lost(t, []int{0, 1}, func(l *links, kill func(int)) { l.cut(); kill(2); kill(3) })
		},
	} {
		wg.Go(func() { t.Run(name, f) })
	}
	wg.Wait()
}
