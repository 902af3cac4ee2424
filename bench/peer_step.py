"""Traced graphs on real GPUs by PyTorch: what `lowerdump run -device=cuda` is measured and checked against.

    torchrun --nproc-per-node 4 bench/peer_step.py [flags] OUT GRAPH.fw.graph.json.gz ...

Each graph runs in up to four variants, each in a CUDA graph of its own on every rank:

    traced     the nodes one after the other, as they were traced
    compute    the same without its collectives (their results are fresh memory)
    inductor   compiled by Inductor
    overlap    compiled by Inductor with its overlap scheduler and buckets

One line of JSON for each variant of each graph goes to standard output as soon as it is known, from rank 0: "ms" is the median
of the replays on the slowest rank, "compile_s" what making it took, "rel" how far its results are from the traced ones. A
variant that fails gets a line with "error", and the others go on.

Beside GRAPH.fw.graph.json.gz its GRAPH.bw.graph.json.gz is run, if there is one, on the forward results and tangents of one.
Forward inputs are made by fillrand.py, so that others can make them again. OUT.rankR.safetensors receives, for every output K
of every graph of world rank R, as traced and not compiled, "NAME/outK.sample" (elements j * 2654435761 mod n) and
"NAME/outK.stat" (sum of squares and number of elements, float64); its metadata has the generator's settings.
"""
import argparse
import datetime
import gzip
import json
import math
import operator
import os
import statistics
import struct
import sys
import time
import traceback

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "16")

import torch  # noqa: E402 (the number of threads is read on import)
import torch.distributed as dist  # noqa: E402
import torch.fx as fx  # noqa: E402
import torch._inductor.inductor_prims  # noqa: E402, F401 (registers prims.fma, which traced graphs may have)

import fillrand  # noqa: E402

DTYPES = {
    "float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16,
    "int64": torch.int64, "int32": torch.int32, "int8": torch.int8, "uint8": torch.uint8, "bool": torch.bool,
}
STORED = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}
STEP = 2654435761  # between samples: prime, and so coprime to every smaller size


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", help="prefix of the fingerprint files; - for none")
    p.add_argument("graphs", nargs="+", help="forward graphs, in the order in which to run them")
    p.add_argument("--variants", default="traced,compute,inductor,overlap", help="which, in this order")
    p.add_argument("--reps", type=int, default=20, help="timed replays")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--same", choices=("data", "none"), default="data", help="data: inputs of role data and of fewer than two dimensions are the same on all ranks")
    p.add_argument("--samples", type=int, default=1024, help="elements of each output in the fingerprint, at most")
    p.add_argument("--no-backward", action="store_true")
    p.add_argument("--seconds", type=float, default=1e9, help="start no variant after so many seconds")
    return p.parse_args()


class Step:
    """One traced graph, made into a module that PyTorch can run and compile."""

    def __init__(self, path, device, rank, made):
        with gzip.open(path) as f:
            self.graph = json.load(f)
        self.name = self.graph["name"]
        self.device = device
        self.groups = {}
        for k, (name, parts) in enumerate(sorted(self.graph["groups"].items())):
            for ranks in parts:  # every rank makes every group, in one order; graphs share what they can
                key = (k, *ranks)
                if key not in made:
                    made[key] = dist.new_group(ranks)
                if rank in ranks:
                    self.groups[name] = made[key].group_name
        self.inputs = [n for n in self.graph["nodes"] if n["kind"] == "input"]
        self.module = self.build(collectives=True)

    def build(self, collectives):
        g = fx.Graph()
        nodes = {}
        literals = {"torch": torch, "device": lambda *a, **k: self.device, "inf": math.inf, "nan": math.nan, "__builtins__": {}}

        def literal(text):
            return eval(text, literals, nodes) if text else {}

        for n in self.graph["nodes"]:
            if n["kind"] == "input":
                made = g.placeholder(n["name"])
            elif n["kind"] == "output":
                made = g.output(tuple(literal(n["args"])[0]))
            else:
                args, kwargs = literal(n["args"]), literal(n["kwargs"])
                target = operator_named(n["target"])
                if n["kind"] == "collective" and not collectives:
                    target, args, kwargs = fresh, (args[0], n["out"][0]["shape"]), {}
                elif n["kind"] == "collective":
                    args = (*args[:-1], self.groups[args[-1]])
                elif n["kind"] == "wait" and not collectives:
                    target = same
                made = g.call_function(target, args, kwargs)
            nodes[n["name"]] = made
        g.lint()
        return fx.GraphModule(torch.nn.Module(), g)

    def forward_inputs(self, args, rank):
        made = []
        for k, n in enumerate(self.inputs):
            out = n["out"][0]
            shared = args.same == "data" and (n["role"] == "data" or len(out["shape"]) < 2)
            t = fillrand.fill(torch, out["shape"], DTYPES[out["dtype"]], args.seed, k, 0 if shared else rank, self.device)
            made.append(self.laid_out(t, out))
        return made

    def backward_inputs(self, forward):
        """Input k, tangents not counted, is forward output 1 + k."""
        made, k = [], 1
        for n in self.inputs:
            out = n["out"][0]
            if n["role"] == "tangent":
                made.append(torch.ones(out["shape"], dtype=DTYPES[out["dtype"]], device=self.device))
            else:
                made.append(forward[k])
                k += 1
        return made

    @staticmethod
    def laid_out(t, out):
        if list(t.stride()) == out["stride"]:
            return t
        return torch.empty_strided(out["shape"], out["stride"], dtype=t.dtype, device=t.device).copy_(t)


def operator_named(target):
    if "getitem" in target:
        return operator.getitem
    found = torch.ops
    for part in target.split("."):
        found = getattr(found, part)
    return found


def fresh(x, shape):
    """Stands for a collective: memory of the right size, nothing moved."""
    return x.new_empty(shape)


def same(x):
    """Stands for a wait."""
    return x


def compiled(step, xs, overlap):
    """What Inductor makes of the graph. Its own CUDA graphs are off: timed() captures."""
    import torch._inductor.config as config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.virtualized import V
    from torch.fx.experimental.proxy_tensor import make_fx

    torch._dynamo.reset()
    traced = make_fx(step.module, tracing_mode="fake")(*xs)
    fakes = [n.meta["val"] for n in traced.graph.nodes if n.op == "placeholder"]
    mode = fakes[0].fake_mode
    settings = {
        "aten_distributed_optimizations.enable_overlap_scheduling": overlap,
        "reorder_for_compute_comm_overlap": False,
        "triton.cudagraphs": False,
    }
    if overlap:
        settings["aten_distributed_optimizations.collective_bucketing"] = True
    with config.patch(settings), V.set_fake_mode(mode), torch._guards.tracing(torch._guards.TracingContext(mode)):
        made = compile_fx_inner(traced, fakes)
    return lambda: made(list(xs))  # it empties the list it is given


def timed(fn, token, reps):
    """Milliseconds of each replay on this rank, captured in a CUDA graph.

    Ahead of each replay the stream sleeps while the host enqueues the rest, and an all_reduce lines the ranks up on the device,
    so that neither the host's calls nor how far the hosts are apart is measured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            fn()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = fn()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(reps):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(1_000_000)  # cycles: half a millisecond
        dist.all_reduce(token)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    del kept
    return times


def distance(want, got):
    """The largest relative error, in the 2-norm, of an output, and which it is."""
    worst, at = 0.0, -1
    for k, (a, b) in enumerate(zip(want, got)):
        if a is None or not a.is_floating_point():
            continue
        a, b = a.double(), b.double()
        rel = ((a - b).norm() / a.norm().clamp_min(1e-300)).item()
        if not rel <= worst:  # NaN counts
            worst, at = rel, k
    return worst, at


class Fingerprints:
    """The samples of one rank, in one file."""

    def __init__(self, args):
        self.samples = args.samples
        self.meta = {"generator": "fillrand", "seed": str(args.seed), "same": args.same, "step": str(STEP)}
        self.tensors = {}

    def add(self, name, outs):
        for k, t in enumerate(outs):
            if t is None:
                continue
            n = t.numel()
            flat = t.reshape(-1)
            at = torch.arange(min(n, self.samples), dtype=torch.int64, device=t.device) * STEP % max(n, 1)
            squares = 0.0
            for piece in flat.split(1 << 26):
                squares += piece.double().square().sum().item()
            self.put(f"{name}/out{k}.sample", flat[at])
            self.put(f"{name}/out{k}.stat", torch.tensor([squares, n], dtype=torch.float64))

    def put(self, name, t):
        t = t.cpu().contiguous()
        raw = t.view(torch.uint8) if t.numel() else t.to(torch.uint8)
        self.tensors[name] = (STORED[t.dtype], list(t.shape), bytes(raw.tolist()))

    def write(self, path):
        header, data = {"__metadata__": self.meta}, []
        at = 0
        # Larger elements first, so that every tensor is aligned.
        width = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2}
        for name in sorted(self.tensors, key=lambda n: (-width.get(self.tensors[n][0], 1), n)):
            dtype, shape, raw = self.tensors[name]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(raw)]}
            data.append(raw)
            at += len(raw)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path + ".part", "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + b"".join(data))
        os.replace(path + ".part", path)


class Bench:
    def __init__(self, args):
        self.args = args
        self.rank = int(os.environ["LOCAL_RANK"])
        self.device = torch.device("cuda", self.rank)
        torch.cuda.set_device(self.device)
        dist.init_process_group("nccl", device_id=self.device, timeout=datetime.timedelta(minutes=5))
        self.token = torch.zeros(1, device=self.device)
        self.groups = {}
        self.prints = Fingerprints(args)
        self.start = time.monotonic()

    def say(self, **row):
        if self.rank == 0:
            print(json.dumps(row), flush=True)

    def slowest(self, value):
        t = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(t, op=dist.ReduceOp.MAX)
        return t.item()

    def over(self):
        """Whether the time is up, as all ranks see it."""
        return self.slowest(time.monotonic() - self.start) > self.args.seconds

    def variant(self, step, kind, xs, want):
        if kind not in ("traced", "compute", "inductor", "overlap"):
            raise ValueError(f"no variant {kind}")
        begin = time.monotonic()
        if kind == "traced":
            fn = lambda: step.module(*xs)  # noqa: E731
        elif kind == "compute":
            module = step.build(collectives=False)
            fn = lambda: module(*xs)  # noqa: E731
        else:
            fn = compiled(step, xs, overlap=kind == "overlap")
        row = {}
        if kind in ("inductor", "overlap"):
            rel, at = distance(want, fn())
            row = {"rel": rel, "rel_output": at}
        torch.cuda.synchronize()
        row["compile_s"] = round(time.monotonic() - begin, 1)
        times = timed(fn, self.token, self.args.reps)
        row["ms"] = round(self.slowest(statistics.median(times)), 4)
        row["min_ms"] = round(self.slowest(min(times)), 4)
        return row

    def one(self, path, inputs):
        """Runs every variant of a graph; returns its results as traced."""
        step = Step(path, self.device, self.rank, self.groups)
        xs = inputs(step)
        outs = step.module(*xs)
        torch.cuda.synchronize()
        if self.args.out != "-":
            self.prints.add(step.name, outs)
            self.prints.write(f"{self.args.out}.rank{self.rank}.safetensors")
        if outs[0] is not None and outs[0].numel() == 1:
            self.say(graph=step.name, loss=outs[0].item())
        for kind in self.args.variants.split(","):
            if self.over():
                self.say(graph=step.name, variant=kind, error="the time is up")
                continue
            try:
                self.say(graph=step.name, variant=kind, **self.variant(step, kind, xs, outs))
            except Exception as e:
                if self.rank == 0:
                    traceback.print_exc()
                self.say(graph=step.name, variant=kind, error=f"{type(e).__name__}: {e}"[:300])
            torch.cuda.empty_cache()
        return outs

    def pair(self, path):
        outs = self.one(path, lambda step: step.forward_inputs(self.args, self.rank))
        backward = path.replace(".fw.", ".bw.")
        if backward != path and os.path.exists(backward) and not self.args.no_backward:
            self.one(backward, lambda step: step.backward_inputs(outs))


def main():
    args = parse_args()
    bench = Bench(args)
    bench.say(torch=torch.__version__, nccl=".".join(map(str, torch.cuda.nccl.version())), device=torch.cuda.get_device_name(), world=dist.get_world_size())
    for path in args.graphs:
        try:
            bench.pair(path)
        except Exception as e:
            traceback.print_exc()
            bench.say(path=os.path.basename(path), error=f"{type(e).__name__}: {e}"[:300])
        torch.cuda.empty_cache()
        dist.barrier()
    bench.say(done=True, seconds=round(time.monotonic() - bench.start, 1))
    sys.stdout.flush()
    os._exit(0)  # captured collectives keep communicators alive; tearing them down can hang


if __name__ == "__main__":
    main()
