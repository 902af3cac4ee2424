package host

import (
	"context"
	"errors"
	"fmt"
	"sync"

	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// Local runs a world of goroutines of this process: it joins the given number of
// ranks with these modules, calls f once for each on a goroutine of its own, and
// closes them. Env and Job of cfg are ignored. If f fails on one rank the world
// is broken, so that the others do not wait for it; the result joins the errors
// of all ranks in order.
func Local(ctx context.Context, world int, cfg rt.Config, opts Options, mods []*rt.Module, f func(ctx context.Context, r *rt.Rank) error) error {
	if world < 1 {
		return fmt.Errorf("a world of %d ranks", world)
	}
	opts.Local, cfg.Job = true, rendezvous.NewLocal()
	errs := make([]error, world)
	var wg sync.WaitGroup
	for i := range world {
		wg.Go(func() { errs[i] = localRank(ctx, i, world, cfg, opts, mods, f) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func localRank(ctx context.Context, i, world int, cfg rt.Config, opts Options, mods []*rt.Module, f func(context.Context, *rt.Rank) error) error {
	cfg.Env = &rt.Env{Rank: i, World: world, LocalRank: i, LocalWorld: world, Source: "goroutines of one process"}
	if opts.Hosts > 1 {
		each := (world + opts.Hosts - 1) / opts.Hosts
		cfg.Env.Host, cfg.Env.LocalRank, cfg.Env.LocalWorld = fmt.Sprint("host ", i/each), i%each, each
	}
	r, err := rt.Join(ctx, Opener(opts), cfg, mods...)
	if err != nil {
		return err
	}
	err = f(ctx, r)
	if err != nil && r.Err() == nil {
		r.Abort(err)
	}
	return errors.Join(err, r.Close())
}
