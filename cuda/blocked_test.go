//go:build linux

package cuda

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver/fake"
)

// Loading, mapping, freeing and uploading wait for a kernel that waits for a peer, and fail
// with its name when that takes too long.
func TestBlockedByKernel(t *testing.T) {
	if *onGPU || process != nil {
		t.Skip("is about the fake driver")
	}
	r := newRigT(t, 2)
	f, m := r.drv.(*fake.Driver), r.g.Members()[0]
	c, s := m.Rank.Ctx, r.streams[0]
	p := got(f.MemAlloc(c, 4096))(t)
	r.must(m.Wait(s, 0, 1))
	until(t, func() bool { return f.Waiting(0) > 0 })
	f.Patience(time.Millisecond)
	if err := f.MemFree(c, p); err == nil || !strings.Contains(err.Error(), "kernel wait of rank 0, which waits for rank 1") {
		t.Errorf("got %v", err)
	}
	if late := f.Late(); len(late) != 1 || f.Forget() != 1 {
		t.Errorf("reported: %q", late)
	}
	f.Patience(0)
	freed := make(chan error, 1)
	go func() { freed <- f.MemFree(c, p) }()
	r.must(r.g.Members()[1].Signal(r.streams[1], 0, 0), <-freed, m.Check(t.Context(), s))
}
