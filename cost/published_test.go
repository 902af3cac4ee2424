package cost

import (
	"math"
	"testing"

	"github.com/seed-ee968945/concert/ir"
)

// published is what others measured of NCCL on several hosts: facts, each with its source.
var published = []struct {
	source  string
	machine string
	hosts   int
	ranks   int // of a host
	rails   int // 0: one for each rank
	sum     bool
	op      ir.Op
	us      map[int64]float64 // by bytes, as nccl-tests count them
}{
	{"github.com/NVIDIA/nccl-tests/issues/232: tree", "h100", 2, 1, 0, false, ir.OpAllReduce,
		map[int64]float64{2 << 20: 113.2, 4 << 20: 154.4, 8 << 20: 231.4, 16 << 20: 420.5, 32 << 20: 812.3}},
	{"github.com/NVIDIA/nccl-tests/issues/119", "a100", 3, 8, 4, false, ir.OpAllReduce,
		map[int64]float64{127926280: 2560.7, 133169160: 2666.0}},
	{"two DGX A100 with eight adapters of 200 Gb/s, k8s network operator's expected output", "a100", 2, 8, 0, false, ir.OpAllReduce,
		map[int64]float64{32 << 10: 51.15, 128 << 10: 55.33, 2 << 20: 124, 8 << 20: 199, 32 << 20: 618.8, 128 << 20: 1737.8, 512 << 20: 5760.3, 2 << 30: 21845, 8 << 30: 86026}},
	{"two HGX H100 with eight adapters of 400 Gb/s, without NVLink SHARP", "h100", 2, 8, 0, false, ir.OpAllReduce,
		map[int64]float64{512 << 20: 2622.9, 1 << 30: 5200.4, 2 << 30: 10308, 8 << 30: 41145}},
	{"dstack.ai/docs, cluster of two HGX H100 at Nebius, mean of both columns", "h100", 2, 8, 0, true, ir.OpAllReduce,
		map[int64]float64{256 << 20: 1305.66, 512 << 20: 2379.38, 1 << 30: 4511.97, 2 << 30: 8776.26, 8 << 30: 34448.4, 64 << 10: 37.7, 1 << 20: 82.45, 4 << 20: 112.4, 16 << 20: 205.7, 64 << 20: 476.2}},
	{"two p5.48xlarge with 3200 Gb/s of EFA", "h100", 2, 8, 0, true, ir.OpAllReduce,
		map[int64]float64{256 << 20: 1468.2, 1 << 30: 4607.6, 8 << 30: 33605}},
	{"two p5en.48xlarge, alltoall_perf: 91 GB/s", "h200", 2, 8, 0, true, ir.OpAllToAll,
		map[int64]float64{1 << 30: 11799}},
	{"two p5en.48xlarge, one rank each, one direction: 44.76 GB/s", "h200", 2, 1, 0, false, ir.OpCollectivePermute,
		map[int64]float64{1 << 30: 23989}},
}

// The formulas are as far from what others measured as the comment of CommMs says.
func TestPublished(t *testing.T) {
	for _, p := range published {
		m, err := LookupMachine(p.machine)
		if err != nil {
			t.Fatal(err)
		}
		m.RanksPerHost, m.RailsPerHost = p.ranks, p.rails
		if p.sum {
			m.Intra.SumGBps = 255
		}
		n := p.hosts * p.ranks
		for bytes, us := range p.us {
			got, ok := m.CommMs(p.op, m.Span(group(n, n, 1)), bytes)
			most := 0.3
			if bytes > 128<<20 {
				most = 0.15
			}
			if off := got*1e3/us - 1; !ok || math.Abs(off) > most {
				t.Errorf("%s: %s of %d bytes on %d hosts of %d: %.1f us, measured %.1f: %+.0f%%", p.source, p.op.Name(), bytes, p.hosts, p.ranks, got*1e3, us, 100*off)
			}
		}
	}
}
