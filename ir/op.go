package ir

import (
	"github.com/seed-ee968945/concert/internal/attr"
)

// Op identifies an operation; its row in the op table says everything that
// passes may ask about it.
type Op uint8

// Class says which resource an operation occupies and how it is priced.
type Class uint8

// The classes of operations. Costs, streams and storage follow from the class.
const (
	ClassInput      Class = iota // a parameter of the function
	ClassOutput                  // the return
	ClassView                    // aliases operand 0, costs nothing
	ClassCompute                 // bound by arithmetic: matmul, attention
	ClassMemory                  // bound by memory traffic: everything else that launches
	ClassCollective              // starts communication on its group's stream
	ClassWait                    // blocks the compute stream until a collective has finished
)

// String returns the name of the class as the traced graphs spell kinds.
func (c Class) String() string {
	return [...]string{"input", "output", "view", "compute", "memory", "collective", "wait"}[c]
}

// Effect is a set of effects beyond reading operands and defining results.
type Effect uint8

// The effects. An operation without any is pure: it may be removed when unused,
// merged with an equal one, moved, and recomputed.
const (
	EffectAlias        Effect = 1 << iota // results share operand 0's storage
	EffectWrites                          // changes operands' storages in place; see Node.Writes
	EffectCommunicates                    // takes part in communication: never removed by one rank alone, merged or recomputed, and issued in one order everywhere
	EffectRandom                          // draws from a generator: never merged or recomputed
	EffectSizes                           // gives symbols their values: never removed, merged or recomputed, and ahead of what names them
)

// AttrSpec declares an attribute of an operation.
type AttrSpec struct {
	Key      string
	Kind     attr.Kind
	Required bool
	Doc      string
}

// OpInfo is a row of the op table.
type OpInfo struct {
	Name        string
	Class       Class
	MinArgs     int
	MaxArgs     int // -1: any number
	NumResults  int // -1: as declared
	Effects     Effect
	Reduces     bool     // a collective that reduces: text form name.sum
	Grouped     bool     // not a collective, yet names a group: its result depends on the rank's place in it
	Elementwise bool     // result element i depends on element i (broadcast) of each operand only
	Exact       bool     // rounds nothing but the result: it moves, compares, selects, or gives integers
	Generated   bool     // a kernel of one node is generated for it, though it is bound by arithmetic
	Costly      bool     // computing an element costs more than reading it
	Bodies      []string // attributes that name the functions it runs: while and case
	RandomAttr  string   // attribute that adds EffectRandom where it is present and not zero
	Attrs       []AttrSpec
	AnyAttrs    bool // attributes beside these are somebody else's
	Types       TypeRule
	Doc         string
	Example     string // a line of IR text on the inputs of Example; empty for input, which has none of its own
}

// The operations.
const (
	OpInvalid Op = iota
	OpInput
	OpReturn
	// Creation.
	OpFull
	OpConstant
	OpIota
	OpRand
	// Elementwise, one operand.
	OpNeg
	OpExp
	OpLog
	OpSqrt
	OpRsqrt
	OpReciprocal
	OpAbs
	OpSigmoid
	OpTanh
	OpRelu
	OpSilu
	OpGelu
	OpSin
	OpCos
	OpFloor
	OpCeil
	OpRound
	OpTrunc
	OpSign
	OpErf
	OpErfc
	OpExp2
	OpExpm1
	OpLog2
	OpLog10
	OpLog1p
	OpTan
	OpAsin
	OpAcos
	OpAtan
	OpSinh
	OpCosh
	OpAsinh
	OpAcosh
	OpAtanh
	OpCbrt
	OpLogicalNot
	OpBitwiseNot
	OpConvert
	OpBitcast
	OpClamp
	// Elementwise, two operands or one and a scalar.
	OpAdd
	OpSub
	OpMul
	OpDiv
	OpPow
	OpAtan2
	OpFmod
	OpRemainder
	OpFloorDivide
	OpTruncDivide
	OpMaximum
	OpMinimum
	OpEq
	OpNe
	OpLt
	OpLe
	OpGt
	OpGe
	OpLogicalAnd
	OpLogicalOr
	OpBitwiseAnd
	OpBitwiseOr
	OpBitwiseXor
	OpShiftLeft
	OpShiftRight
	// Elementwise, three operands.
	OpWhere
	OpFma
	// Reductions.
	OpSum
	OpMean
	OpAmax
	OpAmin
	OpProd
	OpArgmax
	OpReduceWindow
	OpCumsum
	OpSoftmax
	OpLogSoftmax
	// Matrix products and attention.
	OpMatmul
	OpAddmm
	OpGroupedMatmul
	OpConvolution
	OpAttention
	OpAttentionBackward
	// Data movement.
	OpClone
	OpCat
	OpIndex
	OpIndexPut
	OpIndexAdd
	OpGather
	OpScatter
	OpSliceScatter
	OpEmbedding
	OpTopk
	OpReadSize
	OpShard
	// Views.
	OpView
	OpPermute
	OpExpand
	OpSlice
	OpSplit
	OpSqueeze
	OpUnsqueeze
	OpSelect
	OpAlias
	OpAsStrided
	// Communication.
	OpAllReduce
	OpAllGather
	OpReduceScatter
	OpAllToAll
	OpBroadcast
	OpCollectivePermute
	OpAsyncCall
	OpWaitTensor
	// Control flow.
	OpWhile
	OpCase
	// Opaque.
	OpCall
	numOps
)

func (o Op) info() *OpInfo {
	if o < numOps {
		return &opTable[o]
	}
	return &opTable[OpInvalid]
}

// Info returns the op's row. The caller must not change it.
func (o Op) Info() *OpInfo { return o.info() }

// Name is the op's name in the text form.
func (o Op) Name() string { return o.info().Name }

// String is Name.
func (o Op) String() string { return o.Name() }

// Class is the op's class.
func (o Op) Class() Class { return o.info().Class }

// IsView reports whether the op only gives operand 0's storage another shape.
func (o Op) IsView() bool { return o.info().Class == ClassView }

// IsCollective reports whether the op starts communication.
func (o Op) IsCollective() bool { return o.info().Class == ClassCollective }

// OpByName returns the op of that name.
func OpByName(name string) (Op, bool) {
	o, ok := opNames[name]
	return o, ok
}

// Ops lists every operation in table order.
func Ops() []Op {
	out := make([]Op, 0, numOps-1)
	for o := OpInput; o < numOps; o++ {
		out = append(out, o)
	}
	return out
}

// opNames finds an op by its name; look-up only.
var opNames = func() map[string]Op {
	m := make(map[string]Op, numOps)
	for o := OpInput; o < numOps; o++ {
		m[opTable[o].Name] = o
	}
	return m
}()

// Effects is the node's effect set: its op's, what its bodies have, or what an opaque call
// declares.
func (n *Node) Effects() Effect {
	e := n.ownEffects()
	if n.op.info().Bodies != nil {
		e |= n.bodyEffects()
	}
	return e
}

// ownEffects are the effects without those of bodies.
func (n *Node) ownEffects() Effect {
	if n.op != OpCall {
		i := n.op.info()
		if i.RandomAttr != "" && n.attrs.Float(i.RandomAttr, 0) != 0 {
			return i.Effects | EffectRandom
		}
		return i.Effects
	}
	var e Effect
	for _, s := range n.attrs.Strs("effects") {
		one, _ := effectByName(s)
		e |= one
	}
	return e
}

// effectNames spells the effects as an opaque call declares them, in their order.
var effectNames = []struct {
	effect Effect
	name   string
}{
	{EffectAlias, "alias"}, {EffectWrites, "writes"}, {EffectCommunicates, "communicates"}, {EffectRandom, "random"},
	{EffectSizes, "sizes"},
}

// effectByName returns the effect that an opaque call declares by a name.
func effectByName(name string) (Effect, bool) {
	for _, e := range effectNames {
		if e.name == name && e.effect != EffectSizes { // which calls do not have
			return e.effect, true
		}
	}
	return 0, false
}

// EffectNames lists the effects that every node of the op has.
func (i *OpInfo) EffectNames() []string {
	names := []string{}
	for _, e := range effectNames {
		if i.Effects&e.effect != 0 {
			names = append(names, e.name)
		}
	}
	return names
}

// Communicates reports whether n takes part in communication: a collective, or
// an opaque call that says so. Waits do not: they only order.
func (n *Node) Communicates() bool { return n.Effects()&EffectCommunicates != 0 }

// Pure reports whether n has no effect but defining its results, and no order-only edge.
func (n *Node) Pure() bool { return n.Effects()&^EffectAlias == 0 && !n.Ordered() }

// Reduction names how a reducing collective combines the ranks' operands.
type Reduction string

// The reductions.
const (
	Sum     Reduction = "sum"
	Avg     Reduction = "avg"
	Product Reduction = "product"
	Min     Reduction = "min"
	Max     Reduction = "max"
)

// Valid reports whether r is one of the declared reductions.
func (r Reduction) Valid() bool {
	switch r {
	case Sum, Avg, Product, Min, Max:
		return true
	}
	return false
}

// Reduction is a collective's reduction, empty where it does not reduce.
func (n *Node) Reduction() Reduction { return Reduction(n.attrs.Str("reduce", "")) }
