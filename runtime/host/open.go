package host

import (
	"context"

	rt "github.com/seed-ee968945/concert/runtime"
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
		return newDevice(spec, opts, lay, nonce, m, pads), nil
	}
}
