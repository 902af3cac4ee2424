package types

import "github.com/seed-ee968945/concert/internal/attr"

// Rule says which result types follow from operand types.
type Rule struct {
	infer rule
	Doc   string // what the rule demands and gives
}

// Infer returns the result types of a node with such operands on a group of as many ranks, 0
// if it has none, or says why the operands do not fit. want declares result types where the
// rule leaves them open.
func (r Rule) Infer(ranks int, attrs attr.List, args []Type, want ...Type) ([]Type, error) {
	return r.infer(&operands{args: args, attrs: attrs, want: want, group: ranks})
}

// The type rules that rows of the op table name.
var (
	Declared     = Rule{inferDeclared, "as declared"}
	AsyncCall    = Rule{inferAsyncCall, "as declared: one tensor, async"}
	Constant     = Rule{inferConstant, "as declared, of a constant shape that the data fills"}
	Pointwise    = Rule{inferPointwise, "the shape to which the operands broadcast; the element type is declared, by default the promotion of theirs"}
	Bitwise      = Rule{inferBitwise, "as pointwise, of integers and truth values"}
	Bitcast      = Rule{inferBitcast, "the operand's shape; the element type is declared, of the same width, and neither is bool"}
	Compare      = Rule{inferCompare, "bool in the shape to which the operands broadcast"}
	Same         = Rule{inferSame, "the operand's shape; the element type is declared, by default the operand's"}
	LikeFirst    = Rule{inferLikeFirst, "operand 0's shape and element type"}
	ReduceWindow = Rule{inferReduceWindow, "the number of windows along each dimension; the element type is declared, by default the operand's, of argmax i64. Operand 1 holds integers in operand 0's shape"}
	Reduce       = Rule{inferReduce, "the operand's shape without the reduced dimensions, or with 1 in their place if keepdim; the element type is declared, by default the operand's, where dim is given i64"}

	Matmul            = Rule{inferMatmul, "[m,k] and [k,n] give [m,n], [b,m,k] and [b,k,n] give [b,m,n]; the element type is declared, by default the promotion of theirs"}
	Addmm             = Rule{inferAddmm, "operands 1 and 2 as in matmul; operand 0 broadcasts to the result"}
	GroupedMatmul     = Rule{inferGroupedMatmul, "with g groups, operand 2 is i32[g] or i64[g]: [m,k] and [g,k,n] give [m,n] by groups of rows, [g,m,k] and [k,n] give [m,n] by groups of columns, [m,k] and [k,n] give [g,m,n] by groups of k; the element type is declared, by default the promotion of theirs"}
	Convolution       = Rule{inferConvolution, "[n,c,...] and [o,c/groups,...] give [n/batch_groups,o,...] with the number of windows along each dimension; the element type is declared, by default the promotion of theirs"}
	Attention         = Rule{inferAttention, "[b,h,s,d], [b,g,t,d] and [b,g,t,e] give [b,h,s,e], f32[b,h,s,1] (f64 if operand 0 is f64), i64[] and i64[]"}
	AttentionBackward = Rule{inferAttentionBackward, "the shapes of operands 1, 2 and 3; operand 0 has the shape of operand 4"}

	Cat       = Rule{inferCat, "element types are one, and sizes agree but along dim, where they add up"}
	Index     = Rule{inferIndex, "operand 0's shape with what the index tensors broadcast to in the place of dims, or in front if dims are not adjacent"}
	IndexPut  = Rule{inferIndexPut, "operand 0's type; operand 1 broadcasts to what index of operand 0 would give"}
	Gather    = Rule{inferGather, "operand 0's element type in the shape of operand 1, which holds integers and has as many dimensions as operand 0"}
	Embedding = Rule{inferEmbedding, "operand 0 is [v,d], operand 1 holds integers: its shape and then d, in operand 0's element type"}
	Topk      = Rule{inferTopk, "the operand's shape with k along dim, in its element type and in i64"}
	ReadSize  = Rule{inferReadSize, "operand 0 holds an integer for each of symbols: i64 in its shape"}
	Shard     = Rule{inferShard, "the operand's shape with dim divided by the group's size, without a remainder"}

	View         = Rule{inferView, "as declared, with as many elements; where the operand has strides, only dimensions that form one run of memory are regrouped"}
	Permute      = Rule{inferPermute, "the operand's sizes and strides in the order of dims, which name each dimension once"}
	Expand       = Rule{inferExpand, "as declared: dimensions of 1 and new leading ones get any size, at stride 0"}
	Slice        = Rule{inferSlice, "the operand's type with (end-start) / step, rounded up, along dim, where the stride is step times the operand's"}
	SliceScatter = Rule{inferSliceScatter, "operand 0's shape and element type; operand 1 has those of the slice"}
	Split        = Rule{inferSplit, "a result for each of sizes, which add up to dim, with the operand's strides"}
	Squeeze      = Rule{inferSqueeze, "the operand's type without those of dims whose size is 1"}
	Unsqueeze    = Rule{inferUnsqueeze, "the operand's type with a 1 before dim"}
	Select       = Rule{inferSelect, "the operand's type without dim"}
	Alias        = Rule{inferAlias, "the operand's type"}
	AsStrided    = Rule{inferAsStrided, "as declared, static, in the operand's element type, and within the elements that the operand reaches"}

	While = Rule{inferDeclared, "as declared: those of the first operands, in any layout; the bodies' inputs and results fit"}
	Case  = Rule{inferDeclared, "as declared; operand 0 is an integer or bool without dimensions, and the branches' inputs and results fit"}

	AllReduce     = Rule{inferAllReduce, "async of the operands' types"}
	AllGather     = Rule{inferAllGather, "async of the operands' types with dim times the group's size"}
	ReduceScatter = Rule{inferReduceScatter, "async of the operands' types with dim divided by the group's size, without a remainder"}
	AllToAll      = Rule{inferAllToAll, "async of the operands' types, with the sum of out_splits as dimension 0 if given, or a declared size that may be equal; in_splits add up to the operand's, or may. What may is checked when the sizes are known"}
	Wait          = Rule{inferWait, "the tensors that the async operand carries"}
)
