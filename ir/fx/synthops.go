package fx

import (
	"strconv"
	"strings"

	"github.com/seed-ee968945/concert/internal/attr"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/ir/fx/internal/pytext"
	"github.com/seed-ee968945/concert/ir/fx/internal/windows"
)

// opText writes target, args and kwargs of an op that does not communicate; x
// holds the operands' names. It reports whether the op has a traced form.
func opText(n *ir.Node, x []string, out *Node) bool {
	w := opWriter{n, n.Attrs(), x, out}
	op := n.Op()
	if target, ok := ofOperands[op]; ok {
		return w.put(target, x...)
	}
	switch {
	case op.IsView():
		return w.view()
	case op.Info().Elementwise:
		return w.pointwise()
	case len(x) == 0 && op != ir.OpCall:
		return w.creation()
	}
	return w.other()
}

// ofOperands are the ops whose traced form has the operands and nothing else.
var ofOperands = map[ir.Op]string{
	ir.OpWhere: "aten.where.self", ir.OpFma: "prims.fma.default", ir.OpGroupedMatmul: "aten._grouped_mm.default",
	ir.OpEmbedding: "aten.embedding.default", ir.OpWaitTensor: "_c10d_functional.wait_tensor.default",
}

// opWriter writes one op.
type opWriter struct {
	n   *ir.Node
	a   attr.List
	x   []string
	out *Node
}

func (w *opWriter) put(target string, args ...string) bool {
	w.out.Target, w.out.Args = target, pytext.FormatTuple(args...)
	return true
}

func (w *opWriter) dim() string           { return pytext.FormatInts(w.a.Int("dim", 0)) }
func (w *opWriter) list(n []int64) string { return "[" + pytext.FormatInts(n...) + "]" }
func (w *opWriter) shape() string         { return w.list(w.out.Out[0].Shape) }
func (w *opWriter) dtype() string         { return "torch." + pytext.DTypeName(w.n.Result(0).Type().DType()) }

func (w *opWriter) creation() bool {
	w.out.Kwargs = placed(w.n.Result(0).Type().DType())
	switch w.n.Op() {
	case ir.OpFull:
		v, _ := w.a.Get("value")
		return w.put("aten.full.default", w.shape(), pytext.FormatNumber(v))
	case ir.OpIota:
		start, step := w.a.Int("start", 0), w.a.Int("step", 1)
		return w.put("aten.arange.start_step", pytext.FormatInts(start, start+step*w.out.Out[0].Shape[0], step))
	case ir.OpRand:
		return w.put("aten.rand.default", w.shape())
	}
	return false
}

func (w *opWriter) pointwise() bool {
	x := w.x
	switch op := w.n.Op(); op {
	case ir.OpConvert:
		return w.put("prims.convert_element_type.default", x[0], w.dtype())
	case ir.OpBitcast:
		return w.put("aten.view.dtype", x[0], w.dtype())
	case ir.OpClamp:
		return w.put("aten.clamp.default", x[0], numberOrNone(w.a, "min"), numberOrNone(w.a, "max"))
	case ir.OpGelu:
		w.out.Kwargs = keywords(w.a, "approximate")
		return w.put("aten.gelu.default", x[0])
	case ir.OpCbrt: // PyTorch has none
		return false
	default:
		if op.Info().MaxArgs == 2 {
			return binaryText(w.n, x, w.out, w.put)
		}
		return w.put("aten."+op.Name()+".default", x...)
	}
}

func (w *opWriter) view() bool {
	x, a := w.x, w.a
	switch w.n.Op() {
	case ir.OpView:
		return w.put("aten.view.default", x[0], w.shape())
	case ir.OpPermute:
		return w.put("aten.permute.default", x[0], w.list(a.Ints("dims")))
	case ir.OpExpand:
		return w.put("aten.expand.default", x[0], w.shape())
	case ir.OpSlice:
		return w.put("aten.slice.Tensor", append([]string{x[0]}, sliceText(w.n)...)...)
	case ir.OpSplit:
		return w.put("aten.split_with_sizes.default", x[0], w.list(a.Ints("sizes")), w.dim())
	case ir.OpSqueeze:
		return w.put("aten.squeeze.dims", x[0], w.list(a.Ints("dims")))
	case ir.OpUnsqueeze:
		return w.put("aten.unsqueeze.default", x[0], w.dim())
	case ir.OpSelect:
		return w.put("aten.select.int", x[0], w.dim(), pytext.FormatInts(a.Int("index", 0)))
	case ir.OpAlias:
		if d := w.n.Arg(0).Def(); len(d.Results()) > 1 {
			return w.put("<built-in function getitem>", x[0], strconv.Itoa(itemIndex(d, w.n.Arg(0).Index())))
		}
		return w.put("aten.alias.default", x[0])
	case ir.OpAsStrided:
		return w.put("aten.as_strided.default", x[0], w.shape(), w.list(w.out.Out[0].Stride), pytext.FormatInts(a.Int("offset", 0)))
	}
	return false
}

// other writes reductions, matrix products, and what moves elements by index.
func (w *opWriter) other() bool {
	n, x, a := w.n, w.x, w.a
	batched := func(plain, batch string, rank int) string {
		if rank == 3 {
			return batch
		}
		return plain
	}
	switch op := n.Op(); op {
	case ir.OpSum, ir.OpMean, ir.OpAmax, ir.OpAmin, ir.OpProd:
		return reduceText(n, x[0], w.put)
	case ir.OpArgmax:
		return w.put("aten.argmax.default", x[0], w.dim(), pytext.FormatBool(a.Bool("keepdim", false)))
	case ir.OpCumsum:
		return w.put("aten.cumsum.default", x[0], w.dim())
	case ir.OpSoftmax, ir.OpLogSoftmax:
		return w.put("aten._"+op.Name()+".default", x[0], w.dim(), "False")
	case ir.OpMatmul:
		return w.put(batched("aten.mm.default", "aten.bmm.default", n.Arg(0).Type().Rank()), x...)
	case ir.OpAddmm:
		w.out.Kwargs = keywords(a, "beta", "alpha")
		return w.put(batched("aten.addmm.default", "aten.baddbmm.default", n.Arg(1).Type().Rank()), x...)
	case ir.OpConvolution:
		return windows.ConvolutionText(n, x, w.put)
	case ir.OpAttention, ir.OpAttentionBackward:
		return attentionText(n, x, w.out)
	case ir.OpClone:
		if n.Result(0).Type().Contiguous() {
			w.out.Kwargs = "{'memory_format': torch.contiguous_format}"
		}
		return w.put("aten.clone.default", x[0])
	case ir.OpShard:
		return w.put("concert.shard.default", x[0], w.dim(), pytext.Quote(n.Group().Name))
	case ir.OpCat:
		return w.put("aten.cat.default", pytext.FormatList(x), w.dim())
	case ir.OpIndex:
		return w.put("aten.index.Tensor", x[0], indexText(a, x[1:]))
	case ir.OpIndexPut:
		return w.put("aten.index_put.default", x[0], indexText(a, x[2:]), x[1], pytext.FormatBool(a.Bool("accumulate", false)))
	case ir.OpIndexAdd:
		w.out.Kwargs = keywords(a, "alpha")
		return w.put("aten.index_add.default", x[0], w.dim(), x[1], x[2])
	case ir.OpGather:
		return w.put("aten.gather.default", x[0], w.dim(), x[1])
	case ir.OpScatter:
		return scatterText(n, x, w.out, w.put)
	case ir.OpSliceScatter:
		return w.put("aten.slice_scatter.default", append([]string{x[0], x[1]}, sliceText(n)...)...)
	case ir.OpTopk:
		return w.put("aten.topk.default", x[0], pytext.FormatInts(a.Int("k", 0)), w.dim(), pytext.FormatBool(a.Bool("largest", true)), pytext.FormatBool(a.Bool("sorted", true)))
	case ir.OpCall:
		return callText(n, x, w.out)
	}
	return false
}

func numberOrNone(a attr.List, key string) string {
	if v, ok := a.Get(key); ok {
		return pytext.FormatNumber(v)
	}
	return "None"
}

// keywords writes the named attributes that are present as a dict.
func keywords(a attr.List, keys ...string) string {
	var parts []string
	for _, k := range keys {
		if v, ok := a.Get(k); ok {
			parts = append(parts, pytext.Quote(k)+": "+pytext.FormatNumber(v))
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
		args = []string{x[0], pytext.FormatNumber(v)}
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
		name, overload, out.Kwargs = "div", "Tensor_mode", "{'rounding_mode': "+pytext.Quote(mode)+"}"
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
	return put("aten."+name+"."+overload, x, "["+pytext.FormatInts(a.Ints("dims")...)+"]", pytext.FormatBool(a.Bool("keepdim", false)))
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
	return pytext.FormatList(list)
}

func scatterText(n *ir.Node, x []string, out *Node, put func(string, ...string) bool) bool {
	a := n.Attrs()
	last, overload := "", "src"
	if len(x) == 3 {
		last = x[2]
	} else {
		v, _ := a.Get("value")
		last, overload = pytext.FormatNumber(v), "value"
	}
	if r := a.Str("reduce", ""); r != "" {
		out.Kwargs = "{'reduce': " + pytext.Quote(r) + "}"
		overload = map[string]string{"src": "reduce", "value": "value_reduce"}[overload]
	}
	return put("aten.scatter."+overload, x[0], pytext.FormatInts(a.Int("dim", 0)), x[1], last)
}

// sliceText writes dim, start, end and, where it is not 1, step.
func sliceText(n *ir.Node) []string {
	a := n.Attrs()
	d := a.Int("dim", 0)
	end := a.Int("end", -1)
	if s := staticSizes(n.Arg(0)); end < 0 && d >= 0 && int(d) < len(s) {
		end = s[d]
	}
	out := []string{pytext.FormatInts(d), pytext.FormatInts(a.Int("start", 0)), pytext.FormatInts(end)}
	if step := a.Int("step", 1); step != 1 {
		out = append(out, pytext.FormatInts(step))
	}
	return out
}

func attentionText(n *ir.Node, x []string, out *Node) bool {
	a := n.Attrs()
	out.Kwargs = keywords(a, "scale")
	dropout := string(pytext.AppendFloat(nil, a.Float("dropout", 0)))
	causal := pytext.FormatBool(a.Bool("causal", false))
	bias := func(at int) string {
		if len(x) > at {
			return x[at]
		}
		return "None"
	}
	if n.Op() == ir.OpAttention {
		out.Target = "aten._scaled_dot_product_cudnn_attention.default"
		out.Args = pytext.FormatTuple(x[0], x[1], x[2], bias(3), "True", dropout, causal)
		return true
	}
	q, k := staticSizes(n.Arg(1)), staticSizes(n.Arg(2))
	if len(q) != 4 || len(k) != 4 {
		return false
	}
	args := append([]string{}, x[:8]...)
	args = append(args, bias(8), "None", "None", pytext.FormatInts(q[2], k[2]), dropout, causal)
	out.Target, out.Args = "aten._scaled_dot_product_cudnn_attention_backward.default", pytext.FormatTuple(args...)
	return true
}

// callText writes an opaque call: with the text it was traced with where that
// still names its operands, else with the operands alone.
func callText(n *ir.Node, x []string, out *Node) bool {
	a := n.Attrs()
	out.Target, out.Args = a.Str("target", ""), pytext.FormatTuple(x...)
	if len(x) == 0 {
		out.Args = "()"
	}
	payload := a.Str("payload", "")
	v, rest, err := pytext.ParsePrefix(payload)
	if err != nil || v.Kind != pytext.Tuple {
		return true
	}
	args := strings.TrimSuffix(payload, rest)
	rest = strings.TrimSpace(rest)
	listed, used := map[string]bool{}, map[string]bool{}
	for _, name := range x {
		listed[name] = true
	}
	bad := namesIn(&v, used, listed)
	if rest != "" && bad == nil {
		d, err := pytext.Parse(rest)
		if err != nil || d.Kind != pytext.Dict {
			return true
		}
		bad = namesIn(&d, used, listed)
	}
	if bad == nil && len(used) == len(listed) {
		out.Args, out.Kwargs = args, rest
	}
	return true
}
