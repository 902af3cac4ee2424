//go:build linux

package device_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cuda/device"
	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/driver/fake"
	"github.com/seed-ee968945/concert/cuda/library"
	rt "github.com/seed-ee968945/concert/runtime"
)

// lazyDriver accepts command buffers and runs none once it is told to, so that what
// is left is the host's part of a call.
type lazyDriver struct {
	*fake.Driver
	lazy bool
}

func (d *lazyDriver) Run(c driver.Ctx, words []uint64) error {
	if d.lazy && words[0]&0xff != 4 { // a copy is the device's own question
		return nil
	}
	return d.Driver.Run(c, words)
}

func (d *lazyDriver) EventRecord(c driver.Ctx, e driver.Event, s driver.Stream) error {
	if d.lazy {
		return nil
	}
	return d.Driver.EventRecord(c, e, s)
}

func (d *lazyDriver) StreamWait(c driver.Ctx, s driver.Stream, e driver.Event) error {
	if d.lazy {
		return nil
	}
	return d.Driver.StreamWait(c, s, e)
}

// BenchmarkWait is the host's wall time of a replay, and how much later than its work's
// end the host knows of it.
func BenchmarkWait(b *testing.B) {
	for _, takes := range []time.Duration{20 * time.Microsecond, 100 * time.Microsecond, 500 * time.Microsecond, 5 * time.Millisecond} {
		b.Run(takes.String(), func(b *testing.B) {
			fake := newFake(b, 1)
			var end time.Time
			lib := &tells{nothing: fake.RegisterCall(func([]uint64) error {
				start := time.Now()
				for end = start; end.Sub(start) < takes; end = time.Now() {
				}
				return nil
			})}
			o := small(1)
			o.Libraries = []device.OpenLibrary{func(device.LibraryEnv) (library.Library, error) { return lib, nil }}
			m := &rt.Module{Name: "m", World: 1, Arena: 1 << 16, Streams: []string{"compute"}}
			err := device.Local(b.Context(), fake, []int{0}, rt.Config{}, o, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
				st, err := rt.Prepare(ctx, r, m, func(x *rt.Exec) {
					x.Launch("compute", "matmul", nil, rt.Ts{rt.C(8192, rt.F32, 16, 16)}, rt.Ts{rt.C(0, rt.F32, 16, 16), rt.C(4096, rt.F32, 16, 16)})
				}, rt.Options{}, true)
				if err != nil {
					return err
				}
				var late time.Duration
				for b.Loop() {
					if err := st.Replay(ctx); err != nil {
						return err
					}
					late += time.Since(end)
				}
				b.ReportMetric(float64(late.Nanoseconds())/float64(b.N)/1e3, "us-late/op")
				return st.Close()
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkEagerCall is the host's cost of calls of emitted code above what the driver
// takes: a launch of two operands, a bucket of 16 tensors, a wait for an event.
func BenchmarkEagerCall(b *testing.B) {
	const n = 16
	m := &rt.Module{Name: "m", World: 2, Arena: 1 << 20, Streams: []string{"compute", "comm.g"}, Events: 1,
		Groups: []rt.Group{{Name: "g", Ranks: [][]int{{0, 1}}}}}
	var ins, outs rt.Ts
	for i := range int64(n) {
		ins, outs = append(ins, rt.C(i*1024, rt.F32, 64, 2)), append(outs, rt.C(1<<16+i*2048, rt.F32, 128, 2))
	}
	done := errors.New("done")
	for _, c := range []struct {
		name string
		call func(x *rt.Exec)
	}{
		{"launch", func(x *rt.Exec) {
			x.At("add").Launch("compute", "add", nil, rt.Ts{rt.C(0, rt.F32, 64, 2)}, rt.Ts{rt.C(0, rt.F32, 64, 2), rt.C(1024, rt.F32, 64, 2)})
		}},
		{"bucket", func(x *rt.Exec) { x.At("ag").AllGather("comm.g", "g", 0, outs, ins) }},
		{"record", func(x *rt.Exec) { x.Record("compute", 0) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			drv := &lazyDriver{Driver: fake.New(2)}
			o := small(2)
			o.Libraries = nil
			err := device.Local(b.Context(), drv, devices(2), rt.Config{Timeout: plenty}, o, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
				if _, err := rt.RunModule(ctx, r, m, c.call, nil, rt.Options{}); err != nil {
					return err
				}
				if err := r.Barrier(ctx); err != nil && (r.Info().Rank == 0 || !errors.Is(err, rt.ErrCanceled)) {
					return err // rank 0 may be done before this rank has seen the barrier's end
				}
				if r.Info().Rank == 1 {
					broken(r)
					return nil
				}
				drv.lazy = true
				var err error
				b.ResetTimer()
				for left := b.N; left > 0 && err == nil; left -= 1000 { // steps of so many calls
					_, err = rt.RunModule(ctx, r, m, func(x *rt.Exec) {
						for range min(left, 1000) {
							c.call(x)
						}
					}, nil, rt.Options{})
				}
				b.StopTimer()
				drv.lazy = false
				r.Abort(done)
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}
