package cudnn

import "fmt"

// Numbers of the backend's interface. cuDNN keeps them stable within a major version.

// descKind is the kind of a descriptor.
type descKind int32

const (
	descPointwise   descKind = 0
	descConvolution descKind = 1
	descEngine      descKind = 2
	descEngineCfg   descKind = 3
	descHeuristics  descKind = 4
	descPlan        descKind = 5
	descOpForward   descKind = 10
	descOpFilter    descKind = 11
	descOpData      descKind = 12
	descOpPointwise descKind = 13
	descOpGraph     descKind = 15
	descPack        descKind = 16
	descTensor      descKind = 17
	descMatmul      descKind = 18
	descOpMatmul    descKind = 19
	descReduction   descKind = 21
	descOpReduction descKind = 22
	descOpReshape   descKind = 31
	descKindHandle  descKind = -1 // in errors: the handle
)

// attribute names a property of a descriptor.
type attribute int32

const (
	attrPointMode     attribute = 0
	attrPointPrec     attribute = 1
	attrPointAxis     attribute = 9
	attrConvPrec      attribute = 100
	attrConvMode      attribute = 101
	attrConvDilations attribute = 102
	attrConvStrides   attribute = 103
	attrConvPost      attribute = 104
	attrConvPre       attribute = 105
	attrConvDims      attribute = 106
	attrHeurMode      attribute = 200
	attrHeurGraph     attribute = 201
	attrHeurResults   attribute = 202
	attrHeurSMs       attribute = 203
	attrCfgEngine     attribute = 300
	attrPlanHandle    attribute = 400
	attrPlanCfg       attribute = 401
	attrPlanWorkspace attribute = 402
	attrOpForwardA    attribute = 700 // of each of the three: alpha, beta, the convolution, tensors
	attrOpDataA       attribute = 706
	attrOpFilterA     attribute = 712
	attrOpPointDesc   attribute = 750
	attrOpPointX      attribute = 751
	attrOpPointB      attribute = 752
	attrOpPointY      attribute = 753
	attrOpPointAlpha1 attribute = 754
	attrOpPointAlpha2 attribute = 755
	attrOpPointT      attribute = 758
	attrGraphHandle   attribute = 800
	attrGraphOps      attribute = 801
	attrTensorAlign   attribute = 900
	attrTensorType    attribute = 901
	attrTensorDims    attribute = 902
	attrTensorStrides attribute = 903
	attrTensorUID     attribute = 906
	attrTensorVirtual attribute = 907
	attrTensorByValue attribute = 908
	attrPackUIDs      attribute = 1000
	attrPackPointers  attribute = 1001
	attrPackWorkspace attribute = 1003
	attrEngineIndex   attribute = 1301
	attrEngineNotes   attribute = 1303
	attrMatmulPrec    attribute = 1500
	attrOpMatmulA     attribute = 1520
	attrOpMatmulB     attribute = 1521
	attrOpMatmulC     attribute = 1522
	attrOpMatmulDesc  attribute = 1523
	attrReduceOp      attribute = 1600
	attrReducePrec    attribute = 1601
	attrOpReduceX     attribute = 1610
	attrOpReduceY     attribute = 1611
	attrOpReduceDesc  attribute = 1612
	attrOpReshapeX    attribute = 2200
	attrOpReshapeY    attribute = 2201
)

// attrType is the type of an attribute's elements.
type attrType int32

const (
	typeHandle      attrType = 0
	typeDataType    attrType = 1
	typeBoolean     attrType = 2
	typeInt64       attrType = 3
	typeFloat       attrType = 4
	typePointer     attrType = 6
	typeConvMode    attrType = 7
	typeHeurMode    attrType = 8
	typeNote        attrType = 11
	typePointMode   attrType = 14
	typeDescriptor  attrType = 15
	typeReductionOp attrType = 18
	typeInt32       attrType = 23
)

const (
	heurFallback = 2 // engines that serve most, however slow
	heurA        = 3 // heuristics of cuDNN's own choosing, in order of expected speed
)

// What the library notes of an engine's numbers.
const (
	noteTensorCore   = 0
	noteNarrowed     = 1 // operands are rounded to a narrower type
	noteReduced      = 2 // sums are kept in less than the type that was asked for
	noteUnreproduced = 4 // results may differ from run to run
)

var kindNames = map[descKind]string{descPointwise: "pointwise", descEngine: "engine", descEngineCfg: "engine configuration",
	descHeuristics: "heuristics", descPlan: "execution plan", descOpPointwise: "pointwise operation", descOpGraph: "operation graph",
	descConvolution: "convolution", descOpForward: "convolution operation", descOpFilter: "filter gradient operation", descOpData: "data gradient operation",
	descPack: "variant pack", descTensor: "tensor", descMatmul: "matmul", descOpMatmul: "matmul operation",
	descReduction: "reduction", descOpReduction: "reduction operation", descOpReshape: "reshape operation", descKindHandle: "the handle"}

func (k descKind) String() string {
	if s, ok := kindNames[k]; ok {
		return s
	}
	return fmt.Sprintf("descriptor %d", int(k))
}

// Error is a failed call of the library.
type Error struct {
	Call   string // the library's name for it, such as cudnnBackendFinalize
	On     string // what it was called on
	Status int    // the library's status; negative if the library was not reached
	Name   string // the status as text
	Text   string // the library's last message, may be empty
}

// Error names the call, its object, the status and the library's message.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s on %s: %s (%d)", e.Call, e.On, e.Name, e.Status)
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// unsupported says that the library does not serve the call: what an engine cannot do some
// versions call a bad parameter.
func (e *Error) unsupported() bool { return e.Status >= 2000 && e.Status < 4000 }
