package foreground

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgress draws nothing within the first second of a command, then what goes
// on, and leaves a clean line.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		p := &Progress{w: &b, delay: time.Second, every: 200 * time.Millisecond}
		end := p.Phase("reading x.ir")
		time.Sleep(900 * time.Millisecond)
		end()
		if b.Len() > 0 {
			t.Errorf("drew %q within a second", b.String())
		}
		end = p.Phase("passes")
		p.Step(2, 3, "overlap")
		time.Sleep(5 * time.Second)
		end()
		if got := b.String(); !strings.Contains(got, "\r\x1b[K[2/3] overlap, 5 s") || !strings.HasSuffix(got, "\r\x1b[K") {
			t.Errorf("drew %q", got)
		}
	})
}

// A command whose standard error is no terminal has no progress.
func TestNoProgress(t *testing.T) {
	p := NewProgress(&bytes.Buffer{}, func(string) string { return "" })
	if p != nil {
		t.Fatal("a buffer is not a terminal")
	}
	end := p.Phase("reading")
	p.Step(1, 2, "x")
	end()
}
