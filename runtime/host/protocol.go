package host

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/seed-ee968945/concert/internal/stall"
	rt "github.com/seed-ee968945/concert/runtime"
	"github.com/seed-ee968945/concert/runtime/internal/shm"
	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// The protocol between ranks.
//
// Memory. Every rank owns one segment: a signal pad and an arena. All ranks can
// read and write all segments. A word of a pad has one writer and one protocol:
//
//	inbox word (channel c, source s) of rank r   written by s, read by r
//	descriptor (channel c, parity p) of rank r   written by r, read by the channel's other members
//	signal word (slot k, source s) of rank r     written by s, read by r
//	status, sleepers, last collective of rank r  written by r
//	abort state and record of rank r             claimed by the first rank that breaks the world
//
// A channel belongs to one group. Its members count epochs: a signal is the
// store of the writer's epoch into its inbox word at the peer, a wait is loading
// one's own inbox word until it has reached one's own epoch. Epochs only grow,
// nothing is ever reset, and they are compared by the sign of their 32-bit
// difference, so they may wrap: two members of a channel are never more than one
// call apart, since no call ends before all members have entered it.
//
// Order. Stores and loads of signals are sync/atomic operations, which the Go
// memory model makes sequentially consistent: what a rank wrote before it stored
// its epoch is visible to a rank that has loaded that epoch. On a GPU the same pair
// is st.release.sys and ld.acquire.sys; nothing here relies on more than that.
// Between processes the same holds, because the pads are one piece of physical
// memory and Go's atomics are the processor's. Everything but signals, status
// and abort state is accessed plainly and ordered by them:
//
//	1. the stream reaches the collective: everything before it in this rank's
//	   stream order is done, so operands are written and results may be;
//	2. publish the descriptor; epoch e: signal all members ("entered");
//	3. wait for epoch e of all members, compare descriptors;
//	4. move data: read the members' operands where they are; all_reduce also
//	   writes the slice that this rank owns into the members' results. What members
//	   on other hosts need is sent to them first, with a signal of its own behind it
//	   (link.go);
//	5. the next epoch: signal all members ("I am done with your memory"), wait for
//	   theirs: now operands may be overwritten and results read.
//
// A barrier is steps 2 and 3. Descriptors are double-buffered by the parity of
// the call: a member that has entered call k+1 may publish while a slow one
// still compares call k, and cannot reach k+2 before that one has entered k+1.
//
// Progress. A rank waits only in steps 3 and 5 and in WaitSignal, and each wait
// polls, besides the inbox: the abort state of its own pad, whether a peer died
// or left, whether the device was closed, and the deadline. The first failure
// anywhere is written into every pad that is still clean, so no rank waits for
// its own deadline to learn of it.
//
// Sleep. Ranks that are processes may outnumber processors, so a rank polls for
// a short time only and then sleeps on the inbox word. It counts itself as a
// sleeper before it looks at the word for the last time; a peer stores the word
// before it looks at the count. One of the two sees the other, and a sleep ends
// by itself after a millisecond, to poll for what is not a signal.

// Layout of a pad, in units of its kind. Words that different ranks write are a
// cache line apart.
const (
	lineWords = 16 // 32-bit words of a cache line

	wordMagic       = 0                // says that the pad is set up
	wordStatus      = 1 * lineWords    // of the owner, below
	wordSleepers    = wordStatus + 1   // of the owner: how many of its streams sleep on an inbox word
	quadLast        = wordStatus/2 + 1 // what collective the owner is in, or was in last, see note
	wordAbort       = 2 * lineWords    // abort state, below
	wordAbortLen    = wordAbort + 1    // bytes of the record
	wordAbortOrigin = wordAbort + 2    // rank that wrote it
	abortRecord     = 3 * 64           // byte offset of the record
	abortBytes      = 2048
	inboxStart      = (abortRecord + abortBytes) / 4 // word offset

	padMagic = 0x636e6372
)

// Status of a rank.
const (
	statusAlive = iota + 1
	statusLeft
)

// Abort states.
const (
	abortClean = iota
	abortWriting
	abortWritten
)

// descQuads is the fixed part of a descriptor. The splits of an all_to_all
// follow: one per member for each of up to maxSplits operands.
const (
	descQuads = 8
	maxSplits = 16
)

// layout locates the parts of a pad.
type layout struct {
	world, channels, slots int
}

func (l layout) inbox(ch, src int) int { return inboxStart + (ch*l.world+src)*lineWords }

func (l layout) signal(slot, src int) int {
	return inboxStart + (l.channels*l.world+slot*l.world+src)*lineWords
}

// writes reports whether a word of a pad is one that a rank writes in order to signal.
func (l layout) writes(rank, word int) bool {
	at := (word - inboxStart) / lineWords
	return word >= inboxStart && (word-inboxStart)%lineWords == 0 && at < (l.channels+l.slots)*l.world && at%l.world == rank
}

// desc returns the quads of a descriptor.
func (l layout) desc(ch int, parity uint32) (lo, hi int) {
	n := (descQuads + maxSplits*l.world + 7) / 8 * 8
	first := l.signal(l.slots, 0) / 2
	lo = first + (ch*2+int(parity&1))*n
	return lo, lo + n
}

// bytes is the size of a pad.
func (l layout) bytes() int {
	lo, _ := l.desc(l.channels, 0)
	return lo * 8
}

// reached reports whether epoch got is at or past want, across wrap-around.
func reached(got, want uint32) bool { return int32(got-want) >= 0 }

// peerState says why a peer cannot be expected to signal again.
type peerState uint32

const (
	peerAlive peerState = iota
	peerDied
	peerLeft
	peerSilent // in Device.lost: died, as its link says
)

// put signals a peer: everything this goroutine did before is visible to a peer that
// sees the value.
func (d *Device) put(peer, word int, value uint32) {
	if l := d.links[peer]; l != nil {
		l.send(frame{kind: frameSignal, a: uint32(word), b: value})
		return
	}
	d.store(d.pads[peer], &d.pads[peer].Words[word], value)
}

// store makes a word visible to the owner of a pad.
func (d *Device) store(owner *shm.Pad, word *uint32, value uint32) {
	atomic.StoreUint32(word, value)
	if !d.opts.Local && atomic.LoadUint32(&owner.Words[wordSleepers]) != 0 {
		shm.Wake(word)
	}
}

// peerWord is where a word of this rank's pad is that a peer writes: of a peer on another host
// in its mirror.
func (d *Device) peerWord(peer, word int) *uint32 {
	if d.links[peer] != nil {
		return &d.pads[peer].Words[word]
	}
	return &d.own.Words[word]
}

// sleepOn sleeps until an inbox word of this rank may have reached want.
func (d *Device) sleepOn(word *uint32, want uint32) {
	atomic.AddUint32(&d.own.Words[wordSleepers], 1)
	if got := atomic.LoadUint32(word); !reached(got, want) {
		shm.Sleep(word, got, time.Millisecond)
	}
	atomic.AddUint32(&d.own.Words[wordSleepers], ^uint32(0))
}

// wait is one wait for signals of several peers.
type wait struct {
	at    rendezvous.Where // for errors
	peers []int            // world ranks
	word  func(int) int    // inbox word of a peer in this rank's pad
	want  uint32
}

// await returns when all peers' words have reached w.want, or with the error
// that broke the world. It is the only place where a rank waits for another.
func (d *Device) await(w *wait) error {
	waits := stall.Start()
	next := 0 // peers before it have signalled
	var pause backoff
	processes := !d.opts.Local
	for {
		for next < len(w.peers) && d.signalled(w, w.peers[next]) {
			next++
		}
		if next == len(w.peers) {
			return nil
		}
		if pause.slow() {
			if err := d.check(w, next, &waits); err != nil {
				// What a peer did before it died or left still counts.
				if d.allReached(w, next) {
					return nil
				}
				return err
			}
			if processes {
				d.sleepOn(d.peerWord(w.peers[next], w.word(w.peers[next])), w.want)
				continue
			}
		}
		pause.wait()
	}
}

// signalled reports whether a peer has signalled what w waits for.
func (d *Device) signalled(w *wait, peer int) bool {
	return reached(atomic.LoadUint32(d.peerWord(peer, w.word(peer))), w.want)
}

func (d *Device) allReached(w *wait, next int) bool {
	for _, p := range w.peers[next:] {
		if !d.signalled(w, p) {
			return false
		}
	}
	return true
}

// check looks for a reason to stop waiting for peers from next on.
func (d *Device) check(w *wait, next int, waits *stall.Clock) error {
	if err := d.failure(); err != nil {
		return err
	}
	// The order matters: a rank that breaks the world says why before it leaves
	// or dies, so whoever finds it gone looks for its reason afterwards.
	gone := d.gone(w, next)
	if err := d.aborted(w.at); err != nil {
		return err
	}
	if gone != nil {
		return gone
	}
	elapsed := waits.Look()
	if elapsed < d.spec.Timeout {
		return nil
	}
	e := &rt.TimeoutError{Op: w.at.Op, Rank: w.at.Rank, Group: w.at.Group, Step: w.at.Step, Elapsed: elapsed}
	for _, p := range w.peers[next:] {
		if !d.signalled(w, p) {
			e.Missing = append(e.Missing, p)
		}
	}
	if len(e.Missing) == 0 { // the last one came just now
		return nil
	}
	e.Peer = e.Missing[0]
	e.Detail = d.lastOf(e.Peer)
	return e
}

// note publishes what this rank is doing, for the errors of those who wait for
// it: quad = channel << 48 | operation << 40 | number of the call << 1 | inside.
func (d *Device) note(ch *channel, op rt.CollOp, inside bool) {
	q := uint64(ch.id)<<48 | uint64(op)<<40 | uint64(ch.call)<<1
	if inside {
		q |= 1
	}
	atomic.StoreUint64(&d.own.Quads[quadLast], q)
}

// lastOf says what a peer noted last.
func (d *Device) lastOf(peer int) string {
	q := atomic.LoadUint64(&d.pads[peer].Quads[quadLast])
	if q == 0 {
		return fmt.Sprintf("rank %d has entered no collective", peer)
	}
	group := "?"
	d.mu.Lock()
	for name, ch := range d.chans {
		if ch.id == int(q>>48) {
			group = name
		}
	}
	d.mu.Unlock()
	what := fmt.Sprintf("%v on %q, its call %d there", rt.CollOp(q>>40&0xff), group, uint32(q>>1))
	if q&1 != 0 {
		return fmt.Sprintf("rank %d is in %s", peer, what)
	}
	return fmt.Sprintf("rank %d finished %s, and has entered none since", peer, what)
}

// gone looks for a peer that will not signal again. Death anywhere breaks the
// world; departure only those who still need the peer, which may leave once it
// has signalled everyone.
func (d *Device) gone(w *wait, next int) error {
	for p := range d.spec.World {
		if d.peer(p) == peerDied {
			return &rt.PeerLostError{Op: w.at.Op, Rank: w.at.Rank, Group: w.at.Group, Step: w.at.Step, Peer: p, Detail: d.whyLost(p)}
		}
	}
	for _, p := range w.peers[next:] {
		if d.peer(p) == peerLeft && !d.signalled(w, p) {
			return &rt.PeerLostError{Op: w.at.Op, Rank: w.at.Rank, Group: w.at.Group, Step: w.at.Step, Peer: p, Left: true}
		}
	}
	return nil
}

// whyLost is what is known of how a peer was lost.
func (d *Device) whyLost(peer int) string {
	if l := d.links[peer]; l != nil && d.lost[peer].Load() == uint32(peerSilent) {
		return l.why
	}
	return ""
}

// peer reports what is known of a peer without asking it.
func (d *Device) peer(rank int) peerState {
	if rank == d.spec.Rank {
		return peerAlive
	}
	if atomic.LoadUint32(&d.pads[rank].Words[wordStatus]) == statusLeft {
		return peerLeft
	}
	if d.lost[rank].Load() != 0 {
		return peerDied
	}
	return peerAlive
}

// aborted reads the record that another rank left in this rank's pad, as an
// error of this rank; nil if there is none.
func (d *Device) aborted(at rendezvous.Where) error {
	if atomic.LoadUint32(&d.own.Words[wordAbort]) != abortWriting {
		return readAbort(d.own, at)
	}
	// The writer publishes at once, unless it died in between; then the record
	// stays unread, but the world is broken all the same.
	const looks = 500 // some half a millisecond apart; counted, for the machine may stand still
	if d.abortSeen.Add(1) < looks {
		return nil
	}
	return &rt.CanceledError{Op: at.Op, Rank: at.Rank, Origin: -1, Group: at.Group, Step: at.Step}
}

// readAbort returns the finished record in a rank's own pad as its error.
func readAbort(own *shm.Pad, at rendezvous.Where) error {
	if atomic.LoadUint32(&own.Words[wordAbort]) != abortWritten {
		return nil
	}
	n := min(int(own.Words[wordAbortLen]), abortBytes)
	origin := int(own.Words[wordAbortOrigin])
	return at.Adopt(rendezvous.DecodeError(own.Bytes[abortRecord:abortRecord+n]), origin)
}

// spread writes err into every other rank's pad that is still clean.
func (d *Device) spread(err error) {
	record := rendezvous.EncodeError(err, abortBytes)
	for r, pad := range d.pads {
		switch {
		case r == d.spec.Rank:
		case d.links[r] != nil:
			d.links[r].send(frame{kind: frameAbort, data: record})
		default:
			writeAbort(pad, d.spec.Rank, record)
		}
	}
}

// writeAbort writes a rank's record into a pad, if it is the first there.
func writeAbort(pad *shm.Pad, rank int, record []byte) {
	if !atomic.CompareAndSwapUint32(&pad.Words[wordAbort], abortClean, abortWriting) {
		return
	}
	pad.Words[wordAbortOrigin] = uint32(rank)
	pad.Words[wordAbortLen] = uint32(copy(pad.Bytes[abortRecord:abortRecord+abortBytes], record))
	atomic.StoreUint32(&pad.Words[wordAbort], abortWritten)
}

// backoff spaces out polling: first at full speed, then yielding the processor,
// then sleeping, since ranks may outnumber processors. (A rank that is a goroutine
// must not sleep on the word itself: that would take up a thread.)
type backoff struct {
	n     int
	sleep time.Duration
}

// Polls before a rank looks for failures and sleeps: together some
// tens of microseconds, about what going to sleep and waking up costs.
const (
	fastPolls  = 100
	yieldPolls = 300
)

// slow reports whether this poll may spend time on looking for failures.
func (b *backoff) slow() bool { return b.n >= fastPolls+yieldPolls }

func (b *backoff) wait() {
	switch {
	case b.n < fastPolls:
		b.n++
	case b.n < fastPolls+yieldPolls:
		b.n++
		runtime.Gosched()
	default:
		const first, last = 20 * time.Microsecond, 500 * time.Microsecond
		b.sleep = min(max(first, b.sleep*5/4), last)
		time.Sleep(b.sleep)
	}
}
