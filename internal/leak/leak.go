// Package leak fails tests that leave something behind: goroutines, descriptors, mappings
// of shared memory, child processes.
package leak

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// patience is how long what has been told to end may take to.
const patience = 20 * time.Second

// Check fails t if it ends with more than there is now.
func Check(t testing.TB) {
	t.Helper()
	before := count()
	t.Cleanup(func() {
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			after := count()
			if after.within(before) {
				return
			}
			if time.Now().After(end) {
				buf := make([]byte, 1<<18)
				t.Errorf("before: %v\nafter: %v\n%s", before, after, buf[:runtime.Stack(buf, true)])
				return
			}
		}
	})
}

// held is how many of each kind there are. All but goroutines are known on Linux only.
type held struct{ goroutines, files, mappings, processes int }

func count() held { return held{runtime.NumGoroutine(), files(), mappings(), processes()} }

func (h held) within(o held) bool {
	return h.goroutines <= o.goroutines && h.files <= o.files && h.mappings <= o.mappings && h.processes <= o.processes
}

func (h held) String() string {
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
