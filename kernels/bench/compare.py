"""Times of two runs of gpubench beside each other.

    compare.py A.jsonl B.jsonl

For every collective and size: microseconds of A and B, and how much longer A takes.
The last line gives the geometric mean and the worst of the ratios.
"""

import json
import math
import sys


def read(path):
    with open(path) as f:
        rows = map(json.loads, f)
        return {(r["op"], r["impl"], r["bytes"]): (r["us"], r.get("note", "")) for r in rows}


a, b = read(sys.argv[1]), read(sys.argv[2])
ratios = []
for key in a:
    if key in b and key[2] > 0:
        ratio = a[key][0] / b[key][0]
        ratios.append((ratio, key))
        print(f"{key[0]:16s} {key[2]:11d} {a[key][0]:10.2f} {b[key][0]:10.2f} {100 * (ratio - 1):+6.1f}%  {a[key][1]}")
if ratios:
    mean = math.exp(sum(math.log(r) for r, _ in ratios) / len(ratios))
    print(f"mean {100 * (mean - 1):+.2f}%, worst {100 * (max(ratios)[0] - 1):+.1f}% at {max(ratios)[1]}")
