package host

import (
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/hostops"
	"github.com/seed-ee968945/concert/internal/rowmajor"
	rt "github.com/seed-ee968945/concert/runtime"
)

// Members on other hosts send what this rank needs of their operands: a transfer, in which the
// parts of all operands are contiguous. This rank makes room for it before it
// enters, and they send when it has, so nothing is ever sent that has no place. Of an
// all_reduce a second transfer brings the shares that they have reduced.
const (
	phaseOperands = iota
	phaseResults
)

// share is which elements of operand k the member at a position reduces: those of all
// operands, laid end to end, are dealt to the members in equal shares.
func (x *exchange) share(k, pos int) (lo, hi int64) {
	size := x.c.Ins[k].NumElems()
	if x.staged {
		return 0, size
	}
	if x.firsts == nil {
		x.firsts = make([]int64, len(x.c.Ins)+1)
		for i, t := range x.c.Ins {
			x.firsts[i+1] = x.firsts[i] + t.NumElems()
		}
	}
	n, p := int64(len(x.ch.members)), int64(pos)
	total, first := x.firsts[len(x.c.Ins)], x.firsts[k]
	lo, hi = total/n*p+min(p, total%n), total/n*(p+1)+min(p+1, total%n)
	return min(max(lo-first, 0), size), min(max(hi-first, 0), size)
}

// sent is the shape of what a member sends another of operand k; nil for nothing. The rows of
// an all_to_all with splits follow from what is expected, or sent.
func (x *exchange) sent(k, from, to int) []int64 {
	in := x.c.Ins[k].Shape
	switch x.c.Op {
	case rt.AllReduce:
		lo, hi := x.share(k, to)
		return []int64{hi - lo}
	case rt.ReduceScatter:
		return x.c.Outs[k].Shape
	case rt.AllToAll:
		rows := in[0] / int64(len(x.ch.members))
		if x.c.InSplits != nil && from == x.ch.pos {
			rows = x.c.InSplits[k][to]
		} else if x.c.InSplits != nil {
			rows = x.c.OutSplits[k][from]
		}
		return append([]int64{rows}, in[1:]...)
	case rt.Broadcast:
		if from != x.c.Root {
			return nil
		}
	case rt.CollectivePermute:
		if x.source(to) != from {
			return nil
		}
	}
	return append([]int64{}, in...) // of a single number, too, not nil
}

// source is the position that a position gets its operand from in a permutation, -1 for none.
func (x *exchange) source(to int) int {
	for i := 0; i < len(x.c.Pairs); i += 2 {
		if int(x.c.Pairs[i+1]) == to {
			return int(x.c.Pairs[i])
		}
	}
	return -1
}

// cut is the window of operand k of a member whose memory this rank sees that goes to another.
func (x *exchange) cut(k, from, to int) (hostops.Tensor, error) {
	in, rank := x.c.Ins[k], x.ch.members[from]
	switch x.c.Op {
	case rt.AllReduce:
		lo, hi := x.share(k, to)
		return flat(x.d.view(rank, in), lo, hi)
	case rt.ReduceScatter:
		part := x.c.Outs[k].Shape[x.c.Dim]
		return x.d.view(rank, in).Narrow(x.c.Dim, int64(to)*part, int64(to+1)*part)
	case rt.AllToAll:
		if x.c.InSplits == nil {
			rows := in.Shape[0] / int64(len(x.ch.members))
			return x.d.view(rank, in).Narrow(0, int64(to)*rows, int64(to+1)*rows)
		}
		// Where the rows start follows from the member's own splits.
		var lo, hi, all int64
		for p, s := range x.splits(from, k) {
			if p == to {
				lo, hi = all, all+int64(s)
			}
			all += int64(s)
		}
		in.Shape = slices.Clone(in.Shape)
		in.Shape[0], in.Strides = all, rowStrides(x.c.Ins[k])
		if err := x.d.inArena([]rt.Tensor{in}); err != nil {
			return hostops.Tensor{}, fmt.Errorf("operand of rank %d: %w", rank, err)
		}
		return x.d.view(rank, in).Narrow(0, lo, hi)
	case rt.CollectivePermute:
		if x.placed() {
			in = in.At(int64(x.peerDesc(from)[descQuads+k]) - in.Off)
			if err := x.d.inArena([]rt.Tensor{in}); err != nil {
				return hostops.Tensor{}, fmt.Errorf("operand of rank %d: %w", rank, err)
			}
		}
	}
	return x.d.view(rank, in), nil
}

// inRow reports whether the elements of t are contiguous.
func inRow(t hostops.Tensor) bool { return rowmajor.Is(t.Shape, t.Strides) }

// flat is elements lo to hi of t in one dimension: where they are, or, if that is not in a
// row, a copy.
func flat(t hostops.Tensor, lo, hi int64) (hostops.Tensor, error) {
	if inRow(t) {
		return hostops.Tensor{DType: t.DType, Shape: []int64{hi - lo}, Strides: []int64{1}, Offset: t.Offset + lo, Data: t.Data}, nil
	}
	row, err := hostops.New(t.DType, hi-lo)
	if err != nil {
		return row, err
	}
	return row, hostops.CopyRange(row, 0, t, lo, hi-lo)
}

// part is what this rank needs of operand k of a member.
func (x *exchange) part(k, from int) (hostops.Tensor, error) {
	if x.room != nil && x.room[from] != nil {
		return x.room[from][k], nil
	}
	return x.cut(k, from, x.ch.pos)
}

// expect makes room for what the members on other hosts send.
func (x *exchange) expect() {
	x.room = make([][]hostops.Tensor, len(x.ch.members))
	x.shares = make([][]hostops.Tensor, len(x.ch.members))
	for _, from := range x.ch.far {
		x.room[from] = x.roomFor(from, phaseOperands, func(k int) []int64 { return x.sent(k, from, x.ch.pos) })
		if x.returns() {
			x.shares[from] = x.roomFor(from, phaseResults, func(k int) []int64 {
				lo, hi := x.share(k, from)
				return []int64{hi - lo}
			})
		}
	}
}

// returns reports whether members bring each other parts of results.
func (x *exchange) returns() bool { return x.c.Op == rt.AllReduce && !x.staged }

func (x *exchange) roomFor(from int, phase uint8, shape func(k int) []int64) []hostops.Tensor {
	ts := make([]hostops.Tensor, len(x.c.Ins))
	var size int64
	for k, in := range x.c.Ins {
		ts[k] = hostops.Tensor{DType: in.DType, Shape: shape(k)}
		if ts[k].Shape != nil {
			ts[k].Strides = hostops.RowMajor(ts[k].Shape)
			size += ts[k].NumElems() * int64(in.DType.Size())
		}
	}
	p := &transfer{call: x.ch.call, buf: make([]byte, size)}
	var at int64
	for k := range ts {
		if ts[k].Shape != nil {
			n := ts[k].NumElems() * int64(ts[k].DType.Size())
			ts[k].Data = p.buf[at : at+n : at+n]
			at += n
		}
	}
	x.d.transfers.expect(x.transfer(from, phase), p)
	return ts
}

// transfer names what a member sends this rank.
func (x *exchange) transfer(from int, phase uint8) transferKey {
	return transferKey{x.ch.id, x.ch.members[from], phase}
}

// arrived takes the room of a phase away again, and checks that it has been filled.
func (x *exchange) arrived(phase uint8) error {
	for _, from := range x.ch.far {
		if missing := x.d.transfers.forget(x.transfer(from, phase)); missing != 0 {
			return fmt.Errorf("rank %d has signalled, but %d bytes of what it sends are missing", x.ch.members[from], missing)
		}
	}
	return nil
}

// send sends the members on other hosts what they need of this rank's operands.
func (x *exchange) send() error {
	var same []byte // for all of them
	for _, to := range x.ch.far {
		if x.c.Op != rt.AllGather && x.c.Op != rt.Broadcast {
			same = nil
		}
		if same == nil {
			for k := range x.c.Ins {
				if x.sent(k, x.ch.pos, to) == nil {
					continue
				}
				t, err := x.cut(k, x.ch.pos, to)
				if err == nil {
					same, err = appendDense(same, t)
				}
				if err != nil {
					return err
				}
			}
		}
		x.post(to, phaseOperands, same)
	}
	return nil
}

func (x *exchange) post(to int, phase uint8, data []byte) {
	if len(data) > 0 {
		x.d.links[x.ch.members[to]].send(frame{kind: frameData, phase: phase, a: uint32(x.ch.id), b: x.ch.call, data: data})
	}
}

// appendDense appends the elements of t in their order.
func appendDense(b []byte, t hostops.Tensor) ([]byte, error) {
	n := t.NumElems() * int64(t.DType.Size())
	b = slices.Grow(b, int(n))
	b = b[:len(b)+int(n)]
	return b, hostops.Copy(hostops.Tensor{DType: t.DType, Shape: t.Shape, Strides: hostops.RowMajor(t.Shape), Data: b[len(b)-int(n):]}, t)
}
