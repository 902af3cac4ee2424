package hlo

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// maxElements bounds the elements of a constant.
const maxElements = 1 << 40

// elided is what a constant calls whose elements the text leaves out.
const elided = "hlo.constant"

// constant reads {1, 2}, nested as the type is, or ({1, 2}, 3) of a tuple. Elements that the text
// leaves out are not known: only a function that gives them can stand for them in a run.
func constant(c *converter, _ int) error {
	p := &scanner{src: c.src, s: c.src.Text[:c.in.inside.end], i: c.in.inside.start}
	if err := c.literal(p, c.in.shape, c.in.name, 0); err != nil {
		return err
	}
	if p.peek() != 0 {
		p.failf(p.i, "expected the end of the constant, found %s", p.found())
	}
	return p.err
}

// literal reads a value and gives it a name.
func (c *converter) literal(p *scanner, of shape, name string, depth int) error {
	t := c.typ(of)
	if !of.many {
		if !t.Tensor {
			return c.errorf("a constant of type %s", t)
		}
		return c.dense(p, t, name)
	}
	if p.peek() != '(' {
		return c.errorf("a constant of type %s has its parts in parentheses, found %s", t, p.found())
	}
	p.i++
	var parts []mlir.Use
	for i, e := range of.tuple {
		if i > 0 {
			p.expect(",", "between the parts of a constant")
		}
		if p.err != nil || depth > maxDepth {
			break
		}
		part := c.temporary()
		if err := c.literal(p, e, part, depth+1); err != nil {
			return err
		}
		parts = append(parts, mlir.Use{Name: part})
	}
	p.expect(")", "behind the parts of a constant")
	c.add(mlir.Spec{Name: "stablehlo.tuple", Result: name, Operands: parts, Types: []mlir.Type{t}})
	return p.err
}

// dense reads the elements of a tensor. One without braces is all of them.
func (c *converter) dense(p *scanner, t mlir.Type, name string) error {
	braces, at := p.peek() == '{', p.i
	if strings.HasPrefix(p.s[p.i:], "{...}") {
		if c.missing == nil {
			c.missing = errorAt(c.src, p.i, len("{...}"), "constant", "a run needs the elements of this constant, which the text leaves out: XLA prints them with --xla_dump_large_constants, or with HloPrintOptions::set_print_large_constants(true)")
		}
		p.i += len("{...}")
		c.as("stablehlo.custom_call", name, t, named("call_target_name", mlir.Text(c.in.at, elided)))
		return nil
	}
	l := &mlir.Literal{Shape: t.Shape}
	n, open := int64(0), 0
	for p.err == nil && p.peek() != 0 {
		switch ch := p.peek(); {
		case ch == '{':
			open++
			p.i++
		case ch == '}':
			open--
			p.i++
		case ch == ',' && open > 0:
			p.i++
		default:
			if err := c.element(p, t, l); err != nil {
				return err
			}
			n++
		}
		if open <= 0 {
			break
		}
	}
	want := int64(1)
	for _, d := range t.Shape {
		if d > 0 && want > maxElements/d {
			return c.errorf("a constant of type %s", t)
		}
		want *= d
	}
	if l.Splat = n == 1 && !braces; n != want && !l.Splat {
		return c.errorf("%d elements for a constant of type %s", n, t)
	}
	var err error
	if l.DType, err = mlir.ElementType(t.Elem); err != nil {
		return c.errorf("%v", err)
	}
	c.as("stablehlo.constant", name, t, named("value", mlir.Constant(at, l)))
	return p.err
}

// element reads an element and appends it.
func (c *converter) element(p *scanner, t mlir.Type, l *mlir.Literal) error {
	at := p.i
	for p.i < len(p.s) && strings.IndexByte("{}, \t\r\n)", p.s[p.i]) < 0 {
		if p.s[p.i] == '(' {
			p.balanced()
		} else {
			p.i++
		}
	}
	var err error
	if l.Data, err = elementOfText(l.Data, t.Elem, p.s[at:p.i]); err != nil {
		return errorAt(c.src, at, p.i-at, "constant", "%v", err)
	}
	return nil
}

// payloads are how many bits of a NaN of a type tell it from others.
var payloads = map[dtype.DType]int{dtype.F64: 52, dtype.F32: 23, dtype.F16: 10, dtype.BF16: 7}

// infinite reports whether the last element is an infinity.
func infinite(data []byte, dt dtype.DType) bool {
	return payloads[dt] != 0 && math.IsInf(dtype.LoadFloat(dt, data[len(data)-dt.Size():]), 0)
}

// elementOfText appends an element, which may be -nan or nan(0x1).
func elementOfText(out []byte, elem, text string) ([]byte, error) {
	rest, negative := strings.CutPrefix(text, "-nan")
	if !negative {
		rest, _ = strings.CutPrefix(text, "nan")
	}
	dt, err := mlir.ElementType(elem)
	payload := len(rest) > 2 && rest[0] == '(' && rest[len(rest)-1] == ')'
	if err != nil || !dt.IsFloat() || !payload && (rest != "" || !negative) {
		if out, err = mlir.ElementOf(out, elem, text); err == nil && infinite(out, dt) && strings.ContainsAny(text, "0123456789") {
			err = fmt.Errorf("%s is beyond %s", text, elem)
		}
		return out, err
	}
	if payload {
		bits, top := payloads[dt], dt.Size()*8-1
		low, err := strconv.ParseUint(rest[1:len(rest)-1], 0, bits)
		if bits == 0 || err != nil || low == 0 {
			return nil, fmt.Errorf("%s is no NaN of type %s", text, elem)
		}
		out, err = mlir.ElementOf(out, elem, fmt.Sprintf("%#x", uint64(1)<<top-uint64(1)<<bits|low))
		if err != nil {
			return nil, err
		}
	} else if out, err = mlir.ElementOf(out, elem, "nan"); err != nil {
		return nil, err
	}
	if negative {
		out[len(out)-1] |= 0x80
	}
	return out, nil
}
