package driver

import (
	"errors"
	"testing"
)

// TestStreamPoolWaitsAlone: while a device takes its time to make a stream, others give theirs.
func TestStreamPoolWaitsAlone(t *testing.T) {
	var p StreamPool
	take := func(c Ctx, s Stream, during func()) {
		got, err := p.Take(c, false, func(bool) (Stream, error) { during(); return s, nil })
		if got != s || err != nil {
			t.Errorf("got stream %d, %v", got, err)
		}
	}
	take(1, 10, func() {
		if !p.mu.TryLock() {
			t.Fatal("the pool waits, too")
		}
		p.mu.Unlock()
		take(2, 20, func() {})
		if kept, err := p.Give(20, true); !kept || err != nil {
			t.Errorf("an idle stream is kept: %v, %v", kept, err)
		}
	})
	take(2, 20, func() { t.Error("there is an idle stream") })
	if kept, err := p.Give(10, false); kept || err != nil {
		t.Errorf("a stream with work is kept: %v, %v", kept, err)
	}
	take(1, 11, func() {})
}

// A context's streams are made once, and a reserve that could not be made is made by the next call.
func TestStreamPoolReserve(t *testing.T) {
	const reserve, high = 16, 10
	var p StreamPool
	var last Stream
	left := 3
	make := func(bool) (Stream, error) {
		if left == 0 {
			return 0, errors.New("no more")
		}
		left--
		last++
		return last, nil
	}
	if err := p.Reserve(1, reserve, make); err == nil || last != 3 {
		t.Fatalf("made %d streams, %v", last, err)
	}
	for range 2 {
		left = reserve
		if err := p.Reserve(1, reserve, make); err != nil || last != reserve {
			t.Fatalf("made %d streams, %v", last, err)
		}
	}
	seen := map[Stream]bool{}
	for i := range reserve {
		s, err := p.Take(1, i < high, func(bool) (Stream, error) { return 0, errors.New("the reserve is not used") })
		if err != nil || seen[s] {
			t.Fatalf("stream %d, %v", s, err)
		}
		seen[s] = true
	}
	if s, err := p.Take(1, true, make); s != reserve+1 || err != nil {
		t.Errorf("stream %d, %v", s, err)
	}
}
