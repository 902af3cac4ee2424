package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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

// mesh makes memory of this rank that all ranks of its host see. Of processes it has the
// bytes of the host's rank r at base + r x stride: the pad, and the arena behind it.
type mesh struct {
	spec  *rt.Spec
	local bool
	here  []int              // the ranks of this host
	near  *rendezvous.Group  // of them; the job, if there is no other host
	conns []*rendezvous.Conn // to the ranks of other hosts, by rank; their device's
	world *shm.World         // of processes
	pad   int                // bytes in front of the arena
	// stride is the most bytes of an arena: a host has addresses for so many ranks.
	stride int64
}

// openMesh joins the other ranks, and exchanges pads with them.
func openMesh(ctx context.Context, spec *rt.Spec, opts Options, lay layout) (m *mesh, pads []*shm.Pad, nonce string, err error) {
	extra, err := json.Marshal(reach{Pad: lay.bytes(), Epoch: opts.FirstEpoch})
	if err != nil {
		return nil, nil, "", err
	}
	members, err := spec.Rendezvous(ctx, extra)
	if err != nil {
		return nil, nil, "", err
	}
	if err := fits(spec, members); err != nil {
		return nil, nil, "", err
	}
	const most = 1 << 46 // for all ranks
	m = &mesh{spec: spec, local: opts.Local, stride: min(rt.Stride, most/int64(spec.World)/rt.ArenaAlign*rt.ArenaAlign), pad: (lay.bytes() + rt.ArenaAlign - 1) / rt.ArenaAlign * rt.ArenaAlign}
	if err := m.reach(ctx, members); err != nil {
		return nil, nil, "", err
	}
	defer func(m *mesh) {
		if err != nil {
			m.hangUp()
			err = also(err, m.close())
		}
	}(m)
	if !m.local {
		if m.world, err = shm.Reserve(len(m.here), m.pad+int(m.stride)); err != nil {
			return nil, nil, "", m.fault("cannot reserve addresses", err)
		}
	}
	datas, err := m.share(ctx, 0, lay.bytes(), func(b []byte) { initPad(shm.PadOf(b), lay, opts) })
	if err != nil {
		return nil, nil, "", err
	}
	for r, b := range datas {
		if b == nil {
			b = shm.Heap(lay.bytes())
			pad := shm.PadOf(b)
			for slot := range lay.slots {
				pad.Words[lay.signal(slot, r)] = opts.FirstEpoch
			}
		}
		pads = append(pads, shm.PadOf(b))
	}
	return m, pads, members.Nonce, nil
}

// reach finds the ranks of this host, and connects to those of others.
func (m *mesh) reach(ctx context.Context, members *rt.Membership) (err error) {
	far := make([]bool, m.spec.World)
	for r, rec := range members.Records {
		if far[r] = rec.Host != members.Records[m.spec.Rank].Host; !far[r] {
			m.here = append(m.here, r)
		}
	}
	if m.near = m.spec.Job; len(m.here) == m.spec.World {
		return nil
	}
	if m.conns, err = m.spec.Job.Connect(ctx, "rendezvous", far); err == nil {
		m.near = m.spec.Job.Sub("host", m.here)
	}
	return err
}

// hangUp ends the connections where no device has taken them over.
func (m *mesh) hangUp() {
	for _, c := range m.conns {
		if c != nil {
			c.Close()
		}
	}
}

// close gives the addresses back, and what is mapped there.
func (m *mesh) close() error {
	if m.world == nil {
		return nil
	}
	return m.world.Close()
}

// fits checks that all ranks are host devices, and mean the same by their memory.
func fits(spec *rt.Spec, m *rt.Membership) error {
	me := m.Records[spec.Rank]
	var own reach
	for r, rec := range m.Records {
		var theirs reach
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

// share makes size bytes at an offset of every rank, and gives those of this host's by rank.
// set prepares this rank's before a peer can see them. On an error nothing is left.
func (m *mesh) share(ctx context.Context, off, size int, set func(b []byte)) ([][]byte, error) {
	if m.local {
		return m.shareHeap(ctx, size, set)
	}
	return m.shareFiles(ctx, off, size, set)
}

// shareHeap exchanges memory of goroutines.
func (m *mesh) shareHeap(ctx context.Context, size int, set func(b []byte)) ([][]byte, error) {
	own := shm.Heap(size)
	set(own)
	parts, err := m.spec.Job.Exchange(ctx, rendezvous.Call{Op: "rendezvous", Value: own})
	if err != nil {
		return nil, err
	}
	datas := make([][]byte, len(parts))
	for _, r := range m.here {
		var ok bool
		if datas[r], ok = parts[r].Value.([]byte); !ok {
			return nil, &rt.RendezvousError{Rank: m.spec.Rank, Err: rt.ErrUnsupported,
				Reason: fmt.Sprintf("this rank is a goroutine, but rank %d is not one of the same process", r)}
		}
	}
	return datas, nil
}

// fault is an error of this rank alone, of which those of its host hear.
func (m *mesh) fault(what string, err error) error {
	err = &rt.RendezvousError{Rank: m.spec.Rank, Reason: what, Err: err}
	m.near.Cancel(err)
	return err
}

// shareFiles exchanges memory of processes: every rank's is a sealed memory file,
// which has no name, and whose descriptor only the ranks of its host get. Other hosts hear
// whether that went well.
func (m *mesh) shareFiles(ctx context.Context, off, size int, set func(b []byte)) (datas [][]byte, err error) {
	defer func() {
		if err != nil {
			err = also(err, m.unmap(off, size))
		}
	}()
	datas = make([][]byte, m.spec.World)
	fds, err := m.exchange(ctx, datas, off, size, set)
	exchanged := err == nil
	if exchanged {
		err = m.adopt(datas, fds, off, size)
	}
	switch {
	case err != nil && (exchanged || m.near != m.spec.Job):
		m.spec.Job.Cancel(err)
	case err == nil && m.near != m.spec.Job:
		err = m.spec.Job.Barrier(ctx, "rendezvous")
	}
	return datas, err
}

// exchange makes this rank's memory file, and gets those of its host's ranks, by their order.
func (m *mesh) exchange(ctx context.Context, datas [][]byte, off, size int, set func(b []byte)) ([]int, error) {
	own, err := shm.Create(size)
	if err != nil {
		return nil, m.fault("cannot create shared memory", err)
	}
	defer own.Close()
	at := slices.Index(m.here, m.spec.Rank)
	if datas[m.spec.Rank], err = m.world.Map(at, off, own); err != nil {
		return nil, m.fault("cannot map own memory", err)
	}
	set(datas[m.spec.Rank])
	return m.near.ExchangeFiles(ctx, "rendezvous", own.FD())
}

// adopt maps the others' memory files, and closes all.
func (m *mesh) adopt(datas [][]byte, fds []int, off, size int) (err error) {
	for i, fd := range fds {
		r := m.here[i]
		f, ferr := shm.Adopt(fd, size)
		if ferr == nil && err == nil && r != m.spec.Rank {
			datas[r], ferr = m.world.Map(i, off, f)
		}
		if f != nil {
			ferr = errors.Join(ferr, f.Close())
		}
		if ferr != nil && err == nil {
			err = &rt.RendezvousError{Rank: m.spec.Rank, Reason: fmt.Sprintf("cannot map the memory of rank %d", r), Err: ferr}
		}
	}
	return err
}

// also adds what failed on the way back, and leaves err as it is where nothing did.
func also(err, more error) error {
	if more == nil {
		return err
	}
	return errors.Join(err, more)
}

// unmap gives size bytes at an offset of every rank back.
func (m *mesh) unmap(off, size int) error {
	if m.local {
		return nil
	}
	var err error
	for i := range m.here {
		err = errors.Join(err, m.world.Unmap(i, off, size))
	}
	return err
}

// initPad sets up this rank's pad before a peer can see it.
func initPad(pad *shm.Pad, lay layout, opts Options) {
	lo, _ := lay.desc(0, 0)
	for w := inboxStart; w < lo*2; w += lineWords {
		pad.Words[w] = opts.FirstEpoch
	}
	pad.Words[wordMagic] = padMagic
	atomic.StoreUint32(&pad.Words[wordStatus], statusAlive)
}
