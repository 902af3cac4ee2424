package export

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// name is what an operation of the text defines. It is chosen when the node that the
// operation belongs to is written: the node's own, or a number.
type name struct{ text string }

// val is a tensor of the text.
type val struct {
	*name
	index int // among the results of its operation, -1 where that has one
	dt    ir.DType
	shape []int64
}

func (v val) String() string {
	if v.index >= 0 {
		return fmt.Sprintf("%%%s#%d", v.text, v.index)
	}
	return "%" + v.text
}

// typ is the type of the value in the text.
func (v val) typ() string { return typeText(v.dt, v.shape) }

func typeText(dt ir.DType, shape []int64) string {
	return mlir.TensorType(dt, shape...).String()
}

// emitter writes the operations of one function. The first error sticks, and what is
// made behind it means nothing.
type emitter struct {
	w       io.Writer
	o       Options
	node    *ir.Node
	world   int
	lines   []line // of the node that is being written
	vals    map[*ir.Value][]val
	used    map[string]bool
	numbers int
	todo    []*ir.Func          // functions to write, in the order in which they were met
	funcs   map[*ir.Func]string // their names, but of the module's own; look-up only
	last    *val                // the latest tensor that was computed, for barriers
	err     error
}

// line is one operation: its parts are printed once all names are known.
type line struct {
	result  *name // nil where it defines nothing
	results int
	parts   []any
}

// failf says what about the node cannot be written.
func (e *emitter) failf(format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf("export: %%%s (%s): %s", e.node.Name(), e.node.Op(), fmt.Sprintf(format, args...))
	}
}

// write adds an operation of one result.
func (e *emitter) write(dt ir.DType, shape []int64, parts ...any) val {
	v := val{&name{}, -1, dt, shape}
	e.lines = append(e.lines, line{v.name, 1, parts})
	return v
}

// several adds an operation that gives a result of the type of each of vs.
func (e *emitter) several(vs []val, parts ...any) []val {
	if len(vs) == 1 {
		return []val{e.write(vs[0].dt, vs[0].shape, parts...)}
	}
	n := &name{}
	out := slices.Clone(vs)
	for i := range out {
		out[i].name, out[i].index = n, i
	}
	e.lines = append(e.lines, line{n, len(vs), parts})
	return out
}

// flush prints the lines of a node. Names that are left are numbers.
func (e *emitter) flush(location string) {
	for _, l := range e.lines {
		var b strings.Builder
		b.WriteString("    ")
		if l.result != nil {
			if l.result.text == "" {
				l.result.text = fmt.Sprint(e.numbers)
				e.numbers++
			}
			b.WriteString("%" + l.result.text)
			if l.results > 1 {
				fmt.Fprintf(&b, ":%d", l.results)
			}
			b.WriteString(" = ")
		}
		for _, p := range l.parts {
			switch p := p.(type) {
			case []val:
				b.WriteString(list(p, val.String))
			default:
				fmt.Fprint(&b, p)
			}
		}
		b.WriteString(location)
		b.WriteByte('\n')
		if _, err := io.WriteString(e.w, b.String()); err != nil && e.err == nil {
			e.err = err
		}
	}
	e.lines = e.lines[:0]
}

// list is what f says of each, with commas.
func list[T any](l []T, f func(T) string) string {
	out := make([]string, len(l))
	for i, x := range l {
		out[i] = f(x)
	}
	return strings.Join(out, ", ")
}

func ints[T int | int64](l []T) string { return list(l, func(n T) string { return fmt.Sprint(n) }) }

// array is a list of numbers as an attribute.
func array(l []int64) string {
	if len(l) == 0 {
		return "array<i64>"
	}
	return "array<i64: " + ints(l) + ">"
}

// simple is an operation on operands of one type that gives their type.
func (e *emitter) simple(op string, vs ...val) val {
	if strings.HasPrefix(op, "chlo.") {
		return e.write(vs[0].dt, vs[0].shape, op, " ", vs, " : ", list(vs, val.typ), " -> ", vs[0].typ())
	}
	return e.write(vs[0].dt, vs[0].shape, op, " ", vs, " : ", vs[0].typ())
}

// typed is an operation in the form that names the types of operands and result.
func (e *emitter) typed(op string, dt ir.DType, shape []int64, attrs string, vs ...val) val {
	if attrs != "" {
		attrs = ", " + attrs
	}
	return e.write(dt, shape, op, " ", vs, attrs, " : (", list(vs, val.typ), ") -> ", typeText(dt, shape))
}

// generic is an operation of some results in MLIR's generic form.
func (e *emitter) generic(op, attrs, region string, vs, like []val) []val {
	if region != "" {
		region = " ({\n" + region + "    })"
	}
	if attrs != "" {
		attrs = " <{" + attrs + "}>"
	}
	return e.several(like, `"`+op+`"(`, vs, ")", attrs, region, " : (", list(vs, val.typ), ") -> ", resultTypes(like))
}

// resultTypes are the types behind an arrow.
func resultTypes(vs []val) string {
	if len(vs) == 1 {
		return vs[0].typ()
	}
	return "(" + list(vs, val.typ) + ")"
}

// of is a type without a value.
func of(dt ir.DType, shape []int64) val { return val{nil, -1, dt, shape} }

// to converts the elements of a tensor. Floats that a narrow integer does not have wrap, which
// StableHLO says of integers only.
func (e *emitter) to(v val, dt ir.DType) val {
	if v.dt == dt {
		return v
	}
	if v.dt.IsFloat() && dt.IsInt() && dt.Size() < 4 {
		v = e.to(v, ir.I64)
	}
	return e.typed("stablehlo.convert", dt, v.shape, "", v)
}

// constant is a tensor of which every element is what a text says.
func (e *emitter) constant(dt ir.DType, shape []int64, elements string) val {
	return e.write(dt, shape, "stablehlo.constant dense<", elements, "> : ", typeText(dt, shape))
}

// number is a tensor of one number, which the type has.
func (e *emitter) number(f float64, dt ir.DType, shape []int64) val {
	return e.constant(dt, shape, numberText(f, dt))
}

// whole is a tensor of one whole number.
func (e *emitter) whole(n int64, dt ir.DType, shape []int64) val {
	if dt.IsFloat() {
		return e.number(float64(n), dt, shape)
	}
	return e.constant(dt, shape, wholeText(n, dt))
}

// spread repeats a tensor to a shape: dims are the places of its dimensions there.
func (e *emitter) spread(v val, dims, shape []int64) val {
	if slices.Equal(v.shape, shape) && slices.IsSorted(dims) {
		return v
	}
	return e.typed("stablehlo.broadcast_in_dim", v.dt, shape, "dims = ["+ints(dims)+"]", v)
}

// broadcast repeats a tensor to a shape whose last dimensions are its own, or where its own are 1.
func (e *emitter) broadcast(v val, shape []int64) val {
	dims := make([]int64, len(v.shape))
	for i := range dims {
		dims[i] = int64(len(shape) - len(v.shape) + i)
	}
	return e.spread(v, dims, shape)
}

// along repeats a vector along one dimension of a shape.
func (e *emitter) along(v val, dim int64, shape []int64) val {
	return e.spread(v, []int64{dim}, shape)
}

func (e *emitter) reshape(v val, shape []int64) val {
	if slices.Equal(v.shape, shape) {
		return v
	}
	return e.typed("stablehlo.reshape", v.dt, shape, "", v)
}

func (e *emitter) transpose(v val, dims []int64) val {
	if slices.IsSorted(dims) {
		return v
	}
	shape := make([]int64, len(dims))
	for i, d := range dims {
		shape[i] = v.shape[d]
	}
	return e.typed("stablehlo.transpose", v.dt, shape, "dims = ["+ints(dims)+"]", v)
}

// slice takes indices start, start+step, ... below end of one dimension.
func (e *emitter) slice(v val, dim int, start, end, step int64) val {
	if start == 0 && end == v.shape[dim] && step == 1 {
		return v
	}
	shape := slices.Clone(v.shape)
	shape[dim] = max(0, (end-start+step-1)/step)
	ranges := make([]string, len(v.shape))
	for d, n := range v.shape {
		ranges[d] = fmt.Sprintf("0:%d", n)
	}
	ranges[dim] = fmt.Sprintf("%d:%d", start, max(start, end))
	if step != 1 {
		ranges[dim] += fmt.Sprintf(":%d", step)
	}
	return e.write(v.dt, shape, "stablehlo.slice ", v, " [", strings.Join(ranges, ", "), "] : (", v.typ(), ") -> ", typeText(v.dt, shape))
}

func (e *emitter) concatenate(vs []val, dim int) val {
	if len(vs) == 1 {
		return vs[0]
	}
	shape := slices.Clone(vs[0].shape)
	for _, v := range vs[1:] {
		shape[dim] += v.shape[dim]
	}
	return e.typed("stablehlo.concatenate", vs[0].dt, shape, fmt.Sprint("dim = ", dim), vs...)
}

// pad adds elements in front of, behind and between those of a tensor.
func (e *emitter) pad(v, with val, low, high, between []int64) val {
	shape := slices.Clone(v.shape)
	for d, n := range v.shape {
		shape[d] = low[d] + high[d] + max(n-1, 0)*between[d] + n
	}
	return e.typed("stablehlo.pad", v.dt, shape, "low = ["+ints(low)+"], high = ["+ints(high)+"], interior = ["+ints(between)+"]", v, with)
}

// iota counts along a dimension.
func (e *emitter) iota(dt ir.DType, shape []int64, dim int) val {
	return e.write(dt, shape, "stablehlo.iota dim = ", dim, " : ", typeText(dt, shape))
}

// compare is where a relation such as LT holds.
func (e *emitter) compare(relation string, a, b val) val {
	kind := "SIGNED"
	switch {
	case a.dt.IsFloat():
		kind = "FLOAT"
	case a.dt.IsUnsigned() || a.dt == ir.Bool:
		kind = "UNSIGNED"
	}
	return e.write(ir.Bool, a.shape, "stablehlo.compare ", relation, ", ", []val{a, b}, ", ", kind, " : (", list([]val{a, b}, val.typ), ") -> ", typeText(ir.Bool, a.shape))
}

// choose is a where cond holds, else b.
func (e *emitter) choose(cond, a, b val) val {
	return e.write(a.dt, a.shape, "stablehlo.select ", []val{cond, a, b}, " : ", list([]val{cond, a}, val.typ))
}

// reduce folds dimensions by an operation, from an initial value on.
func (e *emitter) reduce(op string, v, init val, dims []int64) val {
	shape := []int64{}
	for d, n := range v.shape {
		if !slices.Contains(dims, int64(d)) {
			shape = append(shape, n)
		}
	}
	return e.write(v.dt, shape, "stablehlo.reduce(", v, " init: ", init, ") applies ", op, " across dimensions = [", ints(dims),
		"] : (", list([]val{v, init}, val.typ), ") -> ", typeText(v.dt, shape))
}

// body is the text of a region that applies one operation to two elements. Names in regions
// begin with a point, as no other does: they may not be those of values around them.
func body(op string, dt ir.DType) string {
	t := typeText(dt, nil)
	return fmt.Sprintf("    ^bb0(%%.a: %s, %%.b: %s):\n      %%.r = %s %%.a, %%.b : %s\n      stablehlo.return %%.r : %s\n", t, t, op, t, t)
}

// product multiplies batches of matrices: dimensions that are neither batch nor contracted
// follow the batch, those of a first.
func (e *emitter) product(a, b val, batch, contract [2][]int64, dt ir.DType) val {
	var shape []int64
	for _, d := range batch[0] {
		shape = append(shape, a.shape[d])
	}
	attrs := ""
	for i, v := range []val{a, b} {
		for d, n := range v.shape {
			if !slices.Contains(batch[i], int64(d)) && !slices.Contains(contract[i], int64(d)) {
				shape = append(shape, n)
			}
		}
	}
	if len(batch[0]) > 0 {
		attrs = fmt.Sprintf("batching_dims = [%s] x [%s], ", ints(batch[0]), ints(batch[1]))
	}
	precision := "DEFAULT"
	if a.dt == ir.F32 { // sums of products of float32, not of what is left of them
		precision = "HIGHEST"
	}
	attrs += fmt.Sprintf("contracting_dims = [%s] x [%s], precision = [%s, %s]", ints(contract[0]), ints(contract[1]), precision, precision)
	return e.typed("stablehlo.dot_general", dt, shape, attrs, a, b)
}

// dense is a tensor of whole numbers that the text lists.
func (e *emitter) dense(dt ir.DType, l []int64) val {
	return e.constant(dt, []int64{int64(len(l))}, "["+ints(l)+"]")
}
