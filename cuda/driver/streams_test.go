package driver

import "testing"

// TestStreamPoolWaitsAlone: while a device takes its time to make a stream, others give theirs.
func TestStreamPoolWaitsAlone(t *testing.T) {
	var p StreamPool
	take := func(c Ctx, s Stream, during func()) {
		got, err := p.Take(c, false, func() (Stream, error) { during(); return s, nil })
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
