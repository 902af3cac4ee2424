package sharding

import (
	"fmt"
	"slices"
	"strings"
)

// Kind says what it costs to shard a factor.
type Kind uint8

// The kinds of factors.
const (
	PassThrough     Kind = iota // nothing: each device computes its piece
	Reduction                   // the result is partial: it wants a reduction
	NeedReplication             // the operation wants all of it: it is gathered
	Permutation                 // pieces move between devices, such as a halo
)

// Factor is a size that dimensions of operands and results have in common.
type Factor struct {
	Size    int64
	Kind    Kind
	Blocked bool // no sharding is propagated along it
}

// Tensor lists the factors of each dimension, major first; at least one.
type Tensor [][]int

// Rule relates the dimensions of operands and results.
type Rule struct {
	Factors  []Factor
	Operands []Tensor
	Results  []Tensor
	Custom   bool // of the user
}

// None stands for no dimension of a tensor.
const None = -1

// NewRule starts the rule of an operation from the shapes of its operands and results.
// What is no tensor has rank 0. [Rule.Done] ends it.
func NewRule(operands, results [][]int64) *Rule {
	r := &Rule{}
	for _, s := range operands {
		r.Operands = append(r.Operands, make(Tensor, len(s)))
	}
	for _, s := range results {
		r.Results = append(r.Results, make(Tensor, len(s)))
	}
	return r
}

// Add adds a factor: by operand and by result the dimension that it is of, or None. Lists
// may be short.
func (r *Rule) Add(f Factor, operands, results []int) *Rule {
	i := len(r.Factors)
	r.Factors = append(r.Factors, f)
	add := func(ts []Tensor, dims []int) {
		for t, d := range dims {
			if d != None && (f.Size != 1 || len(ts[t][d]) == 0) {
				ts[t][d] = append(ts[t][d], i)
			}
		}
	}
	add(r.Operands, operands)
	add(r.Results, results)
	return r
}

// Along adds a factor that is dimension d of all tensors that have dimensions.
func (r *Rule) Along(d int, f Factor) *Rule {
	return r.Add(f, r.all(r.Operands, d), r.all(r.Results, d))
}

func (r *Rule) all(ts []Tensor, d int) []int {
	out := make([]int, len(ts))
	for i, t := range ts {
		if out[i] = d; len(t) == 0 {
			out[i] = None
		}
	}
	return out
}

// Each adds Along for each dimension of a shape.
func (r *Rule) Each(shape []int64, kind func(d int) Factor) *Rule {
	for d, n := range shape {
		f := Factor{}
		if kind != nil {
			f = kind(d)
		}
		f.Size = n
		r.Along(d, f)
	}
	return r
}

// Done gives dimensions without a factor one of size 1 of their own.
func (r *Rule) Done() *Rule {
	for _, t := range slices.Concat(r.Operands, r.Results) {
		for d := range t {
			if len(t[d]) == 0 {
				t[d] = []int{len(r.Factors)}
				r.Factors = append(r.Factors, Factor{Size: 1})
			}
		}
	}
	return r
}

// Identity relates tensors of one shape, dimension by dimension.
func Identity(shape []int64, operands, results int) *Rule {
	return NewRule(slices.Repeat([][]int64{shape}, operands), slices.Repeat([][]int64{shape}, results)).Each(shape, nil)
}

// Check reports what is wrong with a rule: factors that there are not, that are of two
// dimensions of a tensor, or of none.
func (r *Rule) Check() error {
	used := make([]bool, len(r.Factors))
	for _, t := range slices.Concat(r.Operands, r.Results) {
		var seen []int
		for d, l := range t {
			if len(l) == 0 {
				return fmt.Errorf("dimension %d has no factor", d)
			}
			for _, f := range l {
				if f < 0 || f >= len(r.Factors) || slices.Contains(seen, f) {
					return fmt.Errorf("dimension %d has factor %d: want factors of %d, each once in a tensor", d, f, len(r.Factors))
				}
				seen = append(seen, f)
				used[f] = true
			}
		}
	}
	if f := slices.Index(used, false); f >= 0 {
		return fmt.Errorf("factor %s is of no dimension", symbol(f))
	}
	return nil
}

// symbol is the name of a factor: i to z, then z_1, ...
func symbol(f int) string {
	if f <= 'z'-'i' {
		return string(rune('i' + f))
	}
	return fmt.Sprintf("z_%d", f-('z'-'i'))
}

// kindNames are the lists behind the sizes of a rule's factors, in their order.
var kindNames = []struct {
	name string
	has  func(Factor) bool
	set  func(*Factor)
}{
	{"reduction", func(f Factor) bool { return f.Kind == Reduction }, func(f *Factor) { f.Kind = Reduction }},
	{"need_replication", func(f Factor) bool { return f.Kind == NeedReplication }, func(f *Factor) { f.Kind = NeedReplication }},
	{"permutation", func(f Factor) bool { return f.Kind == Permutation }, func(f *Factor) { f.Kind = Permutation }},
	{"blocked_propagation", func(f Factor) bool { return f.Blocked }, func(f *Factor) { f.Blocked = true }},
}

// String is the rule as the sdy dialect prints it:
// <([i, k], [k, j])->([i, j]) {i=8, j=16, k=4} reduction={k}>.
func (r *Rule) String() string {
	tensors := func(ts []Tensor) string {
		out := make([]string, len(ts))
		for i, t := range ts {
			dims := make([]string, len(t))
			for d, l := range t {
				for _, f := range l {
					dims[d] += symbol(f)
				}
			}
			out[i] = "[" + strings.Join(dims, ", ") + "]"
		}
		return "(" + strings.Join(out, ", ") + ")"
	}
	out := "<" + tensors(r.Operands) + "->" + tensors(r.Results)
	for i, f := range r.Factors {
		sep := ", "
		if i == 0 {
			sep = " {"
		}
		out += fmt.Sprintf("%s%s=%d", sep, symbol(i), f.Size)
	}
	if len(r.Factors) > 0 {
		out += "}"
	}
	for _, k := range kindNames {
		var l []string
		for i, f := range r.Factors {
			if k.has(f) {
				l = append(l, symbol(i))
			}
		}
		if l != nil {
			out += " " + k.name + "={" + strings.Join(l, ", ") + "}"
		}
	}
	if r.Custom {
		out += ", custom"
	}
	return out + ">"
}

// ParseRule reads a rule in the form of [Rule.String].
func ParseRule(text string) (*Rule, error) {
	p := &reader{s: text}
	r := &Rule{}
	p.expect("<")
	r.Operands = p.tensors()
	p.expect("->")
	r.Results = p.tensors()
	if p.eat("{") {
		for first := true; p.more(&first, "}"); {
			if f := p.factor(); f != len(r.Factors) {
				p.failf(p.i, "expected the size of factor %s", symbol(len(r.Factors)))
			}
			p.expect("=")
			r.Factors = append(r.Factors, Factor{Size: p.number()})
		}
	}
	for p.err == nil && p.peek() != '>' {
		if p.eat(",") {
			p.expect("custom")
			r.Custom = true
			continue
		}
		at := p.i
		name := p.word()
		k := slices.IndexFunc(kindNames, func(k struct {
			name string
			has  func(Factor) bool
			set  func(*Factor)
		}) bool {
			return k.name == name
		})
		if k < 0 {
			p.failf(at, "there is no kind %q of factors", name)
		}
		p.expect("=")
		p.expect("{")
		for first := true; p.more(&first, "}"); {
			if f := p.factor(); p.err == nil && f < len(r.Factors) {
				kindNames[k].set(&r.Factors[f])
			} else {
				p.failf(at, "there is no such factor")
			}
		}
	}
	p.expect(">")
	p.end()
	if p.err != nil {
		return nil, p.err
	}
	return r, r.Check()
}

func (r *reader) tensors() []Tensor {
	out := []Tensor{}
	r.expect("(")
	for first := true; r.more(&first, ")"); {
		t := Tensor{}
		r.expect("[")
		for firstDim := true; r.more(&firstDim, "]"); {
			l := []int{}
			for r.err == nil && r.peek() != ',' && r.peek() != ']' {
				l = append(l, r.factor())
			}
			t = append(t, l)
		}
		out = append(out, t)
	}
	return out
}

// factor reads the name of a factor.
func (r *reader) factor() int {
	c := r.peek()
	if c < 'i' || c > 'z' {
		r.failf(r.i, "expected a factor, i to z or z_1, ...")
		return 0
	}
	r.i++
	if c == 'z' && r.i < len(r.s) && r.s[r.i] == '_' {
		r.i++
		return 'z' - 'i' + int(max(0, r.number()))
	}
	return int(c - 'i')
}
