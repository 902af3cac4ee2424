"""The table of models: all traced models of a folder by PyTorch, Inductor and concert on the GPUs of one machine.

    python3 bench/models.py [flags] DIR OUT [prepare] [peer] [overlap] [concert] [table]

DIR has NAME.fw.graph.json.gz, NAME.bw.graph.json.gz and NAME.data.safetensors of each model; OUT receives fingerprints, times and
logs. The steps, in this order, all of them if none is named:

    prepare    precise results and fingerprints, some models at once: compilers are on the CPU. What Inductor and concert compile
               is kept, so that the steps that follow only time; with Inductor's overlap scheduler if that step is asked for, too
    peer       times of the models as traced and by Inductor, one after the other
    overlap    times by Inductor with its overlap scheduler
    concert    times by lowerdump, its results against the fingerprints, its replays against each other
    table      the table, in Markdown, to standard output; rows of models that a step has not reached are left out
"""
import argparse
import concurrent.futures
import json
import math
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = ("prepare", "peer", "overlap", "concert", "table")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir")
    p.add_argument("out")
    p.add_argument("steps", nargs="*", metavar="step", help=", ".join(STEPS))
    p.add_argument("--models", help="some of them, with commas between")
    p.add_argument("--lowerdump", default="lowerdump")
    p.add_argument("--ranks", type=int, default=4)
    p.add_argument("--jobs", type=int, default=8, help="models that are prepared at once")
    p.add_argument("--replays", type=int, default=100)
    p.add_argument("--seconds", type=int, default=300, help="of one process at most")
    args = p.parse_args()
    for step in args.steps:
        if step not in STEPS:
            p.error(f"no step {step}")
    args.names = sorted(f.removesuffix(".fw.graph.json.gz") for f in os.listdir(args.dir) if f.endswith(".fw.graph.json.gz"))
    args.steps = args.steps or STEPS
    for command, steps in (("torchrun", {"prepare", "peer", "overlap"}), (args.lowerdump, {"prepare", "concert"})):
        if steps & set(args.steps) and not shutil.which(command):
            p.error(f"no {command}, which {' and '.join(sorted(steps & set(args.steps)))} want")
    if args.models:
        args.names = [name for name in args.names if name in args.models.split(",")]
    return args


def graphs(args, name):
    return [f for half in ("fw", "bw") if os.path.exists(f := os.path.join(args.dir, f"{name}.{half}.graph.json.gz"))]


def call(args, log, *command):
    """Runs a command with its output in OUT/log.out and OUT/log.err, and says how it ended."""
    path = os.path.join(args.out, log)
    with open(path + ".out", "w") as out, open(path + ".err", "w") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err)
        try:
            code = process.wait(args.seconds)
        except subprocess.TimeoutExpired:
            process.terminate()  # torchrun and lowerdump end their ranks
            process.wait()
            code = f"cut after {args.seconds} s"
    print(f"{log}: {'done' if code == 0 else code}", file=sys.stderr, flush=True)


def peer_step(args, log, variants, prefix, names, *more):
    torchrun = ["torchrun", "--standalone", "--nproc-per-node", str(args.ranks), os.path.join(HERE, "peer_step.py")]
    call(args, log, *torchrun, "--variants", variants, *more, prefix, *(graphs(args, name)[0] for name in names))


def prepare(args):
    variants = "precise,exact,traced,inductor" + (",overlap" if "overlap" in args.steps else "")

    def of(name):
        peer_step(args, f"{name}.precise", variants, os.path.join(args.out, name), [name], "--reps", "3")
        call(args, f"{name}.kernels", args.lowerdump, "run", "-device=cuda", "-procs", "-steps=0", *graphs(args, name))

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(of, args.names))


def concert(args):
    for name in args.names:
        call(args, f"{name}.concert", args.lowerdump, "run", "-device=cuda", "-procs", "-bench", "-json", "-replays", str(args.replays),
             "-expect", os.path.join(args.out, name), *graphs(args, name))


def lines(args, log):
    """The lines of JSON in the output of a process."""
    try:
        with open(os.path.join(args.out, log + ".out")) as f:
            return [json.loads(line) for line in f if line.startswith("{")]
    except FileNotFoundError:
        return []


def table(args):
    ms = {}  # by graph and variant
    for line in lines(args, "peer") + lines(args, "overlap"):
        if line.get("ms"):
            ms[line["graph"], line["variant"]] = line["ms"]
    print("| model | as traced, forward | backward | Inductor, forward | backward | concert, forward | backward | to Inductor |")
    print("|---|---|---|---|---|---|---|---|")
    ratios = []
    for name in args.names:
        ours = {line["func"]: line["ms"] for line in lines(args, f"{name}.concert") if "func" in line}
        cells, sums = [name], [0.0, 0.0]
        for half in (f"{name}.fw", f"{name}.bw"):
            traced = ms.get((half, "traced"))
            best = min((ms[half, v] for v in ("inductor", "overlap") if (half, v) in ms), default=math.nan)
            cells.append((traced or math.nan, best, ours.get(half, math.nan)))
            if best > 0 and half in ours:
                sums = [sums[0] + best, sums[1] + ours[half]]
        if not sums[1]:
            continue
        ratios.append(sums[0] / sums[1])
        columns = [cells[half][k] for k in range(3) for half in (1, 2)]
        print(f"| {name} | " + " | ".join("" if math.isnan(c) else f"{c:.3f}" for c in columns) + f" | {ratios[-1]:.2f}x |")
    if ratios:
        print(f"| geometric mean of {len(ratios)} | | | | | | | {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}x |")


def main():
    args = parse_args()
    os.makedirs(args.out, exist_ok=True)
    for step in STEPS:
        if step not in args.steps:
            continue
        if step == "prepare":
            prepare(args)
        elif step == "peer":
            peer_step(args, "peer", "traced,inductor", "-", args.names)
        elif step == "overlap":
            peer_step(args, "overlap", "overlap", "-", args.names)
        elif step == "concert":
            concert(args)
        else:
            table(args)


if __name__ == "__main__":
    main()
