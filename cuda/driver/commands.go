package driver

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Opcodes of a command buffer; shim.c has the same numbers.
const (
	OpLaunch = 1 + iota
	OpRecord
	OpWait
	OpCopy
	OpMemset32
	OpGraph
	OpFlags
	OpCall
	OpLaunchDependent
	OpMark
	OpLaunchCluster
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
	c.launch(OpLaunch, s, f, grid, block, shared, params)
}

// LaunchDependent adds a kernel that may begin before the kernel in front of it in the
// stream has ended: as soon as all blocks of that one have allowed it
// (griddepcontrol.launch_dependents) or ended. The kernel must wait by itself, in
// every thread (griddepcontrol.wait), before it reads what others write and before it
// writes. Devices below compute capability 9.0 take no such launches. Behind anything
// but a kernel it is like Launch.
func (c *Commands) LaunchDependent(s Stream, f Func, grid, block, shared int, params []byte) {
	c.launch(OpLaunchDependent, s, f, grid, block, shared, params)
}

// LaunchCluster adds a kernel whose blocks run in clusters of so many, that reach each
// other's shared memory; grid is a multiple of it. It needs compute capability 9.0.
// Parameters, at most 8, come one by one: where the driver puts those that are aligned to
// more than 16 bytes is its own affair. With early the kernel begins as one of LaunchEarly.
func (c *Commands) LaunchCluster(s Stream, f Func, grid, block, cluster, shared int, early bool, params ...[]byte) {
	args := []uint64{uint64(f), uint64(grid) | uint64(block)<<32 | uint64(cluster)<<48, uint64(shared)}
	if early {
		args[2] |= 1 << 32
	}
	for _, p := range params {
		args = appendBytes(append(args, uint64(len(p))), p)
	}
	c.add(OpLaunchCluster, s, args...)
}

// appendBytes adds p in whole words.
func appendBytes(words []uint64, p []byte) []uint64 {
	for len(p) > 0 {
		var w [8]byte
		n := copy(w[:], p)
		p = p[n:]
		words = append(words, binary.LittleEndian.Uint64(w[:]))
	}
	return words
}

func (c *Commands) launch(op uint64, s Stream, f Func, grid, block, shared int, params []byte) {
	args := make([]uint64, 0, 3+(len(params)+7)/8)
	args = append(args, uint64(f), uint64(grid)|uint64(block)<<32, uint64(shared)|uint64(len(params))<<32)
	c.add(op, s, appendBytes(args, params)...)
}

// Record adds the recording of an event.
func (c *Commands) Record(s Stream, e Event) { c.add(OpRecord, s, uint64(e)) }

// Mark adds the recording of an event into a graph that is being captured: every
// launch of the graph records it, and EventElapsed tells the times of the last one.
// Outside of a capture it is an error.
func (c *Commands) Mark(s Stream, e Event) { c.add(OpMark, s, uint64(e)) }

// Wait makes s wait for an event.
func (c *Commands) Wait(s Stream, e Event) { c.add(OpWait, s, uint64(e)) }

// Copy adds a copy between device addresses; zero bytes add nothing.
func (c *Commands) Copy(s Stream, to, from Ptr, bytes uint64) {
	if bytes > 0 {
		c.add(OpCopy, s, uint64(to), uint64(from), bytes)
	}
}

// Memset32 adds a fill of words of 32 bits.
func (c *Commands) Memset32(s Stream, to Ptr, v uint32, words uint64) {
	if words > 0 {
		c.add(OpMemset32, s, uint64(to), uint64(v), words)
	}
}

// Graph adds the launch of an instantiated graph.
func (c *Commands) Graph(s Stream, x Exec) { c.add(OpGraph, s, uint64(x)) }

// Flag is a write of a word of 32 bits, or a wait until int32(*At - V) >= 0.
type Flag struct {
	At   Ptr
	V    uint32
	Wait bool
}

// Flags adds writes and waits that happen in the order given, as one command. What was
// before it in the stream is visible to the whole system before the first write; what
// comes after it begins when the last wait is over. It takes no multiprocessor.
func (c *Commands) Flags(s Stream, flags ...Flag) {
	args := make([]uint64, 0, 2*len(flags))
	for _, f := range flags {
		v := uint64(f.V)
		if f.Wait {
			v |= FlagWait
		}
		args = append(args, v, uint64(f.At))
	}
	if len(flags) > 0 {
		c.add(OpFlags, s, args...)
	}
}

// FlagWait tells a wait from a write.
const FlagWait = 1 << 32

// CFunc is a C function that enqueues work on a stream: its address on a driver that
// Open gave, what RegisterCall gave on a HostDriver. The zero value names none. shim.h has
// the C type, cc_call, and says what such a function may do; it must not call Go.
type CFunc uint64

// Call adds a call of f with the stream and the words of args. Words that are
// pointers must not point to Go memory, and what they point to must outlive the
// buffer. A Run that fails in f returns an *Error: see CallStatus.
func (c *Commands) Call(s Stream, f CFunc, args ...uint64) {
	c.add(OpCall, s, append([]uint64{uint64(f)}, args...)...)
}

// callStatus is what a called function subtracts a library's own status from, to
// keep it apart from the driver's codes; shim.h has the same number.
const callStatus = -1000

// CallStatus gives the status of the library that a function added by Call failed
// with; ok is false for every other error.
func CallStatus(err error) (status int, ok bool) {
	var e *Error
	if !errors.As(err, &e) || e.Code >= callStatus {
		return 0, false
	}
	return callStatus - e.Code, true
}

func callError(code int) *Error {
	return &Error{Call: "called function", Code: code, Name: "CONCERT_CALL", Text: fmt.Sprintf("the library returned status %d", callStatus-code)}
}

// Waits reports whether a command writes words or waits for words (Flags).
func (c *Commands) Waits() bool {
	for i := 0; i < len(c.words); i += int(c.words[i] >> 8) {
		if c.words[i]&255 == OpFlags {
			return true
		}
	}
	return false
}

// Append adds all commands of o; what runs in o's main stream runs in c's.
func (c *Commands) Append(o *Commands) {
	for _, i := range o.mains {
		c.mains = append(c.mains, len(c.words)+i)
	}
	c.words = append(c.words, o.words...)
}

// AppendOn adds all commands of o with s in the place of Main.
func (c *Commands) AppendOn(s Stream, o *Commands) {
	at := len(c.words)
	c.words = append(c.words, o.words...)
	for _, i := range o.mains {
		c.words[at+i] = uint64(s)
		if s == Main {
			c.mains = append(c.mains, at+i)
		}
	}
}

// On puts s in the place of Main and gives the words. They stay valid, and bound
// to s, until the next call of On.
func (c *Commands) On(s Stream) []uint64 {
	for _, i := range c.mains {
		c.words[i] = uint64(s)
	}
	return c.words
}
