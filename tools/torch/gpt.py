"""Times a training step of the GPT of examples/gomlx under PyTorch: float32 weights and Adam's
states, bfloat16 where it computes, LayerNorm in float32, causal attention, the cross entropy of
all tokens.

    python tools/torch/gpt.py
    torchrun --nproc-per-node 2 tools/torch/gpt.py [-keep]

Forward and backward are compiled by Inductor, attention is cuDNN's or with -flash PyTorch's own, and
Adam is PyTorch's fused one. Tokens are other random ones in every step: where a loss is near
zero, products are of zeros, which take less power, and clocks are higher. The step is timed as it
is called and as one CUDA graph: between two events, the median of -steps behind 10, without a
pause. -profile prints what its kernels take. On several ranks the weights are sharded by FSDP2, and
with -keep not gathered again in backward; -batch is a rank's, the slowest rank counts.
"""
import argparse
import os
import statistics

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for name, default in (("dim", 2048), ("heads", 16), ("layers", 12), ("seq", 2048), ("batch", 4), ("vocabulary", 50304), ("steps", 60)):
    parser.add_argument("-" + name, type=int, default=default)
parser.add_argument("-profile", action="store_true")
parser.add_argument("-flash", action="store_true")
parser.add_argument("-keep", action="store_true")
args = parser.parse_args()
D, ranks, rank = args.dim, int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("LOCAL_RANK", 0))


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.ones(D)), nn.Parameter(torch.zeros(D))

    def forward(self, x):
        return F.layer_norm(x.float(), (D,), self.gain.float(), self.bias.float(), 1e-5).bfloat16()


def matrix(*shape):
    return nn.Parameter(0.02 * torch.randn(*shape))


def dense(x, w):
    return F.linear(x, w.bfloat16())


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Norm(), Norm()
        self.q, self.k, self.v, self.o = (matrix(D, D) for _ in "qkvo")
        self.up, self.down = matrix(4 * D, D), matrix(D, 4 * D)

    def forward(self, x):
        heads = lambda x: x.unflatten(-1, (args.heads, -1)).transpose(1, 2)
        h = self.first(x)
        h = F.scaled_dot_product_attention(heads(dense(h, self.q)), heads(dense(h, self.k)), heads(dense(h, self.v)), is_causal=True)
        x = x + dense(h.transpose(1, 2).flatten(2), self.o)
        return x + dense(F.gelu(dense(self.second(x), self.up)), self.down)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = Norm(), matrix(args.vocabulary, D)

    def forward(self, x, targets):
        logits = dense(self.norm(x), self.out).float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.places = matrix(args.vocabulary, D), matrix(args.seq, D)
        self.layers, self.head = nn.ModuleList(Layer() for _ in range(args.layers)), Head()

    def forward(self, tokens, targets):
        x = F.embedding(tokens, self.embed.bfloat16()) + self.places.bfloat16()
        for layer in self.layers:
            x = layer(x)
        return self.head(x, targets)


def sharded(model):
    """FSDP2 over all ranks: bfloat16 gathers and reductions, a unit for each layer, which is compiled."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for units in model.layers, model:
        for name, unit in list(units.named_children()):
            if isinstance(unit, (Layer, Head)):
                units.register_module(name, torch.compile(unit))
                fully_shard(units.get_submodule(name), mp_policy=policy, reshard_after_forward=not args.keep)
    fully_shard(model, mp_policy=policy)
    return model


def measure(name, step, batch):
    for _ in range(10):
        batch()
        step()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(args.steps + 1)]
    for e in events[:-1]:
        e.record()
        batch()
        step()
    events[-1].record()
    torch.cuda.synchronize()
    ms = torch.tensor(statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:])), device="cuda")
    if ranks > 1:
        dist.all_reduce(ms, dist.ReduceOp.MAX)
    if rank == 0:
        print(f"{name}: {ms:.2f} ms a step, {ranks * args.batch * args.seq / ms.item() * 1e3:.0f} tokens a second", flush=True)


def main():
    torch.cuda.set_device(rank)
    if ranks > 1:
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    tokens, targets = (torch.empty((args.batch, args.seq), dtype=torch.int64, device="cuda") for _ in "ab")

    def batch():
        tokens.random_(256)
        targets.random_(256)

    torch.manual_seed(1)
    with torch.device("cuda"):
        model = GPT()
    model = sharded(model) if ranks > 1 else torch.compile(model)
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, eps=1e-7, fused=True, capturable=True)
    backend = SDPBackend.FLASH_ATTENTION if args.flash else SDPBackend.CUDNN_ATTENTION

    def step():
        with sdpa_kernel(backend):
            value = model(tokens, targets)
            value.backward()
        adam.step()
        adam.zero_grad(set_to_none=True)
        return value

    measure(f"{backend.name}, called", step, batch)
    if args.profile:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
            step()
            torch.cuda.synchronize()
        print(p.key_averages().table(sort_by="cuda_time_total", row_limit=40, max_name_column_width=90))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    value = step()
    print(f"loss {value.item():.3f}, {torch.cuda.max_memory_allocated() >> 20} MiB", flush=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    measure(f"{backend.name}, one graph", graph.replay, batch)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
