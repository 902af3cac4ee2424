package runtime_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	rt "github.com/seed-ee968945/concert/runtime"
)

// Of many failures at once one counts, the same for everybody, and stays.
func TestLatch(t *testing.T) {
	l := rt.NewLatch()
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
	for i := range n {
		errs[i] = fmt.Errorf("failure %d", i)
		wg.Go(func() {
			first[i] = l.Set(errs[i])
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
	if l.Set(errors.New("late")) || l.Err() != errs[winner] {
		t.Errorf("a later failure counts: %v", l.Err())
	}
}

func BenchmarkLatch(b *testing.B) {
	l := rt.NewLatch()
	for b.Loop() {
		if l.Err() != nil {
			b.Fatal("a failure")
		}
	}
}
