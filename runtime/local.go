package runtime

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// OnHosts is the place of a rank in a world that is declared to be on so many hosts, as many as ranks
// at most, one if hosts is 0: neighbours are on the same one, on each as many or one fewer.
func OnHosts(rank, world, hosts int) Env {
	e := Env{Rank: rank, World: world, LocalRank: rank, LocalWorld: world}
	if hosts > 1 {
		host := rank * hosts / world
		first := func(host int) int { return (host*world + hosts - 1) / hosts }
		e.Host, e.LocalRank, e.LocalWorld = "host"+strconv.Itoa(host), rank-first(host), first(host+1)-first(host)
	}
	return e
}

// Local runs a world of goroutines of this process: it joins the ranks with these modules,
// calls f once for each on a goroutine of its own, and closes them. Env and Job of cfg are
// ignored. If a rank does not join, none does; if f fails on one the world is broken, so
// that the others do not wait for it. The result joins the errors of all ranks in order.
func Local(ctx context.Context, world, hosts int, open Opener, cfg Config, mods []*Module, f func(ctx context.Context, r *Rank) error) error {
	if world < 1 || hosts > world {
		return fmt.Errorf("a world of %d ranks on %d hosts", world, max(hosts, 1))
	}
	cfg.Job = rendezvous.NewLocal()
	joining, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	errs := make([]error, world)
	var wg sync.WaitGroup
	for i := range world {
		wg.Go(func() {
			cfg, env := cfg, OnHosts(i, world, hosts)
			env.Source = "goroutines of one process"
			cfg.Env = &env
			r, err := Join(joining, open, cfg, mods...)
			if err != nil {
				cancel(err)
				errs[i] = err
				return
			}
			if err = f(ctx, r); err != nil && r.Err() == nil {
				r.Abort(err)
			}
			errs[i] = errors.Join(err, r.Close())
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
