package cuda

import (
	"errors"
	"time"

	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
	"github.com/seed-ee968945/concert/kernels"
)

// Tend is for a host that watches the member's streams itself instead of calling
// Check: waited is how long it has been waiting for them. It returns Err, after doing
// what no kernel can for collectives without kernels: past the group's timeout it gives
// the group up, and while the group is broken it ends their waits.
func (m *Member) Tend(waited time.Duration) error {
	if err := m.begin(); err != nil {
		return err
	}
	defer m.done()
	err := m.nurse(waited)
	return errors.Join(m.works(), err)
}

// GivenUp says whether results of this member may be undefined because the group was
// given up, here or by a peer: a kernel has left early, or the group is broken and has
// had collectives without kernels. No kernel tells of those: the streams of a peer that
// has heard of the break earlier go on without what they waited for, and set our flags.
// It reads host memory only, and what it says holds for all work that has ended: a
// caller asks after it has seen an event behind it. The peer's reason may reach Err later.
func (m *Member) GivenUp() bool {
	if m.begin() != nil {
		return false
	}
	defer m.done()
	return hostmem.Load32(m.host+kernels.CtlLeft) != 0 || m.isQuiet() && m.failure() != nil
}
