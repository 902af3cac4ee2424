package equiv

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/equiv/internal/ranks"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// valueID is a value number.
type valueID int32

// value is one tensor of a function as an operation on other values.
type value struct {
	op    ir.Op
	group int32  // of Prover.groups, -1 for none
	index int32  // which result of the operation
	self  string // tells apart what equal operands do not make equal: inputs, random numbers, effects
	attrs attr.List
	typ   ir.Type
	args  []valueID
	node  string // the first node that was seen to compute it
}

// layoutMatters reports whether the result of an operation may depend on how its
// operands lie in memory, and not only on their elements.
func layoutMatters(op ir.Op) bool {
	return op == ir.OpAsStrided || op == ir.OpCall || op.Info().Bodies != nil
}

// number returns the value number of v, a new one if no equal value has one.
func (p *Prover) number(v value) valueID {
	if dt := v.typ.DType(); p.opts.ExcessPrecision && (dt == ir.BF16 || dt == ir.F16) {
		v.typ = v.typ.WithDType(ir.F32)
	}
	b := p.buf[:0]
	b = append(b, byte(v.op))
	b = binary.AppendVarint(b, int64(v.group))
	b = binary.AppendVarint(b, int64(v.index))
	b = binary.AppendUvarint(b, uint64(len(v.self)))
	b = append(b, v.self...)
	for _, a := range v.args {
		b = binary.AppendUvarint(b, uint64(a)+1)
	}
	b = append(b, 0)
	b = appendType(b, v.typ)
	b = v.attrs.AppendText(b)
	p.buf = b
	if id, ok := p.ids[string(b)]; ok {
		return id
	}
	id := valueID(len(p.values))
	v.args = slices.Clone(v.args)
	p.values = append(p.values, v)
	p.ids[string(b)] = id
	return id
}

// appendType writes what tells types apart; most are those of plain tensors of known size.
func appendType(b []byte, t ir.Type) []byte {
	if t.Contiguous() && !t.IsAsync() {
		b = append(b, byte(t.DType()), byte(len(t.Shape())))
		for _, d := range t.Shape() {
			n, ok := d.Const()
			if !ok {
				n = -1
			}
			if b = binary.AppendVarint(b, n); !ok {
				b = append(d.AppendText(b), 0)
			}
		}
		return b
	}
	return append(append(b, 0), t.String()...)
}

// group returns the number of a group: groups that cut the world into the same
// lists have one.
func (p *Prover) group(g *ir.Group) int32 {
	if g == nil {
		return -1
	}
	if id, ok := p.groupIDs[g]; ok {
		return id
	}
	lists := slices.Clone(g.Ranks)
	slices.SortFunc(lists, slices.Compare[[]int])
	key := fmt.Sprint(lists)
	id, ok := p.groupTexts[key]
	if !ok {
		id = int32(len(p.groups))
		p.groupTexts[key] = id
		p.groups = append(p.groups, ranks.NewGroup(lists, p.world))
	}
	p.groupIDs[g] = id
	return id
}
