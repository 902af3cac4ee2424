"""Exports steps whose results, gradients or state are not as simple as a loss of its own, and checks what comes of them.

    python tools/torch/results.py DIR
    lowerdump run -device=cuda -inputs DIR -expect DIR DIR/NAME.fw.graph.json.gz DIR/NAME.bw.graph.json.gz

Needs a GPU. What cannot be exported has to be refused with an error that says why.
"""
import dataclasses
import gzip
import json
import os
import sys
import warnings

import torch
from torch import nn

import concert_export


def linear(*sizes):
    return nn.Linear(*sizes, device="cuda")


class Kept(nn.Module):
    """What a module keeps is no result, although it shares memory with one."""

    def __init__(self, view):
        super().__init__()
        self.linear, self.view = linear(16, 32), view

    def forward(self, x):
        self.kept = self.linear(x).tanh()
        return self.kept[:, 0] if self.view else self.kept.square().mean()


class Normed(nn.Module):
    """Statistics that the step changes, and a constant that only backward needs."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = linear(16, 32), nn.BatchNorm1d(32, device="cuda")

    def forward(self, x):
        y = self.norm(self.linear(x))
        self.kept = y.tanh()
        return torch.where(y > 0, torch.tensor(0.0), y).square().mean()


@dataclasses.dataclass
class Boxed:
    loss: torch.Tensor


layer, table, weight = linear(16, 32), nn.Embedding(20, 8, device="cuda"), nn.Parameter(torch.randn(4, 16, device="cuda"))
x, ids = torch.randn(4, 16, device="cuda"), torch.randint(0, 20, (6,), device="cuda")


def overlapping(x):
    h = layer(x).tanh()
    return h, h[:, 0]


def twice(x):
    h = layer(x).tanh()
    return h, h


def flat(x):
    h = layer(x).view(2, 2, 32)
    return h, h.view(-1, 32)


def rows(ids):
    return table(ids).square().sum(), table.weight[:10]


def spectrum(x):
    return torch.fft.fft(x * weight)


def signs(x):
    return layer(x).sgn()  # whose gradient is a zero without memory


def boxed(x):
    h = layer(x)
    return h.square().mean(), Boxed(h.abs().mean())


def even(x):
    return layer(x[:-1] if x.shape[0] % 2 else x).sum()


def hooked(hook):
    m = linear(16, 4)
    hook(m.weight)
    return lambda x: m(x).sum()


def refused(why, fn, *args, **kwargs):
    try:
        concert_export.export(fn, *args, **kwargs)
    except Exception as e:
        assert why in str(e), e
    else:
        raise AssertionError("exported, and should be refused: " + why)


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    at = lambda name: os.path.join(out, name)
    torch.backends.cudnn.allow_tf32 = False
    for fn in (overlapping, twice, flat, rows, spectrum, signs):
        concert_export.export(fn, (ids if fn is rows else x,), at(fn.__name__), record=True)
    for name, module in ("kept", Kept(False)), ("kept_view", Kept(True)), ("normed", Normed()):
        concert_export.export(module, (x,), at(name), record=True)

    module = Normed()
    module(x)
    before = {name: t.clone() for name, t in module.state_dict().items()}
    concert_export.export(module, (x,), at("state"))
    assert all(t.equal(before[name]) for name, t in module.state_dict().items()), "export changes the state of a module"

    refused("in a Boxed", boxed, (x,), at("boxed"))
    refused("hook on its gradient", hooked(lambda w: w.register_hook(lambda g: 2 * g)), (x,), at("hooked"))
    refused("hook on its gradient", hooked(lambda w: w.register_post_accumulate_grad_hook(lambda p: None)), (x,), at("hooked"))

    concert_export.export(even, (torch.randn(7, 16, device="cuda"),), at("even"), dynamic={0: {0: 64}})
    with gzip.open(at("even.fw.graph.json.gz")) as f:
        checks = json.load(f)["checks"]
    sizes = [n for n in range(2, 65) if all(eval(c, {k: n for k in ["s%d" % i for i in range(200)]}) >= 0 for c in checks)]
    assert sizes == list(range(3, 65, 2)), sizes

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.compile(linear(16, 4), backend=concert_export.backend(at("logits")))(x).square().sum().backward()
    assert any("gradients of one" in str(w.message) for w in said), said


if __name__ == "__main__":
    main()
