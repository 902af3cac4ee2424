//go:build linux

package cuda

import (
	"errors"
	"net"
	"sync"
	"time"
)

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
	msgHand    // a multicast object for all: a descriptor, or Handles
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
	Late  bool // with msgGiveUp and msgGo: because time was up
	Left  bool // with msgGo: Rank has left the world
	// Missing are the ranks that did not come in time, with msgRefuse and msgGo, if that
	// is why.
	Missing []int
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
	handed      gift // what came with msgHand
	onLost      func(error)
	onAbort     func(group, rank int, reason string)
	readers     sync.WaitGroup
}

// read serves one connection until it ends.
func (c *control) read(rank int, conn *net.UnixConn) {
	defer c.readers.Done()
	for {
		var m message
		fds, err := receiveAll(conn, &m, 1)
		if err == nil && m.Kind == msgHand {
			c.receiveHanded(m, fds, rank)
			continue
		}
		closeAll(fds)
		if err != nil {
			c.end(rank)
			return
		}
		switch m.Kind {
		case msgArrive:
			c.arrive(rank, m.Turn, m.Text)
		case msgGo:
			c.pass(m.Turn, m.verdict())
		case msgGiveUp:
			c.withdraw(rank, m)
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

func (c *control) lose(err error) {
	c.mu.Lock()
	if c.lost != nil || c.closing {
		c.mu.Unlock()
		return
	}
	c.lost = err
	tell := c.onLost
	c.cond.Broadcast()
	c.mu.Unlock()
	if tell != nil {
		tell(err)
	}
}

// serve registers who is told, from other goroutines, that a process is lost, once, and
// that a rank has given up a group. Groups are made later, and not in a world that has
// lost a process.
func (c *control) serve(lost func(error), aborted func(group, rank int, reason string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onLost, c.onAbort = lost, aborted
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
	c.takeHanded().close()
	return errors.Join(errs...)
}
