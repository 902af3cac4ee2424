"""Markdown tables of gpubench and peers.py, and what they say of the goals.

    table.py "one process=ONE.jsonl" "a process per GPU=PROCS.jsonl" peers=PEERS.jsonl
             [links=LINKS.jsonl] [beside=OVERLAP.jsonl] [peers beside=NCCL.jsonl]

ONE and PROCS are by gpubench -mode bench,bucket,host,skew, PEERS by peers.py, LINKS by gpubench
-mode links, OVERLAP by gpubench -mode overlap, NCCL by overlap.py. All should come from one call
of the machine. A name may be given again: then a figure is the median of its files, of two the
mean. A ratio divides the peer's time, the better one where it was taken with several numbers of
calls, by the slower of ours. Goals in microseconds exist for groups of 4 and of 8; a group of 2
is held to those of 4.
"""

import json
import re
import statistics
import sys

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
PEERS = {"nccl": "NCCL", "torch_one_shot": "PyTorch one-shot", "torch_two_shot": "PyTorch two-shot", "torch_symm": "PyTorch symmetric memory",
         "nccl_grouped": "NCCL, grouped calls", "torch_packed": "PyTorch: pack, NCCL gather, unpack"}
K, M, G = 1 << 10, 1 << 20, 1 << 30
SHORT = ", 20 calls a graph"


def read(path):
    try:
        return [json.loads(l) for l in open(path) if l.strip()]
    except (OSError, ValueError) as e:
        print(f"{path}: {e}")
        return []


files = [a.split("=", 1) for a in sys.argv[1:]]
models = list(dict.fromkeys(n for n, _ in files if n not in ("peers", "links", "beside", "peers beside")))
taken, world, carried, beside = {}, 0, [], []  # taken: (op, implementation) -> bytes -> a figure of each file
for name, path in files:
    ranks = {}
    for r in read(path):
        world = r.get("world", world)
        if name == "links":
            carried.append((r["bytes"] / r["us"] / 1e3, r["op"]))  # out of each rank, and into it
            continue
        if name in ("beside", "peers beside"):
            beside.append(r)
            continue
        impl = PEERS.get(r["impl"], r["impl"]) if name == "peers" else f"{r['impl'].removesuffix(', ' + name)}, {name}"
        if r.get("calls", 200) == 20 and r["bytes"] <= M and r["op"] in KINDS + ("barrier",):
            if not impl.startswith("NCCL"):
                continue  # they take as long in graphs of either length
            impl += SHORT
        if r["op"] in ("host_launch", "host_eager"):  # a figure for each rank: the slowest counts
            ranks[r["op"], impl] = max(r["us"], ranks.get((r["op"], impl), 0))
        else:
            taken.setdefault((r["op"], impl), {}).setdefault(r["bytes"], []).append(r["us"])
    for k, v in ranks.items():
        taken.setdefault(k, {}).setdefault(0, []).append(v)
rows = {k: {s: statistics.median(v) for s, v in by.items()} for k, by in taken.items()}
sizes = sorted({s for (op, _), r in rows.items() if op in KINDS for s in r})


def short(s):
    return f"{s // G}G" if s >= G else f"{s // M}M" if s >= M else f"{s // K}K"


def us(v):
    return "-" if v is None else f"{v:.2f}" if v < 100 else f"{v:.1f}"


def ours(op, size, form="concert"):
    times = [rows[op, f"{form}, {m}"][size] for m in models if size in rows.get((op, f"{form}, {m}"), {})]
    return max(times) if times else None


def theirs(op, size):
    times = [rows[op, impl][size] for impl in ("NCCL", "NCCL" + SHORT) if size in rows.get((op, impl), {})]
    return min(times) if times else None


def ratio(op, size, form="concert"):
    a, b = ours(op, size, form), theirs(op, size)
    return None if a is None or b is None else b / a


def tables():
    print(f"| {world} GPUs |", " | ".join(map(short, sizes)), "|")
    print("|---" * (len(sizes) + 1) + "|")
    for op in KINDS:
        for (o, impl), r in rows.items():
            if o == op and "in place" not in impl:
                print(f"| {op}, {impl} |", " | ".join(us(r.get(s)) for s in sizes), "|")
        print("| **NCCL (the better) / concert (the worse)** |", " | ".join(us(ratio(op, s)) for s in sizes), "|")
    for (op, impl), r in rows.items():
        if op == "all_reduce" and "in place" in impl:
            print(f"| {op}, {impl} |", " | ".join(us(r.get(s)) for s in sizes), "|")
    print()
    for (op, impl), r in rows.items():
        if op not in KINDS:
            print(f"{op}, {impl}: " + ", ".join(f"{us(v)} us" for v in r.values()))
    for r in beside:
        print(f"beside a product: {r['op']}, {r['impl']}: {us(r['us'])} us {r.get('note', '')}".rstrip())
    if carried:
        print("carried by the links, GB/s: " + ", ".join(f"{op} {max(v for v, o in carried if o == op):.0f}" for op in dict.fromkeys(o for _, o in carried)))


missed = 0


def goal(text, holds, got):
    global missed
    missed += holds is False
    print(f"{'-' if holds is None else 'holds' if holds else 'MISSED':7s} {text}: {got}")


def at_most(text, value, limit, unit=" us"):
    goal(f"{text} at most {limit:g}{unit}", None if value is None else value <= limit, us(value))


def at_least(text, value, limit):
    goal(f"{text} at least {limit:g}", None if value is None else value >= limit, "-" if value is None else f"{value:.3f}")


def best_bandwidth():
    """GB/s out of every rank, and what reached it, of all that was measured."""
    best = list(carried)
    for (op, impl), r in rows.items():
        if op in ("all_gather", "all_to_all"):
            best += [((world - 1) / world * s / t / 1e3, f"{op} {impl} {short(s)}") for s, t in r.items()]
    return max(best, default=(None, ""))


def all_reduce_goals():
    limits = {8: ((K, 4.5), (16 * K, 5.2), (64 * K, 6.5), (256 * K, 8.5), (M, 12), (4 * M, 28))}
    for size, limit in limits.get(world, ((K, 3.5), (16 * K, 3.9), (64 * K, 4.8), (256 * K, 7.5), (M, 11), (4 * M, 25))):
        at_most(f"all_reduce {short(size)}", ours("all_reduce", size), limit)
    for size, limit in ((16 * M, 1.20), (64 * M, 1.10), (256 * M, 1), (G, 1)):
        for form, name in (("concert", ""), ("concert, in place", " in place")):
            at_least(f"all_reduce {short(size)}{name}, NCCL / concert", ratio("all_reduce", size, form), limit)
    most, where = best_bandwidth()
    for form, name in (("concert", ""), ("concert, in place", " in place")):
        for size in (256 * M, G):
            t = ours("all_reduce", size, form)
            if most and t:
                at_least(f"all_reduce {short(size)}{name} over the best bandwidth ({most:.1f} GB/s by {where})", 2 * (world - 1) / world * size / t / 1e3 / most, 0.96)


def other_goals():
    for op in KINDS[1:]:
        known = [s for s in sizes if s <= 64 * K and ours(op, s) and ours("all_reduce", s)]
        late = [short(s) for s in known if ours(op, s) > ours("all_reduce", s)]
        goal(f"{op} to 64K no slower than all_reduce", not late if known else None, "slower at " + ", ".join(late) if late else "yes" if known else "-")
        low = min(((ratio(op, s), short(s)) for s in sizes if s <= M and ratio(op, s)), default=(None, "-"))
        at_least(f"{op} to 1M, NCCL / concert, least (at {low[1]})", low[0], 2)
        for size, limit in ((4 * M, 1.5), (16 * M, 1.3), (64 * M, 1.2), (256 * M, 1.05), (G, 1.05)):
            at_least(f"{op} {short(size)}, NCCL / concert", ratio(op, size), limit)
    at_most("barrier", ours("barrier", 0), {8: 2.8}.get(world, 2.2))


def layer_goals():
    layer = {impl: list(r.values())[0] for (op, impl), r in rows.items() if op == "layer_gather"}
    one = max((v for k, v in layer.items() if k.startswith("concert direct, one launch")), default=None)
    summed = [v for k, v in layer.items() if k.startswith("concert direct, summed")]
    if one is None or not summed:
        return goal("nine gathers in one launch at most 1.05 times one of the summed bytes", None, "-")
    goal("nine gathers in one launch at most 1.05 times one of the summed bytes", one <= 1.05 * max(summed), f"{one / max(summed):.3f}")
    for peer in ("nccl_grouped", "torch_packed"):
        v = layer.get(PEERS[peer])
        goal(f"nine gathers in one launch faster than {PEERS[peer]}", None if v is None else one < v, "-" if v is None else f"{v / one:.3f}")


def beside_goals():
    def slower(r):
        m = re.match(r"([+-][\d.]+)%", r.get("note", ""))
        return float(m.group(1)) if m else None

    for text, op, impl, limit in (("all_gather without kernels, in place, overlapped with products", "all_gather", "auto, beside, in place, beside", 10),
                                  ("products beside it", "product", "beside auto, beside, in place", 5)):
        v = [slower(r) for r in beside if r["op"] == op and r["impl"] == impl]
        goal(f"{text} at most {limit}% slower", max(v) <= limit if v else None, f"{max(v):+.1f}%" if v else "-")


def host_goals():
    for model in models:
        for op, text in (("host_launch", "host cost over C"), ("host_eager", "host cost of Member.AllReduce over C")):
            v = rows.get((op, f"least difference, {model}"), {}).get(0)
            at_most(f"{text}, {model}", v, 0.3)


tables()
print()
all_reduce_goals()
other_goals()
layer_goals()
beside_goals()
host_goals()
print(f"{missed} goals missed")
