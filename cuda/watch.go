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
	if err := m.usable(); err != nil {
		return err
	}
	err := m.Err()
	if !m.isQuiet() {
		return err
	}
	if err == nil && m.timeout != 0 && waited > time.Duration(m.timeout) {
		m.Abort(m.late(m.missing(), m.last.Load(), waited))
		err = m.Err()
	}
	if err != nil {
		return errors.Join(err, m.endWaits())
	}
	return nil
}

// GivenUp says whether results of this member may be undefined because the group was
// given up, here or by a peer: a kernel has left early, or the group is broken and has
// had collectives without kernels. No kernel tells of those: the streams of a peer that
// has heard of the break earlier go on without what they waited for, and set our flags.
// It reads host memory only, and what it says holds for all work that has ended: a
// caller asks after it has seen an event behind it. The peer's reason may reach Err later.
func (m *Member) GivenUp() bool {
	if m.usable() != nil {
		return false
	}
	return load32(m.host+kernels.CtlLeft) != 0 || m.isQuiet() && m.Err() != nil
}
