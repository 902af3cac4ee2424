package sched

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// TestKnownChangesNothing: calls that share what is known answer as calls that do not.
func TestKnownChangesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	used := 0
	for range 10 {
		m := randomModel(r, 30+r.IntN(40))
		shared := &Known{}
		for k, percent := range []int64{400, 100, 105, 60, 110, 150, 100, 60} {
			a, err := newAttempt(m, Options{Known: shared})
			if err != nil {
				t.Fatal(err)
			}
			opts := Options{Cap: a.r.Input.Peak * percent / 100, ExactStates: -1, Runs: 6 * (k % 3)}
			if k > 5 {
				opts.ExactStates = 0
			}
			want, wantErr := Schedule(m, opts)
			known := len(shared.given.outcomes)
			opts.Known = shared
			got, err := Schedule(m, opts)
			if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(err, wantErr) {
				t.Fatalf("cap %d: %+v, %v with what other calls know, %+v, %v without", opts.Cap, got, err, want, wantErr)
			}
			if len(shared.given.outcomes) == known {
				used++
			}
		}
	}
	if used == 0 {
		t.Error("no outcome was used again")
	}
}

// TestKnownRuns: where the limits of a run are within those of an earlier one, it makes the
// same schedule.
func TestKnownRuns(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	same, other := 0, 0
	for range 60 {
		m := randomModel(r, 20+r.IntN(60))
		a, err := newAttempt(m, Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := a.search
		e := newEngine(a.p, newCertificate(a.p, s.ref, a.r.Cap))
		orders := map[int][]int32{}
		for range 60 {
			s.cap = s.floor + r.Int64N(2*s.floor)
			e.cert.limit = s.cap
			pol := policy{tail: s.tails[0], window: s.mean * math.Exp2(8*r.Float64()-3), reserve: s.long * float64(r.IntN(6))}
			pol.lead = min(pol.window, 4*s.long)
			if r.IntN(8) == 0 {
				pol.reserve = math.Inf(1)
			}
			order := slices.Clone(e.run(pol).order)
			for i, x := range s.made {
				switch {
				case x.is(e, try{}, &pol, s.cap):
					same++
					if !slices.Equal(order, orders[i]) {
						t.Fatalf("%+v under %d bytes makes another schedule than the run with %+v and %+v", pol, s.cap, x.limits, x.cap)
					}
				case !slices.Equal(order, orders[i]):
					other++
				}
			}
			orders[len(s.made)] = order
			s.keep(e, try{})
		}
	}
	if t.Logf("%d runs are known, %d pairs make different schedules", same, other); same < 100 || other < 100 {
		t.Error("too few")
	}
}
