//go:build linux

package cuda

import (
	"testing"
	"time"

	"github.com/seed-ee968945/concert/internal/stall"
)

// plenty is a deadline for what has to come, however busy the machine is. What has to come without it
// and takes longer has waited for it; less says nothing.
const plenty = 3 * time.Minute

// looks is how often that is asked for which has to come.
const looks = 20_000

// until waits for what only a device, another process or the scheduler can do, and fails the test if
// that does not come.
func until(t testing.TB, come func() bool) {
	t.Helper()
	if !stall.Until(looks, come) {
		t.Fatal("what it waits for does not come")
	}
}

// eased runs a subtest in which waits of a group are to end by their limit. Where the machine stands
// still they may have waited for others than they should, which f then says: all get more time, until no
// stall excuses it.
func eased(t *testing.T, name string, limit time.Duration, f func(t *testing.T, limit time.Duration) (others string)) {
	t.Run(name, func(t *testing.T) {
		for others := f(t, limit); others != ""; others = f(t, limit) {
			if limit *= 4; limit > plenty {
				t.Fatal(others)
			}
			t.Log(others)
		}
	})
}
