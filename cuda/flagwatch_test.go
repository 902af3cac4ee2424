//go:build linux

package cuda

import (
	"errors"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/kernels"
)

// A step that computes for long before it comes to what waits without a kernel is not late: the
// time counts from there on.
func TestLongStepIsNotLate(t *testing.T) {
	fakeOnly(t)
	r := newRigT(t, 2)
	src, dst, gate := r.alloc(64), r.alloc(256), r.alloc(256)
	m := r.g.Members()[0]
	r.must(r.drv.StreamWait32(m.Rank.Ctx, r.streams[0], r.w.Addr(0, gate), 1)) // what computes
	r.must(m.Enqueue(r.streams[0], quietOp(r, 0, src, dst)))
	const limit = 50 * time.Millisecond
	r.g.SetTimeout(limit)
	defer r.g.SetTimeout(plenty)
	for start := time.Now(); time.Since(start) < 4*limit; time.Sleep(limit / 8) {
		r.must(m.Poll(time.Hour))
	}
	r.must(r.drv.StreamWrite32(m.Rank.Ctx, m.Rank.Setup(), r.w.Addr(0, gate), 1))
	var late *symm.TimeoutError
	until(t, func() bool { return errors.As(m.Poll(time.Hour), &late) })
	if late.Peer != 1 || late.Rank != 0 || late.Elapsed < limit || late.Elapsed > time.Minute {
		t.Errorf("got %+v", *late)
	}
	r.must(r.g.Rejoin(t.Context()))
}

// A wait that holds up all queues of its device, the host's too, ends the group nevertheless, and
// the host waits for nothing meanwhile.
func TestTimeoutSharedQueue(t *testing.T) {
	r, f := newOneQueueRig(t)
	src, dst := r.alloc(64), r.alloc(256)
	m := r.g.Members()[0]
	r.must(m.Enqueue(r.streams[0], quietOp(r, 0, src, dst)))
	r.g.SetTimeout(50 * time.Millisecond)
	defer r.g.SetTimeout(plenty)
	var late *symm.TimeoutError
	start := time.Now()
	until(t, func() bool { return errors.As(m.Poll(time.Since(start)), &late) })
	if late.Rank != 0 || late.Peer != 0 {
		t.Errorf("got %+v", *late)
	}
	if ok, err := f.StreamQuery(m.Rank.Ctx, r.streams[0]); ok || err != nil {
		t.Errorf("the stream goes on, %v, %v", ok, err)
	}
	var b driver.Commands // what a peer does that comes after all
	for _, row := range []driver.Ptr{0, 1} {
		b.Flags(driver.Main, driver.Flag{At: ctl(m) + kernels.CtlStreamFlags + row*4*kernels.MaxRanks + 4, V: 1})
	}
	r.must(f.Run(r.g.Members()[1].Rank.Ctx, b.On(r.streams[1])))
	r.must(r.g.Rejoin(t.Context()))
	for _, m := range r.g.Members() {
		r.must(m.Enqueue(r.streams[m.Index], quietOp(r, m.Index, src, dst)))
	}
	for _, m := range r.g.Members() {
		r.must(m.Check(t.Context(), r.streams[m.Index]))
	}
}
