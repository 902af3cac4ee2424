// Package leak fails tests that leak goroutines, descriptors, mappings
// of shared memory, or child processes.
package leak

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/stall"
)

// looks is how often More looks until it takes what has been told to end to stay: counted, because
// a stall of the machine lets nothing end.
const looks = 10_000

// Check fails t if it ends with more than there is now.
func Check(t testing.TB) {
	t.Helper()
	before := Now()
	t.Cleanup(func() {
		if more := before.More(); more != "" {
			buf := make([]byte, 1<<18)
			t.Errorf("%s\n%s", more, buf[:runtime.Stack(buf, true)])
		}
	})
}

// Held is how many of each kind there are. All but goroutines are known on Linux only.
type Held struct{ goroutines, files, mappings, processes int }

// Now counts.
func Now() Held { return Held{runtime.NumGoroutine(), files(), mappings(), processes()} }

// More says what there is more of than there was. What has been told to end is waited for.
func (h Held) More() string {
	var now Held
	ended := stall.Until(looks, func() bool {
		now = Now()
		return now.goroutines <= h.goroutines && now.files <= h.files && now.mappings <= h.mappings && now.processes <= h.processes
	})
	if ended {
		return ""
	}
	return fmt.Sprintf("before: %v; after: %v", h, now)
}

// String gives the counts.
func (h Held) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %d mappings of shared memory, %d child processes", h.goroutines, h.files, h.mappings, h.processes)
}

// files counts descriptors but those of Go's poller, which its first user opens for good.
func files() (n int) {
	names, _ := filepath.Glob("/proc/self/fd/*")
	for _, name := range names {
		if to, err := os.Readlink(name); err == nil && to != "anon_inode:[eventpoll]" && to != "anon_inode:[eventfd]" {
			n++
		}
	}
	return n
}

func mappings() int {
	b, _ := os.ReadFile("/proc/self/maps")
	return strings.Count(string(b), "/memfd:")
}

// processes counts children, those included that have ended and that nobody has waited for.
func processes() (n int) {
	names, _ := filepath.Glob("/proc/self/task/*/children")
	for _, name := range names {
		b, _ := os.ReadFile(name)
		n += len(strings.Fields(string(b)))
	}
	return n
}
