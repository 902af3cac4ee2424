package hostops

import (
	"slices"

	"github.com/seed-ee968945/concert/internal/attr"
)

// The readers below note the first attribute of a wrong kind in c.bad, so that a
// kernel can read all of its attributes and check once. An attribute of a wrong
// kind must not silently become its default.

func (c *call) wrongKind(key, want string, v attr.Value) {
	if c.bad == nil {
		c.bad = c.fail(ErrAttr, "%s=%v is of kind %v, want %s", key, v, v.Kind(), want)
	}
}

// attrOf reads an attribute of a kind; def if it is absent.
func attrOf[T any](c *call, key string, def T, kind string, as func(attr.Value) (T, bool)) T {
	v, ok := c.attrs.Get(key)
	if !ok {
		return def
	}
	t, ok := as(v)
	if !ok {
		c.wrongKind(key, kind, v)
	}
	return t
}

func (c *call) intAttr(key string, def int64) int64 {
	return attrOf(c, key, def, "int", attr.Value.AsInt)
}

func (c *call) boolAttr(key string, def bool) bool {
	return attrOf(c, key, def, "bool", attr.Value.AsBool)
}

func (c *call) strAttr(key, def string) string {
	return attrOf(c, key, def, "string", attr.Value.AsString)
}

func (c *call) intsAttr(key string) []int64 {
	return attrOf(c, key, nil, "ints", attr.Value.AsInts)
}

// numAttr reads an int, float or bool attribute; it is not set if it is absent.
func (c *call) numAttr(key string) attr.Number {
	n := c.attrs.Number(key)
	if v, ok := c.attrs.Get(key); ok && !n.Set {
		c.wrongKind(key, "int, float or bool", v)
	}
	return n
}

// as converts n to the domain T.
func as[T num](n attr.Number) T {
	if isInteger(T(0)) {
		return T(n.I)
	}
	return T(n.F)
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
