package host_test

import (
	"context"
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

	"github.com/seed-ee968945/concert/internal/leak"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/launch"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// links is two network namespaces, joined by a bridge in a third over links of 200 Mbit/s.
type links struct {
	t    *testing.T
	name string
}

var linked atomic.Int32

// newLinks makes them, or skips the test where that is not allowed, or not there.
func newLinks(t *testing.T) *links {
	t.Helper()
	l := &links{t, fmt.Sprintf("concert-%d-%d-", os.Getpid(), linked.Add(1))}
	run := func(line string, args ...any) {
		words := strings.Fields(fmt.Sprintf(line, args...))
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Skipf("cannot make links of network namespaces: %s: %v: %s", strings.Join(words, " "), err, out)
		}
	}
	for _, ns := range []string{"r", "a", "b"} {
		run("ip netns add %s%s", l.name, ns)
		t.Cleanup(func() { l.ip("netns", "del", l.name+ns) })
	}
	run("ip -n %sr link add bridge0 type bridge", l.name)
	run("ip -n %sr link set bridge0 up", l.name)
	for i, side := range []string{"a", "b"} {
		ns := l.name + side
		run("ip -n %s link add eth type veth peer name to%s netns %sr", ns, side, l.name)
		run("ip -n %s addr add 10.77.0.%d/24 dev eth", ns, i+1)
		run("ip -n %s link set eth up", ns)
		run("ip -n %s link set lo up", ns)
		run("ip -n %sr link set to%s master bridge0 up", l.name, side)
		run("tc -n %sr qdisc add dev to%s root tbf rate 200mbit burst 64kb latency 50ms", l.name, side)
	}
	return l
}

func (l *links) ip(args ...string) {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		l.t.Errorf("ip %s: %v: %s", strings.Join(args, " "), err, out)
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

// atStep calls f once, on a goroutine of all, when a rank has finished a step.
func (o *output) atStep(rank, step int, all *sync.WaitGroup, f func()) {
	want, done := fmt.Sprintf("[%d] step %d\n", rank, step), false
	o.seen = func(line string) {
		if line == want && !done {
			done = true
			all.Go(f)
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
	const silence = 8 * time.Second // longer than a machine stands still
	const plenty = 2 * time.Minute
	// lost runs until the ranks of the other host are lost to those that live.
	lost := func(t *testing.T, live []int, end func(l *links, kill func(rank int))) {
		l, out := newLinks(t), &output{}
		spec := l.spec(out, 1<<30, silence)
		spec.Grace = plenty // some of them hear nothing until their silence is over
		of := processes(&spec)
		var ended sync.WaitGroup
		out.atStep(0, 1, &ended, func() { end(l, func(rank int) { of(rank).Kill() }) })
		err := launch.Run(t.Context(), spec)
		ended.Wait()
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
			whole(t, out, newLinks(t).spec(out, 2, plenty))
		},
		"drop": func(t *testing.T) {
			l, out := newLinks(t), &output{}
			var mended sync.WaitGroup
			out.atStep(0, 1, &mended, func() {
				l.cut()
				time.Sleep(2 * time.Second)
				l.mend()
			})
			whole(t, out, l.spec(out, 4, plenty))
			mended.Wait()
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

// envLast has a child add up tensors of so many bytes, and then leave.
const envLast = "CONCERT_TEST_LAST"

func childLast(bytes string) error {
	n, err := strconv.ParseInt(bytes, 10, 64)
	if err != nil {
		return err
	}
	ctx := context.Background()
	r, err := rt.Join(ctx, host.Opener(host.Options{}), rt.Config{UserBytes: n, Timeout: time.Hour})
	if err != nil {
		return err
	}
	x := r.User(rt.C(0, rt.F32, n/4))
	w, err := r.Start(ctx, "", &rt.Collective{Op: rt.AllReduce, Group: "world", Reduce: "sum", Ins: rt.Ts{x}, Outs: rt.Ts{x}})
	if err == nil {
		err = w.Wait(ctx)
	}
	return errors.Join(err, r.Close())
}

// A rank that has all and leaves still owes what a slower link has not taken yet.
func TestLeavesBehindSlowLink(t *testing.T) {
	leak.Check(t)
	l := newLinks(t)
	l.ip("netns", "exec", l.name+"r", "tc", "qdisc", "change", "dev", "tob", "root", "tbf", "rate", "20mbit", "burst", "64kb", "latency", "50ms")
	var out output
	spec := mlpSpec(&out, 0, time.Hour, time.Hour)
	spec.World = 2
	spec.Env = append(spec.Env, envLast+"=16777216")
	spec.Job = rendezvous.NewJob("tcp:10.77.0.1:29500")
	spec.Prefix = func(rank int) []string { return []string{"ip", "netns", "exec", l.name + "ab"[rank:rank+1]} }
	if err := launch.Run(t.Context(), spec); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}
