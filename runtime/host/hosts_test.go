package host_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/internal/leak"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
	"github.com/seed-ee968945/concert/runtime/rendezvous/loopback"
)

var addrs loopback.Addrs

// overTCP runs f on ranks that are goroutines of this process and have memory and
// connections as processes have them, on as many hosts as are declared.
func overTCP(t *testing.T, world, hosts int, cfg rt.Config, opts host.Options, mods []*rt.Module, f func(ctx context.Context, r *rt.Rank) error) []error {
	t.Helper()
	leak.Check(t)
	cfg.Job = rendezvous.NewJob(addrs.Next())
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Minute
	}
	errs := make([]error, world)
	var wg sync.WaitGroup
	for i := range world {
		wg.Go(func() {
			cfg := cfg
			each := world / hosts
			cfg.Env = &rt.Env{Rank: i, World: world, Host: fmt.Sprint("host", i/each)}
			r, err := rt.Join(t.Context(), host.Opener(opts), cfg, mods...)
			if err == nil {
				err = f(t.Context(), r)
				err = errors.Join(err, r.Close())
			}
			errs[i] = err
		})
	}
	wg.Wait()
	return errs
}

// TestHosts runs every collective between ranks that share memory, and ranks that do not:
// two hosts of two ranks, and four of one.
func TestHosts(t *testing.T) {
	mod := randomModule()
	for _, hosts := range []int{2, 4} {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			errs := overTCP(t, 4, hosts, rt.Config{}, host.Options{FirstEpoch: wrapping}, []*rt.Module{mod}, func(ctx context.Context, r *rt.Rank) error {
				return errors.Join(randomRounds(ctx, r, mod.Groups, 80), r.Barrier(ctx))
			})
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLocalHosts is TestHosts of goroutines whose hosts are declared.
func TestLocalHosts(t *testing.T) {
	mod := randomModule()
	for _, hosts := range []int{2, 4} {
		local(t, 4, rt.Config{}, host.Options{FirstEpoch: wrapping, Hosts: hosts}, []*rt.Module{mod}, func(ctx context.Context, r *rt.Rank) error {
			return errors.Join(randomRounds(ctx, r, mod.Groups, 200), r.Barrier(ctx))
		})
	}
}

// TestWorldLivesOnHosts changes a world of two hosts while it lives.
func TestWorldLivesOnHosts(t *testing.T) {
	errs := overTCP(t, 4, 2, rt.Config{}, host.Options{Groups: 10}, nil, func(ctx context.Context, r *rt.Rank) error {
		return (&hostrun.Living{Steps: 10}).Run(ctx, r)
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}
