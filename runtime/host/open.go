package host

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"

	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/internal/shm"
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
		if opts.Hub != nil {
			return openGoroutine(ctx, spec, opts, lay)
		}
		return openProcess(ctx, spec, opts, lay)
	}
}

// oneHost checks that all ranks can share memory.
func oneHost(spec rt.Spec, m *rt.Meeting, oneProcess bool) error {
	me := m.Records[spec.Rank]
	for r, rec := range m.Records {
		switch {
		case rec.Host != me.Host:
			return &rt.RendezvousError{Rank: spec.Rank, Err: rt.ErrUnsupported,
				Reason: fmt.Sprintf("the host device needs all ranks on one machine; rank %d is on another", r)}
		case oneProcess && rec.PID != me.PID:
			return &rt.RendezvousError{Rank: spec.Rank, Err: rt.ErrUnsupported,
				Reason: fmt.Sprintf("this rank uses a hub, but rank %d is another process (%d)", r, rec.PID)}
		}
	}
	return nil
}

// reach is what peers need in order to connect: the device's part of a record.
type reach struct {
	Socket string `json:"socket"` // abstract name
	Pad    int    `json:"pad"`
	Epoch  uint32 `json:"epoch"`
}

// openProcess opens the device of a rank that is a process.
//
// The listening socket exists before the rank's record does, so the rendezvous
// doubles as the barrier after which everyone can be dialled. Every pair of ranks
// then has one connection, from the higher rank to the lower, over which each
// sends its memory file once. The connection stays open and silent: the kernel
// ends it when either process ends, however that happens.
func openProcess(ctx context.Context, spec rt.Spec, opts Options, lay layout) (rt.Device, error) {
	m := &mesh{spec: spec, pad: lay.bytes(), conns: make([]*net.UnixConn, spec.World), segs: make([]*shm.Segment, spec.World), lost: make([]atomic.Uint32, spec.World)}
	dev, err := m.open(ctx, opts, lay)
	if err != nil {
		m.close()
		return nil, err
	}
	return dev, nil
}
