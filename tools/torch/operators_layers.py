"""Operators beside the core set for operators.py: what layers, losses and data of models are made of."""
import math

import torch


def layers(r):
    for dt in [torch.float32, torch.bfloat16, torch.int64]:
        r.call("prims.rev.default", r.data(dt, 3, 2, 5), [0, 2])
    for dt in [torch.float32, torch.bfloat16]:
        x = r.data(dt, 3, 8, 4)
        r.call("aten.glu.default", x, 1)
        r.call("aten.glu_backward.default", r.data(dt, 3, 8, 2), x, 2)
        for dim, shape in [(0, (3, 1, 1)), (2, (1, 1, 4))]:
            v, g = r.data(dt, 3, 8, 4), r.data(dt, *shape)
            w, norms = r.call("aten._weight_norm_interface.default", v, g, dim)
            r.call("aten._weight_norm_interface_backward.default", r.data(dt, 3, 8, 4), v, g, norms, dim)
    x = r.data(torch.float32, 3, 8, low=-9, high=9)
    r.call("aten.fake_quantize_per_tensor_affine_cachemask.default", x, 0.25, 3, -8, 7)
    for on in [0, 1]:
        r.call("aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default", x, torch.tensor([0.5]), torch.tensor([1], dtype=torch.int32), torch.tensor([on]), -8, 7)
    for axis in [0, 1]:
        r.call("aten.fake_quantize_per_channel_affine_cachemask.default", x, r.data(torch.float32, x.shape[axis], low=0.1, high=1), r.data(torch.int32, x.shape[axis]), axis, -8, 7)


def lines(r):
    """Sorted lines, diagonals and slices."""
    nan = float("nan")
    for dt in [torch.float32, torch.int64]:
        line, x = r.data(dt, 2, 6).sort(-1)[0], r.data(dt, 2, 4)
        for kw in [{}, {"right": True}, {"side": "right"}, {"out_int32": True}]:
            r.call("aten.searchsorted.Tensor", line, x, **kw)
        r.call("aten.searchsorted.Tensor", line[0].contiguous(), r.data(dt, 3, 2))
        r.call("aten.searchsorted.Scalar", line[0].contiguous(), 1)
        for right in [False, True]:
            r.call("aten.bucketize.Tensor", r.data(dt, 3, 2), line[1].contiguous(), right=right)
    for right in [False, True]:
        r.call("aten.searchsorted.Tensor", torch.tensor([-1.0, 0.0, 0.0, 2.0]), torch.tensor([nan, 0.0, -2.0]), right=right)
    for dt in [torch.float32, torch.bfloat16, torch.int64]:
        x = r.data(dt, 3, 4, 5)
        r.call("aten.diagonal_scatter.default", x, r.data(dt, 5, 3))
        r.call("aten.diagonal_scatter.default", x.transpose(0, 1), r.data(dt, 4, 3), -1, 2, 1)
    for reduce in ["prod", "mean", "amax", "amin"]:
        for own in [True, False]:
            r.call("aten.index_reduce.default", r.data(torch.float32, 3, 5), 1, torch.tensor([4, 0, 4, 2]), r.data(torch.float32, 3, 4), reduce, include_self=own)


def joined(r):
    """Joined tensors of several element types, and none."""
    r.call("aten.cat.default", [r.data(torch.bfloat16, 2, 3), r.data(torch.float32, 2, 1), r.data(torch.int64, 2, 2)], 1)
    r.call("aten.cat.default", [torch.zeros(0), r.data(torch.float32, 2, 3)], -1)


def matrices(r):
    for dt in [torch.float32, torch.float64]:
        for upper in [False, True]:
            a = r.data(dt, 2, 5, 5)
            l, _ = r.call("aten.linalg_cholesky_ex.default", a @ a.mT + 5 * torch.eye(5, dtype=dt), upper=upper)
            r.call("aten.cholesky_solve.default", r.data(dt, 2, 5, 3), l.contiguous(), upper)
            for left, b in [(True, (2, 5, 3)), (False, (2, 3, 5)), (True, (5, 1))]:
                r.call("aten.linalg_solve_triangular.default", l.contiguous(), r.data(dt, *b), upper=upper, left=left)
            r.call("aten.linalg_solve_triangular.default", l.contiguous(), r.data(dt, 2, 5, 3), upper=upper, unitriangular=True)


def places(r):
    """Elements under masks and of uneven windows, and gradients that go where indices say."""
    for dt in [torch.float32, torch.bfloat16]:
        x, at = r.data(dt, 3, 5, 6), [None, r.data(torch.int64, 4, 1, low=-2, high=6), r.data(torch.int64, 3, low=-1, high=7)]
        mask = (at[1] >= 0) & (at[1] < 5) & (at[2] >= 0) & (at[2] < 6)
        r.call("aten._unsafe_masked_index.default", x, mask, at, 0.5)
        r.call("aten._unsafe_masked_index_put_accumulate.default", x, mask, at, r.data(dt, 3, 4, 3))
        for size in [[1, 1], [5, 2], [3, 4], [2, 6]]:
            y, at = r.call("aten.adaptive_max_pool2d.default", x, size)
            r.call("aten.adaptive_max_pool2d_backward.default", r.data(dt, *y.shape), x, at)
        for size in [[1, 5, 3], [2, 3, 4]]:
            y, at = r.call("aten.adaptive_max_pool3d.default", x[None], size)
            r.call("aten.adaptive_max_pool3d_backward.default", r.data(dt, *y.shape), x[None], at)
        w, i = r.data(dt, 7, 4), r.data(torch.int64, 9, low=0, high=6)
        for offsets in [torch.tensor([0, 2, 2, 5]), torch.tensor([0, 3, 6])]:
            for padding in [-1, 3]:
                _, bag, size, top = r.call("aten._embedding_bag.default", w, i, offsets, False, 2, False, None, False, padding)
                r.call("aten._embedding_bag_dense_backward.default", r.data(dt, len(offsets), 4), i, bag, size, top, 7, False, 2, None, padding)
    a, b, m = r.data(torch.float32, 6, 3), r.data(torch.float32, 6, 5), r.data(torch.float32, 4, 3, 5)
    r.call("aten._trilinear.default", a, m, b, [1, 3], [0], [1, 2], [2, 3])
    r.call("aten._trilinear.default", a, b, r.data(torch.float32, 6, 4), [2, 3], [1, 3], [1, 2], [0])
    for p in [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")]:
        a, b = r.data(torch.float32, 2, 3, 5), r.data(torch.float32, 2, 4, 5)
        b[0, 1] = a[0, 2]
        r.call("aten._cdist_backward.default", r.data(torch.float32, 2, 3, 4), a, b, p, torch.ops.aten._cdist_forward.default(a, b, p, None))
    for dt in [torch.float32, torch.float64]:
        for mode in [0, 1]:
            for padding in [0, 1, 2]:
                for corners in [True, False]:
                    r.call("aten.grid_sampler_2d_backward.default", r.data(dt, 2, 3, 6, 2), r.data(dt, 2, 3, 4, 5), r.data(dt, 2, 6, 2, 2, low=-2, high=2), mode, padding, corners, [True, True])
    for dt in [torch.float32, torch.int64]:
        x = torch.randperm(30, generator=r.rng).view(5, 6).to(dt)
        r.call("aten.median.default", x)
        r.call("aten.median.dim", x, 1, True)
        r.call("aten.median.dim", x, 0)


def lists(r):
    """One operator for each tensor of a list, norms, and products of 8-bit numbers."""
    for dt in [torch.float32, torch.bfloat16]:
        a, b, at = [r.data(dt, 3, 2), r.data(dt, 5)], [r.data(dt, 3, 2, low=0.5), r.data(dt, 5, low=0.5)], torch.tensor(0.75, dtype=dt)
        for name in ["add", "sub", "mul", "div", "maximum", "minimum", "clamp_min", "clamp_max"]:
            r.call("aten._foreach_%s.List" % name, a, b)
            r.call("aten._foreach_%s.Scalar" % name, a, 1.5)
            r.call("aten._foreach_%s.ScalarList" % name, a, [1.5, -2.0])
        for name in ["add", "mul", "div"]:
            r.call("aten._foreach_%s.Tensor" % name, a, at)
        r.call("aten._foreach_add.List", a, b, alpha=-0.5)
        r.call("aten._foreach_pow.List", b, a)
        r.call("aten._foreach_pow.Scalar", a, 2.0)
        r.call("aten._foreach_pow.ScalarAndTensor", 2.0, a)
        for name in ["abs", "neg", "exp", "sqrt", "reciprocal", "sign"]:
            r.call("aten._foreach_%s.default" % name, b)
        for p in [0, 1, 2, 3, float("inf")]:
            r.call("aten._foreach_norm.Scalar", a, p)
            r.call("aten.linalg_vector_norm.default", r.data(dt, 4, 3, 5), p, [0, -1], True)
        r.call("aten.linalg_vector_norm.default", b[0], float("-inf"))
        r.call("aten.linalg_vector_norm.default", b[0], dtype=torch.float32)
    m, n = r.data(torch.float32, 4, 16).to(torch.float8_e4m3fn), r.data(torch.float32, 8, 16).to(torch.float8_e4m3fn).t()
    one, rows, columns, bias = torch.tensor(0.5), r.data(torch.float32, 4, 1, low=0.1, high=2), r.data(torch.float32, 1, 8, low=0.1, high=2), r.data(torch.bfloat16, 8)

    def scaled(a, b, x, y, bias=None, result=None, out_dtype=None, fast=False):
        z = (a.float() @ b.float()) * x * y
        return (z if bias is None else z + bias.float()).to(out_dtype)

    r.call("aten._scaled_mm.default", m, n, one, one, out_dtype=torch.float32, instead=scaled)
    r.call("aten._scaled_mm.default", m, n, rows, columns, bias, out_dtype=torch.bfloat16, instead=scaled)
    r.call("aten._scaled_mm.default", m, n.to(torch.float8_e5m2), one, one, bias, None, torch.bfloat16, True, instead=scaled)


def complexes(r):
    """Complex numbers, which concert has as pairs."""
    for dt in [torch.float32, torch.float64]:
        x, y = (torch.view_as_complex(r.data(dt, 2, 1 + 2 * k, 3, 2)) for k in range(2))
        real = r.data(dt, 3)
        for name in ["mul", "add", "sub", "div"]:
            for a, b in [(x, y), (y, real), (real, x)]:
                r.call("aten.%s.Tensor" % name, a, b)
            r.call("aten.%s.Tensor" % name, x, 0.75)
        for name in ["abs", "angle", "exp", "neg", "view_as_real", "_conj", "clone"]:
            r.call("aten.%s.default" % name, y)
        r.call("aten.view_as_complex.default", r.data(dt, 3, 2, 2))
        r.call("aten.polar.default", r.data(dt, 3, 4, low=0), r.data(dt, 3, 4))
        r.call("aten.complex.default", r.data(dt, 3, 4), r.data(dt, 3, 4))
        r.call("aten.mm.default", x[:, 0], y[0].t().contiguous())
        r.call("aten.bmm.default", y, y.transpose(1, 2).contiguous())
        r.call("aten.zeros_like.default", x)
        for dims in [[-1], [0, 2], []]:
            r.call("aten.sum.dim_IntList", y, dims, True)
        r.call("aten.sum.default", y)
    y = y.to(torch.complex64)
    r.call("aten.view.dtype", y, torch.float32)
    r.call("aten.view.dtype", r.data(torch.float32, 3, 8), torch.complex64)
    r.call("aten.view.default", y, [3, -1])
    r.call("aten.expand.default", y[:, :1], [-1, 5, -1])
    r.call("aten.permute.default", y, [-1, 0, 1])
    r.call("aten.transpose.int", y, 0, -1)
    for dim in [0, 1, -1]:
        r.call("aten.unsqueeze.default", y, dim)
        r.call("aten.select.int", y, dim, 1)
        r.call("aten.slice.Tensor", y, dim, 1, 3)
        r.call("aten.cat.default", [y, y], dim)
        r.call("aten.unbind.int", y, dim)
        r.call("aten.flip.default", y, [dim])
        r.call("aten.index_select.default", y, dim, torch.tensor([1, 0]))
    r.call("aten.split.Tensor", y, 2, -1)
    r.call("aten.index.Tensor", y, [torch.tensor([1, 0, 1]), None, torch.tensor([1, 2, 0])])


def factors(r):
    """Matrices factored with exchanges of rows and by reflections, and what follows from that."""
    for dt in [torch.float32, torch.float64]:
        a, b, v = r.data(dt, 2, 5, 5), r.data(dt, 2, 5, 3), r.data(dt, 2, 5)
        lu, pivots, _ = r.call("aten.linalg_lu_factor_ex.default", a)
        r.call("aten._linalg_det.default", a)
        r.call("aten._linalg_slogdet.default", a)
        r.call("aten._linalg_slogdet.default", a[0])
        r.call("aten.linalg_inv_ex.default", a)
        r.call("aten._linalg_solve_ex.default", a, b)
        if dt == torch.float64:  # two that solve in single precision differ by 5 units
            r.call("aten._linalg_solve_ex.default", a, v)
        r.call("aten._linalg_solve_ex.default", a, b.mT.contiguous(), left=False)
        for adjoint in [False, True]:
            r.call("aten.linalg_lu_solve.default", lu, pivots, b, adjoint=adjoint)
            r.call("aten.linalg_lu_solve.default", lu, pivots, b.mT.contiguous(), left=False, adjoint=adjoint)
        for shape in [(5, 5), (6, 4), (2, 4, 6), (3, 1)]:
            r.call("aten.linalg_qr.default", r.data(dt, *shape))
        r.call("aten.linalg_qr.default", torch.tensor([[1, 2], [0, -3], [0, 0]], dtype=dt))
        r.call("aten._linalg_det.default", torch.tensor([[0, 0, 1], [0, 0, 2], [1, 2, 3]], dtype=dt))


def specials(r):
    """Functions of mathematics that the operator table of the IR does not have."""
    for dt in [torch.float32, torch.bfloat16, torch.float16]:
        x = r.data(dt, 3, 7)
        r.call("aten.lgamma.default", x)
        r.call("aten.digamma.default", x)
        r.call("aten.i0.default", x)
        r.call("aten.erfinv.default", r.data(dt, 3, 7, low=-1, high=1))
        for n in [0, 1, 3]:
            r.call("aten.polygamma.default", n, r.data(dt, 9, low=0.1, high=6))
    for dt in [torch.float32, torch.float64]:
        for name in ["special_i0e", "special_i1", "special_i1e"]:
            r.call("aten.%s.default" % name, r.data(dt, 3, 7, low=-40, high=40))
        r.call("aten.special_zeta.default", r.data(dt, 9, low=1.5, high=6), r.data(dt, 9, low=0.1, high=6))
        r.call("aten.nextafter.default", r.data(dt, 9), r.data(dt, 9))
    for name in ["lgamma", "digamma", "i0", "erfinv"]:
        r.call("aten.%s.default" % name, torch.tensor([0.0, 1.0, 2.0, 0.5, math.inf, math.nan]))
    r.call("aten.digamma.default", torch.tensor([0.0, -0.0]))
    r.call("aten.lgamma.default", torch.tensor([1, 2, 5, 11]))
    for dt in [torch.float32, torch.float64]:
        x, g = r.data(dt, 5, 3), r.data(dt, 10)
        for p in [0.0, 1.0, 2.0, 3.0, math.inf]:
            r.call("aten._pdist_backward.default", g, x, p, torch.ops.aten._pdist_forward.default(x, p))
        r.call("aten._pdist_forward.default", x)


def masks(r):
    """Elements that a mask names, set to one value."""
    for dt in [torch.float32, torch.int64]:
        x = r.data(dt, 3, 4)
        for mask, v in [(r.data(torch.bool, 3, 4), ()), (r.data(torch.bool, 3, 4), (1,)), (r.data(torch.bool, 3), (4,)), (r.data(torch.bool, 3), (1, 4)), (r.data(torch.bool, 3), ())]:
            for accumulate in [False, True]:
                r.call("aten.index_put.default", x, [mask], r.data(dt, *v), accumulate)


def transforms(r):
    """Fourier transforms."""
    for dt in [torch.float32, torch.float64]:
        for n in [1, 2, 5, 8, 12]:
            x = r.data(dt, 2, 3, n)
            z = torch.view_as_complex(r.data(dt, 2, 3, n, 2))
            for norm in [0, 1, 2]:
                r.call("aten._fft_r2c.default", x, [2], norm, norm != 1)
                r.call("aten._fft_c2c.default", z, [2], norm, norm != 0)
                r.call("aten._fft_c2r.default", z[..., : n // 2 + 1].clone(), [2], norm, n)
        x, z = r.data(dt, 3, 4, 5), torch.view_as_complex(r.data(dt, 3, 4, 5, 2))
        for dims in [[0], [1, 2], [2, 0], [0, 1, 2]]:
            r.call("aten._fft_r2c.default", x, dims, 1, True)
            r.call("aten._fft_r2c.default", x, dims, 0, False)
            r.call("aten._fft_c2c.default", z, dims, 2, False)
            r.call("aten._fft_c2r.default", z, dims, 1, 2 * z.shape[dims[-1]] - 2)
            r.call("aten._fft_c2r.default", z, dims, 2, 2 * z.shape[dims[-1]] - 1)
        r.call("aten._fft_r2c.default", x.permute(2, 0, 1), [1, 2], 0, True)
    for n in [96, 845]:  # by rows, and rows by rows
        z = torch.view_as_complex(r.data(torch.float32, n, 2))
        r.call("aten._fft_r2c.default", r.data(torch.float32, n), [0], 1, True)
        r.call("aten._fft_c2r.default", z[: n // 2 + 1].clone(), [0], 2, n)
    z = torch.view_as_complex(r.data(torch.float64, 2, 81, 2))
    r.call("aten._fft_r2c.default", r.data(torch.float64, 81, 2), [0, 1], 0, False)
    r.call("aten._fft_c2c.default", z, [1], 2, False)
    r.call("aten._fft_c2c.default", z, [1, 0], 0, True)


def corners(r):
    """Singular matrices, numbers that are no floats of 32 bits, complex numbers in lists."""
    for dt in [torch.float32, torch.float64]:
        singular = torch.tensor([[[1, 2, 3], [2, 4, 7], [3, 6, 9]], [[2, 0, 0], [0, 1, 0], [0, 0, 3]]], dtype=dt)
        r.call("aten.linalg_lu_factor_ex.default", singular)
        r.call("aten.linalg_lu_factor_ex.default", torch.zeros(1, 1, dtype=dt))
        r.call("aten._linalg_slogdet.default", torch.zeros(2, 2, dtype=dt))
        far = 1e25 if dt == torch.float32 else 1e200
        upright = torch.tensor([[3, 1], [4, 2], [0, 5]], dtype=dt)
        r.call("aten.linalg_qr.default", upright * far)
        r.call("aten.linalg_qr.default", upright / far)
        x, y = (torch.view_as_complex(r.data(dt, 2, 2, 2)) for _ in range(2))
        for name in ["mul", "add", "sub", "div"]:
            r.call("aten.%s.Tensor" % name, x, 0.1)
            r.call("aten.%s.Tensor" % name, x, 1 - 0.3j)
            r.call("aten.%s.Tensor" % name, r.data(dt, 3), 2j)
            r.call("aten._foreach_%s.List" % name, [x, y], [y, x])
        r.call("aten._foreach_neg.default", [x, y[0]])
        r.call("aten.copy.default", x, y)
        r.call("aten.copy.default", x, r.data(dt, 2, 2))
    x, y = x.to(torch.complex64) * 1e25, y.to(torch.complex64) * 1e25
    r.call("aten.abs.default", x)
    r.call("aten.div.Tensor", x, y)
    for dt in [torch.float32, torch.bfloat16]:  # what Adam does
        a, b, z = ([r.data(dt, 3, 2, low=0.5), r.data(dt, 5, low=0.5)] for _ in range(3))
        for name in ["addcmul", "addcdiv"]:
            r.call("aten._foreach_%s.Scalar" % name, a, b, z, -0.1)
            r.call("aten._foreach_%s.ScalarList" % name, a, b, z, [0.3, 1.0])
            r.call("aten.%s.default" % name, a[0], b[0], z[0], value=0.3)
        r.call("aten._foreach_lerp.Scalar", a, b, 0.1)
        r.call("aten._foreach_lerp.List", a, b, [r.data(dt, 3, 2, low=0, high=1), r.data(dt, 5, low=0, high=1)])
        r.call("aten.lerp.Scalar", a[0], b[0], 0.7)


def signals(r):
    """What models of signals have: complex numbers, windows, bytes, and gradients whose helpers PyTorch leaves out."""
    for dt in [torch.float32, torch.float64]:
        z, y = (torch.view_as_complex(r.data(dt, 2, 3, 4, 2)) for _ in range(2))
        z[0, 0, 0] = 0
        x, on = r.data(dt, 2, 3, 4), r.data(dt, 2, 1, 4) > 0
        for a, b in [(z, y), (x, y), (z, x)]:
            r.call("aten.where.self", on, a, b)
        r.call("aten.sgn.default", z)
        r.call("aten.reciprocal.default", y)
        r.call("aten.log.default", y)
        r.call("aten.cumsum.default", y, -1)
        r.call("aten.index_put.default", y, [None, torch.tensor([0, 2, 0])], z, True)
        for pads in [[1, 2], [0, 1, 2, 0], [-1, 1]]:
            r.call("aten.constant_pad_nd.default", y, pads, 0.0)
    for dims in [[-1], [0, 2], []]:
        r.call("aten.mean.dim", z.to(torch.complex64), dims, True)
    r.call("aten.mean.default", z.to(torch.complex64))
    r.call("prims.convert_element_type.default", x.float(), torch.complex64)
    r.call("prims.convert_element_type.default", y, torch.complex64)
    r.call("aten._to_copy.default", y, dtype=torch.float32)
    z = [0, 1j, 2, complex(0, float("nan")), complex(float("nan"), 0), complex(-0.0, -0.0), complex(3, -1)]
    r.call("aten._to_copy.default", torch.tensor(z, dtype=torch.complex64), dtype=torch.bool)
    r.call("prims.convert_element_type.default", torch.tensor(z, dtype=torch.complex128), torch.bool)
    z = torch.tensor([1, 0, -2j, 3 - 4j], dtype=torch.complex64)
    r.call("aten.div.Tensor", z, torch.zeros(4, dtype=torch.complex64))
    r.call("aten.reciprocal.default", z)
    z = torch.ones(3, 2, dtype=torch.complex64)
    r.call("aten.full_like.default", z, 2.5, dtype=torch.float32)
    r.call("aten.zeros_like.default", z, dtype=torch.float64)
    r.call("aten.new_zeros.default", z, [3, 4], dtype=torch.float32)
    for name in ["hann", "hamming", "blackman"]:
        for n in [1, 2, 7, 16]:
            r.call("aten.%s_window.default" % name, n)
            r.call("aten.%s_window.periodic" % name, n, False, dtype=torch.float64)
    r.call("aten.hamming_window.periodic_alpha", 9, True, 0.6)
    r.call("aten.hamming_window.periodic_alpha_beta", 9, False, 0.6, 0.3)
    rows, columns = (r.data(torch.float32, *s, low=-128, high=127).to(torch.int8) for s in [(18, 24), (24, 16)])
    r.call("aten._int_mm.default", rows, columns)
    image, grid, dy = r.data(torch.float32, 2, 3, 4, 5), r.data(torch.float32, 2, 3, 2, 2, low=-1, high=1), r.data(torch.float32, 2, 3, 3, 2)
    r.call("aten.grid_sampler_2d_backward.default", dy, image, grid, 0, 0, True, [True, False])
    r.call("aten.scalar_tensor.default", 0, dtype=torch.complex64)
    r.call("aten.scalar_tensor.default", 1 - 2j, dtype=torch.complex128)
    r.call("aten.full_like.default", y, 0.5)
    r.call("aten.new_zeros.default", y, [2, 3])
    none, bags = torch.zeros(0, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    r.call("aten._embedding_bag_backward.default", r.data(torch.float32, 3, 2), torch.tensor([1, 3, 0, 1, 2]), torch.tensor([0, 2, 2]), none, bags, bags, 4, False, 0, False, None)


def unusual(r):
    """What few models have: gradients of weights of bags and of scattered elements, antialiased images, signs of zeros."""
    f32, inf, nan = torch.float32, float("inf"), float("nan")
    signs = torch.tensor([0.0, -0.0, 3.5, -2.0, inf, -inf, nan])
    for dt in [f32, torch.float64, torch.bfloat16]:
        x, mask = r.data(dt, 3, 4), r.data(torch.int64, 3, 4) > 0
        r.call("aten.masked_scatter_backward.default", x, mask, [2, 6])
        r.call("aten.masked_scatter_backward.default", x, torch.ones(3, 4, dtype=torch.bool), [3, 4])
        r.call("aten.copysign.Tensor", x, r.data(dt, 4))
        r.call("aten.copysign.Tensor", x.abs(), signs[:4].to(dt))
        r.call("aten.copysign.Scalar", x, -0.0)
        r.call("aten.signbit.default", signs.to(dt))
        r.call("aten.kthvalue.default", torch.randperm(20, generator=r.rng).to(dt).view(4, 5), 2)
        r.call("aten.kthvalue.default", torch.randperm(20, generator=r.rng).to(dt).view(4, 5), 3, 0, True)
        for shape in [(4,), (2, 4)]:
            weight, rows = r.data(dt, *shape), [3, 2, 4]
            y = r.data(dt, *rows)
            out = r.call("aten._fused_rms_norm.default", y, list(shape), weight, 1e-5, instead=lambda x, s, w, eps: rms(x, w, len(s), eps))
            for wanted in [[True, True], [True, False]]:
                r.call("aten._fused_rms_norm_backward.default", r.data(dt, *rows), y, list(shape), out[1], weight, wanted, instead=rms_gradients)
    r.call("aten._fused_rms_norm.default", r.data(f32, 2, 4), [4], None, None, instead=lambda x, s, w, eps: rms(x, None, 1, 2.0**-23))
    r.call("aten.hypot.default", r.data(f32, 3, 7), r.data(f32, 7))
    r.call("aten.hypot.default", torch.tensor([0.0, inf, 3e30, 1e-30]), torch.tensor([0.0, 1.0, 4e30, -1e-30]))
    r.call("aten.hypot.default", torch.tensor([inf, nan, -inf, nan]), torch.tensor([nan, -inf, 2.0, 0.0]))
    r.call("aten.signbit.default", r.data(torch.int64, 5))
    r.call("aten.addbmm.default", r.data(f32, 3, 5), r.data(f32, 2, 3, 4), r.data(f32, 2, 4, 5), beta=0.5, alpha=2)
    r.call("prims.device_put.default", r.data(f32, 3, 5), torch.device("cpu"))
    w, i = r.data(f32, 7, 4), r.data(torch.int64, 9, low=0, high=6)
    for offsets, end, padding in [(torch.tensor([0, 2, 2, 5]), False, -1), (torch.tensor([0, 3, 6, 9]), True, -1), (torch.tensor([0, 3, 6]), False, 3)]:
        weights = r.data(f32, 9)
        out = r.call("aten._embedding_bag.default", w, i, offsets, False, 0, False, weights, end, padding)
        grad = r.data(f32, *out[0].shape)
        r.call("aten._embedding_bag_per_sample_weights_backward.default", grad, w, i, offsets, out[1], 0, padding)
        for per in [weights, None]:
            r.call("aten._embedding_bag_backward.default", grad, i, offsets, out[1], out[2], out[3], 7, False, 0, False, per, padding)
    for dt in [f32, torch.float64, torch.bfloat16]:
        x = r.data(dt, 1, 2, 5, 6)
        for size, align in [((8, 9), False), ((3, 2), True), ((5, 6), False)]:
            if dt == torch.float64 and size == (8, 9):
                continue  # whose places the CPU rounds once by fused multiply-add: 5 units in the last place
            name, shown = "aten.upsample_bicubic2d%s.default", [*size]
            r.call(name % "", x, shown, align, None, None)
            if dt != torch.bfloat16:  # whose gradients the CPU does not have
                r.call(name % "_backward", r.data(dt, 1, 2, *size), shown, [1, 2, 5, 6], align, None, None)
            for kind in ["bilinear", "bicubic"]:
                if dt == torch.bfloat16:
                    continue
                name = "aten._upsample_%s2d_aa%%s.default" % kind
                r.call(name % "", x, shown, align, None, None)
                r.call(name % "_backward", r.data(dt, 1, 2, *size), shown, [1, 2, 5, 6], align, None, None)
        r.call("aten.upsample_bicubic2d.vec", x, None, False, [1.5, 2.0])


def rms(x, weight, n, eps):
    acc = torch.promote_types(x.dtype, torch.float32)
    y = x.to(acc)
    rstd = (y.pow(2).mean(list(range(-n, 0)), keepdim=True) + eps).rsqrt()
    y = y * rstd
    return (y if weight is None else y * weight.to(acc)).to(x.dtype), rstd


def rms_gradients(grad, x, shape, rstd, weight, wanted):
    acc = rstd.dtype
    with torch.enable_grad():
        y, w = x.to(acc).requires_grad_(), weight.to(acc).requires_grad_()
        dims = list(range(-len(shape), 0))
        eps = (rstd.pow(-2) - x.to(acc).pow(2).mean(dims, keepdim=True)).detach()
        out = y * (y.pow(2).mean(dims, keepdim=True) + eps).rsqrt() * w
        dx, dw = torch.autograd.grad(out, (y, w), grad.to(acc))
    return [dx.to(x.dtype), dw.to(weight.dtype) if wanted[1] else None]


def rare(r):
    """Thresholds that let nothing small through, indices repeated, and products of other types than their operands'."""
    for dt in [torch.float32, torch.bfloat16]:
        x = r.data(dt, 3, 7, low=-1, high=1)
        x[0, :3] = torch.tensor([0.5, -0.5, math.inf])  # of NaN the CPU has two opinions
        for name in ["hardshrink", "softshrink"]:
            r.call("aten.%s_backward.default" % name, r.data(dt, 3, 7), x, 0.5)
        for n, size in [(1, [7]), (2, [7, 3]), (3, [2, 5, 3])]:
            name, shape = "aten._upsample_nearest_exact%dd_backward.default" % n, [1, 2, 4, 5, 3][: 2 + n]
            r.call(name, r.data(dt, 1, 2, *size), size, shape)
        r.call("aten._upsample_nearest_exact2d_backward.default", r.data(dt, 1, 2, 8, 7), [8, 7], [1, 2, 4, 5], 2.0, 1.5)
        r.call("aten._weight_int8pack_mm.default", r.data(dt, 3, 32), r.data(torch.int8, 16, 32, low=-128, high=127), r.data(dt, 16, low=0.1, high=1))
    for dt in [torch.int32, torch.int64]:
        r.call("aten.repeat_interleave.Tensor", torch.tensor([2, 0, 3, 1], dtype=dt), output_size=6)
    for dt in [torch.float32, torch.bfloat16]:
        for x in [r.data(dt, 3, 6).masked_fill(r.data(torch.bool, 3, 6), math.nan), torch.randperm(18, generator=r.rng).view(3, 6).to(dt)]:
            r.call("aten.nanmedian.default", x)
            if not x.isnan().any():  # of several that are none the place is any
                r.call("aten.nanmedian.dim", x, 0, True)
        x = torch.tensor([[3, math.nan, 1, 2, math.nan], [5, 4, 1, 2, math.nan]], dtype=dt)
        r.call("aten.nanmedian.dim", x, 1)
    for dt in [torch.float32, torch.bfloat16, torch.int64]:
        x = torch.randint(0, 4, (3, 4, 5), generator=r.rng).to(dt)
        r.call("aten.mode.default", x)
        r.call("aten.mode.default", x, 1, True)
        r.call("aten.mode.default", x, 0)
    a = r.data(torch.float32, 2, 5, 5)
    for upper in [False, True]:
        r.call("aten.cholesky.default", a @ a.mT + 5 * torch.eye(5), upper)
    line = torch.tensor([-1.5, 0.1, 1.0])
    for a, b in [(r.data(torch.float32, 3, 5), line.bfloat16()), (r.data(torch.int64, 9), line), (r.data(torch.float32, 9), torch.tensor([-1, 0, 2])), (torch.tensor(0.1), line.bfloat16())]:
        r.call("aten.bucketize.Tensor", a, b)
        r.call("aten.searchsorted.Tensor", b, a, right=True)
    r.call("aten.searchsorted.Scalar", torch.tensor([-1, 0, 2]), 1.5)
    a, b, c = r.data(torch.bfloat16, 3, 8), r.data(torch.bfloat16, 8, 5), r.data(torch.float32, 3, 5)
    r.call("aten.mm.dtype", a, b, torch.float32, instead=lambda a, b, dt: a.to(dt) @ b.to(dt))
    r.call("aten.bmm.dtype", a[None], b[None], torch.float32, instead=lambda a, b, dt: a.to(dt) @ b.to(dt))
    for self in [c, c.bfloat16()]:
        r.call("aten.addmm.dtype", self, a, b, torch.float32, beta=0.5, alpha=2, instead=lambda c, a, b, dt, beta, alpha: beta * c.to(dt) + alpha * (a.to(dt) @ b.to(dt)))
