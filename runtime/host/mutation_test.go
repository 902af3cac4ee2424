package host_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/internal/hostrun"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/interp/step"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/program"
	"github.com/seed-ee968945/concert/program/progtest"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
)

var (
	hostMutants = flag.Int("hostmutants", 3, "mutants of each kind and program to run; 0 for all")
	hostSeeds   = flag.Int("hostseeds", 8, "random programs of which to run mutants")
)

// A slowdown says which ranks and streams are held back, before each of their
// instructions.
type slowdown struct {
	what string
	slow func(rank int, stream string) bool
}

// slowdowns are ways to disturb p: each stream slow, each stream fast beside the
// others, and a rank slow. Streams that are not of the program bring its async
// inputs.
func slowdowns(p *program.Program) []slowdown {
	out := []slowdown{
		{"no delay", func(int, string) bool { return false }},
		{"rank 0 slow", func(rank int, _ string) bool { return rank == 0 }},
		{"the last rank slow", func(rank int, _ string) bool { return rank == p.World-1 }},
		{"inputs in flight slow", func(_ int, stream string) bool {
			return !slices.ContainsFunc(p.Streams, func(s program.Stream) bool { return s.Name == stream })
		}},
	}
	for i := range p.Streams {
		name := p.Streams[i].Name
		out = append(out, slowdown{name + " slow", func(_ int, stream string) bool { return stream == name }},
			slowdown{name + " fast", func(_ int, stream string) bool { return stream != name }})
	}
	return out
}

// seen is what a run leaves: by rank, the outputs' tensors and then the inputs that
// the caller keeps.
type seen [][][]byte

// runDelayed runs a program on goroutine ranks, from arenas full of garbage. What is slow
// waits until nothing else can go on: time passes only then.
func runDelayed(t *testing.T, p *program.Program, in progtest.Inputs, d slowdown) (out seen, err error) {
	synctest.Test(t, func(t *testing.T) { out, err = execute(t.Context(), p, in, d) })
	return out, err
}

func execute(ctx context.Context, p *program.Program, in progtest.Inputs, d slowdown) (seen, error) {
	s, err := hostrun.OfProgram(p)
	if err != nil {
		return nil, err
	}
	// Peers look at their words every half millisecond, and what is slow sleeps once for each
	// instruction.
	const pause = 2 * time.Millisecond
	timeout := pause * time.Duration(2*len(p.Instrs)+len(p.Inputs)+50)
	out := make(seen, p.World)
	opts := host.Options{StreamHook: func(rank int, stream string) {
		if d.slow(rank, stream) {
			time.Sleep(pause)
		}
	}}
	cfg := rt.Config{Timeout: timeout, Funcs: map[string]rt.Func{progtest.Target: {Host: called}}}
	err = host.Local(ctx, p.World, cfg, opts, []*rt.Module{s.Module}, func(ctx context.Context, r *rt.Rank) error {
		k := r.Info().Rank
		all, err := r.In(s.Module, rt.Tensor{DType: dtype.U8, Shape: []int64{p.Arena}})
		if err != nil {
			return err
		}
		garbage := make([]byte, p.Arena)
		g := rand.New(rand.NewPCG(uint64(k), 1))
		for i := range garbage {
			garbage[i] = byte(g.Uint32())
		}
		if err := r.Upload(all, garbage); err != nil {
			return err
		}
		if err := r.Barrier(ctx); err != nil {
			return err
		}
		var ts []interp.Tensor
		for i := range p.Inputs {
			for j := range p.Inputs[i].Tensors {
				t := s.Module.Inputs[i].Tensors[j]
				ts = append(ts, interp.Tensor{DType: t.DType, Shape: t.Shape, Data: in[k][i][j]})
			}
		}
		vs, err := hostrun.Inputs(ctx, r, s.Module, ts)
		if err != nil {
			return err
		}
		if vs, err = rt.RunModule(ctx, r, s.Module, s.Run, vs, rt.Options{}); err != nil {
			return err
		}
		got, err := hostrun.Tensors(ctx, r, vs)
		if err != nil {
			return err
		}
		for _, t := range got {
			out[k] = append(out[k], t.Data)
		}
		for i := range p.Inputs {
			if q := &p.Inputs[i]; !q.Async && q.Role != "saved" && q.Role != "tangent" {
				at, err := r.In(s.Module, s.Module.Inputs[i].Tensors[0])
				if err != nil {
					return err
				}
				data, err := r.Download(at)
				if err != nil {
					return err
				}
				out[k] = append(out[k], data)
			}
		}
		return nil
	})
	return out, err
}

// called is the function of random programs' calls: it writes operand 0, if anything.
func called(c *rt.FuncCall) error {
	var ins []hostops.Tensor
	for _, t := range c.Ins {
		strides := t.Strides
		if strides == nil {
			strides = hostops.RowMajor(t.Shape)
		}
		ins = append(ins, hostops.Tensor{DType: t.DType, Shape: t.Shape, Strides: strides, Data: t.Data})
	}
	return progtest.Call(c.Rank, ins[:len(c.Attrs.Ints("writes"))], ins)
}

// hostHarm runs a program under every slowdown and says how it goes wrong, "" if it
// never does.
func hostHarm(t *testing.T, p *program.Program, in progtest.Inputs, want seen) string {
	for _, d := range slowdowns(p) {
		got, err := runDelayed(t, p, in, d)
		if err != nil {
			return fmt.Sprintf("%s: %v", d.what, err)
		}
		for r := range want {
			for k := range want[r] {
				if !bytes.Equal(got[r][k], want[r][k]) {
					return fmt.Sprintf("%s: rank %d result %d differs", d.what, r, k)
				}
			}
		}
	}
	return ""
}

// subject is a program whose mutants are run.
type subject struct {
	name  string
	p     *program.Program
	in    progtest.Inputs
	check func(*program.Program) error
	skip  string // kind of mutation that makes another correct program
}

// The checker refuses every mutant that gives other bytes, hangs or fails on the
// host device with streams and ranks held back. The programs are the golden ones
// that the checker accepts, random ones with just the events that it asked for, and
// traced steps.
func TestCheckedMutantsOnHost(t *testing.T) {
	if testing.Short() {
		t.Skip("runs hundreds of programs under a dozen delays each")
	}
	var mu sync.Mutex
	total := map[string]*progtest.Score{}
	var kinds []string
	t.Run("programs", func(t *testing.T) {
		for _, s := range subjects(t) {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				for _, m := range scoreOnHost(t, s) {
					mu.Lock()
					if total[m.Kind] == nil {
						total[m.Kind] = &progtest.Score{Kind: m.Kind}
						kinds = append(kinds, m.Kind)
					}
					k := total[m.Kind]
					k.Mutants += m.Mutants
					k.Harmful += m.Harmful
					k.Detected += m.Detected
					k.FalseAlarms += m.FalseAlarms
					mu.Unlock()
				}
			})
		}
	})
	slices.Sort(kinds)
	var sum progtest.Score
	for _, kind := range kinds {
		s := total[kind]
		t.Logf("%-16s %4d mutants, %4d go wrong on the host device, %4d of them noticed, %d others refused", s.Kind, s.Mutants, s.Harmful, s.Detected, s.FalseAlarms)
		sum.Mutants += s.Mutants
		sum.Harmful += s.Harmful
		sum.Detected += s.Detected
		sum.FalseAlarms += s.FalseAlarms
	}
	t.Logf("all: %d mutants, mutation score %d of %d, %d refused that went well", sum.Mutants, sum.Detected, sum.Harmful, sum.FalseAlarms)
	if sum.Harmful < 20 {
		t.Error("hardly any mutant does harm, so the score says nothing")
	}
}

// scoreOnHost runs a program, which must go well, and a sample of its mutants.
func scoreOnHost(t *testing.T, s subject) []progtest.Score {
	o, err := progtest.Run(s.p, s.in, progtest.Schedule{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	want, err := runDelayed(t, s.p, s.in, slowdowns(s.p)[0])
	if err != nil {
		t.Fatal(err)
	}
	for r := range o.Outputs {
		k := 0
		for _, ts := range o.Outputs[r] {
			for _, data := range ts {
				if !bytes.Equal(data, want[r][k]) {
					t.Errorf("rank %d, output tensor %d: the host device and the simulator differ", r, k)
				}
				k++
			}
		}
	}
	if harm := hostHarm(t, s.p, s.in, want); harm != "" {
		t.Fatalf("passes the checker, but %s", harm)
	}
	mutants := sample(progtest.Mutants(s.p), *hostMutants)
	mutants = slices.DeleteFunc(mutants, func(m progtest.Mutant) bool { return m.Kind == s.skip })
	scores := make([]progtest.Score, len(mutants))
	for i, m := range mutants {
		refused := s.check(m.Program)
		harm := hostHarm(t, m.Program, s.in, want)
		c := progtest.Score{Kind: m.Kind, Mutants: 1}
		switch {
		case harm != "" && refused != nil:
			c.Harmful, c.Detected = 1, 1
		case harm != "":
			c.Harmful = 1
			t.Errorf("missed %s: %s", m.What, harm)
		case refused != nil:
			c.FalseAlarms = 1
		}
		scores[i] = c
	}
	return scores
}

// sample keeps at most n mutants of each kind, evenly spread; all if n is 0.
func sample(ms []progtest.Mutant, n int) []progtest.Mutant {
	if n <= 0 {
		return ms
	}
	count, at := map[string]int{}, map[string]int{}
	for _, m := range ms {
		count[m.Kind]++
	}
	return slices.DeleteFunc(ms, func(m progtest.Mutant) bool {
		k, c := at[m.Kind], count[m.Kind]
		at[m.Kind]++
		return c > n && (k+1)*n/c == k*n/c
	})
}

// subjects lists the programs.
func subjects(t *testing.T) []subject {
	const testdata = "../../testdata/"
	var out []subject
	files, err := filepath.Glob(testdata + "golden/check/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	random := func(s subject, seed uint64) {
		s.check = program.Check
		if s.in, err = progtest.RandomInputs(s.p, seed); err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p, err := program.Parse(file, string(a.Files[0].Data))
		calls := func(in program.Instr) bool { return in.Op == "call" } // functions of the caller
		if err == nil && len(p.Symbols) == 0 && !slices.ContainsFunc(p.Instrs, calls) && program.Check(p) == nil {
			random(subject{name: filepath.Base(file), p: p}, 1)
		}
	}
	for seed, taken := uint64(0), 0; taken < *hostSeeds; seed++ {
		p, err := progtest.AddEvents(progtest.Random(seed, 12))
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(p.Instrs, func(in program.Instr) bool { return in.IsCall() && in.Kind == program.Launch && in.Group >= 0 }) {
			continue // a function of the host sees no other rank's operands
		}
		taken++
		// These update values in place, so that two collectives exchanged may be
		// another program, as good as the first.
		random(subject{name: fmt.Sprintf("random%d", seed), p: p, skip: "swap collectives"}, seed)
	}
	for _, name := range []string{"tiny_fsdp2", "tiny_tpsp2", "tiny_moe2"} {
		pair, err := step.Load(testdata+"graphs", name)
		if err != nil {
			t.Fatal(err)
		}
		p, err := lower.Func(pair.Forward)
		if err != nil {
			t.Fatal(err)
		}
		all, err := interp.RandomInputs(pair.Forward, 1, interp.RandomOptions{})
		if err != nil {
			t.Fatal(err)
		}
		in := progtest.InputsOf(p, func(rank, k int) []byte { return all[rank][k].Data })
		out = append(out, subject{name: name + ".fw", p: p, in: in, check: func(p *program.Program) error {
			r, err := program.CheckWith(p, lower.CheckOptions())
			if err != nil {
				return err
			}
			return r.Err()
		}})
	}
	return out
}
