package fx

import (
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
)

// opText writes target, args and kwargs of an op that does not communicate; x
// holds the operands' names. It reports whether the op has a traced form.
func (s *synth) opText(n *ir.Node, x []string, out *Node) bool {
	a := n.Attrs()
	put := func(target string, args ...string) bool {
		out.Target, out.Args = target, pyTupleText(args...)
		return true
	}
	dim := func() string { return pyInts(a.Int("dim", 0)) }
	list := func(n []int64) string { return "[" + pyInts(n...) + "]" }
	shape := func() string { return list(out.Out[0].Shape) }
	keep := pyBoolText(a.Bool("keepdim", false))
	name := n.Op().Name()
	switch op := n.Op(); op {
	case ir.OpFull:
		out.Kwargs = placed(n.Result(0).Type().DType())
		v, _ := a.Get("value")
		return put("aten.full.default", shape(), pyNumber(v))
	case ir.OpIota:
		out.Kwargs = placed(n.Result(0).Type().DType())
		start, step := a.Int("start", 0), a.Int("step", 1)
		return put("aten.arange.start_step", pyInts(start, start+step*out.Out[0].Shape[0], step))
	case ir.OpRand:
		out.Kwargs = placed(n.Result(0).Type().DType())
		return put("aten.rand.default", shape())
	case ir.OpConvert:
		return put("prims.convert_element_type.default", x[0], "torch."+torchDType(n.Result(0).Type().DType()))
	case ir.OpBitcast:
		return put("aten.view.dtype", x[0], "torch."+torchDType(n.Result(0).Type().DType()))
	case ir.OpClamp:
		return put("aten.clamp.default", x[0], numberOrNone(a, "min"), numberOrNone(a, "max"))
	case ir.OpWhere:
		return put("aten.where.self", x...)
	case ir.OpFma:
		return put("prims.fma.default", x...)
	case ir.OpSum, ir.OpMean, ir.OpAmax, ir.OpAmin, ir.OpProd:
		return reduceText(n, x[0], put)
	case ir.OpGelu:
		out.Kwargs = keywords(a, "approximate")
		return put("aten.gelu.default", x[0])
	case ir.OpCbrt: // PyTorch has none
		return false
	case ir.OpArgmax:
		return put("aten.argmax.default", x[0], dim(), keep)
	case ir.OpCumsum:
		return put("aten.cumsum.default", x[0], dim())
	case ir.OpSoftmax, ir.OpLogSoftmax:
		return put("aten._"+name+".default", x[0], dim(), "False")
	case ir.OpMatmul:
		if n.Arg(0).Type().Rank() == 3 {
			return put("aten.bmm.default", x...)
		}
		return put("aten.mm.default", x...)
	case ir.OpAddmm:
		out.Kwargs = keywords(a, "beta", "alpha")
		if n.Arg(1).Type().Rank() == 3 {
			return put("aten.baddbmm.default", x...)
		}
		return put("aten.addmm.default", x...)
	case ir.OpGroupedMatmul:
		return put("aten._grouped_mm.default", x...)
	case ir.OpConvolution:
		return convolutionText(n, x, put)
	case ir.OpAttention, ir.OpAttentionBackward:
		return attentionText(n, x, out)
	case ir.OpClone:
		if n.Result(0).Type().Contiguous() {
			out.Kwargs = "{'memory_format': torch.contiguous_format}"
		}
		return put("aten.clone.default", x[0])
	case ir.OpCat:
		return put("aten.cat.default", pyListText(x), dim())
	case ir.OpIndex:
		return put("aten.index.Tensor", x[0], indexText(a, x[1:]))
	case ir.OpIndexPut:
		return put("aten.index_put.default", x[0], indexText(a, x[2:]), x[1], pyBoolText(a.Bool("accumulate", false)))
	case ir.OpIndexAdd:
		out.Kwargs = keywords(a, "alpha")
		return put("aten.index_add.default", x[0], dim(), x[1], x[2])
	case ir.OpGather:
		return put("aten.gather.default", x[0], dim(), x[1])
	case ir.OpScatter:
		return scatterText(n, x, out, put)
	case ir.OpSliceScatter:
		return put("aten.slice_scatter.default", append([]string{x[0], x[1]}, sliceText(n)...)...)
	case ir.OpEmbedding:
		return put("aten.embedding.default", x...)
	case ir.OpTopk:
		return put("aten.topk.default", x[0], pyInts(a.Int("k", 0)), dim(), pyBoolText(a.Bool("largest", true)), pyBoolText(a.Bool("sorted", true)))
	case ir.OpCall:
		return callText(n, x, out)
	case ir.OpWaitTensor:
		return put("_c10d_functional.wait_tensor.default", x[0])
	case ir.OpView:
		return put("aten.view.default", x[0], shape())
	case ir.OpPermute:
		return put("aten.permute.default", x[0], list(a.Ints("dims")))
	case ir.OpExpand:
		return put("aten.expand.default", x[0], shape())
	case ir.OpSlice:
		return put("aten.slice.Tensor", append([]string{x[0]}, sliceText(n)...)...)
	case ir.OpSplit:
		return put("aten.split_with_sizes.default", x[0], list(a.Ints("sizes")), dim())
	case ir.OpSqueeze:
		return put("aten.squeeze.dims", x[0], list(a.Ints("dims")))
	case ir.OpUnsqueeze:
		return put("aten.unsqueeze.default", x[0], dim())
	case ir.OpSelect:
		return put("aten.select.int", x[0], dim(), pyInts(a.Int("index", 0)))
	case ir.OpAlias:
		if d := n.Arg(0).Def(); len(d.Results()) > 1 {
			return put("<built-in function getitem>", x[0], strconv.Itoa(itemIndex(d, n.Arg(0).Index())))
		}
		return put("aten.alias.default", x[0])
	case ir.OpAsStrided:
		return put("aten.as_strided.default", x[0], shape(), list(out.Out[0].Stride), pyInts(a.Int("offset", 0)))
	}
	info := n.Op().Info()
	switch {
	case !info.Elementwise:
		return false
	case info.MaxArgs == 2:
		return binaryText(n, x, out, put)
	}
	return put("aten."+name+".default", x...)
}

func numberOrNone(a attr.List, key string) string {
	if v, ok := a.Get(key); ok {
		return pyNumber(v)
	}
	return "None"
}

// keywords writes the named attributes that are present as a dict.
func keywords(a attr.List, keys ...string) string {
	var parts []string
	for _, k := range keys {
		if v, ok := a.Get(k); ok {
			parts = append(parts, pyString(k)+": "+pyNumber(v))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func binaryText(n *ir.Node, x []string, out *Node, put func(string, ...string) bool) bool {
	a, name := n.Attrs(), n.Op().Name()
	out.Kwargs = keywords(a, "alpha")
	v, scalar := a.Get("scalar")
	args := x
	if scalar {
		args = []string{x[0], pyNumber(v)}
		if a.Bool("reverse", false) {
			args[0], args[1] = args[1], args[0]
		}
	}
	overload := "Tensor"
	switch n.Op() {
	case ir.OpAtan2:
		overload = "default"
	case ir.OpFloorDivide, ir.OpTruncDivide:
		mode := strings.TrimSuffix(name, "_divide")
		name, overload, out.Kwargs = "div", "Tensor_mode", "{'rounding_mode': "+pyString(mode)+"}"
	case ir.OpBitwiseAnd, ir.OpBitwiseOr, ir.OpBitwiseXor, ir.OpFmod:
		if scalar {
			overload = "Scalar"
		}
	case ir.OpRemainder:
		if a.Bool("reverse", false) {
			overload = "Scalar_Tensor"
		} else if scalar {
			overload = "Scalar"
		}
	case ir.OpShiftLeft, ir.OpShiftRight:
		name = "bitwise_" + strings.TrimPrefix(name, "shift_") + "_shift"
		if a.Bool("reverse", false) {
			overload = "Scalar_Tensor"
		} else if scalar {
			overload = "Tensor_Scalar"
		}
	case ir.OpPow:
		overload = "Tensor_Tensor"
		if scalar {
			overload = "Tensor_Scalar"
		}
		if a.Bool("reverse", false) {
			overload = "Scalar"
		}
	case ir.OpMaximum, ir.OpMinimum, ir.OpLogicalAnd, ir.OpLogicalOr:
		overload = "default"
	case ir.OpEq, ir.OpNe, ir.OpLt, ir.OpLe, ir.OpGt, ir.OpGe:
		if scalar {
			overload = "Scalar"
		}
	}
	return put("aten."+name+"."+overload, args...)
}

func reduceText(n *ir.Node, x string, put func(string, ...string) bool) bool {
	a, name := n.Attrs(), n.Op().Name()
	overload := map[ir.Op]string{ir.OpSum: "dim_IntList", ir.OpMean: "dim", ir.OpAmax: "default", ir.OpAmin: "default", ir.OpProd: "dim_int"}[n.Op()]
	if !a.Has("dims") && !a.Bool("keepdim", false) {
		return put("aten."+name+".default", x)
	}
	return put("aten."+name+"."+overload, x, "["+pyInts(a.Ints("dims")...)+"]", pyBoolText(a.Bool("keepdim", false)))
}

// indexText writes the list of index tensors with None for dimensions before and between them.
func indexText(a attr.List, idx []string) string {
	var list []string
	for k, d := range a.Ints("dims") {
		for int64(len(list)) < d {
			list = append(list, "None")
		}
		if k < len(idx) {
			list = append(list, idx[k])
		}
	}
	return pyListText(list)
}

func scatterText(n *ir.Node, x []string, out *Node, put func(string, ...string) bool) bool {
	a := n.Attrs()
	last, overload := "", "src"
	if len(x) == 3 {
		last = x[2]
	} else {
		v, _ := a.Get("value")
		last, overload = pyNumber(v), "value"
	}
	if r := a.Str("reduce", ""); r != "" {
		out.Kwargs = "{'reduce': " + pyString(r) + "}"
		overload = map[string]string{"src": "reduce", "value": "value_reduce"}[overload]
	}
	return put("aten.scatter."+overload, x[0], pyInts(a.Int("dim", 0)), x[1], last)
}

// sliceText writes dim, start, end and, where it is not 1, step.
func sliceText(n *ir.Node) []string {
	a := n.Attrs()
	d := a.Int("dim", 0)
	end := a.Int("end", -1)
	if s := static(n.Arg(0)); end < 0 && d >= 0 && int(d) < len(s) {
		end = s[d]
	}
	out := []string{pyInts(d), pyInts(a.Int("start", 0)), pyInts(end)}
	if step := a.Int("step", 1); step != 1 {
		out = append(out, pyInts(step))
	}
	return out
}

func attentionText(n *ir.Node, x []string, out *Node) bool {
	a := n.Attrs()
	out.Kwargs = keywords(a, "scale")
	dropout := string(appendNumber(nil, a.Float("dropout", 0)))
	causal := pyBoolText(a.Bool("causal", false))
	bias := func(at int) string {
		if len(x) > at {
			return x[at]
		}
		return "None"
	}
	if n.Op() == ir.OpAttention {
		out.Target = "aten._scaled_dot_product_cudnn_attention.default"
		out.Args = pyTupleText(x[0], x[1], x[2], bias(3), "True", dropout, causal)
		return true
	}
	q, k := static(n.Arg(1)), static(n.Arg(2))
	if len(q) != 4 || len(k) != 4 {
		return false
	}
	args := append([]string{}, x[:8]...)
	args = append(args, bias(8), "None", "None", pyInts(q[2], k[2]), dropout, causal)
	out.Target, out.Args = "aten._scaled_dot_product_cudnn_attention_backward.default", pyTupleText(args...)
	return true
}

// callText writes an opaque call: with the text it was traced with where that
// still names its operands, else with the operands alone.
func callText(n *ir.Node, x []string, out *Node) bool {
	a := n.Attrs()
	out.Target, out.Args = a.Str("target", ""), pyTupleText(x...)
	if len(x) == 0 {
		out.Args = "()"
	}
	payload := a.Str("payload", "")
	p := &pyParser{s: payload}
	v := p.value()
	if p.err != nil || v.kind != pyTuple {
		return true
	}
	args, rest := payload[:p.i], strings.TrimSpace(payload[p.i:])
	listed, used := map[string]bool{}, map[string]bool{}
	for _, name := range x {
		listed[name] = true
	}
	bad := namesIn(&v, used, listed)
	if rest != "" && bad == nil {
		d, err := parsePy(rest)
		if err != nil || d.kind != pyDict {
			return true
		}
		bad = namesIn(&d, used, listed)
	}
	if bad == nil && len(used) == len(listed) {
		out.Args, out.Kwargs = args, rest
	}
	return true
}
