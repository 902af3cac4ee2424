package device

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/store"
)

// Processes on several hosts have a store of their world's own, and know of each other's
// end by connections: rank 0 hosts the store, and every other rank holds a connection to
// rank 0 that tells nothing but that it is there. Where both are the ranks learn in a
// second rendezvous.

// hostedAt is where rank 0 is found.
type hostedAt struct {
	Hosts    []string `json:"hosts,omitempty"` // to be tried
	Store    int      `json:"store,omitempty"` // port
	Presence int      `json:"presence,omitempty"`
	Nonce    string   `json:"nonce,omitempty"`
	Err      string   `json:"err,omitempty"` // why a rank cannot go on
}

// presence is a rank's connections.
type presence struct {
	st       store.Store
	mu       sync.Mutex
	conns    []net.Conn // by rank; others than rank 0 have conns[0] only
	readers  []*bufio.Reader
	closing  bool
	watchers sync.WaitGroup
}

// keepAlive notices a host that is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: time.Second, Count: 5}

// byeByte is what a rank sends before it ends its connection in order.
const byeByte = 'b'

// openPresence joins the ranks' processes. All ranks call it, and each says why it cannot
// go on, if so; then all fail.
func openPresence(ctx context.Context, spec *rt.Spec, cannot error) (_ *presence, err error) {
	p := &presence{conns: make([]net.Conn, spec.World), readers: make([]*bufio.Reader, spec.World)}
	var here hostedAt
	var doors [2]net.Listener // of the store and of presence
	defer func() {
		for _, ln := range doors {
			if ln != nil {
				ln.Close()
			}
		}
		if err != nil {
			p.close()
		}
	}()
	if spec.Rank == 0 && cannot == nil {
		cannot = here.open(ctx, spec, &doors)
	}
	if cannot != nil {
		here.Err = cannot.Error()
	}
	b, err := json.Marshal(here)
	if err != nil {
		return nil, err
	}
	met, err := spec.Meet(ctx, b)
	if err != nil {
		return nil, err
	}
	var first hostedAt
	for r, rec := range met.Records {
		var theirs hostedAt
		if err := json.Unmarshal(rec.Extra, &theirs); err != nil {
			return nil, &rt.RendezvousError{Rank: spec.Rank, Reason: fmt.Sprintf("rank %d did not say where it is", r), Err: err}
		}
		if r == 0 {
			first = theirs
		}
		if theirs.Err != "" && r != spec.Rank {
			return nil, errors.Join(cannot, &rt.RendezvousError{Rank: spec.Rank, Reason: fmt.Sprintf("rank %d cannot go on: %s", r, theirs.Err)})
		}
	}
	if cannot != nil {
		return nil, cannot
	}
	if spec.Rank == 0 {
		p.st = store.Serve(doors[0], here.Nonce)
		doors[0] = nil
		return p, p.host(ctx, doors[1], here.Nonce)
	}
	return p, p.dial(ctx, spec, first)
}

// open listens where the job's store does, or everywhere.
func (h *hostedAt) open(ctx context.Context, spec *rt.Spec, doors *[2]net.Listener) error {
	host, _, _ := net.SplitHostPort(spec.Addr)
	var lc net.ListenConfig
	lc.KeepAliveConfig = keepAlive
	for i := range doors {
		var err error
		if doors[i], err = lc.Listen(ctx, "tcp", net.JoinHostPort(host, "0")); err != nil {
			if doors[i], err = lc.Listen(ctx, "tcp", ":0"); err != nil { // the address is not one of this host's own
				return err
			}
		}
	}
	port := func(ln net.Listener) int { return ln.Addr().(*net.TCPAddr).Port }
	h.Store, h.Presence, h.Nonce = port(doors[0]), port(doors[1]), store.NewNonce()
	if host != "" {
		h.Hosts = []string{host}
	}
	if !doors[0].Addr().(*net.TCPAddr).IP.IsUnspecified() {
		return nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			h.Hosts = append(h.Hosts, n.IP.String())
		}
	}
	return nil
}

// shownRank is what a process shows of itself.
type shownRank struct {
	Nonce string `json:"nonce"`
	Rank  int    `json:"rank"`
}

// host waits for the connections of all others.
func (p *presence) host(ctx context.Context, ln net.Listener, nonce string) error {
	start := time.Now()
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	for n := 1; n < len(p.conns); {
		c, err := ln.Accept()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			e := &rt.TimeoutError{Op: "rendezvous", Elapsed: time.Since(start), Detail: "joining ranks for NCCL"}
			for r := 1; r < len(p.conns); r++ {
				if p.conns[r] == nil {
					e.Missing = append(e.Missing, r)
				}
			}
			e.Peer = e.Missing[0]
			return e
		}
		if err != nil {
			return fmt.Errorf("%d of %d ranks have come: %w", n, len(p.conns), errors.Join(err, ctx.Err()))
		}
		var s shownRank
		c.SetDeadline(time.Now().Add(10 * time.Second)) // a silent stranger does not stay
		r := bufio.NewReader(c)
		line, err := r.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &s)
		}
		if err != nil || s.Nonce != nonce || s.Rank < 1 || s.Rank >= len(p.conns) || p.conns[s.Rank] != nil {
			c.Close()
			continue
		}
		c.SetDeadline(time.Time{})
		p.conns[s.Rank], p.readers[s.Rank] = c, r
		n++
	}
	return nil
}

// dial finds rank 0 at one of its addresses, all of which are tried at once.
func (p *presence) dial(ctx context.Context, spec *rt.Spec, at hostedAt) error {
	type found struct {
		host string
		st   *store.Client
		err  error
	}
	tries, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan found, len(at.Hosts))
	for _, h := range at.Hosts {
		go func() {
			c, err := store.Dial(tries, net.JoinHostPort(h, strconv.Itoa(at.Store)))
			if err == nil && c.Nonce() != at.Nonce { // a host of the same address elsewhere
				err = errors.Join(fmt.Errorf("%s has another store", h), c.Close())
			}
			results <- found{h, c, err}
		}()
	}
	var errs []error
	host := ""
	for range at.Hosts {
		switch f := <-results; {
		case f.err != nil:
			errs = append(errs, f.err)
		case p.st == nil:
			p.st, host = f.st, f.host
			cancel() // the others
		default:
			f.st.Close()
		}
	}
	if p.st == nil {
		return fmt.Errorf("rank 0 cannot be reached at %v: %w", at.Hosts, errors.Join(errs...))
	}
	d := net.Dialer{KeepAliveConfig: keepAlive}
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(at.Presence)))
	if err != nil {
		return err
	}
	p.conns[0], p.readers[0] = c, bufio.NewReader(c)
	return json.NewEncoder(c).Encode(shownRank{at.Nonce, spec.Rank})
}

// watch calls lost when a rank's connection ends without a word, on rank 0; on the others
// gone when rank 0's ends.
func (p *presence) watch(lost func(rank int), gone func(left bool)) {
	for r, c := range p.conns {
		if c == nil {
			continue
		}
		p.watchers.Go(func() {
			b, err := p.readers[r].ReadByte()
			left := err == nil && b == byeByte
			p.mu.Lock()
			closing := p.closing
			p.mu.Unlock()
			switch {
			case closing:
			case r == 0:
				gone(left)
			case !left:
				lost(r)
			}
		})
	}
}

// close ends the connections in order, and the store.
func (p *presence) close() {
	p.mu.Lock()
	closing := p.closing
	p.closing = true
	p.mu.Unlock()
	if closing {
		return
	}
	for _, c := range p.conns {
		if c != nil {
			c.SetWriteDeadline(time.Now().Add(time.Second))
			c.Write([]byte{byeByte}) // the other may be gone
			c.Close()
		}
	}
	p.watchers.Wait()
	if p.st != nil {
		p.st.Close()
	}
}
