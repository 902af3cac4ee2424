package nccl

import (
	"fmt"
	"time"

	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// ErrClosed is what a Comm returns after Close.
var ErrClosed = rendezvous.ErrClosed

// where says in errors which communicator they are of, and in what it was.
func (c *Comm) where(what string) rendezvous.Where {
	return rendezvous.Where{Op: fmt.Sprintf("%s on %q", what, c.name), Rank: c.g.Ranks()[c.rank], Group: c.name}
}

// late is the error of a wait that took too long.
func (c *Comm) late(what string, elapsed time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.where(what)
	return &rendezvous.TimeoutError{Op: at.Op, Rank: at.Rank, Peer: -1, Group: at.Group, Step: c.seq, Elapsed: elapsed,
		Detail: "over NCCL: a peer is lost, late, or runs other operations"}
}

// differs is the error of ranks that do not fit together, by index.
func (c *Comm) differs(what string, peer int, own, theirs any) error {
	at := c.where("join")
	return &rendezvous.MismatchError{Op: at.Op, What: what, Rank: at.Rank, Peer: c.g.Ranks()[peer], Group: at.Group, RankValue: fmt.Sprint(own), PeerValue: fmt.Sprint(theirs)}
}
