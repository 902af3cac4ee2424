package host

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ee968945/concert/internal/stall"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// Links. A rank has a link to every rank of another host, whose memory it cannot see. The
// protocol of protocol.go goes on over it with messages in place of stores, and the order
// of a link's messages in place of that of memory:
//
//	store of an inbox or signal word   a signal: the peer stores it, where its own pad has
//	                                   the word, into a mirror that it keeps of this rank
//	descriptor, status, last call      the peer stores it into the mirror, too
//	abort record                       the peer writes it into its own pad
//	reading an operand                 its owner sends what the peer needs of it, when the
//	                                   peer has entered and made room (transfer.go)
//
// A link that is idle carries a beat now and then. Its other end is lost when the connection
// ends without a last word, when nothing has come for Spec.HeartbeatTimeout, or when what comes is no
// message of a rank: then it is as if the peer had died. Nothing here waits for a link: what
// is to be said is queued, and one goroutine writes, one reads.

// link is one end of the connection to a rank of another host.
type link struct {
	d    *Device
	peer int // world rank
	conn *rendezvous.Conn

	mu      sync.Mutex
	queue   []frame
	closing bool          // nothing more is queued
	wake    chan struct{} // something was queued, or closing
	wrote   chan struct{} // closed when the writer has ended
	read    chan struct{} // closed when the reader has ended
	why     string        // the peer is lost; written before Device.lost is set
}

// frame is a message. On the wire it is its kind and phase, two bytes of zeros, a, b and the
// number of bytes that follow.
type frame struct {
	kind, phase uint8
	a, b        uint32
	data        []byte
}

const (
	frameBeat   = iota + 1 // a, b: the low and high half of the writer's quadLast
	frameSignal            // a: a word of the reader's pad; b: its value
	frameDesc              // a: channel, b: call; data: quads
	frameData              // a: channel, b: call; data: the next bytes of the transfer
	frameAbort             // data: the record
	frameLeft              // the writer has left in order: nothing follows
)

const (
	frameHead = 16
	// maxChunk keeps signals from waiting behind a large operand.
	maxChunk = 256 << 10
	// beats is how many beats there are in the time after which a silent peer is lost.
	beats = 8
	// lastWords is how long a link of a broken device that closes waits until the peer's machine has all.
	lastWords = time.Second
)

// newLink starts a link.
func newLink(d *Device, peer int, conn *rendezvous.Conn) *link {
	l := &link{d: d, peer: peer, conn: conn, wake: make(chan struct{}, 1), wrote: make(chan struct{}), read: make(chan struct{})}
	go l.write()
	go l.receive()
	return l
}

// send queues messages. It does not wait.
func (l *link) send(fs ...frame) {
	l.mu.Lock()
	if !l.closing {
		l.queue = append(l.queue, fs...)
	}
	l.mu.Unlock()
	l.wakeUp()
}

func (l *link) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// write sends what is queued, and beats.
func (l *link) write() {
	defer close(l.wrote)
	w := l.conn.Writer(l.d.spec.HeartbeatTimeout)
	beat := time.NewTicker(l.d.spec.HeartbeatTimeout / beats)
	defer beat.Stop()
	var batch []frame
	due, last := true, uint64(0)
	for {
		l.mu.Lock()
		batch, l.queue = l.queue, batch[:0]
		closing := l.closing
		l.mu.Unlock()
		if q := atomic.LoadUint64(&l.d.own.Quads[quadLast]); due || q != last {
			l.put(w, frame{kind: frameBeat, a: uint32(q), b: uint32(q >> 32)})
			due, last = false, q
		}
		for i := range batch {
			l.put(w, batch[i])
		}
		clear(batch) // the queue must not keep operands alive
		if err := w.Flush(); err != nil {
			// Why it has ended the reader finds: the peer may have said more.
			l.conn.LimitReads(lastWords)
			return
		}
		if len(batch) > 0 {
			continue
		}
		if closing {
			return
		}
		select {
		case <-l.wake:
		case <-beat.C:
			due = true
		}
	}
}

// put writes a message. The writer keeps its first error.
func (l *link) put(w *bufio.Writer, f frame) {
	for {
		n := len(f.data)
		if f.kind == frameData {
			n = min(n, maxChunk)
		}
		var h [frameHead]byte
		h[0], h[1] = f.kind, f.phase
		binary.LittleEndian.PutUint32(h[4:], f.a)
		binary.LittleEndian.PutUint32(h[8:], f.b)
		binary.LittleEndian.PutUint32(h[12:], uint32(n))
		w.Write(h[:])
		w.Write(f.data[:n])
		if f.data = f.data[n:]; len(f.data) == 0 {
			return
		}
	}
}

// receive takes the peer's messages until the link ends.
func (l *link) receive() {
	defer close(l.read)
	r := l.conn.Reader(l.d.spec.HeartbeatTimeout)
	var err error
	for err == nil {
		err = l.take(r)
	}
	l.mu.Lock()
	closing := l.closing
	l.mu.Unlock()
	if closing || l.d.peer(l.peer) == peerLeft {
		return
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		l.why = fmt.Sprintf("nothing has come from there for %v", l.d.spec.HeartbeatTimeout)
	case !errors.Is(err, io.EOF):
		l.why = err.Error()
	}
	l.d.lost[l.peer].CompareAndSwap(0, uint32(peerSilent)) // unless the job has said so
	l.conn.Close()
}

// errFrame is what a message is that no rank sends.
var errFrame = errors.New("what came from there is no message of a rank")

// take reads one message and does what it says. What it allocates and writes does not
// depend on the peer's honesty: descriptors go to its mirror, signals to the words that are
// its own, and operands into the room that was made for them.
func (l *link) take(r io.Reader) error {
	var h [frameHead]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return err
	}
	a, b := binary.LittleEndian.Uint32(h[4:]), binary.LittleEndian.Uint32(h[8:])
	n := int(binary.LittleEndian.Uint32(h[12:]))
	mirror := l.d.pads[l.peer]
	switch {
	case h[2]|h[3] != 0:
	case h[0] == frameBeat && n == 0:
		atomic.StoreUint64(&mirror.Quads[quadLast], uint64(b)<<32|uint64(a))
		return nil
	case h[0] == frameSignal && n == 0 && l.d.lay.writes(l.peer, int(a)):
		l.d.store(l.d.own, &mirror.Words[a], b)
		return nil
	case h[0] == frameLeft && n == 0:
		atomic.StoreUint32(&mirror.Words[wordStatus], statusLeft)
		return nil
	case h[0] == frameDesc && int64(a) < int64(l.d.lay.channels):
		lo, hi := l.d.lay.desc(int(a), b)
		if n%8 != 0 || n > (hi-lo)*8 {
			break
		}
		data := make([]byte, n)
		if _, err := io.ReadFull(r, data); err != nil {
			return unexpected(err)
		}
		for i := range n / 8 {
			mirror.Quads[lo+i] = binary.LittleEndian.Uint64(data[8*i:])
		}
		return nil
	case h[0] == frameData && n <= maxChunk:
		into, ok := l.d.transfers.room(transferKey{int(a), l.peer, h[1]}, b, n)
		if !ok {
			break
		}
		_, err := io.ReadFull(r, into)
		if err == nil {
			_, err = io.CopyN(io.Discard, r, int64(n-len(into)))
		}
		return unexpected(err)
	case h[0] == frameAbort && n <= abortBytes:
		record := make([]byte, n)
		if _, err := io.ReadFull(r, record); err != nil {
			return unexpected(err)
		}
		writeAbort(l.d.own, l.peer, record)
		return nil
	}
	return errFrame
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// closeLinks ends all links of a device whose last words have been said. What is queued is sent
// first, for as long as the peer reads: a write times out by itself. Where the device is broken,
// there is lastWords for it.
func closeLinks(links []*link, broken bool) {
	for _, l := range links {
		if l != nil {
			l.mu.Lock()
			l.closing = true
			l.mu.Unlock()
			l.wakeUp()
		}
	}
	var over <-chan struct{} // never
	if broken {
		over = stall.After(lastWords)
	}
	for _, l := range links {
		if l == nil {
			continue
		}
		select {
		case <-l.wrote:
			l.conn.Delivered(lastWords)
		case <-l.read:
		case <-over:
		}
		l.conn.Close()
		<-l.wrote
		<-l.read
	}
}

// transfers is the room for what other hosts' members of a channel send.
type transfers struct {
	mu sync.Mutex
	of map[transferKey]*transfer
}

type transferKey struct {
	channel, from int
	phase         uint8
}

// transfer is what one member sends in one phase of a call.
type transfer struct {
	call uint32
	buf  []byte
	have int // bytes that have come; written by the link's reader, before the signal behind them
}

// room is where the next n bytes of a parcel go, or as many as are expected: who sends more
// has called something else, which comparing descriptors finds. It is none if nobody expects
// any.
func (p *transfers) room(key transferKey, call uint32, n int) (into []byte, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.of[key]
	if of == nil || of.call != call {
		return nil, false
	}
	lo := of.have
	of.have += n
	return of.buf[min(lo, len(of.buf)):min(of.have, len(of.buf))], true
}

func (p *transfers) expect(key transferKey, of *transfer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[key] = of
}

// forget takes the room away, and says how many bytes have not come; negative, too many.
func (p *transfers) forget(key transferKey) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.of[key]
	delete(p.of, key)
	if of == nil {
		return 0
	}
	return len(of.buf) - of.have
}
