package index

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// eval is the value of e where variables have the given values.
func eval(e Expr, of map[*Atom]int64, sizes map[string]int64) int64 {
	v := e.c
	for _, t := range e.terms {
		v += t.k * evalAtom(t.a, of, sizes)
	}
	return v
}

func evalAtom(a *Atom, of map[*Atom]int64, sizes map[string]int64) int64 {
	if n, ok := sizes[a.text]; ok {
		return n
	}
	by := a.by.N
	if a.by.Name != "" {
		by = sizes[a.by.Name]
	}
	switch a.op {
	case '/':
		return eval(a.arg, of, sizes) / by
	case '%':
		return eval(a.arg, of, sizes) % by
	case '*':
		return eval(a.arg, of, sizes) * by
	}
	return of[a]
}

// random is an index of some variables that is not negative.
func random(x *Builder, r *rand.Rand, vars []*Atom, shape []Extent) Expr {
	e := Constant(r.Int64N(5))
	for _, a := range vars {
		e = e.Add(r.Int64N(4)*[]int64{1, 2, 6, 8}[r.IntN(4)], a.Expr())
	}
	for range r.IntN(4) {
		s := shape[r.IntN(len(shape))]
		q, m := x.divided(e, s)
		switch r.IntN(4) {
		case 0:
			e = q
		case 1:
			e = m
		case 2:
			e = q.Add(r.Int64N(3), m)
		case 3:
			e = x.Times(e, s)
		}
	}
	return e
}

// What is simplified has the value, the bounds and the divisors of what it was made of.
func TestValues(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		sizes := map[string]int64{"m0": 1 + r.Int64N(9), "m1": 1 + r.Int64N(4)}
		x := NewBuilder(NewScope(nil))
		vars := []*Atom{x.NewAtom("i", 7, 1, x.top), x.NewAtom("j", 12, 4, x.top), x.NewAtom("v", 3, 1, x.top)}
		var shape []Extent
		for range 1 + r.IntN(4) {
			shape = append(shape, []Extent{{N: 1}, {N: 2}, {N: 3}, {N: 4}, {N: 12}, {9, "m0"}, {4, "m1"}}[r.IntN(7)])
		}
		of := map[*Atom]int64{vars[0]: r.Int64N(8), vars[1]: 4 * r.Int64N(4), vars[2]: r.Int64N(4)}
		e := random(x, r, vars, shape)
		check := func(what string, e Expr, want int64) {
			t.Helper()
			got := eval(e, of, sizes)
			lo, hi := e.Bounds()
			if d := e.Divisor(); got != want || got < lo || got > hi || d != 0 && got%d != 0 || d == 0 && got != 0 {
				t.Fatalf("%s: %s is %d where sizes are %v, want %d; from %d to %d, a multiple of %d", what, e, got, sizes, want, lo, hi, d)
			}
		}
		n := eval(e, of, sizes)
		check("index", e, n)
		q, m := x.DivMod(e, 6)
		check("quotient", q, n/6)
		check("remainder", m, n%6)
		check("restored", q.Add(5, q).Add(1, m), n)
		s := shape[0]
		by := max(s.N, sizes[s.Name])
		if s.Name != "" {
			by = sizes[s.Name]
		}
		check("product", x.Times(e, s), n*by)
		q, m = x.divided(e, s)
		check("dynamic quotient", q, n/by)
		check("dynamic remainder", m, n%by)
	}
}

// A position among the elements of a shape is itself again after it was an index, and after a reshape.
func TestReshapesCancel(t *testing.T) {
	for _, c := range []struct {
		shape []Extent
		want  string
	}{
		{Fixed([]int64{2, 3, 4}), "i"},
		{Fixed([]int64{24}), "i"},
		{Fixed([]int64{1, 24, 1}), "i"},
		{[]Extent{{N: 3}, {8, "m0"}}, "i"},
		{[]Extent{{3, "m0"}, {8, "m1"}}, "i"},
	} {
		x := NewBuilder(NewScope(nil))
		i := x.NewAtom("i", 23, 1, x.top).Expr()
		for name, at := range map[string][]Expr{"unravel": x.Unravel(i, c.shape), "outer first": x.UnravelOuterFirst(i, c.shape)} {
			if got := x.Ravel(at, c.shape).String(); got != c.want {
				t.Errorf("%v, %s: %s of %v, want %s", c.shape, name, got, at, c.want)
			}
		}
	}
}

func TestText(t *testing.T) {
	x := NewBuilder(NewScope(nil))
	i, j := x.NewAtom("i", 9, 1, x.top).Expr(), x.NewAtom("j", 9, 1, x.top).Expr()
	q, m := x.DivMod(i, 4)
	for _, c := range []struct{ got, want string }{
		{Constant(-3).String(), "-3"},
		{j.Add(-2, i).Add(-7, Constant(1)).String(), "-i * 2 + j - 7"},
		{Constant(0).Add(3, i).Paren(), "(i * 3)"},
		{i.Paren(), "i"},
		{q.Add(12, m).String(), "(i % 4) * 12 + (i / 4)"},
		{x.Times(i.Add(1, j), Extent{8, "m0"}).String(), "((i + j) * m0)"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}

// The bounds of what is loaded are the caller's, and what depends on its index depends on the index.
func TestLoaded(t *testing.T) {
	x := NewBuilder(NewScope(nil))
	inner := NewScope(x.top)
	i := x.NewAtom("i", 9, 1, inner)
	p := x.Loaded("p1", 4, x.top, []Expr{i.Expr()})
	if _, hi := p.Expr().Bounds(); hi != 4 || !p.Expr().DependsOn(i) || p.Expr().Scope() != x.top {
		t.Errorf("from 0 to %d, in scope %v", hi, p.Expr().Scope())
	}
	if x.Loaded("p1", 4, inner, nil) != p || p.Scope != inner {
		t.Error("a second atom of one variable")
	}
}

// An index is defined where all that it is made of is.
func TestScopes(t *testing.T) {
	x := NewBuilder(NewScope(nil))
	loop := NewScope(x.top)
	row, col := x.NewAtom("row", 9, 1, x.top), x.NewAtom("c", 9, 1, loop)
	q, _ := x.DivMod(col.Expr(), 4)
	_, number := x.divided(Constant(3), Extent{8, "m0"}) // has no variable but the size
	for _, c := range []struct {
		e     Expr
		scope *Scope
		depth int // from which on it is known
	}{
		{Constant(1), nil, 0}, {row.Expr(), x.top, 1}, {row.Expr().Add(1, q), loop, 2}, {row.Expr().Add(1, number), x.top, 1},
	} {
		if got := c.e.Scope(); got != c.scope {
			t.Errorf("%s is of scope %v, want %v", c.e, got, c.scope)
		}
		known := []bool{c.e.KnownBefore(0), c.e.KnownBefore(1), c.e.KnownBefore(2)}
		if slices.Index(known, true) != c.depth {
			t.Errorf("%s is known before depths 0, 1, 2: %v", c.e, known)
		}
	}
	read := x.NewAtom("p", 9, 1, loop)
	if !row.Expr().Add(1, q).KnownAround(col) || read.Expr().Add(1, q).KnownAround(col) {
		t.Error("around a loop's variable its own scope is not known, but what is made of that variable is")
	}
	a := x.NewAtom("j", 9, 1, NewScope(loop))
	a.Front = x.top
	if !a.Expr().KnownBefore(1) {
		t.Error("a variable is declared in front of its scope")
	}
}

func TestScopeText(t *testing.T) {
	s := NewScope(nil)
	s.Memo["a"] = "x1"
	in := NewScope(s)
	s.Emit("for (int i = 0; i < %d; ++i) {", 4)
	in.Emit("f(i);")
	s.Braced(in.Lines)
	if got, want := fmt.Sprint(s.Lines), "[for (int i = 0; i < 4; ++i) {   f(i); }]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if v, ok := in.Find("a"); !ok || v != "x1" {
		t.Error("the scope around is not looked into")
	}
}
