package rendezvous

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// Of many failures at once one counts, the same for everybody, and stays.
func TestFailure(t *testing.T) {
	l := NewFailure()
	select {
	case <-l.Done():
		t.Error("done before a failure")
	default:
	}
	if err := l.Err(); err != nil {
		t.Errorf("%v before a failure", err)
	}
	const n = 16
	first, seen := make([]bool, n), make([]error, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	var told atomic.Int32
	for i := range n {
		errs[i] = fmt.Errorf("failure %d", i)
		wg.Go(func() {
			first[i] = l.Set(errs[i], func() {
				if l.Err() != nil {
					t.Error("seen before the others are told")
				}
				told.Add(1)
			})
			<-l.Done()
			seen[i] = l.Err()
		})
	}
	wg.Wait()
	winner := -1
	for i := range n {
		if first[i] {
			if winner >= 0 {
				t.Errorf("%d and %d were first", winner, i)
			}
			winner = i
		}
	}
	if winner < 0 {
		t.Fatal("nobody was first")
	}
	for i, err := range seen {
		if err != errs[winner] {
			t.Errorf("%d saw %v, not %v", i, err, errs[winner])
		}
	}
	if l.Set(errors.New("late"), func() { told.Add(1) }) || l.Err() != errs[winner] {
		t.Errorf("a later failure counts: %v", l.Err())
	}
	if told.Load() != 1 {
		t.Errorf("the others were told %d times", told.Load())
	}
}

func BenchmarkFailure(b *testing.B) {
	l := NewFailure()
	for b.Loop() {
		if l.Err() != nil {
			b.Fatal("a failure")
		}
	}
}
