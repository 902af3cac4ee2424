package stablehlo

import (
	"slices"
	"strconv"

	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/stablehlo/mlir"
)

// This file imports calls of what StableHLO has no operation for and concert has:
// concert.softmax {dim = 1 : i64}, concert.gelu {approximate = true}, and attention, also of
// libraries, as package hlo finds it. Which operands of that are which is said by attributes.
// Heads may stand behind the sequence, as [b, s, h, d], which a view changes.

func softmaxOp(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
	a, ok := o.Attr("dim")
	if !ok {
		return nil, im.errorf("%s without dim", o.Name)
	}
	d, err := im.m.Integer(a)
	if err != nil {
		return nil, err
	}
	return im.pointwise(ir.OpSoftmax, ir.A("dim", d), in)
}

func geluOp(im *importer, _ *mlir.Operation, in []*value) ([]*value, error) {
	attrs := ir.Attrs{}
	if im.flag("approximate") {
		attrs = ir.A("approximate", "tanh")
	}
	return im.pointwise(ir.OpGelu, attrs, in)
}

// pointwise is an operation whose result is like its operand.
func (im *importer) pointwise(o ir.Op, attrs ir.Attrs, in []*value) ([]*value, error) {
	v, err := im.ir(in[0])
	if err != nil {
		return nil, err
	}
	out, err := im.emit(o, attrs, []*ir.Value{v})
	if err != nil {
		return nil, err
	}
	return []*value{im.value(out)}, nil
}

var byHead = []int64{0, 2, 1, 3}

// attention imports forward and backward calls. Results that attention does not have, such as
// workspaces, are zeros that are never read.
func attention(backward bool) func(*importer, *mlir.Operation, []*value) ([]*value, error) {
	return func(im *importer, o *mlir.Operation, in []*value) ([]*value, error) {
		order, err := im.ints("operands")
		if err != nil {
			return nil, err
		}
		n := 3
		if backward {
			n = 6
		}
		args := make([]*ir.Value, len(order))
		for i, k := range order {
			if k < 0 || k >= int64(len(in)) || len(order) < n {
				return nil, im.errorf("operand %d of %d", k, len(in))
			}
			if args[i], err = im.ir(in[k]); err != nil {
				return nil, err
			}
		}
		third := im.flag("heads_third")
		if third {
			for i := range args[:n] {
				if backward && i == 5 { // the log-sum-exp
					continue
				}
				if args[i], err = im.permuted(args[i], byHead); err != nil {
					return nil, err
				}
			}
		}
		if im.flag("padded") {
			q, k := args[n-3], args[n-2]
			if backward {
				q, k = args[1], args[2]
			}
			if args[n], err = im.endsEarly(args[n], sizes(q)[0], sizes(k)[2]); err != nil {
				return nil, err
			}
		}
		return im.attended(o, args, backward)
	}
}

// attended appends the node and gives the call's results.
func (im *importer) attended(o *mlir.Operation, args []*ir.Value, backward bool) ([]*value, error) {
	a, _ := o.Attr("scale")
	scale, err := strconv.ParseFloat(a.Text, 64)
	if err != nil {
		return nil, im.errorf("scale %q", a.Text)
	}
	attrs := ir.A("causal", im.flag("causal"), "scale", scale)
	var out []*ir.Value
	if backward {
		if lse := args[5]; len(sizes(lse)) == 3 {
			if args[5], err = im.viewed(lse, append(slices.Clone(sizes(lse)), 1)); err != nil {
				return nil, err
			}
		}
		zero, err := im.emit(ir.OpFull, ir.A("value", int64(0)), nil, ir.Tensor(ir.I64))
		if err != nil {
			return nil, err
		}
		args = slices.Concat(args[:6], []*ir.Value{zero, zero}, args[6:])
		if out, err = im.emitAll(ir.OpAttentionBackward, nil, attrs, args); err != nil {
			return nil, err
		}
	} else if out, err = im.emitAll(ir.OpAttention, nil, attrs, args); err != nil {
		return nil, err
	}
	results, err := im.ints("results")
	if err != nil {
		return nil, err
	}
	var vs []*value
	for i, t := range o.Outs {
		k := slices.Index(results, int64(i))
		if k < 0 || k >= len(out) {
			vs = append(vs, im.zeros(t))
			continue
		}
		v := out[k]
		if im.flag("results_too") && len(sizes(v)) == 4 && (backward || k == 0) {
			if v, err = im.permuted(v, byHead); err != nil {
				return nil, err
			}
		}
		if v, err = im.viewed(v, t.Shape); err != nil {
			return nil, err
		}
		vs = append(vs, im.value(v))
	}
	return vs, nil
}

// zeros are a result that means nothing.
func (im *importer) zeros(t mlir.Type) *value {
	dt, err := mlir.ElementType(t.Elem)
	if err != nil {
		return &value{typ: t}
	}
	return literalValue(&mlir.Literal{DType: dt, Shape: t.Shape, Splat: true, Data: make([]byte, dt.Size())})
}

// endsEarly is a bias that hides the keys behind the end of each sequence, of which the
// operand has all ends together: 0, the first, the first and the second, ...
func (im *importer) endsEarly(ends *ir.Value, batch, keys int64) (*ir.Value, error) {
	if len(sizes(ends)) != 1 || sizes(ends)[0] != batch+1 {
		return nil, im.errorf("ends of %d sequences are %s", batch, ends.Type())
	}
	last, err := im.sliced(ends, 0, 1, batch+1, 1)
	if err != nil {
		return nil, err
	}
	first, err := im.sliced(ends, 0, 0, batch, 1)
	if err != nil {
		return nil, err
	}
	length, err := im.binaryOf(ir.OpSub, last, first)
	if err != nil {
		return nil, err
	}
	if length, err = im.viewed(length, []int64{batch, 1, 1, 1}); err != nil {
		return nil, err
	}
	at, err := im.emit(ir.OpIota, nil, nil, ir.Tensor(dtypeOf(ends), keys))
	if err != nil {
		return nil, err
	}
	there, err := im.binaryOf(ir.OpLt, at, length)
	if err != nil {
		return nil, err
	}
	seen, err := im.emit(ir.OpFull, ir.A("value", 0.0), nil, ir.Tensor(ir.F32))
	if err != nil {
		return nil, err
	}
	hidden, err := im.emit(ir.OpConstant, ir.A("data", "AACA/w=="), nil, ir.Tensor(ir.F32))
	if err != nil {
		return nil, err
	}
	return im.where(there, seen, hidden)
}
