// Package attr holds the typed attributes of an operation: a small ordered list
// of named constants with one text form.
//
// The IR stores them on nodes, the lowered program on launches, and the host
// kernels read them; with one shared type an attribute survives lowering
// without translation. The text form of a list is
//
//	{causal=true, dims=[0, 2], dtype=bf16, other=1e-05, root=0, target="relu"}
//
// with keys in ascending order. Floats always carry a '.', an exponent, "inf" or
// "nan", so that text preserves the kind; printing and parsing are exact inverses.
package attr

import (
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/dtype"
)

// Kind is the kind of a Value.
type Kind uint8

// The kinds of attribute values.
const (
	KindInvalid Kind = iota
	KindInt          // int64
	KindFloat        // float64
	KindBool         // true or false
	KindString       // quoted text
	KindDType        // an element type
	KindInts         // list of int64, may be empty
	KindStrings      // list of quoted text, at least one
)

// String returns the name of the kind as error messages spell it.
func (k Kind) String() string {
	return [...]string{"invalid", "int", "float", "bool", "string", "dtype", "ints", "strings"}[k]
}

// Value is one immutable attribute value. The zero Value is invalid.
type Value struct {
	kind Kind
	num  uint64 // int64, float bits, bool or dtype
	str  string
	ints []int64
	strs []string
}

// Int returns an integer value.
func Int(v int64) Value { return Value{kind: KindInt, num: uint64(v)} }

// Float returns a floating-point value.
func Float(v float64) Value { return Value{kind: KindFloat, num: math.Float64bits(v)} }

// Bool returns a truth value.
func Bool(v bool) Value {
	if v {
		return Value{kind: KindBool, num: 1}
	}
	return Value{kind: KindBool}
}

// String returns a text value.
func String(v string) Value { return Value{kind: KindString, str: v} }

// DType returns an element-type value.
func DType(v dtype.DType) Value { return Value{kind: KindDType, num: uint64(v)} }

// Ints returns an integer-list value; it keeps a copy.
func Ints(v ...int64) Value { return Value{kind: KindInts, ints: slices.Clone(v)} }

// Strings returns a text-list value; it keeps a copy. An empty list prints as [] and reads back as empty Ints.
func Strings(v ...string) Value { return Value{kind: KindStrings, strs: slices.Clone(v)} }

// Kind returns the kind of v.
func (v Value) Kind() Kind { return v.kind }

// AsInt returns the integer, or false if v is of another kind.
func (v Value) AsInt() (int64, bool) { return int64(v.num), v.kind == KindInt }

// AsFloat returns the number of a float or an int value.
func (v Value) AsFloat() (float64, bool) {
	switch v.kind {
	case KindFloat:
		return math.Float64frombits(v.num), true
	case KindInt:
		return float64(int64(v.num)), true
	}
	return 0, false
}

// AsBool returns the truth value.
func (v Value) AsBool() (bool, bool) { return v.num != 0, v.kind == KindBool }

// AsString returns the text.
func (v Value) AsString() (string, bool) { return v.str, v.kind == KindString }

// AsDType returns the element type.
func (v Value) AsDType() (dtype.DType, bool) { return dtype.DType(v.num), v.kind == KindDType }

// AsInts returns the list; the caller must not change it.
func (v Value) AsInts() ([]int64, bool) { return v.ints, v.kind == KindInts }

// AsStrings returns the list; the caller must not change it.
func (v Value) AsStrings() ([]string, bool) { return v.strs, v.kind == KindStrings }

// Equal reports whether two values are of one kind with the same content. NaN equals NaN.
func (v Value) Equal(w Value) bool {
	return v.kind == w.kind && v.num == w.num && v.str == w.str && slices.Equal(v.ints, w.ints) && slices.Equal(v.strs, w.strs)
}

// AppendText appends the text form of v.
func (v Value) AppendText(b []byte) []byte {
	switch v.kind {
	case KindInt:
		return strconv.AppendInt(b, int64(v.num), 10)
	case KindFloat:
		return appendFloat(b, math.Float64frombits(v.num))
	case KindBool:
		return strconv.AppendBool(b, v.num != 0)
	case KindString:
		return strconv.AppendQuote(b, v.str)
	case KindDType:
		return append(b, dtype.DType(v.num).String()...)
	case KindInts:
		b = append(b, '[')
		for i, n := range v.ints {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = strconv.AppendInt(b, n, 10)
		}
		return append(b, ']')
	case KindStrings:
		b = append(b, '[')
		for i, s := range v.strs {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = strconv.AppendQuote(b, s)
		}
		return append(b, ']')
	}
	return append(b, "<invalid>"...)
}

func appendFloat(b []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, "nan"...)
	case math.IsInf(f, 1):
		return append(b, "inf"...)
	case math.IsInf(f, -1):
		return append(b, "-inf"...)
	}
	n := len(b)
	b = strconv.AppendFloat(b, f, 'g', -1, 64)
	if !strings.ContainsAny(string(b[n:]), ".e") {
		b = append(b, ".0"...)
	}
	return b
}

// String returns the text form.
func (v Value) String() string { return string(v.AppendText(nil)) }

// Attr is one named value.
type Attr struct {
	Key string
	Val Value
}

// List is a set of attributes in ascending order of key, without repeated keys.
// A List is never changed in place: With and Without return new lists, so lists
// can be shared between nodes.
type List []Attr

// Make builds a list from attributes in any order; of equal keys the last wins.
func Make(as ...Attr) List {
	var l List
	for _, a := range as {
		l = l.With(a.Key, a.Val)
	}
	return l
}

// Of builds a list from alternating names and values: an int or int64, a float64, a bool,
// a string, a dtype.DType, a []int64 or []int, a []string or a Value. Anything else, or an
// odd count, makes a list whose only attribute is Malformed and says what is wrong.
func Of(kv ...any) List {
	bad := func(what string) List {
		return Make(Attr{Key: Malformed, Val: String(what)})
	}
	if len(kv)%2 != 0 {
		return bad("odd number of names and values")
	}
	var l List
	for i := 0; i < len(kv); i += 2 {
		key, ok := kv[i].(string)
		if !ok {
			return bad(fmt.Sprintf("name %d is a %T", i/2, kv[i]))
		}
		var v Value
		switch x := kv[i+1].(type) {
		case int:
			v = Int(int64(x))
		case int64:
			v = Int(x)
		case float64:
			v = Float(x)
		case bool:
			v = Bool(x)
		case string:
			v = String(x)
		case dtype.DType:
			v = DType(x)
		case []int64:
			v = Ints(x...)
		case []int:
			ints := make([]int64, len(x))
			for j, n := range x {
				ints[j] = int64(n)
			}
			v = Ints(ints...)
		case []string:
			v = Strings(x...)
		case Value:
			v = x
		default:
			return bad(fmt.Sprintf("value of %s is a %T", key, x))
		}
		l = l.With(key, v)
	}
	return l
}

// Malformed is the name of the only attribute of a list that Of could not build. No
// operation has it, so that whoever checks attributes reports it.
const Malformed = "!malformed"

// Get returns the value under key.
func (l List) Get(key string) (Value, bool) {
	i, ok := l.search(key)
	if !ok {
		return Value{}, false
	}
	return l[i].Val, true
}

// Int returns the integer under key, or def if key is absent or of another kind.
func (l List) Int(key string, def int64) int64 {
	if v, ok := l.Get(key); ok {
		if n, ok := v.AsInt(); ok {
			return n
		}
	}
	return def
}

// Float returns the number under key, or def.
func (l List) Float(key string, def float64) float64 {
	if v, ok := l.Get(key); ok {
		if n, ok := v.AsFloat(); ok {
			return n
		}
	}
	return def
}

// Bool returns the truth value under key, or def.
func (l List) Bool(key string, def bool) bool {
	if v, ok := l.Get(key); ok {
		if n, ok := v.AsBool(); ok {
			return n
		}
	}
	return def
}

// Str returns the text under key, or def.
func (l List) Str(key, def string) string {
	if v, ok := l.Get(key); ok {
		if s, ok := v.AsString(); ok {
			return s
		}
	}
	return def
}

// Bytes returns what the text under key stands for in base64, nil if it is absent.
func (l List) Bytes(key string) ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(l.Str(key, ""))
	if err != nil {
		return nil, fmt.Errorf("%s is not base64: %w", key, err)
	}
	return data, nil
}

// Ints returns the list under key, nil if absent. The caller must not change it.
func (l List) Ints(key string) []int64 {
	v, _ := l.Get(key)
	n, _ := v.AsInts()
	return n
}

// Strs returns the text list under key, nil if absent. The caller must not change it.
func (l List) Strs(key string) []string {
	v, _ := l.Get(key)
	n, _ := v.AsStrings()
	return n
}

// Has reports whether key is present.
func (l List) Has(key string) bool { _, ok := l.search(key); return ok }

// With returns a list in which key has value v.
func (l List) With(key string, v Value) List {
	i, ok := l.search(key)
	out := make(List, 0, len(l)+1)
	out = append(out, l[:i]...)
	out = append(out, Attr{key, v})
	if ok {
		i++
	}
	return append(out, l[i:]...)
}

// Without returns a list without key.
func (l List) Without(key string) List {
	i, ok := l.search(key)
	if !ok {
		return l
	}
	return slices.Concat(l[:i], l[i+1:])
}

// Equal reports whether both lists hold the same attributes.
func (l List) Equal(m List) bool {
	return slices.EqualFunc(l, m, func(a, b Attr) bool { return a.Key == b.Key && a.Val.Equal(b.Val) })
}

func (l List) search(key string) (int, bool) {
	return slices.BinarySearchFunc(l, key, func(a Attr, k string) int { return strings.Compare(a.Key, k) })
}

// AppendText appends {k=v, ...}, or nothing for an empty list.
func (l List) AppendText(b []byte) []byte {
	if len(l) == 0 {
		return b
	}
	b = append(b, '{')
	for i, a := range l {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, a.Key...)
		b = append(b, '=')
		b = a.Val.AppendText(b)
	}
	return append(b, '}')
}

// String returns the text form.
func (l List) String() string { return string(l.AppendText(nil)) }
