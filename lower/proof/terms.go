package proof

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// termID is the number of a term.
type termID int32

// kind says what a term is.
type kind uint8

const (
	given   kind = iota // a tensor of an input
	carried             // what an iteration of a loop begins with
	applied             // a result of an operation
	window              // elements of what is in memory
	changed             // what a call that writes in place has left
	nothing             // the elements of an empty tensor
	unknown             // bytes that are no tensor
)

// term is a tensor as an operation on others.
type term struct {
	kind  kind
	op    ir.Op
	group int32 // of termStore.group, -1 for none
	index int32 // which input, result or operand
	self  string
	attrs attr.List
	args  []termID
	typ   ir.Type // the elements

	// Of a window: the layout of args[0], and how many bytes behind its first element
	// that of typ begins.
	in *ir.Type
	at int64

	node  string // who made it first, a node of the function
	instr int32  // or an instruction; -1 if the function made it
}

// termStore numbers the terms of a function and its program.
type termStore struct {
	m      *ir.Module
	terms  []term
	ids    map[string]termID // look-up only, as are the following
	groups map[string]int32
	sizes  []int64 // by group: ranks of a subgroup
	buf    []byte

	node  string // who is at work
	instr int32
}

func newTermStore(m *ir.Module, nodes int) *termStore {
	return &termStore{m: m, terms: make([]term, 0, nodes), ids: make(map[string]termID, nodes), groups: map[string]int32{}, instr: -1}
}

// number returns the number of t.
func (b *termStore) number(t term) termID {
	k := append(b.buf[:0], byte(t.kind), byte(t.op))
	k = binary.AppendVarint(k, int64(t.group))
	k = binary.AppendVarint(k, int64(t.index))
	k = binary.AppendVarint(k, t.at)
	k = t.typ.AppendKey(k)
	if t.in != nil {
		k = t.in.AppendKey(k)
	}
	k = binary.AppendUvarint(k, uint64(len(t.self)))
	k = append(k, t.self...)
	k = binary.AppendUvarint(k, uint64(len(t.args)))
	for _, a := range t.args {
		k = binary.AppendUvarint(k, uint64(a))
	}
	k = t.attrs.AppendText(k)
	b.buf = k
	if id, ok := b.ids[string(k)]; ok {
		return id
	}
	id := termID(len(b.terms))
	t.args = slices.Clone(t.args)
	t.node, t.instr = b.node, b.instr
	b.terms = append(b.terms, t)
	b.ids[string(k)] = id
	return id
}

// group numbers groups. Those of one name and the same ranks are one.
func (b *termStore) group(name string, ranks [][]int) int32 {
	key := fmt.Sprint(name, ranks)
	id, ok := b.groups[key]
	if !ok {
		id = int32(len(b.groups))
		b.groups[key] = id
		size := 0
		if len(ranks) > 0 {
			size = len(ranks[0])
		}
		b.sizes = append(b.sizes, int64(size))
	}
	return id
}

// empty reports whether a tensor has no elements, whatever the sizes.
func (b *termStore) empty(t ir.Type) bool {
	static := true
	for _, d := range t.Shape() {
		n, ok := d.Const()
		if ok && n == 0 {
			return true
		}
		static = static && ok
	}
	return !static && b.m.Bound(t.Shape().NumElems()) == 0
}

// elements is the type without its layout.
func elements(t ir.Type) ir.Type { return ir.TensorOf(t.DType(), t.Shape()) }

// window is the tensor of type t that begins at bytes behind the first element of x, which
// is in memory as in says.
func (b *termStore) window(x termID, in ir.Type, at int64, t ir.Type) termID {
	if b.empty(t) {
		return b.number(term{kind: nothing, group: -1, typ: elements(t)})
	}
	if at == 0 && t.Equal(in) {
		return x
	}
	if w := &b.terms[x]; w.kind == window { // what was copied
		if in.Equal(w.typ) && within(in, at, t) {
			return b.window(w.args[0], *w.in, w.at+at, t)
		}
	}
	return b.number(term{kind: window, group: -1, args: []termID{x}, in: &in, at: at, typ: t})
}

// within reports whether all elements of t, which begins at bytes behind the first element of a
// tensor as in says, are elements of that and none is in its gaps: each dimension of t goes
// along one of the other's.
func within(in ir.Type, at int64, t ir.Type) bool {
	if in.Contiguous() {
		return true
	}
	sizes, ok := in.Shape().Static()
	shape, known := t.Shape().Static()
	size := int64(in.DType().Size())
	if !ok || !known || t.DType() != in.DType() || at%size != 0 {
		return false
	}
	steps, strides := in.Strides(), t.Strides()
	if steps == nil || strides == nil {
		return false
	}
	order := make([]int, len(steps)) // of dimensions, the longest steps first
	for j := range order {
		order[j] = j
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(steps[j], steps[i]) })
	first := at / size
	last := make([]int64, len(sizes)) // of t's elements, by dimension
	for _, j := range order {
		if steps[j] > 0 {
			last[j] = min(first/steps[j], sizes[j]-1)
			first -= last[j] * steps[j]
		}
	}
	for d, step := range strides {
		if shape[d] == 1 || step == 0 {
			continue
		}
		i := slices.IndexFunc(order, func(j int) bool { return steps[j] > 0 && sizes[j] > 1 && steps[j] <= step && step%steps[j] == 0 })
		if i < 0 {
			return false
		}
		last[order[i]] += step / steps[order[i]] * (shape[d] - 1)
	}
	for j, n := range last {
		if n >= sizes[j] {
			return false
		}
	}
	return first == 0
}

// application is an operation on terms, by the function or by the program.
type application struct {
	op       ir.Op
	group    int32
	attrs    attr.List
	node     string
	args     []termID
	argTypes []ir.Type
	outs     []ir.Type
}

// effects are those of an operation with its attributes.
func (a *application) effects() ir.Effect {
	e := a.op.Info().Effects
	if key := a.op.Info().RandomAttr; key != "" && a.attrs.Float(key, 0) != 0 {
		e |= ir.EffectRandom
	}
	if a.op != ir.OpCall {
		return e
	}
	for _, s := range a.attrs.Strs("effects") {
		e |= map[string]ir.Effect{"alias": ir.EffectAlias, "writes": ir.EffectWrites, "communicates": ir.EffectCommunicates, "random": ir.EffectRandom}[s]
	}
	return e
}

// writes reports whether a call writes its operand i in place.
func (a *application) writes(i int) bool {
	return a.effects()&ir.EffectWrites != 0 && (!a.attrs.Has("writes") || slices.Contains(a.attrs.Ints("writes"), int64(i)))
}

// layouts is the text of the operands' types: a call may depend on how they are.
func (a *application) layouts() string {
	s := ""
	for _, t := range a.argTypes {
		s += " " + t.String()
	}
	return s
}

// result is result k of an operation; self tells apart what equal operands do not make
// equal.
func (b *termStore) result(a *application, k int, self string) termID {
	t := elements(a.outs[k])
	switch {
	case b.empty(t):
		return b.number(term{kind: nothing, group: -1, typ: t})
	case a.op == ir.OpCall:
		self += a.layouts()
		t = a.outs[k]
	case a.effects()&ir.EffectRandom != 0:
		self += "%" + a.node // the interpreter and the devices draw by name
	case a.op == ir.OpSliceScatter && b.terms[a.args[1]].typ.Equal(t):
		return a.args[1] // which replaces all
	}
	return b.number(term{kind: applied, op: a.op, group: a.group, index: int32(k), self: self, attrs: a.attrs, args: a.args, typ: t})
}

// member is what a collective makes of its operand k alone: a bucket is its members.
func (b *termStore) member(a *application, k int) termID {
	t := elements(a.outs[k])
	if b.empty(t) {
		return b.number(term{kind: nothing, group: -1, typ: t})
	}
	return b.number(term{kind: applied, op: a.op, group: a.group, attrs: memberAttrs(a, k), args: a.args[k : k+1], typ: t})
}

// memberAttrs are the attributes of a collective for its operand k, with the dimension
// that counts if nothing is said.
func memberAttrs(a *application, k int) attr.List {
	l := a.attrs
	for _, key := range []string{"in_splits", "out_splits"} {
		if s := l.Strs(key); k < len(s) {
			l = l.With(key, attr.Strings(s[k]))
		}
	}
	if a.op == ir.OpAllGather || a.op == ir.OpReduceScatter {
		l = l.With("dim", attr.Int(l.Int("dim", 0)))
	}
	return l
}
