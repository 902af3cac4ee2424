package terms

import "fmt"

// Row is what a proof may use beyond equal operations on equal operands.
type Row struct {
	Name         string
	Statement    string
	Reassociates bool // floats: it keeps all but their rounding and the sign of their zeros
}

// Rows lists the table in order.
func Rows() []Row {
	var out []Row
	for _, e := range equations() {
		out = append(out, e.Row)
	}
	return out
}

// What rows keep of floats.
const (
	exact        = false // every bit
	reassociates = true
)

// equation is a row with the function that applies it from left to right.
type equation struct {
	Row
	anchor kind
	// apply returns the term that t equals, or false.
	apply func(z *Normalizer, t *term) (TermID, bool)
}

// equations is the table. Of the rows for one kind of term the first that applies
// counts; the row of no kind is for terms that differ in normal form.
func equations() []*equation {
	row := func(name string, reassociates bool, k kind, apply func(z *Normalizer, t *term) (TermID, bool), format string, args ...any) *equation {
		return &equation{Row{name, fmt.Sprintf(format, args...), reassociates}, k, apply}
	}
	combined := func(name string, k kind) *equation {
		return row(name, exact, k, sumOfCombined, "a table of zeros to which each rank adds rows, summed or averaged over the ranks and cut into the ranks' runs of rows, is: every rank adds up its rows for equal indices, at the first of them, rounded as the table is; these sums and their indices are gathered, and each rank adds those of its run by ascending rank to zeros, or to -0 in rows that every rank has where sums may be rounded to -0, or looks up for each of its rows what every rank has for it, +0 for nothing. Adding -0 changes no number; indices lie within the table")
	}
	return []*equation{
		row("move-of-itself", exact, kindMove, moveOfItself, "elements taken from where they are, in order, are the tensor: views that keep the order, clones, and what a gather and a shard of one group undo"),
		row("move-of-constant", exact, kindMove, movedConstant, "elements of a constant are a constant"),
		row("move-of-move", exact, kindMove, moveOfMove, "elements of elements are elements: layouts compose"),
		row("move-of-parts", exact, kindMove, moveOfParts, "rows of what was put together of rows, by a concatenation or in the place of others, are those of the part that has all of them"),
		row("move-of-pointwise", exact, kindMove, movedPointwise, "elements of what is computed element by element are computed of the operands' elements"),
		row("move-of-reduce", exact, kindMove, moveOfReduce, "elements of a reduction over ranks are reductions of the elements, where all ranks select alike"),
		row("move-of-lookup", exact, kindMove, moveOfLookup, "rows and columns of looked-up rows are the rows at those indices of those columns of the table"),
		row("shuffle-of-constant", exact, kindShuffle, movedConstant, "elements of a constant are a constant"),
		row("shuffle-of-pointwise", exact, kindShuffle, movedPointwise, "elements of what is computed element by element are computed of the operands' elements"),
		row("shuffle-undone", exact, kindShuffle, shuffleUndone, "pieces of symbolic size that are gathered from where a shard of the same group and dimension put them are what was cut, if the ranks cut the same; a shard of what was gathered is the piece; dimensions that are reordered twice are reordered once, or not at all"),
		row("cat-of-parts", exact, kindOpaque, catOfParts, "rows that follow each other are their tensor, and what computes rows of rows, put together, computes all of them: elementwise operations, reductions and softmax along other dimensions, rows and columns of products, look-ups, reductions over ranks, and moves that take whole rows"),
		row("part-is-all", exact, kindOpaque, partIsAll, "rows in the place of all others are the tensor, and no rows leave it as it is"),
		row("transposed-matmul", exact, kindOpaque, transposedMatmul, "the transpose of a matmul is the matmul of the transposes, in each other's place: products of numbers commute, and are added in the same order. One of the two stands for both"),
		row("symmetric-matmul", exact, kindMove, symmetricMatmul, "a matmul of a matrix and its transpose is its own transpose"),
		row("matmul-of-nothing", exact, kindOpaque, matmulOfNothing, "a matmul that adds up no products is 0"),
		row("matmul-of-widened", exact, kindOpaque, matmulOfWidened, "a matmul in f32 of 16-bit floats that were widened is one of these: products and sums are made in f32"),
		row("matmul-rounds", exact, kindPoint, matmulRounds, "a matmul of 16-bit floats that gives f32, rounded to their type, is the matmul that gives their type: it is rounded once"),
		row("arithmetic-of-constants", exact, kindPoint, arithmeticOfConstants, "what is computed of small integers that are known is known, and a condition that is known chooses"),
		row("convert-to-same", exact, kindPoint, convertToSame, "a conversion to the type that the operand has is the operand"),
		row("convert-of-choice", exact, kindPoint, convertOfReceived, "a conversion of numbers or zeros is of the numbers, or zeros, between types that have zero"),
		row("there-and-back", exact, kindPoint, thereAndBack, "floats converted to a type that holds them all and back are what they were, and so are integers in one of no fewer bits, also if the highest is flipped twice"),
		row("wrap-before", exact, kindPoint, wrapped, "sums and products of integers over ranks, and small multiples, converted to a narrower type are those of what was converted: the bits that are cut off do not reach lower ones"),
		row("sum-in-narrow", exact, kindPoint, narrowed, "floats of 8 and 16 bits widened to f32, summed or multiplied over ranks and rounded are their sum or product, which is made in f32 and rounded once. With reassociation, what is rounded after a sum or a division may be rounded before it"),
		row("factor-of-factor", reassociates, kindPoint, factorOfFactor, "a factor of a factor is one by their product, and likewise divisors; exact for integers, which wrap around"),
		row("factor-of-sum", reassociates, kindPoint, factorOfSum, "a factor or divisor of a sum, a difference or an opposite is that of its parts; factors are exact for integers"),
		row("reduce-of-one", exact, kindReduce, reduceOfOne, "a reduction over one rank is that rank's operand"),
		row("reduce-of-bools", exact, kindReduce, reduceOfBools, "a sum of bools over ranks is their maximum, which is or, and a product their minimum, which is and"),
		row("average-is-quotient", exact, kindReduce, averageIsQuotient, "an average of floats over ranks is their sum divided by their number before it is rounded: of 16-bit floats the sum in f32; an average of integers is their sum in 64 bits divided by their number, without what remains"),
		row("reduce-of-move", exact, kindReduce, reduceOfMove, "a reduction over ranks of elements that come from corresponding ranks and one index is the element of the reduction over those ranks, in their order"),
		row("reduce-of-moved", exact, kindReduce, reduceOfMoved, "the same where all operands of elementwise operations are moved alike"),
		row("reduce-of-shuffle", exact, kindReduce, reduceOfShuffle, "the same for what every rank does with its own elements alike"),
		row("reduce-over-equal", exact, kindReduce, reduceOverEqual, "of ranks that hold equal operands one stands for all; min and max take it once; the order does not matter to min, max, and sums and products of integers, nor, where reassociation is allowed, to others"),
		row("reduce-of-linear", reassociates, kindReduce, reduceOfLinear, "a reduction of a sum is the sum of the reductions, and likewise differences, negation and scaling of sums and averages, products of products, maxima and minima"),
		row("reduce-of-equal", reassociates, kindReduce, reduceOfEqual, "a sum in which every operand counts n times is n times the sum"),
		row("reduce-of-reduce", reassociates, kindReduce, reduceOfReduce, "a reduction of reductions is one over all their ranks"),
		row("reduce-of-monotone", exact, kindReduce, reduceOfMonotone, "min and max commute with what does not decrease in the order -inf ... -0, +0 ... +inf and keeps NaN: conversions of floats, floor, a positive factor, a summand; unsigned integers that are read as signed ones with the highest bit flipped, and integers in a type that holds them all; relu and clamp of integers, clamp of floats unless it puts one zero in the place of other numbers and lets the other zero stay. With reassociation also where only the sign of zeros differs"),
		row("rows-of-owners", exact, kindReduce, rowsOfOwners, "a sum over ranks of the rows that each has in its run of a table, -0 where it has none, is the rows of the whole table; indices lie within it"),
		combined("sum-of-combined-rows", kindScatter),
		combined("sum-of-combined-rows-pointwise", kindPoint),
		row("sum-of-added-rows", reassociates, kindScatter, sumOfAdded, "the same with rows added as they are: the sum is then rounded once; exact for integers, which wrap around"),
		row("equal-elements", exact, numKinds, nil, "tensors are equal if their elements are, at each index of small ones, else at one that stands for all: expressions of elements of what both are made of, in which moves are gone, integers that are known decide conditions and indices, min and max are those of a set, products those of all their factors where the order does not matter, and sums are made rank by rank, or are sums of multiples where the order does not matter. No rule of single elements goes beyond the rows above"),
		row("lookup-at-known", exact, kindLookup, lookupAtKnown, "rows at indices that count up are elements of the table"),
	}
}
