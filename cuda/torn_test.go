//go:build linux

package cuda

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/coll"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/symm"
	"github.com/seed-ee968945/concert/kernels"
)

// tornDriver fails behind the first command of a list, once.
type tornDriver struct {
	driver.Driver
	armed bool
}

var errTorn = errors.New("torn")

func (d *tornDriver) Run(c driver.Ctx, words []uint64) error {
	if d.armed {
		d.armed = false
		return errors.Join(d.Driver.Run(c, words[:words[0]>>8]), errTorn)
	}
	return d.Driver.Run(c, words)
}

// TestTornCall has a call whose driver fails behind its kernel. The next one, in another
// stream, follows that kernel: side by side they would take each other's messages.
func TestTornCall(t *testing.T) {
	if process != nil {
		t.Skip("the driver of both ranks fails in turn")
	}
	r := newRigT(t, 2)
	g := r.groupOn(true)
	second := r.extra()
	off := r.alloc(4096)
	d := &tornDriver{Driver: r.drv}
	r.sw.Driver = d
	defer func() { r.sw.Driver = r.drv }()
	for _, m := range []*coll.Member{g.Members()[1], g.Members()[0]} {
		x := got(m.Rank.Buffer(off, symm.I32, 1024))(t)
		r.must(r.drv.Memset32(m.Rank.Ctx, r.streams[m.Index], x.At, uint32(m.Index+1), 1024), r.drv.StreamSync(m.Rank.Ctx, r.streams[m.Index]))
		if m.Index == 0 {
			time.Sleep(50 * time.Millisecond) // rank 1's calls are all there, and would run
		}
		d.armed = m.Index == 1
		for i, s := range []driver.Stream{r.streams[m.Index], second[m.Index]} {
			w, err := r.comm(m).AllReduce(t.Context(), s, kernels.Sum, x.InPlace())
			if torn := m.Index == 1 && i == 0; errors.Is(err, errTorn) != torn || !torn && err != nil {
				t.Fatalf("rank %d, call %d: %v", m.Index, i, err)
			}
			r.must(w.Close())
		}
	}
	for _, m := range g.Members() {
		ctx, cancel := context.WithTimeout(t.Context(), plenty)
		defer cancel()
		r.must(m.Check(ctx, r.streams[m.Index]), m.Check(ctx, second[m.Index]))
		if v := r.words(m, got(m.Rank.Buffer(off, symm.I32, 1024))(t)); v[0] != 6 || v[1023] != 6 {
			t.Errorf("rank %d has %d and %d", m.Index, v[0], v[1023])
		}
	}
}
