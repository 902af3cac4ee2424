package dim

import (
	"fmt"
	"strconv"
)

// maxDepth bounds nesting, so that hostile input cannot exhaust the stack.
const maxDepth = 64

// maxTerms bounds the expansion of a product of sums, for the same reason.
const maxTerms = 256

// Parse reads a whole text as a dimension.
func Parse(s string) (Dim, error) {
	d, n, err := Scan(s)
	if err == nil && n < len(s) {
		err = fmt.Errorf("unexpected %q", s[n])
	}
	if err != nil {
		return Dim{}, fmt.Errorf("%q is not a dimension: %w", s, err)
	}
	return d, nil
}

// Scan reads a dimension from the start of s and returns it with the number of
// bytes read. The grammar, without blanks:
//
//	sum      = product { ("+" | "-") product }
//	product  = quotient { "*" quotient }
//	quotient = "-" quotient | unit { "//" number }
//	unit     = number | symbol | "(" sum ")"
//
// A division follows its operand directly and its divisor is a number, which
// tells it from a comment. An error comes with the offset where it was noticed.
func Scan(s string) (Dim, int, error) {
	p := scanner{s: s}
	d := p.sum()
	if p.err != nil {
		return Dim{}, p.i, p.err
	}
	return d, p.i, nil
}

// scanner reads expressions; err is the first error, after which nothing is read.
type scanner struct {
	s     string
	i     int
	depth int
	err   error
}

func (p *scanner) fail(format string, args ...any) Dim {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
	return Dim{}
}

func (p *scanner) peek() byte {
	if p.err == nil && p.i < len(p.s) {
		return p.s[p.i]
	}
	return 0
}

func (p *scanner) sum() Dim {
	ds := []Dim{p.product()}
	for {
		switch p.peek() {
		case '+':
			p.i++
			ds = append(ds, p.product())
		case '-':
			p.i++
			ds = append(ds, p.product().Mul(New(-1)))
		default:
			return p.fitting(Sum(ds...))
		}
	}
}

// fitting refuses an expression with a coefficient that did not fit 64 bits.
func (p *scanner) fitting(d Dim) Dim {
	for _, t := range d.terms() {
		if !fits(t.coef) {
			return p.fail("the size is too large")
		}
	}
	return d
}

func (p *scanner) product() Dim {
	d := p.quotient()
	for p.peek() == '*' {
		p.i++
		d = p.fitting(d.Mul(p.quotient()))
		if d.NumTerms() > maxTerms {
			return p.fail("a dimension expression that expands to more than %d terms", maxTerms)
		}
	}
	return d
}

func (p *scanner) quotient() Dim {
	if p.peek() == '-' { // binds weaker than division: -a//2 is -(a//2)
		if p.depth++; p.depth > maxDepth {
			return p.fail("a dimension expression nested too deeply")
		}
		defer func() { p.depth-- }()
		p.i++
		return p.quotient().Mul(New(-1))
	}
	d := p.unit()
	for p.peek() == '/' && p.i+2 < len(p.s) && p.s[p.i+1] == '/' && digit(p.s[p.i+2]) {
		p.i += 2
		den := p.number()
		if p.err == nil && den < 1 {
			return p.fail("the divisor must be positive")
		}
		d = d.Div(den)
	}
	return d
}

func (p *scanner) unit() Dim {
	if p.depth++; p.depth > maxDepth {
		return p.fail("a dimension expression nested too deeply")
	}
	defer func() { p.depth-- }()
	switch c := p.peek(); {
	case c == '(':
		p.i++
		d := p.sum()
		if p.peek() != ')' {
			return p.fail("expected ')' in a dimension expression")
		}
		p.i++
		return d
	case digit(c):
		return New(p.number())
	case letter(c):
		j := p.i
		for p.i < len(p.s) && (letter(p.s[p.i]) || digit(p.s[p.i])) {
			p.i++
		}
		return Sym(p.s[j:p.i])
	}
	return p.fail("expected a size or symbol")
}

func (p *scanner) number() int64 {
	j := p.i
	for p.i < len(p.s) && digit(p.s[p.i]) {
		p.i++
	}
	n, err := strconv.ParseInt(p.s[j:p.i], 10, 64)
	if err != nil {
		p.i = j
		p.fail("the size is too large")
	}
	return n
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

func letter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '.' || c == '$'
}
