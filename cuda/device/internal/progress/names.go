package progress

import (
	"fmt"
	"sync"
)

// Names are what the calls of a group are called, by the number that kernels report: of the last Most at least, and
// of twice as many at most.
type Names struct {
	Group string
	Most  int

	mu            sync.Mutex
	recent, older map[uint32]string
}

// Keep keeps the name of a call.
func (n *Names) Keep(seq uint32, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.recent == nil || len(n.recent) >= n.Most {
		n.recent, n.older = map[uint32]string{}, n.recent
	}
	n.recent[seq] = name
}

// Of names a call, and one that has been forgotten by what it was, if that is known.
func (n *Names) Of(seq uint32, what string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range [2]map[uint32]string{n.recent, n.older} {
		if s, ok := m[seq]; ok {
			return s
		}
	}
	if what == "" {
		what = "collective"
	}
	return fmt.Sprintf("%s on %q", what, n.Group)
}
