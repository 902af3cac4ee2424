package cuda

import "github.com/seed-ee968945/concert/kernels"

// The number of a call, which its kernels take as kernels.Args.Seq and write into the
// error record, says what the call is: then a timeout names the collective however long
// ago it was prepared, in replays too, with nothing kept on the host. From the top: four
// bits of kind, six of the user's channel, and how many calls the member had prepared,
// which starts again after four million.
const (
	numberBits  = 22
	channelBits = 6
)

// callKind is one more than a kernels.Collective, or one of these; 0 is not known.
type callKind uint32

const (
	callSignal callKind = 12 + iota
	callWait
	callMeet
	callWaitValue
)

func kindOf(c kernels.Collective) callKind { return callKind(c) + 1 }

// signals says that the call is of a user's channel or pad.
func (k callKind) signals() bool { return k >= callSignal }

// String names the call as in kernels.Collective, or as the method of Member.
func (k callKind) String() string {
	switch {
	case k == 0:
		return ""
	case k >= callSignal:
		return [...]string{"signal", "wait", "barrier on a channel", "wait for a value"}[k-callSignal]
	}
	return kernels.Collective(k - 1).String()
}

// number is the next call's.
func (m *Member) number(k callKind, channel int) uint32 {
	return uint32(k)<<(numberBits+channelBits) | uint32(channel)<<numberBits | m.seq.Add(1)&(1<<numberBits-1)
}

// called takes a number apart.
func called(seq uint32) (k callKind, channel int, n uint32) {
	return callKind(seq >> (numberBits + channelBits)), int(seq >> numberBits & (1<<channelBits - 1)), seq & (1<<numberBits - 1)
}
