package mlir

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/ir"
)

// Literal is a tensor whose elements a text holds.
type Literal struct {
	DType ir.DType
	Shape []int64
	Splat bool   // Data is one element, which all are
	Data  []byte // little-endian, row-major
}

// NumElements is how many elements a shape has; false where they are beyond 2^40.
func NumElements(shape []int64) (int64, bool) {
	n := int64(1)
	for _, d := range shape {
		if d < 0 || d > 0 && n > (1<<40)/d {
			return 0, false
		}
		n *= d
	}
	return n, true
}

// Expand returns all elements of a literal.
func (l *Literal) Expand() []byte {
	if !l.Splat {
		return l.Data
	}
	n, _ := NumElements(l.Shape)
	size := len(l.Data)
	out := make([]byte, int(n)*size)
	for i := 0; i < len(out); i += size {
		copy(out[i:], l.Data)
	}
	return out
}

// Ints are the elements of a literal of integers.
func (l *Literal) Ints() []int64 {
	data, size := l.Expand(), l.DType.Size()
	out := make([]int64, 0, len(data)/size)
	for i := 0; i < len(data); i += size {
		out = append(out, dtype.LoadInt(l.DType, data[i:]))
	}
	return out
}

// ElementType is the type of concert that MLIR's name stands for.
func ElementType(name string) (ir.DType, error) {
	switch name {
	case "i1":
		return ir.Bool, nil
	case "i8", "si8":
		return ir.I8, nil
	case "i16", "si16":
		return ir.I16, nil
	case "i32", "si32":
		return ir.I32, nil
	case "i64", "si64", "index":
		return ir.I64, nil
	case "ui8":
		return ir.U8, nil
	case "ui16":
		return ir.U16, nil
	case "ui32":
		return ir.U32, nil
	case "ui64":
		return ir.U64, nil
	case "f16":
		return ir.F16, nil
	case "bf16":
		return ir.BF16, nil
	case "f32":
		return ir.F32, nil
	case "f64":
		return ir.F64, nil
	}
	if dt, ok := dtype.Parse(strings.ToLower(name)); ok && dt.IsFloat8() && ElementName(dt) == name {
		return dt, nil
	}
	return 0, fmt.Errorf("elements of type %s are not supported", name)
}

// Decode reads the elements of an attribute dense<...> : tensor<...>, or dense_resource.
func (m *Module) Decode(a Attr) (*Literal, error) {
	if a.literal != nil {
		return a.literal, nil
	}
	fail := func(at int, format string, args ...any) (*Literal, error) {
		return nil, ErrorAt(m.Source, at, 1, "constant", format, args...)
	}
	if a.Kind != KindDense || a.Text != "dense" && a.Text != "dense_resource" || a.Type == nil || !a.Type.Tensor {
		return fail(a.At, "expected dense<...> : tensor<...>")
	}
	dt, err := ElementType(a.Type.Elem)
	if err != nil {
		return fail(a.At, "%v", err)
	}
	n, ok := NumElements(a.Type.Shape)
	if !ok {
		return fail(a.At, "a constant of type %s", a.Type)
	}
	l := &Literal{DType: dt, Shape: a.Type.Shape}
	if a.Text == "dense_resource" {
		if l.Data, err = m.blob(strings.Trim(m.Source.Text[a.Start:a.End], "\" "), n*int64(dt.Size())); err != nil {
			return fail(a.At, "%v", err)
		}
		return l, nil
	}
	p := &Parser{src: m.Source, s: m.Source.Text[:a.End], Pos: a.Start}
	switch c := p.Peek(); {
	case c == '"':
		at := p.Pos
		raw, err := hex.DecodeString(strings.TrimPrefix(p.Str(), "0x"))
		if err != nil {
			return fail(at, "elements that are not hexadecimal: %v", err)
		}
		if err := l.fill(raw, n); err != nil {
			return fail(at, "%v", err)
		}
	case c == 0:
		if n != 0 {
			return fail(a.At, "no elements for %s", a.Type)
		}
	case c != '[':
		l.Splat = true
		l.Data = p.element(l.Data, dt)
	default:
		p.nested(l, l.Shape)
	}
	if p.Err == nil && p.Peek() != 0 {
		p.Failf(p.Pos, "expected the end of the elements, found %s", p.found())
	}
	return l, p.Err
}

// blob are the bytes of a resource, behind the four that say how they are aligned.
func (m *Module) blob(name string, size int64) ([]byte, error) {
	at, ok := m.blobs[name]
	if !ok {
		return nil, fmt.Errorf("there is no resource %s behind the module", name)
	}
	p := &Parser{src: m.Source, s: m.Source.Text, Pos: at}
	raw, err := hex.DecodeString(strings.TrimPrefix(p.Str(), "0x"))
	if err != nil {
		return nil, fmt.Errorf("resource %s: %v", name, err)
	}
	if int64(len(raw)) != size+4 {
		return nil, fmt.Errorf("resource %s: %d bytes, want 4 and %d", name, len(raw), size)
	}
	return raw[4:], nil
}

// fill takes elements as bytes, or truth values as bits: all of them, or one for all.
func (l *Literal) fill(raw []byte, n int64) error {
	if l.DType != ir.Bool {
		size := int64(l.DType.Size())
		l.Data, l.Splat = raw, int64(len(raw)) == size
		if !l.Splat && int64(len(raw)) != n*size {
			return fmt.Errorf("%d bytes for %d elements of %d bytes", len(raw), n, size)
		}
		return nil
	}
	if len(raw) == 1 && (raw[0] == 0 || raw[0] == 0xff) {
		l.Splat, l.Data = true, []byte{raw[0] & 1}
		return nil
	}
	if int64(len(raw)) == n { // newer printers: a byte for each
		l.Data = raw
		for _, b := range raw {
			if b > 1 {
				return fmt.Errorf("a truth value of %#x", b)
			}
		}
		return nil
	}
	if int64(len(raw)) != (n+7)/8 {
		return fmt.Errorf("%d bytes for %d truth values", len(raw), n)
	}
	l.Data = make([]byte, n)
	for i := range l.Data {
		l.Data[i] = raw[i/8] >> (i % 8) & 1
	}
	return nil
}

// nested reads lists of lists that have the shape.
func (p *Parser) nested(l *Literal, shape []int64) {
	if len(shape) == 0 {
		l.Data = p.element(l.Data, l.DType)
		return
	}
	at := p.Pos
	if !p.Expect("[", "before elements") {
		return
	}
	n := int64(0)
	for ; p.Err == nil && !p.Eat("]"); n++ {
		if n > 0 && !p.Expect(",", "between elements") {
			return
		}
		p.nested(l, shape[1:])
	}
	if p.Err == nil && n != shape[0] {
		p.Failf(at, "%d elements in a dimension of %d", n, shape[0])
	}
}

// element reads a number and appends its bytes.
func (p *Parser) element(out []byte, dt ir.DType) []byte {
	p.space()
	at := p.Pos
	b := make([]byte, dt.Size())
	switch {
	case p.Keyword("true"):
		dtype.StoreInt(dt, b, 1)
		if dt != ir.Bool {
			dtype.StoreInt(dt, b, -1)
		}
		return append(out, b...)
	case p.Keyword("false"):
		return append(out, b...)
	}
	t := p.number()
	if t == "" {
		p.Failf(at, "expected an element, found %s", p.found())
		return out
	}
	if err := StoreElement(b, dt, t); err != nil {
		p.Failf(at, "%v", err)
	}
	return append(out, b...)
}

// StoreElement writes the number that a text spells: floats in hexadecimal are their bits.
func StoreElement(b []byte, dt ir.DType, t string) error {
	bits := dt.Size() * 8
	if dt.IsFloat() {
		if strings.HasPrefix(t, "0x") {
			n, err := strconv.ParseUint(t, 0, bits)
			if err != nil {
				return fmt.Errorf("%s is not the bits of %s", t, dt)
			}
			var w [8]byte
			binary.LittleEndian.PutUint64(w[:], n)
			copy(b, w[:])
			return nil
		}
		return storeFloat(b, dt, t)
	}
	n, err := strconv.ParseInt(t, IntBase(t), 64)
	if err != nil {
		u, uerr := strconv.ParseUint(t, IntBase(t), 64)
		if uerr != nil {
			return fmt.Errorf("%s is no number of type %s", t, dt)
		}
		n = int64(u)
		if bits < 64 {
			return fmt.Errorf("%s is beyond %s", t, dt)
		}
	}
	if dt == ir.Bool {
		n &= 1
	} else if bits < 64 && (n >= 1<<bits || n < -(1<<(bits-1))) {
		return fmt.Errorf("%s is beyond %s", t, dt)
	}
	dtype.StoreInt(dt, b, n)
	return nil
}

// storeFloat rounds a decimal number to dt once.
func storeFloat(b []byte, dt ir.DType, t string) error {
	f, err := strconv.ParseFloat(t, 64)
	if err != nil && !math.IsInf(f, 0) {
		return fmt.Errorf("%s is no number", t)
	}
	if g := float32(f); dt.Size() < 4 && float64(g) != f && !math.IsInf(f, 0) {
		// Round to odd on the way, so that the second rounding sees what the first left out.
		if math.Abs(float64(g)) > math.Abs(f) {
			g = math.Float32frombits(math.Float32bits(g) - 1)
		}
		f = float64(math.Float32frombits(math.Float32bits(g) | 1))
	}
	dtype.StoreFloat(dt, b, f)
	return nil
}

// ElementName is MLIR's name of an element type.
func ElementName(dt ir.DType) string {
	switch {
	case dt == ir.Bool:
		return "i1"
	case dt.IsUnsigned():
		return "ui" + dt.String()[1:]
	case dt.IsFloat8():
		return "f" + strings.ToUpper(dt.String()[1:])
	}
	return dt.String()
}
