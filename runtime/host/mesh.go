package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/internal/shm"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// reach is what a rank says of its memory: the device's part of a record.
type reach struct {
	Pad   int    `json:"pad"`
	Epoch uint32 `json:"epoch"`
}

// openMemory makes this rank's segment, exchanges segments with all ranks, and gives
// back what was mapped by the returned function.
func openMemory(ctx context.Context, spec *rt.Spec, opts Options, lay layout) (segs []*shm.Segment, nonce string, release func() error, err error) {
	extra, err := json.Marshal(reach{Pad: lay.bytes(), Epoch: opts.FirstEpoch})
	if err != nil {
		return nil, "", nil, err
	}
	met, err := spec.Meet(ctx, extra)
	if err != nil {
		return nil, "", nil, err
	}
	if err := fits(spec, met); err != nil {
		return nil, "", nil, err
	}
	if opts.Local {
		segs, err := shareHeap(ctx, spec, opts, lay)
		return segs, met.Nonce, func() error { return nil }, err
	}
	segs, release, err = shareFiles(ctx, spec, opts, lay)
	return segs, met.Nonce, release, err
}

// fits checks that all ranks can share memory, and mean the same by it.
func fits(spec *rt.Spec, m *rt.Meeting) error {
	me := m.Records[spec.Rank]
	var own reach
	for r, rec := range m.Records {
		var theirs reach
		if rec.Host != me.Host {
			return &rt.RendezvousError{Rank: spec.Rank, Err: rt.ErrUnsupported,
				Reason: fmt.Sprintf("the host device needs all ranks on one machine; rank %d is on another", r)}
		}
		if err := errors.Join(json.Unmarshal(rec.Extra, &theirs), json.Unmarshal(me.Extra, &own)); err != nil {
			return &rt.RendezvousError{Rank: spec.Rank, Reason: fmt.Sprintf("rank %d is no host device", r), Err: err}
		}
		if theirs != own {
			return &rt.MismatchError{Op: "rendezvous", What: "signal pads", Rank: spec.Rank, Peer: r,
				RankValue: fmt.Sprintf("%d bytes from epoch %d", own.Pad, own.Epoch),
				PeerValue: fmt.Sprintf("%d bytes from epoch %d", theirs.Pad, theirs.Epoch)}
		}
	}
	return nil
}

// shareHeap exchanges segments of goroutines.
func shareHeap(ctx context.Context, spec *rt.Spec, opts Options, lay layout) ([]*shm.Segment, error) {
	seg := shm.Heap(lay.bytes(), int(spec.ArenaBytes))
	initPad(seg, lay, opts)
	parts, err := spec.Job.Exchange(ctx, rendezvous.Call{Op: "rendezvous", Value: seg})
	if err != nil {
		return nil, err
	}
	segs := make([]*shm.Segment, len(parts))
	for r, p := range parts {
		var ok bool
		if segs[r], ok = p.Value.(*shm.Segment); !ok {
			return nil, &rt.RendezvousError{Rank: spec.Rank, Err: rt.ErrUnsupported,
				Reason: fmt.Sprintf("this rank is a goroutine, but rank %d is not one of the same process", r)}
		}
	}
	return segs, nil
}

// shareFiles exchanges segments of processes: every rank's is a sealed memory file,
// which has no name, and whose descriptor only the job's ranks get.
func shareFiles(ctx context.Context, spec *rt.Spec, opts Options, lay layout) (segs []*shm.Segment, release func() error, err error) {
	fault := func(what string, err error) error {
		err = &rt.RendezvousError{Rank: spec.Rank, Reason: what, Err: err}
		spec.Job.Cancel(err)
		return err
	}
	pad, data := lay.bytes(), int(spec.ArenaBytes)
	own, err := shm.Create(pad, data)
	if err != nil {
		return nil, nil, fault("cannot create shared memory", err)
	}
	defer own.Close()
	world, err := shm.Reserve(spec.World, pad, data)
	if err != nil {
		return nil, nil, fault("cannot reserve addresses", err)
	}
	defer func() {
		if err == nil {
			return
		}
		if cerr := world.Close(); cerr != nil {
			err = errors.Join(err, cerr)
		}
	}()
	segs = make([]*shm.Segment, spec.World)
	if segs[spec.Rank], err = world.Place(spec.Rank, own); err != nil {
		return nil, nil, fault("cannot map own memory", err)
	}
	initPad(segs[spec.Rank], lay, opts)
	fds, err := spec.Job.ExchangeFiles(ctx, "rendezvous", own.FD())
	if err != nil {
		return nil, nil, err
	}
	for r, fd := range fds {
		f, ferr := shm.Adopt(fd, pad, data)
		if ferr == nil && err == nil && r != spec.Rank {
			segs[r], ferr = world.Place(r, f)
		}
		if ferr == nil {
			ferr = f.Close()
		}
		if ferr != nil && err == nil {
			err = &rt.RendezvousError{Rank: spec.Rank, Reason: fmt.Sprintf("cannot map the memory of rank %d", r), Err: ferr}
		}
	}
	return segs, world.Close, err
}

// initPad sets up this rank's pad before a peer can see it.
func initPad(seg *shm.Segment, lay layout, opts Options) {
	lo, _ := lay.desc(0, 0)
	for w := inboxStart; w < lo*2; w += lineWords {
		seg.Words[w] = opts.FirstEpoch
	}
	seg.Words[wordMagic] = padMagic
	atomic.StoreUint32(&seg.Words[wordStatus], statusAlive)
}
