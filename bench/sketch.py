"""Fingerprints of tensors that Go and Python take alike: internal/fingerprint has the definition.

Run as a program it prints the signs of some elements, one 1 or -1 a line:
    python3 sketch.py COUNT [FIRST]
"""
import json
import math
import os
import struct
import sys

from fillrand import MASK, mix

BUCKETS = 4096
CHUNK = 1 << 24  # elements at a time, a multiple of BUCKETS


def negative(i):
    """Whether element i counts negatively: 1 or 0, of an int or of an int64 tensor."""
    return mix((i & MASK) + (i >> 32) * 0x9E3779B9 & MASK) >> 31


def sketch(torch, t):
    """The sums of a tensor's elements and its statistics: squares, elements, NaN, positive and negative infinities."""
    flat, n = t.detach().reshape(-1), t.numel()
    sums = torch.zeros(min(n, BUCKETS), dtype=torch.float64, device=t.device)
    stat = torch.zeros(5, dtype=torch.float64, device=t.device)
    stat[1] = n
    for at in range(0, n, CHUNK):
        x = flat[at:at + CHUNK].double()
        stat[2] += x.isnan().sum()
        stat[3] += x.isposinf().sum()
        stat[4] += x.isneginf().sum()
        x = torch.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)
        stat[0] += x.square().sum()
        i = torch.arange(at, at + x.numel(), dtype=torch.int64, device=t.device)
        x = x * (1 - 2 * negative(i)).double()
        whole = x.numel() // BUCKETS * BUCKETS
        if whole:
            sums += x[:whole].view(-1, BUCKETS).sum(0)
        rest = x.numel() - whole
        if rest:
            sums[:rest] += x[whole:]
    return sums, stat


def norm(t):
    """The 2-norm, in pieces: float64 copies of large tensors are larger."""
    return math.sqrt(sum(p.double().square().sum().item() for p in t.reshape(-1).split(1 << 26)))


def distances(torch, want, got):
    """The relative errors, in the 2-norm, of all outputs; 0 for those of integers."""
    found = []
    for a, b in zip(want, got):
        rel = 0.0
        if a is not None and b is not None and a is not b and a.is_floating_point() and a.numel():
            pieces = zip(a.reshape(-1).split(1 << 26), b.reshape(-1).split(1 << 26))
            squares = 0.0
            for x, y in pieces:
                d = torch.where(x == y, 0.0, x.double() - y.double())  # infinities may be equal
                squares += d.square().sum().item()
            finite = torch.nan_to_num(a, nan=0.0, posinf=0.0, neginf=0.0) if not bool(a.isfinite().all()) else a
            rel = math.sqrt(squares) / max(norm(finite), 1e-300)
        found.append(min(rel, 1e30) if rel == rel else 1e30)
    return found


class Fingerprints:
    """Those of one rank, in one file."""

    def __init__(self, torch, seed, same):
        self.torch = torch
        self.meta = {"generator": "fillrand", "seed": str(seed), "same": same, "buckets": str(BUCKETS)}
        self.routing = {}
        self.tensors = {}

    def routed(self, name, how):
        """Says how the inputs of a graph were made for its routers."""
        self.routing[name] = how
        self.meta["routing"] = json.dumps(self.routing)

    def add(self, name, what, outs):
        """Takes the fingerprints of results: what is out or exact."""
        for k, t in enumerate(outs):
            if t is None:
                continue
            sums, stat = sketch(self.torch, t)
            self.tensors[f"{name}/{what}{k}.sketch"] = sums.tolist()
            self.tensors[f"{name}/{what}{k}.stat"] = [*stat.tolist(), 0.0]

    def far(self, name, rels):
        """Notes how far results of another variant are off."""
        for k, rel in enumerate(rels or ()):
            stat = self.tensors.get(f"{name}/out{k}.stat")
            if stat:
                stat[-1] = max(stat[-1], rel)

    def write(self, path):
        header, data = {"__metadata__": self.meta}, []
        at = 0
        for name in sorted(self.tensors):
            values = self.tensors[name]
            header[name] = {"dtype": "F64", "shape": [len(values)], "data_offsets": [at, at + 8 * len(values)]}
            data.append(struct.pack(f"<{len(values)}d", *values))
            at += 8 * len(values)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path + ".part", "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + b"".join(data))
        os.replace(path + ".part", path)


if __name__ == "__main__":
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    for e in range(first, first + int(sys.argv[1])):
        print(1 - 2 * negative(e))
