package sharding

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// random draws meshes, axes and shardings.
type random struct{ *rand.Rand }

func (r random) mesh() *Mesh {
	m := &Mesh{Name: "mesh"}
	for i := range 1 + r.IntN(4) {
		m.Axes = append(m.Axes, Axis{string(rune('a' + i)), []int64{1, 2, 3, 4, 6, 8, 12}[r.IntN(7)]})
	}
	return m
}

// ref draws an axis or a part of one.
func (r random) ref(m *Mesh) Ref {
	a := m.Axes[r.IntN(len(m.Axes))]
	for range 4 {
		if p, err := m.Part(a.Name, 1+r.Int64N(a.Size), 1+r.Int64N(a.Size)); err == nil {
			return p
		}
	}
	w, _ := m.Whole(a.Name)
	return w
}

func (r random) sharding(m *Mesh, rank int) *Sharding {
	s := &Sharding{Mesh: m, Dims: make([]Dim, rank)}
	for i := range s.Dims {
		s.Dims[i] = Dim{Open: r.IntN(2) == 0, Priority: r.IntN(4) - 1}
	}
	for range r.IntN(6) {
		t := s.Clone()
		switch a := r.ref(m); r.IntN(8) {
		case 0:
			t.Replicated = append(t.Replicated, a)
		case 1:
			t.Unreduced = append(t.Unreduced, a)
		default:
			if rank > 0 {
				d := &t.Dims[r.IntN(rank)]
				if n := len(d.Axes); n == 0 || d.Axes[n-1].Name != a.Name { // parts that join are one
					d.Axes = append(d.Axes, a)
				}
			}
		}
		if t.Check(rank) == nil {
			s = t
		}
	}
	return s
}

func TestTextOfShardings(t *testing.T) {
	r := random{rand.New(rand.NewPCG(1, 2))}
	for range 2000 {
		m := r.mesh()
		s := r.sharding(m, r.IntN(4))
		meshes := func(name string) (*Mesh, bool) { return m, name == "mesh" }
		back, n, err := Parse(s.String()+"rest", meshes)
		if err != nil || n != len(s.String()) || !back.Equal(s) {
			t.Fatalf("%s of %s: %v, %v", s, m, back, err)
		}
		again, err := ParseMesh(m.String())
		if err != nil || !slices.Equal(again.Axes, m.Axes) {
			t.Fatalf("%s: %v", m, err)
		}
	}
}

func TestTextIsRefused(t *testing.T) {
	m := &Mesh{Name: "mesh", Axes: []Axis{{"a", 4}, {"b", 2}}}
	meshes := func(name string) (*Mesh, bool) { return m, name == "mesh" }
	for text, want := range map[string]string{
		`<@other, [{}]>`:                         "no mesh @other",
		`<@mesh, [{"c"}]>`:                       `no axis "c"`,
		`<@mesh, [{"a"}, {"a"}]>`:                "overlap",
		`<@mesh, [{"a":(1)2}, {"a"}]>`:           "overlap",
		`<@mesh, [{"a":(3)2}]>`:                  "not a part",
		`<@mesh, [{"a":(1)4}]>`:                  "not a part",
		`<@mesh, [{"a"}], replicated={"a"}>`:     "overlap",
		`<@mesh, [{"a", ?, "b"}]>`:               "expected }",
		`<@mesh, [{"a"}p-1]>`:                    "priority",
		`<@mesh, [{"a"}`:                         "expected",
		`<@mesh, [{"a"}], unknown={"b"}>`:        "replicated or unreduced",
		`<mesh<["a"=0]>, [{}]>`:                  "size from 1",
		`<mesh<["a"=2, "a"=2]>, [{}]>`:           "each once",
		`<mesh<["a"=2], device_ids=[0, 2]>, []>`: "each of 2 once",
		`<mesh<[], device_ids=[0, 1]>, []>`:      "one device",
		`<mesh<["a"=99999999999, "b"=4]>, [{}]>`: "at most",
	} {
		if _, _, err := Parse(text, meshes); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// places are the numbers of an axis's split that a part stands for: of an axis of 2*2*3, say,
// which of its prime factors, major first.
func places(a Ref) (from, to int64) { return a.Pre, a.next() }

func TestAxes(t *testing.T) {
	r := random{rand.New(rand.NewPCG(3, 4))}
	for range 5000 {
		m := r.mesh()
		a, b := r.ref(m), r.ref(m)
		if a.Overlaps(b) != b.Overlaps(a) || a.coexists(b) != b.coexists(a) {
			t.Fatalf("%s, %s of %s: not the same both ways", a, b, m)
		}
		if a.Contains(b) && b.Contains(a) && a != b {
			t.Fatalf("%s and %s of %s contain each other", a, b, m)
		}
		if a.Contains(b) && !a.Overlaps(b) {
			t.Fatalf("%s contains %s of %s without overlap", a, b, m)
		}
		p, ok := a.without(b)
		if !ok {
			continue
		}
		if !p.PrefixOf(a) || p.Overlaps(b) {
			t.Fatalf("%s without %s of %s is %s", a, b, m, p)
		}
		pf, pt := places(p)
		if af, at := places(a); pf != af || at%pt != 0 {
			t.Fatalf("%s is not a split of %s", p, a)
		}
	}
}

// reshape returns two shapes of as many elements.
func (r random) reshape() (a, b []int64) {
	primes := []int64{2, 2, 2, 3, 3, 5}
	cut := func() []int64 {
		out := []int64{1}
		for _, p := range primes {
			if r.IntN(3) == 0 {
				out = append(out, 1)
			}
			out[len(out)-1] *= p
		}
		return out
	}
	a = cut()
	r.Shuffle(len(primes), func(i, j int) { primes[i], primes[j] = primes[j], primes[i] })
	return a, cut()
}

// TestReshape checks that factors make up the sizes of their dimensions, and that shardings
// come back from them.
func TestReshape(t *testing.T) {
	r := random{rand.New(rand.NewPCG(5, 6))}
	for range 5000 {
		a, b := r.reshape()
		rule := Reshape(a, b)
		if err := rule.Check(); err != nil {
			t.Fatalf("%v to %v: %v", a, b, err)
		}
		back, err := ParseRule(rule.String())
		if err != nil || back.String() != rule.String() {
			t.Fatalf("%s: %v, %v", rule, back, err)
		}
		for i, shape := range [][]int64{a, b} {
			tensor := slices.Concat(rule.Operands, rule.Results)[i]
			for d, l := range tensor {
				n := int64(1)
				for _, f := range l {
					n *= rule.Factors[f].Size
				}
				if n != shape[d] {
					t.Fatalf("%s: dimension %d of %v has %d", rule, d, shape, n)
				}
			}
			m := r.mesh()
			s := r.sharding(m, len(shape))
			var p projected
			p.set(tensor, s, rule, m)
			got := p.sharding(tensor, rule, m)
			for d := range s.Dims {
				if !slices.Equal(got.Dims[d].Axes, s.Dims[d].Axes) {
					t.Fatalf("%s of %s by %s comes back as %s", s, m, rule, got)
				}
			}
		}
	}
}

// chain is a program of products, sums and reshapes.
func (r random) chain(n int) *Graph {
	m := &Mesh{Name: "mesh", Axes: []Axis{{"a", 2}, {"b", 4}, {"c", 3}}}
	g := &Graph{Values: []Value{{Name: "x", Shape: []int64{24, 24}}, {Name: "y", Shape: []int64{24, 24}}}}
	for i := range n {
		x, y := r.IntN(len(g.Values)), r.IntN(len(g.Values))
		if i > 100 {
			x = len(g.Values) - 1 - r.IntN(100)
		}
		if x == y { // an operation takes in one turn what each of its operands says
			y = (x + 1) % len(g.Values)
		}
		shape := []int64{24, 24}
		st := Step{Op: "product", Line: i, Rule: Product(shape, shape, shape, [2][]int64{}, [2][]int64{{1}, {0}}), Operands: []int{x, y}}
		switch r.IntN(3) {
		case 0:
			st = Step{Op: "sum", Line: i, Rule: Identity(shape, 2, 1), Operands: []int{x, y}, Elementwise: true, Class: Through, MultiUse: r.IntN(2) == 0}
		case 1:
			st = Step{Op: "transpose", Line: i, Rule: Transpose(shape, shape, []int64{1, 0}), Operands: []int{x}, Class: Through}
		}
		st.Results = []int{len(g.Values)}
		g.Values = append(g.Values, Value{Name: "v", Shape: shape})
		g.Steps = append(g.Steps, st)
	}
	for range 1 + n/100 {
		g.Values[r.IntN(len(g.Values))].Sharding = r.sharding(m, 2)
	}
	return g
}

// TestPropagate checks on random programs that the result is a fixpoint, that it is the same
// each time, that what was given stays before what was added, that axes do not overlap,
// and that each inferred sharding says why.
func TestPropagate(t *testing.T) {
	for seed := range uint64(60) {
		for mode := Basic; mode <= UserPriority; mode++ {
			make := func() *Graph { return random{rand.New(rand.NewPCG(seed, 7))}.chain(30) }
			g, h, given := make(), make(), make()
			if err := g.Propagate(mode); err != nil {
				t.Fatal(err)
			}
			if err := h.Propagate(mode); err != nil {
				t.Fatal(err)
			}
			for i, v := range g.Values {
				if o := h.Values[i].Sharding; (o == nil) != (v.Sharding == nil) || o != nil && o.String() != v.Sharding.String() {
					t.Fatalf("seed %d, %s: value %d is %s and then %s", seed, mode, i, v.Sharding, h.Values[i].Sharding)
				}
				if v.Sharding == nil {
					continue
				}
				if err := v.Sharding.Check(2); err != nil {
					t.Fatalf("seed %d, %s: value %d is %s: %v", seed, mode, i, v.Sharding, err)
				}
				s := given.Values[i].Sharding
				if s == nil && v.Why == nil {
					t.Fatalf("seed %d, %s: value %d is %s without a reason", seed, mode, i, v.Sharding)
				}
				for d := range v.Sharding.Dims {
					if s != nil && !prefix(s.Dims[d].Axes, v.Sharding.Dims[d].Axes) {
						t.Fatalf("seed %d, %s: value %d was %s and is %s", seed, mode, i, s, v.Sharding)
					}
				}
			}
			if err := h.Propagate(mode); err != nil {
				t.Fatal(err)
			}
			for i, v := range g.Values {
				if o := h.Values[i].Sharding; mode != UserPriority && o != nil && o.String() != v.Sharding.String() {
					t.Fatalf("seed %d, %s: value %d is %s, propagated again %s", seed, mode, i, v.Sharding, h.Values[i].Sharding)
				}
			}
		}
	}
}

func BenchmarkPropagate(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		g := random{rand.New(rand.NewPCG(1, 7))}.chain(100000)
		b.StartTimer()
		if err := g.Propagate(UserPriority); err != nil {
			b.Fatal(err)
		}
	}
}
