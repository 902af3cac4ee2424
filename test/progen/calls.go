package progen

import (
	"context"

	"github.com/seed-ee968945/concert/internal/dtype"
	"github.com/seed-ee968945/concert/internal/rowmajor"
	"github.com/seed-ee968945/concert/interp"
	"github.com/seed-ee968945/concert/ir"
	rt "github.com/seed-ee968945/concert/runtime"
)

// change is what an opaque call does to an element of a type.
type change func(dt dtype.DType, b []byte)

// inc adds 1; integers wrap, true stays.
func inc(dt dtype.DType, b []byte) {
	switch {
	case dt.IsFloat():
		dtype.StoreFloat(dt, b, dtype.LoadFloat(dt, b)+1)
	case dt == dtype.Bool:
		b[0] = 1
	default:
		dtype.StoreInt(dt, b, dtype.LoadInt(dt, b)+1)
	}
}

// flip changes the sign, and false to true.
func flip(dt dtype.DType, b []byte) {
	switch {
	case dt.IsFloat():
		dtype.StoreFloat(dt, b, -dtype.LoadFloat(dt, b))
	case dt == dtype.Bool:
		b[0] ^= 1
	default:
		dtype.StoreInt(dt, b, -dtype.LoadInt(dt, b))
	}
}

// double doubles; true stays.
func double(dt dtype.DType, b []byte) {
	switch {
	case dt.IsFloat():
		dtype.StoreFloat(dt, b, 2*dtype.LoadFloat(dt, b))
	case dt != dtype.Bool:
		dtype.StoreInt(dt, b, 2*dtype.LoadInt(dt, b))
	}
}

// addto adds an element to another.
func addto(dt dtype.DType, to, from []byte) {
	switch {
	case dt.IsFloat():
		dtype.StoreFloat(dt, to, dtype.LoadFloat(dt, to)+dtype.LoadFloat(dt, from))
	case dt == dtype.Bool:
		to[0] |= from[0]
	default:
		dtype.StoreInt(dt, to, dtype.LoadInt(dt, to)+dtype.LoadInt(dt, from))
	}
}

// Calls are the opaque calls of random programs for the interpreter:
//
//	inc      adds 1 to every operand in place
//	flip     changes the sign of every operand in place
//	addto    adds operand 1 to operand 0 in place
//	twice    gives two times its operand
//	view     gives its operand under another name
//	barrier  does nothing, and communicates
func Calls() map[string]interp.CallFunc {
	each := func(f change) interp.CallFunc {
		return interp.PerRank(func(_ context.Context, _ *ir.Node, _ int, args, _ []interp.Tensor) error {
			for _, a := range args {
				size := a.DType.Size()
				for i := 0; i < len(a.Data); i += size {
					f(a.DType, a.Data[i:i+size])
				}
			}
			return nil
		})
	}
	nothing := func(context.Context, *interp.Call) error { return nil }
	return map[string]interp.CallFunc{
		"inc": each(inc), "flip": each(flip), "view": nothing, "barrier": nothing,
		"addto": interp.PerRank(func(_ context.Context, _ *ir.Node, _ int, args, _ []interp.Tensor) error {
			size := args[0].DType.Size()
			for i := 0; i < len(args[0].Data); i += size {
				addto(args[0].DType, args[0].Data[i:i+size], args[1].Data[i:i+size])
			}
			return nil
		}),
		"twice": interp.PerRank(func(_ context.Context, _ *ir.Node, _ int, args, results []interp.Tensor) error {
			size := args[0].DType.Size()
			copy(results[0].Data, args[0].Data)
			for i := 0; i < len(args[0].Data); i += size {
				double(args[0].DType, results[0].Data[i:i+size])
			}
			return nil
		}),
	}
}

// Funcs are the same calls for devices whose memory the host sees.
func Funcs() map[string]rt.Func {
	each := func(f change) rt.Func {
		return rt.Func{Host: func(c *rt.FuncCall) error {
			for _, t := range c.Ins {
				places(t.Tensor, func(_, at int) { f(t.DType, t.Data[at:at+t.DType.Size()]) })
			}
			return nil
		}}
	}
	nothing := rt.Func{Host: func(*rt.FuncCall) error { return nil }}
	return map[string]rt.Func{
		"inc": each(inc), "flip": each(flip), "view": nothing, "barrier": nothing,
		"addto": {Host: func(c *rt.FuncCall) error {
			to, size := c.Ins[0], c.Ins[0].DType.Size()
			from := elements(c.Ins[1])
			places(to.Tensor, func(i, at int) { addto(to.DType, to.Data[at:at+size], from[i*size:(i+1)*size]) })
			return nil
		}},
		"twice": {Host: func(c *rt.FuncCall) error {
			in, out := c.Ins[0], c.Outs[0]
			size, elems := in.DType.Size(), elements(c.Ins[0])
			places(out.Tensor, func(i, at int) {
				double(in.DType, elems[i*size:(i+1)*size])
				copy(out.Data[at:at+size], elems[i*size:(i+1)*size])
			})
			return nil
		}},
	}
}

// elements are the elements of a tensor in row-major order.
func elements(t rt.FuncTensor) []byte {
	size := t.DType.Size()
	out := make([]byte, t.NumElems()*int64(size))
	places(t.Tensor, func(i, at int) { copy(out[i*size:], t.Data[at:at+size]) })
	return out
}

// places calls f with the number of each element, in row-major order, and the byte
// where it begins.
func places(t rt.Tensor, f func(i, at int)) {
	idx, strides := make([]int64, len(t.Shape)), t.Strides
	if strides == nil {
		strides = rowmajor.Strides(t.Shape)
	}
	for i := range int(t.NumElems()) {
		at := int64(0)
		for d, k := range idx {
			at += k * strides[d]
		}
		f(i, int(at)*t.DType.Size())
		for d := len(idx) - 1; d >= 0; d-- {
			if idx[d]++; idx[d] < t.Shape[d] {
				break
			}
			idx[d] = 0
		}
	}
}
