package sched

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
)

// TestGivenUpRunsAreNoLoss: a run that ends as the better one is never given up, and ends
// as it does without a rival; others mostly are.
func TestGivenUpRunsAreNoLoss(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	better, up, late := 0, 0, 0
	for range 100 {
		m := randomModel(r, 20+r.IntN(60))
		a, err := newAttempt(m, Options{})
		if err != nil {
			t.Fatal(err)
		}
		e := newEngine(a.p, newCertificate(a.p, a.search.ref, a.r.Cap))
		for _, p := range []*problem{a.p, jittered(a.p, r)} {
			e.p, e.bound = p, newBound(p)
			var rivals []schedule
			for k := range 8 {
				pol := policy{tail: a.search.perturbed(a.search.tails[k%2], uint64(k)), window: a.search.mean * float64(int(1)<<k), patience: 0.25 * float64(k%3), feed: k%4 == 3}
				e.rival, e.ranked = nil, nil
				whole := e.run(pol)
				for i := range rivals {
					e.rival, e.ranked = &rivals[i], nil
					got := e.run(pol)
					switch given := math.IsInf(got.makespan, 1); {
					case given && whole.better(e.rival):
						t.Fatalf("given up: %g ms at %d bytes, against %g ms at %d", whole.makespan, whole.peak, e.rival.makespan, e.rival.peak)
					case given:
						up++
					case !reflect.DeepEqual(got, whole):
						t.Fatal("a rival changes the schedule")
					case whole.better(e.rival):
						better++
					default:
						late++
					}
				}
				rivals = append(rivals, whole)
			}
		}
	}
	t.Logf("%d better, %d given up, %d not better and seen at the end", better, up, late)
	if better == 0 || up < late {
		t.Error("giving up saves too little")
	}
}

// jittered is p with durations that no sum of which is exact.
func jittered(p *problem, r *rand.Rand) *problem {
	q := *p
	q.dur = make([]float64, len(p.dur))
	for j := range q.dur {
		q.dur[j] = p.dur[j] * r.Float64()
	}
	return &q
}

// TestMaxOf compares with values in a list.
func TestMaxOf(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	for range 200 {
		v := make([]int64, 1+r.IntN(20))
		for i := range v {
			v[i] = r.Int64N(100)
		}
		tree := newRangeMax(len(v))
		tree.set(v)
		for range 20 {
			l := r.IntN(len(v))
			h := l + 1 + r.IntN(len(v)-l)
			want := v[l]
			for _, x := range v[l:h] {
				want = max(want, x)
			}
			if got := tree.maxOf(int32(l), int32(h)); got != want {
				t.Fatalf("maximum of [%d, %d) of %v: %d", l, h, v, got)
			}
			d := r.Int64N(100) - 50
			for i := l; i < h; i++ {
				v[i] += d
			}
			tree.add(int32(l), int32(h), d)
		}
	}
}
