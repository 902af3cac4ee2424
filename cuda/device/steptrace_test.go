//go:build linux

package device_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/cuda/device"
	rt "github.com/seed-ee968945/concert/runtime"
)

// A captured step tells when its calls ran, in the forms that its replays have, and
// leaves what a replay leaves.
func TestStepTrace(t *testing.T) {
	fakeOnly(t)
	for _, graph := range []bool{false, true} {
		m, f := besideModule()
		drv, devs, o := target(t, 2)
		err := device.Local(t.Context(), drv, devs, rt.Config{}, o, []*rt.Module{m}, func(ctx context.Context, r *rt.Rank) error {
			s, err := rt.Prepare(ctx, r, m, f, rt.Options{}, graph)
			if err != nil {
				return err
			}
			defer s.Close()
			in := bytes.Repeat([]byte{1, 2, 3, byte(r.Info().Rank)}, 1024)
			outs, err := s.Run(ctx, []rt.Value{{DType: rt.F32, Shape: []int64{1024}, Data: in}})
			if err != nil {
				return err
			}
			for range 2 {
				spans, err := s.Trace(ctx)
				if err != nil {
					return err
				}
				if len(spans) != 3 {
					return fmt.Errorf("%d calls: %+v", len(spans), spans)
				}
				for i, want := range []string{"hidden", "n", "exposed"} {
					got := spans[i]
					if !strings.Contains(got.Name, "("+want+")") || got.Start < 0 || got.End < got.Start || (got.Stream == "compute") != (want == "n") {
						return fmt.Errorf("call %d: %+v, want %s", i, got, want)
					}
				}
				if spans[2].Start < spans[1].End {
					return fmt.Errorf("the last call begins before what it reads: %+v", spans)
				}
			}
			for i, q := range m.Outputs {
				at, err := r.In(m, q.Tensors[0])
				if err != nil {
					return err
				}
				got, err := r.Download(at)
				if err != nil {
					return err
				}
				if !bytes.Equal(got, outs[i].Data) {
					return fmt.Errorf("output %s differs after a traced replay", q.Name)
				}
			}
			if err := s.Replay(ctx); err != nil { // goes on as before
				return err
			}
			if err := s.Close(); err != nil {
				return err
			}
			if _, err := s.Trace(ctx); err == nil {
				return fmt.Errorf("a closed step was traced")
			}
			return nil
		})
		if err != nil {
			t.Errorf("graph=%v: %v", graph, err)
		}
	}
}
