package terms

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/equiv/internal/ranks"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// ValueID is a value number.
type ValueID int32

// Value is one tensor of a function as an operation on other values.
type Value struct {
	Op     ir.Op
	Group  int32  // number of its group, -1 for none
	Result int32  // which result of the operation; -1-i is what it leaves in operand i
	Tag    string // tells apart what equal operands do not make equal: inputs, random numbers, effects
	Attrs  attr.List
	Type   ir.Type
	Args   []ValueID
	Node   string // the first node that was seen to compute it
}

// Values numbers the tensors of functions of one world: equal ones have one number. See NewValues.
type Values struct {
	world      int
	excess     bool // floats of 16 bits are f32
	all        []Value
	ids        map[string]ValueID // look-up only, as are the following
	groups     []*ranks.Group
	groupIDs   map[*ir.Group]int32
	groupTexts map[string]int32
	symbols    map[string]int64 // what they are at most
	buf        []byte
}

// NewValues returns no values of functions of so many ranks. With excess floats of 16 bits are
// numbered as f32.
func NewValues(world int, excess bool) *Values {
	return &Values{world: world, excess: excess, ids: map[string]ValueID{}, groupIDs: map[*ir.Group]int32{}, groupTexts: map[string]int32{}, symbols: map[string]int64{}}
}

// At is the value of a number. It is valid until the next value is numbered.
func (t *Values) At(id ValueID) *Value { return &t.all[id] }

// Declare notes that a symbol has values up to a bound in some function.
func (t *Values) Declare(symbol string, most int64) {
	t.symbols[symbol] = max(t.symbols[symbol], most)
}

// LayoutMatters reports whether the result of an operation may depend on how its
// operands lie in memory, and not only on their elements.
func LayoutMatters(op ir.Op) bool {
	return op == ir.OpAsStrided || op == ir.OpCall || op.Info().Bodies != nil
}

// Number returns the value number of v, a new one if no equal value has one.
func (t *Values) Number(v Value) ValueID {
	if dt := v.Type.DType(); t.excess && (dt == ir.BF16 || dt == ir.F16) {
		v.Type = v.Type.WithDType(ir.F32)
	}
	b := t.buf[:0]
	b = append(b, byte(v.Op))
	b = binary.AppendVarint(b, int64(v.Group))
	b = binary.AppendVarint(b, int64(v.Result))
	b = binary.AppendUvarint(b, uint64(len(v.Tag)))
	b = append(b, v.Tag...)
	for _, a := range v.Args {
		b = binary.AppendUvarint(b, uint64(a)+1)
	}
	b = v.Type.AppendKey(append(b, 0))
	b = v.Attrs.AppendText(b)
	t.buf = b
	if id, ok := t.ids[string(b)]; ok {
		return id
	}
	id := ValueID(len(t.all))
	v.Args = slices.Clone(v.Args)
	t.all = append(t.all, v)
	t.ids[string(b)] = id
	return id
}

// Group returns the number of a group: groups that cut the world into the same
// lists have one.
func (t *Values) Group(g *ir.Group) int32 {
	if g == nil {
		return -1
	}
	if id, ok := t.groupIDs[g]; ok {
		return id
	}
	lists := slices.Clone(g.Ranks)
	slices.SortFunc(lists, slices.Compare[[]int])
	key := fmt.Sprint(lists)
	id, ok := t.groupTexts[key]
	if !ok {
		id = int32(len(t.groups))
		t.groupTexts[key] = id
		t.groups = append(t.groups, ranks.NewGroup(lists, t.world))
	}
	t.groupIDs[g] = id
	return id
}
