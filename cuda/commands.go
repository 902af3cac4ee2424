package cuda

import "encoding/binary"

// Opcodes of a command buffer; shim.c has the same numbers.
const (
	opLaunch = 1 + iota
	opRecord
	opWait
	opCopy
	opMemset32
	opGraph
	opWrite32
	opWait32
)

// Main stands for the stream that a command buffer is run on.
const Main Stream = ^Stream(0)

// Commands is a packed list of launches, copies and events that the driver runs
// in one crossing from Go. A word is 64 bits; the first of each command holds its
// length in words, shifted by 8, and the opcode. The zero value is empty.
type Commands struct {
	words []uint64
	mains []int // words that hold Main
}

// Len is the number of words.
func (c *Commands) Len() int { return len(c.words) }

func (c *Commands) add(op uint64, s Stream, args ...uint64) {
	if s == Main {
		c.mains = append(c.mains, len(c.words)+1)
	}
	c.words = append(c.words, uint64(len(args)+2)<<8|op, uint64(s))
	c.words = append(c.words, args...)
}

// Launch adds a kernel with its packed parameters.
func (c *Commands) Launch(s Stream, f Func, grid, block, shared int, params []byte) {
	args := make([]uint64, 0, 3+(len(params)+7)/8)
	args = append(args, uint64(f), uint64(grid)|uint64(block)<<32, uint64(shared)|uint64(len(params))<<32)
	for len(params) > 0 {
		var w [8]byte
		n := copy(w[:], params)
		params = params[n:]
		args = append(args, binary.LittleEndian.Uint64(w[:]))
	}
	c.add(opLaunch, s, args...)
}

// Record adds the recording of an event.
func (c *Commands) Record(s Stream, e Event) { c.add(opRecord, s, uint64(e)) }

// Wait makes s wait for an event.
func (c *Commands) Wait(s Stream, e Event) { c.add(opWait, s, uint64(e)) }

// Copy adds a copy between device addresses; zero bytes add nothing.
func (c *Commands) Copy(s Stream, to, from Ptr, bytes uint64) {
	if bytes > 0 {
		c.add(opCopy, s, uint64(to), uint64(from), bytes)
	}
}

// Memset32 adds a fill of words of 32 bits.
func (c *Commands) Memset32(s Stream, to Ptr, v uint32, words uint64) {
	if words > 0 {
		c.add(opMemset32, s, uint64(to), uint64(v), words)
	}
}

// Graph adds the launch of an instantiated graph.
func (c *Commands) Graph(s Stream, x Exec) { c.add(opGraph, s, uint64(x)) }

// Write32 adds a write of one word, ordered in s and fenced before.
func (c *Commands) Write32(s Stream, to Ptr, v uint32) { c.add(opWrite32, s, uint64(to), uint64(v)) }

// Wait32 adds a wait until int32(*at - v) >= 0.
func (c *Commands) Wait32(s Stream, at Ptr, v uint32) { c.add(opWait32, s, uint64(at), uint64(v)) }

// Append adds all commands of o; what runs in o's main stream runs in c's.
func (c *Commands) Append(o *Commands) {
	for _, i := range o.mains {
		c.mains = append(c.mains, len(c.words)+i)
	}
	c.words = append(c.words, o.words...)
}

// On puts s in the place of Main and gives the words. They stay valid, and bound
// to s, until the next call of On.
func (c *Commands) On(s Stream) []uint64 {
	for _, i := range c.mains {
		c.words[i] = uint64(s)
	}
	return c.words
}
