//go:build linux

package cuda

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"
)

// fakeOp is one item of a stream: work, or a wait for or a signal of an event.
type fakeOp struct {
	lane int // stream within a graph
	run  func() error
	what string // the call
	from fakeTrace
	rec  *fakeMark // closed when reached
	wait *fakeMark
}

// fakeMark is one recording of an event.
type fakeMark struct {
	done chan struct{}
	at   time.Time
}

type fakeStream struct {
	f     *Fake
	dev   int
	mu    sync.Mutex
	cond  *sync.Cond
	queue []fakeOp
	busy  bool
	stop  bool
	err   error
	graph *fakeGraph // while capturing
	lane  int
}

type fakeEvent struct {
	mu   sync.Mutex
	mark *fakeMark
	in   *fakeGraph // the capture it was recorded in, if any
}

func newFakeStream(f *Fake, dev int) *fakeStream {
	s := &fakeStream{f: f, dev: dev}
	s.cond = sync.NewCond(&s.mu)
	go s.work()
	return s
}

// work runs the items of the stream in order until it is stopped.
func (s *fakeStream) work() {
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

func (op fakeOp) do(f *Fake) error {
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

func (s *fakeStream) push(op fakeOp) error {
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

func (s *fakeStream) sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.graph != nil {
		return &Error{Call: "cuStreamSynchronize", Code: 900, Name: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", Text: "the stream is capturing"}
	}
	for len(s.queue) > 0 || s.busy {
		s.cond.Wait()
	}
	return s.err
}

// StreamCreate starts a stream's goroutine.
func (f *Fake) StreamCreate(c Ctx) (Stream, error) {
	if err := f.call(); err != nil {
		return 0, err
	}
	ctx, err := fakeGet[*fakeCtx](f, "cuStreamCreate", uint64(c))
	if err != nil {
		return 0, err
	}
	return Stream(f.put(newFakeStream(f, ctx.dev))), nil
}

// StreamCreateUrgent is StreamCreate: every stream has its own goroutine.
func (f *Fake) StreamCreateUrgent(c Ctx) (Stream, error) { return f.StreamCreate(c) }

// StreamDestroy lets the stream finish and ends it.
func (f *Fake) StreamDestroy(_ Ctx, s Stream) error {
	left := f.common.streams.destroying(s)
	st, err := fakeDrop[*fakeStream](f, "cuStreamDestroy", uint64(s))
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

func (f *Fake) stream(call string, s Stream) (*fakeStream, error) {
	if err := f.call(); err != nil {
		return nil, err
	}
	return fakeGet[*fakeStream](f, call, uint64(s))
}

// StreamSync waits until the stream is empty.
func (f *Fake) StreamSync(_ Ctx, s Stream) error {
	st, err := f.stream("cuStreamSynchronize", s)
	if err != nil {
		return err
	}
	return st.sync()
}

// StreamQuery reports whether the stream is empty.
func (f *Fake) StreamQuery(_ Ctx, s Stream) (bool, error) {
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
func (f *Fake) StreamWait(_ Ctx, s Stream, e Event) error {
	st, err := f.stream("cuStreamWaitEvent", s)
	if err != nil {
		return err
	}
	ev, err := fakeGet[*fakeEvent](f, "cuStreamWaitEvent", uint64(e))
	if err != nil {
		return err
	}
	ev.mu.Lock()
	mark, in := ev.mark, ev.in
	ev.mu.Unlock()
	if in != nil && in.ended.Load() {
		return &Error{Call: "cuStreamWaitEvent", Code: 907, Name: "CUDA_ERROR_CAPTURED_EVENT", Text: "the event was recorded in a capture that has ended"}
	}
	st.mu.Lock()
	within := st.graph
	st.mu.Unlock()
	if within != nil && within != in && mark != nil {
		return &Error{Call: "cuStreamWaitEvent", Code: 905, Name: "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", Text: "the event was not recorded in the stream's capture"}
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
	return st.push(fakeOp{wait: mark})
}

func (f *Fake) work(call string, s Stream, run func() error) error {
	st, err := f.stream(call, s)
	if err != nil {
		return err
	}
	return st.push(fakeOp{run: run, what: call, from: traceHere()})
}

// StreamWrite32 writes a word in stream order.
func (f *Fake) StreamWrite32(_ Ctx, s Stream, at Ptr, v uint32) error {
	return f.work("cuStreamWriteValue32", s, func() error { store32(uintptr(at), v); return nil })
}

// StreamWait32 holds the stream until int32(*at - v) >= 0.
func (f *Fake) StreamWait32(_ Ctx, s Stream, at Ptr, v uint32) error {
	return f.work("cuStreamWaitValue32", s, func() error {
		for int32(load32(uintptr(at))-v) < 0 {
			time.Sleep(time.Microsecond)
		}
		return nil
	})
}

// EventCreate makes an event.
func (f *Fake) EventCreate(Ctx, bool) (Event, error) {
	if err := f.call(); err != nil {
		return 0, err
	}
	return Event(f.put(&fakeEvent{})), nil
}

// EventDestroy forgets an event.
func (f *Fake) EventDestroy(_ Ctx, e Event) error {
	if _, err := fakeDrop[*fakeEvent](f, "cuEventDestroy", uint64(e)); err != nil {
		return err
	}
	return f.call()
}

// EventRecord marks the place in the stream.
func (f *Fake) EventRecord(_ Ctx, e Event, s Stream) error {
	st, err := f.stream("cuEventRecord", s)
	if err != nil {
		return err
	}
	ev, err := fakeGet[*fakeEvent](f, "cuEventRecord", uint64(e))
	if err != nil {
		return err
	}
	mark := &fakeMark{done: make(chan struct{})}
	st.mu.Lock()
	in := st.graph
	st.mu.Unlock()
	ev.mu.Lock()
	ev.mark, ev.in = mark, in
	ev.mu.Unlock()
	return st.push(fakeOp{rec: mark})
}

// mark adds a recording to the graph being captured, anew in every launch of it.
func (f *Fake) mark(e Event, s Stream) error {
	st, err := f.stream("cuEventRecordWithFlags", s)
	if err != nil {
		return err
	}
	ev, err := fakeGet[*fakeEvent](f, "cuEventRecordWithFlags", uint64(e))
	if err != nil {
		return err
	}
	st.mu.Lock()
	capturing := st.graph != nil
	st.mu.Unlock()
	if !capturing {
		return invalid("cuEventRecordWithFlags", "the stream is not capturing")
	}
	return st.push(fakeOp{what: "cuEventRecordWithFlags", run: func() error {
		reached := &fakeMark{done: make(chan struct{}), at: time.Now()}
		close(reached.done)
		ev.mu.Lock()
		defer ev.mu.Unlock()
		ev.mark, ev.in = reached, nil
		return nil
	}})
}

// EventQuery reports whether the last recording was reached.
func (f *Fake) EventQuery(_ Ctx, e Event) (bool, error) {
	ev, err := fakeGet[*fakeEvent](f, "cuEventQuery", uint64(e))
	if err != nil {
		return false, err
	}
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if ev.in != nil {
		return false, &Error{Call: "cuEventQuery", Code: 907, Name: "CUDA_ERROR_CAPTURED_EVENT", Text: "the event was last recorded in a capture"}
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
func (f *Fake) EventElapsed(_ Ctx, from, to Event) (float32, error) {
	var at [2]time.Time
	for i, e := range []Event{from, to} {
		ev, err := fakeGet[*fakeEvent](f, "cuEventElapsedTime", uint64(e))
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
func (f *Fake) CopyIn(c Ctx, s Stream, to Ptr, from []byte) error {
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
func (f *Fake) CopyOut(c Ctx, s Stream, to []byte, from Ptr) error {
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
func (f *Fake) Copy(_ Ctx, s Stream, to, from Ptr, bytes uint64) error {
	return f.work("cuMemcpyAsync", s, func() error {
		f.pause()
		copy(bytesAt(to, bytes), bytesAt(from, bytes))
		return nil
	})
}

// Memset32 fills words in stream order.
func (f *Fake) Memset32(_ Ctx, s Stream, at Ptr, v uint32, words uint64) error {
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
func (f *Fake) Launch(_ Ctx, s Stream, fn Func, grid, block, _ int, buf []byte) error {
	o, ok := fakeFuncs.Load(uint64(fn))
	if !ok {
		return invalid("cuLaunchKernel", "function %d", fn)
	}
	if grid < 1 || block < 1 || block > 1024 {
		return invalid("cuLaunchKernel", "grid %d, block %d", grid, block)
	}
	name := o.(*fakeFunc).name
	run, err := f.kernel(name, f.device(s), grid, append([]byte(nil), buf...))
	if err != nil {
		return invalid("cuLaunchKernel", "%v", err)
	}
	return f.work("kernel "+name, s, run)
}

// Run interprets a command buffer as shim.c does.
func (f *Fake) Run(c Ctx, words []uint64) error {
	for i := 0; i < len(words); {
		n := int(words[i] >> 8)
		if n < 3 || i+n > len(words) {
			return &Error{Call: "command buffer", Code: -4, Name: "CONCERT_BAD_COMMAND", Text: "malformed command buffer"}
		}
		a := words[i+1 : i+n]
		if err := f.command(c, words[i]&255, a); err != nil {
			return err
		}
		i += n
	}
	return nil
}

func (f *Fake) command(c Ctx, op uint64, a []uint64) error {
	s := Stream(a[0])
	need := map[uint64]int{opLaunch: 4, opRecord: 2, opWait: 2, opCopy: 4, opMemset32: 4, opGraph: 2, opFlags: 3, opCall: 2, opLaunchEarly: 4, opMark: 2}[op]
	if need == 0 || len(a) < need {
		return &Error{Call: "command buffer", Code: -4, Name: "CONCERT_BAD_COMMAND", Text: "malformed command buffer"}
	}
	switch op {
	case opLaunch, opLaunchEarly:
		n := int(a[3] >> 32)
		if len(a) < 4+(n+7)/8 {
			return &Error{Call: "command buffer", Code: -4, Name: "CONCERT_BAD_COMMAND", Text: "malformed command buffer"}
		}
		var buf []byte
		for _, w := range a[4:] {
			buf = binary.LittleEndian.AppendUint64(buf, w)
		}
		return f.Launch(c, s, Func(a[1]), int(uint32(a[2])), int(a[2]>>32), int(uint32(a[3])), buf[:n])
	case opRecord:
		return f.EventRecord(c, Event(a[1]), s)
	case opMark:
		return f.mark(Event(a[1]), s)
	case opWait:
		return f.StreamWait(c, s, Event(a[1]))
	case opCopy:
		return f.Copy(c, s, Ptr(a[1]), Ptr(a[2]), a[3])
	case opMemset32:
		return f.Memset32(c, s, Ptr(a[1]), uint32(a[2]), a[3])
	case opGraph:
		return f.GraphLaunch(c, Exec(a[1]), s)
	case opCall:
		return f.callback(s, CFunc(a[1]), a[2:])
	}
	return f.flags(s, a[1:])
}

// flags writes words and waits for words, in order.
func (f *Fake) flags(s Stream, a []uint64) error {
	a = slices.Clone(a)
	return f.work("cuStreamBatchMemOp", s, func() error {
		for i := 0; i+1 < len(a); i += 2 { // replays come here again: a stays as it is
			at, v := uintptr(a[i+1]), uint32(a[i])
			if a[i]&flagWait == 0 {
				store32(at, v)
				continue
			}
			for int32(load32(at)-v) < 0 {
				time.Sleep(time.Microsecond)
			}
		}
		return nil
	})
}

// pause sleeps a little, when jitter is on.
func (f *Fake) pause() {
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
func (f *Fake) device(s Stream) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if st, ok := f.objects[uint64(s)].(*fakeStream); ok {
		return st.dev
	}
	return 0
}

func (f *Fake) isParted(s *fakeStream) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.parted[s]
}
