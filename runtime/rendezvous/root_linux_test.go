package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// envRanks makes a test binary all ranks but 0 of a world of that size, of the job of envToken.
const envRanks, envToken = "RENDEZVOUS_TEST_RANKS", "RENDEZVOUS_TEST_JOB"

// rounds is how many barriers BenchmarkRoot has.
const rounds = 10

// TestRanks is no test: it is the other ranks of BenchmarkRoot.
func TestRanks(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv(envRanks))
	if err != nil {
		t.Skip("the ranks of a benchmark")
	}
	job, err := ParseJob(os.Getenv(envToken))
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := 1; r < n; r++ {
		wg.Go(func() { errs[r] = joinAndLeave(t.Context(), job, r, n, func() {}) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// joinAndLeave joins as a rank, agrees on a digest a few times, and leaves. It calls mark before,
// between and behind the two.
func joinAndLeave(ctx context.Context, job *Job, rank, n int, mark func()) error {
	mark()
	g, err := Join(ctx, job, Place{Rank: rank, World: n, Timeout: 5 * time.Minute})
	if err != nil {
		return err
	}
	defer g.Close()
	mark()
	for range rounds {
		if _, err := g.Exchange(ctx, Call{Facts: []Fact{{"programs", "a digest of sixty-four letters, as those of programs are: 0123456789"}}}); err != nil {
			return err
		}
	}
	mark()
	return nil
}

// BenchmarkRoot is what a world costs the process of rank 0, which coordinates it: all other
// ranks are goroutines of another process.
func BenchmarkRoot(b *testing.B) {
	for _, n := range []int{64, 512, 4096} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				job := NewJob(addrs.Next())
				others := exec.Command(os.Args[0], "-test.run=^TestRanks$")
				others.Env = append(os.Environ(), fmt.Sprint(envRanks, "=", n), envToken+"="+job.Token())
				if err := others.Start(); err != nil {
					b.Fatal(err)
				}
				var cpu, wall, mib []float64
				err := joinAndLeave(b.Context(), job, 0, n, func() {
					var u syscall.Rusage
					var m runtime.MemStats
					runtime.GC()
					runtime.ReadMemStats(&m)
					syscall.Getrusage(syscall.RUSAGE_SELF, &u)
					cpu = append(cpu, float64(u.Utime.Nano()+u.Stime.Nano())/1e9)
					wall = append(wall, float64(time.Now().UnixNano())/1e9)
					mib = append(mib, float64(m.HeapInuse+m.StackInuse)/(1<<20))
				})
				if err := errors.Join(err, others.Wait()); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(cpu[1]-cpu[0], "join-cpu-s")
				b.ReportMetric(mib[1]-mib[0], "MiB")
				b.ReportMetric((cpu[2]-cpu[1])/rounds*1e3, "barrier-cpu-ms")
				b.ReportMetric((wall[2]-wall[1])/rounds*1e3, "barrier-ms")
			}
		})
	}
}
