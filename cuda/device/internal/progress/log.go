package progress

import (
	"slices"
	"sync"
)

// Log is what this rank has enqueued of a group's collectives: the same on all ranks
// when none is late. No kernel says whom it waits for in a call that a peer has not come to;
// what the peer's log lacks does.
type Log struct {
	Name  string
	ranks []int

	mu    sync.Mutex
	count uint64 // collectives so far
	last  []some // the last of them
}

// NewLog is an empty one of some ranks of the job. Its name is the same on all of them,
// and no other's.
func NewLog(name string, ranks []int) *Log { return &Log{Name: name, ranks: ranks} }

// some is collectives that were enqueued together, after so many others.
type some struct {
	from  uint64
	names []Call
}

// Call is a collective, as errors name it.
type Call struct{ Name, Group string }

// keptCalls is how many enqueuings a log remembers, to name what a peer lacks.
const keptCalls = 64

// Add counts collectives; names is not changed afterwards. Where there is no log no
// peer takes part.
func (l *Log) Add(names []Call) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) == keptCalls {
		l.last = slices.Delete(l.last, 0, keptCalls/2)
	}
	l.last = append(l.last, some{l.count, names})
	l.count += uint64(len(names))
}

func (l *Log) counted() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// call is collective number n, counted from 0, if it is remembered.
func (l *Log) call(n uint64) (Call, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.last {
		if n >= s.from && n-s.from < uint64(len(s.names)) {
			return s.names[n-s.from], true
		}
	}
	return Call{}, false
}

// Entry is what a step enqueues of one group's collectives.
type Entry struct {
	Log   *Log
	Names []Call
}
