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
