package cuda

import (
	"context"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// testJob is where processes of a test's world join, and how long they wait.
type testJob struct {
	*rendezvous.Job
	Timeout time.Duration
}

func newJob(timeout time.Duration) testJob { return testJob{rendezvous.NewJob(""), timeout} }

// Part is another job of the same processes.
func (j testJob) Part(name string) testJob {
	p := *j.Job
	p.ID += "-" + name
	p.Addr += "-" + name
	return testJob{&p, j.Timeout}
}

// within ends ctx when the job's time is up.
func (j testJob) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if j.Timeout <= 0 {
		j.Timeout = time.Minute
	}
	return context.WithTimeout(ctx, j.Timeout)
}

// processWorld joins the job and opens this process's part of its world.
func processWorld(ctx context.Context, drv driver.Driver, j testJob, rank, n, dev int, o symm.WorldOptions) (*symm.World, error) {
	joining, cancel := j.within(ctx)
	defer cancel()
	if j.Timeout <= 0 {
		j.Timeout = time.Minute
	}
	g, err := rendezvous.Join(joining, j.Job, rendezvous.Place{Rank: rank, World: n, Timeout: j.Timeout})
	if err != nil {
		return nil, err
	}
	return symm.NewProcessWorld(joining, drv, g, dev, o)
}

// groupOf is rank 0's membership of a job of n goroutines.
func groupOf(t testing.TB, n int) *rendezvous.Group {
	t.Helper()
	job := rendezvous.NewLocal()
	for r := 1; r < n; r++ {
		go func() {
			if g, err := rendezvous.Join(t.Context(), job, rendezvous.Place{Rank: r, World: n}); err == nil {
				t.Cleanup(func() { g.Close() })
			}
		}()
	}
	g, err := rendezvous.Join(t.Context(), job, rendezvous.Place{World: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}
