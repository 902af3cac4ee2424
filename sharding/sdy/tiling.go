package sdy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/intmath"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// tiling is an old sharding: of each dimension of a tensor, how it is cut.
type tiling struct{ dims []cutting }

// cutting are the digits of a device's number that say which tile it has, from the outermost.
type cutting struct {
	digits []digit
	open   bool // to more
}

// digit is number/stride mod size.
type digit struct{ size, stride int64 }

// sharding is the tiling on a mesh that is fine enough.
func (t *tiling) sharding(mesh []axis) string {
	dims := make([]string, len(t.dims))
	for i, d := range t.dims {
		var l []string
		for _, f := range d.digits {
			for _, a := range mesh {
				if a.stride >= f.stride && a.stride < f.stride*f.size {
					l = append(l, strconv.Quote(a.name))
				}
			}
		}
		if d.open {
			l = append(l, "?")
		}
		dims[i] = "{" + strings.Join(l, ", ") + "}"
	}
	return "@" + oldMesh + ", [" + strings.Join(dims, ", ") + "]"
}

// open leaves the dimensions to propagation that a call says to be unspecified.
func (t *tiling) open(m *mlir.Module, config mlir.Attr) error {
	_, list, ok := strings.Cut(config.Text, "unspecified_dims=[")
	if !ok {
		return nil
	}
	list, _, _ = strings.Cut(list, "]")
	for _, s := range strings.Split(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 0 || n >= len(t.dims) {
			return m.ErrorAt(nil, config.At, "unspecified_dims=[%s]: want dimensions of %d", list, len(t.dims))
		}
		t.dims[n].open = true
	}
	return nil
}

// tilings reads the text of an attribute, which has a sharding for each of some types; nil where
// it says nothing, as of one device.
func (r *rewriter) tilings(a mlir.Attr, types []mlir.Type) ([]*tiling, error) {
	text := strings.TrimSpace(a.Text)
	inner, ok := strings.CutPrefix(text, "{")
	inner, ok2 := strings.CutSuffix(inner, "}")
	if !ok || !ok2 {
		return nil, r.m.ErrorAt(nil, a.At, "mhlo.sharding %q: want {replicated} or {devices=[...]...}", a.Text)
	}
	list := []string{inner}
	if strings.HasPrefix(strings.TrimSpace(inner), "{") { // of a tuple
		list = elementsOf(inner)
	}
	if len(list) != len(types) {
		return nil, r.m.ErrorAt(nil, a.At, "mhlo.sharding %q: %d shardings for %d values", a.Text, len(list), len(types))
	}
	var out []*tiling
	for i, s := range list {
		t, known, err := r.tiling(s, types[i])
		if err != nil {
			return nil, r.m.ErrorAt(nil, a.At, "mhlo.sharding %q: %v", a.Text, err)
		}
		if !known || r.world == 1 {
			if len(list) > 1 && r.world > 1 {
				return nil, r.m.ErrorAt(nil, a.At, "op not supported: mhlo.sharding %q of some values of several", a.Text)
			}
			return nil, nil
		}
		out = append(out, t)
	}
	return out, nil
}

// elementsOf are the texts in braces of a list.
func elementsOf(s string) []string {
	var out []string
	depth, start := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '{':
			if depth++; depth == 1 {
				start = i + 1
			}
		case '}':
			if depth--; depth == 0 {
				out = append(out, s[start:i])
			}
		}
	}
	return out
}

// tiling reads one sharding, without its braces; false if it leaves the value to propagation.
func (r *rewriter) tiling(s string, typ mlir.Type) (*tiling, bool, error) {
	s, _, _ = strings.Cut(s, "metadata=")
	s = strings.TrimSpace(s)
	t := &tiling{dims: make([]cutting, len(typ.Shape))}
	switch {
	case s == "replicated":
		return t, true, nil
	case s == "" || s == "unknown" || strings.HasPrefix(s, "unknown "):
		return nil, false, nil
	case strings.HasPrefix(s, "maximal device=") && r.world == 1:
		return nil, false, nil
	case !strings.HasPrefix(s, "devices=["):
		return nil, false, fmt.Errorf("op not supported: want replicated or devices=[...]")
	}
	tiles, rest, ok := strings.Cut(s[len("devices=["):], "]")
	n, err := numbers(tiles)
	if !ok {
		err = fmt.Errorf("a list without an end")
	}
	if err == nil && (slices.Contains(n, 0) || intmath.Product(n) > ir.MaxWorld) {
		err = fmt.Errorf("devices=[%s]: want 1 to %d devices", tiles, ir.MaxWorld)
	}
	if err != nil {
		return nil, false, err
	}
	if r.world == 1 { // a text that says nothing else of how many there are
		r.world = intmath.Product(n)
	}
	if intmath.Product(n) != r.world {
		return nil, false, fmt.Errorf("it is of %d devices, the program of %d", intmath.Product(n), r.world)
	}
	digits, rest, err := devices(rest, r.world)
	if err != nil {
		return nil, false, err
	}
	last := 0 // dimensions that no dimension of the tensor has
	switch rest = strings.ReplaceAll(rest, " ", ""); rest {
	case "":
	case "last_tile_dim_replicate", "last_tile_dims={replicated}":
		last = 1
	default:
		return nil, false, fmt.Errorf("op not supported: %s", rest)
	}
	if len(n) != len(typ.Shape)+last {
		return nil, false, fmt.Errorf("it is of %d dimensions, the type is %s", len(n)-last, typ)
	}
	for d, size := range n {
		var own []digit
		if own, digits, err = split(digits, size); err != nil {
			return nil, false, err
		}
		if d < len(t.dims) {
			t.dims[d].digits = own
		}
	}
	return t, true, nil
}

// split takes so many tiles from the outermost digits.
func split(digits []digit, n int64) (own, rest []digit, err error) {
	for n > 1 {
		if len(digits) == 0 {
			return nil, nil, fmt.Errorf("it has fewer devices than tiles")
		}
		f := digits[0]
		digits = digits[1:]
		if f.size > n {
			if f.size%n != 0 {
				return nil, nil, fmt.Errorf("op not supported: %d tiles of %d devices in a row", n, f.size)
			}
			inner := digit{f.size / n, f.stride}
			f = digit{n, f.stride * inner.size}
			digits = append([]digit{inner}, digits...)
		}
		if n%f.size != 0 {
			return nil, nil, fmt.Errorf("op not supported: %d tiles of %d devices in a row", n, f.size)
		}
		n /= f.size
		own = append(own, f)
	}
	return own, digits, nil
}

// numbers reads 2,4,1.
func numbers(s string) ([]int64, error) {
	var out []int64
	total := int64(1)
	for _, x := range strings.Split(s, ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(x), 10, 32)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%q is no list of numbers", s)
		}
		if total *= max(n, 1); total > 1<<30 {
			return nil, fmt.Errorf("%q is too much", s)
		}
		out = append(out, n)
	}
	return out, nil
}

// devices are the digits of the device of each tile, tiles in row-major order: of
// <=[4,2]T(1,0), or of a list of all.
func devices(s string, world int64) (digits []digit, rest string, err error) {
	if after, ok := strings.CutPrefix(s, "<=["); ok {
		list, rest, ended := strings.Cut(after, "]")
		dims, err := numbers(list)
		if err != nil || !ended || intmath.Product(dims) != world {
			return nil, "", fmt.Errorf("<=[%s] is not of %d devices", list, world)
		}
		strides := make([]int64, len(dims))
		step := int64(1)
		for i, n := range slices.Backward(dims) {
			strides[i], step = step, step*n
		}
		order := make([]int64, len(dims))
		for i := range order {
			order[i] = int64(i)
		}
		if after, ok := strings.CutPrefix(rest, "T("); ok {
			list, rest, _ = strings.Cut(after, ")")
			if order, err = numbers(list); err != nil {
				return nil, "", err
			}
			sorted := slices.Sorted(slices.Values(order))
			for i := range dims {
				if len(sorted) != len(dims) || sorted[i] != int64(i) {
					return nil, "", fmt.Errorf("T(%s) is no order of %d dimensions", list, len(dims))
				}
			}
		}
		for _, i := range order {
			if dims[i] > 1 {
				digits = append(digits, digit{dims[i], strides[i]})
			}
		}
		return digits, rest, nil
	}
	list, rest, _ := strings.Cut(strings.TrimSpace(s), " ")
	all, err := numbers(list)
	if err != nil || int64(len(all)) != world {
		return nil, "", fmt.Errorf("%q is not a list of %d devices", list, world)
	}
	digits, ok := regular(all)
	if !ok {
		return nil, "", fmt.Errorf("op not supported: devices in an order that no mesh has")
	}
	return digits, rest, nil
}

// regular are the digits of a list of all devices, from the innermost one on.
func regular(l []int64) (digits []digit, ok bool) {
	for at := 1; at < len(l); {
		stride := l[at] - l[0]
		n := 1
		for n*at < len(l) && l[n*at] == l[0]+int64(n)*stride {
			n++
		}
		for len(l)%(at*n) != 0 {
			n--
		}
		if stride < 1 || n < 2 {
			return nil, false
		}
		digits = append([]digit{{int64(n), stride}}, digits...)
		at *= n
	}
	for i, want := range l {
		got, rest := int64(0), int64(i)
		for _, d := range slices.Backward(digits) {
			got, rest = got+rest%d.size*d.stride, rest/d.size
		}
		if got != want {
			return nil, false
		}
	}
	seen := slices.Sorted(slices.Values(l))
	for i, n := range seen {
		if n != int64(i) {
			return nil, false
		}
	}
	return digits, true
}
