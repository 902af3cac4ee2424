package cuda

import (
	"errors"
	"time"

	"github.com/seed-ee968945/concert/kernels"
)

// AppendOn adds all commands of o with s in the place of Main.
func (c *Commands) AppendOn(s Stream, o *Commands) {
	at := len(c.words)
	c.words = append(c.words, o.words...)
	for _, i := range o.mains {
		c.words[at+i] = uint64(s)
		if s == Main {
			c.mains = append(c.mains, at+i)
		}
	}
}

// Tend is for a host that watches the member's streams itself instead of calling
// Check: waited is how long it has been waiting for them. It returns Err, after doing
// what no kernel can for collectives without kernels: past the group's timeout it gives
// the group up, and while the group is broken it ends their waits.
func (m *Member) Tend(waited time.Duration) error {
	err := m.Err()
	if !m.isQuiet() {
		return err
	}
	if err == nil && m.timeout != 0 && waited > time.Duration(m.timeout) {
		m.Abort(&TimeoutError{Rank: m.Index, Peer: m.missing(), Seq: m.seq.Load(), Elapsed: waited})
		err = m.Err()
	}
	if err != nil {
		return errors.Join(err, m.release())
	}
	return nil
}

// Where in the member's host page GivenUp has the word put, and what stands there before.
const (
	hostAsked = 1024
	asking    = 0xffffffff
)

// GivenUp reads from the device whether a peer has given up the group, which ends the
// waits of this member's kernels and leaves their results undefined. The peer's reason
// may reach Err later. Unlike Check it does not wait for a stream. One goroutine at a
// time calls it. It is called after each step, so the copy is watched for in host memory:
// waiting for a stream, or for a copy to other memory, takes twice as long.
func (m *Member) GivenUp() (bool, error) {
	d, s := m.Rank.World.drv, m.Rank.setup
	word := m.host + hostAsked
	store32(word, asking)
	if m.asks.Len() == 0 {
		m.asks.Copy(Main, m.hostDev+hostAsked, m.ctl+kernels.CtlAbort, 4)
	}
	if err := d.Run(m.Rank.Ctx, m.asks.On(s)); err != nil {
		return false, err
	}
	for start := time.Now(); time.Since(start) < 50*time.Microsecond; {
		if v := load32(word); v != asking {
			return v != 0, nil
		}
	}
	err := d.StreamSync(m.Rank.Ctx, s) // other work is in front of it
	return load32(word) != 0, err
}
