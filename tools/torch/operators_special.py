"""Calls that tools/torch/operators.py records: scalars where PyTorch has them as lines, and special functions."""
import torch


def scalars(r):
    """Tensors without dimensions where an operator works along one."""
    for dt in [torch.float32, torch.bfloat16, torch.int64]:
        x, y, at = r.data(dt), r.data(dt), torch.tensor(0)
        for name in ["cumsum", "cumprod"]:
            r.call("aten.%s.default" % name, x, -1)
        for name in ["cummax.default", "cummin.default", "max.dim", "min.dim", "median.dim", "nanmedian.dim", "mode.default", "sort.default"]:
            r.call("aten." + name, x, 0)
        for name in ["max.dim", "median.dim", "mode.default"]:
            r.call("aten." + name, x, -1, True)
        for keep in [False, True]:
            r.call("aten.kthvalue.default", x, 1, -1, keep)
            r.call("aten.sum.dim_IntList", x, [0], keep)
            r.call("aten.argmax.default", x, 0, keep)
            r.call("aten.prod.dim_int", x, 0, keep)
            r.call("aten.any.dim", x, 0, keep)
        r.call("aten.topk.default", x, 1)
        r.call("aten.sort.stable", x, stable=True, dim=0, descending=True)
        for index in [at, at.reshape(1)]:
            r.call("aten.gather.default", x, 0, index)
            r.call("aten.index_select.default", x, -1, index)
            r.call("aten.index_add.default", x, 0, index, y, alpha=2)
            r.call("aten.scatter.src", x, 0, index, y if index is at else y.reshape(1))
            r.call("aten.scatter.value", x, 0, index, 3)
            r.call("aten.scatter_add.default", x, 0, index, y if index is at else y.reshape(1))
            for how in ["sum", "prod", "mean", "amax", "amin"]:
                r.call("aten.scatter_reduce.two", x, 0, index, y if index is at else y.reshape(1), how, include_self=False)
            for how in ["prod", "mean", "amax", "amin"]:
                r.call("aten.index_reduce.default", x, 0, index, y, how)
        line, none = r.data(dt, 5), torch.zeros(2, 0, dtype=torch.int64)
        r.call("aten.gather.default", line, 0, none)
        r.call("aten.scatter_add.default", line, 0, none, none.to(dt))
        r.call("aten.gather.default", line, 0, at)
        r.call("aten.index_select.default", line, 0, at)
        r.call("aten.index_add.default", line, 0, at, y.reshape(1))
        r.call("aten.scatter.src", line, 0, at, y)
        r.call("aten.scatter_reduce.two", line, 0, at, y, "amax")
        for size in [0, 1]:
            r.call("aten.unfold.default", x, 0, size, 1)
            r.call("aten.unfold_copy.default", x, 0, size, 1)
    for dt in [torch.float32, torch.bfloat16]:
        x = r.data(dt)
        for name in ["logcumsumexp.default", "_softmax.default", "_log_softmax.default"]:
            r.call("aten." + name, x, 0, *([False] if "_s" in name or "_l" in name else []))
        for keep in [False, True]:
            r.call("aten.logsumexp.default", x, [0], keep)
            r.call("aten.amax.default", x, [0], keep)
            r.call("aten.mean.dim", x, [0], keep)
            r.call("aten.linalg_vector_norm.default", x, 2, [0], keep)
            r.call("aten.var.correction", x, [0], correction=0, keepdim=keep)


def bessels(r):
    """Bessel functions, and others of mathematics."""
    edges = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-30, -1e-30, 1.0, -1.0, 2.0, 60.0, 1e4, 104.0, -1e4]
    for name in ["modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "spherical_bessel_j0", "erfcx",
                 "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "airy_ai"]:
        inexact = name[:6] in ["bessel", "airy_a"]  # PyTorch's own are 1e-6 from the exact ones beyond 3, and in float64
        for dt in [torch.float32] if inexact or name[0] == "s" else [torch.float32, torch.float64]:
            r.call("aten.special_%s.default" % name, r.data(dt, 3, 7, low=-2, high=3))
            r.call("aten.special_%s.default" % name, r.data(dt, 3, 7, low=0.01, high=3 if inexact else 30))
        r.call("aten.special_%s.default" % name, torch.tensor(edges[:10] if inexact else edges))
        r.call("aten.special_%s.default" % name, torch.arange(1, 5))
    for dt in [torch.float32, torch.float64]:
        r.call("aten.special_ndtri.default", r.data(dt, 3, 7, low=0, high=1))
        r.call("aten.special_ndtri.default", 10 ** r.data(dt, 9, low=-30, high=-1))
    r.call("aten.special_ndtri.default", torch.tensor([0.0, 1.0, -0.5, 1.5, float("nan"), 0.5, 1 - 1e-7]))


def polynomials(r):
    """Of degrees that are an operand."""
    for name in ["chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w", "hermite_polynomial_h",
                 "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]:
        for name in [name, "shifted_" + name] if name[0] == "c" else [name]:
            target = "aten.special_%s." % name
            for dt in [torch.float32, torch.float64]:
                x = r.data(dt, 3, 7, low=-1, high=1)
                r.call(target + "default", x, r.data(dt, 7, low=-1, high=5).trunc())
                r.call(target + "n_scalar", x, 3)
                r.call(target + "x_scalar", 0.25, r.data(dt, 5, low=0, high=7))
            r.call(target + "default", r.data(torch.float32, 5, low=-3, high=3), r.data(torch.int64, 5, low=0, high=4))
            r.call(target + "default", torch.tensor([1.0, -1.0, 0.0, 0.5, 1.0, 2.0, float("nan")]), torch.tensor([5.0, 4.0, 3.0, 30.0, 0.0, 1.0, 2.0]))


def segments(r):
    """Rows that stand one after another, bins, and places of what is not zero."""
    for dt in [torch.float32, torch.float64]:
        x = r.data(dt, 9, 2)
        x[2, 0], x[4, 1] = 0, 0
        for where in [{"offsets": torch.tensor([0, 2, 2, 6, 9])}, {"lengths": torch.tensor([2, 0, 5, 2])}]:
            if "lengths" in where:
                x[7], x[5, 1] = x[6], 0  # by offsets PyTorch does not divide gradients among equals
            for how in ["sum", "mean", "prod", "max", "min"]:
                for initial in [{}, {"initial": 2}]:
                    y = r.call("aten.segment_reduce.default", x, how, unsafe=True, **where, **initial)
                    r.call("aten._segment_reduce_backward.default", r.data(dt, 4, 2), y, x, how, **where, **initial)
        x = r.data(dt, 5, 5)
        for ends in [{}, {"range": [-2.0, 3.0]}]:
            r.call("aten.histogram.bin_ct", x, 7, **ends)
            r.call("aten.histogram.bin_ct", x, 5, weight=r.data(dt, 5, 5, low=0, high=1), density=True, **ends)
        r.call("aten.histogram.bin_ct", x[0, 0], 1)
        r.call("aten._histogramdd_bin_edges.default", x[:, :2], [3, 2])
        r.call("aten._histogramdd_from_bin_cts.default", x.reshape(5, 1, 5)[..., :2], [3, 2])
        r.call("aten._histogramdd_from_bin_cts.default", x[:, :3], [3, 2, 4], range=[-2.0, 2.0, -4.0, 4.0, 0.0, 1.0], weight=r.data(dt, 5))
        for p in [2.0, 1.0]:
            r.call("aten.embedding_renorm.default", x, torch.tensor([[0, 3], [3, 4]]), 4.0, p)
        y = x * (x > 0)
        for size in [3, 20]:
            r.call("aten.nonzero_static.default", y, size=size)
        r.call("aten.nonzero_static.default", y > 1, size=7, fill_value=9)
    for shape in [(0, 0), (0, 2, 2), (2, 0, 0), (3, 0), (0, 3)]:
        x = torch.zeros(shape)
        r.call("aten.linalg_lu_factor_ex.default", x)
        r.call("aten.linalg_lu.default", x)
        if shape[-1] == shape[-2]:
            r.call("aten._linalg_det.default", x)
            r.call("aten._linalg_slogdet.default", x)
            r.call("aten.linalg_inv_ex.default", x)
    r.call("aten._adaptive_avg_pool2d.default", torch.zeros(0, 3, 5, 5), [2, 2])
    r.call("aten._pdist_backward.default", torch.zeros(0), torch.ones(1, 3), 2.0, torch.zeros(0))


def cubic(r):
    """Images looked up by cubic convolution."""
    for dt in [torch.float32, torch.float64]:
        for padding in range(3):
            for corners in [False, True]:
                x, grid = r.data(dt, 2, 2, 4, 5), r.data(dt, 2, 3, 2, 2, low=-2, high=2)
                r.call("aten.grid_sampler_2d.default", x, grid, 2, padding, corners)
                r.call("aten.grid_sampler_2d_backward.default", r.data(dt, 2, 2, 3, 2), x, grid, 2, padding, corners, [True, True])


def primitives(r):
    """PyTorch's own primitives, and operators by other names."""
    for dt in [torch.float32, torch.bfloat16]:
        x, y = r.data(dt, 3, 7, low=0.1, high=0.9), r.data(dt, 3, 7, low=1, high=2)
        for name in ["abs", "acos", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "digamma", "erf", "erfc", "erf_inv", "exp", "exp2", "expm1", "floor", "lgamma",
                     "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sign", "signbit", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
                     "bessel_i0", "bessel_i0e", "bessel_i1", "bessel_i1e", "ndtri", "frexp", "clone", "view_of"]:
            r.call("prims.%s.default" % name, x)
        r.call("prims.acosh.default", y)
        for name in ["add", "atan2", "div", "eq", "fmod", "ge", "gt", "hypot", "le", "lt", "maximum", "minimum", "mul", "ne", "pow", "remainder", "sub"]:
            r.call("prims.%s.default" % name, x, y)
        for name in ["sum", "amax", "amin", "prod"]:
            r.call("prims.%s.default" % name, x, [1])
        r.call("prims.var.default", x, [0, 1], 1)
        r.call("prims.where.default", x > 0.5, x, y)
        r.call("prims.broadcast_in_dim.default", x, [2, 3, 4, 7], [1, 3])
        r.call("prims.broadcast_in_dim.default", x[:, :1], [3, 4], [0, 1])
        r.call("prims.transpose.default", x, [1, 0])
        r.call("prims.squeeze.default", x[:1], [0])
        r.call("prims.split_dim.default", r.data(dt, 3, 8), 1, 2)
        r.call("prims.collapse_view.default", r.data(dt, 3, 4, 2), 0, 1)
        r.call("prims.collapse.default", r.data(dt, 3, 4, 2).transpose(0, 1), 0, 1)
        r.call("prims.reshape.default", x, [7, 3])
        r.call("prims.cat.default", [x, y], 0)
        r.call("aten._addmm_activation.default", r.data(dt, 5), r.data(dt, 3, 4), r.data(dt, 4, 5))
        r.call("aten._addmm_activation.default", r.data(dt, 5), r.data(dt, 3, 4), r.data(dt, 4, 5), use_gelu=True,
               instead=lambda a, b, c, use_gelu: torch.nn.functional.gelu(torch.addmm(a, b, c), approximate="tanh"))  # as on GPUs
        for d in [0, -1]:
            r.call("aten._softmax_backward_data.default", r.data(dt, 3, 7), x.softmax(d), d, dt)
            r.call("aten._log_softmax_backward_data.default", r.data(dt, 3, 7), x.log_softmax(d), d, dt)
        r.call("aten._convolution.default", r.data(dt, 2, 4, 9), r.data(dt, 6, 2, 3), r.data(dt, 6), [1], [1], [2], False, [0], 2, False, False, True, True)
    r.call("prims.spherical_bessel_j0.default", r.data(torch.float32, 5))
    for dt in [torch.int64, torch.bool]:
        for name in ["and", "or", "xor"]:
            r.call("aten.__%s__.Tensor" % name, r.data(dt, 9), r.data(dt, 9))
    a, b = r.data(torch.int64, 9, low=0), r.data(torch.int64, 9, low=0)
    for name in ["shift_left", "shift_right_arithmetic", "bitwise_and", "bitwise_or", "bitwise_xor"]:
        r.call("prims.%s.default" % name, a, b)
    r.call("aten.bitwise_and.Scalar_Tensor", 3, a)
    r.call("prims.bitwise_not.default", a)


def wider(r):
    """Results that are padded by more than a stride, operands that are broadcast or in no order, quotients that are rounded twice."""
    for dt in [torch.bfloat16, torch.float16]:
        r.call("aten.div.Tensor_mode", r.data(dt, 40, 1, low=1, high=90), r.data(dt, 40, low=1, high=9), rounding_mode="trunc")
    for dt in [torch.float32, torch.bfloat16]:
        x, w, how = r.data(dt, 2, 2, 3, 4), r.data(dt, 2, 2, 3, 2), ([2, 3], [1, 2], [3, 4], True, [2, 3], 2)
        y = r.call("aten.convolution.default", x, w, None, *how)
        r.call("aten.convolution_backward.default", r.data(dt, *y.shape), x, w, [4], *how, [True, True, True])
        r.call("aten.masked_scatter.default", r.data(dt, 5), r.data(torch.bool, 3, 5), r.data(dt, 3, 5))
        line = r.data(dt, 3, 9)
        r.call("aten.searchsorted.Tensor", line, r.data(dt, 3, 4), side="right", sorter=line.argsort(-1))
