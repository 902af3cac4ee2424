package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/internal/shm"
	"github.com/seed-ee968945/concert/runtime/store"
)

// mesh is the connections and mappings of one rank.
type mesh struct {
	spec    rt.Spec
	pad     int
	file    *shm.File
	world   *shm.World
	ln      *net.UnixListener
	meeting *rt.Meeting

	mu     sync.Mutex // guards conns and segs while connecting
	conns  []*net.UnixConn
	segs   []*shm.Segment
	lost   []atomic.Uint32 // by rank: peerState, as the watchers see it
	closed bool
	giveUp bool  // accept no more
	broken error // why there will be no world

	watchers sync.WaitGroup
}

func (m *mesh) open(ctx context.Context, opts Options, lay layout) (rt.Device, error) {
	fault := func(what string, err error) error {
		return &rt.RendezvousError{Rank: m.spec.Rank, Reason: what, Err: err}
	}
	var err error
	if m.file, err = shm.Create(m.pad, int(m.spec.ArenaBytes)); err != nil {
		return nil, fault("cannot create shared memory", err)
	}
	if m.world, err = shm.Reserve(m.spec.World, m.pad, int(m.spec.ArenaBytes)); err != nil {
		return nil, fault("cannot reserve addresses", err)
	}
	if m.segs[m.spec.Rank], err = m.world.Place(m.spec.Rank, m.file); err != nil {
		return nil, fault("cannot map own memory", err)
	}
	initPad(m.segs[m.spec.Rank], lay, opts)
	// An abstract name needs no directory and no cleaning up; the random part
	// keeps jobs apart, credentials and nonce keep strangers out.
	name := "@concert-" + store.NewNonce()
	if m.ln, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: name, Net: "unixpacket"}); err != nil {
		return nil, fault("cannot listen for peers", err)
	}
	extra, err := json.Marshal(reach{Socket: name, Pad: m.pad, Epoch: opts.FirstEpoch})
	if err != nil {
		return nil, fault("cannot describe this rank", err)
	}
	if m.meeting, err = m.spec.Meet(ctx, extra); err != nil {
		return nil, err
	}
	if err := oneHost(m.spec, m.meeting, false); err != nil {
		return nil, err
	}
	if err := m.connect(ctx, opts); err != nil {
		return nil, err
	}
	m.ln.Close()
	m.file.Close()
	return newDevice(m.spec, opts, lay, m.meeting.Nonce, m.segs, m.lost, m.close), nil
}

// watch waits for the connection to a peer, whose memory is mapped, to end.
func (m *mesh) watch(p int, c *net.UnixConn, seg *shm.Segment) {
	defer m.watchers.Done()
	var b [16]byte
	for {
		_, err := c.Read(b[:])
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
			return // this rank's own doing
		}
		if err != nil {
			// A peer that left said so in its pad before it hung up.
			if atomic.LoadUint32(&seg.Words[wordStatus]) != statusLeft {
				m.lost[p].Store(uint32(peerDied))
			}
			return
		}
	}
}

// close gives back everything.
func (m *mesh) close() error {
	m.mu.Lock()
	m.closed = true
	if m.ln != nil {
		m.ln.Close()
	}
	for _, c := range m.conns {
		if c != nil {
			c.Close()
		}
	}
	m.mu.Unlock()
	m.watchers.Wait()
	var errs []error
	if m.file != nil {
		errs = append(errs, m.file.Close())
	}
	if m.world != nil {
		errs = append(errs, m.world.Close())
	}
	return errors.Join(errs...)
}

// connect makes the connections to all peers.
func (m *mesh) connect(ctx context.Context, opts Options) error {
	start := time.Now()
	reaches := make([]reach, m.spec.World)
	for r, rec := range m.meeting.Records {
		if err := json.Unmarshal(rec.Extra, &reaches[r]); err != nil {
			return &rt.RendezvousError{Rank: m.spec.Rank, Reason: fmt.Sprintf("rank %d is no host device", r), Err: err}
		}
		if reaches[r].Pad != m.pad || reaches[r].Epoch != opts.FirstEpoch {
			return &rt.SizeMismatchError{Op: "rendezvous", What: "signal pads", Rank: m.spec.Rank, Peer: r,
				RankValue: fmt.Sprintf("%d bytes from epoch %d", m.pad, opts.FirstEpoch),
				PeerVal:   fmt.Sprintf("%d bytes from epoch %d", reaches[r].Pad, reaches[r].Epoch)}
		}
	}
	deadline, _ := ctx.Deadline() // the zero time means none
	stop := context.AfterFunc(ctx, func() {
		m.endAccept()
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, c := range m.conns {
			if c != nil {
				c.SetDeadline(time.Unix(1, 0))
			}
		}
	})
	defer stop()

	accepted := make(chan error, 1)
	go func() { accepted <- m.accept(deadline) }()
	err := m.dialAll(ctx, reaches, deadline)
	if err != nil {
		m.giveUpSoon(err)
	}
	if aerr := <-accepted; err == nil {
		err = aerr
	}
	if err == nil && !stop() {
		err = ctx.Err()
	}
	if err == nil {
		return nil
	}
	err = m.connectError(ctx, err, start)
	m.mu.Lock()
	m.broken = err
	m.mu.Unlock()
	m.tell()
	return err
}

// dialAll connects to all lower ranks at once, so that one that has died, or is
// slow, does not keep this rank from the others.
func (m *mesh) dialAll(ctx context.Context, reaches []reach, deadline time.Time) error {
	errs := make([]error, m.spec.Rank)
	var wg sync.WaitGroup
	for p := range errs {
		wg.Go(func() { errs[p] = m.dial(ctx, p, reaches[p].Socket, deadline) })
	}
	wg.Wait()
	for _, err := range errs { // a death says more than what else went wrong
		if errors.Is(err, rt.ErrPeerLost) {
			return err
		}
	}
	return errors.Join(errs...)
}

// giveUpSoon notes why there will be no world; the first reason counts. The rank
// stays for a moment, until the higher ranks have its memory and thereby learn the
// reason: who found nobody here would take this rank for the one that died.
func (m *mesh) giveUpSoon(err error) {
	m.mu.Lock()
	first := m.broken == nil
	if first {
		m.broken = err
		time.AfterFunc(time.Second, m.endAccept)
	}
	m.mu.Unlock()
	if first {
		m.tell()
	}
}

// reason is what giveUpSoon has noted, or err.
func (m *mesh) reason(err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken != nil {
		return m.broken
	}
	return err
}

// tell writes why there will be no world into the pads that this rank can reach.
func (m *mesh) tell() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken != nil {
		spread(m.segs, m.spec.Rank, m.broken)
	}
}

// told is what another rank wrote into this rank's pad, as this rank's error.
func (m *mesh) told() error {
	return readAbort(m.segs[m.spec.Rank], "rendezvous", m.spec.Rank)
}

// connectError turns a failure to connect into this rank's error.
func (m *mesh) connectError(ctx context.Context, err error, start time.Time) error {
	if told := m.told(); told != nil {
		return told
	}
	var own *rt.PeerLostError
	var rend *rt.RendezvousError
	if errors.As(err, &own) || errors.As(err, &rend) {
		return err
	}
	var missing []int
	m.mu.Lock()
	for r, s := range m.segs {
		if s == nil {
			missing = append(missing, r)
		}
	}
	m.mu.Unlock()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil {
		return joinError(err, m.spec.Rank, missing, time.Since(start))
	}
	return &rt.RendezvousError{Rank: m.spec.Rank, Reason: "cannot connect to the peers", Err: err}
}

// dial connects to a lower rank.
func (m *mesh) dial(ctx context.Context, p int, socket string, deadline time.Time) error {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unixpacket", socket)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// It was listening before the rendezvous.
		return &rt.PeerLostError{Op: "rendezvous", Rank: m.spec.Rank, Peer: p}
	}
	c := nc.(*net.UnixConn)
	c.SetDeadline(deadline)
	if !m.keep(p, c) {
		return net.ErrClosed
	}
	if err := m.send(c); err != nil {
		return m.lostOr(p, err)
	}
	got, f, err := m.receive(c)
	if err != nil {
		return m.lostOr(p, err)
	}
	if got != p {
		f.Close()
		return &rt.RendezvousError{Rank: m.spec.Rank, Reason: fmt.Sprintf("rank %d answers where rank %d should", got, p)}
	}
	return m.place(p, c, f)
}

// lostOr says that a peer hung up, if that is what err means.
func (m *mesh) lostOr(p int, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
		return err
	}
	var ne *net.OpError
	if errors.Is(err, io.EOF) || errors.As(err, &ne) {
		return &rt.PeerLostError{Op: "rendezvous", Rank: m.spec.Rank, Peer: p}
	}
	return &rt.RendezvousError{Rank: m.spec.Rank, Reason: fmt.Sprintf("cannot exchange memory with rank %d", p), Err: err}
}

// accept serves the higher ranks, in any order. Strangers are turned away.
func (m *mesh) accept(deadline time.Time) error {
	var strange error
	for left := m.spec.World - 1 - m.spec.Rank; left > 0; {
		// Look up now and then: a peer may know that another will not come.
		const look = 20 * time.Millisecond
		if !m.lookAt(deadline, look) {
			return m.reason(errors.Join(os.ErrDeadlineExceeded, strange))
		}
		c, err := m.ln.AcceptUnix()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if err := m.heard(); err != nil {
				m.giveUpSoon(err)
			}
			continue
		}
		if err != nil {
			return errors.Join(err, strange)
		}
		// A stranger that says nothing must not keep the peers waiting.
		quick := time.Now().Add(2 * time.Second)
		if !deadline.IsZero() && deadline.Before(quick) {
			quick = deadline
		}
		c.SetDeadline(quick)
		p, f, err := m.receive(c)
		if err != nil {
			c.Close()
			strange = err
			continue
		}
		if p <= m.spec.Rank || p >= m.spec.World || !m.keep(p, c) {
			f.Close()
			c.Close()
			strange = fmt.Errorf("rank %d connected out of turn", p)
			continue
		}
		if err := m.send(c); err != nil {
			f.Close()
			return m.lostOr(p, err)
		}
		if err := m.place(p, c, f); err != nil {
			return err
		}
		m.tell()
		left--
	}
	return m.reason(nil)
}

// heard is what this rank knows of a broken world without having dialled for it:
// another rank's word, which names the cause, before the end of a connection, which
// may be a mere consequence.
func (m *mesh) heard() error {
	if err := m.told(); err != nil {
		return err
	}
	for p := range m.lost {
		if m.lost[p].Load() == uint32(peerDied) {
			return &rt.PeerLostError{Op: "rendezvous", Rank: m.spec.Rank, Peer: p}
		}
	}
	return nil
}

// lookAt lets the next accept wait for a short time; false if the time is up.
func (m *mesh) lookAt(deadline time.Time, look time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := time.Now().Add(look)
	if m.giveUp || !deadline.IsZero() && time.Now().After(deadline) {
		return false
	}
	m.ln.SetDeadline(next)
	return true
}

// endAccept makes accept return soon.
func (m *mesh) endAccept() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.giveUp = true
	m.ln.SetDeadline(time.Unix(1, 0))
}

// keep records the connection to a peer, unless there is one or the mesh closed.
func (m *mesh) keep(p int, c *net.UnixConn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.conns[p] != nil {
		if m.closed {
			c.Close()
		}
		return false
	}
	m.conns[p] = c
	return true
}

// place maps a peer's memory and watches its connection from now on.
func (m *mesh) place(p int, c *net.UnixConn, f *shm.File) error {
	seg, err := m.world.Place(p, f)
	f.Close()
	if err == nil && seg.Words[wordMagic] != padMagic {
		err = errors.New("its signal pad is not set up")
	}
	if err != nil {
		return &rt.RendezvousError{Rank: m.spec.Rank, Reason: fmt.Sprintf("cannot map the memory of rank %d", p), Err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return net.ErrClosed
	}
	m.segs[p] = seg
	c.SetDeadline(time.Time{})
	m.watchers.Add(1)
	go m.watch(p, c, seg)
	return nil
}

// hello travels with each memory file.
type hello struct {
	Magic string `json:"magic"`
	Nonce string `json:"nonce"`
	Rank  int    `json:"rank"`
}

const helloMagic = "concert-shm-1"

func (m *mesh) send(c *net.UnixConn) error {
	b, err := json.Marshal(hello{helloMagic, m.meeting.Nonce, m.spec.Rank})
	if err != nil {
		return err
	}
	return shm.SendFD(c, b, m.file.FD())
}

// receive checks who is at the other end and takes its memory file.
func (m *mesh) receive(c *net.UnixConn) (int, *shm.File, error) {
	_, uid, err := shm.PeerCred(c)
	if err != nil {
		return 0, nil, err
	}
	if !slices.Contains([]int{os.Getuid(), os.Geteuid()}, uid) {
		return 0, nil, fmt.Errorf("a process of user %d connected", uid)
	}
	b, fd, err := shm.RecvFD(c, 1024)
	if err != nil {
		return 0, nil, err
	}
	var h hello
	if err := json.Unmarshal(b, &h); err != nil || h.Magic != helloMagic || h.Nonce != m.meeting.Nonce {
		shm.CloseFD(fd)
		return 0, nil, errors.New("a process of another job connected")
	}
	f, err := shm.Adopt(fd, m.pad, int(m.spec.ArenaBytes))
	return h.Rank, f, err
}
