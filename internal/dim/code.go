package dim

import "errors"

// Expressions as code for a machine with a stack, which other processors than this one run:
// pairs of an operation and its operand.
const (
	CodeEnd    = iota // the value is on top
	CodeNumber        // push a number
	CodeSymbol        // push the value of the symbol of that number
	CodeAdd           // the two on top
	CodeMul
	CodeDiv // the one on top by a number, rounded down
)

// CodeDepth is how many numbers the stack holds.
const CodeDepth = 16

// ErrDeep says that an expression takes a larger stack.
var ErrDeep = errors.New("an expression of more than 16 levels")

// AppendCode appends the code of d. symbol gives the number of a symbol, or else its value.
func (d Dim) AppendCode(code []int64, symbol func(name string) (n int, value int64)) ([]int64, error) {
	c := coder{code: code, symbol: symbol}
	c.sum(d, 0)
	if c.deep {
		return nil, ErrDeep
	}
	return append(c.code, CodeEnd, 0), nil
}

type coder struct {
	code   []int64
	symbol func(name string) (int, int64)
	deep   bool
}

func (c *coder) put(op, operand int64) { c.code = append(c.code, op, operand) }

// sum pushes d above so many numbers.
func (c *coder) sum(d Dim, held int) {
	if c.deep = c.deep || held+3 > CodeDepth; c.deep {
		return
	}
	c.put(CodeNumber, d.n)
	for _, t := range d.terms() {
		if d.e == nil {
			return
		}
		c.put(CodeNumber, t.coef)
		for _, f := range t.factors {
			if f.sym == "" {
				c.sum(f.num, held+2)
				c.put(CodeDiv, f.den)
			} else if n, v := c.symbol(f.sym); n < 0 {
				c.put(CodeNumber, v)
			} else {
				c.put(CodeSymbol, int64(n))
			}
			c.put(CodeMul, 0)
		}
		c.put(CodeAdd, 0)
	}
}

// RunCode runs what AppendCode made.
func RunCode(code []int64, symbols []int64) int64 {
	var stack [CodeDepth]int64
	n := 0
	for ; code[0] != CodeEnd; code = code[2:] {
		switch op, v := code[0], code[1]; op {
		case CodeNumber:
			stack[n] = v
			n++
		case CodeSymbol:
			stack[n] = symbols[v]
			n++
		case CodeAdd:
			n--
			stack[n-1] += stack[n]
		case CodeMul:
			n--
			stack[n-1] *= stack[n]
		case CodeDiv:
			q := stack[n-1] / v
			if stack[n-1]%v < 0 {
				q--
			}
			stack[n-1] = q
		}
	}
	return stack[0]
}
