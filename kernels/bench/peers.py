"""Times of NCCL's and PyTorch's own collectives on one host, to set beside gpubench.

    torchrun --nproc-per-node N peers.py OUT.jsonl [SIZES]

One process a GPU. A figure is the time of one call, replayed from a CUDA graph
(200 calls up to 1 MiB, 20 up to 16 MiB, 5 above) behind a delay, the median of the
replays on the slowest rank, bf16, inputs random and different on every rank.
SIZES is a comma-separated list of log2 of the full buffer in bytes. CALLS in the
environment may list other numbers of calls up to 1 MiB, each of which is measured.
"""

import json
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
device = torch.device("cuda", rank)
dist.init_process_group("nccl", device_id=device)
world = dist.get_world_size()
group = dist.group.WORLD.group_name
out = open(sys.argv[1], "w") if rank == 0 else None
sizes = [1 << int(k) for k in sys.argv[2].split(",")] if len(sys.argv) > 2 else [1 << k for k in range(10, 31, 2)]


counts = [int(k) for k in os.environ.get("CALLS", "200").split(",")]  # calls a graph up to 1 MiB

together = torch.zeros(1, device=device)


def measure(call, inner, reps):
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(inner):
            call()
    graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(reps):
        dist.barrier()
        torch.cuda.synchronize()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(800_000)
        dist.all_reduce(together)  # the ranks start together
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / inner)
    times.sort()
    worst = torch.tensor([times[len(times) // 2]], device=device)
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return worst.item()


def record(op, impl, size, call):
    for inner in counts if size <= 1 << 20 else [20] if size <= 1 << 24 else [5]:
        try:
            us = measure(call, inner, 7)
        except Exception as e:  # an implementation that a size or machine does not allow
            if rank == 0:
                print(op, impl, size, "failed:", str(e)[:120], flush=True)
            return
        if rank == 0:
            out.write(json.dumps(dict(op=op, impl=impl, bytes=size, us=us, world=world, calls=inner)) + "\n")
            out.flush()
            print(f"{op:15s} {impl:14s} {size:11d} B {us:10.2f} us, {inner} calls", flush=True)


big = max(sizes)
shared = symm.empty(big // 2, dtype=torch.bfloat16, device=device)
handle = symm.rendezvous(shared, group)
torch.manual_seed(rank)
x = torch.empty(big // 2, dtype=torch.bfloat16, device=device).normal_()
y = torch.empty_like(x)
record("barrier", "torch_symm", 0, lambda: handle.barrier(channel=0))
for size in sizes:
    k = size // 2
    xs, ys, bs = x[:k], y[:k], shared[:k]
    # all_reduce works in place: an average keeps the data finite over many calls.
    record("all_reduce", "nccl", size, lambda: dist.all_reduce(xs, op=dist.ReduceOp.AVG))
    xs.normal_()
    bs.copy_(xs)
    if size <= 1 << 24:
        record("all_reduce", "torch_one_shot", size, lambda: torch.ops.symm_mem.one_shot_all_reduce(bs, "sum", group))
    record("all_reduce", "torch_two_shot", size, lambda: torch.ops.symm_mem.two_shot_all_reduce_(bs, "sum", group))
    record("all_gather", "nccl", size, lambda: dist.all_gather_into_tensor(ys, xs[: k // world]))
    record("reduce_scatter", "nccl", size, lambda: dist.reduce_scatter_tensor(ys[: k // world], xs))
    record("all_to_all", "nccl", size, lambda: dist.all_to_all_single(ys, xs))
# The nine parameter gathers of a llama 8B layer: grouped calls of NCCL, and packing
# into one buffer, one gather and copies out, as a bucketing pass does.
layer = [4096, 4096 * 4096, 1024 * 4096, 1024 * 4096, 4096 * 4096, 4096, 14336 * 4096, 4096 * 14336, 14336 * 4096]
if sum(layer) <= big // 2:
    shards, wholes, at = [], [], 0
    for n in layer:
        shards.append(x[at // world : (at + n) // world])
        wholes.append(y[at : at + n])
        at += n
    flat, gathered = torch.empty(at // world, dtype=torch.bfloat16, device=device), torch.empty(at, dtype=torch.bfloat16, device=device)

    def grouped():
        with dist._coalescing_manager(device=device, async_ops=False):
            for whole, shard in zip(wholes, shards):
                dist.all_gather_into_tensor(whole, shard)

    def packed():
        torch.cat(shards, out=flat)
        dist.all_gather_into_tensor(gathered, flat)
        rows, at = gathered.view(world, -1), 0
        for whole in wholes:
            k = whole.numel() // world
            whole.view(world, -1).copy_(rows[:, at : at + k])
            at += k

    size = 2 * sum(layer)
    record("layer_gather", "nccl_grouped", size, grouped)
    record("layer_gather", "torch_packed", size, packed)
dist.barrier()
dist.destroy_process_group()
