package device

import "slices"

// roll is who has come to the meetings of a world, and what they said there. Meetings count
// from 1. Who comes to a meeting has left the one before it, and knows what was said there:
// so the texts of two meetings are enough. Its user has a lock for it, and waits in its own
// way: ranks of one process for each other, others for a log. (The processes of one host
// meet in package cuda, through one of them, and may give a meeting up and go on.)
type roll struct {
	came []int       // by rank: meetings that it has come to
	said [2][]string // by rank, at meetings of even and odd number
}

func newRoll(ranks int) roll {
	return roll{came: make([]int, ranks), said: [2][]string{make([]string, ranks), make([]string, ranks)}}
}

// come counts that a rank comes to its next meeting, whose number it returns.
func (r *roll) come(rank int, text string) (meeting int) {
	r.came[rank]++
	r.said[r.came[rank]%2][rank] = text
	return r.came[rank]
}

// missing lists the ranks that have not come to a meeting, in order.
func (r *roll) missing(meeting int) []int {
	var out []int
	for rank, n := range r.came {
		if n < meeting {
			out = append(out, rank)
		}
	}
	return out
}

// heard is what the ranks said at a meeting to which all have come. The caller's rank has
// not gone on to another.
func (r *roll) heard(meeting int) []string { return slices.Clone(r.said[meeting%2]) }
