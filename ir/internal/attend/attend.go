package attend

import (
	"math"
	"slices"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// Recognize makes attention of what is written out in a function, and says how much of it there
// was. What nothing reads any more is removed. A softmax whose weights anything else reads stays.
func Recognize(f *ir.Func) int {
	found := 0
	for _, n := range f.Order() {
		if n.Op() != ir.OpExp || len(n.Result(0).Uses()) == 0 {
			continue
		}
		if s, ok := match(n); ok && s.rewrite() {
			found++
		}
	}
	return found
}

// softmax is attention as it is written out.
type softmax struct {
	f               *ir.Func
	follower        follower
	scores          *ir.Node // the product of queries and keys
	q, k, v         matrix   // [s, d], [t, d], [t, e]
	scale           float64
	causal          bool
	mask, bias, low *ir.Value // what is seen, what is added to scores, what hidden ones are
	inverted        bool      // the mask says what is hidden
	out             *ir.Node  // the product of weights and values
	flipped         bool      // it is [e, s]
	grad            *ir.Node  // the product of the gradient of the output, and values; nil: forward only
	dout            matrix    // [s, e], as the product with the weights has it
	gout            matrix    // the same, as the product with values has it
	dq, dk, dv      *ir.Node
	dqFlip, dkFlip  bool
	dvFlip          bool
	batch           []int64 // b and h
	s, t            int64
}

// passed is what a value is behind conversions, views and copies that keep the last two dimensions;
// flipped says that these have changed places.
func passed(v *ir.Value, flipped bool) (*ir.Value, bool) {
	for {
		n := v.Def()
		switch n.Op() {
		case ir.OpConvert:
			if !v.Type().DType().IsFloat() || !n.Arg(0).Type().DType().IsFloat() {
				return v, flipped
			}
		case ir.OpClone, ir.OpAlias:
		case ir.OpView:
			x, y := sizes(n.Arg(0)), sizes(v)
			if len(x) < 2 || len(y) < 2 || !slices.Equal(x[len(x)-2:], y[len(y)-2:]) {
				return v, flipped
			}
		case ir.OpPermute:
			d := n.Attrs().Ints("dims")
			last := int64(len(d) - 1)
			if last < 1 || d[last] != last-1 || d[last-1] != last || !slices.IsSorted(d[:last-1]) {
				return v, flipped
			}
			flipped = !flipped
		default:
			return v, flipped
		}
		v = n.Arg(0)
	}
}

// match finds attention around the exponentials of a softmax.
func match(exp *ir.Node) (*softmax, bool) {
	s := &softmax{f: exp.Func(), scale: 1}
	shape := sizes(exp.Result(0))
	r := len(shape)
	if r < 2 || !exp.Result(0).Type().DType().IsFloat() || shape[r-1] < 2 {
		return nil, false
	}
	s.s, s.t = shape[r-2], shape[r-1]
	rows := intmath.Product(shape[:r-1])
	if rows == 0 {
		return nil, false
	}
	s.batch = []int64{rows / s.s, 1}
	if r == 4 {
		s.batch = shape[:2]
	}
	s.follower = follower{exp: exp.Result(0), keys: s.t, rows: rows, memo: map[*ir.Value]poly{}, max: 500}
	sub := exp.Arg(0).Def()
	if sub.Op() != ir.OpSub || len(sub.Args()) != 2 || len(sub.Attrs()) > 0 || !largest(sub.Arg(1), sub.Arg(0)) || !s.scored(sub.Arg(0)) {
		return nil, false
	}
	return s, s.read()
}

// largest reports whether a value is the largest score of each row.
func largest(v, scores *ir.Value) bool {
	for range 8 {
		n := v.Def()
		switch {
		case n.Op() == ir.OpAmax:
			d, last := n.Attrs().Ints("dims"), int64(len(sizes(n.Arg(0)))-1)
			return n.Arg(0) == scores && len(d) == 1 && (d[0] == last || d[0] == -1)
		case n.Op() == ir.OpView || n.Op() == ir.OpExpand || n.Op() == ir.OpClone || n.Op() == ir.OpAlias:
			v = n.Arg(0)
		case n.Op() == ir.OpMaximum && len(n.Args()) == 2:
			c, ok := constant(n.Arg(0))
			if !ok || !math.IsInf(c, -1) {
				return false
			}
			v = n.Arg(1)
		default:
			return false
		}
	}
	return false
}

// scored reads scores: a mask or a bias, a scale, and the product.
func (s *softmax) scored(v *ir.Value) bool {
	n := v.Def()
	if n.Op() == ir.OpWhere {
		keep, low := n.Arg(1), n.Arg(2)
		if _, ok := constant(keep); ok {
			keep, low, s.inverted = low, keep, true
		}
		c, ok := constant(low)
		if !ok || c > -1e8 {
			return false
		}
		s.mask, s.low = n.Arg(0), low
		if !s.inverted {
			s.follower.mask, s.follower.triangular = axesOf(s.mask), triangular(s.mask)
		}
		s.causal = s.follower.triangular && c < -1e29
		v = keep
	} else if n.Op() == ir.OpAdd && len(n.Args()) == 2 && len(n.Attrs()) == 0 && len(sizes(n.Arg(1))) == len(sizes(v)) {
		v, s.bias = n.Arg(0), n.Arg(1)
	}
	for {
		n := v.Def()
		c, ok := scalar(n)
		if !ok && len(n.Args()) == 2 {
			c, ok = constant(n.Arg(1))
		}
		if !ok || n.Attrs().Bool("reverse", false) {
			if n.Op() != ir.OpConvert || !n.Arg(0).Type().DType().IsFloat() {
				break
			}
			v = n.Arg(0)
			continue
		}
		if n.Op() == ir.OpMul {
			s.scale *= c
		} else if n.Op() == ir.OpDiv {
			s.scale /= c
		} else {
			return false
		}
		v = n.Arg(0)
	}
	v, flip := passed(v, false)
	s.scores = v.Def()
	if s.scores.Op() != ir.OpMatmul || s.scale <= 0 || math.IsInf(s.scale, 0) {
		return false
	}
	x, y := s.scores.Arg(0), s.scores.Arg(1)
	var ok, ok2 bool
	if flip { // keys on the left
		s.k, ok = matrixOf(x, false)
		s.q, ok2 = matrixOf(y, true)
	} else {
		s.q, ok = matrixOf(x, false)
		s.k, ok2 = matrixOf(y, true)
	}
	return ok && ok2
}

// triangular reports whether a mask shows query i the keys 0 to i.
func triangular(v *ir.Value) bool {
	for {
		n := v.Def()
		if n.Op() == ir.OpWhere {
			a, ok := constant(n.Arg(1))
			b, ok2 := constant(n.Arg(2))
			if !ok || !ok2 || a == 0 || b != 0 {
				return false
			}
			v = n.Arg(0)
			continue
		}
		if !neutral(n) {
			break
		}
		x, y := sizes(n.Arg(0)), sizes(v)
		if n.Op() == ir.OpPermute || len(x) < 2 || len(y) < 2 || !slices.Equal(x[len(x)-2:], y[len(y)-2:]) {
			return false
		}
		v = n.Arg(0)
	}
	n := v.Def()
	if len(n.Args()) != 2 || len(n.Attrs()) > 0 {
		return false
	}
	rows, cols := n.Arg(0), n.Arg(1)
	switch n.Op() {
	case ir.OpGe:
	case ir.OpLe:
		rows, cols = cols, rows
	default:
		return false
	}
	return counts(rows, 2) && counts(cols, 1)
}

// counts reports whether the elements of a value are 0, 1, ... along a dimension from the end.
func counts(v *ir.Value, end int) bool {
	for v.Def().Op() == ir.OpAdd && len(v.Def().Args()) == 2 && len(v.Def().Attrs()) == 0 {
		if c, ok := constant(v.Def().Arg(1)); !ok || c != 0 {
			return false
		}
		v = v.Def().Arg(0)
	}
	a := axesOf(v)
	n := a.root.Def()
	if n.Op() != ir.OpIota || len(n.Attrs()) > 0 || len(sizes(a.root)) != 1 || len(a.dims) < end {
		return false
	}
	for i, d := range a.dims {
		for _, f := range d {
			if i == len(a.dims)-end && f.step != 1 || i != len(a.dims)-end && f.step != 0 {
				return false
			}
		}
	}
	return true
}

// read finds the products that read the weights and their gradient, and checks that nothing
// else does.
func (s *softmax) read() bool {
	var products []*ir.Node
	seen := map[*ir.Node]bool{}
	todo := []*ir.Node{s.follower.exp.Def()}
	for len(todo) > 0 {
		n := todo[0]
		if todo = todo[1:]; seen[n] || len(seen) > 400 {
			continue
		}
		seen[n] = true
		for _, r := range n.Results() {
			for _, u := range r.Uses() {
				switch op := u.Node.Op(); {
				case op == ir.OpMatmul:
					if !slices.Contains(products, u.Node) {
						products = append(products, u.Node)
					}
				case op.Info().Elementwise || neutral(u.Node) || op == ir.OpSum:
					todo = append(todo, u.Node)
				default:
					return false
				}
			}
		}
	}
	if len(seen) > 400 || !s.forward(products) {
		return false
	}
	products = slices.DeleteFunc(products, func(n *ir.Node) bool { return n == s.out })
	return len(products) == 0 || len(products) == 3 && s.backward(products)
}

// weights is the polynomial of softmax's results.
var weights = poly{times("e^1 ", "[e^1 ]^1 ", -1): 1}

// operand is the operand of a product that is a polynomial, and which one; flipped says that it
// is [t, s].
func (s *softmax) operand(n *ir.Node, want poly) (side int, flipped, ok bool) {
	for i, a := range n.Args() {
		v, flip := passed(a, false)
		if p := s.follower.of(v); p != nil && p.is(want) {
			return i, flip, true
		}
	}
	return 0, false, false
}

// contracted is how a product combines scores with another operand: which it is, as [c, x] with
// the dimension summed over first, whether that is keys, and whether the result is [x, ...].
func (s *softmax) contracted(n *ir.Node, want poly) (other matrix, keys, flipped, ok bool) {
	side, flip, ok := s.operand(n, want)
	if !ok || len(n.Args()) != 2 {
		return matrix{}, false, false, false
	}
	// scores on the left contract their last dimension: keys, unless they are [t, s].
	other, ok = matrixOf(n.Arg(1-side), side == 1)
	return other, (side == 0) != flip, side == 1, ok
}

func (s *softmax) forward(products []*ir.Node) bool {
	for _, n := range products {
		if v, keys, flipped, ok := s.contracted(n, weights); ok && keys && s.out == nil {
			s.out, s.v, s.flipped = n, v, flipped
		}
	}
	return s.out != nil && s.typed()
}

// typed reports whether queries, keys, values and the output are of one type of floats.
func (s *softmax) typed() bool {
	dt := s.q.v.Type().DType()
	return dt.IsFloat() && !dt.IsFloat8() && s.k.v.Type().DType() == dt && s.v.v.Type().DType() == dt && s.out.Result(0).Type().DType() == dt
}

// backward finds the gradients.
func (s *softmax) backward(products []*ir.Node) bool {
	for _, n := range products {
		if dout, keys, flipped, ok := s.contracted(n, weights); ok && !keys {
			s.dv, s.dout, s.dvFlip = n, dout, flipped // dout is [s, e]
		}
	}
	if s.dv == nil || !s.gradient() {
		return false
	}
	want := poly{times("d^1 e^1 ", "[e^1 ]^1 ", -1): s.scale, monomial([]power{{"e", 1}, {"[e^1 ]", -2}, {"[d^1 e^1 ]", 1}}): -s.scale}
	for _, n := range products {
		other, keys, flipped, ok := s.contracted(n, want)
		switch {
		case n == s.dv:
		case !ok:
			return false
		case keys && other.same(s.k):
			s.dq, s.dqFlip = n, flipped
		case !keys && other.same(s.q):
			s.dk, s.dkFlip = n, flipped
		default:
			return false
		}
	}
	return s.dq != nil && s.dk != nil
}

// gradient finds the product of the output's gradient and values, which the scores' is made of.
func (s *softmax) gradient() bool {
	for _, u := range s.v.readers() {
		if u.Op() != ir.OpMatmul || u == s.out || len(u.Args()) != 2 {
			continue
		}
		left, ok := matrixOf(u.Arg(0), false)
		right, ok2 := matrixOf(u.Arg(1), true)
		if !ok || !ok2 {
			continue
		}
		if left.same(s.dout) && right.same(s.v) {
			s.follower.grad, s.gout = u.Result(0), left
		} else if left.same(s.v) && right.same(s.dout) {
			s.follower.grad, s.gout = turned(u.Result(0)), right
		}
		if s.follower.grad != nil {
			s.grad = u
			s.follower.memo = map[*ir.Value]poly{}
			return true
		}
	}
	return false
}

// turned is the value whose last two dimensions are those of v the other way around; nil if
// nobody made one.
func turned(v *ir.Value) *ir.Value {
	todo := []*ir.Value{v}
	for k := 0; k < len(todo) && k < 16; k++ {
		for _, u := range todo[k].Uses() {
			if len(u.Node.Results()) != 1 {
				continue
			}
			r := u.Node.Result(0)
			switch from, flipped := passed(r, false); {
			case from == v && flipped:
				return r
			case from == v && r != v:
				todo = append(todo, r)
			}
		}
	}
	return nil
}

// readers are the operations that read a tensor, behind views and copies.
func (m matrix) readers() []*ir.Node {
	var out []*ir.Node
	seen := map[*ir.Value]bool{}
	todo := []*ir.Value{m.root}
	for len(todo) > 0 && len(seen) < 400 {
		v := todo[0]
		todo = todo[1:]
		if seen[v] {
			continue
		}
		seen[v] = true
		for _, u := range v.Uses() {
			if neutral(u.Node) {
				todo = append(todo, u.Node.Result(0))
			} else {
				out = append(out, u.Node)
			}
		}
	}
	return out
}
