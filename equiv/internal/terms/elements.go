package terms

import (
	"slices"

	"github.com/seed-ee968945/concert/equiv/internal/layout"
	"github.com/seed-ee968945/concert/equiv/internal/ranks"
	"github.com/seed-ee968945/concert/equiv/internal/scalar"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// Where normal forms differ, tensors are compared element by element: moves are
// gone then, so that it does not matter which of them an equation let out of a
// reduction first, and numbers that are known decide conditions and indices. Runs of
// elements that nothing takes apart count as one, see runs.go.

// maxElements bounds the elements, on all ranks, of the terms that two compared ones
// are made of.
const maxElements = 1 << 21

// maxCone bounds how many terms that are.
const maxCone = 1 << 14

// elements holds the elements of terms.
type elements struct {
	z *Normalizer
	*scalar.Table
	of    map[TermID][][]scalar.ID // by rank; look-up only, as are the following
	twins map[string]bool          // texts of which several opaque terms are compared
	whole map[vector]int32
	run   map[TermID]int64 // elements that count as one
	lines bool             // what computes lines of lines is looked into, see lines.go
}

// vector is all elements of a term on a rank, or those of a column.
type vector struct {
	t      TermID
	rank   int32
	column int64
	width  int64
}

func newElements(z *Normalizer) *elements {
	return &elements{z: z, Table: scalar.NewTable(z.reassociate),
		of: map[TermID][][]scalar.ID{}, twins: map[string]bool{}, whole: map[vector]int32{}}
}

// elementwise proves that two terms are equal on all ranks.
func (z *Normalizer) elementwise(s, t TermID) bool {
	for _, lines := range []bool{false, true} {
		e := newElements(z)
		e.lines = lines
		if e.equal(s, t) {
			z.count[z.element]++
			return true
		}
	}
	return false
}

func (e *elements) equal(s, t TermID) bool {
	terms, ok := e.cone(s, t)
	if !ok || !e.z.at(s).n.Equal(e.z.at(t).n) || !e.runs(terms) || e.run[s] != e.run[t] && e.z.at(s).kind != kindFull && e.z.at(t).kind != kindFull {
		return false
	}
	for _, id := range terms {
		e.make(id)
	}
	for r := range e.z.vals.world {
		x, y := e.of[s][r], e.of[t][r]
		for i := range max(len(x), len(y)) {
			if at(x, int64(i)) != at(y, int64(i)) {
				return false
			}
		}
	}
	return true
}

// cone lists what the terms are made of, operands first. An opaque operation is looked
// into where another might turn out to be equal to it. False if that is too much.
func (e *elements) cone(roots ...TermID) ([]TermID, bool) {
	z, last := e.z, map[string]TermID{} // look-up only
	for {                               // until no new pair of opaque terms is found
		pairs := len(e.twins)
		var out []TermID
		seen := map[TermID]bool{}
		stack := slices.Clone(roots)
		for len(stack) > 0 {
			id := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if seen[id] {
				continue
			}
			seen[id] = true
			t := z.at(id)
			if _, ok := t.n.Const(); !ok || len(out) == maxCone {
				return nil, false
			}
			out = append(out, id)
			if t.kind == kindOpaque {
				if twin, ok := last[t.text]; ok && twin != id {
					e.twins[t.text] = true
				}
				last[t.text] = id
				if !e.twins[t.text] && t.op != ir.OpArgmax && t.op != ir.OpCat && !(e.lines && ofLines(t)) {
					continue
				}
			}
			stack = append(stack, t.args...)
		}
		if len(e.twins) == pairs {
			slices.Sort(out) // operands were made before
			return out, true
		}
	}
}

// make makes the elements of a term whose operands have theirs.
func (e *elements) make(id TermID) {
	z, t := e.z, e.z.at(id)
	n := e.units(t, e.run[id])
	rows := make([][]scalar.ID, z.vals.world)
	e.of[id] = rows
	args := make([][]scalar.ID, len(t.args))
	for r := range rows {
		rows[r] = make([]scalar.ID, n)
		for k, a := range t.args {
			if known := e.of[a]; known != nil {
				args[k] = known[r]
			}
		}
		e.fill(id, t, r, rows[r], args)
	}
}

// fill makes the elements of t on rank r from those of its operands there.
func (e *elements) fill(id TermID, t *term, r int, out []scalar.ID, args [][]scalar.ID) {
	switch t.kind {
	case kindFull:
		c := e.Number(t.dt, t.text)
		for i := range out {
			out[i] = c
		}
	case kindIota:
		for i := range out {
			out[i] = e.Integer(t.dt, t.base+int64(i)*t.scale)
		}
	case kindMove:
		e.move(e.byRuns(t, e.run[id]), r, out, e.of[t.args[0]])
	case kindPoint:
		list, from := make([]scalar.ID, len(args)), e.z.at(t.args[0]).dt
		for i := range out {
			for k, a := range args {
				list[k] = at(a, int64(i))
			}
			out[i] = e.Point(t.scalar(), from, list)
		}
	case kindReduce:
		row := e.z.rows.All[t.rows][r]
		list := make([]scalar.ID, len(row))
		for i := range out {
			for k, q := range row {
				list[k] = at(e.of[t.args[0]][q], int64(i))
			}
			out[i] = e.Reduce(t.red, t.dt, list)
		}
	case kindLookup:
		e.lookup(t, t.scale/e.run[id], r, out, args)
	case kindScatter:
		e.scatter(t, t.scale/e.run[id], r, out, args)
	default:
		e.opaque(id, t, r, out, args)
	}
}

// move reads elements as a layout says.
func (e *elements) move(l layout.Layout, r int, out []scalar.ID, source [][]scalar.ID) {
	list := out[:0]
	l.Each(r, func(rank int32, from int64) { list = append(list, at(source[rank], from)) })
}

// lookup takes rows at indices that are known, and is a lookup in a column elsewhere.
func (e *elements) lookup(t *term, row int64, r int, out []scalar.ID, args [][]scalar.ID) {
	for i := range out {
		p, c := at(args[1], int64(i)/row), int64(i)%row
		if v, ok := e.Value(p); ok && v >= 0 && v < t.base {
			out[i] = at(args[0], v*row+c)
			continue
		}
		out[i] = e.Intern(e.Head(t.op, t.dt, ""), int64(e.vector(t.args[0], r, c, row)), t.base, int64(p))
	}
}

// scatter adds rows at indices that are known, in order, and is a sum of a column
// elsewhere.
func (e *elements) scatter(t *term, row int64, r int, out []scalar.ID, args [][]scalar.ID) {
	added := make([][]scalar.ID, len(out))
	count, _ := e.z.at(t.args[2]).n.Const()
	for k := range count {
		p := at(args[2], k)
		v, ok := e.Value(p)
		if v < 0 {
			v += t.base
		}
		if !ok || v < 0 || v >= t.base {
			added = nil
			break
		}
		for c := range row {
			added[v*row+c] = append(added[v*row+c], at(args[1], k*row+c))
		}
	}
	for i := range out {
		switch c := int64(i) % row; {
		case added == nil:
			out[i] = e.Intern(e.Head(t.op, t.dt, ""), int64(e.vector(t.args[0], r, c, row)), int64(e.vector(t.args[1], r, c, row)),
				int64(e.vector(t.args[2], r, 0, 1)), t.base, int64(i)/row)
		case added[i] == nil:
			out[i] = at(args[0], int64(i))
		case e.z.anyOrder(ir.Sum, t.dt):
			out[i] = e.Reduce(ir.Sum, t.dt, append(added[i], at(args[0], int64(i))))
		default:
			list := []int64{int64(at(args[0], int64(i)))}
			for _, x := range added[i] {
				list = append(list, int64(x))
			}
			out[i] = e.Intern(e.Head(t.op, t.dt, "added"), list...)
		}
	}
}

// opaque makes elements of what no equation looks into: of all elements of the operands
// where these are known, else of the term.
func (e *elements) opaque(id TermID, t *term, r int, out []scalar.ID, args [][]scalar.ID) {
	if t.op == ir.OpArgmax && e.argmax(t, out, args) || t.op == ir.OpCat && e.cat(id, t, out, args) || e.lines && ofLines(t) && e.line(t, out, args) {
		return
	}
	class := int64(e.z.parts.All[t.same][r])
	head := []int64{-1, int64(id), class}
	if t.kind == kindShuffle || e.twins[t.text] {
		head = []int64{-2}
		others := t.kind == kindShuffle && !t.local || t.op.IsCollective() || t.op.Info().Bodies != nil // operands of other ranks count
		if t.same == ranks.Single || others {                                                           // ranks may differ for other reasons than their operands
			head = append(head, int64(r))
		}
		for _, a := range t.args {
			for q := range e.z.vals.world {
				if q == r || others {
					head = append(head, int64(e.vector(a, q, 0, 1)))
				}
			}
		}
	}
	list := append(head, 0)
	h := e.Head(t.op, t.dt, t.text)
	for i := range out {
		list[len(head)] = int64(i)
		out[i] = e.Intern(h, list...)
	}
}

// cat takes elements of the operands in turn, where runs of them end where operands do.
func (e *elements) cat(id TermID, t *term, out []scalar.ID, args [][]scalar.ID) bool {
	if t.types == nil {
		return false
	}
	shape, _ := t.types[0].Shape().Static()
	blocks := intmath.Product(shape[:t.attrs.Int("dim", 0)])
	list := out[:0]
	for b := range blocks {
		for k, x := range args {
			n, _ := e.z.at(t.args[k]).n.Const()
			if n /= blocks; n%e.run[id] != 0 || len(x) != 1 && e.run[t.args[k]] != e.run[id] {
				return false
			}
			n /= e.run[id]
			for i := range n {
				list = append(list, at(x, b*n+i))
			}
		}
	}
	return true
}

// argmax is the first of the largest along a dimension, of numbers that are known.
func (e *elements) argmax(t *term, out []scalar.ID, args [][]scalar.ID) bool {
	v := &e.z.vals.all[t.from]
	if v.Op != ir.OpArgmax || len(args) != 1 || args[0] == nil {
		return false
	}
	shape, ok := e.z.vals.all[v.Args[0]].Type.Shape().Static()
	d := int(v.Attrs.Int("dim", -1))
	if !ok || d < 0 || d >= len(shape) || int64(len(out))*shape[d] != int64(len(args[0])) {
		return false
	}
	inner := 1
	for _, n := range shape[d+1:] {
		inner *= int(n)
	}
	n := int(shape[d])
	for i := range out {
		best, most := 0, int64(0)
		for k := range n {
			x, ok := e.Value(args[0][(i/inner*n+k)*inner+i%inner])
			if !ok {
				return false
			}
			if k == 0 || x > most {
				best, most = k, x
			}
		}
		out[i] = e.Integer(t.dt, int64(best))
	}
	return true
}

// vector numbers the elements of a column of a term on a rank.
func (e *elements) vector(t TermID, r int, column, width int64) int32 {
	v := vector{t, int32(r), column, width}
	id, ok := e.whole[v]
	if !ok {
		x := e.of[t][r]
		list := []int64{int64(at(x, min(column, int64(len(x))-1)))}
		for i := column + width; i < int64(len(x)); i += width {
			list = append(list, int64(x[i]))
		}
		if !slices.ContainsFunc(list, func(x int64) bool { return x != list[0] }) {
			list = list[:1] // as of a constant, which has one for all
		}
		id = e.List(list)
		e.whole[v] = id
	}
	return id
}
