package topo

import (
	"fmt"
	"strings"
)

// MismatchError says that two ranks of one host see different machines, or that two
// ranks cannot be on what they say they are on.
type MismatchError struct {
	Ranks [2]int
	What  string
	Diffs []Difference // A is of Ranks[0], B of Ranks[1]
}

// Error names the ranks and the first few differences.
func (e *MismatchError) Error() string {
	s := fmt.Sprintf("ranks %d and %d %s", e.Ranks[0], e.Ranks[1], e.What)
	for i, d := range e.Diffs {
		if i == 4 {
			s += fmt.Sprintf("; and %d more", len(e.Diffs)-i)
			break
		}
		s += "; " + d.String()
	}
	return s
}

// Mixed names what differs between the machines of the layout, the first compared
// with each other; empty when all are of one kind.
func (l *Layout) Mixed() []string {
	var out []string
	for i := 1; i < len(l.Machines); i++ {
		for _, d := range CompareKind(&l.Machines[0], &l.Machines[i]) {
			out = append(out, fmt.Sprintf("hosts %s and %s: %v", l.Machines[0].Host.Name, l.Machines[i].Host.Name, d))
		}
	}
	return out
}

// String is the layout as text: its machines, and where the ranks are.
func (l *Layout) String() string {
	var s strings.Builder
	for i := range l.Machines {
		s.WriteString(l.Machines[i].String())
		s.WriteString("ranks:")
		for r, p := range l.Ranks {
			if p.Machine == i {
				fmt.Fprintf(&s, " %d on GPU %d", r, p.GPU)
			}
		}
		s.WriteString("\n")
	}
	return s.String()
}
