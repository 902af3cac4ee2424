//go:build linux

package fake

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
	"golang.org/x/sys/unix"
)

// operation is one item of a stream: work, or a wait for or a signal of an event.
type operation struct {
	lane int // stream within a graph
	run  func() error
	what string // the call
	from trace
	rec  *mark // closed when reached
	wait *mark
	// Of what runs other items: a conditional node, and a capture that became an item.
	divide *division
	part   *graph
	place  *place // in a queue that streams share
}

// mark is one recording of an event.
type mark struct {
	done chan struct{}
	at   time.Time
}

type stream struct {
	f     *Driver
	id    driver.Stream // in the pool
	dev   int
	mu    sync.Mutex
	cond  *sync.Cond
	queue []operation
	busy  bool
	stop  bool
	err   error
	graph *graph // while capturing
	lane  int
	on    *queue // nil for one of its own
}

type event struct {
	mu   sync.Mutex
	mark *mark
	in   *graph // the capture it was recorded in, if any
}

func newStream(f *Driver, dev int) *stream {
	s := &stream{f: f, dev: dev}
	s.cond = sync.NewCond(&s.mu)
	s.on = f.nextQueue(dev)
	return s
}

// work runs the items of the stream in order until it is stopped.
func (s *stream) work() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for len(s.queue) == 0 {
			if s.busy = false; s.stop {
				s.f.mu.Lock()
				delete(s.f.parted, s)
				s.f.mu.Unlock()
			}
			s.cond.Broadcast()
			if s.stop {
				return
			}
			s.cond.Wait()
		}
		op := s.queue[0]
		s.queue = s.queue[1:]
		s.busy = true
		s.mu.Unlock()
		err := op.inTurn(s.f)
		s.mu.Lock()
		if err != nil && s.err == nil {
			s.err = err
		}
	}
}

func (op operation) do(f *Driver) error {
	switch {
	case op.rec != nil:
		op.rec.at = time.Now()
		close(op.rec.done)
	case op.wait != nil:
		<-op.wait.done
	case op.run != nil:
		return f.guard.guarded(op.what, op.from, op.run)
	}
	return nil
}

func (s *stream) push(op operation) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.graph != nil {
		op.lane = s.lane
		s.graph.ops = append(s.graph.ops, op)
		return nil
	}
	if s.err != nil {
		return s.err
	}
	op.place = s.on.enter()
	s.queue = append(s.queue, op)
	s.busy = true
	s.cond.Broadcast()
	return nil
}

func (s *stream) sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.graph != nil {
		return &driver.Error{Call: "cuStreamSynchronize", Code: 900, Name: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", Text: "the stream is capturing"}
	}
	for len(s.queue) > 0 || s.busy {
		s.cond.Wait()
	}
	return s.err
}

// StreamCreate starts a stream's goroutine.
func (f *Driver) StreamCreate(c driver.Ctx) (driver.Stream, error) { return f.takeStream(c, false) }

// StreamCreateHighPriority is StreamCreate: every stream has its own goroutine.
func (f *Driver) StreamCreateHighPriority(c driver.Ctx) (driver.Stream, error) {
	return f.takeStream(c, true)
}

// takeStream gives a stream of the device, whatever the handle of its context. One that is used
// again has a new handle, so that the old one is found where it is still used.
func (f *Driver) takeStream(c driver.Ctx, high bool) (driver.Stream, error) {
	if err := f.call(); err != nil {
		return 0, err
	}
	ctx, err := lookUp[*primaryContext](f, "cuStreamCreate", uint64(c))
	if err != nil {
		return 0, err
	}
	id, err := f.streams.Take(driver.Ctx(ctx.dev), high, func(high bool) (driver.Stream, error) {
		if err := f.alone("cuStreamCreate", ctx.dev); err != nil {
			return 0, err
		}
		return f.makeStream(ctx.dev)(high)
	})
	if err != nil {
		return 0, err
	}
	f.mu.Lock()
	st := f.kept[id]
	delete(f.kept, id)
	f.mu.Unlock()
	go st.work()
	return driver.Stream(f.put(st)), nil
}

// makeStream makes streams of a device for its pool, without their goroutines.
func (f *Driver) makeStream(dev int) func(high bool) (driver.Stream, error) {
	return func(bool) (driver.Stream, error) {
		st := newStream(f, dev)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.ids++
		st.id = f.ids
		f.kept[st.id] = st
		return st.id, nil
	}
}

// StreamDestroy lets the stream finish and ends it. An idle one is kept, without its goroutine.
func (f *Driver) StreamDestroy(_ driver.Ctx, s driver.Stream) error {
	left := f.common.Destroying(s)
	st, err := drop[*stream](f, "cuStreamDestroy", uint64(s))
	if err != nil {
		return errors.Join(left, err)
	}
	st.mu.Lock()
	f.mu.Lock()
	f.parted[st] = true // its goroutine ends that
	f.mu.Unlock()
	st.stop = true
	st.cond.Broadcast()
	for len(st.queue) == 0 && !st.busy && f.isParted(st) { // idle streams are gone at once
		st.cond.Wait()
	}
	idle := !f.isParted(st) && st.err == nil && st.graph == nil
	if idle {
		st.stop = false
		f.mu.Lock()
		f.kept[st.id] = st
		f.mu.Unlock()
	}
	st.mu.Unlock()
	_, err = f.streams.Give(st.id, idle)
	return errors.Join(left, err, f.call())
}

func (f *Driver) stream(call string, s driver.Stream) (*stream, error) {
	if err := f.call(); err != nil {
		return nil, err
	}
	return lookUp[*stream](f, call, uint64(s))
}

// StreamSync waits until the stream is empty.
func (f *Driver) StreamSync(_ driver.Ctx, s driver.Stream) error {
	st, err := f.stream("cuStreamSynchronize", s)
	if err != nil {
		return err
	}
	return st.sync()
}

// StreamQuery reports whether the stream is empty.
func (f *Driver) StreamQuery(_ driver.Ctx, s driver.Stream) (bool, error) {
	st, err := f.stream("cuStreamQuery", s)
	if err != nil {
		return false, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return len(st.queue) == 0 && !st.busy, st.err
}

// StreamWait holds the stream until the event's last recording. Waiting for an
// event of a capture joins that capture. As with the driver a capture waits for its own
// events only.
func (f *Driver) StreamWait(_ driver.Ctx, s driver.Stream, e driver.Event) error {
	st, err := f.stream("cuStreamWaitEvent", s)
	if err != nil {
		return err
	}
	ev, err := lookUp[*event](f, "cuStreamWaitEvent", uint64(e))
	if err != nil {
		return err
	}
	ev.mu.Lock()
	mark, in := ev.mark, ev.in
	ev.mu.Unlock()
	if in != nil && in.ended.Load() {
		return &driver.Error{Call: "cuStreamWaitEvent", Code: 907, Name: "CUDA_ERROR_CAPTURED_EVENT", Text: "the event was recorded in a capture that has ended"}
	}
	st.mu.Lock()
	within := st.graph
	st.mu.Unlock()
	if within != nil && within != in && mark != nil {
		return &driver.Error{Call: "cuStreamWaitEvent", Code: 905, Name: "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", Text: "the event was not recorded in the stream's capture"}
	}
	if in != nil {
		st.mu.Lock()
		if st.graph == nil {
			st.graph, st.lane = in, len(in.streams)
			in.streams = append(in.streams, st)
		}
		st.mu.Unlock()
	}
	if mark == nil {
		return nil
	}
	return st.push(operation{wait: mark})
}

func (f *Driver) work(call string, s driver.Stream, run func() error) error {
	st, err := f.stream(call, s)
	if err != nil {
		return err
	}
	return st.push(operation{run: run, what: call, from: traceHere()})
}

// StreamWrite32 writes a word in stream order.
func (f *Driver) StreamWrite32(_ driver.Ctx, s driver.Stream, at driver.Ptr, v uint32) error {
	return f.work("cuStreamWriteValue32", s, func() error { hostmem.Store32(uintptr(at), v); return nil })
}

// await returns when int32(*at - v) >= 0.
func (f *Driver) await(at uintptr, v uint32) {
	for start := time.Now(); int32(hostmem.Load32(at)-v) < 0; {
		f.rest(start)
	}
}

// StreamWait32 holds the stream until int32(*at - v) >= 0.
func (f *Driver) StreamWait32(_ driver.Ctx, s driver.Stream, at driver.Ptr, v uint32) error {
	return f.work("cuStreamWaitValue32", s, func() error { f.await(uintptr(at), v); return nil })
}

// CopyIn copies from host memory and waits.
func (f *Driver) CopyIn(c driver.Ctx, s driver.Stream, to driver.Ptr, from []byte) error {
	if len(from) == 0 {
		return nil
	}
	err := f.work("cuMemcpyHtoDAsync", s, func() error { copy(bytesAt(to, uint64(len(from))), from); return nil })
	if err != nil {
		return err
	}
	return f.StreamSync(c, s)
}

// CopyOut copies to host memory and waits.
func (f *Driver) CopyOut(c driver.Ctx, s driver.Stream, to []byte, from driver.Ptr) error {
	if len(to) == 0 {
		return nil
	}
	err := f.work("cuMemcpyDtoHAsync", s, func() error { copy(to, bytesAt(from, uint64(len(to)))); return nil })
	if err != nil {
		return err
	}
	return f.StreamSync(c, s)
}

// Copy copies between device addresses in stream order.
func (f *Driver) Copy(_ driver.Ctx, s driver.Stream, to, from driver.Ptr, bytes uint64) error {
	return f.work("cuMemcpyAsync", s, func() error {
		f.pause()
		copy(bytesAt(to, bytes), bytesAt(from, bytes))
		return nil
	})
}

// Memset32 fills words in stream order.
func (f *Driver) Memset32(_ driver.Ctx, s driver.Stream, at driver.Ptr, v uint32, words uint64) error {
	return f.work("cuMemsetD32Async", s, func() error {
		if v == 0 {
			zero(at, 4*words)
			return nil
		}
		b := bytesAt(at, 4*words)
		n := copy(b, binary.LittleEndian.AppendUint32(nil, v))
		for n < len(b) {
			n += copy(b[n:], b[:n])
		}
		return nil
	})
}

// zero clears memory. Whole pages that can be mapped are given back instead, and are zero when
// they are touched again: arenas of programs may be larger than the host's memory.
func zero(at driver.Ptr, n uint64) {
	const large = 1 << 20
	page := uint64(os.Getpagesize())
	skip := -uint64(at) & (page - 1)
	if n >= large {
		whole := (n - skip) &^ (page - 1)
		if unix.Madvise(bytesAt(at+driver.Ptr(skip), whole), unix.MADV_REMOVE) == nil {
			clear(bytesAt(at, skip))
			at, n = at+driver.Ptr(skip+whole), n-skip-whole
		}
	}
	clear(bytesAt(at, n))
}

// Launch queues the kernel's Go form.
func (f *Driver) Launch(_ driver.Ctx, s driver.Stream, fn driver.Func, grid, block, _ int, buf []byte) error {
	o, ok := f.functions.Load(uint64(fn))
	if !ok {
		return invalid("cuLaunchKernel", "function %d", fn)
	}
	if grid < 1 || block < 1 || block > 1024 {
		return invalid("cuLaunchKernel", "grid %d, block %d", grid, block)
	}
	name := o.(*function).name
	run, err := f.kernel(name, f.device(s), grid, append([]byte(nil), buf...))
	if err != nil {
		return invalid("cuLaunchKernel", "%v", err)
	}
	return f.work("kernel "+name, s, run)
}

// rest sleeps between two looks of something that polls since start for what a stream or another
// process does: a microsecond at first, later an eighth of what it has waited, which leaves the
// cores to those that it waits for. A few take a thread each: Go's own timers are a millisecond
// late where all else sleeps. More do not, so that a hundred waiting blocks are not a hundred threads.
func (f *Driver) rest(start time.Time) {
	const threads, longest = 4, 250 * time.Microsecond
	d := min(max(time.Since(start)/8, time.Microsecond), longest)
	defer f.resting.Add(-1)
	if f.resting.Add(1) > threads {
		time.Sleep(d)
		return
	}
	hostmem.Sleep(d)
}

// pause sleeps a little, when jitter is on.
func (f *Driver) pause() {
	j := f.jitter.Load()
	if j <= 0 {
		return
	}
	x := f.rng.Add(0x9e3779b97f4a7c15)
	x ^= x >> 31
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 29
	time.Sleep(time.Duration(x % uint64(j)))
}

// device is a stream's, 0 where there is no such stream.
func (f *Driver) device(s driver.Stream) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if st, ok := f.objects[uint64(s)].(*stream); ok {
		return st.dev
	}
	return 0
}

func (f *Driver) isParted(s *stream) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.parted[s]
}
