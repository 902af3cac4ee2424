//go:build linux

package cuda

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// NewProcessWorld builds a world of n ranks of which this process drives one,
// rank, on device dev. All processes run on one host and call it with the same
// meeting, n and options. It returns when every process has mapped all memory, when ctx
// ends, or after the meeting's timeout, with a *MeetingTimeoutError.
//
// Start the processes by exec, before any of them opens the driver: a process that
// forked with an open driver cannot use it.
func NewProcessWorld(ctx context.Context, drv Driver, m Meeting, rank, n, dev int, o WorldOptions) (_ *World, err error) {
	if err := errors.Join(given(ctx), m.check()); err != nil {
		return nil, err
	}
	w, err := openOne(drv, &World{n: n}, rank, dev, &o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.Close() // the first error matters
		}
	}()
	r := w.local[rank]
	if r.alone != nil {
		return nil, fmt.Errorf("rank %d: %w", rank, r.alone)
	}
	own, err := drv.MemCreate(r.Ctx, dev, w.stride, r.how)
	if err != nil {
		return nil, fmt.Errorf("rank %d: symmetric memory of %d bytes: %w", rank, w.stride, err)
	}
	w.mems[rank] = own
	host, err := hostIdentity()
	if err != nil {
		return nil, err
	}
	h := hello{Version: protocolVersion, Rank: rank, World: n, Host: host, UUID: fmt.Sprintf("%x", r.Info.UUID),
		Stride: w.stride, Digest: o.digest(), Share: o.ShareDevice, Sharing: r.how.String(), Multicast: o.Multicast}
	gift, err := exportMem(drv, r.Ctx, own, r.how)
	if err != nil {
		return nil, fmt.Errorf("rank %d cannot share its memory: %w", rank, err)
	}
	c, all, err := m.meet(ctx, h, gift)
	gift.close()
	if err != nil {
		return nil, err
	}
	w.control = c
	c.serve(w.lost, w.aborted)
	defer closeGifts(all)
	if err := w.importAll(all, rank); err != nil {
		c.skip(err)
		return nil, err
	}
	if _, err := c.meet(ctx, ""); err != nil {
		return nil, err
	}
	return w, nil
}

// importAll maps what the other ranks have given.
func (w *World) importAll(all []gift, rank int) (err error) {
	for i, g := range all {
		if i == rank {
			continue
		}
		if w.mems[i], err = g.importMem(w.drv, w.local[rank].Ctx); err != nil {
			return fmt.Errorf("importing the memory of rank %d: %w", i, err)
		}
	}
	return w.mapAll()
}

// hostIdentity names this boot of this host: equal in all processes that can share
// memory and sockets.
func hostIdentity() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	ns, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return "", err
	}
	return string(b[:36]) + " " + ns, nil
}

// mostText keeps the texts of 64 ranks within one message.
const mostText = 8 << 10

// Compare is Meet, at which every process says something: it returns what they said, by
// rank, and must be called where the others call it. Texts are short, such as digests: 8 KiB at
// most.
func (w *World) Compare(ctx context.Context, text string) ([]string, error) {
	if err := errors.Join(w.usable(), given(ctx)); err != nil {
		return nil, err
	}
	if len(text) > mostText {
		return nil, bad("text", "%d bytes: %d at most", len(text), mostText)
	}
	if w.control == nil {
		return []string{text}, context.Cause(ctx)
	}
	texts, err := w.control.meet(ctx, text)
	if err == nil && texts == nil {
		texts = make([]string, w.n)
	}
	return texts, err
}

// Meet waits until every process of the world has called it as often as this one. In a
// world of one process it returns at once. It fails with a *PeerLostError when a process
// has ended, with the cause when ctx ends, and with a *MeetingTimeoutError after the
// meeting's timeout. Who gives a meeting up ends it for all: the others get a
// *MeetingError, and all of them, with this one, go on to the next.
func (w *World) Meet(ctx context.Context) error {
	if err := errors.Join(w.usable(), given(ctx)); err != nil {
		return err
	}
	_, err := w.control.meet(ctx, "")
	return err
}
