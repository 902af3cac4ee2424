package ir

// TypeRule says which result types follow from operand types.
type TypeRule struct {
	infer inferFunc
	Doc   string // what the rule demands and gives
}

// The type rules that rows of the op table name.
var (
	tDeclared     = TypeRule{inferDeclared, "as declared"}
	tAsyncCall    = TypeRule{inferAsyncCall, "as declared: one tensor, async"}
	tConstant     = TypeRule{inferConstant, "as declared, of a constant shape that the data fills"}
	tPointwise    = TypeRule{inferPointwise, "the shape to which the operands broadcast; the element type is declared, by default the promotion of theirs"}
	tBitwise      = TypeRule{inferBitwise, "as pointwise, of integers and truth values"}
	tBitcast      = TypeRule{inferBitcast, "the operand's shape; the element type is declared, of the same width, and neither is bool"}
	tCompare      = TypeRule{inferCompare, "bool in the shape to which the operands broadcast"}
	tSame         = TypeRule{inferSame, "the operand's shape; the element type is declared, by default the operand's"}
	tLikeFirst    = TypeRule{inferLikeFirst, "operand 0's shape and element type"}
	tReduceWindow = TypeRule{inferReduceWindow, "the number of windows along each dimension; the element type is declared, by default the operand's, of argmax i64. Operand 1 holds integers in operand 0's shape"}
	tReduce       = TypeRule{inferReduce, "the operand's shape without the reduced dimensions, or with 1 in their place if keepdim; the element type is declared, by default the operand's, where dim is given i64"}

	tMatmul            = TypeRule{inferMatmul, "[m,k] and [k,n] give [m,n], [b,m,k] and [b,k,n] give [b,m,n]; the element type is declared, by default the promotion of theirs"}
	tAddmm             = TypeRule{inferAddmm, "operands 1 and 2 as in matmul; operand 0 broadcasts to the result"}
	tGroupedMatmul     = TypeRule{inferGroupedMatmul, "with g groups, operand 2 is i32[g] or i64[g]: [m,k] and [g,k,n] give [m,n] by groups of rows, [g,m,k] and [k,n] give [m,n] by groups of columns, [m,k] and [k,n] give [g,m,n] by groups of k; the element type is declared, by default the promotion of theirs"}
	tConvolution       = TypeRule{inferConvolution, "[n,c,...] and [o,c/groups,...] give [n/batch_groups,o,...] with the number of windows along each dimension; the element type is declared, by default the promotion of theirs"}
	tAttention         = TypeRule{inferAttention, "[b,h,s,d], [b,g,t,d] and [b,g,t,e] give [b,h,s,e], f32[b,h,s,1] (f64 if operand 0 is f64), i64[] and i64[]"}
	tAttentionBackward = TypeRule{inferAttentionBackward, "the shapes of operands 1, 2 and 3; operand 0 has the shape of operand 4"}

	tCat       = TypeRule{inferCat, "element types are one, and sizes agree but along dim, where they add up"}
	tIndex     = TypeRule{inferIndex, "operand 0's shape with what the index tensors broadcast to in the place of dims, or in front if dims are not adjacent"}
	tIndexPut  = TypeRule{inferIndexPut, "operand 0's type; operand 1 broadcasts to what index of operand 0 would give"}
	tGather    = TypeRule{inferGather, "operand 0's element type in the shape of operand 1, which holds integers and has as many dimensions as operand 0"}
	tEmbedding = TypeRule{inferEmbedding, "operand 0 is [v,d], operand 1 holds integers: its shape and then d, in operand 0's element type"}
	tTopk      = TypeRule{inferTopk, "the operand's shape with k along dim, in its element type and in i64"}
	tReadSize  = TypeRule{inferReadSize, "operand 0 holds an integer for each of symbols: i64 in its shape"}
	tShard     = TypeRule{inferShard, "the operand's shape with dim divided by the group's size, without a remainder"}

	tView      = TypeRule{inferView, "as declared, with as many elements; where the operand has strides, only dimensions that form one run of memory are regrouped"}
	tPermute   = TypeRule{inferPermute, "the operand's sizes and strides in the order of dims, which name each dimension once"}
	tExpand    = TypeRule{inferExpand, "as declared: dimensions of 1 and new leading ones get any size, at stride 0"}
	tSlice     = TypeRule{inferSlice, "the operand's type with (end-start) / step, rounded up, along dim, where the stride is step times the operand's"}
	tSplit     = TypeRule{inferSplit, "a result for each of sizes, which add up to dim, with the operand's strides"}
	tSqueeze   = TypeRule{inferSqueeze, "the operand's type without those of dims whose size is 1"}
	tUnsqueeze = TypeRule{inferUnsqueeze, "the operand's type with a 1 before dim"}
	tSelect    = TypeRule{inferSelect, "the operand's type without dim"}
	tAlias     = TypeRule{inferAlias, "the operand's type"}
	tAsStrided = TypeRule{inferAsStrided, "as declared, static, in the operand's element type, and within the elements that the operand reaches"}

	tWhile = TypeRule{inferDeclared, "as declared: those of the first operands, in any layout; the bodies' inputs and results fit"}
	tCase  = TypeRule{inferDeclared, "as declared; operand 0 is an integer or bool without dimensions, and the branches' inputs and results fit"}

	tAllReduce     = TypeRule{inferAllReduce, "async of the operands' types"}
	tAllGather     = TypeRule{inferAllGather, "async of the operands' types with dim times the group's size"}
	tReduceScatter = TypeRule{inferReduceScatter, "async of the operands' types with dim divided by the group's size, without a remainder"}
	tAllToAll      = TypeRule{inferAllToAll, "async of the operands' types, with the sum of out_splits as dimension 0 if given, or a declared size that may be equal; in_splits add up to the operand's, or may. What may is checked when the sizes are known"}
	tWait          = TypeRule{inferWait, "the tensors that the async operand carries"}
)
