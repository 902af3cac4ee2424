"""Records what PyTorch's operators give, for the tests of the importer (ir/fx).

    python tools/torch/operators.py ir/fx/testdata/operators.jsonl

Each line is one call: its target, the text of its arguments as a traced graph has it, and
its tensors with their values: floating-point values as hexadecimal bit patterns, so that a
test can compare bits. Needs PyTorch only; runs on the CPU; always gives the same file for
the same version of PyTorch.
"""
import json
import sys

import torch

NAN, INF = float("nan"), float("inf")
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.int64, torch.int32, torch.int8, torch.uint8]


def values(t):
    """The elements in row-major order: integers, or bit patterns of floats."""
    t = t.detach().contiguous()
    bits = {torch.float64: torch.int64, torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}
    if t.dtype in bits:
        width = {8: 16, 4: 8, 2: 4}[t.element_size()]
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

    def call(self, target, *args, **kwargs):
        """Calls an operator and writes a line."""
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
        out = op(*args, **kwargs)
        outs = list(out) if isinstance(out, (list, tuple)) else [out]
        line = {"target": target, "args": args_text, "kwargs": kwargs_text, "in": given,
                "out": [dict(describe(t), data=values(t)) for t in outs if isinstance(t, torch.Tensor)]}
        if len(line["out"]) < len(outs):  # None among them: the places of the tensors
            line["items"] = [k for k, t in enumerate(outs) if isinstance(t, torch.Tensor)]
        json.dump(line, self.out)
        self.out.write("\n")


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


def main(path):
    with open(path, "w") as out:
        r = Recorder(out)
        for group in (pointwise, reductions, movement):
            group(r)


if __name__ == "__main__":
    main(sys.argv[1])
