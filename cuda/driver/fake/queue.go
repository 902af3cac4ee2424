//go:build linux

package fake

import (
	"strings"
	"sync"
)

// Hardware queues. What streams put into one of them begins in the order in which it was put
// there: what waits holds up what is behind it, also of streams that wait for nothing. A kernel
// or a graph that runs holds up nothing but its own stream.

// queues are those of all devices.
type queues struct {
	mu    sync.Mutex
	each  int
	of    map[int][]*queue // by device
	taken map[int]int      // by device: how many streams have been made
}

// queue is one of them.
type queue struct {
	mu   sync.Mutex
	cond *sync.Cond
	list []*place // of what has not begun
}

// place is that of an operation in a queue.
type place struct{ q *queue }

// Queues gives each device so many queues, for the streams that are made from now on; 0 is one
// for each stream. Streams take them in turns, whether or not those before them are still there.
func (f *Driver) Queues(n int) {
	q := &f.queues
	q.mu.Lock()
	defer q.mu.Unlock()
	q.each, q.of, q.taken = n, map[int][]*queue{}, map[int]int{}
}

// count is how many queues a device has.
func (q *queues) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.each > 0 {
		return q.each
	}
	return 32
}

// Streams is how many streams all devices have had; one that was used again counts once.
func (f *Driver) Streams() (n int) {
	f.queues.mu.Lock()
	defer f.queues.mu.Unlock()
	for _, taken := range f.queues.taken {
		n += taken
	}
	return n
}

// nextQueue is that of a new stream.
func (f *Driver) nextQueue(dev int) *queue {
	q := &f.queues
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.each == 0 {
		return nil
	}
	for len(q.of[dev]) < q.each {
		n := &queue{}
		n.cond = sync.NewCond(&n.mu)
		q.of[dev] = append(q.of[dev], n)
	}
	at := q.taken[dev] % q.each
	q.taken[dev]++
	return q.of[dev][at]
}

// enter takes a place at the end.
func (q *queue) enter() *place {
	if q == nil {
		return nil
	}
	p := &place{q}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = append(q.list, p)
	return p
}

// await waits until all that is in front of the place has begun.
func (p *place) await() {
	p.q.mu.Lock()
	defer p.q.mu.Unlock()
	for p.q.list[0] != p {
		p.q.cond.Wait()
	}
}

// leave lets what is behind the place begin.
func (p *place) leave() {
	p.q.mu.Lock()
	defer p.q.mu.Unlock()
	p.q.list = p.q.list[1:]
	p.q.cond.Broadcast()
}

// inTurn does an operation when the queue of its stream has come to it.
func (op operation) inTurn(f *Driver) error {
	if op.place == nil {
		return op.do(f)
	}
	op.place.await()
	if strings.HasPrefix(op.what, "kernel ") || op.what == "cuGraphLaunch" {
		op.place.leave()
		return op.do(f)
	}
	defer op.place.leave()
	return op.do(f)
}
