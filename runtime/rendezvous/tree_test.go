package rendezvous

import (
	"math/rand/v2"
	"testing"
)

// TestTreeShape: whoever is behind a rank reaches rank 0 through it, and nobody has more
// children than the base allows.
func TestTreeShape(t *testing.T) {
	for base := 2; base <= 8; base++ {
		for _, world := range []int{1, 2, 7, 64, 300} {
			tr := tree{base, world}
			children := map[int]int{}
			for r := 1; r < world; r++ {
				p := tr.parent(r)
				children[p]++
				if p >= r || r >= tr.past(p) || tr.past(r) > tr.past(p) {
					t.Fatalf("base %d: %d of %d has parent %d, past %d and %d", base, r, world, p, tr.past(r), tr.past(p))
				}
			}
			for r, n := range children {
				digits := 1
				for d := 1; d < world; d *= base {
					digits++
				}
				if n > (base-1)*digits || r > 0 != tr.inner(r) && r > 0 {
					t.Fatalf("base %d: %d of %d has %d children", base, r, world, n)
				}
			}
		}
	}
}

// TestThousands: 4,096 ranks join, agree, disagree and leave; and if one dies that others are
// behind, all that live hear which.
func TestThousands(t *testing.T) {
	for _, dies := range []int{0, 128} {
		f := newForest(rand.New(rand.NewPCG(1, uint64(dies))), treeBase, 4096, []byte("AFAL"))
		most := 0
		for goes := true; goes; {
			goes = false
			for _, l := range f.ranks {
				if dies > 0 && len(f.ranks[dies].got) == 2 {
					f.die(f.ranks[dies])
				}
				for {
					turns := f.turnsOf(l)
					if len(turns) == 0 {
						break
					}
					turns[0]()
					goes = true
				}
			}
			most = max(most, len(f.c.links))
		}
		if err := f.check(dies == 0); err != nil || most != 127 {
			t.Fatalf("%d links of rank 0; %v", most, err)
		}
		for _, l := range f.ranks {
			if n := len(l.got); l.rank != dies && (n != 3 && l.got[n-1] != "over" || dies > 0 && l.got[n-1] == "") {
				t.Fatalf("rank %d: %q", l.rank, l.got)
			}
		}
	}
}

// TestTree: in worlds of random shape, with processes that die at any time and messages that
// take any time, every barrier ends in one way for all ranks that live, but for those whose way
// to rank 0 has ended, which know through whom; no rank waits for ever, and nothing is kept.
func TestTree(t *testing.T) {
	worlds := 2000
	if testing.Short() {
		worlds = 300
	}
	deaths, failed, released := 0, 0, 0
	for seed := range worlds {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		f := newForest(rng, 2+rng.IntN(3), 1+rng.IntN(24), []byte("ASFSAL"))
		kill := rng.IntN(3)
		cancels := max(rng.IntN(12)-8, 0)
		for range cancels {
			f.ranks[rng.IntN(len(f.ranks))].script = []byte([]string{"ASTL", "ASCSAL", "TSFSAL", "ASL", "GL"}[rng.IntN(5)])
		}
		at := rng.IntN(40 * len(f.ranks))
		for step := 0; ; step++ {
			if step >= at && len(f.dead) < kill && step%5 == 0 {
				f.die(f.ranks[rng.IntN(len(f.ranks))])
			}
			turns := f.turns()
			if len(turns) == 0 {
				break
			}
			turns[rng.IntN(len(turns))]()
		}
		if err := f.check(len(f.dead) == 0 && cancels == 0); err != nil {
			t.Fatalf("seed %d: base %d, world %d, dead %v: %v", seed, f.t.base, f.t.world, f.dead, err)
		}
		deaths += len(f.dead)
		for _, l := range f.ranks {
			for _, g := range l.got {
				if g == "" {
					released++
				} else {
					failed++
				}
			}
		}
	}
	t.Logf("%d worlds, %d deaths, %d barriers of ranks released, %d failed", worlds, deaths, released, failed)
}
