package cuda

import "fmt"

// MismatchError means that a process of a world differs from rank 0 in something
// that must be the same.
type MismatchError struct {
	Rank      int
	What      string
	Got, Want string
}

// Error names the rank and what differs.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("rank %d does not belong to this world: its %s is %s, rank 0 has %s", e.Rank, e.What, e.Got, e.Want)
}

// PeerLostError means that another process of the world ended or closed its
// connection. Rank is -1 where it is not known.
type PeerLostError struct{ Rank int }

// Error names the rank.
func (e *PeerLostError) Error() string {
	if e.Rank < 0 {
		return "a process of the world ended"
	}
	return fmt.Sprintf("the process of rank %d ended", e.Rank)
}
