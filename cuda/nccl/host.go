package nccl

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/hostops"
)

// Machine is a driver whose device memory is this host's and whose streams can run Go
// functions, such as the fake one of package cuda.
type Machine struct {
	// Enqueue makes the stream call f in its turn, and again in every replay of a graph
	// that the call was captured in.
	Enqueue func(ctx, stream uintptr, f func() error) error
	// Bytes views device memory.
	Bytes func(at uintptr, n uint64) []byte
}

// Host is a Library on a Machine: what is enqueued runs in stream order, waits for its
// peers there, and can be captured and replayed. Ranks are goroutines or processes of one
// host; they are joined by sockets, whose names in Linux's abstract space follow from the
// unique id. Reductions go in rank order and have the bits of the host device. As NCCL, it
// ends no wait by itself: a communicator whose peer is gone has the state RemoteError and
// its streams stay where they are until it is aborted. It is for tests; it is not fast.
type Host struct {
	m     Machine
	mu    sync.Mutex
	comms map[Handle]*hostComm
	next  Handle
	left  int // registrations of communicators that were freed

	registered, touched atomic.Int64

	// Lacks is why there are no registrations, as in an old library; nil: there are.
	Lacks error
}

// NewHost gives a library without communicators.
func NewHost(m Machine) *Host { return &Host{m: m, comms: map[Handle]*hostComm{}} }

// Leaks is how many communicators have been made and not freed, and how many were freed with
// memory registered.
func (h *Host) Leaks() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.comms) + h.left
}

// hostComm is one rank's end of a communicator.
type hostComm struct {
	m       Machine
	rank, n int
	turn    sync.Mutex // held by the group that runs

	mu      sync.Mutex
	cond    *sync.Cond
	state   Code
	text    string
	conns   []net.Conn  // by rank, nil for itself
	in      [][]message // by source: what has come
	gone    []bool      // by rank: will send no more
	stopped bool        // freed
	ln      net.Listener
	ends    sync.WaitGroup
	regs    hostRegs
}

// message is what one call sends to one rank.
type message struct {
	head [messageWords]uint64 // what sender and receiver must agree on
	data []byte
}

const (
	messageWords = 6
	callBye      = 255 // kind of the message that a rank leaves with
)

// Version implements Library.
func (h *Host) Version() (int, error) { return 22800, nil }

// UniqueID implements Library.
func (h *Host) UniqueID() (id ID, err error) {
	rand.Read(id[:16]) // never fails: crypto/rand aborts the program instead
	return id, nil
}

func hostName(id ID, rank int) string {
	return fmt.Sprintf("@concert-nccl-%s-%d", hex.EncodeToString(id[:16]), rank)
}

func (h *Host) find(hd Handle) (*hostComm, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.comms[hd]; c != nil {
		return c, nil
	}
	return nil, &Error{Call: "communicator", Code: InvalidArgument, Text: fmt.Sprintf("no communicator %d", hd)}
}

// Init implements Library.
func (h *Host) Init(_ uintptr, n int, id ID, rank int, _ Config) (Handle, error) {
	const call = "ncclCommInitRankConfig"
	if n < 1 || rank < 0 || rank >= n {
		return 0, &Error{Call: call, Code: InvalidArgument}
	}
	ln, err := net.Listen("unix", hostName(id, rank))
	if err != nil {
		return 0, &Error{Call: call, Code: InvalidUsage, Text: err.Error()}
	}
	c := &hostComm{m: h.m, rank: rank, n: n, state: InProgress, ln: ln, conns: make([]net.Conn, n), in: make([][]message, n), gone: make([]bool, n)}
	c.cond = sync.NewCond(&c.mu)
	c.ends.Add(1)
	go c.connect(id)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	h.comms[h.next] = c
	return h.next, &Error{Call: call, Code: InProgress}
}

// connect dials the ranks below and accepts those above.
func (c *hostComm) connect(id ID) {
	defer c.ends.Done()
	defer c.ln.Close()
	for r := range c.rank {
		for {
			conn, err := net.Dial("unix", hostName(id, r))
			if err == nil {
				_, err = conn.Write(binary.LittleEndian.AppendUint32(nil, uint32(c.rank)))
			}
			if err == nil {
				c.add(r, conn)
				break
			}
			if c.freed() {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	for n := c.rank + 1; n < c.n; n++ {
		conn, err := c.ln.Accept()
		if err != nil {
			c.fail(SystemError, err.Error())
			return
		}
		var b [4]byte
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			conn.Close()
			c.fail(RemoteError, err.Error())
			return
		}
		r := int(binary.LittleEndian.Uint32(b[:]))
		if r <= c.rank || r >= c.n {
			conn.Close()
			c.fail(InternalError, fmt.Sprintf("rank %d of %d came to rank %d", r, c.n, c.rank))
			return
		}
		c.add(r, conn)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == InProgress {
		c.state = Success
	}
	c.cond.Broadcast()
}

func (c *hostComm) freed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}

// add takes a connection, unless the communicator is freed already.
func (c *hostComm) add(rank int, conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped || c.conns[rank] != nil {
		conn.Close()
		return
	}
	c.conns[rank] = conn
	c.ends.Add(1)
	go c.read(rank, conn)
}

// fail gives the communicator an error; the first one stays.
func (c *hostComm) fail(code Code, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == Success || c.state == InProgress {
		c.state, c.text = code, text
	}
	c.cond.Broadcast()
}

// read takes what a rank sends, whether it is waited for or not.
func (c *hostComm) read(rank int, conn net.Conn) {
	defer c.ends.Done()
	r := bufio.NewReader(conn)
	for {
		var p message
		var size uint64
		err := binary.Read(r, binary.LittleEndian, &p.head)
		if err == nil {
			err = binary.Read(r, binary.LittleEndian, &size)
		}
		if err == nil && size > most {
			err = fmt.Errorf("a message of %d bytes", size)
		}
		if err == nil {
			p.data = make([]byte, size)
			_, err = io.ReadFull(r, p.data)
		}
		c.mu.Lock()
		bye := c.gone[rank]
		switch {
		case err == nil && p.head[0] == callBye:
			c.gone[rank] = true
		case err == nil:
			c.in[rank] = append(c.in[rank], p)
		}
		c.cond.Broadcast()
		c.mu.Unlock()
		if err != nil {
			if !bye && !c.freed() {
				c.fail(RemoteError, fmt.Sprintf("the connection to rank %d ended: %v", rank, err))
			}
			return
		}
	}
}

// AsyncError implements Library.
func (h *Host) AsyncError(hd Handle) (Code, error) {
	c, err := h.find(hd)
	if err != nil {
		return Success, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == Success && c.gone[c.rank] { // finalized
		for _, g := range c.gone {
			if !g {
				return InProgress, nil
			}
		}
	}
	return c.state, nil
}

// LastError implements Library.
func (h *Host) LastError(hd Handle) string {
	c, err := h.find(hd)
	if err != nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text
}

// Submit implements Library.
func (h *Host) Submit(ctx uintptr, hd Handle, stream uintptr, calls []Call) error {
	c, err := h.find(hd)
	if err != nil {
		return err
	}
	c.mu.Lock()
	state, text := c.state, c.text
	c.mu.Unlock()
	if state != Success {
		if state == InProgress {
			state = InvalidArgument // what is broken stays what it is
		}
		return &Error{Call: "ncclGroupEnd", Code: state, Text: "the communicator is not ready: " + text}
	}
	calls = append([]Call(nil), calls...)
	counted := c.registered(calls)
	return h.m.Enqueue(ctx, stream, func() error { c.run(calls, counted); return nil })
}

// Finalize implements Library.
func (h *Host) Finalize(_ uintptr, hd Handle) error {
	c, err := h.find(hd)
	if err != nil {
		return err
	}
	for r := range c.n {
		if r != c.rank {
			c.send(r, message{head: [messageWords]uint64{callBye}})
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone[c.rank] = true
	return &Error{Call: "ncclCommFinalize", Code: InProgress}
}

// Destroy implements Library.
func (h *Host) Destroy(_ uintptr, hd Handle) error { return h.free(hd) }

// Abort implements Library.
func (h *Host) Abort(_ uintptr, hd Handle) error { return h.free(hd) }

func (h *Host) free(hd Handle) error {
	c, err := h.find(hd)
	if err != nil {
		return err
	}
	c.mu.Lock()
	left := len(c.regs.list)
	c.mu.Unlock()
	h.mu.Lock()
	delete(h.comms, hd)
	h.left += left
	h.mu.Unlock()
	c.mu.Lock()
	c.stopped = true
	c.ln.Close()
	for _, conn := range c.conns {
		if conn != nil {
			conn.Close()
		}
	}
	c.cond.Broadcast()
	c.mu.Unlock()
	c.ends.Wait()
	return nil
}

// errStopped ends a group of a communicator that was freed.
var errStopped = errors.New("the communicator is freed")

// run does a group of calls: all sending first, as if the calls ran side by side.
func (c *hostComm) run(calls []Call, counted []bool) {
	c.turn.Lock()
	defer c.turn.Unlock()
	if c.hold(calls, counted) != nil {
		return
	}
	own := make([][]byte, len(calls))
	for i := range calls {
		own[i] = c.give(&calls[i], counted[i])
	}
	results := make([][]byte, len(calls))
	for i := range calls {
		var err error
		if results[i], err = c.get(&calls[i], counted[i]); err != nil {
			return
		}
	}
	for i := range calls {
		copy(c.m.Bytes(calls[i].Recv, uint64(len(results[i]))), results[i])
	}
}

// give does the sending of a call, and returns a copy of the operand.
func (c *hostComm) give(k *Call, registered bool) []byte {
	bytes := k.Count * uint64(k.Type.Size())
	switch k.Kind {
	case CallCopy:
		copy(c.m.Bytes(k.Recv, k.Count), c.m.Bytes(k.Send, k.Count))
		return nil
	case CallZero:
		clear(c.m.Bytes(k.Recv, k.Count))
		return nil
	case CallRecv:
		return nil
	case CallReduceScatter:
		bytes *= uint64(c.n)
	case CallBroadcast:
		if k.Peer != c.rank {
			return nil
		}
	}
	own := append([]byte(nil), c.m.Bytes(k.Send, bytes)...)
	for r := range c.n {
		part := own
		switch {
		case k.Kind == CallSend && r != k.Peer, k.Kind == CallReduce && r != k.Peer:
			continue
		case k.Kind == CallReduceScatter:
			each := len(own) / c.n
			part = own[r*each:][:each]
		}
		c.send(r, message{head: k.head(registered), data: part})
	}
	return own
}

// send sends a message to a rank, which may be this one. What cannot be sent shows as a
// connection that ends.
func (c *hostComm) send(rank int, p message) {
	if rank == c.rank {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.in[rank] = append(c.in[rank], p)
		return
	}
	b := make([]byte, 0, 8*(messageWords+1)+len(p.data))
	for _, w := range p.head {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(len(p.data)))
	c.mu.Lock()
	conn := c.conns[rank]
	c.mu.Unlock()
	if conn != nil {
		// One write: nothing may come between. The other side always reads.
		if _, err := conn.Write(append(b, p.data...)); err != nil && !c.freed() {
			c.fail(RemoteError, err.Error())
		}
	}
}

// get takes what the other ranks send for a call, and gives its result.
func (c *hostComm) get(k *Call, registered bool) ([]byte, error) {
	if k.Kind <= CallZero || k.Kind == CallSend || k.Kind == CallReduce && k.Peer != c.rank {
		return nil, nil
	}
	if k.Kind == CallRecv || k.Kind == CallBroadcast {
		return c.take(k.Peer, k.head(registered))
	}
	parts := make([][]byte, c.n)
	for r := range parts {
		var err error
		if parts[r], err = c.take(r, k.head(registered)); err != nil {
			return nil, err
		}
	}
	if k.Kind == CallAllGather {
		var all []byte
		for _, p := range parts {
			all = append(all, p...)
		}
		return all, nil
	}
	view := func(b []byte) hostops.Tensor {
		return hostops.Tensor{DType: k.Type, Shape: []int64{int64(k.Count)}, Strides: []int64{1}, Data: b}
	}
	ins := make([]hostops.Tensor, c.n)
	for r := range ins {
		ins[r] = view(parts[r])
	}
	out := make([]byte, len(parts[0]))
	if err := hostops.Reduce(k.Reduce.String(), view(out), ins); err != nil {
		c.fail(InvalidArgument, err.Error())
		return nil, c.wait()
	}
	return out, nil
}

// take waits for the next message from a rank, which must be the expected one.
func (c *hostComm) take(rank int, want [messageWords]uint64) ([]byte, error) {
	c.mu.Lock()
	for len(c.in[rank]) == 0 && !c.stopped {
		c.cond.Wait()
	}
	if c.stopped {
		c.mu.Unlock()
		return nil, errStopped
	}
	p := c.in[rank][0]
	c.in[rank] = c.in[rank][1:]
	c.mu.Unlock()
	if p.head != want { // the real library would hang or corrupt
		name := func(h [messageWords]uint64) string {
			return fmt.Sprintf("%v of %d %v, registered: %d", CallKind(h[0]), h[4], dtype.DType(h[1]), h[messageWords-1])
		}
		c.fail(InvalidUsage, fmt.Sprintf("rank %d runs %s where rank %d runs %s", rank, name(p.head), c.rank, name(want)))
		return nil, c.wait()
	}
	return p.data, nil
}

// wait holds the stream until the communicator is freed.
func (c *hostComm) wait() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.stopped {
		c.cond.Wait()
	}
	return errStopped
}
