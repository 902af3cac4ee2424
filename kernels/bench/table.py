"""Markdown tables of gpubench and peers.py, and what they say of the goals.

    table.py "one process=ONE.jsonl" "a process per GPU=PROCS.jsonl" peers=PEERS.jsonl [links=LINKS.jsonl]

ONE and PROCS are by gpubench -mode bench,bucket,..., PEERS by peers.py, LINKS by gpubench
-mode links. All should come from one call of the machine. A ratio divides the peer's time,
the better one where it was taken with several numbers of calls, by the slower of ours.
"""

import json
import sys

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
K, M, G = 1 << 10, 1 << 20, 1 << 30
rows, world, carried = {}, 0, []  # (op, implementation) -> bytes -> microseconds
for arg in sys.argv[1:]:
    name, path = arg.split("=", 1)
    try:
        lines = [json.loads(l) for l in open(path) if l.strip()]
    except (OSError, ValueError) as e:
        print(f"{path}: {e}")
        continue
    for r in lines:
        world = r.get("world", world)
        if name == "links":
            carried.append((r["bytes"] / r["us"] / 1e3 / (2 if r["op"] == "links_both" else 1), r["op"]))
            continue
        impl = r["impl"] if name == "peers" else f"{r['impl']}, {name}"
        if r.get("calls", 200) == 20 and r["bytes"] <= M and r["op"] in KINDS + ("barrier",):
            impl += ", 20 calls a graph"
        times = rows.setdefault((r["op"], impl), {})
        if r["op"] == "host_launch":  # a figure for each rank
            times[r["bytes"]] = max(r["us"], times.get(r["bytes"], r["us"]))
        else:
            times[r["bytes"]] = r["us"]

sizes = sorted({s for (op, _), r in rows.items() if op in KINDS for s in r})
models = [a.split("=", 1)[0] for a in sys.argv[1:] if not a.startswith(("peers=", "links="))]


def short(s):
    return f"{s // G}G" if s >= G else f"{s // M}M" if s >= M else f"{s // K}K"


def us(v):
    return "-" if v is None else f"{v:.2f}" if v < 100 else f"{v:.1f}"


def ours(op, size, form="concert"):
    times = [rows[op, f"{form}, {m}"][size] for m in models if size in rows.get((op, f"{form}, {m}"), {})]
    return max(times) if times else None


def theirs(op, size):
    times = [r[size] for (o, impl), r in rows.items() if o == op and impl.startswith("nccl") and "grouped" not in impl and size in r]
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
        print(f"| **{op}: NCCL (the better) / concert (the worse)** |", " | ".join(us(ratio(op, s)) for s in sizes), "|")
    for (op, impl), r in rows.items():
        if op == "all_reduce" and "in place" in impl:
            print(f"| {op}, {impl} |", " | ".join(us(r.get(s)) for s in sizes), "|")
    for (op, impl), r in rows.items():
        if op not in KINDS:
            print(f"{op}, {impl}: " + ", ".join(f"{us(v)} us" for v in r.values()))


def goal(text, holds, got):
    print(f"{'-' if holds is None else 'holds' if holds else 'MISSED':7s} {text}: {got}")


def at_most(text, value, limit):
    goal(f"{text} at most {limit:g} us", None if value is None else value <= limit, us(value))


def at_least(text, value, limit):
    goal(f"{text} at least {limit:g}", None if value is None else value >= limit, "-" if value is None else f"{value:.3f}")


def goals():
    limits = {4: ((K, 3.5), (16 * K, 3.9), (64 * K, 4.8), (256 * K, 7.5), (M, 11), (4 * M, 25)), 8: ((K, 4.5), (16 * K, 5.2), (64 * K, 6.5), (256 * K, 8.5), (M, 12), (4 * M, 28))}
    for size, limit in limits.get(world, ()):
        at_most(f"all_reduce {short(size)}", ours("all_reduce", size), limit)
    for size, limit in ((16 * M, 1.20), (64 * M, 1.10), (256 * M, 1), (G, 1)):
        at_least(f"all_reduce {short(size)}, NCCL / concert", ratio("all_reduce", size), limit)
        if size >= 64 * M:
            at_least(f"all_reduce {short(size)} in place, NCCL / concert", ratio("all_reduce", size, "concert, in place"), limit)
    best = list(carried)
    for (op, impl), r in rows.items():
        if op in ("all_gather", "all_to_all"):
            best += [((world - 1) / world * s / t / 1e3, f"{op} {impl} {short(s)}") for s, t in r.items()]
    if best:
        most, where = max(best)
        for form in ("concert", "concert, in place"):
            for size in (256 * M, G):
                t = ours("all_reduce", size, form)
                if t:
                    at_least(f"all_reduce {short(size)} {form[9:]} over the best bandwidth ({most:.1f} GB/s by {where})", 2 * (world - 1) / world * size / t / 1e3 / most, 0.96)
    for op in KINDS[1:]:
        late = [short(s) for s in sizes if s <= 64 * K and ours(op, s) and ours("all_reduce", s) and ours(op, s) > ours("all_reduce", s)]
        goal(f"{op} to 64K no slower than all_reduce", not late, "slower at " + ", ".join(late) if late else "yes")
        low = [(ratio(op, s), short(s)) for s in sizes if s <= M and ratio(op, s)]
        if low:
            at_least(f"{op} to 1M, NCCL / concert, least (at {min(low)[1]})", min(low)[0], 2)
        for size, limit in ((4 * M, 1.5), (16 * M, 1.3), (64 * M, 1.2), (256 * M, 1.05), (G, 1.05)):
            at_least(f"{op} {short(size)}, NCCL / concert", ratio(op, size), limit)
    bar = ours("barrier", 0)
    at_most("barrier", bar, {4: 2.2, 8: 2.8}.get(world, 2.2))
    layer = {impl: list(r.values())[0] for (op, impl), r in rows.items() if op == "layer_gather"}
    one = [v for k, v in layer.items() if "one launch" in k and "direct" in k]
    summed = [v for k, v in layer.items() if "summed" in k and "direct" in k]
    if one and summed:
        goal("nine gathers in one launch at most 1.05 times one of the summed bytes", max(one) <= 1.05 * max(summed), f"{max(one) / max(summed):.3f}")
        for peer in ("nccl_grouped", "torch_packed"):
            if peer in layer:
                at_least(f"nine gathers in one launch, {peer} / concert", layer[peer] / max(one), 1)
    cost = [(v, k) for (op, k), r in rows.items() if op == "host_launch" and "least" in k for v in r.values()]
    for v, k in cost:
        at_most(f"host cost over C, {k.split(', ', 1)[1]}", v, 0.3)


tables()
print()
goals()
