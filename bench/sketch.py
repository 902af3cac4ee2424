"""Fingerprints of tensors that Go and Python take alike: internal/fingerprint has the definition.

Run as a program it prints the signs of some elements, one 1 or -1 a line:
    python3 sketch.py COUNT [FIRST]
"""
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


if __name__ == "__main__":
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    for e in range(first, first + int(sys.argv[1])):
        print(1 - 2 * negative(e))
