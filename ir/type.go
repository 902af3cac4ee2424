package ir

import (
	"fmt"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir/types"
)

// DType is the element type of a tensor.
type DType = dtype.DType

// The element types.
const (
	F64  = dtype.F64
	F32  = dtype.F32
	F16  = dtype.F16
	BF16 = dtype.BF16
	I64  = dtype.I64
	I32  = dtype.I32
	I8   = dtype.I8
	U8   = dtype.U8
	Bool = dtype.Bool
	I16  = dtype.I16
	U16  = dtype.U16
	U32  = dtype.U32
	U64  = dtype.U64

	F8E5M2        = dtype.F8E5M2
	F8E4M3        = dtype.F8E4M3
	F8E3M4        = dtype.F8E3M4
	F8E4M3FN      = dtype.F8E4M3FN
	F8E5M2FNUZ    = dtype.F8E5M2FNUZ
	F8E4M3FNUZ    = dtype.F8E4M3FNUZ
	F8E4M3B11FNUZ = dtype.F8E4M3B11FNUZ
	F8E8M0FNU     = dtype.F8E8M0FNU
)

// Type is the type of a value, Shape the sizes of a tensor, and TypeRule what the type of a
// result follows by.
type (
	Type     = types.Type
	Shape    = types.Shape
	TypeRule = types.Rule
)

// Tensor returns the type of a tensor of constant sizes, row-major.
func Tensor(dt DType, sizes ...int64) Type { return types.Tensor(dt, sizes...) }

// TensorOf returns the type of a row-major tensor.
func TensorOf(dt DType, shape Shape) Type { return types.TensorOf(dt, shape) }

// Async returns the type of tensors in flight.
func Async(ts ...Type) Type { return types.Async(ts...) }

// Dims returns a shape of constant dimensions.
func Dims(sizes ...int64) Shape { return types.Dims(sizes...) }

// SplitsText is the attribute text for one operand's sizes.
func SplitsText(sizes []Dim) string { return types.SplitsText(sizes) }

// Infer applies the type rule of op to operand types: it returns the result types
// of such a node, or says why the operands do not fit. want declares result types
// where the rule leaves them open; group may be nil.
func Infer(op Op, group *Group, attrs Attrs, args []Type, want ...Type) ([]Type, error) {
	i := op.info()
	if len(args) < i.MinArgs || i.MaxArgs >= 0 && len(args) > i.MaxArgs {
		return nil, fmt.Errorf("%s takes %s, got %d", i.Name, argCount(i), len(args))
	}
	return i.Types.Infer(group.ranks(), attrs, args, want...)
}

// ranks is how many ranks a subgroup has, 0 if there is no group.
func (g *Group) ranks() int {
	if g == nil {
		return 0
	}
	return g.Size()
}

// Splits returns the sizes along dimension 0 that an all_to_all sends to and receives from
// each rank, per operand. Both are nil when the pieces are equal. The error says which
// attribute is malformed, or not of the group's size.
func (n *Node) Splits() (in, out [][]Dim, err error) {
	size := n.group.ranks()
	if in, err = types.ParseSplits(n.attrs, "in_splits", len(n.args), size); err != nil {
		return nil, nil, err
	}
	out, err = types.ParseSplits(n.attrs, "out_splits", len(n.args), size)
	return in, out, err
}
