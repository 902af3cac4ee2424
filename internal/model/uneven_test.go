package model

import (
	"fmt"
	"testing"
)

// The uneven all_to_all (kernels/src/alltoall_ll.cu), one block a rank: packets, and chunks of large
// pieces through the same slot against credits.

// Pieces of an exchange: what has no bytes sends a packet too; above that are chunks.
const (
	none  = 0
	small = -1
)

// exchange is the pieces by sender and receiver.
type exchange [n][n]int

type unevenFlaw int

const (
	unevenSound     unevenFlaw = iota
	unevenOneHalf              // all calls use one half of the scratch
	unevenNoEmpty              // who has nothing to send sends nothing
	unevenNoCredit             // places are filled without waiting
	unevenEarly                // credit is given before the place is read
	unevenNoRelease            // chunks are announced before they are there
	unevenNoClear              // what was read stays

	unevenWipes     // the first call wipes at its end, as those of the last epochs do: sound
	unevenWipesSoon // calls wipe at their beginning
)

const unevenDepth = 2

// Places of a slot: those of chunks, then the counts of chunks staged and taken.
const (
	unevenStaged = unevenDepth + iota
	unevenTaken
	unevenSlot

	unevenRaw = 0x80 // staged bytes
)

// at is the address of a place of src's slot on a rank.
func (f unevenFlaw) at(rank, call, src, off int) uint8 {
	half := call % 2
	if f == unevenOneHalf {
		half = 0
	}
	return uint8(((rank*2+half)*n+src)*unevenSlot + off)
}

// isPacket reports whether a piece is sent as a packet.
func (f unevenFlaw) isPacket(piece int) bool {
	return piece == small || piece == none && f != unevenNoEmpty
}

// reset clears the places that a call leaves to the next.
func (f unevenFlaw) reset(s *State, p, call int, x exchange, large bool) {
	for k := 1; k < n; k++ {
		src := peer(p, k)
		for off := range unevenSlot {
			if off > 0 || large && x[src][p] > 0 {
				s.Put(p, f.at(p, call, src, off), 0)
			}
		}
	}
}

// counted reports whether a count of this call has reached want.
func counted(s *State, addr uint8, call, want int) (bool, error) {
	v := int(s.Mem[addr])
	if v>>4 > call {
		return false, fmt.Errorf("call %d finds a count of call %d", call, v>>4)
	}
	return v>>4 == call && v&15 >= want, nil
}

// uneven models calls with these pieces. A slot has the places of unevenDepth chunks, the
// first of which is also that of a packet, and two counts.
//
// Program of a call: 0 packets go out; then for each round 0, 1 wait for credits, 2 fill,
// 3 announce; 4, 5 wait for chunks of the round before, 6, 7 take them, 8 give credit; then
// two for packets that come in, the end of the kernel, and another, behind what it wipes.
func uneven(f unevenFlaw, calls ...exchange) Model {
	const steps = 9
	return Model{
		Procs: n,
		Init:  firstCall(n),
		Done:  func(s *State, p int) bool { return int(s.A[p]) > len(calls) },
		Step: func(s *State, p int) (bool, error) {
			call, pc := int(s.A[p]), int(s.PC[p])
			x := calls[call-1]
			rounds := 0
			for r := range n {
				if r != p {
					rounds = max(rounds, x[p][r], x[r][p])
				}
			}
			last := 2 // with no rounds there is no loop
			if rounds > 0 {
				last += (rounds + 1) * steps
			}
			switch {
			case pc == 0:
				if f == unevenWipesSoon {
					f.reset(s, p, call, x, rounds > 0)
				}
				s.PC[p] = 1
				return true, nil
			case pc == 1:
				if f == unevenWipesSoon && !s.Flushed(p) {
					return false, nil
				}
				for k := 1; k < n; k++ {
					if d := peer(p, k); f.isPacket(x[p][d]) {
						s.Put(p, f.at(d, call, p, 0), uint8(call))
					}
				}
			case pc < last:
				moved, err := unevenChunk(s, p, f, x, call, (pc-2)/steps, (pc-2)%steps)
				if !moved || err != nil {
					return moved, err
				}
			case pc < last+n-1:
				src := peer(p, 1+pc-last)
				if !f.isPacket(x[src][p]) {
					break
				}
				switch v := int(s.Mem[f.at(p, call, src, 0)]); {
				case v >= unevenRaw:
					return false, fmt.Errorf("rank %d in call %d takes bytes that rank %d staged for a packet", p, call, src)
				case v > call:
					return false, fmt.Errorf("rank %d in call %d finds call %d of rank %d", p, call, v, src)
				case v < call:
					return false, nil
				}
			case pc == last+n-1:
				if !s.Flushed(p) {
					return false, nil
				}
				if f == unevenWipes && call == 1 {
					f.reset(s, p, call, x, rounds > 0)
				}
			default:
				return nextCall(s, p)
			}
			s.PC[p]++
			return true, nil
		},
		Landed: func(before *State, addr, val uint8) error {
			if off := int(addr) % unevenSlot; off < unevenDepth && val != 0 && before.Mem[addr] >= unevenRaw {
				return fmt.Errorf("%#x lands on %#x, which has been staged", val, before.Mem[addr])
			}
			return nil
		},
	}
}

// unevenChunk is step of round t of the chunks of a call.
func unevenChunk(s *State, p int, f unevenFlaw, x exchange, call, t, step int) (bool, error) {
	mark := func(i int) uint8 { return uint8(unevenRaw | call<<4 | i) }
	take := func(src int) error {
		i := t - 1
		addr := f.at(p, call, src, i%unevenDepth)
		if v := s.Mem[addr]; v != mark(i) {
			return fmt.Errorf("rank %d in call %d takes chunk %d of rank %d and finds %#x", p, call, i, src, v)
		}
		if f != unevenNoClear {
			s.Put(p, addr, 0)
		}
		return nil
	}
	credit := func() {
		for k := 1; k < n; k++ {
			if r := peer(p, k); t > 0 && x[r][p] >= t+unevenDepth {
				s.Put(p, f.at(r, call, p, unevenTaken), uint8(call<<4|t))
			}
		}
	}
	switch step {
	case 0, 1:
		if d := peer(p, step+1); x[p][d] > t && t >= unevenDepth && f != unevenNoCredit {
			return counted(s, f.at(p, call, d, unevenTaken), call, t-unevenDepth+1)
		}
	case 2:
		for k := 1; k < n; k++ {
			if d := peer(p, k); x[p][d] > t {
				s.Put(p, f.at(d, call, p, t%unevenDepth), mark(t))
			}
		}
	case 3:
		if f != unevenNoRelease && !s.Flushed(p) {
			return false, nil
		}
		for k := 1; k < n; k++ {
			if d := peer(p, k); x[p][d] > t {
				s.Put(p, f.at(d, call, p, unevenStaged), uint8(call<<4|(t+1)))
			}
		}
	case 4, 5:
		if src := peer(p, step-3); t > 0 && x[src][p] >= t {
			ok, err := counted(s, f.at(p, call, src, unevenStaged), call, t)
			if ok && step == 5 && f == unevenEarly {
				credit()
			}
			return ok, err
		} else if step == 5 && f == unevenEarly {
			credit()
		}
	case 6, 7:
		if src := peer(p, step-5); t > 0 && x[src][p] >= t {
			return true, take(src)
		}
	default:
		if f == unevenEarly {
			break
		}
		if !s.Flushed(p) {
			return false, nil
		}
		credit()
	}
	return true, nil
}

// Exchanges that tests are made of.
var (
	nothing  = exchange{}
	packets3 = exchange{{0, small, small}, {small, 0, small}, {small, small, 0}}
	some     = exchange{{0, small, none}, {none, 0, none}, {small, none, 0}}
	oneWay   = exchange{0: {1: 4}}
	both     = exchange{{0, 3, none}, {4, 0, small}, {none, small, 0}}
	ring     = exchange{{0, 3, small}, {none, 0, 3}, {3, none, 0}}
	short    = exchange{{0, 2, none}, {small, 0, 1}, {none, none, 0}}
)

func TestUneven(t *testing.T) {
	for _, calls := range [][]exchange{
		{packets3, nothing, packets3}, {some, nothing, some}, {nothing, oneWay, nothing}, {oneWay, oneWay, oneWay},
		{oneWay, nothing, packets3}, {both, some, both}, {both, nothing, packets3}, {ring, nothing, ring}, {ring, some, packets3},
		{short, short, short}, {short, nothing, packets3}, {packets3, both, packets3},
	} {
		states, err := uneven(unevenSound, calls...).Check(10_000_000)
		if err != nil {
			t.Errorf("%v: %v", calls, err)
		}
		t.Logf("%v: %d states", calls, states)
	}
	wiping := [][]exchange{{packets3, nothing, both}, {nothing, nothing, ring}, {oneWay, nothing, oneWay}, {both, nothing, packets3}, {short, some, short}}
	if testing.Short() {
		wiping = wiping[:2]
	}
	for _, calls := range wiping {
		states, err := uneven(unevenWipes, calls...).Check(10_000_000)
		if err != nil {
			t.Errorf("%v, the first wipes: %v", calls, err)
		}
		t.Logf("%v, the first wipes: %d states", calls, states)
	}
}

func TestBrokenUneven(t *testing.T) {
	for _, c := range []struct {
		name  string
		f     unevenFlaw
		calls []exchange
	}{
		{"one half", unevenOneHalf, []exchange{some, some, some}},
		{"one half of chunks", unevenOneHalf, []exchange{short, short}},
		{"nothing sent to who gets nothing", unevenNoEmpty, []exchange{packets3, nothing, packets3}},
		{"no credits", unevenNoCredit, []exchange{oneWay}},
		{"early credits", unevenEarly, []exchange{oneWay}},
		{"early counts", unevenNoRelease, []exchange{oneWay}},
		{"staged bytes stay", unevenNoClear, []exchange{short, nothing, packets3}},
		{"wiping before chunks", unevenWipesSoon, []exchange{packets3, oneWay}},
		{"wiping before packets and chunks", unevenWipesSoon, []exchange{both}},
	} {
		states, err := uneven(c.f, c.calls...).Check(10_000_000)
		if err == nil {
			t.Errorf("%s: nothing wrong in %d states", c.name, states)
		}
		t.Logf("%s: %v", c.name, err)
	}
}
