package proof

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// A transport that needs contiguous operands packs them. The equation, for collective C
// of a group of n ranks, operands x and flat buffers of equal order:
//
//	unpack_k(C(pack(x...))) = C(x_k)
//
// It holds where
//
//   - C treats each element by itself (all_reduce, broadcast, collective_permute), and
//     neither side is cut into parts;
//   - C is an all_gather along dimension 0 of the buffer and unpack cuts n parts along d: the
//     members are gathered along d;
//   - C is a reduce_scatter along dimension 0 of the buffer and pack cuts n parts along d: the
//     members are scattered along d;
//   - C is an all_to_all and both cut n parts along dimension 0;
//
// and the buffer has the members' element type, or is of bytes and C only moves them.

// packed is the pack whose result t carries, nil if it is none.
func (b *book) packed(t *term) *term {
	if t.kind != applied || len(t.args) != 1 || !t.op.IsCollective() {
		return nil
	}
	if p := &b.terms[t.args[0]]; p.kind == applied && p.op == ir.OpPack {
		return p
	}
	return nil
}

// parts is how a pack or unpack cuts its members.
func parts(l attr.List) (n, dim int64) { return l.Int("parts", 1), l.Int("dim", 0) }

// scaled is a shape with n times as many of dimension d, nil where there is none.
func scaled(s ir.Shape, d, n int64) ir.Shape {
	if d < 0 || d >= int64(len(s)) {
		return nil
	}
	out := slices.Clone(s)
	out[d] = out[d].Mul(ir.D(n))
	return out
}

// unpacked is result k of an unpack as the collective of one packed operand; false if
// it is none.
func (b *book) unpacked(a *application, k int) (termID, bool) {
	c := b.terms[a.args[0]]
	p := b.packed(&c)
	if p == nil || len(p.args) != len(a.outs) {
		return 0, false
	}
	x, out := p.args[k], elements(a.outs[k])
	from := b.terms[x].typ
	for i, o := range a.outs { // the members lie alike in both buffers
		if b.terms[p.args[i]].typ.DType() != o.DType() {
			return 0, false
		}
	}
	if flat := p.typ.DType(); flat != from.DType() && (flat != ir.U8 || c.op.Info().Reduces) {
		return 0, false
	}
	cut, d := parts(p.attrs)
	joined, e := parts(a.attrs)
	n := b.sizes[c.group]
	attrs := c.attrs
	switch c.op {
	case ir.OpAllReduce, ir.OpBroadcast, ir.OpCollectivePermute:
		if cut != 1 || joined != 1 || !out.Shape().Equal(from.Shape()) {
			return 0, false
		}
	case ir.OpAllGather:
		if cut != 1 || joined != n || attrs.Int("dim", 0) != 0 || !out.Shape().Equal(scaled(from.Shape(), e, n)) {
			return 0, false
		}
		attrs = attrs.With("dim", attr.Int(e))
	case ir.OpReduceScatter:
		if cut != n || joined != 1 || attrs.Int("dim", 0) != 0 || !from.Shape().Equal(scaled(out.Shape(), d, n)) {
			return 0, false
		}
		attrs = attrs.With("dim", attr.Int(d))
	case ir.OpAllToAll:
		if cut != n || joined != n || d != 0 || e != 0 || attrs.Has("in_splits") || attrs.Has("out_splits") || !out.Shape().Equal(from.Shape()) {
			return 0, false
		}
	default:
		return 0, false
	}
	return b.number(term{kind: applied, op: c.op, group: c.group, attrs: attrs, args: []termID{x}, typ: out}), true
}
