//go:build linux

package device_test

import (
	"context"
	"encoding/binary"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	rt "github.com/seed-ee968945/concert/runtime"
)

// distracted is a fake driver whose first device's host looks for the end of its work when the
// other rank's has ended, and that rank had its turns to return.
type distracted struct {
	*fake.Driver
	first       atomic.Uint64
	armed       atomic.Bool
	ended, over atomic.Bool
}

func (d *distracted) CtxRetain(dev int) (driver.Ctx, error) {
	c, err := d.Driver.CtxRetain(dev)
	if dev == 0 {
		d.first.Store(uint64(c))
	}
	return c, err
}

func (d *distracted) EventQuery(c driver.Ctx, e driver.Event) (bool, error) {
	if uint64(c) != d.first.Load() {
		ok, err := d.Driver.EventQuery(c, e)
		d.ended.Store(d.armed.Load() && ok || d.ended.Load())
		return ok, err
	}
	for turns := 0; d.armed.Load() && !d.over.Load() && turns < 10000; {
		if runtime.Gosched(); d.ended.Load() {
			turns++
		}
	}
	return d.Driver.EventQuery(c, e)
}

// A rank whose sizes are wrong computes nothing, and what it then gives to the others is no
// result of theirs, however late its host hears of the sizes.
func TestSizesBeyondReachNoPeer(t *testing.T) {
	fakeOnly(t)
	symmetricOnly(t)
	m, err := ir.Parse("sum.ir", `world 2
group @g = [[0, 1]]
sym u hint 2 max 4
func @f(%n: i64[1]) -> (f32[]) {
  %r = read_size %n {symbols=["u"]} : i64[1]
  %o = full {value=1.0} : f32[u]
  %s = sum %o {dims=[0]} : f32[]
  %a = all_reduce %s on @g {reduce="sum"} : async f32[]
  %b = wait_tensor %a : f32[]
  return %b
}
`)
	if err != nil {
		t.Fatal(err)
	}
	s := lowered(t, m.Func("f"), lower.Options{Kernels: true})
	for _, graph := range []bool{false, true} {
		drv, devs, o := target(t, 2)
		slow := &distracted{Driver: drv.(*fake.Driver)}
		var got [2][]rt.Value
		var errs [2]error
		device.Local(t.Context(), slow, devs, rt.Config{Timeout: plenty}, hosted(slow, o), []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
			me := r.Info().Rank
			st, err := rt.Prepare(ctx, r, s.Module, s.Run, rt.Options{}, graph)
			if err != nil {
				errs[me] = err
				return err
			}
			slow.armed.Store(true)
			n := rt.Value{DType: rt.I64, Shape: rt.Dims{1}, Data: binary.LittleEndian.AppendUint64(nil, uint64(9-6*me))}
			got[me], errs[me] = st.Run(ctx, []rt.Value{n})
			if me == 1 {
				slow.ended.Store(true)
				slow.over.Store(true)
			}
			return errs[me]
		})
		for me := range errs {
			if errs[me] == nil {
				t.Errorf("graph %v: rank %d got %x from a rank whose size was wrong", graph, me, got[me][0].Data)
			} else if !strings.Contains(errs[me].Error(), "symbol u is 9, expected 0 to 4") {
				t.Errorf("graph %v, rank %d: %v", graph, me, errs[me])
			}
		}
	}
}
