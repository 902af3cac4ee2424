package host

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	rt "github.com/seed-ee968945/concert/runtime"
)

// Descriptors: what each member says about the call it is in, so that ranks that
// issue different collectives, or the same with other sizes, get an error
// instead of each other's bytes. Programs that passed the digest check at
// rendezvous agree by construction; what remains is hand-written calls, sizes
// that are known at run time only, and ranks that lost step.
//
// Quads: 0 number of the call on the channel; 1 operation, 2 count of operands,
// 3 operand bytes, 4 result bytes, 5 hash of everything else that must agree;
// from descQuads on the rows for each operand and member of an all_to_all with splits, or where
// the operands of a permute are.
const (
	descCall = iota
	descOp
	descCount
	descIn
	descOut
	descHash
)

// publish writes this call's descriptor into this rank's pad.
func (x *exchange) publish() {
	lo, hi := x.d.lay.desc(x.ch.id, x.ch.call)
	q := x.d.own.Quads[lo:hi]
	q[descCall] = uint64(x.ch.call)
	q[descOp] = uint64(x.c.Op)
	q[descCount] = uint64(x.total)
	q[descIn], q[descOut] = 0, 0
	for i := range x.c.Ins {
		q[descIn] += uint64(x.c.Ins[i].Bytes())
		q[descOut] += uint64(x.c.Outs[i].Bytes())
	}
	q[descHash] = x.hash()
	at := descQuads
	if x.placed() {
		for _, t := range x.c.Ins {
			q[at] = uint64(t.Off)
			at++
		}
	}
	for _, list := range x.c.InSplits {
		for _, s := range list {
			q[at] = uint64(s)
			at++
		}
	}
	if len(x.ch.far) == 0 {
		return
	}
	data := make([]byte, 0, 8*at)
	for _, v := range q[:at] {
		data = binary.LittleEndian.AppendUint64(data, v)
	}
	for _, to := range x.ch.far {
		x.d.links[x.ch.members[to]].send(frame{kind: frameDesc, a: uint32(x.ch.id), b: x.ch.call, data: data})
	}
}

// placed reports whether members say where their operands are: those of a permute need not be
// at one place, since stages have memory of their own. Buckets that are too large for a
// descriptor do.
func (x *exchange) placed() bool {
	return x.c.Op == rt.CollectivePermute && len(x.c.Ins) <= maxSplits
}

// hash covers what must agree beyond counts and bytes: reduction, dimension,
// root, pairs, and of each operand and result type, shape, place and strides.
// The rows of an all_to_all with splits differ by rank and are left out.
func (x *exchange) hash() uint64 {
	h := fnv.New64a()
	var b []byte
	b = append(b, x.c.Reduce...)
	for _, v := range []int64{int64(x.c.Dim), int64(x.c.Root), int64(len(x.c.InSplits)), int64(len(x.c.Pairs))} {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	if x.staged && !x.placed() { // of a permute it is the rank's own matter
		b = append(b, 's')
	}
	for _, v := range x.c.Pairs {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	for _, ts := range [][]rt.Tensor{x.c.Ins, x.c.Outs} {
		for _, t := range ts {
			strides, shape := t.StridesOrDense(), t.Shape
			if x.c.InSplits != nil {
				strides, shape = rowStrides(t), slices.Clone(shape)
				shape[0] = -1
			}
			b = append(b, byte(t.DType), byte(len(shape)))
			place := []int64{t.Off}
			if x.placed() {
				place = nil
			}
			for _, v := range [][]int64{place, shape, strides} {
				for _, n := range v {
					b = binary.LittleEndian.AppendUint64(b, uint64(n))
				}
			}
		}
	}
	h.Write(b)
	return h.Sum64()
}

// peerDesc is the descriptor of the member at a position.
func (x *exchange) peerDesc(pos int) []uint64 {
	lo, hi := x.d.lay.desc(x.ch.id, x.ch.call)
	return x.d.pads[x.ch.members[pos]].Quads[lo:hi]
}

// splits is what the member at a position sends of operand k to each.
func (x *exchange) splits(pos, k int) []uint64 {
	n := len(x.ch.members)
	return x.peerDesc(pos)[descQuads+k*n : descQuads+(k+1)*n]
}

// compare checks all members' descriptors against this rank's own. All members
// do, so all of them find a disagreement.
func (x *exchange) compare() error {
	own := x.peerDesc(x.ch.pos)
	fields := []struct {
		what string
		i    int
		text func(uint64) string
	}{
		{"numbers of calls", descCall, func(v uint64) string { return strconv.FormatUint(v, 10) }},
		{"operations", descOp, func(v uint64) string { return rt.CollOp(v).String() }},
		{"numbers of operands", descCount, func(v uint64) string { return strconv.FormatUint(v, 10) }},
		{"operand bytes", descIn, func(v uint64) string { return strconv.FormatUint(v, 10) }},
		{"result bytes", descOut, func(v uint64) string { return strconv.FormatUint(v, 10) }},
		{"types, shapes, places or reductions", descHash, func(v uint64) string { return fmt.Sprintf("#%016x", v) }},
	}
	for p, m := range x.ch.members {
		peer := x.peerDesc(p)
		for _, f := range fields {
			if x.c.InSplits != nil && (f.i == descIn || f.i == descOut) {
				continue
			}
			if own[f.i] != peer[f.i] {
				return x.mismatch(m, f.what, f.text(own[f.i]), f.text(peer[f.i]))
			}
		}
	}
	if x.c.InSplits == nil {
		return nil
	}
	for k := range x.c.OutSplits {
		for p, m := range x.ch.members {
			sent, expected := x.splits(p, k)[x.ch.pos], uint64(x.c.OutSplits[k][p])
			if sent != expected {
				return x.mismatch(m, fmt.Sprintf("rows of operand %d from rank %d to rank %d", k, m, x.d.spec.Rank),
					fmt.Sprintf("%d expected", expected), fmt.Sprintf("%d sent", sent))
			}
		}
	}
	return nil
}

func (x *exchange) mismatch(peer int, what, own, theirs string) error {
	return &rt.MismatchError{Op: x.c.Name(), Group: x.c.Group, Step: uint64(x.ch.call), What: what,
		Rank: x.d.spec.Rank, Peer: peer, RankValue: own, PeerValue: theirs}
}
