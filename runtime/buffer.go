package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Buffer is memory of a world that modules share: it has the same place in every rank's
// arena, holds what was written to it last, and outlives the modules that are bound to it
// (Rank.Add). A module's input that is in a buffer is there already, and an output stays
// there. What a buffer holds is seen through views: View places a tensor in it for the
// device, and Rank.Upload and Rank.Download copy between such a tensor and the host.
type Buffer struct {
	r     *Rank
	name  string
	bytes int64
	at    Region
	users int // modules that are bound to it; guarded by r.mu
}

// Name is the buffer's name, which no other one of the world has.
func (b *Buffer) Name() string { return b.name }

// Bytes is the buffer's size.
func (b *Buffer) Bytes() int64 { return b.bytes }

// View places a tensor in the buffer, off bytes from its start, as a place in the rank's
// arena. The error says that the tensor is malformed, or has no room.
func (b *Buffer) View(off int64, d DType, shape ...int64) (Tensor, error) {
	t := C(off, d, shape...)
	lo, hi, err := t.Span()
	if err == nil && (lo < 0 || hi > b.bytes) {
		err = fmt.Errorf("buffer %s has %d bytes, no room for %v", b.name, b.bytes, t)
	}
	return t.At(b.at.Lo), err
}

// NewBuffer makes a buffer of zeroed memory. It is a change of the world, as Add is: all
// ranks call it with the same name and size, and it fails for all if it fails on one.
func (r *Rank) NewBuffer(ctx context.Context, name string, bytes int64) (*Buffer, error) {
	r.running <- struct{}{}
	defer r.give()
	b := &Buffer{r: r, name: name, bytes: bytes}
	c := change{op: "making buffer " + name, same: []Fact{{What: "buffers", Value: fmt.Sprintf("%d bytes of %q", bytes, name)}}}
	if r.buffers[name] != nil || bytes <= 0 {
		c.err = fmt.Errorf("there is one of that name, or it has no bytes (%d)", bytes)
	} else if b.at, c.err = r.arena.take(bytes, Stride); c.err == nil {
		grown := false
		c.apply = func() error {
			err := r.dev.Grow(ctx, b.at)
			grown = err == nil
			return err
		}
		c.undo = func() error {
			r.arena.free(b.at)
			if !grown {
				return nil
			}
			return r.dev.Shrink(b.at)
		}
	}
	if err := r.change(ctx, &c); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.buffers[name] = b
	return b, nil
}

// Free gives a buffer back that no module is bound to any more. All ranks call it. The error
// is the same kind on all ranks: it has been freed, or is bound to a module, on one of them
// (*CallError), or the world is broken.
func (b *Buffer) Free(ctx context.Context) error {
	r := b.r
	r.running <- struct{}{}
	defer r.give()
	c := change{op: "freeing buffer " + b.name, same: []Fact{{What: "buffers", Value: strconv.Quote(b.name)}}}
	r.mu.Lock()
	switch {
	case r.buffers[b.name] != b:
		c.err = errors.New("it has been freed")
	case b.users > 0:
		c.err = fmt.Errorf("%d modules are bound to it", b.users)
	}
	r.mu.Unlock()
	c.finish = func() error {
		r.mu.Lock()
		delete(r.buffers, b.name)
		r.mu.Unlock()
		r.arena.free(b.at)
		return r.dev.Shrink(b.at)
	}
	return r.change(ctx, &c)
}

// bind finds what is in buffers.
func (l *loaded) bind(r *Rank, bind Bindings) error {
	found := map[string]bool{}
	for _, q := range slices.Concat(l.m.Inputs, l.m.Outputs) {
		b := bind[q.Name]
		if b == nil {
			continue
		}
		found[q.Name] = true
		at := Region{q.Tensors[0].Off, q.Tensors[0].Off + q.Room}
		same := l.boundAt(at.Lo)
		switch {
		case b.r != r || r.buffers[b.name] != b:
			return fmt.Errorf("%s is bound to buffer %s, which is not of this rank or has been freed", q.Name, b.name)
		case q.Room <= 0:
			return fmt.Errorf("%s cannot lie in a buffer: it shares bytes with others, or arrives in flight (see program.Apart)", q.Name)
		case q.Room > b.bytes:
			return fmt.Errorf("%s takes %d bytes, buffer %s has %d", q.Name, q.Room, b.name, b.bytes)
		case same != nil && (same.at != at || same.buffer != b):
			return fmt.Errorf("%s is bound to buffer %s, and lies where buffer %s is", q.Name, b.name, same.buffer.name)
		case same == nil:
			l.bound = append(l.bound, bound{at, b})
		}
	}
	var lost []string
	for name := range bind {
		if !found[name] {
			lost = append(lost, name)
		}
	}
	if len(lost) > 0 {
		slices.Sort(lost)
		return fmt.Errorf("it has no input or output %s", strings.Join(lost, ", "))
	}
	slices.SortFunc(l.bound, func(a, b bound) int { return cmp.Compare(a.at.Lo, b.at.Lo) })
	return nil
}

// bindings is what ranks compare.
func (l *loaded) bindings() string {
	var s strings.Builder
	for _, b := range l.bound {
		fmt.Fprintf(&s, " %v %q", b.at, b.buffer.name)
	}
	return s.String()
}
