//go:build linux

package fake

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/seed-ee968945/concert/cuda/driver"
	"github.com/seed-ee968945/concert/cuda/internal/hostmem"
)

// operation is one item of a stream: work, or a wait for or a signal of an event.
type operation struct {
	lane int // stream within a graph
	run  func() error
	what string // the call
	from trace
	rec  *mark // closed when reached
	wait *mark
}

// mark is one recording of an event.
type mark struct {
	done chan struct{}
	at   time.Time
}

type stream struct {
	f     *Driver
	dev   int
	mu    sync.Mutex
	cond  *sync.Cond
	queue []operation
	busy  bool
	stop  bool
	err   error
	graph *graph // while capturing
	lane  int
}

type event struct {
	mu   sync.Mutex
	mark *mark
	in   *graph // the capture it was recorded in, if any
}

func newStream(f *Driver, dev int) *stream {
	s := &stream{f: f, dev: dev}
	s.cond = sync.NewCond(&s.mu)
	go s.work()
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
		err := op.do(s.f)
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
func (f *Driver) StreamCreate(c driver.Ctx) (driver.Stream, error) {
	if err := f.call(); err != nil {
		return 0, err
	}
	ctx, err := lookUp[*primaryContext](f, "cuStreamCreate", uint64(c))
	if err != nil {
		return 0, err
	}
	return driver.Stream(f.put(newStream(f, ctx.dev))), nil
}

// StreamCreateUrgent is StreamCreate: every stream has its own goroutine.
func (f *Driver) StreamCreateUrgent(c driver.Ctx) (driver.Stream, error) { return f.StreamCreate(c) }

// StreamDestroy lets the stream finish and ends it.
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
	st.mu.Unlock()
	return errors.Join(left, f.call())
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

// StreamWait32 holds the stream until int32(*at - v) >= 0.
func (f *Driver) StreamWait32(_ driver.Ctx, s driver.Stream, at driver.Ptr, v uint32) error {
	return f.work("cuStreamWaitValue32", s, func() error {
		for int32(hostmem.Load32(uintptr(at))-v) < 0 {
			time.Sleep(time.Microsecond)
		}
		return nil
	})
}

// EventCreate makes an event.
func (f *Driver) EventCreate(driver.Ctx, bool) (driver.Event, error) {
	if err := f.call(); err != nil {
		return 0, err
	}
	return driver.Event(f.put(&event{})), nil
}

// EventDestroy forgets an event.
func (f *Driver) EventDestroy(_ driver.Ctx, e driver.Event) error {
	if _, err := drop[*event](f, "cuEventDestroy", uint64(e)); err != nil {
		return err
	}
	return f.call()
}

// EventRecord marks the place in the stream.
func (f *Driver) EventRecord(_ driver.Ctx, e driver.Event, s driver.Stream) error {
	st, err := f.stream("cuEventRecord", s)
	if err != nil {
		return err
	}
	ev, err := lookUp[*event](f, "cuEventRecord", uint64(e))
	if err != nil {
		return err
	}
	mark := &mark{done: make(chan struct{})}
	st.mu.Lock()
	in := st.graph
	st.mu.Unlock()
	ev.mu.Lock()
	ev.mark, ev.in = mark, in
	ev.mu.Unlock()
	return st.push(operation{rec: mark})
}

// mark adds a recording to the graph being captured, anew in every launch of it.
func (f *Driver) mark(e driver.Event, s driver.Stream) error {
	st, err := f.stream("cuEventRecordWithFlags", s)
	if err != nil {
		return err
	}
	ev, err := lookUp[*event](f, "cuEventRecordWithFlags", uint64(e))
	if err != nil {
		return err
	}
	st.mu.Lock()
	capturing := st.graph != nil
	st.mu.Unlock()
	if !capturing {
		return invalid("cuEventRecordWithFlags", "the stream is not capturing")
	}
	return st.push(operation{what: "cuEventRecordWithFlags", run: func() error {
		reached := &mark{done: make(chan struct{}), at: time.Now()}
		close(reached.done)
		ev.mu.Lock()
		defer ev.mu.Unlock()
		ev.mark, ev.in = reached, nil
		return nil
	}})
}

// EventQuery reports whether the last recording was reached.
func (f *Driver) EventQuery(_ driver.Ctx, e driver.Event) (bool, error) {
	ev, err := lookUp[*event](f, "cuEventQuery", uint64(e))
	if err != nil {
		return false, err
	}
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if ev.in != nil {
		return false, &driver.Error{Call: "cuEventQuery", Code: 907, Name: "CUDA_ERROR_CAPTURED_EVENT", Text: "the event was last recorded in a capture"}
	}
	if ev.mark == nil {
		return true, f.call()
	}
	select {
	case <-ev.mark.done:
		return true, f.call()
	default:
		return false, f.call()
	}
}

// EventElapsed is the host time between two recordings.
func (f *Driver) EventElapsed(_ driver.Ctx, from, to driver.Event) (float32, error) {
	var at [2]time.Time
	for i, e := range []driver.Event{from, to} {
		ev, err := lookUp[*event](f, "cuEventElapsedTime", uint64(e))
		if err != nil {
			return 0, err
		}
		ev.mu.Lock()
		mark := ev.mark
		ev.mu.Unlock()
		if mark == nil {
			return 0, invalid("cuEventElapsedTime", "event was not recorded")
		}
		<-mark.done
		at[i] = mark.at
	}
	return float32(at[1].Sub(at[0]).Seconds() * 1e3), f.call()
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
		b := bytesAt(at, 4*words)
		if v == 0 {
			clear(b)
			return nil
		}
		for i := uint64(0); i < words; i++ {
			binary.LittleEndian.PutUint32(b[4*i:], v)
		}
		return nil
	})
}

// Launch queues the kernel's Go form.
func (f *Driver) Launch(_ driver.Ctx, s driver.Stream, fn driver.Func, grid, block, _ int, buf []byte) error {
	o, ok := functions.Load(uint64(fn))
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

// Run interprets a command buffer as shim.c does.
func (f *Driver) Run(c driver.Ctx, words []uint64) error {
	for i := 0; i < len(words); {
		n := int(words[i] >> 8)
		if n < 3 || i+n > len(words) {
			return &driver.Error{Call: "command buffer", Code: -4, Name: "CONCERT_BAD_COMMAND", Text: "malformed command buffer"}
		}
		a := words[i+1 : i+n]
		if err := f.command(c, words[i]&255, a); err != nil {
			return err
		}
		i += n
	}
	return nil
}

func (f *Driver) command(c driver.Ctx, op uint64, a []uint64) error {
	s := driver.Stream(a[0])
	need := map[uint64]int{driver.OpLaunch: 4, driver.OpRecord: 2, driver.OpWait: 2, driver.OpCopy: 4, driver.OpMemset32: 4, driver.OpGraph: 2, driver.OpFlags: 3, driver.OpCall: 2, driver.OpLaunchEarly: 4, driver.OpMark: 2}[op]
	if need == 0 || len(a) < need {
		return &driver.Error{Call: "command buffer", Code: -4, Name: "CONCERT_BAD_COMMAND", Text: "malformed command buffer"}
	}
	switch op {
	case driver.OpLaunch, driver.OpLaunchEarly:
		n := int(a[3] >> 32)
		if len(a) < 4+(n+7)/8 {
			return &driver.Error{Call: "command buffer", Code: -4, Name: "CONCERT_BAD_COMMAND", Text: "malformed command buffer"}
		}
		var buf []byte
		for _, w := range a[4:] {
			buf = binary.LittleEndian.AppendUint64(buf, w)
		}
		return f.Launch(c, s, driver.Func(a[1]), int(uint32(a[2])), int(a[2]>>32), int(uint32(a[3])), buf[:n])
	case driver.OpRecord:
		return f.EventRecord(c, driver.Event(a[1]), s)
	case driver.OpMark:
		return f.mark(driver.Event(a[1]), s)
	case driver.OpWait:
		return f.StreamWait(c, s, driver.Event(a[1]))
	case driver.OpCopy:
		return f.Copy(c, s, driver.Ptr(a[1]), driver.Ptr(a[2]), a[3])
	case driver.OpMemset32:
		return f.Memset32(c, s, driver.Ptr(a[1]), uint32(a[2]), a[3])
	case driver.OpGraph:
		return f.GraphLaunch(c, driver.Exec(a[1]), s)
	case driver.OpCall:
		return f.callback(s, driver.CFunc(a[1]), a[2:])
	}
	return f.flags(s, a[1:])
}

// flags writes words and waits for words, in order.
func (f *Driver) flags(s driver.Stream, a []uint64) error {
	a = slices.Clone(a)
	return f.work("cuStreamBatchMemOp", s, func() error {
		for i := 0; i+1 < len(a); i += 2 { // replays come here again: a stays as it is
			at, v := uintptr(a[i+1]), uint32(a[i])
			if a[i]&driver.FlagWait == 0 {
				hostmem.Store32(at, v)
				continue
			}
			for int32(hostmem.Load32(at)-v) < 0 {
				time.Sleep(time.Microsecond)
			}
		}
		return nil
	})
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
