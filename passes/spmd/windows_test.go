package spmd

import (
	"maps"
	"slices"

	"github.com/seed-ee968945/concert/internal/window"
	"github.com/seed-ee968945/concert/ir"
)

// This file has what random programs do with rows and windows.

// slid are windows that slide along dimensions, and rows that move.
func (r *random) slid(k int, x *ir.Value, s []int64, d int64) []*ir.Value {
	fb := r.fb
	switch k {
	case 31: // every second or third row
		lo := r.Int64N(s[d])
		return fb.Op(ir.OpSlice, nil, ir.A("dim", d, "start", lo, "end", lo+1+r.Int64N(s[d]-lo), "step", 1+r.Int64N(3)), []*ir.Value{x})
	case 32: // a roll
		if s[d] > 1 {
			lo := 1 + r.Int64N(s[d]-1)
			return []*ir.Value{fb.Cat(d, fb.Slice(x, d, lo, s[d]), fb.Slice(x, d, 0, lo))}
		}
	case 33: // differences
		if s[d] > 1 {
			return []*ir.Value{fb.Binary(ir.OpSub, fb.Slice(x, d, 1, s[d]), fb.Slice(x, d, 0, s[d]-1))}
		}
	case 34:
		sizes := slices.Repeat([]int64{1}, len(s))
		sizes[d] += r.Int64N(3)
		hows := []string{"min", "max", "argmax", "sum", "product"}
		if x.Type().DType() == ir.Bool {
			hows = hows[:2]
		}
		if a, ok := r.window(sizes, s); ok {
			a["window"], a["reduce"] = sizes, hows[r.IntN(len(hows))]
			return r.windowed(ir.OpReduceWindow, a, x)
		}
	case 35:
		if len(s) < 3 {
			return nil
		}
		w := []int64{2, s[1]}
		for range s[2:] {
			w = append(w, 1+r.Int64N(4))
		}
		n := int64(1)
		for _, k := range w {
			n *= k
		}
		y := fb.View(fb.Cumsum(fb.Full(ir.Tensor(ir.F32, n), 0.125), 0), ir.Tensor(ir.F32, w...).Shape())
		r.annotate(y)
		if z := r.pick(func(t []int64, dt ir.DType) bool { return dt == ir.F32 && len(t) == len(s) && t[1] == s[1] }); z != nil && r.IntN(2) == 0 {
			y, w = z, shapeOf(z)
		}
		if a, ok := r.window(w[2:], s[2:]); ok {
			return r.windowed(ir.OpConvolution, a, x, y)
		}
	}
	return nil
}

// ordered are rows in another order, and what accumulates along them.
func (r *random) ordered(k int, x *ir.Value, s []int64, d int64) []*ir.Value {
	fb, n := r.fb, s[d]
	switch k {
	case 40:
		first, step := n-1, int64(-1)
		if r.IntN(3) == 0 {
			first, step = r.Int64N(n), []int64{1, -1, 2, -2}[r.IntN(4)]
		}
		count := first/max(-step, 1) + 1
		if step > 0 {
			count = (n-1-first)/step + 1
		}
		at := fb.Op(ir.OpIota, nil, ir.A("start", first, "step", step), nil, ir.Tensor(ir.I64, 1+r.Int64N(count)))
		return []*ir.Value{fb.Index(x, []int64{d}, at[0])}
	case 41:
		sizes, padding := slices.Repeat([]int64{1}, len(s)), make([]int64, 2*len(s))
		for e := range s {
			if e == int(d) || r.IntN(4) == 0 {
				sizes[e], padding[2*e+r.IntN(2)] = s[e], s[e]-1
			}
		}
		how := []string{"min", "max", "sum", "product"}[r.IntN(4)]
		return fb.Op(ir.OpReduceWindow, nil, ir.A("window", sizes, window.PaddingKey, padding, "reduce", how), []*ir.Value{x})
	}
	return nil
}

// typed are rows and windows of other types, and numbers that are infinite or none.
func (r *random) typed(k int, x *ir.Value, s []int64, d int64) (out []*ir.Value) {
	fb := r.fb
	if k == 36 {
		return []*ir.Value{fb.Unary([]ir.Op{ir.OpLog, ir.OpReciprocal}[r.IntN(2)], fb.Unary(ir.OpRelu, x))}
	}
	if k < 37 || k > 39 || !r.exact[x] {
		return nil
	}
	dt := []ir.DType{ir.I32, ir.I64, ir.I8, ir.U8, ir.U64, ir.Bool}[r.IntN(6)]
	y := fb.Scalar(ir.OpMul, x, 3)
	switch {
	case dt == ir.Bool:
		y = fb.Scalar(ir.OpLt, x, 0.25)
	case dt.IsUnsigned():
		y = fb.Convert(fb.Unary(ir.OpAbs, y), dt)
	default:
		y = fb.Convert(y, dt)
	}
	r.annotate(y)
	for range 1 + r.IntN(2) {
		k := []int{21, 31, 32, 34, 34, 40, 41, 42, 42, 43, 43, 22, 24}[r.IntN(13)]
		l := slices.Concat(r.slid(k, y, shapeOf(y), d), r.ordered(k, y, shapeOf(y), d), r.counted(k, y, shapeOf(y), d), r.indexed(k, y, shapeOf(y), d))
		if k == 21 {
			l = r.best(y, shapeOf(y), d)
		}
		for _, v := range l {
			y, out = v, append(out, v)
			r.annotate(y)
		}
		if y.Type().DType() != dt || y.Type().Rank() != len(s) { // places
			break
		}
	}
	return out
}

// counted are sums and products of integers, which may not fit into their type, and what is made of them.
func (r *random) counted(k int, x *ir.Value, s []int64, d int64) (out []*ir.Value) {
	dt := x.Type().DType()
	to := []ir.DType{dt, dt, ir.I64, ir.I32}[r.IntN(4)]
	add := func(o ir.Op, a ir.Attrs, shape []int64, dt ir.DType, args ...*ir.Value) {
		v := r.fb.Op(o, nil, a, args, ir.Tensor(dt, shape...))[0]
		r.annotate(v)
		out = append(out, v)
	}
	switch {
	case k == 42:
		op := []ir.Op{ir.OpSum, ir.OpSum, ir.OpProd, ir.OpAmax, ir.OpAmin, ir.OpCumsum}[r.IntN(6)]
		if op == ir.OpAmax || op == ir.OpAmin || dt == ir.Bool && to != ir.I64 {
			to = dt
		}
		if dt != ir.Bool && r.IntN(2) == 0 {
			add(ir.OpMul, ir.A("scalar", 1000000007), s, dt, x)
			x = out[0]
		}
		if op == ir.OpCumsum {
			if dt != ir.Bool {
				add(op, ir.A("dim", d), s, dt, x)
			}
			break
		}
		if dt == ir.Bool && (op == ir.OpSum || op == ir.OpProd) {
			to = ir.I64
		}
		add(op, ir.A("dims", []int64{d}, "keepdim", true), replaced(s, d, 1), to, x)
		if to == ir.Bool {
			break
		}
		for range r.IntN(4) {
			from := out[len(out)-1]
			to = []ir.DType{to, to, ir.I64, ir.I32}[r.IntN(4)]
			switch t := shapeOf(from); r.IntN(6) {
			case 0:
				add(ir.OpMul, ir.A("scalar", 3), t, to, from)
			case 1:
				add(ir.OpMul, ir.A("scalar", 0.5), t, to, from)
			case 2:
				add(ir.OpDiv, ir.A("scalar", 3), t, to, from)
			case 3:
				add(ir.OpSum, ir.A("dims", []int64{(d + 1) % int64(len(s))}, "keepdim", true), replaced(t, (d+1)%int64(len(s)), 1), to, from)
			case 4:
				add(ir.OpNeg, nil, t, from.Type().DType(), from)
			case 5:
				if slices.Equal(t, shapeOf(out[0])) && from.Type().DType() == out[0].Type().DType() {
					add(ir.OpSub, ir.A("alpha", []any{2, 0.5}[r.IntN(2)]), t, to, from, out[0])
				}
			}
		}
	case k == 43 && dt != ir.Bool:
		add(ir.OpMul, ir.A("scalar", []any{7, 100000007, 0.5}[r.IntN(3)]), s, dt, x)
	}
	return out
}

func replaced(s []int64, d, n int64) []int64 {
	s = slices.Clone(s)
	s[d] = n
	return s
}

func (r *random) windowed(o ir.Op, a map[string]any, args ...*ir.Value) []*ir.Value {
	var l []any
	for _, key := range slices.Sorted(maps.Keys(a)) {
		l = append(l, key, a[key])
	}
	return r.fb.Op(o, nil, ir.A(l...), args)
}

// window are the attributes of one; false if it stands nowhere.
func (r *random) window(sizes, over []int64) (map[string]any, bool) {
	var lists [5][]int64
	for range sizes {
		lists[0] = append(lists[0], 1+r.Int64N(2))
		lists[1] = append(lists[1], r.Int64N(4)-1, r.Int64N(4)-1)
		lists[2] = append(lists[2], 1+r.Int64N(4)/3)
		lists[3] = append(lists[3], 1+r.Int64N(4)/3)
		lists[4] = append(lists[4], r.Int64N(4)/3)
	}
	a := map[string]any{}
	for i, key := range []string{window.StridesKey, window.PaddingKey, window.BaseKey, window.DilationKey, window.ReverseKey} {
		if r.IntN(3) > 0 {
			a[key] = lists[i]
		}
	}
	dims, err := window.Parse(func(key string) []int64 { l, _ := a[key].([]int64); return l }, sizes)
	if err != nil {
		return nil, false
	}
	for i, d := range dims {
		if n := d.Count(over[i]); n < 1 || n > 20 {
			return nil, false
		}
	}
	return a, true
}
