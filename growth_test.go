//go:build unix

package concert

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/lower/proof"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
	"github.com/seed-ee968945/concert/program"
	"github.com/seed-ee968945/concert/sim"
)

// BenchmarkGrowth runs every stage of the compiler on generated programs of n, 2n, 4n
// and 8n nodes, each stage alone, and reports for the largest its seconds of processor
// time and the MB that it allocated, and the exponent e of the growth n^e over the last two doublings.
// Run it with -benchtime 1x; BENCHMARKS.md has its table. The exponent of n log n is
// about 1.1; a stage that takes less than 50 ms in all has none, since noise is more.
func BenchmarkGrowth(b *testing.B) {
	for _, s := range growthShapes {
		b.Run(s.name, func(b *testing.B) {
			for _, g := range growthStages {
				b.Run(g.name, func(b *testing.B) { growth(b, s, g) })
			}
		})
	}
}

// growthLimit is the most seconds that a stage may take at its largest size.
const growthLimit = 5

// processorTime is that of this process in seconds: other processes do not count in it.
func processorTime() float64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
}

// growth measures one stage on one shape.
func growth(b *testing.B, s growthShape, g growthStage) {
	var times []float64
	var bytes uint64
	for b.Loop() {
		times = times[:0]
		for n := s.nodes / 8; n <= s.nodes; n *= 2 {
			text := growthText(s, n)
			run, err := g.prepare(text)
			if err != nil {
				b.Fatal(err)
			}
			if run == nil {
				b.Skip("the shape has no such form")
			}
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begin := processorTime()
			err = run()
			times = append(times, processorTime()-begin)
			runtime.ReadMemStats(&after)
			if err != nil {
				b.Fatal(err)
			}
			bytes = after.TotalAlloc - before.TotalAlloc
			if last := times[len(times)-1]; last > growthLimit {
				b.Errorf("%d nodes take %.1f s of processor time, the limit is %d", n, last, growthLimit)
				break
			}
		}
	}
	last := len(times) - 1
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(times[last], "s")
	b.ReportMetric(float64(bytes)/1e6, "MB")
	if k := max(last-2, 0); last > 0 && times[last] > 0.05 {
		b.ReportMetric(math.Log2(times[last]/times[k])/float64(last-k), "exponent")
	}
}

// growthStage is one step of the compiler. prepare does what comes before it.
type growthStage struct {
	name    string
	prepare func(text string) (run func() error, err error)
}

var growthStages = []growthStage{
	{"parse", func(text string) (func() error, error) {
		return func() error { _, err := ir.Parse("growth.ir", text); return err }, nil
	}},
	{"verify", onModule(func(m *ir.Module) error { return m.Verify() })},
	{"print", onModule(func(m *ir.Module) error { m.AppendText(nil); return nil })},
	{"import", func(text string) (func() error, error) {
		m, err := ir.Parse("growth.ir", text)
		if err != nil {
			return nil, err
		}
		var doc bytes.Buffer
		if fx.Export(&doc, nil, m.Funcs()[0]) != nil {
			return nil, nil // PyTorch has no such operation
		}
		return func() error {
			f, err := fx.Read("growth.graph.json", &doc)
			if err != nil {
				return err
			}
			_, err = f.Import()
			return err
		}, nil
	}},
	{"sim", onModule(func(m *ir.Module) error {
		model, err := sim.FromFunc(m.Funcs()[0], sim.FuncOptions{})
		if err != nil {
			return err
		}
		sim.LowerBound(model)
		sim.SetBound(model)
		_, err = sim.Evaluate(model, model.InputOrder(), nil)
		return err
	})},
	pipelineStage("canonicalize"), pipelineStage("simplify-collectives"), pipelineStage("simplify-collectives{gather-sums=true}"),
	pipelineStage("bucket"), pipelineStage("raise-starts"), pipelineStage("sink-waits"), pipelineStage("reorder-comms"),
	pipelineStage("overlap"), pipelineStage("fuse"), pipelineStage("fuse{kernels=true}"), pipelineStage("add-slack"),
	pipelineStage("reuse-buffers{inputs=dying}"), pipelineStage("plan-memory"),
	pipelineStage("default"), pipelineStage("cuda"),
	{"lower", onModule(func(m *ir.Module) error { _, err := lower.Func(m.Funcs()[0]); return err })},
	{"lower-kernels", onModule(func(m *ir.Module) error {
		if err := growthPasses(m, "fuse{kernels=true}"); err != nil {
			return err
		}
		_, err := lower.FuncWith(m.Funcs()[0], lower.Options{Kernels: true})
		return err
	})},
	{"program-text", onProgram(func(p *program.Program) error { _, err := program.Parse("growth.prog", p.String()); return err })},
	{"check", onProgram(program.Check)},
	{"proof", func(text string) (func() error, error) {
		m, err := ir.Parse("growth.ir", text)
		if err != nil {
			return nil, err
		}
		p, err := lower.Func(m.Funcs()[0])
		return func() error { return proof.Check(m.Funcs()[0], p) }, err
	}},
	{"simulate", onProgram(func(p *program.Program) error {
		_, err := program.Simulate(p, program.SimOptions{Us: func(*program.Instr) float64 { return 10 }})
		return err
	})},
	{"emit", onProgram(func(p *program.Program) error { _, err := lower.EmitGo(p, "growth"); return err })},
}

func onModule(f func(*ir.Module) error) func(string) (func() error, error) {
	return func(text string) (func() error, error) {
		m, err := ir.Parse("growth.ir", text)
		return func() error { return f(m) }, err
	}
}

func onProgram(f func(*program.Program) error) func(string) (func() error, error) {
	return func(text string) (func() error, error) {
		m, err := ir.Parse("growth.ir", text)
		if err != nil {
			return nil, err
		}
		p, err := lower.Func(m.Funcs()[0])
		return func() error { return f(p) }, err
	}
}

func pipelineStage(passes string) growthStage {
	return growthStage{passes, onModule(func(m *ir.Module) error { return growthPasses(m, passes) })}
}

func growthPasses(m *ir.Module, pipeline string) error {
	p, err := standard.Table().Parse(pipeline)
	if err != nil {
		return err
	}
	g := passes.Manager{Costs: cost.TracedH200(), Verify: passes.VerifyEnd}
	_, err = g.Run(m, p)
	return err
}

// growthShape makes programs of about a number of nodes.
type growthShape struct {
	name  string
	nodes int // the most
	write func(w *growthWriter, n int)
}

// growthWriter collects the parts of a program's text.
type growthWriter struct {
	head, params, body strings.Builder
	results, types     []string
}

func (w *growthWriter) top(format string, args ...any) { fmt.Fprintf(&w.head, format+"\n", args...) }
func (w *growthWriter) line(format string, args ...any) {
	fmt.Fprintf(&w.body, "  "+format+"\n", args...)
}

func (w *growthWriter) param(name, typ string) {
	if w.params.Len() > 0 {
		w.params.WriteString(", ")
	}
	fmt.Fprintf(&w.params, "%%%s: %s", name, typ)
}

func (w *growthWriter) result(name, typ string) {
	w.results, w.types = append(w.results, "%"+name), append(w.types, typ)
}

func growthText(s growthShape, n int) string {
	w := &growthWriter{}
	w.top("world 4")
	w.top("group @g = [[0, 1, 2, 3]]")
	w.top("group @h = [[0, 1], [2, 3]]")
	s.write(w, n)
	return fmt.Sprintf("%s\nfunc @f(%s) -> (%s) {\n%s  return %s\n}\n",
		w.head.String(), w.params.String(), strings.Join(w.types, ", "), w.body.String(), strings.Join(w.results, ", "))
}
