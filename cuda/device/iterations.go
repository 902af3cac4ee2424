package device

import (
	"sync"
	"time"

	"github.com/seed-ee968945/concert/cuda/device/internal/pace"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
)

// stop is a word that ends the loops of a device that breaks, which may have no other end,
// and behind it one that counts their iterations.
type stop struct {
	mu       sync.Mutex
	at       driver.Ptr // 0 for none
	progress pace.Progress

	// What was copied of the count: host memory, and where that is for the device.
	host uintptr
	seen driver.Ptr
}

func (s *stop) set(at driver.Ptr, host uintptr, seen driver.Ptr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.host, s.seen = at, host, seen
}

// stopLoops ends the loops that run, each at its next test.
func (d *Device) stopLoops() {
	d.stop.mu.Lock()
	defer d.stop.mu.Unlock()
	if d.stop.at != 0 {
		d.drv.StreamWrite32(d.rank.Ctx, d.rank.Setup(), d.stop.at, 1) // a driver that fails here ends nothing
	}
}

// still is how long no loop of the device has begun an iteration, up to the length of a wait. A step whose loops
// run for longer than a peer may take is not late: a collective over NCCL, whose beginning nobody
// sees, may come after them.
func (d *Device) still(waited time.Duration) time.Duration {
	d.stop.mu.Lock()
	defer d.stop.mu.Unlock()
	if d.stop.at == 0 {
		return waited
	}
	return d.stop.progress.Still(time.Now(), waited, d.spec.Timeout, func() (uint32, error) { return d.stop.iterations(d) })
}

// iterations is the count as it was when this was called before. It does not wait for the device,
// whose queues may be stuck: that is what the host is looking for.
func (s *stop) iterations(d *Device) (uint32, error) {
	n := hostmem.Load32(s.host)
	return n, d.drv.Copy(d.rank.Ctx, d.rank.Setup(), s.seen, s.at+4, 4)
}
