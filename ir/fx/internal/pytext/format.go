package pytext

import (
	"math"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
)

// FormatTuple writes a tuple of texts.
func FormatTuple(items ...string) string {
	if len(items) == 1 {
		return "(" + items[0] + ",)"
	}
	return "(" + strings.Join(items, ", ") + ")"
}

// FormatList writes a list of texts.
func FormatList(items []string) string { return "[" + strings.Join(items, ", ") + "]" }

// FormatInts writes integers between commas.
func FormatInts(n ...int64) string {
	parts := make([]string, len(n))
	for i, x := range n {
		parts[i] = strconv.FormatInt(x, 10)
	}
	return strings.Join(parts, ", ")
}

// FormatBool writes a truth value.
func FormatBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

// Quote writes a string.
func Quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`).Replace(s) + "'"
}

// FormatNumber writes a number attribute as Python does.
func FormatNumber(v attr.Value) string {
	if n, ok := v.AsInt(); ok {
		return strconv.FormatInt(n, 10)
	}
	f, _ := v.AsFloat()
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	return string(AppendFloat(nil, f))
}

// Ident turns a name into one that Python text reads as a node.
func Ident(s string) string {
	b := []byte(s)
	for i, c := range b {
		if !NameByte(c) {
			b[i] = '_'
		}
	}
	switch s = string(b); {
	case s == "" || s[0] >= '0' && s[0] <= '9':
		return "_" + s
	case s == "None" || s == "True" || s == "False" || s == "inf" || s == "nan":
		return s + "_"
	}
	return s
}

// AppendFloat writes a float as Python does, always with a point or exponent.
func AppendFloat(b []byte, f float64) []byte {
	n := len(b)
	b = strconv.AppendFloat(b, f, 'g', -1, 64)
	for _, c := range b[n:] {
		if c == '.' || c == 'e' {
			return b
		}
	}
	return append(b, ".0"...)
}
