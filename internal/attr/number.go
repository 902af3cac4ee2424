package attr

import "github.com/seed-ee968945/concert/internal/dtype"

// Number is a number among attributes. It remembers whether it was written as a float: a float
// makes integers that it meets floats.
type Number struct {
	Set     bool // whether there is one
	IsFloat bool
	I       int64 // of a float truncated towards zero
	F       float64
}

// Number is the int, float or bool of a key, which counts as 0 or 1. It is not set if there
// is none.
func (l List) Number(key string) Number {
	v, _ := l.Get(key)
	if v.kind == KindInt || v.kind == KindBool {
		return Number{}.Or(int64(v.num))
	}
	f, ok := v.AsFloat()
	return Number{Set: ok, IsFloat: ok, I: dtype.TruncInt64(f), F: f}
}

// Or returns n, or the integer def where n is not set.
func (n Number) Or(def int64) Number {
	if n.Set {
		return n
	}
	return Number{Set: true, I: def, F: float64(def)}
}
