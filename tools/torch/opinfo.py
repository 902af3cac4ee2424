"""Writes PyTorch's own samples of its operators as recorded steps, forward and backward.

    python tools/torch/opinfo.py DIR [SAMPLES [PART PARTS]]
    lowerdump run -inputs DIR -expect DIR DIR/NAME.fw.graph.json.gz [DIR/NAME.bw.graph.json.gz]

DIR gets SAMPLES float32 samples, two by default, of each operator of PyTorch's test suite (op_db), and of
PARTS processes this one traces those of PART. What cannot be traced is said in DIR/log.PART. Samples of
more than 20,000 elements are left out. Needs PyTorch only; on the CPU.
"""
import os
import re
import signal
import sys

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

import concert_export


def step(op, sample):
    """A function of a sample's tensors alone, and copies of these."""
    flat, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    at = [k for k, x in enumerate(flat) if isinstance(x, torch.Tensor)]

    def call(*tensors):
        leaves = list(flat)
        for k, x in zip(at, tensors):
            leaves[k] = x
        first, args, kwargs = tree_unflatten(leaves, spec)
        return op.op(first, *args, **kwargs)

    return call, [flat[k].detach().clone() for k in at]


def export(op, sample, out):
    call, tensors = step(op, sample)
    if sum(x.numel() for x in tensors) > 20000:
        return
    floats = [x for x in tensors if op.supports_autograd and x.is_floating_point()]
    for x in floats:
        x.requires_grad_(True)
    signal.alarm(60)
    try:
        concert_export.export(call, tensors, out, backward=bool(floats), record=True)
    except ValueError as e:
        if "requires a gradient" not in str(e):
            raise
        concert_export.export(call, tensors, out, backward=False, record=True)
    finally:
        signal.alarm(0)


def late(*_):
    raise TimeoutError("not traced within a minute")


def main(folder, samples="2", part="0", parts="1"):
    concert_export.pretend(1)
    torch.manual_seed(0)
    signal.signal(signal.SIGALRM, late)
    with open(os.path.join(folder, "log." + part), "w") as log:
        for op in op_db[int(part)::int(parts)]:
            if torch.float32 not in op.supported_dtypes("cpu"):
                continue
            name = re.sub("[^A-Za-z0-9]+", "_", op.name + " " + op.variant_test_name).strip("_")
            every = list(op.sample_inputs("cpu", torch.float32))
            for k, sample in enumerate(every[::max(1, len(every) // int(samples))][:int(samples)]):
                try:
                    export(op, sample, os.path.join(folder, "%s.%d" % (name, k)))
                except Exception as e:
                    print(name, k, str(e).strip().split("\n")[0], file=log, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
