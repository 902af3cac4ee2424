//go:build linux

package cuda

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
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
	// Memory of the other rank, which this one's device has access to.
	other := r.g.Members()[1].Rank
	unit := got(f.Granularity(other.Ctx, other.Dev, driver.ByFD))(t)
	at, mem := got(f.Reserve(other.Ctx, 2*unit, 0))(t), got(f.MemCreate(other.Ctx, other.Dev, unit, driver.ByFD))(t)
	r.must(f.Map(other.Ctx, at, unit, mem), f.Allow(other.Ctx, at, unit, []int{m.Rank.Dev, other.Dev}))
	r.must(m.Wait(s, 0, 1))
	until(t, func() bool { return f.Waiting(0) > 0 })
	f.WaitLimit(time.Millisecond)
	for range 16 { // what the context begins with, some of which the rig uses
		if own, err := f.StreamCreate(c); err == nil {
			defer func() { r.must(f.StreamDestroy(c, own)) }()
		}
	}
	f.Forget()
	for name, call := range map[string]func() error{
		"free":   func() error { return f.MemFree(c, p) },
		"map":    func() error { return f.Map(c, at+driver.Ptr(unit), unit, mem) },
		"access": func() error { return f.Allow(other.Ctx, at, unit, []int{m.Rank.Dev, other.Dev}) },
		"unmap":  func() error { return f.Unmap(other.Ctx, at, unit) },
		"load":   func() error { _, err := f.ModuleLoad(c, []byte(".visible .entry k(")); return err },
		"unload": func() error { return f.ModuleUnload(c, 0) },
		"stream": func() error { _, err := f.StreamCreate(c); return err },
		"upload": func() error { return f.GraphUpload(c, 0, s) },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "kernel wait of rank 0, which waits for rank 1") {
			t.Errorf("%s: got %v", name, err)
		}
		if late := f.Late(); len(late) != 1 || f.Forget() != 1 {
			t.Errorf("%s: reported: %q", name, late)
		}
	}
	f.WaitLimit(0)
	defer func() {
		r.must(f.Unmap(other.Ctx, at, unit), f.Unreserve(other.Ctx, at, 2*unit), f.MemRelease(other.Ctx, mem))
	}()
	freed := make(chan error, 1)
	go func() { freed <- f.MemFree(c, p) }()
	r.must(r.g.Members()[1].Signal(r.streams[1], 0, 0), <-freed, m.Check(t.Context(), s))
}
