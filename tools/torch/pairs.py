"""Writes steps of one device and the same sharded over 4 ranks, for proofs that both compute the same.

    python tools/torch/pairs.py equiv/mesh/testdata/models [NAME ...]

NAME.one.* has the batch of all ranks. A loss is a sum over a number that is known: a mean over the
labels that count is not the mean of the ranks' means. Models are those of models.py, and two that are
written out below and need nothing but PyTorch. On a GPU, if there is one.
"""
import os
import sys
import traceback

import torch
from torch import nn
from torch.nn import functional as F

import concert_export
import models


def attend(q, k, v, causal):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1), float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def heads(x, n):
    return x.view(*x.shape[:2], n, -1).transpose(1, 2)


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


class LlamaLayer(nn.Module):
    def __init__(self, width=32, n=4, keys=2):
        super().__init__()
        self.n, self.keys = n, keys
        self.first, self.second = RMSNorm(width), RMSNorm(width)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, width * keys // n, bias=False) for _ in range(2))
        self.gate, self.up, self.down = nn.Linear(width, 64, bias=False), nn.Linear(width, 64, bias=False), nn.Linear(64, width, bias=False)

    def forward(self, x, turn):
        h = self.first(x)
        q, k, v = turn(heads(self.q(h), self.n)), turn(heads(self.k(h), self.keys)), heads(self.v(h), self.keys)
        k, v = (t.repeat_interleave(self.n // self.keys, 1) for t in (k, v))
        x = x + self.o(attend(q, k, v, True))
        h = self.second(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """Rotary positions, grouped keys, gated MLP."""

    def __init__(self, width=32, n=4):
        super().__init__()
        self.embedding, self.norm, self.head = nn.Embedding(models.VOCABULARY, width), RMSNorm(width), nn.Linear(width, models.VOCABULARY, bias=False)
        self.layers = nn.ModuleList(LlamaLayer(width, n) for _ in range(2))
        d = width // n
        angle = torch.outer(torch.arange(models.TOKENS[1]).float(), 1.0 / 10000 ** (torch.arange(0, d, 2).float() / d)).repeat(1, 2)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def turn(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat([-b, a], -1) * self.sin

    def forward(self, x):
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x, self.turn)
        return self.head(self.norm(x))


class Gpt(nn.Module):
    """Learned positions, one product for q, k and v, and an embedding that is the head, too."""

    def __init__(self, width=32):
        super().__init__()
        self.embedding, self.positions, self.norm = nn.Embedding(models.VOCABULARY, width), nn.Embedding(models.TOKENS[1], width), nn.LayerNorm(width)
        self.layers = nn.ModuleList(nn.ModuleDict(dict(
            first=nn.LayerNorm(width), second=nn.LayerNorm(width), qkv=nn.Linear(width, 3 * width), o=nn.Linear(width, width),
            up=nn.Linear(width, 4 * width), down=nn.Linear(4 * width, width))) for _ in range(2))

    def forward(self, x):
        x = self.embedding(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for layer in self.layers:
            q, k, v = (heads(t, 4) for t in layer["qkv"](layer["first"](x)).chunk(3, -1))
            x = x + layer["o"](attend(q, k, v, True))
            x = x + layer["down"](F.gelu(layer["up"](layer["second"](x)), approximate="tanh"))
        return self.norm(x) @ self.embedding.weight.t()


OWN = {
    "small_gpt": models.classified(Gpt, models.tokens, models.tokens),
    "small_llama": models.classified(Llama, models.tokens, models.tokens),
}
NAMES = ["bert", "electra", "encoder", "vit", "vit_tv", *OWN]


def loss(self, x, y):
    logits = self.model(x)
    logits = getattr(logits, "logits", logits)
    return F.cross_entropy(logits.flatten(0, -2).float(), y.flatten(), reduction="sum") / y.numel()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    out, names = sys.argv[1], sys.argv[2:] or NAMES
    models.Labelled.forward = models.Classified.forward = loss
    concert_export.pretend(4)
    os.makedirs(out, exist_ok=True)
    device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
    failed = []
    for name in names:
        for one in (True, False):
            torch.manual_seed(1)
            try:
                model, inputs = (OWN.get(name) or models.MODELS[name])()
                model = model.to(device, dtype)
                inputs = [x.to(device, dtype) if x.is_floating_point() else x.to(device) for x in inputs]
                if one:
                    inputs = [torch.cat([x] * 4) for x in inputs]
                else:
                    model = concert_export.fsdp(model)
                files = concert_export.export(model, inputs, os.path.join(out, name + ".one" * one))
                print(name, *map(os.path.basename, files), flush=True)
            except Exception:  # a model that cannot be traced does not keep the others back
                failed.append(name)
                print(name, traceback.format_exc(), file=sys.stderr, flush=True)
    if failed:
        sys.exit("failed: " + " ".join(failed))


if __name__ == "__main__":
    main()
