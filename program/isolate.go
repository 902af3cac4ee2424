package program

import (
	"cmp"
	"fmt"
	"slices"
)

// Room is the size of a plain parameter's buffer, which it begins, if no other buffer is
// partly in it: then it may be elsewhere, together with all that is within, such as the
// output that an input is donated to. Else it is 0.
func (p *Program) Room(q *Param) int64 {
	if q.Async || len(q.Tensors) != 1 || q.Tensors[0].Offset != 0 {
		return 0
	}
	b := &p.Buffers[q.Tensors[0].Buffer]
	lo, hi := b.Offset, b.Offset+b.Size
	for i := range p.Buffers {
		c := &p.Buffers[i]
		from, to := c.Offset, c.Offset+c.Size
		if from < hi && lo < to && (from < lo || to > hi) {
			return 0
		}
	}
	return b.Size
}

// Isolate returns a copy of p in which the buffers of some inputs and outputs have offsets
// after all others and share memory with none: several programs can share such buffers,
// since none uses their memory for another value before or after. The others move up to where only
// these were. An input and the output that it is donated to stay together. The error says which
// name is no input or output, or in flight.
func (p *Program) Isolate(names ...string) (*Program, error) {
	q := *p
	q.Buffers = slices.Clone(p.Buffers)
	var groups [][]int // buffers that stay together
	moved := make([]bool, len(p.Buffers))
	move := func(buffers ...int) {
		if moved[buffers[0]] {
			return
		}
		for _, b := range buffers {
			moved[b] = true
		}
		groups = append(groups, buffers)
	}
	for _, name := range names {
		found := false
		for i, ps := range [2][]Param{p.Inputs, p.Outputs} {
			for k := range ps {
				if ps[k].Name != name {
					continue
				}
				found = true
				if ps[k].Async {
					return nil, fmt.Errorf("program %s: %s is in flight and cannot be isolated", p.Name, name)
				}
				d := slices.IndexFunc(p.Donations, func(d Donation) bool { return d.Input == k && i == 0 || d.Output == k && i == 1 })
				if d < 0 {
					move(ps[k].Tensors[0].Buffer)
					continue
				}
				move(p.Inputs[p.Donations[d].Input].Tensors[0].Buffer, p.Outputs[p.Donations[d].Output].Tensors[0].Buffer)
			}
		}
		if !found {
			return nil, fmt.Errorf("program %s has no input or output %s", p.Name, name)
		}
	}
	q.close(moved)
	for _, buffers := range groups {
		size := int64(0)
		for _, b := range buffers {
			q.Buffers[b].Offset = q.Arena
			size = max(size, aligned(q.Buffers[b].Size))
		}
		q.Arena += size
	}
	return &q, q.Validate()
}

// close makes the arena one without the buffers that go: where only they were, the others move up.
func (p *Program) close(gone []bool) {
	var order []*Buffer
	for i := range p.Buffers {
		if !gone[i] {
			order = append(order, &p.Buffers[i])
		}
	}
	slices.SortStableFunc(order, func(a, b *Buffer) int { return cmp.Compare(a.Offset, b.Offset) })
	end, by := int64(0), int64(0) // of what is taken, as it was; how far it has moved
	for _, b := range order {
		by += max(0, b.Offset-end)
		end = max(end, aligned(b.Offset+b.Size))
		b.Offset -= by
	}
	p.Arena = end - by
}

func aligned(n int64) int64 { return (n + Align - 1) / Align * Align }
