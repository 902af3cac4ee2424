"""Traced graphs on real GPUs by PyTorch: what `lowerdump run -device=cuda` is measured and checked against.

    torchrun --nproc-per-node 4 bench/peer_step.py [flags] OUT GRAPH.fw.graph.json.gz ...

Each graph runs in up to six variants, each but the first two in a CUDA graph of its own on every rank:

    precise    the nodes one after the other, as they were traced, but every collective that reduces works on float32 copies and
               rounds once: NCCL rounds bfloat16 sums at every hop. Not timed: its results are what others are compared with
    exact      every number that is not an integer in float64, from the same inputs. Not timed: its results tell which digits of
               the others' are not rounding. Operators without float64 are in float32; graphs with attention that has neither have
               no such variant
    traced     the nodes one after the other, as they were traced
    compute    the same without its collectives (their results are fresh memory)
    inductor   compiled by Inductor
    overlap    compiled by Inductor with its overlap scheduler and buckets

One line of JSON for each variant of each graph goes to standard output as soon as it is known, from rank 0: "ms" is the median
of the replays on the slowest rank, "compile_s" what making it took, "rel" and "rel_median" how far its results are from the
precise ones (the traced ones, if those were not asked for), of the worst and of the median output, on the worst rank. A variant
that fails gets a line with "error", and the others go on. Variants that compile come after the others of all graphs.

Beside GRAPH.fw.graph.json.gz its GRAPH.bw.graph.json.gz is run, if there is one, on the variant's own forward results and tangents
of one. Forward inputs are made by fillrand.py, so that others can make them again; where a graph has routers of experts, such that
these are decisive (routing.py): the line of the precise variant has the smallest "router_margin" of all tokens taken, experts,
routers and ranks, and "router_close", the share of those below 1, which rounding could order otherwise, on the worst rank.
OUT.rankR.safetensors receives a fingerprint (sketch.py) of every output of every graph of world rank R, precise or else traced, how
far the timed variants' are from it at most, and a fingerprint of the exact one; its metadata has the generator's settings.
"""
import argparse
import datetime
import gzip
import json
import math
import operator
import os
import signal
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
from torch.utils._pytree import tree_map  # noqa: E402

import fillrand  # noqa: E402
import routing  # noqa: E402
import sketch  # noqa: E402

DTYPES = {
    "float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16,
    "int64": torch.int64, "int32": torch.int32, "int8": torch.int8, "uint8": torch.uint8, "bool": torch.bool,
}
EAGER = ("precise", "exact", "traced", "compute")
UNTIMED = ("precise", "exact")
COMPILED = ("inductor", "overlap")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", help="prefix of the fingerprint files; - for none")
    p.add_argument("graphs", nargs="+", help="forward graphs, in the order in which to run them; none:GRAPH runs with --same none and writes OUT_none")
    p.add_argument("--variants", default="precise,traced,compute,inductor,overlap", help="which, in this order")
    p.add_argument("--reps", type=int, default=20, help="timed replays")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--same", choices=("data", "none"), default="data", help="data: inputs of role data and of fewer than two dimensions are the same on all ranks")
    p.add_argument("--routing", choices=("decisive", "random"), default="decisive", help="how inputs are made where there are routers of experts: decisive, so that rounding does not change what they choose")
    p.add_argument("--no-backward", action="store_true")
    p.add_argument("--seconds", type=float, default=1e9, help="start no variant after so many seconds")
    p.add_argument("--compile-seconds", type=int, default=600, help="give a compilation up after so many seconds")
    args = p.parse_args()
    for kind in args.variants.split(","):
        if kind not in EAGER + COMPILED:
            p.error(f"no variant {kind}")
    return args


class Doubles:
    """Stands for torch in a graph's text: all floating-point types are float64."""

    bfloat16 = float16 = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


class Step:
    """One traced graph, made into a module that PyTorch can run and compile."""

    def __init__(self, path, device, rank, made, decisive):
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
        self.data = fixed(os.path.join(os.path.dirname(path), os.path.basename(path).split(".")[0] + ".data.safetensors"))
        self.routing = routing.found(self.graph, self.literal)
        self.decisive = decisive
        self.margins = []  # of the routers, as the precise variant ran
        self.module = self.build("traced")

    def literal(self, text, names, types=torch):
        literals = {"torch": types, "device": lambda *a, **k: self.device, "inf": math.inf, "nan": math.nan, "__builtins__": {}}
        return eval(text, literals, names) if text else {}

    def build(self, kind):
        g = fx.Graph()
        nodes = {}
        done = set()  # collectives whose results need no wait
        routed = self.routed  # one object: the graph's code names it once

        def literal(text):
            return self.literal(text, nodes, Doubles() if kind == "exact" else torch)

        for n in self.graph["nodes"]:
            if n["kind"] == "input":
                made = g.placeholder(n["name"])
            elif n["kind"] == "output":
                made = g.output(tuple(literal(n["args"])[0]))
            else:
                args, kwargs = literal(n["args"]), literal(n["kwargs"])
                target = operator_named(n["target"])
                if n["kind"] == "collective":  # it takes dense tensors only, and a kernel may give others than were traced
                    args = (dense(g, args[0]), *args[1:])
                if n["kind"] == "collective" and kind == "compute":
                    target, args, kwargs = fresh, (args[0], n["out"][0]["shape"]), {}
                elif n["kind"] == "collective":
                    args = (*args[:-1], self.groups[args[-1]])
                    if kind == "precise":
                        target = PRECISE.get(n["target"].split(".")[1], target)
                elif n["kind"] == "wait" and (kind == "compute" or args[0] in done):
                    target = same
                if kind == "exact" and target is not operator.getitem:
                    target = widest(target)
                made = g.call_function(target, args, kwargs)
                if target in (all_reduce_precise, reduce_scatter_precise, same):
                    done.add(made)
                if kind == "precise" and self.routing and n["name"] in self.routing.routers:
                    g.call_function(routed, (made, self.routing.routers[n["name"]]))
            nodes[n["name"]] = made
        g.lint()
        return fx.GraphModule(torch.nn.Module(), g)

    def routed(self, logits, take):
        """Notes how decisive a router is: the smallest margin, how many are below 1, and of how many."""
        margins = routing.margins(torch, logits, take, self.routing.takes > 0)
        self.margins.append((margins.min().item(), (margins < 1).sum().item(), margins.numel()))

    def forward_inputs(self, args, rank, same):
        made = []
        parts = self.routing.inputs if self.routing and self.decisive else {}
        for k, n in enumerate(self.inputs):
            out = n["out"][0]
            shared = same == "data" and (n["role"] == "data" or len(out["shape"]) < 2)
            how = (out["shape"], DTYPES[out["dtype"]], args.seed, k, 0 if shared else rank, self.device)
            if n["name"] in self.data:
                t = self.data[n["name"]].to(self.device)
            elif k in parts:
                role, axis, _ = parts[k]
                t = routing.fill(torch, self.routing, role, axis, self.routing.first(self.graph, k, rank), *how)
            else:
                t = fillrand.fill(torch, *how)
            made.append(self.laid_out(t, out))
        return made

    def backward_inputs(self, forward):
        """Input k, tangents not counted, is forward output 1 + k, or, where these have other shapes, the outputs end with what is
        saved: before it are the new values of buffers, and every result."""
        saved = [n["out"][0]["shape"] for n in self.inputs if n["role"] != "tangent"]
        k = 1
        if [None if t is None else list(t.shape) for t in forward[k:k + len(saved)]] != saved:
            k = len(forward) - len(saved)
        made = []
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


def fixed(path):
    """The values of inputs that are not free, by name: buffers and constants of the model."""
    if not os.path.exists(path):
        return {}
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = bytearray(f.read())
    types = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I8": "int8", "U8": "uint8", "BOOL": "bool"}
    made = {}
    for name, t in header.items():
        if name != "__metadata__":
            low, high = t["data_offsets"]
            dtype = DTYPES[types[t["dtype"]]]
            made[name] = torch.frombuffer(data, dtype=dtype, count=(high - low) // dtype.itemsize, offset=low).reshape(t["shape"]) if high > low else torch.empty(t["shape"], dtype=dtype)
    return made


def operator_named(target):
    if "getitem" in target:
        return operator.getitem
    found = torch.ops
    for part in target.split("."):
        found = getattr(found, part)
    return found


def rounded_once(op, x, *args):
    """A collective that reduces, in float32, and its wait."""
    exact = torch.ops._c10d_functional.wait_tensor(op(x.float() if x.is_floating_point() else x, *args))
    return exact.to(x.dtype)


def all_reduce_precise(x, *args):
    return rounded_once(torch.ops._c10d_functional.all_reduce.default, x, *args)


def reduce_scatter_precise(x, *args):
    return rounded_once(torch.ops._c10d_functional.reduce_scatter_tensor.default, x, *args)


PRECISE = {"all_reduce": all_reduce_precise, "reduce_scatter_tensor": reduce_scatter_precise}


def dense(g, x):
    """A tensor, or a list of tensors, of a graph as a collective takes them."""
    return [dense(g, y) for y in x] if isinstance(x, (list, tuple)) else g.call_method("contiguous", (x,))


def widest(op):
    """An operator of float64 numbers, computed in float32 where it has no float64."""
    def narrow(x):
        if isinstance(x, torch.Tensor):
            return x.float() if x.dtype == torch.float64 else x
        return torch.float32 if x is torch.float64 else x

    def call(*args, **kwargs):
        try:
            return op(*args, **kwargs)
        except (NotImplementedError, RuntimeError):
            outs = op(*tree_map(narrow, args), **tree_map(narrow, kwargs))
            return tree_map(lambda t: t.double() if isinstance(t, torch.Tensor) and t.dtype == torch.float32 else t, outs)
    return call


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


class Bench:
    def __init__(self, args):
        self.args = args
        self.rank = int(os.environ["LOCAL_RANK"])
        self.device = torch.device("cuda", self.rank)
        torch.cuda.set_device(self.device)
        dist.init_process_group("nccl", device_id=self.device, timeout=datetime.timedelta(minutes=5))
        self.token = torch.zeros(1, device=self.device)
        self.groups = {}
        self.prints = {}
        self.start = time.monotonic()

    def say(self, **row):
        if self.rank == 0:
            print(json.dumps(row), flush=True)

    def file(self, suffix):
        return f"{self.args.out}{suffix}.rank{self.rank}.safetensors"

    def slowest(self, value):
        t = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(t, op=dist.ReduceOp.MAX)
        return t.item()

    def over(self):
        """Whether the time is up, as all ranks see it."""
        return self.slowest(time.monotonic() - self.start) > self.args.seconds

    def made(self, step, kind, xs):
        """The function of a variant; None if this rank could not make it."""
        if kind in EAGER:
            module = step.build(kind)
            if kind == "exact":
                xs = [x.double() if x.is_floating_point() else x for x in xs]
            return lambda: module(*xs)

        def late(*_):
            raise TimeoutError(f"not compiled after {self.args.compile_seconds} s")
        before = signal.signal(signal.SIGALRM, late)
        signal.alarm(self.args.compile_seconds)
        fn, error = None, None
        try:
            fn = compiled(step, xs, overlap=kind == "overlap")
        except Exception as e:
            error = e
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
        if self.slowest(0.0 if error is None else 1.0) > 0:  # all ranks give up what failed on one
            raise error or RuntimeError("another rank failed")
        return fn

    def variant(self, step, kind, xs, want):
        """Makes and times a variant; returns its results, how far they are off, and what to say of it."""
        begin = time.monotonic()
        fn = self.made(step, kind, xs)
        outs, rels, row = None, None, {}
        if kind != "compute":
            outs = fn()
            torch.cuda.synchronize()
            row["compile_s"] = round(time.monotonic() - begin, 1)
            if want is not None:
                rels = sketch.distances(torch, want, outs)
                worst = max(rels, default=0.0)
                row["rel"], row["rel_median"] = self.slowest(worst), self.slowest(statistics.median(rels) if rels else 0.0)
                row["rel_output"] = rels.index(worst) if rels else -1
        if kind not in UNTIMED:
            times = timed(fn, self.token, self.args.reps)
            row["ms"] = round(self.slowest(statistics.median(times)), 4)
            row["min_ms"] = round(self.slowest(min(times)), 4)
        return outs, rels, row

    def one(self, path, kinds, same, suffix, inputs):
        """Runs variants of a graph; returns the results of each, and of the one to compare with as None's."""
        step = Step(path, self.device, self.rank, self.groups, self.args.routing == "decisive")
        results, rels = {}, {}
        asked = self.args.variants.split(",")
        base = "precise" if "precise" in asked else "traced"
        if base not in kinds:  # it ran before, and its results are needed again
            results[None] = step.build(base)(*inputs(step, None))
        for kind in kinds:
            if self.over():
                self.say(graph=step.name, variant=kind, error="the time is up")
                continue
            try:
                xs = inputs(step, kind)
                results[kind], rels[kind], row = self.variant(step, kind, xs, results.get(None))
                if kind == base:
                    results[None] = results[kind]
                if kind == "precise" and step.routing:
                    least, below, of = zip(*step.margins)
                    row["router_margin"] = -self.slowest(-min(least))
                    row["router_close"] = self.slowest(sum(below) / sum(of))
                self.say(graph=step.name, variant=kind, **row)
                if kind in COMPILED and suffix in self.prints:
                    self.prints[suffix].far(step.name, rels[kind])
                    self.prints[suffix].write(self.file(suffix))
            except Exception as e:
                if self.rank == 0:
                    traceback.print_exc()
                self.say(graph=step.name, variant=kind, error=f"{type(e).__name__}: {e}"[:300])
            torch.cuda.empty_cache()
        outs = results.get(None)
        if base in kinds and outs is not None:
            if self.args.out != "-":
                prints = self.prints.setdefault(suffix, sketch.Fingerprints(torch, self.args.seed, same))
                prints.add(step.name, "out", outs)
                prints.add(step.name, "exact", results.get("exact") or ())
                prints.far(step.name, rels.get("traced"))
                if step.routing and step.decisive:
                    prints.routed(step.name, step.routing.described(step.graph, self.rank))
                prints.write(self.file(suffix))
            if outs[0] is not None and outs[0].numel() == 1:
                self.say(graph=step.name, loss=outs[0].item())
        return results

    def pair(self, path, kinds):
        same, _, path = path.rpartition(":")
        how = (same or self.args.same, same and "_" + same)  # the inputs, and where fingerprints go
        forward = self.one(path, kinds, *how, lambda step, kind: step.forward_inputs(self.args, self.rank, how[0]))
        backward = path.replace(".fw.", ".bw.")
        if backward == path or not os.path.exists(backward) or self.args.no_backward:
            return

        def inputs(step, kind):
            outs = forward.get(kind)  # compute has none of its own
            return step.backward_inputs(forward[None] if outs is None else outs)
        self.one(backward, kinds, *how, inputs)


def main():
    args = parse_args()
    bench = Bench(args)
    bench.say(torch=torch.__version__, nccl=".".join(map(str, torch.cuda.nccl.version())), device=torch.cuda.get_device_name(), world=dist.get_world_size())
    asked = args.variants.split(",")
    for among in (EAGER, COMPILED):
        kinds = [k for k in asked if k in among]
        for path in args.graphs if kinds else ():
            try:
                bench.pair(path, kinds)
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
