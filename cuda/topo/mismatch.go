package topo

import (
	"fmt"
	"strings"

	"github.com/seed-ee968945/concert/runtime/rendezvous"
)

// readings is the error of two ranks of one host that see different machines.
func readings(a, b int, d []Difference) error {
	what := d[0].Field
	if len(d) > 1 {
		what += fmt.Sprintf(" and %d other readings", len(d)-1)
	}
	return &rendezvous.MismatchError{Op: "rendezvous", What: what + " of the host that they share", Rank: a, Peer: b, RankValue: d[0].A, PeerValue: d[0].B}
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
