package nccl

import (
	"fmt"
	"slices"
	"sync"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// Fake is a Library whose device memory is bytes of this process. Ranks are
// goroutines; every communicator runs its groups in order, when the peers that they
// need have come. Addresses are those that Alloc gave.
//
// Streams of a communicator have one order, so the stream of a call is only what
// Done is asked about.
type Fake struct {
	mu         sync.Mutex
	mem        []fakeMem
	next       uintptr
	ids        byte
	clique     map[ID]*clique
	comms      map[Handle]*fakeComm
	handle     Handle
	calls      int
	failAt     int
	failCall   string // and the call that fails when failCallAt is 0
	failCallAt int
	code       Code
	fault      string // the first touch of memory that is none
	lacks      error  // why there are no registrations
	regs       map[Registration]fakeReg
	reg        Registration
}

// fakeReg is memory that is registered.
type fakeReg struct {
	h     Handle
	at    uintptr
	bytes uint64
}

type fakeMem struct {
	at uintptr
	b  []byte
}

// clique is the ranks of one communicator.
type clique struct {
	n      int
	ranks  []*fakeComm // nil before a rank has come
	joined int
	left   int
	colls  []*fakeColl                // by position in the order of collectives
	p2p    map[[2]int][]*fakeTransfer // by source and destination: waiting for the other side
}

type fakeColl struct {
	posts []*fakeGroup
	calls []Call
	came  int
}

type fakeTransfer struct {
	send bool
	call Call
	g    *fakeGroup
}

// fakeGroup is what one Submit enqueued.
type fakeGroup struct {
	calls   []Call
	stream  uintptr
	posted  bool
	pending int // calls that have not ended
}

type fakeComm struct {
	q     *clique
	rank  int
	queue []*fakeGroup
	colls int // collectives posted so far
	state Code
	leave bool
	dead  bool
}

// NewFake gives a library without communicators or memory.
func NewFake() *Fake {
	f := &Fake{clique: map[ID]*clique{}, comms: map[Handle]*fakeComm{}, regs: map[Registration]fakeReg{}, next: 1 << 20}
	return f
}

// FailAt makes the nth call from now, counted from 1, return code; the calls that
// count are UniqueID, Init, Submit, Register, Deregister, Finalize, Destroy and Abort.
func (f *Fake) FailAt(nth int, c Code) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failAt, f.code = f.calls+nth, c
}

// FailCall makes the nth call of that name from now, counted from 1, return code.
func (f *Fake) FailCall(call string, nth int, c Code) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failCall, f.failCallAt, f.code = call, nth, c
}

// Break gives the communicator of rank in every group an asynchronous error.
func (f *Fake) Break(rank int, c Code) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.comms {
		if k.rank == rank {
			k.state = c
		}
	}
}

// Leaks is how many communicators and registrations have been made and not freed.
func (f *Fake) Leaks() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.comms) + len(f.regs)
}

// Alloc gives bytes of memory and their address. They are never freed.
func (f *Fake) Alloc(bytes int) (uintptr, []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := make([]byte, bytes)
	at := f.next
	f.mem = append(f.mem, fakeMem{at, b})
	f.next += uintptr(bytes+511) &^ 255 // a gap, so that running over an end is seen
	return at, b
}

// Done reports whether all groups that were enqueued on stream by rank have ended.
func (f *Fake) Done(stream uintptr) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.comms {
		if slices.ContainsFunc(k.queue, func(g *fakeGroup) bool { return g.stream == stream }) {
			return false, nil
		}
	}
	return true, nil
}

// begin counts a call and says whether it is to fail. f.mu is held.
func (f *Fake) begin(call string) error {
	f.calls++
	if call == f.failCall {
		f.failCallAt--
	}
	if f.calls == f.failAt || call == f.failCall && f.failCallAt == 0 {
		return &Error{Call: call, Code: f.code, Text: "as asked"}
	}
	return nil
}

// Version implements Library.
func (f *Fake) Version() (int, error) { return 22800, nil }

// LastError implements Library.
func (f *Fake) LastError(Handle) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fault
}

// UniqueID implements Library.
func (f *Fake) UniqueID() (ID, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("ncclGetUniqueId"); err != nil {
		return ID{}, err
	}
	f.ids++
	id := ID{0: f.ids, 1: 0xfa}
	f.clique[id] = &clique{p2p: map[[2]int][]*fakeTransfer{}}
	return id, nil
}

// Init implements Library.
func (f *Fake) Init(_ uintptr, n int, id ID, rank int, _ Config) (Handle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("ncclCommInitRankConfig"); err != nil {
		return 0, err
	}
	q := f.clique[id]
	if q == nil || rank < 0 || rank >= n || q.n != 0 && q.n != n {
		return 0, &Error{Call: "ncclCommInitRankConfig", Code: InvalidArgument}
	}
	if q.n == 0 {
		q.n, q.ranks = n, make([]*fakeComm, n)
	}
	if q.ranks[rank] != nil {
		return 0, &Error{Call: "ncclCommInitRankConfig", Code: InvalidUsage, Text: "duplicate rank"}
	}
	k := &fakeComm{q: q, rank: rank}
	q.ranks[rank] = k
	q.joined++
	f.handle++
	f.comms[f.handle] = k
	return f.handle, &Error{Call: "ncclCommInitRankConfig", Code: InProgress}
}

// AsyncError implements Library.
func (f *Fake) AsyncError(h Handle) (Code, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.comms[h]
	switch {
	case k == nil:
		return Success, &Error{Call: "ncclCommGetAsyncError", Code: InvalidArgument, Text: "no such communicator"}
	case f.fault != "":
		return UnhandledCUDA, nil
	case k.state != Success:
		return k.state, nil
	case k.q.joined < k.q.n, k.leave && k.q.left < k.q.n:
		return InProgress, nil
	}
	return Success, nil
}

// Submit implements Library.
func (f *Fake) Submit(_ uintptr, h Handle, stream uintptr, calls []Call) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin(calls[len(calls)-1].Kind.String()); err != nil {
		return err
	}
	k := f.comms[h]
	if k == nil || k.leave || k.q.joined < k.q.n {
		return &Error{Call: "ncclGroupEnd", Code: InvalidUsage, Text: "the communicator is not ready"}
	}
	first := slices.IndexFunc(calls, func(c Call) bool { return c.Kind > CallZero })
	if first >= 0 && slices.ContainsFunc(calls[first:], func(c Call) bool { return c.Kind <= CallZero }) {
		return &Error{Call: "nc_submit", Code: InvalidArgument, Text: "copies come first"}
	}
	k.queue = append(k.queue, &fakeGroup{calls: slices.Clone(calls), stream: stream, pending: len(calls)})
	f.advance(k)
	return nil
}

// Registers implements Library.
func (f *Fake) Registers() error { return f.lacks }

// Register implements Library.
func (f *Fake) Register(_ uintptr, h Handle, at uintptr, bytes uint64) (Registration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("ncclCommRegister"); err != nil {
		return 0, err
	}
	if k := f.comms[h]; k == nil || k.leave || f.lacks != nil {
		return 0, &Error{Call: "ncclCommRegister", Code: InvalidArgument}
	}
	f.bytes(at, bytes)
	f.reg++
	f.regs[f.reg] = fakeReg{h, at, bytes}
	return f.reg, nil
}

// Deregister implements Library.
func (f *Fake) Deregister(_ uintptr, h Handle, r Registration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.begin("ncclCommDeregister")
	if k := f.comms[h]; k == nil || k.leave || f.regs[r].h != h {
		return &Error{Call: "ncclCommDeregister", Code: InvalidUsage, Text: "no such registration"}
	}
	delete(f.regs, r)
	return err
}

// Finalize implements Library.
func (f *Fake) Finalize(_ uintptr, h Handle) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("ncclCommFinalize"); err != nil {
		return err
	}
	k := f.comms[h]
	if k == nil || k.leave {
		return &Error{Call: "ncclCommFinalize", Code: InvalidArgument}
	}
	k.leave = true
	k.q.left++
	return &Error{Call: "ncclCommFinalize", Code: InProgress}
}

// Destroy implements Library.
func (f *Fake) Destroy(_ uintptr, h Handle) error { return f.free("ncclCommDestroy", h) }

// Abort implements Library.
func (f *Fake) Abort(_ uintptr, h Handle) error { return f.free("ncclCommAbort", h) }

func (f *Fake) free(call string, h Handle) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.begin(call)
	k := f.comms[h]
	if k == nil {
		return &Error{Call: call, Code: InvalidArgument, Text: "no such communicator"}
	}
	k.dead, k.queue = true, nil
	delete(f.comms, h)
	return err
}

// advance posts the group at the head of k's queue, and whatever that sets free on
// other ranks. f.mu is held.
func (f *Fake) advance(k *fakeComm) {
	for work := []*fakeComm{k}; len(work) > 0; {
		k, work = work[0], work[1:]
		for len(k.queue) > 0 && !k.dead {
			g := k.queue[0]
			if !g.posted {
				g.posted = true
				for _, c := range g.calls {
					f.post(k, g, c)
				}
				// A call of this group may have ended groups of any rank.
				for _, r := range k.q.ranks {
					if r != nil && r != k {
						work = append(work, r)
					}
				}
			}
			if g.pending > 0 {
				break
			}
			k.queue = k.queue[1:]
		}
	}
}

// post runs one call as far as it can be.
func (f *Fake) post(k *fakeComm, g *fakeGroup, c Call) {
	q := k.q
	switch c.Kind {
	case CallCopy:
		copy(f.bytes(c.Recv, c.Count), f.bytes(c.Send, c.Count))
		g.pending--
	case CallZero:
		clear(f.bytes(c.Recv, c.Count))
		g.pending--
	case CallSend, CallRecv:
		t := &fakeTransfer{send: c.Kind == CallSend, call: c, g: g}
		key := [2]int{k.rank, c.Peer}
		if !t.send {
			key = [2]int{c.Peer, k.rank}
		}
		wait := q.p2p[key]
		if len(wait) == 0 || wait[0].send == t.send {
			q.p2p[key] = append(wait, t)
			return
		}
		o := wait[0]
		q.p2p[key] = wait[1:]
		if o.call.Count != c.Count || o.call.Type != c.Type {
			k.state = InvalidUsage // the real library would corrupt or hang
			return
		}
		from, to := c.Send, o.call.Recv
		if !t.send {
			from, to = o.call.Send, c.Recv
		}
		bytes := c.Count * uint64(c.Type.Size())
		copy(f.bytes(to, bytes), f.bytes(from, bytes))
		g.pending--
		o.g.pending--
	default:
		i := k.colls
		k.colls++
		for len(q.colls) <= i {
			q.colls = append(q.colls, &fakeColl{posts: make([]*fakeGroup, q.n), calls: make([]Call, q.n)})
		}
		w := q.colls[i]
		w.posts[k.rank], w.calls[k.rank] = g, c
		if w.came++; w.came == q.n {
			f.collective(q, w)
			q.colls[i] = nil
		}
	}
}

// bytes views memory. An address that Alloc did not give breaks every communicator,
// as a device that is touched at a bad address does.
func (f *Fake) bytes(at uintptr, n uint64) []byte {
	for _, m := range f.mem {
		if at >= m.at && uint64(at-m.at)+n <= uint64(len(m.b)) {
			return m.b[at-m.at:][:n:n]
		}
	}
	if f.fault == "" {
		f.fault = fmt.Sprintf("%d bytes at %#x were never allocated", n, at)
	}
	return make([]byte, n)
}

// collective runs w, whose calls all ranks have posted.
func (f *Fake) collective(q *clique, w *fakeColl) {
	c := w.calls[0]
	for r, o := range w.calls {
		if o.Kind != c.Kind || o.Count != c.Count || o.Type != c.Type || o.Reduce != c.Reduce || o.Peer != c.Peer {
			q.ranks[r].state = InvalidUsage // the real library would hang or corrupt
			return
		}
	}
	size, n := uint64(c.Type.Size()), uint64(q.n)
	bytes := c.Count * size
	ins := make([][]byte, q.n)
	for r, o := range w.calls {
		in := bytes
		if c.Kind == CallReduceScatter {
			in *= n
		}
		if c.Kind == CallBroadcast && r != c.Peer {
			continue
		}
		ins[r] = slices.Clone(f.bytes(o.Send, in))
	}
	var all []byte
	switch c.Kind {
	case CallAllGather:
		all = slices.Concat(ins...)
	case CallBroadcast:
		all = ins[c.Peer]
	default:
		all = reduceAll(c.Type, c.Reduce, ins)
	}
	for r, o := range w.calls {
		switch {
		case c.Kind == CallReduceScatter:
			copy(f.bytes(o.Recv, bytes), all[uint64(r)*bytes:])
		case c.Kind != CallReduce || r == c.Peer:
			copy(f.bytes(o.Recv, uint64(len(all))), all)
		}
		w.posts[r].pending--
	}
}

// reduceAll combines the operands in rank order, floats in f64.
func reduceAll(t dtype.DType, red Reduction, ins [][]byte) []byte {
	out := make([]byte, len(ins[0]))
	size := t.Size()
	for at := 0; at < len(out); at += size {
		if t.IsFloat() {
			acc := dtype.LoadFloat(t, ins[0][at:])
			for _, in := range ins[1:] {
				acc = combine(red, acc, dtype.LoadFloat(t, in[at:]))
			}
			if red == Avg {
				acc /= float64(len(ins))
			}
			dtype.StoreFloat(t, out[at:], acc)
			continue
		}
		acc := dtype.LoadInt(t, ins[0][at:])
		for _, in := range ins[1:] {
			if v := dtype.LoadInt(t, in[at:]); t == dtype.U64 {
				acc = int64(combine(red, uint64(acc), uint64(v)))
			} else {
				acc = combine(red, acc, v)
			}
		}
		dtype.StoreInt(t, out[at:], acc)
	}
	return out
}

func combine[T float64 | int64 | uint64](red Reduction, a, b T) T {
	switch red {
	case Product:
		return a * b
	case Min:
		return min(a, b)
	case Max:
		return max(a, b)
	}
	return a + b
}
