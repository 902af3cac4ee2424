package hostops

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/internal/dtype"
)

// The readers below note the first attribute of a wrong kind in c.bad, so that a
// kernel can read all of its attributes and check once. An attribute of a wrong
// kind must not silently become its default.

func (c *call) wrongKind(key, want string, v attr.Value) {
	if c.bad == nil {
		c.bad = c.fail(ErrAttr, "%s=%v is of kind %v, want %s", key, v, v.Kind(), want)
	}
}

func (c *call) intAttr(key string, def int64) int64 {
	v, ok := c.attrs.Get(key)
	if !ok {
		return def
	}
	n, ok := v.AsInt()
	if !ok {
		c.wrongKind(key, "int", v)
	}
	return n
}

func (c *call) boolAttr(key string, def bool) bool {
	v, ok := c.attrs.Get(key)
	if !ok {
		return def
	}
	b, ok := v.AsBool()
	if !ok {
		c.wrongKind(key, "bool", v)
	}
	return b
}

func (c *call) strAttr(key, def string) string {
	v, ok := c.attrs.Get(key)
	if !ok {
		return def
	}
	s, ok := v.AsString()
	if !ok {
		c.wrongKind(key, "string", v)
	}
	return s
}

func (c *call) intsAttr(key string) []int64 {
	v, ok := c.attrs.Get(key)
	if !ok {
		return nil
	}
	l, ok := v.AsInts()
	if !ok {
		c.wrongKind(key, "ints", v)
	}
	return l
}

// number is a numeric attribute that remembers whether it was written as a float.
type number struct {
	set     bool
	isFloat bool
	i       int64
	f       float64
}

// numAttr reads an int, float or bool attribute; set is false if it is absent.
func (c *call) numAttr(key string) number {
	v, ok := c.attrs.Get(key)
	if !ok {
		return number{}
	}
	if b, ok := v.AsBool(); ok {
		n := number{set: true}
		if b {
			n.i, n.f = 1, 1
		}
		return n
	}
	f, ok := v.AsFloat()
	if !ok {
		c.wrongKind(key, "int, float or bool", v)
		return number{}
	}
	if i, ok := v.AsInt(); ok {
		return number{set: true, i: i, f: f}
	}
	return number{set: true, isFloat: true, i: dtype.TruncInt64(f), f: f}
}

// or returns n, or the integer def where n is absent.
func (n number) or(def int64) number {
	if n.set {
		return n
	}
	return number{set: true, i: def, f: float64(def)}
}

// as converts n to the domain T.
func as[T num](n number) T {
	if isInteger(T(0)) {
		return T(n.i)
	}
	return T(n.f)
}

// dimAttr reads the attribute dim of a tensor of the given rank; negative dimensions
// count from the end. A tensor of rank 0 is treated as one of rank 1.
func (c *call) dimAttr(def int64, rank int) int {
	d := c.intAttr("dim", def)
	if c.bad != nil {
		return 0
	}
	return c.normDim("dim", d, rank)
}

func (c *call) normDim(key string, d int64, rank int) int {
	r := int64(max(rank, 1))
	if d < -r || d >= r {
		if c.bad == nil {
			c.bad = c.fail(ErrAttr, "%s names dimension %d of a tensor of rank %d", key, d, rank)
		}
		return 0
	}
	if d < 0 {
		d += r
	}
	return int(d)
}

// dimsAttr reads a set of dimensions in ascending order; an absent or empty list
// means all of them.
func (c *call) dimsAttr(key string, rank int) []int {
	list := c.intsAttr(key)
	var dims []int
	if len(list) == 0 {
		for d := range rank {
			dims = append(dims, d)
		}
		return dims
	}
	for _, d := range list {
		n := c.normDim(key, d, rank)
		if c.bad != nil {
			return nil
		}
		if slices.Contains(dims, n) {
			c.bad = c.fail(ErrAttr, "%s names dimension %d twice", key, n)
			return nil
		}
		dims = append(dims, n)
	}
	slices.Sort(dims)
	return dims
}
