package export

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
)

// exact reports whether a type has a number.
func exact(f float64, dt ir.DType) bool {
	if !dt.IsFloat() {
		return f == math.Trunc(f) && math.Abs(f) < 1<<53
	}
	return dt.Rounded(f) == f
}

// numberText spells a number of a type: floats that are none, or that no short decimal
// tells, as their bits.
func numberText(f float64, dt ir.DType) string {
	if !dt.IsFloat() {
		return wholeText(int64(f), dt)
	}
	b := make([]byte, 8)
	dtype.StoreFloat(dt, b, f)
	return elementText(b, dt)
}

// elementText spells the element that bytes are.
func elementText(b []byte, dt ir.DType) string {
	if !dt.IsFloat() {
		return wholeText(dtype.LoadInt(dt, b), dt)
	}
	f := dtype.LoadFloat(dt, b)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		var w [8]byte
		copy(w[:], b[:dt.Size()])
		return fmt.Sprintf("0x%0*X", 2*dt.Size(), binary.LittleEndian.Uint64(w[:]))
	}
	bits := 64
	if dt == ir.F32 {
		bits = 32
	}
	s := strconv.FormatFloat(f, 'e', -1, bits)
	if m, exp, ok := strings.Cut(s, "e"); ok && !strings.Contains(m, ".") {
		s = m + ".0e" + exp // a number without a point is a whole one
	}
	return s
}

// wholeText spells a whole number, which wraps to the type.
func wholeText(n int64, dt ir.DType) string {
	b := make([]byte, 8)
	dtype.StoreInt(dt, b, n)
	n = dtype.LoadInt(dt, b)
	switch {
	case dt == ir.Bool:
		return strconv.FormatBool(n != 0)
	case dt == ir.U64:
		return strconv.FormatUint(uint64(n), 10)
	}
	return strconv.FormatInt(n, 10)
}

// denseText spells elements in row-major order: one for all, or truth values, as such,
// others as their bytes.
func denseText(data []byte, dt ir.DType, shape []int64) string {
	n := intmath.Product(shape)
	switch {
	case n == 0:
		return ""
	case len(data) == dt.Size():
		return elementText(data, dt)
	case dt != ir.Bool:
		return `"0x` + strings.ToUpper(hex.EncodeToString(data)) + `"`
	}
	var b strings.Builder
	var nest func(shape []int64)
	nest = func(shape []int64) {
		if len(shape) == 0 {
			b.WriteString(elementText(data, dt))
			data = data[1:]
			return
		}
		b.WriteByte('[')
		for i := range shape[0] {
			if i > 0 {
				b.WriteString(", ")
			}
			nest(shape[1:])
		}
		b.WriteByte(']')
	}
	nest(shape)
	return b.String()
}

// quoted is a string as MLIR reads it.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			fmt.Fprintf(&b, "\\%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// quotedSymbol is the name of a function, in quotes unless it is a word.
func quotedSymbol(s string) string {
	if s != "" && s == symbol(s) {
		return s
	}
	return quoted(s)
}
