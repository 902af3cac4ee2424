package nccl

import "fmt"

// Registrations of the double. As NCCL does, it decides for a call when it is enqueued whether
// its memory is registered, which replays of a graph then count on. What would make NCCL hang or
// send what is no longer there is an error: ranks that differ, and registrations that end before
// the calls do. Memory that is gone before its registration traps.

// hostRegs are a communicator's registrations, under its mu.
type hostRegs struct {
	list map[Registration]span
	last Registration
}

// span is memory of this rank.
type span struct {
	at    uintptr
	bytes uint64
}

// Registers implements Library.
func (h *Host) Registers() error { return h.Lacks }

// Register implements Library.
func (h *Host) Register(_ uintptr, hd Handle, at uintptr, bytes uint64) (Registration, error) {
	c, err := h.find(hd)
	if err != nil {
		return 0, err
	}
	if h.Lacks != nil || bytes == 0 {
		return 0, &Error{Call: "ncclCommRegister", Code: InvalidUsage, Text: fmt.Sprintf("%d bytes: %v", bytes, h.Lacks)}
	}
	h.touch(c.m.Bytes(at, bytes))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.regs.list == nil {
		c.regs.list = map[Registration]span{}
	}
	c.regs.last++
	c.regs.list[c.regs.last] = span{at, bytes}
	h.registered.Add(1)
	return c.regs.last, nil
}

// Deregister implements Library.
func (h *Host) Deregister(_ uintptr, hd Handle, r Registration) error {
	c, err := h.find(hd)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.regs.list[r]
	if !ok {
		return &Error{Call: "ncclCommDeregister", Code: InvalidUsage, Text: fmt.Sprintf("no registration %d", r)}
	}
	h.touch(c.m.Bytes(s.at, s.bytes))
	delete(c.regs.list, r)
	return nil
}

// Registered is how often memory has been registered.
func (h *Host) Registered() int { return int(h.registered.Load()) }

// touch reads both ends, and keeps what it reads, or the compiler would not let it.
func (h *Host) touch(b []byte) { h.touched.Add(int64(b[0]) + int64(b[len(b)-1])) }

// spans are what a call reads and writes on a rank of n.
func (k *Call) spans(rank, n int) []span {
	bytes := k.Count * uint64(k.Type.Size())
	send, recv := span{k.Send, bytes}, span{k.Recv, bytes}
	switch k.Kind {
	case CallAllGather:
		recv.bytes *= uint64(n)
	case CallReduceScatter:
		send.bytes *= uint64(n)
	case CallSend:
		return []span{send}
	case CallRecv:
		return []span{recv}
	case CallReduce:
		if k.Peer != rank {
			return []span{send}
		}
	case CallCopy, CallZero:
		return nil
	}
	return []span{send, recv}
}

// registered says for each call whether all that it reads and writes is registered.
func (c *hostComm) registered(calls []Call) []bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]bool, len(calls))
	for i := range calls {
		list := calls[i].spans(c.rank, c.n)
		out[i] = len(list) > 0
		for _, s := range list {
			in := false
			for _, r := range c.regs.list {
				in = in || r.at <= s.at && uint64(s.at-r.at)+s.bytes <= r.bytes
			}
			out[i] = out[i] && in
		}
	}
	return out
}

// hold stays where a registration that a call counts on has ended.
func (c *hostComm) hold(calls []Call, counted []bool) error {
	for i, now := range c.registered(calls) {
		if counted[i] && !now {
			c.fail(InvalidUsage, fmt.Sprintf("memory of %v was deregistered before the call ran", calls[i].Kind))
			return c.wait()
		}
	}
	return nil
}

// head is what the two sides of a message must agree on.
func (k *Call) head(registered bool) [messageWords]uint64 {
	h := [messageWords]uint64{uint64(k.Kind), uint64(k.Type), uint64(k.Reduce), uint64(k.Peer), k.Count}
	if k.Kind == CallSend || k.Kind == CallRecv {
		h = [messageWords]uint64{uint64(CallSend), uint64(k.Type), 0, 0, k.Count}
	}
	if registered {
		h[messageWords-1] = 1
	}
	return h
}
