"""Records what PyTorch's operators give, for the tests of the importer (ir/fx).

    python tools/torch/operators.py ir/fx/testdata/operators.jsonl ir/fx/testdata/core.txt

Each line is one call: its target, the text of its arguments as a traced graph has it, and
its tensors with their values: floating-point values as hexadecimal bit patterns, so that a
test can compare bits. The second file lists the operators of the core set. Needs PyTorch
only; runs on the CPU; always gives the same files for the same version of PyTorch.
"""
import json
import sys

import torch

from operators_layers import complexes, corners, factors, joined, layers, lines, lists, masks, matrices, places, rare, signals, specials, transforms, unusual
from operators_special import bessels, cubic, polynomials, primitives, scalars, segments, wider
from operators_uncommon import copies, ctc, eigenvalues, incomplete, inverses, oblong, optimizers, parts, quantised, reflections, steps
from operators_windows import channel_norms, fractional, windows

NAN, INF = float("nan"), float("inf")
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.int64, torch.int32, torch.int8, torch.uint8]


def values(t):
    """The elements in row-major order: integers, or bit patterns of floats."""
    t = t.detach().contiguous()
    if t.is_complex():
        t = torch.view_as_real(t.resolve_conj())
    bits = {torch.float64: torch.int64, torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float8_e4m3fn: torch.int8, torch.float8_e5m2: torch.int8}
    if t.dtype in bits:
        width = 2 * t.element_size()
        mask = (1 << 8 * t.element_size()) - 1
        return [format(int(v) & mask, "0%dx" % width) for v in t.view(bits[t.dtype]).flatten().tolist()]
    return [int(v) for v in t.flatten().tolist()]


def describe(t):
    return {"dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape), "stride": list(t.stride())}


class Recorder:
    def __init__(self, out):
        self.out, self.rng = out, torch.Generator().manual_seed(7)

    def data(self, dtype, *shape, low=-4, high=4):
        if dtype == torch.bool:
            return torch.rand(shape, generator=self.rng) < 0.5
        if dtype.is_floating_point:
            return (torch.rand(shape, generator=self.rng, dtype=torch.float64) * (high - low) + low).to(dtype)
        return torch.randint(max(low, 0) if dtype == torch.uint8 else low, high + 1, shape, generator=self.rng).to(dtype)

    def call(self, target, *args, instead=None, **kwargs):
        """Calls an operator, or what computes it where this device has none, and writes a line."""
        op = instead
        if op is None:
            space, name, overload = target.split(".")
            op = getattr(getattr(getattr(torch.ops, space), name), overload)
        tensors = []

        def text(a):
            if isinstance(a, torch.Tensor):
                for k, t in enumerate(tensors):
                    if t is a:
                        return "x%d" % k
                tensors.append(a)
                return "x%d" % (len(tensors) - 1)
            if isinstance(a, (list, tuple)):
                return "[" + ", ".join(text(x) for x in a) + "]"
            return repr(a)

        shown = [text(a) for a in args]
        args_text = "(" + ", ".join(shown) + ("," if len(shown) == 1 else "") + ")"
        kwargs_text = "{" + ", ".join("%r: %s" % (k, text(v)) for k, v in kwargs.items()) + "}" if kwargs else ""
        given = [dict(describe(t), data=values(t)) for t in tensors]
        try:
            out = op(*args, **kwargs)
        except (NotImplementedError, RuntimeError) as e:
            if "not implemented for" not in str(e):
                raise
            print("not recorded:", str(e).splitlines()[0], file=sys.stderr)  # this element type on the CPU
            return []
        outs = list(out) if isinstance(out, (list, tuple)) else [out]
        if target == "aten.convolution_backward.default":  # a traced graph has None where a kernel may leave a tensor
            outs = [t if wanted else None for t, wanted in zip(outs, args[-1])]
        view = instead is None and any(x.alias_info is not None for x in op._schema.returns)
        line = {"target": target, "args": args_text, "kwargs": kwargs_text, "view": view, "in": given,
                "out": [dict(describe(t), data=values(t)) for t in outs if isinstance(t, torch.Tensor)]}
        if len(line["out"]) < len(outs):  # None among them: the places of the tensors
            line["items"] = [k for k, t in enumerate(outs) if isinstance(t, torch.Tensor)]
        json.dump(line, self.out)
        self.out.write("\n")
        return out


def pointwise(r):
    for name in ["erf", "erfc", "exp2", "expm1", "tan", "atan", "sinh", "cosh", "asinh", "ceil", "round", "trunc", "sign", "sigmoid", "tanh",
                 "neg", "exp", "abs", "relu", "silu", "sin", "cos", "floor", "isnan", "isinf"]:
        for dt in FLOATS:
            r.call("aten.%s.default" % name, r.data(dt, 3, 7))
        r.call("aten.%s.default" % name, torch.tensor([0.0, -0.0, INF, -INF, NAN, 0.5, 1.5, -2.5, 1e-8]))
    for name in ["log2", "log10", "log1p", "log", "sqrt", "rsqrt", "reciprocal"]:
        for dt in FLOATS:
            r.call("aten.%s.default" % name, r.data(dt, 3, 7, low=0.1, high=9))
    for name in ["asin", "acos", "atanh"]:
        for dt in FLOATS:
            r.call("aten.%s.default" % name, r.data(dt, 3, 7, low=-0.95, high=0.95))
    for dt in FLOATS:
        r.call("aten.acosh.default", r.data(dt, 3, 7, low=1, high=9))
        r.call("aten.gelu.default", r.data(dt, 3, 7))
        r.call("aten.gelu.default", r.data(dt, 3, 7), approximate="tanh")
        r.call("aten.leaky_relu.default", r.data(dt, 3, 7), 0.2)
        r.call("aten.elu.default", r.data(dt, 3, 7), 1.5)
        r.call("aten.hardtanh.default", r.data(dt, 3, 7), -1.0, 2.0)
        r.call("aten.atan2.default", r.data(dt, 3, 7), r.data(dt, 3, 7))
    for dt in INTS:
        for name in ["neg", "abs", "sign", "ceil", "round", "trunc", "floor", "bitwise_not"]:
            if not (name == "neg" and dt == torch.uint8):
                r.call("aten.%s.default" % name, r.data(dt, 9))
        for name in ["bitwise_and", "bitwise_or", "bitwise_xor"]:
            r.call("aten.%s.Tensor" % name, r.data(dt, 3, 7), r.data(dt, 7))
            r.call("aten.%s.Scalar" % name, r.data(dt, 9), 3)
        r.call("aten.bitwise_left_shift.Tensor", r.data(dt, 9), r.data(dt, 9, low=0, high=6))
        r.call("aten.bitwise_right_shift.Tensor", r.data(dt, 9), r.data(dt, 9, low=0, high=6))
        r.call("aten.bitwise_right_shift.Tensor_Scalar", r.data(dt, 9), 1)
    r.call("aten.bitwise_not.default", r.data(torch.bool, 9))
    r.call("aten.logical_xor.default", r.data(torch.bool, 9), r.data(torch.int64, 9, low=0, high=1))
    for dt in FLOATS + INTS:
        a, b = r.data(dt, 4, 9, low=-9, high=9), r.data(dt, 9, low=1, high=5)
        if dt != torch.uint8:
            b = b * torch.tensor([1, -1, 1, -1, 1, -1, 1, -1, 1], dtype=dt)
        for mode in ["floor", "trunc"]:
            r.call("aten.div.Tensor_mode", a, b, rounding_mode=mode)
            r.call("aten.div.Scalar_mode", a, 3, rounding_mode=mode)
        r.call("aten.div.Tensor", a, b)
        r.call("aten.floor_divide.default", a, b)
        r.call("aten.fmod.Tensor", a, b)
        r.call("aten.fmod.Scalar", a, 3)
        r.call("aten.remainder.Tensor", a, b)
        r.call("aten.remainder.Scalar", a, 3)
        r.call("aten.remainder.Scalar_Tensor", 7, b)
    edge = torch.tensor([INF, -INF, NAN, 0.0, -0.0, 5.0, -5.0, 1.0])
    for name in ["div.Tensor_mode", "fmod.Tensor", "remainder.Tensor"]:
        for other in [2.0, -2.0, INF, -INF, 0.1, 0.0]:
            kw = {"rounding_mode": "floor"} if "mode" in name else {}
            r.call("aten." + name, edge, torch.full((8,), other), **kw)


def reductions(r):
    for dt in FLOATS:
        for dims, keep, correction in [([1], True, 0), ([0, 2], False, 1), (None, False, 1), ([-1], False, 0.5)]:
            r.call("aten.var_mean.correction", r.data(dt, 3, 5, 7), dims, correction=correction, keepdim=keep)
            r.call("aten.var.correction", r.data(dt, 3, 5, 7), dims, correction=correction, keepdim=keep)
    for dt in [torch.bool, torch.int64, torch.float32]:
        x = r.data(dt, 3, 5, low=0, high=1)
        for name in ["any", "all"]:
            r.call("aten.%s.default" % name, x)
            r.call("aten.%s.dim" % name, x, 1, True)
            r.call("aten.%s.dims" % name, x, [0, 1])
    for dt in [torch.float32, torch.bfloat16, torch.int64]:
        r.call("aten.max.dim", r.data(dt, 3, 5), 1)
        r.call("aten.max.dim", r.data(dt, 3, 5), 0, True)
        r.call("aten.sort.default", r.data(dt, 3, 6))
        r.call("aten.sort.default", r.data(dt, 3, 6), 0, True)
        r.call("aten.sort.stable", r.data(dt, 3, 6), stable=True, dim=1)
    r.call("aten.max.dim", torch.tensor([[1.0, NAN, 3.0], [2.0, 2.0, 1.0]]), 1)
    r.call("aten.sort.default", torch.tensor([3.0, NAN, -1.0, INF, -INF, 0.0]))


def movement(r):
    for dt in [torch.float32, torch.bfloat16, torch.int64, torch.bool]:
        x = r.data(dt, 3, 5, 4)
        for pads in [[1, 2], [0, 1, 2, 0], [-1, 1], [1, -2, -1, -1, 2, 2], [0, 0]]:
            r.call("aten.constant_pad_nd.default", x, pads, 1)
        r.call("aten.constant_pad_nd.default", x.permute(2, 0, 1), [1, -1, 2, 0])
        for dim in [0, 1, -1]:
            r.call("aten.select_scatter.default", x, r.data(dt, *[s for k, s in enumerate(x.shape) if k != dim % 3]), dim, 1)
            r.call("aten.unbind.int", x, dim)
        r.call("aten.repeat.default", x, [2, 1, 3])
        r.call("aten.repeat.default", x.transpose(0, 1), [2, 1, 2, 1])
        r.call("aten.repeat.default", x, [0, 1, 1])
    r.call("prims.iota.default", 7, start=2, step=3, dtype=torch.int64, device=torch.device("cpu"), requires_grad=False)
    r.call("prims.iota.default", 5, start=0, step=-1, dtype=torch.int32, device=torch.device("cpu"), requires_grad=False)


def elementwise(r):
    """What pointwise leaves out of the core set."""
    for dt in FLOATS + INTS:
        a, b = r.data(dt, 4, 9), r.data(dt, 9)
        for name in ["eq", "ne", "lt", "le", "gt", "ge"]:
            r.call("aten.%s.Tensor" % name, a, b)
            r.call("aten.%s.Scalar" % name, a, 1)
        r.call("aten.add.Tensor", a, b, alpha=2)
        r.call("aten.add.Scalar", a, 3)
        r.call("aten.sub.Tensor", a, b)
        r.call("aten.sub.Scalar", a, 3)
        r.call("aten.mul.Tensor", a, b)
        r.call("aten.mul.Scalar", a, 3)
        r.call("aten.maximum.default", a, b)
        r.call("aten.minimum.default", a, b)
        r.call("aten.clamp.default", a, -1, 2) if dt != torch.uint8 else r.call("aten.clamp.default", a, 1, 2)
        r.call("aten.clamp.Tensor", a, b, None)
        r.call("aten.clamp.Tensor", a, b, b + 1)
        r.call("aten.where.self", r.data(torch.bool, 9), a, b)
        r.call("aten.fill.Scalar", a, 3)
        r.call("aten.relu.default", a)
        r.call("aten._to_copy.default", a, dtype=torch.float32)
        r.call("aten._to_copy.default", a, dtype=torch.int32)
        for name in ["logical_and", "logical_or"]:
            r.call("aten.%s.default" % name, a, b)
        r.call("aten.logical_not.default", a)
    for dt in FLOATS:
        a = r.data(dt, 3, 7, low=0.1, high=4)
        for e in [2, 3, 0.5, -0.5, -1, 1.5, 0]:
            r.call("aten.pow.Tensor_Scalar", a, e)
        r.call("aten.pow.Tensor_Tensor", a, r.data(dt, 7))
        r.call("aten.pow.Scalar", 2, a)
        r.call("aten.div.Scalar", a, 3)
    r.call("aten.pow.Tensor_Scalar", r.data(torch.int64, 9), 3)


def folds(r):
    """Reductions, running folds, norms and softmax."""
    for dt in FLOATS + [torch.int64, torch.int32, torch.uint8]:
        x = r.data(dt, 3, 5, 4)
        for dims in [[0], [1, 2], [-1]]:
            r.call("aten.amax.default", x, dims)
            r.call("aten.amin.default", x, dims, True)
            r.call("aten.sum.dim_IntList", x, dims, True)
        r.call("aten.prod.default", r.data(dt, 5))
        r.call("aten.prod.dim_int", x, 1)
        r.call("aten.cumsum.default", x, 1)
        r.call("aten.cumprod.default", x, -1)
        for name in ["argmax", "argmin"]:
            r.call("aten.%s.default" % name, x)
            r.call("aten.%s.default" % name, x, 1, True)
            r.call("aten.%s.default" % name, x, -1)
        for name in ["max.dim", "min.dim"]:
            r.call("aten." + name, x, 1)
        for name in ["cummax", "cummin"]:
            r.call("aten.%s.default" % name, x, 1)
    nan = torch.tensor([[1.0, NAN, 3.0, NAN, 3.0], [2.0, 2.0, 1.0, INF, INF]])
    for name in ["cummax", "cummin"]:
        r.call("aten.%s.default" % name, nan, 1)
    for name in ["max.dim", "min.dim", "argmax.default", "argmin.default"]:
        r.call("aten." + name, nan, 1)
    for dt in FLOATS:
        x = r.data(dt, 3, 5, 4)
        r.call("aten.mean.default", x)
        r.call("aten.mean.dim", x, [1], True)
        r.call("aten.logcumsumexp.default", x, 1)
        r.call("aten.logsumexp.default", x, [1])
        r.call("aten.var.dim", x, [1], True, True)
        r.call("aten._softmax.default", x, 1, False)
        r.call("aten._log_softmax.default", x, -1, False)
        for weights in [(r.data(dt, 5, 4), r.data(dt, 5, 4)), (None, None)]:
            y, mean, rstd = r.call("aten.native_layer_norm.default", x, [5, 4], *weights, 1e-5)
            if weights[0] is not None:
                for mask in [[True, True, True], [True, False, True]]:
                    r.call("aten.native_layer_norm_backward.default", r.data(dt, 3, 5, 4), x, [5, 4], mean, rstd, *weights, mask)
    for p in [0.0, 1.0, 2.0, 3.0, INF]:
        r.call("aten._cdist_forward.default", r.data(torch.float32, 2, 3, 5), r.data(torch.float32, 2, 4, 5), p, None)
        r.call("aten._pdist_forward.default", r.data(torch.float32, 5, 3), p)


def lookups(r):
    """Gathers, scatters, bags and bins."""
    for dt in [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int8]:
        x, i = r.data(dt, 5, 6), r.data(torch.int64, 3, 6, low=0, high=4)
        src = r.data(dt, 3, 6)
        r.call("aten.gather.default", x, 0, i)
        r.call("aten.index_select.default", x, 1, r.data(torch.int64, 4, low=0, high=5))
        r.call("aten.index.Tensor", x, [None, r.data(torch.int64, 4, low=-6, high=5)])
        r.call("aten.index.Tensor", x, [r.data(torch.int64, 4, low=-5, high=4), r.data(torch.int64, 4, low=-6, high=5)])
        r.call("aten.index_put.default", x, [torch.tensor([2, 0, -1])], src)
        r.call("aten.index_put.default", x, [torch.tensor([2, 0, 2])], src, True)
        r.call("aten.scatter.value", x, 0, torch.tensor([[2, 1, 0, 4, 3, 0]]), 3)
        r.call("aten.scatter.src", x, 0, torch.tensor([[2, 1, 0, 4, 3, 0]]), src)
        r.call("aten.scatter_add.default", x, 0, i, src)
        for reduce in ["sum", "prod", "mean", "amax", "amin"]:
            for own in [True, False]:
                r.call("aten.scatter_reduce.two", x, 0, i, src, reduce, include_self=own)
        r.call("aten.slice_scatter.default", x, r.data(dt, 2, 6), 0, 1, 5, 2)
        r.call("aten.masked_scatter.default", x, r.data(torch.bool, 5, 6), r.data(dt, 40))
        r.call("aten.flip.default", x, [0, 1])
        r.call("aten.roll.default", x, [2, -1], [0, 1])
        r.call("aten.diagonal.default", x)
        r.call("aten.diagonal.default", x, 1, 1, 0)
        r.call("aten.tril.default", x, 1)
        r.call("aten.triu.default", x, -1)
        r.call("aten.unfold.default", x, 1, 3, 2)
        r.call("aten.topk.default", torch.randperm(30, generator=r.rng).view(5, 6).to(dt), 2)
        r.call("aten.as_strided_scatter.default", r.data(dt, 30), x, [5, 6], [6, 1], 0)
        r.call("aten.as_strided_scatter.default", x, r.data(dt, 2, 3), [2, 3], [7, 2], 4)
        r.call("aten.cat.default", [x, src], 0)
        r.call("aten.expand.default", r.data(dt, 3, 1), [2, 3, 4])
        r.call("aten.copy.default", x, r.data(dt, 1, 6))
    for dt in [torch.float32, torch.bfloat16]:
        w, i = r.data(dt, 7, 4), r.data(torch.int64, 9, low=0, high=6)
        r.call("aten.embedding.default", w, i.view(3, 3))
        r.call("aten.embedding_dense_backward.default", r.data(dt, 9, 4), i, 7, -1, False)
        r.call("aten.embedding_dense_backward.default", r.data(dt, 3, 3, 4), i.view(3, 3), 7, 2, False)
        for offsets in [torch.tensor([0, 2, 2, 5]), torch.tensor([0, 4, 9]), torch.tensor([0, 3, 6])]:
            for mode in [0, 1]:
                for padding in [-1, 3]:
                    r.call("aten._embedding_bag.default", w, i, offsets, False, mode, False, None, False, padding)
                sizes = torch.diff(offsets, append=torch.tensor([9]))
                bags = torch.repeat_interleave(torch.arange(len(offsets)), sizes)
                r.call("aten._embedding_bag_dense_backward.default", r.data(dt, len(offsets), 4), i, bags, sizes, torch.zeros(0, dtype=torch.int64), 7, False, mode, None, -1)
            r.call("aten._embedding_bag.default", w, i, offsets, False, 0, False, r.data(dt, 9))
    for lo, hi in [(0, 0), (-1, 2), (-4, 4)]:
        r.call("aten.histc.default", r.data(torch.float32, 5, 9), 7, lo, hi)
    for mode in [0, 1]:
        for padding in [0, 1, 2]:
            for corners in [True, False]:
                for dt in [torch.float32, torch.float64]:
                    r.call("aten.grid_sampler_2d.default", r.data(dt, 2, 3, 4, 5), r.data(dt, 2, 3, 6, 2, low=-2, high=2), mode, padding, corners)
    for size, kernel, dilation, padding, stride in [([5, 6], [3, 2], [1, 1], [0, 0], [1, 1]), ([5, 6], [3, 2], [1, 2], [1, 2], [2, 1])]:
        places = 1
        for n, k, d, p, s in zip(size, kernel, dilation, padding, stride):
            places *= (n + 2 * p - d * (k - 1) - 1) // s + 1
        r.call("aten.col2im.default", r.data(torch.float32, 2, 3 * kernel[0] * kernel[1], places), size, kernel, dilation, padding, stride)


def fused(r):
    """Products and attention. That of GPUs is by its definition in double precision and autograd."""
    for dt in [torch.float32, torch.float64]:
        q, k, v = r.data(dt, 2, 3, 5, 8), r.data(dt, 2, 3, 7, 8), r.data(dt, 2, 3, 7, 8)
        name = "aten._scaled_dot_product_flash_attention_for_cpu"
        for kw in [{}, {"scale": 0.3}, {"attn_mask": r.data(dt, 2, 3, 5, 7)}]:
            out, lse = r.call(name + ".default", q, k, v, 0.0, False, **kw)
            r.call(name + "_backward.default", r.data(dt, 2, 3, 5, 8), q, k, v, out, lse, 0.0, False, **kw)
        out, lse = r.call(name + ".default", q, q, q, 0.0, True)
        r.call(name + "_backward.default", r.data(dt, 2, 3, 5, 8), q, q, q, out, lse, 0.0, True)
    def attend(q, k, v, bias, scale, causal):
        scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
        scores = scores if bias is None else scores + bias
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -INF)
        return scores.softmax(-1) @ v, scores.logsumexp(-1)

    def efficient(q, k, v, bias, lse, dropout, causal, scale=None):
        given = [t if t is None else t.double() for t in (q, k, v, bias)]
        out, lse = attend(*given, scale, causal)
        zero = torch.zeros((), dtype=torch.int64)
        return out.float(), torch.nn.functional.pad(lse, (0, -q.shape[2] % 32), value=INF).float(), zero, zero

    def efficient_backward(grad, q, k, v, bias, out, lse, seed, offset, dropout, mask, causal, scale=None):
        given = [t if t is None else t.double().requires_grad_() for t in (q, k, v, bias)]
        attend(*given, scale, causal)[0].backward(grad.double())
        return [None if t is None or not m else t.grad.float() for t, m in zip(given, mask)]

    def small(*shape):
        return r.data(torch.float32, *shape, low=-0.5, high=0.5)

    name = "aten._scaled_dot_product_efficient_attention"
    for keys, bias, causal, kw in [(7, None, False, {}), (5, None, True, {}), (7, (2, 3, 5, 7), False, {"scale": 0.3}), (5, (2, 3, 5, 5), True, {}), (7, (3, 1, 7), False, {})]:
        q, k, v = small(2, 3, 5, 8), small(2, 3, keys, 8), small(2, 3, keys, 8)
        b = None if bias is None else small(*bias)
        out, lse, seed, offset = r.call(name + ".default", q, k, v, b, True, 0.0, causal, instead=efficient, **kw)
        for mask in [[True, True, True, False], [True, True, True, b is not None]]:
            r.call(name + "_backward.default", small(2, 3, 5, 8), q, k, v, b, out, lse, seed, offset, 0.0, mask, causal, instead=efficient_backward, **kw)
    a, b = r.data(torch.bfloat16, 9, 16), r.data(torch.bfloat16, 3, 16, 8)
    ends = torch.tensor([2, 2, 9], dtype=torch.int32)
    r.call("aten._grouped_mm.default", a, b, ends)
    r.call("aten._grouped_mm.default", r.data(torch.bfloat16, 3, 8, 16), r.data(torch.bfloat16, 9, 16).t(), ends)
    r.call("aten._grouped_mm.default", r.data(torch.bfloat16, 9, 8).t(), r.data(torch.bfloat16, 9, 16), ends)
    for dt in FLOATS:
        r.call("aten.mm.default", r.data(dt, 3, 5), r.data(dt, 5, 4))
        r.call("aten.bmm.default", r.data(dt, 2, 3, 5), r.data(dt, 2, 5, 4))
        r.call("aten.addmm.default", r.data(dt, 4), r.data(dt, 3, 5), r.data(dt, 5, 4), beta=0.5, alpha=2)


def cells(r):
    """The fused recurrent cells of GPUs, by their definitions in double precision and autograd."""
    f32, n, w = torch.float32, 3, 5

    def lstm(x, h, c, *biases):
        i, f, g, o = (x + h + sum(biases)).chunk(4, 1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * c + i * g
        return o * c.tanh(), c, torch.cat([i, f, g, o], 1)

    def gru(x, h, s, *biases):
        if biases:
            x, h = x + biases[0], h + biases[1]
        (xr, xz, xn), (hr, hz, hn) = x.chunk(3, 1), h.chunk(3, 1)
        reset, update = (xr + hr).sigmoid(), (xz + hz).sigmoid()
        new = (xn + reset * hn).tanh()
        return (1 - update) * new + update * s, torch.cat([reset, update, new, s, hn], 1)

    def wide(args, grad=False):
        return [a.detach().double().requires_grad_(grad) for a in args]

    def single(ts):
        return [t.float() for t in ts]

    for name, cell, gates in [("lstm", lstm, 4), ("gru", gru, 3)]:
        for biased in [True, False]:
            args = [r.data(f32, n, gates * w), r.data(f32, n, gates * w), r.data(f32, n, w)] + [r.data(f32, gates * w) for _ in range(2 * biased)]
            out = r.call("aten._thnn_fused_%s_cell.default" % name, *args, instead=lambda *a: single(cell(*wide(a))))
            grads = [r.data(f32, n, w) for _ in out[:-1]]

            def backward(*_):
                given = wide(args, True)
                torch.autograd.backward(cell(*given)[:-1], wide(grads))
                if name == "gru":
                    return single([g.grad for g in given])
                return single([given[0].grad, given[2].grad] + [g.grad for g in given[3:4]])

            if name == "gru":
                r.call("aten._thnn_fused_gru_cell_backward.default", grads[0], out[1], biased, instead=backward)
            else:
                r.call("aten._thnn_fused_lstm_cell_backward_impl.default", *grads, args[2], out[1], out[2], biased, instead=backward)


def layouts(r):
    """Views and tensors of constants."""
    for dt in [torch.float32, torch.bfloat16, torch.int64, torch.bool]:
        x = r.data(dt, 3, 4, 1, 5)
        r.call("aten.alias.default", x)
        r.call("aten.clone.default", x.transpose(0, 1))
        r.call("aten.clone.default", x.transpose(0, 1), memory_format=torch.contiguous_format)
        r.call("aten.as_strided.default", x, [2, 3], [7, 2], 4)
        r.call("aten.permute.default", x, [2, 0, 3, 1])
        r.call("aten.select.int", x, 1, -2)
        r.call("aten.slice.Tensor", x, 3, 1, -1, 2)
        r.call("aten.split_with_sizes.default", x, [1, 0, 3], 1)
        r.call("aten.squeeze.dim", x, 2)
        r.call("aten.squeeze.dims", x, [1, 2])
        r.call("aten.unsqueeze.default", x, -1)
        r.call("aten.view.default", x, [6, -1])
        r.call("aten.full_like.default", x, 1)
        r.call("aten.full.default", [2, 3], 1, dtype=dt)
        r.call("aten.scalar_tensor.default", 1, dtype=dt)
    r.call("aten.full.default", [2], INF)
    r.call("aten.arange.start_step", 3, 20, 4)
    r.call("aten.arange.start_step", 5, -6, -3)


def core():
    """The names of the operators that PyTorch tags core."""
    names = []
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads() if hasattr(packet, "overloads") else []:
            if torch.Tag.core in getattr(packet, overload).tags:
                names.append("aten.%s.%s" % (name, overload))
    return sorted(names)


def main(path, names):
    with open(names, "w") as out:
        out.write("\n".join(core()) + "\n")
    with open(path, "w") as out:
        r = Recorder(out)
        for group in (pointwise, reductions, movement, elementwise, folds, lookups, cells, layouts, fused, windows, channel_norms):
            group(r)
        for group in (layers, lines, matrices, joined, places, lists, complexes, factors, masks, transforms, corners, signals, specials, unusual, rare, quantised, copies, parts, optimizers, reflections, steps, fractional, oblong, incomplete, ctc, eigenvalues, inverses, scalars, bessels, polynomials, segments, cubic, primitives, wider):
            group(Recorder(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
