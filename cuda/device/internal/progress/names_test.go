package progress

import (
	"fmt"
	"testing"
)

// Names of calls are kept for a while.
func TestNames(t *testing.T) {
	const most, last = 100, 300
	n := Names{Group: "g", Most: most}
	for seq := range uint32(last) {
		n.Keep(seq, fmt.Sprint(seq))
	}
	if kept := len(n.recent) + len(n.older); kept > 2*most {
		t.Errorf("%d names are kept", kept)
	}
	if got := n.Of(last-most, ""); got != fmt.Sprint(last-most) {
		t.Errorf("%q", got)
	}
	if got := n.Of(0, "barrier"); got != `barrier on "g"` {
		t.Errorf("a forgotten barrier is %q", got)
	}
	if got := n.Of(0, ""); got != `collective on "g"` {
		t.Errorf("%q", got)
	}
}
