//go:build linux

package cuda

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Processes of one world meet over a unix socket. Rank 0 listens at a name that holds
// a random nonce; every other process connects, shows the nonce and that it belongs to
// the same user, and sends what it is and a file descriptor of its symmetric memory,
// or the memory's handle in an NVLink fabric. Rank 0 compares all of it and sends
// every process all descriptors or handles. The connections stay open: the end of one
// means that a process died, and rank 0 then tells the others, who abort their groups
// at once.
//
// The socket's name is in Linux's abstract space, so nothing is left in a folder.

// Meeting tells the processes of a world where to find each other. Every process
// has the same Name; NewMeeting makes one, which the starter of the processes
// hands to them, in their environment for example.
type Meeting struct {
	Name    string
	Timeout time.Duration // for joining and for each later meeting; 0 is one minute
}

// NewMeeting makes a meeting with a fresh nonce of 128 bits.
func NewMeeting() (Meeting, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return Meeting{}, err
	}
	return Meeting{Name: "concert-" + hex.EncodeToString(b[:])}, nil
}

func (m Meeting) timeout() time.Duration {
	if m.Timeout > 0 {
		return m.Timeout
	}
	return time.Minute
}

const protocolVersion = 4

// hello is what a process says of itself.
type hello struct {
	Version int
	Name    string // the meeting's, which holds the nonce
	Rank    int
	World   int
	Host    string
	UUID    string
	Stride  uint64
	Digest  string // of the kernels
	Share   bool
	Sharing string // how memory is shared
	Handle  []byte // of the fabric, else a file descriptor comes along
}

// message kinds after the exchange of descriptors.
const (
	msgWelcome = iota + 1
	msgArrive  // this process has reached a meeting point
	msgGo      // all have, or one has given it up
	msgGiveUp  // this process gives a meeting point up
	msgLost    // a process ended
	msgRefuse  // the world cannot be built: text
	msgBye     // this process leaves in order
	msgAbort   // a rank gave up a group: which rank, which group, why
)

type message struct {
	Kind  int
	Rank  int
	Group int
	Text  string
	Turn  int  // which meeting point: a process's first, second, ...
	Out   bool // with msgGiveUp: after this process's msgArrive. With msgGo: Rank has given up
	// Handles are those of all ranks, with msgWelcome; without them descriptors come along.
	Handles [][]byte
	// Texts are what the ranks said with msgArrive, if they said anything, with msgGo.
	Texts []string
}

// control is a process's connections: rank 0 has one to every other, the others
// one to rank 0. It is nil in a world of one process.
type control struct {
	rank, world int
	timeout     time.Duration
	conns       []*net.UnixConn // by rank; others have conns[0] only
	mu          sync.Mutex
	cond        *sync.Cond
	points      meetings
	left        []bool
	lost        error
	closing     bool
	onLost      []func(error)
	onAbort     func(group, rank int, reason string)
	readers     sync.WaitGroup
}

// meet joins the meeting and exchanges memory: own is this process's, the answer has
// one gift for every rank, which the caller closes. ours must be the same on every
// rank but for Rank, UUID, Handle and the nonce's proof.
func (m Meeting) meet(ctx context.Context, ours hello, own gift) (c *control, all []gift, err error) {
	ours.Handle = own.handle
	c = &control{rank: ours.Rank, world: ours.World, timeout: m.timeout(), conns: make([]*net.UnixConn, ours.World), left: make([]bool, ours.World), points: newMeetings()}
	c.cond = sync.NewCond(&c.mu)
	defer func() {
		if err != nil {
			for _, conn := range c.conns {
				if conn != nil {
					conn.Close()
				}
			}
			closeGifts(all)
			c, all = nil, nil
		}
	}()
	deadline := time.Now().Add(c.timeout)
	h := &hurry{}
	stop := context.AfterFunc(ctx, h.now)
	if ours.Rank == 0 {
		all, err = c.lead(m, ours, own, h, deadline)
	} else {
		all, err = c.follow(ctx, m, ours, own, h, deadline)
	}
	stop()
	if err == nil {
		err = ctx.Err() // the connections may be in a hurry
	}
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("rank %d at the meeting: %w", ours.Rank, context.Cause(ctx))
		}
		return c, all, err
	}
	for r, conn := range c.conns {
		if conn != nil {
			conn.SetDeadline(time.Time{})
			c.readers.Add(1)
			go c.read(r, conn)
		}
	}
	return c, all, nil
}

func address(m Meeting) *net.UnixAddr { return &net.UnixAddr{Name: "@" + m.Name, Net: "unix"} }

// lead is rank 0's part of the exchange.
func (c *control) lead(m Meeting, ours hello, own gift, h *hurry, deadline time.Time) ([]gift, error) {
	all := make([]gift, c.world)
	for i := range all {
		all[i] = none
	}
	var err error
	if all[0], err = own.dup(); err != nil {
		return all, err
	}
	l, err := net.ListenUnix("unix", address(m))
	if err != nil {
		return all, fmt.Errorf("rank 0 cannot open the meeting: %w", err)
	}
	defer l.Close()
	h.until(l, deadline)
	seen := map[string]int{ours.Host + " " + ours.UUID: 0}
	// All come before anybody is answered, so that a refusal reaches everybody.
	var wrong error
	var extra []*net.UnixConn
	for n := 1; n < c.world; n++ {
		conn, err := l.AcceptUnix()
		if err != nil {
			return all, fmt.Errorf("%d of %d ranks have come to the meeting: %w", n, c.world, err)
		}
		h.until(conn, deadline)
		var said hello
		g := none
		err = sameUser(conn)
		if err == nil {
			g, err = receive(conn, &said)
		}
		if err != nil || said.Name != ours.Name {
			g.close()
			conn.Close() // a stranger, not one of ours: no reason to give up
			n--
			continue
		}
		if err := c.admit(said, ours, seen); err != nil {
			g.close()
			extra = append(extra, conn)
			if wrong == nil {
				wrong = err
			}
			continue
		}
		c.conns[said.Rank], all[said.Rank] = conn, g
	}
	if wrong != nil {
		c.refuse(extra, wrong)
		return all, wrong
	}
	var fds []int
	w := message{Kind: msgWelcome}
	for _, g := range all {
		fds = append(fds, g.fds()...)
		if g.handle != nil {
			w.Handles = append(w.Handles, g.handle)
		}
	}
	for r := 1; r < c.world; r++ {
		if err := send(c.conns[r], w, fds...); err != nil {
			return all, fmt.Errorf("rank %d: %w", r, err)
		}
	}
	return all, nil
}

// admit checks a process against rank 0.
func (c *control) admit(h, ours hello, seen map[string]int) error {
	for _, f := range []struct{ what, got, want string }{
		{"protocol version", fmt.Sprint(h.Version), fmt.Sprint(ours.Version)},
		{"world size", fmt.Sprint(h.World), fmt.Sprint(ours.World)},
		{"host", h.Host, ours.Host},
		{"way of sharing memory", h.Sharing, ours.Sharing},
		{"symmetric memory in bytes", fmt.Sprint(h.Stride), fmt.Sprint(ours.Stride)},
		{"digest of kernels", h.Digest, ours.Digest},
	} {
		if f.got != f.want {
			return &MismatchError{Rank: h.Rank, What: f.what, Got: f.got, Want: f.want}
		}
	}
	if h.Rank < 1 || h.Rank >= c.world {
		return &MismatchError{Rank: h.Rank, What: "rank", Got: fmt.Sprint(h.Rank), Want: fmt.Sprintf("a world of %d", c.world)}
	}
	if c.conns[h.Rank] != nil {
		return &MismatchError{Rank: h.Rank, What: "rank", Got: fmt.Sprint(h.Rank), Want: "another process with that rank"}
	}
	if other, ok := seen[h.Host+" "+h.UUID]; ok && !ours.Share {
		return fmt.Errorf("%w: ranks %d and %d", ErrSharedDevice, other, h.Rank)
	}
	seen[h.Host+" "+h.UUID] = h.Rank
	return nil
}

// refuse tells everybody who came why there will be no world; best effort, since
// the world fails anyway.
func (c *control) refuse(extra []*net.UnixConn, why error) {
	for _, conn := range append(extra, c.conns...) {
		if conn != nil {
			send(conn, message{Kind: msgRefuse, Text: why.Error()})
		}
	}
	for _, conn := range extra {
		conn.Close()
	}
}

// follow is every other rank's part.
func (c *control) follow(ctx context.Context, m Meeting, ours hello, own gift, h *hurry, deadline time.Time) ([]gift, error) {
	var conn *net.UnixConn
	for {
		var err error
		if conn, err = net.DialUnix("unix", nil, address(m)); err == nil {
			break
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("rank %d found no rank 0 at the meeting: %w", ours.Rank, err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	c.conns[0] = conn
	h.until(conn, deadline)
	if err := sameUser(conn); err != nil {
		return nil, err
	}
	if err := send(conn, ours, own.fds()...); err != nil {
		return nil, err
	}
	var w message
	fds, err := receiveAll(conn, &w, c.world)
	if err == nil && w.Kind == msgRefuse {
		err = fmt.Errorf("rank 0 refused the world: %s", w.Text)
	}
	if err != nil {
		closeAll(fds)
		return nil, fmt.Errorf("rank %d at the meeting: %w", ours.Rank, err)
	}
	all, err := wrap(w.Handles, fds, c.world)
	if err != nil {
		return nil, fmt.Errorf("rank %d at the meeting: rank 0 sent %w", ours.Rank, err)
	}
	return all, nil
}

// read serves one connection until it ends.
func (c *control) read(rank int, conn *net.UnixConn) {
	defer c.readers.Done()
	for {
		var m message
		fds, err := receiveAll(conn, &m, 0)
		closeAll(fds)
		if err != nil {
			c.end(rank)
			return
		}
		switch m.Kind {
		case msgArrive:
			c.arrive(rank, m.Turn, m.Text)
		case msgGo:
			v := verdict{texts: m.Texts}
			if m.Out {
				v.err = &MeetingError{Rank: m.Rank, Reason: m.Text}
			}
			c.pass(m.Turn, v)
		case msgGiveUp:
			c.withdraw(rank, m.Turn, m.Out, m.Text)
		case msgLost:
			c.lose(&PeerLostError{Rank: m.Rank})
		case msgAbort:
			c.relay(m, rank)
			c.mu.Lock()
			f := c.onAbort
			c.mu.Unlock()
			if f != nil {
				f(m.Group, m.Rank, m.Text)
			}
		case msgBye:
			c.leave(rank)
		}
	}
}

// end is called when rank's connection has ended: in order, or because it died.
func (c *control) end(rank int) {
	c.mu.Lock()
	fine := c.closing || c.left[rank]
	c.mu.Unlock()
	if fine {
		return
	}
	c.lose(&PeerLostError{Rank: rank})
	for r, conn := range c.conns {
		if conn != nil && r != rank && c.rank == 0 {
			send(conn, message{Kind: msgLost, Rank: rank}) // who cannot hear it is lost too
		}
	}
}

// relay passes on what came from a rank, or from here when from is this rank: rank 0
// to all others, the others to rank 0. Who cannot hear it is lost and noticed as such.
// A connection keeps its order, so an abort arrives before a later meeting point.
func (c *control) relay(m message, from int) {
	if c == nil || c.rank != 0 && from != c.rank {
		return
	}
	for r, conn := range c.conns {
		if conn != nil && r != from {
			send(conn, m)
		}
	}
}

// tell says to the other processes that a member, by its group rank, gave up a group.
func (c *control) tell(group, rank int, reason string) {
	c.relay(message{Kind: msgAbort, Rank: rank, Group: group, Text: reason}, c.rank)
}

// whenAborted registers f, which is called when another process gives up a group.
func (c *control) whenAborted(f func(group, rank int, reason string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onAbort = f
}

func (c *control) lose(err error) {
	c.mu.Lock()
	if c.lost != nil || c.closing {
		c.mu.Unlock()
		return
	}
	c.lost = err
	calls := c.onLost
	c.cond.Broadcast()
	c.mu.Unlock()
	for _, f := range calls {
		f(err)
	}
}

// whenLost registers f, which is called once, from another goroutine, when a
// process is lost; at once when one is already.
func (c *control) whenLost(f func(error)) {
	c.mu.Lock()
	lost := c.lost
	c.onLost = append(c.onLost, f)
	c.mu.Unlock()
	if lost != nil {
		f(lost)
	}
}

// Close says goodbye and closes the connections.
func (c *control) Close() error {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	var errs []error
	for _, conn := range c.conns {
		if conn != nil {
			send(conn, message{Kind: msgBye}) // the other may be gone
			errs = append(errs, conn.Close())
		}
	}
	c.readers.Wait()
	return errors.Join(errs...)
}
