package host

import (
	"context"
	"sync/atomic"

	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// Opener opens host devices.
func Opener(opts Options) rt.Opener {
	if opts.Signals <= 0 {
		opts.Signals = 16
	}
	if opts.Groups <= 0 {
		opts.Groups = 32
	}
	return func(ctx context.Context, spec rt.Spec) (rt.Device, error) {
		lay := layout{world: spec.World, channels: max(opts.Groups, len(spec.Groups)), slots: opts.Signals}
		m, pads, nonce, err := openMesh(ctx, &spec, opts, lay)
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
		d := newDevice(spec, opts, lay, nonce, pads, lost, func() error { stop(); return m.close() })
		d.mesh = m
		return d, nil
	}
}
