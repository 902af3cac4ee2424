package driver

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Submissions to a context do not mix, and those to another do not wait for them.
func TestTurns(t *testing.T) {
	var all turns
	var wg sync.WaitGroup
	order := map[Ctx][]int{}
	var mu sync.Mutex
	for i := range 200 {
		c := Ctx(i % 2)
		wg.Go(func() {
			turn, n := all.take(c)
			defer turn.end(n)
			for range 3 {
				mu.Lock()
				order[c] = append(order[c], i)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for c, list := range order {
		if len(list) != 300 {
			t.Fatalf("context %d: %d pieces of 300", c, len(list))
		}
		for i := 0; i < len(list); i += 3 {
			if list[i] != list[i+1] || list[i] != list[i+2] {
				t.Fatalf("context %d: pieces of %v are mixed", c, list[i:i+3])
			}
		}
	}
	held, n := all.take(0)
	defer held.end(n)
	other, n := all.take(1)
	other.end(n)
}

// A submission that the driver blocks does not keep the others waiting for ever, and its end, when it
// comes, does not end the turn of another.
func TestTurnOfBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x turn
		blocked := x.take()
		start := time.Now()
		second := x.take()
		if d := time.Since(start); d != patience {
			t.Errorf("waited %v, want %v", d, patience)
		}
		x.end(blocked)
		third := make(chan time.Duration)
		go func() {
			n := x.take()
			third <- time.Since(start)
			x.end(n)
		}()
		synctest.Wait()
		time.Sleep(patience / 2) // synctest's time
		x.end(second)
		if d := <-third; d != patience+patience/2 {
			t.Errorf("the third had its turn after %v", d)
		}
		if n := x.take(); n != 4 {
			t.Errorf("turn %d, want 4", n)
		}
	})
}

func BenchmarkTurn(b *testing.B) {
	var all turns
	for b.Loop() {
		t, n := all.take(1)
		t.end(n)
	}
}
