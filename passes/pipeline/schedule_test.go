package pipeline

import (
	"fmt"
	"math"
	"testing"
)

// even are times of chunks that take alike, with transfers that take none.
func even(chunks int, f, b, w float64) *Times {
	t := &Times{}
	for range chunks {
		t.Forward, t.Backward, t.Weights = append(t.Forward, f), append(t.Backward, b), append(t.Weights, w)
		t.Up, t.Down = append(t.Up, 0), append(t.Down, 0)
	}
	return t
}

// TestTheory holds what schedules take against the formulas of their papers: bubbles of
// (p-1)(F+B) for GPipe and 1F1B, where B includes what parameters need or goes on before it, a
// v-th of it with v chunks (Narayanan et al., 2021), and (p-1)(F+B-W) for ZB-H1 (Qi et al., 2023).
func TestTheory(t *testing.T) {
	for _, p := range []int{2, 3, 4, 8} {
		for _, rounds := range []int{1, 2, 3, 4} {
			m := rounds * p
			for _, c := range []struct {
				kind    Kind
				per     int
				wait    float64
				kept    int // on the first stage
				atLeast bool
			}{
				{GPipe, 1, float64(p-1) * 2, m, true},
				{OneFOneB, 1, float64(p-1) * 2, min(p, m), true},
				{Interleaved, 2, float64(p - 1), min(2*(p-1)+p+1, 2*m), true},
				{ZeroBubble, 1, float64(p - 1), min(p, m), false},
			} {
				n := float64(c.per)
				times := even(p*c.per, 1/n, 1/n, 1/n)
				s, err := NewSchedule(c.kind, Shape{Stages: p, Chunks: p * c.per, Micro: m}, times)
				if err != nil {
					t.Fatal(err)
				}
				l, err := s.Simulate(times)
				if err != nil {
					t.Fatal(err)
				}
				name := fmt.Sprintf("%s of %d micro-batches on %d stages", c.kind, m, p)
				wait := l.Makespan - float64(3*m)
				if wait > c.wait+1e-9 || c.atLeast && wait < c.wait-1e-9 {
					t.Errorf("%s: stages wait %v, want %v", name, wait, c.wait)
				}
				if want := wait / l.Makespan; math.Abs(l.Bubble-want) > 1e-9 {
					t.Errorf("%s: bubble %v, want %v", name, l.Bubble, want)
				}
				if l.InFlight[0] > c.kept || c.atLeast && l.InFlight[0] < c.kept {
					t.Errorf("%s: the first stage keeps %d, want %d", name, l.InFlight[0], c.kept)
				}
			}
		}
	}
}

// TestMost bounds what stages keep, and still ends.
func TestMost(t *testing.T) {
	times := even(4, 1, 1, 1)
	for most := 1; most <= 4; most++ {
		last := math.Inf(1)
		for _, kind := range []Kind{OneFOneB, ZeroBubble} {
			s, err := NewSchedule(kind, Shape{Stages: 4, Chunks: 4, Micro: 8, MaxInFlight: most}, times)
			if err != nil {
				t.Fatal(err)
			}
			l, err := s.Simulate(times)
			if err != nil {
				t.Fatal(err)
			}
			for st, kept := range l.InFlight {
				if kept > most {
					t.Errorf("%s, %d allowed: stage %d keeps %d", kind, most, st, kept)
				}
			}
			if l.Makespan > last {
				t.Errorf("%s takes %v, 1f1b %v", kind, l.Makespan, last)
			}
			last = l.Makespan
		}
	}
	for kind, per := range map[Kind]int{GPipe: 1, Interleaved: 2} {
		if _, err := NewSchedule(kind, Shape{Stages: 4, Chunks: 4 * per, Micro: 8, MaxInFlight: 4}, times); err == nil {
			t.Errorf("%s keeps to 4", kind)
		}
	}
	for _, bad := range []Shape{{}, {Stages: 2, Chunks: 3, Micro: 1}, {Stages: 2, Chunks: 2}} {
		if _, err := NewSchedule(OneFOneB, bad, times); err == nil {
			t.Errorf("%+v is a shape", bad)
		}
	}
	if _, err := NewSchedule(Interleaved, Shape{Stages: 4, Chunks: 8, Micro: 6}, times); err == nil {
		t.Error("6 micro-batches are rounds of 4")
	}
	if _, err := NewSchedule("none", Shape{Stages: 2, Chunks: 2, Micro: 1}, times); err == nil {
		t.Error("none is a schedule")
	}
}
