package host

import (
	"context"
	"fmt"
	"sync/atomic"

	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// Opener opens host devices.
func Opener(opts Options) rt.Opener {
	return func(ctx context.Context, spec rt.Spec) (rt.Device, error) {
		if opts.Signals <= 0 {
			opts.Signals = 16
		}
		lay := layout{world: spec.World, channels: len(spec.Groups), slots: opts.Signals}
		const most = 1 << 46
		if spec.ArenaBytes < 0 || spec.ArenaBytes > most/int64(spec.World) {
			return nil, &rt.RendezvousError{Rank: spec.Rank, Reason: fmt.Sprintf("an arena of %d bytes", spec.ArenaBytes)}
		}
		segs, nonce, release, err := openMemory(ctx, &spec, opts, lay)
		if err != nil {
			return nil, err
		}
		// The job says who died; who leaves says so in its pad.
		lost := make([]atomic.Uint32, spec.World)
		stop := spec.Job.Watch(func(e rendezvous.Event) {
			if e.Kind == rendezvous.Lost {
				lost[e.Rank].Store(uint32(peerDied))
			}
		})
		return newDevice(spec, opts, lay, nonce, segs, lost, func() error { stop(); return release() }), nil
	}
}
