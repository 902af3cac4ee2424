package symm

import (
	"fmt"

	"github.com/seed-ee968945/concert/kernels"
)

// The number of a call, which its kernels take as kernels.Args.Seq and write into the
// error record, says what the call is: then a timeout names the collective however long
// ago it was prepared, in replays too, with nothing kept on the host. From the top: four
// bits of kind, six of the user's channel, and how many calls the member had prepared,
// which starts again after four million.
const (
	numberBits  = 22
	channelBits = 6
)

// CallKind is one more than a kernels.Collective, or one of these; 0 is not known.
type CallKind uint32

const (
	callSignal CallKind = 12 + iota
	callWait
	callBarrier
	callWaitValue
)

// KindOf is the kind of a collective.
func KindOf(c kernels.Collective) CallKind { return CallKind(c) + 1 }

// signals says that the call is of a user's channel or pad.
func (k CallKind) signals() bool { return k >= callSignal }

// String names the call as in kernels.Collective, or as the method of Member.
func (k CallKind) String() string {
	switch {
	case k == 0:
		return ""
	case k >= callSignal:
		return [...]string{"signal", "wait", "barrier on a channel", "wait for a value"}[k-callSignal]
	}
	return kernels.Collective(k - 1).String()
}

// Number is the next call's. channel is the user's, 0 for collectives.
func (m *Member) Number(k CallKind, channel int) uint32 {
	return uint32(k)<<(numberBits+channelBits) | uint32(channel)<<numberBits | m.seq.Add(1)&(1<<numberBits-1)
}

// Called names a call by its number: as Naming has it, else what it is.
func (m *Member) Called(seq uint32) string {
	kind, _, _ := Called(seq)
	if f := m.Naming; f != nil {
		return f(seq, kind.String())
	}
	switch name := m.Group.name; {
	case kind == 0 && name == "":
		return "a collective"
	case kind == 0:
		return fmt.Sprintf("collective on %q", name)
	case name == "":
		return kind.String()
	default:
		return fmt.Sprintf("%v on %q", kind, name)
	}
}

// Called takes a number apart: what the call is, the channel of
// the user's, and which of the member's calls.
func Called(seq uint32) (k CallKind, channel int, n uint32) {
	return CallKind(seq >> (numberBits + channelBits)), int(seq >> numberBits & (1<<channelBits - 1)), seq & (1<<numberBits - 1)
}
