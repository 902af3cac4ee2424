package topo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/seed-ee968945/concert/runtime/store"
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

// Meet exchanges machines over the job's store and gives every rank the same layout.
// gpu is the index of this rank's GPU in m. All ranks call it with the same name,
// which serves once in a store, and world. Ranks of one host must have read the same
// machine; hosts may differ, and
// Layout.Mixed says in what. The error is a *MismatchError, a *FormatError, or what
// the store says.
func Meet(cx context.Context, st store.Store, name string, rank, world int, m *Machine, gpu int) (*Layout, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	if gpu < 0 || gpu >= len(m.GPUs) || rank < 0 || rank >= world {
		return nil, &FormatError{Reason: fmt.Sprintf("rank %d of %d on GPU %d of %d", rank, world, gpu, len(m.GPUs))}
	}
	b, err := json.Marshal(Seat{World: world, GPU: m.GPUs[gpu].UUID, Machine: *m})
	if err != nil {
		return nil, err
	}
	key := func(r int) string { return fmt.Sprintf("topo/%s/%d", name, r) }
	_, won, err := st.CompareAndSet(cx, key(rank), nil, b)
	if err != nil {
		return nil, err
	}
	if !won {
		return nil, &FormatError{Reason: fmt.Sprintf("rank %d has published a machine under %q before: two processes claim the rank, or the name is used twice", rank, name)}
	}
	a := newArranger(rank, world)
	for r := range world {
		v, err := st.Get(cx, key(r))
		if err != nil {
			return nil, fmt.Errorf("rank %d waits for the machine of rank %d: %w", rank, r, err)
		}
		var s Seat
		d := json.NewDecoder(bytes.NewReader(v))
		d.DisallowUnknownFields()
		if err := d.Decode(&s); err != nil {
			return nil, &FormatError{Name: fmt.Sprintf("machine of rank %d", r), Reason: err.Error()}
		}
		if err := a.add(&s); err != nil {
			return nil, err
		}
	}
	return a.l, a.l.Check()
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
