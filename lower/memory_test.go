package lower_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/seed-ee968945/concert/internal/pack"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/sim"
)

// arenaGraphs are the full-size traced graphs.
var arenaGraphs = []string{"gpt_ddp8.bw", "llama8b_fsdp8.fw", "llama8b_fsdp8.bw", "llama8b_tp8_infer.fw", "llama8b_tpsp8.fw",
	"llama8b_tpsp8.bw", "mixtral_ep8_fsdp8.fw", "llama70b_fsdp8_tp8.fw", "llama70b_fsdp8_tp8.bw"}

// simPeak is the peak by the rule that every result is a storage of its own.
func simPeak(t testing.TB, f *ir.Func) int64 {
	t.Helper()
	m, err := sim.FromFunc(f, sim.FuncOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tl, err := sim.Evaluate(m, m.InputOrder(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tl.Peak
}

// The placed arena is at most 1.005 times the least that any placement needs on the
// full-size graphs, as traced and as scheduled, with and without reuse; and with
// reuse it is not above the simulator's peak.
func TestArenaSize(t *testing.T) {
	if testing.Short() {
		t.Skip("schedules and places the full-size graphs")
	}
	for _, name := range arenaGraphs {
		m := imported(t, filepath.Join(testdata, "graphs", name+".graph.json.gz"))
		for _, order := range []string{"", "overlap"} {
			scheduled := optimised(t, m, order)
			peak := simPeak(t, scheduled.Funcs()[0])
			for _, reuse := range []string{"", "reuse-buffers", "reuse-buffers{inputs=dying}"} {
				f := optimised(t, scheduled, reuse).Funcs()[0]
				plan, err := lower.Plan(f)
				if err != nil {
					t.Fatal(err)
				}
				bound, err := pack.LowerBound(plan.Problem)
				if err != nil {
					t.Fatal(err)
				}
				p, err := lower.Func(f)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%-24s %-8s %-28s buffers %5d, arena %d, over bound %.5f, over peak %.5f", name, order, reuse, len(plan.Buffers), p.Arena,
					float64(p.Arena)/float64(bound), float64(p.Arena)/float64(peak))
				if float64(p.Arena) > 1.005*float64(bound) {
					t.Errorf("%s, order %q, %q: the arena has %d bytes, every placement needs %d", name, order, reuse, p.Arena, bound)
				}
				limit := peak
				if reuse == "" {
					limit += peak / 100
				}
				if p.Arena > limit {
					t.Errorf("%s, order %q, %q: the arena has %d bytes, the simulator's peak is %d", name, order, reuse, p.Arena, peak)
				}
			}
		}
	}
}

// Unpacked programs do the same, and none of their buffers share bytes.
func TestUnpacked(t *testing.T) {
	f := optimised(t, imported(t, filepath.Join(testdata, "graphs", "tiny_fsdp2.bw.graph.json.gz")), "overlap,fuse{kernels=true}").Funcs()[0]
	var keys [2][]string
	for i, o := range []lower.Options{{Kernels: true}, {Kernels: true, Unpacked: true}} {
		p, err := lower.FuncWith(f, o)
		if err != nil {
			t.Fatal(err)
		}
		for k := range p.Instrs {
			keys[i] = append(keys[i], p.CostKey(&p.Instrs[k]))
		}
		shared := 0
		for j, a := range p.Buffers {
			for _, b := range p.Buffers[:j] {
				if a.Offset < b.Offset+b.Size && b.Offset < a.Offset+a.Size {
					shared++
				}
			}
		}
		if o.Unpacked != (shared == 0) {
			t.Errorf("%+v: %d pairs of buffers share bytes", o, shared)
		}
	}
	if !slices.Equal(keys[0], keys[1]) {
		t.Error("the programs differ")
	}
}

// BenchmarkPlace measures the placement of the full-size graphs as traced.
func BenchmarkPlace(b *testing.B) {
	for _, name := range arenaGraphs {
		m := imported(b, filepath.Join(testdata, "graphs", name+".graph.json.gz"))
		for _, order := range []string{"", "overlap"} {
			plan, err := lower.Plan(optimised(b, m, order).Funcs()[0])
			if err != nil {
				b.Fatal(err)
			}
			bound, err := pack.LowerBound(plan.Problem)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(name+"/"+order, func(b *testing.B) {
				var height int64
				for b.Loop() {
					if height, err = plan.Place(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(height)/float64(bound), "of-bound")
			})
		}
	}
}
