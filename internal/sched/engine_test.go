package sched

import (
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/sim/simtest"
)

var inductor = map[string]struct{ ms, peak float64 }{
	"gpt_ddp8.bw": {92.15, 13.41}, "llama8b_fsdp8.fw": {142.79, 26.34}, "llama8b_fsdp8.bw": {302.76, 29.84},
	"llama8b_tp8_infer.fw": {21.78, 2.81}, "llama8b_tpsp8.fw": {35.07, 7.59}, "llama8b_tpsp8.bw": {61.32, 7.47},
	"mixtral_ep8_fsdp8.fw": {220.54, 46.21}, "llama70b_fsdp8_tp8.fw": {210.81, 23.95}, "llama70b_fsdp8_tp8.bw": {394.11, 24.08},
}

func gib(b int64) float64 { return float64(b) / (1 << 30) }

func TestArena(t *testing.T) {
	cost, err := simtest.LoadCost()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []Cost{nil, cost.Collective} {
		sum := 0.0
		for _, name := range arena {
			m := load(t, name)
			t0 := time.Now()
			r, err := Schedule(m, Options{Cost: c})
			if err != nil {
				t.Fatal(err)
			}
			d := time.Since(t0)
			sum += math.Log(1 + r.Gap())
			n := 0
			all := 0
			for _, b := range r.Buckets {
				n += len(b.Members)
			}
			for _, k := range m.Kind {
				if k == 3 {
					all++
				}
			}
			t.Logf("%-22s bound %.2f ours %.2f %.4f ind %.2f peak %.2f ind %.2f exposed %.2f colls %d -> %d runs %d time %v", name, r.Bounds.Bound, r.Timeline.Makespan, 1+r.Gap(), inductor[name].ms,
				gib(r.Timeline.Peak), inductor[name].peak, r.Timeline.Exposed, all, all-n+len(r.Buckets), r.Runs, d.Round(time.Millisecond))
		}
		t.Logf("geomean %.5f", math.Exp(sum/9))
	}
}

var _ = os.Stdout
var _ = fmt.Sprint
