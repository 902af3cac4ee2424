package driver

import (
	"fmt"
	"sync"
	"time"
)

// captures keeps the captures in a context, and the waits for all its work, apart. Such a wait
// fails while a stream captures, and makes the capture invalid; an H200's driver crashed where
// one met the end of a capture. All other calls go well beside a capture, and so does one
// that begins after the driver has let a wait in.
type captures struct {
	mu       sync.Mutex
	changed  sync.Cond
	begun    map[Stream]bool
	asking   int // waits before which captures have to end
	entering int // waits that the driver may not have let in yet
}

const (
	letIn   = time.Second      // far longer than a call takes to be inside the driver, or a capture to end
	longest = 30 * time.Second // that a wait leaves a capture time to end
)

func newCaptures() *captures {
	x := &captures{begun: map[Stream]bool{}}
	x.changed.L = &x.mu
	return x
}

// after is true some time after the call, unless stop has been called. The caller holds mu, and
// is woken.
func (x *captures) after(d time.Duration) (late *bool, stop func() bool) {
	late = new(bool)
	return late, time.AfterFunc(d, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		*late = true
		x.changed.Broadcast()
	}).Stop
}

// begin lets waits go first, or else they would never find a moment without a capture; but not
// for long, since a capture that has begun may end only after this one.
func (x *captures) begin(s Stream, begin func() error) error {
	x.mu.Lock()
	late, stop := x.after(letIn)
	for x.entering > 0 || x.asking > 0 && !*late {
		x.changed.Wait()
	}
	stop()
	again := x.begun[s] // an error, which does not end the first capture
	x.begun[s] = true
	x.mu.Unlock()
	err := begin()
	if err != nil && !again {
		x.end(s)
	}
	return err
}

func (x *captures) end(s Stream) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.begun, s)
	x.changed.Broadcast()
}

func (x *captures) wait(wait func() error) error {
	if err := x.enter(); err != nil {
		return err
	}
	inside := sync.OnceFunc(func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.entering--
		x.changed.Broadcast()
	})
	defer inside()
	defer time.AfterFunc(letIn, inside).Stop()
	return wait()
}

func (x *captures) enter() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	late, stop := x.after(longest)
	defer stop()
	x.asking++
	defer func() {
		x.asking--
		x.changed.Broadcast()
	}()
	for len(x.begun) > 0 {
		if *late {
			return &Error{Call: "cuCtxSynchronize", Code: 900, Name: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
				Text: fmt.Sprintf("streams of the context have not ended their captures for %v", longest)}
		}
		x.changed.Wait()
	}
	x.entering++
	return nil
}

// capturesIn is the one for a context.
func (f *Shared) capturesIn(c Ctx) *captures {
	f.streams.Lock()
	defer f.streams.Unlock()
	if f.captures == nil {
		f.captures = map[Ctx]*captures{}
	}
	if f.captures[c] == nil {
		f.captures[c] = newCaptures()
	}
	return f.captures[c]
}

// BeginCapture has begin, the driver's call, begin a capture in s, when no call of SyncContext
// stands before the driver.
func (f *Shared) BeginCapture(c Ctx, s Stream, begin func() error) error {
	return f.capturesIn(c).begin(s, begin)
}

// CaptureEnded says that s does not capture any more.
func (f *Shared) CaptureEnded(c Ctx, s Stream) { f.capturesIn(c).end(s) }

// SyncContext has wait, the driver's call, wait for all work of a context, when no capture that
// BeginCapture has begun is left there; where captures do not end it fails as that call would.
// Captures can begin while it waits.
func (f *Shared) SyncContext(c Ctx, wait func() error) error { return f.capturesIn(c).wait(wait) }
