package lifecycle

import (
	"fmt"

	"github.com/seed-ee968945/concert/internal/model"
)

// The model has a world that owns a group, with work of the group on a device, and a second
// group that cannot be made. Every process does one thing at a time that others can see, in
// the order of the code:
//
//	caller   begins a call of the group, enqueues work that waits for a peer, which may fail,
//	         and joins the group anew when the work has ended
//	device   ends the work late, when the peer has come or the group is aborted
//	peer     comes, or dies, which aborts the group, or neither
//	closer   ends the group
//	owner    ends the world, again and again until it is released
//	context  ends the owner's context, once, while it waits
//	maker    begins a call of the world, makes a group in it, fails and gives it back
//	judge    looks at what is left when all others have finished

// The scopes of the model.
const (
	world = iota
	group
	half // the group that cannot be made
	modelScopes
)

// What a scope has, in bytes.
const (
	atState = iota // as State, or absent
	atStopped
	atReleasing
	atCalls
	atHolds
	atToken
	atWake
	atPopped // taken off the list
	atGiven
	scopeBytes
)

const absent = 9

// What is not of a scope.
const (
	atWork = modelScopes*scopeBytes + iota
	atAbort
	atPeer
	atFailing // the driver's next call fails
	atDriving // the owner waits
	atCause   // and its context has ended
)

// The processes.
const (
	theCaller = iota
	theDevice
	thePeer
	theCloser
	theOwner
	theContext
	theMaker
	theJudge
	modelProcs
)

const finished = 200 // the program counter of a process that has

// seeded is what is left out of the mechanism; one each must be found.
type seeded struct {
	forgottenWait   bool // calls under way are not waited for
	forgottenIdle   bool // work on the device is not waited for
	doubleRelease   bool // a second call that ends does not look at what the first one did
	noToken         bool // two calls may drive one scope
	beforeDrain     bool // an owner gives its own back before what is below it has drained
	lostWake        bool // a call that is done wakes before it counts
	ownWakeOnly     bool // a call that is done wakes who drives its scope, not who drives an owner
	waitsForItself  bool // a call ends what it made by End
	notBelow        bool // scopes below do not look at their owner's calls
	deafWhileDrains bool // holds are refused while a scope drains
	holdsForgotten  bool // release does not wait for holds
	stopsAlone      bool // scopes below go on beginning calls
}

type mech struct {
	seeded
	scene
}

func at(scope, what int) int { return scope*scopeBytes + what }

// below lists what a scope owns, last made first.
func below(x int) []int {
	if x == world {
		return []int{half, group}
	}
	return nil
}

// signal wakes who drives a scope or its owner.
func (m mech) signal(s *model.State, x int) {
	s.Mem[at(x, atWake)] = 1
	if x != world && !m.ownWakeOnly {
		s.Mem[at(world, atWake)] = 1
	}
}

// enter counts a call or a hold, and reports whether it is admitted.
func (m mech) enter(s *model.State, x, count, gate int) bool {
	s.Mem[at(x, count)]++
	return s.Mem[at(x, gate)] == 0
}

// left is the two steps behind a call or a hold: counting and waking.
func (m mech) left(s *model.State, p, x, count, next int) {
	if m.lostWake {
		if s.A[p] == 0 {
			m.signal(s, x)
		} else {
			s.Mem[at(x, count)]--
		}
	} else if s.A[p] == 0 {
		s.Mem[at(x, count)]--
	} else {
		m.signal(s, x)
	}
	if s.A[p]++; s.A[p] == 2 {
		s.A[p], s.PC[p] = 0, uint8(next)
	}
}

// uses objects to who uses what a scope has given back.
func uses(s *model.State, who string, scopes ...int) error {
	for _, x := range scopes {
		if s.Mem[at(x, atGiven)] != 0 {
			return fmt.Errorf("%s uses what scope %d has given back", who, x)
		}
	}
	return nil
}

func (m mech) caller(s *model.State, p int) (bool, error) {
	switch s.PC[p] {
	case 0, 10: // Begin
		ok := m.enter(s, group, atCalls, atStopped)
		if s.PC[p]++; !ok {
			s.PC[p] = 30
		}
	case 1:
		if s.Mem[atFailing] == 0 {
			s.Mem[atWork] = 1
		}
		s.PC[p] = 2
		return true, uses(s, "the caller", group, world)
	case 2: // a call that failed aborts
		if s.Mem[atFailing] == 1 {
			s.Mem[atAbort] = 1
		}
		s.PC[p] = 3
		return true, uses(s, "the caller", group)
	case 3:
		m.left(s, p, group, atCalls, 10)
	case 11: // Rejoin, which is bound
		if s.Mem[atWork] != 0 && s.Mem[at(group, atStopped)] == 0 {
			return false, nil
		}
		s.PC[p] = 12
	case 12:
		if s.Mem[atWork] == 0 && s.Mem[at(group, atStopped)] == 0 {
			s.Mem[atAbort] = 0
		}
		s.PC[p] = 30
		return true, uses(s, "the caller", group, world)
	case 30:
		m.left(s, p, group, atCalls, finished)
	}
	return true, nil
}

func (m mech) device(s *model.State, p int) (bool, error) {
	if s.Mem[atPeer] != 1 && s.Mem[atAbort] == 0 {
		return false, nil
	}
	s.Mem[atWork] = 0
	return true, uses(s, "the device", group, world)
}

func (m mech) peer(s *model.State, p int) (bool, error) {
	switch s.PC[p] {
	case 0:
		if m.comes {
			s.Mem[atPeer] = 1
		}
		if s.PC[p] = finished; m.dies {
			s.PC[p] = 1
		}
	case 1: // Hold
		gate := atReleasing
		if m.deafWhileDrains {
			gate = atStopped
		}
		ok := m.enter(s, group, atHolds, gate)
		if s.PC[p] = 2; !ok {
			s.PC[p] = 3
		}
	case 2:
		s.Mem[atAbort] = 1
		s.PC[p] = 3
		return true, uses(s, "who hears of the peer", group)
	case 3:
		m.left(s, p, group, atHolds, finished)
	}
	return true, nil
}

func (m mech) context(s *model.State, p int) (bool, error) {
	if s.Mem[atDriving] == 0 && s.PC[p] == 0 {
		if s.PC[theOwner] == finished {
			s.PC[p] = finished
		}
		return s.PC[theOwner] == finished, nil
	}
	if s.PC[p] == 0 {
		s.Mem[atCause] = 1
	} else { // look
		m.signal(s, []int{half, group, world}[s.PC[p]-1])
	}
	if s.PC[p]++; s.PC[p] > modelScopes {
		s.PC[p] = finished
	}
	return true, nil
}

func (m mech) maker(s *model.State, p int) (bool, error) {
	switch pc := s.PC[p]; {
	case pc == 0: // Begin
		ok := m.enter(s, world, atCalls, atStopped)
		if s.PC[p] = 1; !ok {
			s.PC[p] = 3
		}
	case pc == 1: // New
		if s.PC[p] = 3; s.Mem[at(world, atState)] == uint8(Open) {
			s.Mem[at(half, atState)] = uint8(Open)
			s.PC[p] = 2
		}
	case pc == 2: // EndInCall: the token or nothing
		switch {
		case m.waitsForItself:
			s.PC[p] = driveStop
		case s.Mem[at(half, atToken)] != 0:
			s.PC[p] = 3
		default:
			s.Mem[at(half, atToken)] = uint8(p + 1)
			s.PC[p] = driveStop
		}
	case pc == 3:
		m.left(s, p, world, atCalls, finished)
	default:
		return m.drive(s, p, half, 3)
	}
	return true, nil
}

func (m mech) closer(s *model.State, p int) (bool, error) {
	if s.PC[p] == 0 {
		s.PC[p] = driveStop
	}
	return m.drive(s, p, group, finished)
}

func (m mech) owner(s *model.State, p int) (bool, error) {
	switch s.PC[p] {
	case 0:
		s.Mem[atDriving] = 1
		s.PC[p] = driveStop
		return true, nil
	case 1:
		s.Mem[atDriving], s.Mem[atCause] = 0, 0
		if s.PC[p] = 0; s.Mem[at(world, atState)] == uint8(Released) {
			s.PC[p] = finished
		}
		return true, nil
	}
	return m.drive(s, p, world, 1)
}

// judge wants all to be given back, once.
func (m mech) judge(s *model.State, p int) (bool, error) {
	for q := range theJudge {
		if !m.done(s, q) {
			return false, nil
		}
	}
	s.PC[p] = finished
	for x := range modelScopes {
		state, given := s.Mem[at(x, atState)], s.Mem[at(x, atGiven)]
		if state != absent && (state != uint8(Released) || given != 1) {
			return true, fmt.Errorf("scope %d is %v in the end, and given back %d times", x, State(state), given)
		}
	}
	return true, nil
}

// The steps of End.
const (
	driveStop = 40 + iota
	driveTake
	driveLook
	driveAsk
	driveWait
	driveRelease
	driveYield
)

// tree is a scope and what it owns, lowest first.
func tree(x int) []int { return append(below(x), x) }

// drive is a step of End of scope x; it goes on at next.
func (m mech) drive(s *model.State, p, x, next int) (bool, error) {
	all, i := tree(x), int(s.A[p])
	step := func(more int) { // the next scope, or the next part
		if s.A[p]++; int(s.A[p]) == len(all) {
			s.A[p] = 0
			s.PC[p] = uint8(more)
		}
	}
	switch s.PC[p] {
	case driveStop: // owners first
		y := all[len(all)-1-i]
		if s.Mem[at(y, atState)] == uint8(Open) && (y == x || !m.stopsAlone) {
			s.Mem[at(y, atState)], s.Mem[at(y, atStopped)] = uint8(Draining), 1
		}
		step(driveTake)
	case driveTake: // owners first
		y := all[len(all)-1-i]
		if t := s.Mem[at(y, atToken)]; t != uint8(p+1) && s.Mem[at(y, atState)] != absent && !m.noToken {
			if t != 0 {
				return false, nil
			}
			s.Mem[at(y, atToken)] = uint8(p + 1)
		}
		step(driveLook)
	case driveLook:
		s.B[p] = 0
		if s.PC[p] = driveAsk; s.Mem[at(x, atState)] == uint8(Released) && !m.doubleRelease {
			s.PC[p] = driveYield
		}
	case driveAsk:
		if m.busy(s, all[i], x) {
			s.B[p] = 1
		}
		step(driveWait)
	case driveWait:
		return m.wait(s, p, x), nil
	case driveRelease:
		return m.release(s, p, all)
	case driveYield:
		for _, y := range all {
			if s.Mem[at(y, atToken)] == uint8(p+1) {
				s.Mem[at(y, atToken)] = 0
			}
		}
		s.PC[p] = uint8(next)
	}
	return true, nil
}

// busy tends a scope, by what the driver of x sees of a cause, and asks for calls.
func (m mech) busy(s *model.State, y, x int) bool {
	if state := s.Mem[at(y, atState)]; state == absent || state == uint8(Released) {
		return false
	}
	if m.beforeDrain && y != x {
		return false
	}
	if y == group && m.hooks && m.cause(s, x) {
		s.Mem[atAbort] = 1
	}
	return s.Mem[at(y, atCalls)] != 0 && !m.forgottenWait
}

// works asks for the work of what the driver of x ends.
func (m mech) works(s *model.State, x int) bool {
	return x != half && !(m.beforeDrain && x == world) && m.hooks && s.Mem[atWork] != 0 && !m.forgottenIdle
}

// cause reports whether who drives x finds one.
func (m mech) cause(s *model.State, x int) bool {
	return s.Mem[atCause] != 0 && (x == world || !m.notBelow)
}

// wait goes on when nothing was busy, nor is now, or when a driver has reason to ask again: it was woken,
// or its questions have another answer. Once there is a cause it may give up.
func (m mech) wait(s *model.State, p, x int) bool {
	if s.B[p] == 0 && !m.works(s, x) {
		s.PC[p] = driveRelease
		return true
	}
	again := s.Mem[at(x, atWake)] != 0
	if m.hooks && !again { // it polls
		t := *s
		again = true
		for _, y := range tree(x) {
			again = again && !m.busy(&t, y, x)
		}
		again = again && !m.works(s, x) || t.Mem[atAbort] != s.Mem[atAbort]
	}
	switch {
	case again:
		s.Mem[at(x, atWake)], s.B[p] = 0, 0
		s.PC[p] = driveAsk
	case m.cause(s, x):
		for _, y := range tree(x) {
			if state := s.Mem[at(y, atState)]; state != absent && state != uint8(Released) {
				s.Mem[at(y, atState)] = uint8(Quarantined)
			}
		}
		s.PC[p] = driveYield
	default:
		return false
	}
	return true
}

// release goes down the tree: every scope forbids holds, waits for them, and gives back what
// is below it and then its own.
func (m mech) release(s *model.State, p int, all []int) (bool, error) {
	// The steps: two of the root, four of each scope below, then the other two of the root.
	root, n, i := all[len(all)-1], len(all)-1, int(s.A[p])
	y, part := root, i
	switch {
	case i >= 2 && i < 2+4*n:
		y, part = all[(i-2)/4], (i-2)%4
	case i >= 2:
		part = i - 4*n
	}
	if state := s.Mem[at(y, atState)]; (state == absent || state == uint8(Released)) && !(m.doubleRelease && y == root) {
		part = 4
	}
	switch part {
	case 0:
		s.Mem[at(y, atState)], s.Mem[at(y, atReleasing)] = uint8(Releasing), 1
	case 1:
		if s.Mem[at(y, atHolds)] != 0 && !m.holdsForgotten {
			return false, nil
		}
	case 2:
		if s.B[p] = 0; s.Mem[at(y, atPopped)] == 0 || m.doubleRelease {
			s.Mem[at(y, atPopped)], s.B[p] = 1, 1
		}
	case 3:
		if s.B[p] == 1 {
			if s.Mem[at(y, atGiven)]++; s.Mem[at(y, atGiven)] > 1 {
				return true, fmt.Errorf("what scope %d has is given back twice", y)
			}
			if y != world && s.Mem[at(world, atGiven)] != 0 {
				return true, fmt.Errorf("what scope %d has is given back behind what its owner has", y)
			}
		}
		s.Mem[at(y, atState)] = uint8(Released)
	}
	if s.A[p]++; int(s.A[p]) == 4+4*n {
		s.A[p], s.PC[p] = 0, driveYield
	}
	return true, nil
}

func (m mech) done(s *model.State, p int) bool {
	if p == theDevice {
		return s.Mem[atWork] == 0
	}
	return s.PC[p] == finished
}

func (m mech) model() model.Model {
	steps := [modelProcs]func(*model.State, int) (bool, error){theCaller: m.caller, theDevice: m.device, thePeer: m.peer,
		theCloser: m.closer, theOwner: m.owner, theContext: m.context, theMaker: m.maker, theJudge: m.judge}
	return model.Model{
		Procs: modelProcs,
		Init: func(s *model.State) {
			s.Mem[at(half, atState)] = absent
			if m.fails {
				s.Mem[atFailing] = 1
			}
			for p, runs := range map[int]bool{theContext: m.ends, theMaker: m.makes} {
				if !runs {
					s.PC[p] = finished
				}
			}
		},
		Step: func(s *model.State, p int) (bool, error) { return steps[p](s, p) },
		Done: m.done,
	}
}
