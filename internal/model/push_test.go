package model

import "fmt"

// flaw is what a model of the push protocol leaves out.
type flaw int

const (
	sound     flaw = iota
	noCredit       // pushes wait for no credits
	noRelease      // counters do not wait for the data
	noLeave        // a call does not wait for the end of its peers'
	noJoin         // a block leaves when one of its teams has ended
)

// Memory of the models of kernels/src/push.h: one block a rank, depth slots for every source, and
// counters by source.
type pushMemory struct{ depth int }

func (m pushMemory) stage(rank, chunk, src int) uint8 {
	return uint8((rank*m.depth+chunk%m.depth)*n + src)
}
func (m pushMemory) pushed(rank, src int) uint8  { return uint8(m.depth*n*n + rank*n + src) }
func (m pushMemory) credits(rank, src int) uint8 { return uint8((m.depth+1)*n*n + rank*n + src) }
func (m pushMemory) exit(rank, src int) uint8    { return uint8((m.depth+2)*n*n + rank*n + src) }

// before reports whether the counter at has not reached want.
func before(s *State, at uint8, want int) bool { return int8(s.Mem[at]-uint8(want)) < 0 }

// tell sets a rank's counter on all peers.
func tell(s *State, rank int, counter func(rank, src int) uint8, to int) {
	for k := 1; k < n; k++ {
		s.Put(rank, counter(peer(rank, k), rank), uint8(to))
	}
}

// fold reads what peer k has staged of a chunk.
func (m pushMemory) fold(s *State, rank, chunk, k int) error {
	if v := int(s.Mem[m.stage(rank, chunk, peer(rank, k))]); v != chunk+1 {
		return fmt.Errorf("rank %d folds chunk %d and finds %d of rank %d", rank, chunk, v-1, peer(rank, k))
	}
	return nil
}

// push models kernels/src/allreduce_push.cu: a window is pushed, then the one before is folded. A
// counts the chunks of all calls that were pushed, B those folded; a call has per chunks.
func push(calls, per, depth, window int, f flaw) Model {
	m := pushMemory{depth}
	return Model{
		Procs: n,
		Done:  func(s *State, p int) bool { return int(s.B[p]) == calls*per && s.PC[p] == 0 },
		Step:  func(s *State, p int) (bool, error) { return m.push(s, p, per, window, f) },
	}
}

// push is a step of push.
func (m pushMemory) push(s *State, p, per, window int, f flaw) (bool, error) {
	const (
		credit = 0              // and 1: wait for credits of a window
		send   = 2              // push it
		raise  = 3              // announce it
		wait   = 4              // and 5: wait for the pieces of a window
		read   = 6              // and on: read them
		end    = read + 2*(n-1) // raise credits
		leave  = end + 1        // exit message
		left   = leave + 1      // and the next: wait for the peers'
		over   = left + n - 1   // end of the kernel
	)
	a, b, pc := int(s.A[p]), int(s.B[p]), int(s.PC[p])
	done := b / per * per // chunks of earlier calls, until this one has left
	if pc >= leave {
		done = b - per
	}
	next, to := min(a+window, done+per), min(b+window, done+per)
	if (pc == raise || pc == end || pc == leave) && f != noRelease && !s.Flushed(p) {
		return false, nil
	}
	switch {
	case pc < send:
		if a == done+per || a-b > window {
			s.PC[p] = wait
			return true, nil
		}
		if f != noCredit && next-done > m.depth && before(s, m.credits(p, peer(p, pc+1)), next-m.depth) {
			return false, nil
		}
	case pc == send:
		for i := a; i < next; i++ {
			for k := 1; k < n; k++ {
				s.Put(p, m.stage(peer(p, k), i, p), uint8(i+1))
			}
		}
	case pc == raise:
		tell(s, p, m.pushed, next)
		s.A[p] = uint8(next)
		if next < done+per && next-b <= window {
			s.PC[p] = credit
			return true, nil
		}
	case pc < read:
		if before(s, m.pushed(p, peer(p, pc-wait+1)), to) {
			return false, nil
		}
	case pc < end:
		if i := b + (pc-read)/(n-1); i < to {
			if err := m.fold(s, p, i, 1+(pc-read)%(n-1)); err != nil {
				return false, err
			}
		}
	case pc == end:
		if b-done+m.depth < per {
			tell(s, p, m.credits, to)
		}
		s.B[p] = uint8(to)
		if to < done+per {
			s.PC[p] = credit
			return true, nil
		}
	case pc == leave:
		tell(s, p, m.exit, b/per)
	case pc < over:
		if f != noLeave && before(s, m.exit(p, peer(p, pc-left+1)), b/per) {
			return false, nil
		}
	default:
		if !s.Flushed(p) {
			return false, nil
		}
		s.PC[p] = credit
		return true, nil
	}
	s.PC[p]++
	return true, nil
}

// pushTeam is a step of the team of rank p that pushes.
func (m pushMemory) pushTeam(s *State, p, per, window int, f flaw) (bool, error) {
	a, done := int(s.A[p]), int(s.B[p])*per
	next := min(a+window, done+per)
	switch pc := int(s.PC[p]); pc {
	case 0, 1:
		if a == done+per {
			if f != noJoin && int(s.B[n+p]) == int(s.B[p]) { // the other team sends the exit message
				return false, nil
			}
			s.B[p]++
			return true, nil
		}
		if f != noCredit && next-done > m.depth && before(s, m.credits(p, peer(p, pc+1)), next-m.depth) {
			return false, nil
		}
	default: // push; raise; of a window to the first peer, then to the next
		k, last := 1+(pc-2)/2, 1+(pc-2)/2
		if window == 1 {
			last = n - 1
		}
		if pc%2 == 0 {
			for i := a; i < next; i++ {
				for k := k; k <= last; k++ {
					s.Put(p, m.stage(peer(p, k), i, p), uint8(i+1))
				}
			}
			break
		}
		if f != noRelease && !s.Flushed(p) {
			return false, nil
		}
		for k := k; k <= last; k++ {
			s.Put(p, m.pushed(peer(p, k), p), uint8(next))
		}
		if last == n-1 {
			s.A[p], s.PC[p] = uint8(next), 0
			return true, nil
		}
	}
	s.PC[p]++
	return true, nil
}

// foldTeam is a step of the team of rank p that folds.
func (m pushMemory) foldTeam(s *State, p, per int, f flaw) (bool, error) {
	q := n + p
	b, done := int(s.A[q]), int(s.B[q])*per
	switch pc := int(s.PC[q]); pc {
	case 0, 1:
		if b == done+per {
			s.PC[q] = 5
			return true, nil
		}
		if before(s, m.pushed(p, peer(p, pc+1)), b+1) {
			return false, nil
		}
	case 2, 3:
		if err := m.fold(s, p, b, pc-1); err != nil {
			return false, err
		}
	case 4:
		if f != noRelease && !s.Flushed(q) {
			return false, nil
		}
		for k := 1; k < n && b-done+m.depth < per; k++ {
			s.Put(q, m.credits(peer(p, k), p), uint8(b+1))
		}
		s.A[q]++
		s.PC[q] = 0
		return true, nil
	case 5: // the block's barrier, then the exit message
		if f != noJoin && int(s.A[p]) < done+per || !s.Flushed(p) || !s.Flushed(q) {
			return false, nil
		}
		for k := 1; k < n; k++ {
			s.Put(q, m.exit(peer(p, k), p), s.B[q]+1)
		}
	case 6, 7:
		if f != noLeave && before(s, m.exit(p, peer(p, pc-5)), int(s.B[q])+1) {
			return false, nil
		}
	case 8:
		if !s.Flushed(q) {
			return false, nil
		}
		s.B[q]++
		s.PC[q] = 0
		return true, nil
	}
	s.PC[q]++
	return true, nil
}

// teams models kernels/src/reducescatter_push.cu: process p is the team of rank p that pushes, one chunk to all peers or a window
// of several to one after the other, process n+p the one that folds. A counts the chunks of all calls that a team has
// done, B the calls it has left.
func teams(calls, per, depth, window int, f flaw) Model {
	m := pushMemory{depth}
	return Model{
		Procs: 2 * n,
		Done:  func(s *State, p int) bool { return int(s.B[p]) == calls && s.PC[p] == 0 },
		Step: func(s *State, p int) (bool, error) {
			if int(s.B[p]) == calls {
				return false, nil
			}
			if p < n {
				return m.pushTeam(s, p, per, window, f)
			}
			return m.foldTeam(s, p-n, per, f)
		},
	}
}
