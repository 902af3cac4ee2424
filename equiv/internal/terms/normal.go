package terms

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ee968945/concert/equiv/internal/layout"
	"github.com/seed-ee968945/concert/equiv/internal/numbered"
	"github.com/seed-ee968945/concert/equiv/internal/ranks"
	"github.com/seed-ee968945/concert/equiv/internal/scalar"
	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// TermID names a term; equal terms have one.
type TermID int32

// kind is what a term is made of.
type kind uint8

const (
	kindOpaque  kind = iota // an operation that no equation looks into
	kindFull                // one number everywhere
	kindIota                // start, start+step, ...
	kindPoint               // an elementwise operation on operands of its own size
	kindMove                // elements of the operand, as a layout says
	kindShuffle             // elements of the operand, in a way that no layout says
	kindReduce              // a reduction of the operand over lists of ranks
	kindLookup              // rows of operand 0 at the indices in operand 1
	kindScatter             // operand 0 with the rows in operand 1 added at the indices in operand 2
	numKinds
)

// term is a value in normal form: a flat tensor on all ranks.
type term struct {
	kind   kind
	op     ir.Op
	dt     ir.DType
	n      ir.Dim // elements
	text   string // whatever else tells terms of a kind apart
	attrs  attr.List
	layout int32        // of a move
	rows   int32        // of a reduce: number of its lists of ranks
	red    ir.Reduction // of a reduce
	scale  int64        // of an iota: step; of a lookup or scatter: elements of a row; of a collective's shuffle: dimension
	base   int64        // of an iota: start; of a lookup or scatter: rows of the table; of a collective's shuffle: group
	local  bool         // of a shuffle: each rank's own elements, in a way that no rank differs in
	head   string       // of what is opaque: its text without types
	types  []ir.Type    // the same: of the result and the operands, nil if there is more to it than operands
	args   []TermID
	same   int32   // number of the partition of the ranks on whose blocks the term is known to be equal
	from   ValueID // the value that it was first made for
}

// scalar is what an elementwise operation computes.
func (t *term) scalar() scalar.Operation {
	return scalar.Operation{Op: t.op, DType: t.dt, Attrs: t.attrs, Text: t.text}
}

// Normalizer brings values into normal form. See New.
type Normalizer struct {
	vals        *Values
	reassociate bool // whether equations may reassociate floats
	terms       []term
	ids         map[string]TermID                      // by what a term is, before equations; look-up only, as are the following
	aside       map[string]TermID                      // the same of what an equation makes of its other side
	memo        []TermID                               // by ValueID, -1 unknown
	layouts     numbered.Values[string, layout.Layout] // by what tells them apart
	moves       map[[2]int32]TermID                    // of a layout and a term
	joins       numbered.Pairs                         // compositions: the layout, -1 for none
	settles     numbered.Pairs                         // of a layout and a partition
	behind      numbered.Pairs                         // the same: the partition behind the move
	wholes      map[string]TermID                      // of parts, -1 for none
	rows        numbered.Values[string, [][]int32]     // for every rank over which ranks a reduction goes, in order
	parts       ranks.Partitions
	table       [numKinds][]*equation
	element     *equation         // that of elements, nil if it is not to be used
	count       map[*equation]int // look-up only
	now         ValueID           // the value being brought into normal form
	done        int
	asking      bool // an equation is making its other side, see tables.go
	trying      bool // whether a move comes out of a reduction is being asked
	deep        int  // equations within equations
	buf         []byte
}

// maxDeep bounds equations that are applied within each other. Chains of operations are
// as long as programs, but what an equation makes of a term is shallow.
const maxDeep = 2000

// New returns a normalizer of values. It may reassociate floats, and uses all equations
// but those without.
func New(vals *Values, reassociate bool, without []string) *Normalizer {
	z := &Normalizer{vals: vals, reassociate: reassociate, ids: map[string]TermID{}, aside: map[string]TermID{}, moves: map[[2]int32]TermID{}, wholes: map[string]TermID{},
		count: map[*equation]int{}, parts: ranks.NewPartitions(vals.world)}
	for _, e := range equations() {
		switch {
		case slices.Contains(without, e.Name):
		case e.anchor == numKinds:
			z.element = e
		default:
			z.table[e.anchor] = append(z.table[e.anchor], e)
		}
	}
	return z
}

// Report gives the equations that were used, in the order of the table, with how often, and returns
// how many values have been brought into normal form.
func (z *Normalizer) Report(used func(equation string, count int)) (rewritten int) {
	for _, list := range append(z.table[:], []*equation{z.element}) {
		for _, e := range list {
			if n := z.count[e]; n > 0 {
				used(e.Name, n)
			}
		}
	}
	return z.done
}

// Equal reports whether two values are proved equal, and else where they part.
func (z *Normalizer) Equal(x, y ValueID) (s, t TermID, ok bool) {
	s, t = z.Norm(x), z.Norm(y)
	if s == t {
		return s, t, true
	}
	a, b := z.part(s, t)
	ok = z.element != nil && (z.elementwise(a, b) || a != s && z.elementwise(s, t) || z.everywhere(x, y))
	return a, b, ok
}

// Norm returns the normal form of a value. Values that it depends on come first, so
// that depth does not matter.
func (z *Normalizer) Norm(v ValueID) TermID {
	z.grow()
	stack := []ValueID{v}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		ready := true
		for _, a := range z.vals.all[at].Args {
			if z.memo[a] < 0 {
				stack = append(stack, a)
				ready = false
			}
		}
		if !ready {
			continue
		}
		stack = stack[:len(stack)-1]
		if z.memo[at] < 0 {
			z.now = at
			z.memo[at] = z.value(&z.vals.all[at])
			z.done++
		}
	}
	return z.memo[v]
}

func (z *Normalizer) grow() {
	for len(z.memo) < len(z.vals.all) {
		z.memo = append(z.memo, -1)
	}
}

// make returns the term equal to t: the first equation of its kind that applies
// says what it is; else it is a term of its own.
func (z *Normalizer) make(t term) TermID {
	if n, ok := t.n.Const(); ok && n == 0 {
		t = term{kind: kindFull, dt: t.dt, n: t.n, text: "empty"}
	}
	key := z.key(&t)
	if id, ok := z.ids[key]; ok {
		return id
	}
	if id, ok := z.aside[key]; ok && z.asking {
		return id
	}
	z.deep++
	defer func() { z.deep-- }()
	for _, e := range z.table[t.kind] {
		if z.deep > maxDeep {
			break
		}
		if id, ok := e.apply(z, &t); ok {
			z.keep(key, id)
			if !z.asking {
				z.count[e]++
			}
			return id
		}
	}
	id, ok := z.aside[key]
	if !ok {
		id = z.add(t)
	}
	z.keep(key, id)
	return id
}

// with is t of another type and other operands.
func (z *Normalizer) with(t *term, dt ir.DType, args ...TermID) TermID {
	u := *t
	u.dt, u.args = dt, args
	return z.make(u)
}

// each is x with what f makes of each operand in its place.
func (z *Normalizer) each(x term, f func(a TermID) TermID) TermID {
	x.args = slices.Clone(x.args)
	for i, a := range x.args {
		x.args[i] = f(a)
	}
	return z.make(x)
}

// keep remembers what a term equals; what is made aside is tried again.
func (z *Normalizer) keep(key string, id TermID) {
	if z.asking {
		z.aside[key] = id
	} else {
		z.ids[key] = id
	}
}

func (z *Normalizer) add(t term) TermID {
	id := TermID(len(z.terms))
	t.from = z.now
	t.same = z.sameRanks(&t)
	z.terms = append(z.terms, t)
	return id
}

// key is equal for equal terms.
func (z *Normalizer) key(t *term) string {
	b := append(z.buf[:0], byte(t.kind), byte(t.op), byte(t.dt))
	b = binary.AppendVarint(b, int64(t.layout))
	b = binary.AppendVarint(b, int64(t.rows))
	b = binary.AppendVarint(b, t.scale)
	b = binary.AppendVarint(b, t.base)
	for _, a := range t.args {
		b = binary.AppendUvarint(b, uint64(a)+1)
	}
	b = append(b, 0)
	b = t.n.AppendText(b)
	b = append(append(b, 0), t.red...)
	b = append(append(b, 0), t.text...)
	z.buf = b
	return string(b)
}

func (z *Normalizer) at(id TermID) *term { return &z.terms[id] }

// move is the term whose elements a canonical layout takes from x; n is their number.
func (z *Normalizer) move(l layout.Layout, n ir.Dim, x TermID) TermID {
	return z.moveOf(z.layout(l), n, x)
}

// moveOf is move by the number of a layout.
func (z *Normalizer) moveOf(l int32, n ir.Dim, x TermID) TermID {
	return z.moveBy(z.settled(l, z.at(x).same), n, x)
}

func (z *Normalizer) moveBy(id int32, n ir.Dim, x TermID) TermID {
	q := [2]int32{id, int32(x)}
	if t, ok := z.moves[q]; ok {
		return t
	}
	t := z.make(term{kind: kindMove, dt: z.at(x).dt, n: n, layout: id, args: []TermID{x}})
	z.moves[q] = t
	return t
}

func (z *Normalizer) layout(l layout.Layout) int32 { return z.layouts.Number(l.Key(), l) }

// join composes two layouts, -1 if they do not.
func (z *Normalizer) join(a, b int32) int32 {
	return z.joins.Of(a, b, func() int32 {
		if l, ok := layout.Compose(&z.layouts.All[a], &z.layouts.All[b], z.vals.world); ok {
			return z.layout(l)
		}
		return -1
	})
}

// settled is a layout that reads from one rank of each block of a partition, on which what
// is moved is known to be equal: from the reader itself where it is among them everywhere.
func (z *Normalizer) settled(id, same int32) int32 {
	l := z.layouts.All[id]
	if l.Rank == nil {
		return id
	}
	return z.settles.Of(id, same, func() int32 {
		block, entries := z.parts.All[same], l.Entries()
		own := true
		rank := slices.Clone(l.Rank)
		for k, r := range rank {
			own = own && block[r] == block[k/entries]
			rank[k] = block[r] // the least rank of the block
		}
		for k := range rank {
			if own {
				rank[k] = int32(k / entries)
			}
		}
		l.Rank, l.Add, l.Digits = rank, slices.Clone(l.Add), slices.Clone(l.Digits)
		l.Canonical(z.vals.world)
		return z.layout(l)
	})
}

// part follows two terms that differ to where they part: as long as both are the
// same operation and one operand alone differs, that operand is where to look.
func (z *Normalizer) part(s, t TermID) (TermID, TermID) {
	for {
		a, b := *z.at(s), *z.at(t)
		x, y := a, b
		x.args, y.args = nil, nil
		if len(a.args) != len(b.args) || z.key(&x) != z.key(&y) {
			return s, t
		}
		k := -1
		for i := range a.args {
			if a.args[i] != b.args[i] {
				if k >= 0 {
					return s, t
				}
				k = i
			}
		}
		if k < 0 {
			return s, t
		}
		s, t = a.args[k], b.args[k]
	}
}

// Tried names the equations that look at terms such as these.
func (z *Normalizer) Tried(s, t TermID) string {
	var names []string
	for _, k := range []kind{z.at(s).kind, z.at(t).kind} {
		for _, e := range z.table[k] {
			if !slices.Contains(names, e.Name) {
				names = append(names, e.Name)
			}
		}
	}
	if names == nil {
		return "equal operations on equal operands"
	}
	return "no equation makes them equal, tried: " + strings.Join(names, ", ")
}

// Describe writes a term down, two levels deep, with the node that it came from.
func (z *Normalizer) Describe(id TermID) string {
	t := z.at(id)
	return fmt.Sprintf("%%%s: %s", z.vals.all[t.from].Node, z.text(id, 2))
}

func (z *Normalizer) text(id TermID, depth int) string {
	t := z.at(id)
	name := t.op.Name()
	switch t.kind {
	case kindFull:
		return "full(" + t.text + ")"
	case kindMove:
		name = "move" + z.layouts.All[t.layout].String()
	case kindShuffle:
		name = "shuffle[" + t.text + "]"
	case kindReduce:
		name = fmt.Sprintf("reduce.%s%v", t.red, z.rows.All[t.rows][0])
	default:
		name += t.attrs.String()
	}
	if depth == 0 {
		return name + "(...)"
	}
	args := make([]string, len(t.args))
	for i, a := range t.args {
		args[i] = z.text(a, depth-1)
	}
	if t.kind == kindOpaque && t.op == ir.OpInput {
		name = "%" + z.vals.all[t.from].Node
	}
	return fmt.Sprintf("%s(%s)", name, strings.Join(args, ", "))
}
