package progen

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/internal/cases"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/standard"
)

var (
	duration = flag.Duration("progen.time", 0, "make programs for so long, with a new seed; 0: a fixed number of programs from a fixed seed")
	programs = cases.Flag("progen.programs", 400, 1600, "how many programs to make without -progen.time")
	seed     = flag.Uint64("progen.seed", 0, "first seed; 0 with -progen.time: one of the clock's")
	hostEach = flag.Int("progen.host", 4, "run every so-manieth pipeline on the host device, 0 for none")
	cudaEach = flag.Int("progen.cuda", 40, "run every so-manieth on the fake CUDA device, 0 for none")
	validate = flag.Bool("progen.validate", true, "prove what every pass did")
	onGPUs   = flag.Bool("progen.gpu", false, "compile for CUDA and run on the GPUs of this machine: programs of as many ranks as there are, without calls of the user's")
	only     = flag.Bool("progen.only", false, "passes that rewrite graphs, and the proofs of what they did, alone: many times as fast")
	workers  = flag.Int("progen.workers", 2, "programs at the same time")
	repeat   = flag.Int("progen.repeat", 1, "how often TestCase runs its program")

	caseFile   = flag.String("progen.case", "", "program for TestCase")
	casePasses = flag.String("progen.passes", "", "pipeline for TestCase")

	most = flag.Int("progen.findings", 10, "end after so many findings")
	keep = flag.Bool("progen.keep", false, "print every finding, not one of each kind, and go on however many there are")
)

func TestRandomPrograms(t *testing.T) {
	first, count := *seed, int(programs())
	switch {
	case *duration > 0:
		count = 1 << 60
	case testing.Short():
		count = 150
	}
	if *duration > 0 {
		if first == 0 {
			first = uint64(time.Now().UnixNano()) >> 10
		}
		t.Logf("go test ./test/progen -run TestRandomPrograms -progen.time=%v -progen.seed=%d", *duration, first)
	}
	h := &hunt{t: t, table: standard.Table(), first: first, programs: count, begin: time.Now(), seen: map[string]int{}, counted: map[string]float64{}}
	if *onGPUs {
		var err error
		if h.gpus, h.devices, err = GPUs(); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for range *workers {
		wg.Go(h.work)
	}
	wg.Wait()
	t.Logf("%d programs, %d pipelines, %d runs on devices, %d findings in %v %v", h.next, h.pipelines, h.runs, h.findings, time.Since(h.begin).Round(time.Millisecond), h.seen)
	h.idle()
}

// idle lists the statistics that no program made count. A pass without work is an error
// of the programs from the fixed seed, if they are as many as CI runs: fewer, or those of a new seed,
// may miss the passes that find something in one program of hundreds.
func (h *hunt) idle() {
	fixed := *duration == 0 && *seed == 0 && programs() >= 1600 && !testing.Short()
	for _, p := range h.table.Passes() {
		if p.Partitions { // works on functions with shardings, which its own tests make
			continue
		}
		var never []string
		for _, s := range p.Stats {
			if h.counted[p.Name+"."+s.Name] == 0 {
				never = append(never, s.Name)
			}
		}
		switch {
		case fixed && len(p.Stats) > 0 && len(never) == len(p.Stats):
			h.t.Errorf("pass %s never did anything", p.Name)
		case never != nil:
			h.t.Logf("pass %s never counted %s", p.Name, strings.Join(never, ", "))
		}
	}
}

// report notes what the passes did.
func (h *hunt) report(r *passes.Report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range r.Steps {
		for _, v := range s.Stats {
			h.counted[s.Pass+"."+v.Name] += v.Value
		}
	}
}

// hunt is one run of TestRandomPrograms.
type hunt struct {
	t        *testing.T
	table    *passes.Table
	first    uint64
	programs int
	begin    time.Time
	gpus     func(graph bool) Device // nil: all is as on any machine
	devices  int

	mu                              sync.Mutex
	next, pipelines, runs, findings int
	seen                            map[string]int     // failures by kind
	counted                         map[string]float64 // statistics of passes
}

// work makes programs until there are enough, the time is over or too much was found.
func (h *hunt) work() {
	for {
		h.mu.Lock()
		i := h.next
		over := i >= h.programs || *duration > 0 && time.Since(h.begin) > *duration || !*keep && h.findings >= *most
		if !over {
			h.next++
		}
		h.mu.Unlock()
		if over {
			return
		}
		h.program(New(h.first + uint64(i)))
	}
}

// patience is how long a check may take that is a matter of milliseconds: machines may be
// loaded, and tests slowed down by the race detector.
const patience = 5 * time.Minute

// program runs one program behind three pipelines.
func (h *hunt) program(c Case) {
	if h.gpus != nil {
		h.onGPUs(c)
		return
	}
	r := rand.New(rand.NewPCG(c.Seed, 0x91be))
	for range 3 {
		if c.Pipeline = Pipeline(h.table, r); *only {
			c.Pipeline = Rewriting(h.table, r)
		}
		o := Runs{Report: h.report, Validate: *validate, Only: *only, Host: *hostEach > 0 && r.IntN(*hostEach) == 0, Patience: patience}
		if *cudaEach > 0 && r.IntN(*cudaEach) == 0 {
			o.CUDA = FakeCUDA(r.IntN(2) == 0)
		}
		f := c.checkInTime(h.t.Context(), o)
		h.mu.Lock()
		h.pipelines++
		if !o.Only && (o.Host || o.CUDA != nil) {
			h.runs++
		}
		fresh := false
		if f != nil {
			h.seen[kindOf(f)]++
			if fresh = *keep || h.seen[kindOf(f)] == 1; fresh {
				h.findings++
			}
		}
		h.mu.Unlock()
		if fresh {
			o.Report = nil
			first, _, _ := strings.Cut(f.Error(), "\n")
			h.t.Errorf("seed %d, -passes=%s: %s", c.Seed, c.Pipeline, first) // now: it is lost if the run is ended meanwhile
			ctx, cancel := context.WithTimeout(h.t.Context(), 2*time.Minute) // each check of a hang is a long one
			small, why := Reduce(ctx, c, f, o, 1500)
			cancel()
			h.t.Logf("seed %d, reduced: %v\n-passes=%s, assignments %v\n%s", c.Seed, why, small.Pipeline, small.Symbols, small.Text)
		}
	}
}

// onGPUs runs one program on GPUs, call by call or captured.
func (h *hunt) onGPUs(c Case) {
	if m, failed := c.read(); failed == nil && (m.World > h.devices || strings.Contains(c.Text, " call ") || strings.Contains(c.Text, "async_call")) {
		return
	}
	c.Pipeline = "cuda"
	f := c.checkInTime(h.t.Context(), Runs{CUDA: h.gpus(c.Seed%2 == 0), Near: true, Patience: patience})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs++
	if f != nil {
		h.findings++
		h.seen[kindOf(f)]++
		h.t.Errorf("seed %d: %s", c.Seed, f)
	}
}

// One program from a file behind one pipeline, as a finding prints them.
func TestCase(t *testing.T) {
	if *caseFile == "" {
		t.Skip("-progen.case names no file")
	}
	text, err := os.ReadFile(*caseFile)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ir.Parse(*caseFile, string(text))
	if err != nil {
		t.Fatal(err)
	}
	syms := map[string]int64{}
	for _, s := range m.Symbols() {
		syms[s.Name] = s.Hint
	}
	c := Case{Seed: *seed, Text: string(text), Pipeline: *casePasses, Symbols: [][]map[string]int64{slices.Repeat([]map[string]int64{syms}, m.World)}}
	runs := Runs{Validate: *validate, Host: *hostEach > 0}
	if *cudaEach > 0 {
		runs.CUDA = FakeCUDA(false)
	}
	for range *repeat {
		if f := c.Check(t.Context(), runs); f != nil {
			t.Fatal(f)
		}
	}
}
