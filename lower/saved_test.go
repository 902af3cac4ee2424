package lower_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ee968945/concert/cost"
	"github.com/seed-ee968945/concert/internal/joint"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower"
	"github.com/seed-ee968945/concert/passes"
	"github.com/seed-ee968945/concert/passes/partition"
	"github.com/seed-ee968945/concert/passes/standard"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/host"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// halves partitions a joint function and lowers forward and backward.
func halves(t *testing.T, f *ir.Func, budget float64) (mods []*rt.Module, bw *ir.Func) {
	t.Helper()
	p, err := standard.Table().Parse(fmt.Sprintf("partition{budget=%g}", budget))
	if err != nil {
		t.Fatal(err)
	}
	m := f.Module().Clone()
	g := passes.Manager{Costs: cost.TracedH200()}
	if _, err := g.Run(m, p); err != nil {
		t.Fatal(err)
	}
	for _, half := range []string{".fw", ".bw"} {
		prog, err := lower.Func(m.Func(f.Name + half))
		if err != nil {
			t.Fatal(err)
		}
		mod, err := rt.ModuleOf(prog)
		if err != nil {
			t.Fatal(err)
		}
		mods = append(mods, mod)
	}
	return mods, m.Func(f.Name + ".bw")
}

// What forward saves is part of the digest that ranks compare: where two ranks
// saved different values for backward, neither runs, and both name the difference.
func TestRanksAgreeOnSaved(t *testing.T) {
	f, _, err := joint.Load(testdata+"graphs", "tiny_tp2")
	if err != nil {
		t.Fatal(err)
	}
	few, fewBW := halves(t, f, 0)
	many, manyBW := halves(t, f, 1)
	again, _ := halves(t, f, 0)
	for k := range few {
		if few[k].Digest == many[k].Digest || few[k].Digest != again[k].Digest {
			t.Errorf("module %s: the digests do not tell what is saved", few[k].Name)
		}
	}
	if partition.SavedDigest(fewBW) == partition.SavedDigest(manyBW) {
		t.Fatal("both save the same")
	}
	for _, c := range []struct {
		name string
		mods [2][]*rt.Module
		same bool
		line string // the difference on one of the ranks
	}{
		{"same", [2][]*rt.Module{few, again}, true, ""},
		{"different", [2][]*rt.Module{few, many}, false, "output "},
		{"backward only", [2][]*rt.Module{few[1:], many[1:]}, false, "input "},
	} {
		t.Run(c.name, func(t *testing.T) {
			for r, err := range joinAll(t, c.mods[:]) {
				var e *rt.MismatchError
				switch {
				case c.same && err != nil:
					t.Errorf("rank %d: %v", r, err)
				case !c.same && (!errors.As(err, &e) || e.Rank != r || e.Peer != 1-r || e.Line == 0 || e.RankLine == e.PeerLine):
					t.Errorf("rank %d: got %v, want a DigestMismatchError that names a line", r, err)
				case !c.same && !strings.HasPrefix(e.RankLine, c.line) && !strings.HasPrefix(e.PeerLine, c.line):
					t.Errorf("rank %d: %v: want a line that begins with %q", r, err, c.line)
				}
			}
		})
	}
}

// joinAll lets ranks join one world with modules of their own.
func joinAll(t *testing.T, mods [][]*rt.Module) []error {
	opts := host.Options{Local: true}
	job := rendezvous.NewLocal()
	errs := make([]error, len(mods))
	var wg sync.WaitGroup
	for k := range mods {
		wg.Go(func() {
			cfg := rt.Config{Job: job, Timeout: 20 * time.Second, Env: &rt.Env{Rank: k, World: len(mods), LocalRank: k, LocalWorld: len(mods), Source: "the test"}}
			r, err := rt.Join(t.Context(), host.Opener(opts), cfg, mods[k]...)
			if errs[k] = err; err == nil {
				errs[k] = r.Close()
			}
		})
	}
	wg.Wait()
	return errs
}
