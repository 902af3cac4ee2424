"""NCCL's large all_reduces, its gathers beside a matrix product, and its enqueue.

    torchrun --nproc-per-node N overlap.py OUT.jsonl [reduce,gather,enqueue]

The counterpart of gpubench -mode large,overlap,host: the same shapes, graphs and method. The
enqueue is ncclAllReduce called through ctypes, less an empty call through ctypes
(ncclGetVersion), medians of rounds, least of the repetitions.
"""

import ctypes
import glob
import json
import os
import sys
import time

import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
device = torch.device("cuda", rank)
dist.init_process_group("nccl", device_id=device)
world = dist.get_world_size()
parts = sys.argv[2] if len(sys.argv) > 2 else "reduce,gather,enqueue"
out = open(sys.argv[1], "w") if rank == 0 else None
SIDE, GATHER = 8192, 256 << 20
torch.manual_seed(rank)
a, b, c = (torch.empty(SIDE, SIDE, dtype=torch.bfloat16, device=device).normal_() for _ in range(3))
y = torch.empty(GATHER // 2, dtype=torch.bfloat16, device=device).normal_()
x = y[rank * (GATHER // 2 // world) : (rank + 1) * (GATHER // 2 // world)]  # in place
together = torch.zeros(1, device=device)
work, comm = torch.cuda.Stream(), torch.cuda.Stream(priority=-5)


def slowest(us):
    t = torch.tensor([us], device=device)
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return t.item()


def report(op, impl, us, note=""):
    us = slowest(us)
    if rank == 0:
        out.write(json.dumps(dict(op=op, impl=impl, us=us, world=world, note=note)) + "\n")
        print(f"{op:12s} {impl:24s} {us:10.2f} us {note}", flush=True)
    return us


def graph(count, call):
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    dist.barrier()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        for _ in range(count):
            call()
    g.replay()
    torch.cuda.synchronize()
    return g


def pair(products, gathers):
    return (products, gathers, [
        graph(products, lambda: torch.mm(a, b, out=c)) if products else None,
        graph(gathers, lambda: dist.all_gather_into_tensor(y, x)) if gathers else None,
    ])


def run(pair):
    """Microseconds of one product and one gather."""
    products, gathers, gs = pair
    dist.barrier()
    torch.cuda.synchronize()
    torch.cuda._sleep(800_000)
    dist.all_reduce(together)  # the ranks start together
    ready = torch.cuda.Event()
    ready.record()
    events = []
    for g, s in zip(gs, (work, comm)):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        s.wait_event(ready)
        with torch.cuda.stream(s):
            start.record()
            if g:
                g.replay()
            end.record()
        events.append((start, end))
    torch.cuda.synchronize()
    return [start.elapsed_time(end) * 1e3 / max(1, count) for (start, end), count in zip(events, (products, gathers))]


def overlap():
    # As in gpubench, the four measurements take turns, so that clocks are alike.
    pairs = [pair(8, 0), pair(0, 12), pair(8, 60), pair(24, 12)]
    times = [[], [], [], []]
    for rep in range(9):
        for i, p in enumerate(pairs):
            t = run(p)[i % 2]
            if rep >= 2:
                times[i].append(t)
    product, gather, product_beside, gather_beside = (slowest(sorted(t)[len(t) // 2]) for t in times)
    report("gather", "nccl, alone", gather)
    report("gather", "nccl, beside", gather_beside, f"{100 * (gather_beside / gather - 1):+.1f}%")
    report("product", "alone", product)
    report("product", "beside nccl", product_beside, f"{100 * (product_beside / product - 1):+.1f}%")


def reduces():
    # Averages in place, so that the data stay finite.
    whole = torch.empty(1 << 29, dtype=torch.bfloat16, device=device).normal_()
    for size in (1 << 26, 1 << 28, 1 << 30):
        reduced = whole[: size // 2]
        graphs = graph(5, lambda: dist.all_reduce(reduced, op=dist.ReduceOp.AVG))
        times = []
        for _ in range(9):
            dist.barrier()
            torch.cuda.synchronize()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(800_000)
            dist.all_reduce(together)  # the ranks start together
            start.record()
            graphs.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) * 1e3 / 5)
        report("all_reduce", f"nccl, {size >> 20} MiB", sorted(times)[len(times) // 2])
    del whole


def enqueue():
    # The enqueue, through a communicator of our own.
    paths = glob.glob(os.path.join(os.path.dirname(torch.__file__), "..", "nvidia", "nccl", "lib", "libnccl.so.2"))
    nccl = ctypes.CDLL(paths[0] if paths else "libnccl.so.2")

    class UniqueId(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_byte * 128)]

    uid = UniqueId()
    if rank == 0:
        assert nccl.ncclGetUniqueId(ctypes.byref(uid)) == 0
    box = [bytes(uid)]
    dist.broadcast_object_list(box, src=0)
    uid = UniqueId.from_buffer_copy(box[0])
    handle = ctypes.c_void_p()
    assert nccl.ncclCommInitRank(ctypes.byref(handle), ctypes.c_int(world), uid, ctypes.c_int(rank)) == 0
    FLOAT, AVG, CALLS = 9, 4, 100  # ncclBfloat16, ncclAvg
    args = (ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(x.data_ptr()), ctypes.c_size_t(2048), ctypes.c_int(FLOAT), ctypes.c_int(AVG), handle, ctypes.c_void_p(comm.cuda_stream))
    reduce, version, number = nccl.ncclAllReduce, nccl.ncclGetVersion, ctypes.c_int()
    least = [1e9, 1e9]
    for _ in range(5):
        rounds = [[], []]
        for i in range(102):
            dist.barrier()
            torch.cuda.synchronize()
            start = time.perf_counter()
            if i % 2:
                for _ in range(CALLS):
                    reduce(*args)
            else:
                for _ in range(CALLS):
                    version(ctypes.byref(number))
            rounds[i % 2].append((time.perf_counter() - start) * 1e6 / CALLS)
            torch.cuda.synchronize()
        least = [min(least[j], sorted(rounds[j])[len(rounds[j]) // 2]) for j in range(2)]
    report("enqueue", "nccl", least[1] - least[0], f"{least[1]:.2f} with ctypes, an empty call {least[0]:.2f}")
    nccl.ncclCommDestroy(handle)


for name, part in (("reduce", reduces), ("gather", overlap), ("enqueue", enqueue)):
    if name in parts.split(","):
        part()
dist.barrier()
dist.destroy_process_group()
