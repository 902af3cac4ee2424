package host

import (
	"context"

	rt "github.com/seed-ee968945/concert/runtime"
)

// Local runs a world of goroutines of this process on host devices, see runtime.Local.
func Local(ctx context.Context, world int, cfg rt.Config, opts Options, mods []*rt.Module, f func(ctx context.Context, r *rt.Rank) error) error {
	opts.Local = true
	return rt.Local(ctx, world, opts.Hosts, Opener(opts), cfg, mods, f)
}
