package mesh

import (
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/equiv/mesh/internal/digits"
	"github.com/seed-ee968945/concert/ir"
)

// use is an operation on pieces.
type use struct {
	s     *side
	t     *table
	n     *ir.Node
	in    []*piece
	loops []loop
	held  []int // by atom: its loop
	text  []byte
	args  []arg
}

// sizes are those of operand k.
func (u *use) sizes(k int) []int64 { return sizes(u.n.Arg(k))[0] }

// result are the sizes of result i.
func (u *use) result(i int) []int64 { return sizes(u.n.Result(i))[0] }

// int is an attribute.
func (u *use) int(key string, def int64) int64 { return u.n.Attrs().Int(key, def) }

// align makes loops of what dimensions of operands have in common: by operand its dimension,
// none where it has none. It returns their numbers, major first.
func (u *use) align(dims []int, summed bool) []int {
	lists := make([][]digits.Digit, len(u.in))
	for k, d := range dims {
		if d != digits.None {
			lists[k] = u.in[k].dims[d]
			if lists[k] == nil {
				lists[k] = []digits.Digit{}
			}
		}
	}
	return u.loopsOf(lists, summed)
}

func (u *use) loopsOf(lists [][]digits.Digit, summed bool) []int {
	rows, ok := digits.Align(lists)
	if !ok {
		panic(digits.Uneven{})
	}
	var out []int
	for _, row := range rows {
		out = append(out, len(u.loops))
		u.loops = append(u.loops, loop{size: row[0].Size, summed: summed, at: row})
	}
	return out
}

// one makes loops of a dimension of one operand.
func (u *use) one(k, d int) []int {
	dims := slices.Repeat([]int{digits.None}, len(u.in))
	dims[k] = d
	return u.align(dims, false)
}

// inner is what the operation sees of an operand at each place of its loops.
func (u *use) inner(k int, l []digits.Digit) {
	u.text = append(u.text, ' ')
	u.text = strconv.AppendInt(u.text, int64(k), 10)
	u.text = append(u.text, ':')
	u.text = strconv.AppendInt(u.text, digits.Places(l), 10)
	u.operands()[k].inner = append(u.args[k].inner, digits.Joined(l)...)
}

// operands are the operands so far.
func (u *use) operands() []arg {
	for k := len(u.args); k < len(u.in); k++ {
		u.args = append(u.args, arg{base: u.in[k].base, coef: u.in[k].coef})
	}
	return u.args
}

// ranks makes a loop of each atom that operands hold.
func (u *use) ranks() {
	for a := range u.held {
		l := loop{size: u.s.g.Atoms[a].Size, at: make([]digits.Digit, len(u.in))}
		for k, p := range u.in {
			if l.at[k] = digits.Repeated(l.size); p.held != nil {
				l.at[k] = p.held[a]
			}
		}
		u.held[a] = len(u.loops)
		u.loops = append(u.loops, l)
	}
}

// finish is the result whose dimensions are loops; those behind the loops are its own sizes.
func (u *use) finish(coef float64, base *expr, where []digits.Digit, dims [][]int) *piece {
	p := &piece{base: base, coef: coef, held: make([]digits.Digit, len(u.held))}
	if coef == 0 {
		p.base = u.t.one
	}
	at := func(i int) digits.Digit {
		if coef == 0 {
			return digits.Repeated(where[i].Size)
		}
		return where[i]
	}
	for _, l := range dims {
		var ds []digits.Digit
		for _, i := range l {
			ds = digits.Add(ds, at(i))
		}
		p.dims = append(p.dims, ds)
	}
	for a, i := range u.held {
		p.held[a] = at(i)
	}
	p.check()
	return p
}

// check panics if the digits of a piece are not those of its base: then it would not say what
// it is.
func (p *piece) check() {
	n, all := int64(1), int64(1)
	for _, l := range append(p.dims[:len(p.dims):len(p.dims)], p.held) {
		for _, d := range l {
			if d.Dim != digits.None {
				n *= d.Size
			}
		}
	}
	for _, size := range p.base.shape {
		all *= size
	}
	if n != all {
		panic(digits.Uneven{})
	}
}

// block makes the result of a block, and gives it to result i of the node. A dimension of the
// result is made of loops, or is own by its number there.
func (u *use) block(name string, dims [][]int, sizes []int64) *piece {
	u.ranks()
	s := &spec{kind: block, text: name + " " + string(u.text), args: u.operands(), loops: u.loops, own: sizes}
	coef, base, where := u.t.blockOf(s)
	for i := range dims {
		for j, k := range dims[i] {
			if k < 0 {
				dims[i][j] = len(u.loops) - 1 - k
			}
		}
	}
	return u.finish(coef, base, where, dims)
}

// blockOf makes a block, part by part where its loops cover seams.
func (t *table) blockOf(s *spec) (float64, *expr, []digits.Digit) {
	if c, e, where, ok := t.split(s.args, s.loops, func(args []arg, loops []loop) (float64, *expr, []digits.Digit) {
		part := *s
		part.args, part.loops = args, loops
		return t.blockOf(&part)
	}, t.add); ok {
		return c, e, where
	}
	if s.text == nameLookup || strings.HasPrefix(s.text, nameLookup+" ") {
		if c, e, where, ok := t.looked(s); ok {
			return c, e, where
		}
		if c, e, where, ok := t.finals(s); ok {
			return c, e, where
		}
	}
	if strings.HasPrefix(s.text, nameBest+" ") {
		if c, e, where, ok := t.contested(s); ok {
			return c, e, where
		}
	}
	return t.linearly(*s)
}

// ownSize is the place of a result's own size in its dimensions, for block.
func ownSize(i int) int { return -1 - i }

// set gives the node's results.
func (u *use) set(ps ...*piece) {
	for i, p := range ps {
		u.s.vals[u.n.Result(i).ID()] = []*piece{p}
	}
}
