"""What operators.py records of operators that few models have."""
import torch


def quantised(r):
    import torch.ao.quantization.fx._decomposed  # noqa: F401 defines the operators

    q = "quantized_decomposed."
    for dt in [torch.float32, torch.bfloat16, torch.float16]:
        x = r.data(dt, 3, 5, 8)
        r.call(q + "quantize_per_tensor.default", x, 0.0173, 3, -128, 127, torch.int8)
        r.call(q + "quantize_per_tensor.default", x, 0.03, 128, 0, 255, torch.uint8)
        r.call(q + "quantize_per_tensor.default", x, 0.001, 0, -8388608, 8388607, torch.int32)
        for st in [torch.float64, torch.float32]:
            r.call(q + "quantize_per_tensor.tensor", x, torch.tensor(0.0173, dtype=st), torch.tensor(-5), -128, 127, torch.int8)
        r.call(q + "quantize_per_tensor.tensor2", x, torch.tensor(0.0173), torch.tensor(-5, dtype=torch.int32), torch.tensor(-100), torch.tensor(90), torch.int8)
    for dt in [torch.float32, torch.bfloat16]:
        x = r.data(dt, 3, 5, 8)
        for st in [torch.float64, torch.float32]:
            for axis in [0, 1, 2]:
                n = x.shape[axis]
                r.call(q + "quantize_per_channel.default", x, r.data(st, n, low=0.01, high=0.05), r.data(torch.int64, n, low=-9, high=9), axis, -127, 127, torch.int8)
            r.call(q + "quantize_per_token.default", x, r.data(st, 3, 5, 1, low=0.01, high=0.05), r.data(torch.int64, 3, 5, 1, low=-9, high=9), -128, 127, torch.int8)
            r.call(q + "quantize_per_channel_group.default", x[0], r.data(st, 5, 2, low=0.01, high=0.05), r.data(torch.int32, 5, 2, low=-9, high=9), -8, 7, torch.int8, 4)
        r.call(q + "choose_qparams_per_token.default", x, torch.int8)
        r.call(q + "choose_qparams_per_token_asymmetric.default", x, torch.int8)
        r.call(q + "convert_element_type.no_fuse", x, torch.int8)
    r.call(q + "choose_qparams_per_token.default", r.data(torch.float16, 3, 8), torch.int8)
    x = r.data(torch.float32, 3, 5, 8)
    r.call(q + "fake_quant_per_channel.default", x, r.data(torch.float32, 5, low=0.01, high=0.05), r.data(torch.int32, 5, low=-9, high=9), 1, -100, 100)
    for dt in [torch.int8, torch.uint8]:
        x = r.data(dt, 3, 5, 8, low=-128, high=127)
        low, high = torch.iinfo(dt).min, torch.iinfo(dt).max
        for out in [torch.float32, torch.bfloat16]:
            r.call(q + "dequantize_per_tensor.default", x, 0.0173, 3, low, high, dt, out_dtype=out)
            r.call(q + "dequantize_per_tensor.tensor", x, torch.tensor(0.0173, dtype=torch.float64), torch.tensor(3), low, high, dt, out_dtype=out)
            r.call(q + "dequantize_per_channel.default", x, r.data(torch.float32, 5, low=0.01, high=0.05), r.data(torch.int64, 5, low=-9, high=9), 1, low, high, dt, out_dtype=out)
            r.call(q + "dequantize_per_token.default", x, r.data(torch.float64, 3, 5, 1, low=0.01, high=0.05), r.data(torch.int64, 3, 5, 1, low=-9, high=9), low, high, dt, out)
            r.call(q + "dequantize_per_channel_group.default", x[0], r.data(torch.float32, 5, 2, low=0.01, high=0.05), r.data(torch.int32, 5, 2, low=-9, high=9), low, high, dt, 4, out)
        r.call(q + "dequantize_per_tensor.tensor2", x, torch.tensor(0.0173), torch.tensor(3), torch.tensor(low), torch.tensor(high), dt)
        r.call(q + "dequantize_per_channel.default", x, r.data(torch.float32, 5, low=0.01, high=0.05), None, 1, low, high, dt)
        r.call(q + "dequantize_per_channel_group.default", x[0], r.data(torch.float32, 5, 2, low=0.01, high=0.05), None, low, high, dt, 4, torch.float32)


def copies(r):
    """Views' results in storage of their own, as functionalisation without views has them."""
    for dt in [torch.float32, torch.bfloat16, torch.int64, torch.bool]:
        for x in [r.data(dt, 3, 4, 1, 5), r.data(dt, 5, 4, 1, 3).transpose(0, 3)]:
            r.call("aten.alias_copy.default", x)
            r.call("aten.detach_copy.default", x)
            r.call("aten.expand_copy.default", x, [3, 4, 2, 5])
            r.call("aten.permute_copy.default", x, [2, 0, 3, 1])
            r.call("aten.select_copy.int", x, 1, -2)
            r.call("aten.slice_copy.Tensor", x, 3, 1, -1, 2)
            r.call("aten.split_copy.Tensor", x, 2, 3)
            r.call("aten.split_with_sizes_copy.default", x, [1, 0, 3], 1)
            r.call("aten.squeeze_copy.dim", x, 2)
            r.call("aten.transpose_copy.int", x, 0, 1)
            r.call("aten.unbind_copy.int", x, 1)
            r.call("aten.unsqueeze_copy.default", x, -1)
        r.call("aten.as_strided_copy.default", r.data(dt, 3, 8), [2, 3], [7, 2], 4)
        r.call("aten.as_strided_copy.default", r.data(dt, 3, 8), [4, 3], [1, 1])
        r.call("aten.view_copy.default", r.data(dt, 3, 4, 5), [6, -1])
        r.call("aten.t_copy.default", r.data(dt, 3, 4))


def parts(r):
    """Mantissas and exponents."""
    for dt in [torch.float32, torch.float64, torch.bfloat16, torch.float16]:
        r.call("aten.frac.default", r.data(dt, 9))
        tiny = torch.finfo(dt).smallest_normal
        r.call("aten.frexp.Tensor", torch.cat([r.data(dt, 9), torch.tensor([0.0, -0.0, 1.0, -0.5, 0.75, 3e4, tiny, -tiny / 4, float("inf"), -float("inf"), float("nan")], dtype=dt)]))


def optimizers(r):
    """Fused steps of Adam, which give lists of tensors."""
    for dt in [torch.float32, torch.float64, torch.bfloat16]:
        for name in ["_fused_adam", "_fused_adamw"]:
            for amsgrad, maximize, decay, scaled in [(False, False, 0.0, False), (True, False, 0.1, False), (False, True, 0.1, True), (True, True, 0.0, True)]:
                state = [[r.data(dt, 3, 5, low=low), r.data(dt, 7, low=low)] for low in [-4, -4, -1, 0, 0]]
                more = dict(grad_scale=torch.tensor(8.0), found_inf=torch.tensor(0.0)) if scaled else {}
                flat = lambda *a, op=getattr(torch.ops.aten, name).default, **kw: [t for l in op(*a, **kw) for t in l]
                r.call("aten.%s.default" % name, *state[:4], state[4] if amsgrad else [], [torch.tensor(3.0), torch.tensor(1.0)], lr=0.01, beta1=0.9, beta2=0.99,
                       weight_decay=decay, eps=1e-8, amsgrad=amsgrad, maximize=maximize, instead=flat, **more)
    r.call("aten._fused_adam.tensor_lr", *state[:4], [], [torch.tensor(3.0), torch.tensor(1.0)], lr=torch.tensor(0.01), beta1=0.9, beta2=0.99, weight_decay=0.0,
           eps=1e-8, amsgrad=False, maximize=False, found_inf=torch.tensor(1.0), instead=lambda *a, **kw: [t for l in torch.ops.aten._fused_adam.tensor_lr(*a, **kw) for t in l])


def reflections(r):
    """Factors in LAPACK's forms."""
    for dt in [torch.float32, torch.float64]:
        for scale in [0.01, 0.3, 1, 3] if dt == torch.float32 else [0.01, 0.3, 1]:
            r.call("aten.linalg_matrix_exp.default", scale * r.data(dt, 2, 4, 4, low=-1, high=1))
        a = r.data(dt, 5, 5, low=-1, high=1)
        r.call("aten.linalg_matrix_exp.default", a - a.T)
        for shape in [(5, 3), (4, 4), (2, 3, 5), (2, 6, 4)]:
            a = r.data(dt, *shape)
            packed, tau = r.call("aten.geqrf.default", a)
            packed, m, n = packed.contiguous(), shape[-2], shape[-1]
            r.call("aten.linalg_householder_product.default", packed[..., :m].contiguous(), tau)
            if m >= n:
                for left, transpose in [(True, False), (True, True), (False, False), (False, True)]:
                    r.call("aten.ormqr.default", packed, tau, r.data(dt, *shape[:-2], *((m, 2) if left else (2, m))), left, transpose)
        a = r.data(dt, 2, 4, 4) + 5 * torch.eye(4, dtype=dt)
        for upper in [False, True]:
            for transpose in [False, True]:
                r.call("aten.triangular_solve.default", r.data(dt, 2, 4, 3), a, upper, transpose, transpose == upper)
            spd = a @ a.mT
            r.call("aten.cholesky_inverse.default", torch.linalg.cholesky(spd, upper=upper).contiguous(), upper)
        a = r.data(dt, 2, 4, 4)
        lu, pivots, _ = torch.ops.aten.linalg_lu_factor_ex(a)
        for data, swaps in [(True, True), (True, False), (False, True)]:
            r.call("aten.lu_unpack.default", lu.contiguous(), pivots, data, swaps)


def steps(r):
    """Fused steps of SGD and Adagrad, and bounds of whole tensors."""
    for dt in [torch.float32, torch.float64, torch.bfloat16]:
        for momentum, dampening, nesterov, maximize, first, decay, scaled in [
                (0.0, 0.0, False, False, True, 0.0, False), (0.9, 0.0, False, False, True, 0.1, False), (0.9, 0.1, False, True, False, 0.1, True), (0.8, 0.0, True, False, False, 0.0, True)]:
            state = [[r.data(dt, 3, 5, low=low), r.data(dt, 7, low=low)] for low in [-4, -4, -1]]
            more = dict(grad_scale=torch.tensor(8.0), found_inf=torch.tensor(0.0)) if scaled else {}
            flat = lambda *a, op=torch.ops.aten._fused_sgd.default, **kw: [t for l in op(*a, **kw) for t in l]
            r.call("aten._fused_sgd.default", *state[:2], state[2] if momentum else [], weight_decay=decay, momentum=momentum, lr=0.1, dampening=dampening,
                   nesterov=nesterov, maximize=maximize, is_first_step=first, instead=flat, **more)
        for maximize, slower, decay, scaled in [(False, 0.0, 0.0, False), (True, 0.1, 0.1, False), (False, 0.2, 0.1, True)]:
            state = [[r.data(dt, 3, 5, low=low), r.data(dt, 7, low=low)] for low in [-4, -4, 0]]
            more = dict(grad_scale=torch.tensor(8.0), found_inf=torch.tensor(0.0)) if scaled else {}
            flat = lambda *a, op=torch.ops.aten._fused_adagrad.default, **kw: [t for l in op(*a, **kw) for t in l]
            r.call("aten._fused_adagrad.default", *state, [torch.tensor(3.0), torch.tensor(1.0)], lr=0.1, lr_decay=slower, weight_decay=decay, eps=1e-8,
                   maximize=maximize, instead=flat, **more)
    for dt in [torch.float32, torch.bfloat16, torch.float16]:
        for name in ["choose_qparams", "choose_qparams_symmetric"]:
            for low, high in [(-4, 4), (1, 4), (-3, -1), (0, 0)]:
                for to in [torch.int8, torch.uint8]:
                    bounds = torch.iinfo(to)
                    r.call("quantized_decomposed.%s.tensor" % name, r.data(dt, 3, 5, low=low, high=high), bounds.min, bounds.max, 2.0 ** -23, to)


def oblong(r):
    """LU factors of matrices that are not square."""
    for dt in [torch.float32, torch.float64]:
        for shape in [(5, 3), (3, 5), (2, 6, 4), (2, 2, 3, 4), (4, 4)]:
            a = r.data(dt, *shape)
            r.call("aten.linalg_lu.default", a)
            r.call("aten.linalg_lu_factor_ex.default", a)
            lu, pivots, _ = torch.ops.aten.linalg_lu_factor_ex(a)
            for data, swaps in [(True, True), (True, False), (False, True)]:
                r.call("aten.lu_unpack.default", lu.contiguous(), pivots, data, swaps)
        r.call("aten.linalg_lu_factor_ex.default", torch.zeros(3, 2, dtype=dt))


def incomplete(r):
    """Incomplete gamma functions."""
    for name in ["igamma", "igammac"]:
        for dt in [torch.float32, torch.float64, torch.bfloat16, torch.float16]:
            r.call("aten.%s.default" % name, r.data(dt, 2, 5, low=0.1, high=6), r.data(dt, 5, low=0, high=9))
            if dt != torch.float64:  # PyTorch's own are 1e-10 from the exact ones for large a
                a = r.data(dt, 9, low=20, high=400)
                r.call("aten.%s.default" % name, a, a * r.data(dt, 9, low=0.7, high=1.3))
        inf = float("inf")
        r.call("aten.%s.default" % name, torch.tensor([0.0, 0.0, 2.0, 3.0, inf, inf, -1.0, 2.0, float("nan")]), torch.tensor([1.0, 0.0, 0.0, inf, 2.0, inf, 1.0, -1.0, 1.0]))


def ctc(r):
    """Connectionist temporal classification, with targets side by side or one after another."""
    for dt in [torch.float32, torch.float64]:
        for T, C, lengths, targets, padded in [(7, 5, (7, 7), (3, 3), True), (9, 6, (9, 5, 7), (4, 0, 3), True), (8, 4, (8, 2, 6), (3, 3, 1), False), (5, 3, (0, 5, 3), (0, 0, 0), False)]:
            n = len(lengths)
            x = r.data(dt, T, n, C).log_softmax(-1)
            y = r.data(torch.int64, n, max(targets), low=1, high=C - 1) if padded else r.data(torch.int64, sum(targets), low=1, high=C - 1)
            if padded and targets[0] > 1:
                y[0, 1] = y[0, 0]  # which a blank has to part
            for many in [False, True]:
                how = [torch.tensor(lengths), torch.tensor(targets)] if many else [list(lengths), list(targets)]
                name = "Tensor" if many else "default"
                nll, alpha = r.call("aten._ctc_loss." + name, x, y, *how, 0, False)
                for zero in [False, True]:
                    r.call("aten._ctc_loss_backward." + name, r.data(dt, n), x, y, *how, nll, alpha, 0, zero)


def eigenvalues(r):
    """Of symmetric matrices."""
    for dt in [torch.float32, torch.float64]:
        for shape in [(1, 1), (2, 2), (5, 5), (2, 2, 3, 3)]:
            for side in ["L", "U"]:
                r.call("aten._linalg_eigh.default", r.data(dt, *shape), side)
            r.call("aten._linalg_eigh.default", r.data(dt, *shape), "L", False)
        r.call("aten._linalg_eigh.default", torch.diag(torch.tensor([3.0, -1.0, 2.0], dtype=dt)))


def inverses(r):
    """By singular values, of which all, some or none are too small, and those alone."""
    pinv = "aten.linalg_pinv.atol_rtol_tensor"
    for dt in [torch.float32, torch.float64]:
        n = lambda *x: torch.tensor(x if len(x) > 1 else x[0], dtype=dt)
        for shape in [(1, 1), (4, 4), (5, 3), (2, 3, 5), (0, 3), (2, 0)]:
            x = r.data(dt, *shape)
            r.call(pinv, x)
            r.call("aten.linalg_svdvals.default", x)
        square, flat = r.data(dt, 2, 4, 4), torch.outer(r.data(dt, 5), r.data(dt, 4))
        r.call(pinv, flat)
        r.call(pinv, torch.zeros(3, 4, dtype=dt))
        for limits in [{"atol": n(3.0)}, {"rtol": n(0.3)}, {"atol": n(0.0)}, {"atol": n(1.0, 0.0)}, {"atol": n(1.0, 5.0), "rtol": n(0.5, 0.1)}]:
            r.call(pinv, square, **limits)
            r.call(pinv, square + square.mT, hermitian=True, **limits)
        r.call(pinv, torch.outer(flat[0], flat[0]), hermitian=True)
