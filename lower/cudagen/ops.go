package cudagen

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/prelude"
	"github.com/seed-ee968945/concert/ir"
)

// domain is the C++ type in which a value is held and an operation computed.
type domain string

const (
	domI64 domain = "i64"
	domU64 domain = "u64"
	domF32 domain = "f32"
	domF64 domain = "f64"
)

func (d domain) isInt() bool { return d == domI64 || d == domU64 }

// storageDomain is the domain that holds values of an element type exactly.
func storageDomain(t dtype.DType) domain { return domainOf(t) }

// ctype is the prelude's name of an element type in memory.
func ctype(t dtype.DType) string { return prelude.Type(t) }

// domainOf is the domain that operations on these types are computed in.
func domainOf(ts ...dtype.DType) domain { return domain(prelude.Held(ts...)) }

// literal spells s in a domain.
func literal(s attr.Number, d domain) string {
	bits, suffix, f := 64, "", s.F
	switch d {
	case domU64:
		return strconv.FormatUint(uint64(s.I), 10) + "ULL"
	case domI64:
		if s.I == math.MinInt64 {
			return "(-9223372036854775807LL - 1)"
		}
		return strconv.FormatInt(s.I, 10) + "LL"
	case domF32:
		bits, suffix, f = 32, "f", float64(float32(s.F))
	}
	switch {
	case f != f:
		return "nan_of<" + string(d) + ">()"
	case math.IsInf(f, 1):
		return "inf_of<" + string(d) + ">()"
	case math.IsInf(f, -1):
		return "-inf_of<" + string(d) + ">()"
	}
	text := strconv.FormatFloat(f, 'g', -1, bits)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return text + suffix
}

// powerName gives the cheaper and more exact functions for constant exponents.
func powerName(e float64) (string, bool) {
	switch e {
	case 1:
		return "same_of", true
	case 2:
		return "square_of", true
	case 3:
		return "cube_of", true
	case -1:
		return "reciprocal_of", true
	case 0.5:
		return "sqrt_of", true
	case -0.5:
		return "rsqrt_of", true
	}
	return "", false
}

// operand is a value in hand: the expression and the domain it is held in.
type operand struct {
	text string
	dom  domain
}

// in converts an operand to a domain.
func (o operand) in(d domain) string {
	if o.dom == d {
		return o.text
	}
	return "(" + string(d) + ")" + o.text
}

// pointwise returns the expression of an elementwise operation before it is
// rounded, and the domain in which it is computed. The rules are those of the
// host kernels; see the package.
func pointwise(n *ir.Node, in []operand) (string, domain, error) {
	types := []dtype.DType{n.Result(0).Type().DType()}
	for _, a := range n.Args() {
		types = append(types, a.Type().DType())
	}
	dom := domainOf(types...)
	call := func(f string, args ...string) string { return f + "(" + strings.Join(args, ", ") + ")" }
	switch n.Op() {
	case ir.OpConvert, ir.OpReadSize:
		return in[0].in(dom), dom, nil
	case ir.OpWhere:
		if t := types[1]; t != dtype.Bool && t != dtype.U8 {
			return "", "", unsupported(n, "a condition of type %s", t)
		}
		return fmt.Sprintf("%s != 0 ? %s : %s", in[0].text, in[1].in(dom), in[2].in(dom)), dom, nil
	case ir.OpFma:
		return call("fma_of", in[0].in(dom), in[1].in(dom), in[2].in(dom)), dom, nil
	case ir.OpClamp:
		lo, hi := n.Attrs().Number("min"), n.Attrs().Number("max")
		dom = widen(dom, lo, hi)
		e := in[0].in(dom)
		if lo.Set {
			e = call("at_least", e, literal(lo, dom))
		}
		if hi.Set {
			e = call("at_most", e, literal(hi, dom))
		}
		return e, dom, nil
	case ir.OpBitwiseNot:
		if types[0] == dtype.Bool {
			return call("logical_not_of", in[0].in(dom)), dom, nil
		}
	case ir.OpGelu:
		if a := n.Attrs().Str("approximate", "none"); a == "tanh" {
			if dom.isInt() {
				dom = domF64
			}
			return call("gelu_tanh_of", in[0].in(dom)), dom, nil
		}
	}
	info := n.Op().Info()
	if !info.Elementwise {
		return "", "", unsupported(n, "no such elementwise operation")
	}
	if info.MaxArgs > 1 {
		return binary(n, in, dom)
	}
	if dom.isInt() && !info.Exact {
		dom = domF64
	}
	end := "_of"
	if op := n.Op(); (op == ir.OpErf || op == ir.OpGelu) && (types[0] == dtype.BF16 || types[0] == dtype.F16) && dom == domF32 {
		end = "_16" // which costs half as much
	}
	return call(n.Op().Name()+end, in[0].in(dom)), dom, nil
}

// widen makes integers floats where a scalar is a float.
func widen(dom domain, scalars ...attr.Number) domain {
	for _, s := range scalars {
		if dom.isInt() && s.IsFloat {
			dom = domF32
		}
	}
	return dom
}

func binary(n *ir.Node, in []operand, dom domain) (string, domain, error) {
	scalar, alpha := n.Attrs().Number("scalar"), n.Attrs().Number("alpha")
	name, ints := strings.TrimPrefix(n.Op().Name(), "logical_")+"_of", true
	switch n.Op() {
	case ir.OpDiv, ir.OpAtan2:
		ints = false
	}
	if !(n.Op() == ir.OpAdd || n.Op() == ir.OpSub) || !alpha.Set {
		alpha = attr.Number{}.Or(1)
	}
	if (len(in) == 1) != scalar.Set {
		return "", "", unsupported(n, "%d operands, scalar %v", len(in), scalar.Set)
	}
	dom = widen(dom, scalar, alpha)
	if dom.isInt() && !ints {
		dom = domF64
	}
	reverse := n.Attrs().Bool("reverse", false)
	if n.Op() == ir.OpPow && scalar.Set && !reverse && !dom.isInt() {
		if f, ok := powerName(scalar.F); ok {
			return f + "(" + in[0].in(dom) + ")", dom, nil
		}
	}
	a, b := in[0].in(dom), ""
	if scalar.Set {
		b = literal(scalar, dom)
	} else {
		b = in[1].in(dom)
	}
	if reverse {
		a, b = b, a
	}
	if alpha.F != 1 {
		b = "mul_of(" + literal(alpha, dom) + ", " + b + ")"
	}
	return name + "(" + a + ", " + b + ")", dom, nil
}

// inBF16 is an operation on nothing but bfloat16 that needs no step in single precision.
func inBF16(n *ir.Node, in []operand) (string, bool) {
	for _, v := range slices.Concat(n.Results(), n.Args()) {
		if v.Type().DType() != dtype.BF16 {
			return "", false
		}
	}
	a := in[0].in(domF32)
	switch n.Op() {
	case ir.OpNeg, ir.OpAbs:
		return n.Op().Name() + "_of(" + a + ")", true
	case ir.OpAdd, ir.OpSub, ir.OpMul:
		if len(in) == 2 && !n.Attrs().Has("alpha") && !n.Attrs().Has("reverse") {
			return n.Op().Name() + "_bf16(" + a + ", " + in[1].in(domF32) + ")", true
		}
	}
	return "", false
}

// rounded is the statement's right side that rounds an expression of domain dom
// to element type t, held in held(t).
func rounded(e string, dom domain, t dtype.DType) string {
	if ctype(t) == string(dom) {
		return e
	}
	return "to_" + ctype(t) + "(" + e + ")"
}
