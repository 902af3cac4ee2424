"""Convolutions, pools, paddings, upsampling and norms of channels, for operators.py."""
import torch


def windows(r):
    for dt in [torch.float32, torch.bfloat16]:
        for x, w, stride, pad, dil, transposed, more, groups in [
                ((2, 4, 7, 8), (6, 4, 3, 2), [2, 1], [1, 0], [1, 2], False, [0, 0], 1),
                ((2, 4, 7, 8), (6, 2, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 2),
                ((2, 4, 5), (4, 3, 3), [2], [1], [1], True, [1], 2),
                ((1, 2, 3, 4, 5), (3, 2, 2, 2, 2), [1, 2, 1], [1, 0, 1], [1, 1, 2], False, [0, 0, 0], 1)]:
            a, b, bias = r.data(dt, *x), r.data(dt, *w), r.data(dt, w[1] * groups if transposed else w[0])
            how = (stride, pad, dil, transposed, more, groups)
            r.call("aten.convolution.default", a, b, None, *how)
            r.call("aten.convolution.default", a, b, bias, *how)
            dy = r.data(dt, *torch.ops.aten.convolution.default(a, b, None, *how).shape)
            for mask in [[True, True, True], [False, True, False], [True, False, True]]:
                r.call("aten.convolution_backward.default", dy, a, b, [bias.numel()], *how, mask)
        x = r.data(dt, 2, 3, 7, 8)
        for ceil in [False, True]:
            how = ([3, 2], [2, 1], [1, 0], [1, 2], ceil)
            r.call("aten.max_pool2d_with_indices.default", x, *how)
            y, at = torch.ops.aten.max_pool2d_with_indices.default(x, *how)
            r.call("aten.max_pool2d_with_indices_backward.default", r.data(dt, *y.shape), x, *how, at)
            for include, by in [(True, None), (False, None), (True, 5)]:
                how = ([3, 2], [2, 1], [1, 0], ceil, include, by)
                r.call("aten.avg_pool2d.default", x, *how)
                r.call("aten.avg_pool2d_backward.default", r.data(dt, *torch.ops.aten.avg_pool2d.default(x, *how).shape), x, *how)
        for size in [[1, 1], [3, 4], [7, 5]]:
            r.call("aten._adaptive_avg_pool2d.default", x, size)
            r.call("aten._adaptive_avg_pool2d_backward.default", r.data(dt, 2, 3, *size), x)
        for name in ["reflection_pad2d", "replication_pad2d"]:
            r.call("aten.%s.default" % name, x, [1, 2, 3, 0])
            r.call("aten.%s_backward.default" % name, r.data(dt, 2, 3, 10, 11), x, [1, 2, 3, 0])
        for size, factors in [([14, 11], None), (None, [2.0, 1.5]), ([5, 3], None)]:
            r.call("aten.upsample_nearest2d.vec", x, size, factors)
            for align in [False, True]:
                r.call("aten.upsample_bilinear2d.vec", x, size, align, factors)
        r.call("aten.upsample_nearest2d_backward.default", r.data(dt, 2, 3, 14, 11), [14, 11], [2, 3, 7, 8])
        r.call("aten.upsample_bilinear2d_backward.default", r.data(dt, 2, 3, 14, 11), [14, 11], [2, 3, 7, 8], False)


def channel_norms(r):
    x, dy, w, b = r.data(torch.float32, 3, 4, 5), r.data(torch.float32, 3, 4, 5), r.data(torch.float32, 4), r.data(torch.float32, 4)
    mean, var = r.data(torch.float32, 4), r.data(torch.float32, 4, low=0.5, high=4)
    r.call("aten._native_batch_norm_legit_no_training.default", x, w, b, mean, var, 0.1, 1e-5)
    r.call("aten._native_batch_norm_legit.no_stats", x, w, b, True, 0.1, 1e-5)
    r.call("aten._native_batch_norm_legit_functional.default", x, w, b, mean, var, True, 0.1, 1e-5)
    _, m, rstd = torch.ops.aten._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, 1e-5)
    r.call("aten.native_batch_norm_backward.default", dy, x, w, None, None, m, rstd, True, 1e-5, [True, True, True])
    for groups in [1, 2, 4]:
        how = (3, 4, 5, groups)
        r.call("aten.native_group_norm.default", x, w, b, *how, 1e-5)
        _, m, rstd = torch.ops.aten.native_group_norm.default(x, w, b, *how, 1e-5)
        r.call("aten.native_group_norm_backward.default", dy, x, m, rstd, w, *how, [True, True, True])


def fractional(r):
    for dt in [torch.float32, torch.float64, torch.bfloat16, torch.float16]:
        for lead in [(2, 3), (3,)]:
            for size, kernel, out in [((9, 11), [2, 3], [4, 5]), ((7, 8), [3, 2], [1, 6]), ((6, 9, 8), [2, 3, 2], [3, 4, 1])]:
                x, n = r.data(dt, *lead, *size), len(size)
                name = "aten.fractional_max_pool%dd" % n
                y, at = r.call(name + ".default", x, kernel, out, r.data(dt, lead[0] if len(lead) > 1 else 1, 3, n, low=0, high=0.95))
                r.call(name + "_backward.default", r.data(dt, *y.shape), x, kernel, out, at)
