"""Times a training step of the GPT of examples/gomlx under PyTorch: float32 weights and Adam's
states, bfloat16 where it computes, LayerNorm in float32, causal attention, the cross entropy of
all tokens.

    python tools/torch/gpt.py

Forward and backward are compiled by Inductor, attention is cuDNN's or with -flash PyTorch's own, and
Adam is PyTorch's fused one. Tokens are other random ones in every step: where a loss is near
zero, products are of zeros, which take less power, and clocks are higher. The step is timed as it
is called and as one CUDA graph: between two events, the median of -steps behind 10, without a
pause. -profile prints what its kernels take.
"""
import argparse
import statistics

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for name, default in (("dim", 2048), ("heads", 16), ("layers", 12), ("seq", 2048), ("batch", 4), ("vocabulary", 50304), ("steps", 60)):
    parser.add_argument("-" + name, type=int, default=default)
parser.add_argument("-profile", action="store_true")
parser.add_argument("-flash", action="store_true")
args = parser.parse_args()
D = args.dim


def parameters():
    g = torch.Generator("cuda").manual_seed(1)
    normal = lambda *shape: torch.nn.Parameter(0.02 * torch.randn(*shape, generator=g, device="cuda"))
    norm = lambda: [torch.nn.Parameter(torch.ones(D, device="cuda")), torch.nn.Parameter(torch.zeros(D, device="cuda"))]
    layer = lambda: norm() + [normal(D, D) for _ in range(4)] + norm() + [normal(4 * D, D), normal(D, 4 * D)]
    return [normal(args.vocabulary, D), normal(args.seq, D), [layer() for _ in range(args.layers)], norm(), normal(args.vocabulary, D)]


def flat(tree):
    return [p for t in tree for p in flat(t)] if isinstance(tree, list) else [tree]


def loss(tree, tokens, targets):
    embed, places, layers, last, out = tree
    norm = lambda x, gain, bias: F.layer_norm(x.float(), (D,), gain, bias, 1e-5).bfloat16()
    dense = lambda x, w: F.linear(x, w.bfloat16())
    heads = lambda x: x.unflatten(-1, (args.heads, -1)).transpose(1, 2)
    x = F.embedding(tokens, embed.bfloat16()) + places.bfloat16()
    for g1, b1, q, k, v, o, g2, b2, up, down in layers:
        h = norm(x, g1, b1)
        h = F.scaled_dot_product_attention(heads(dense(h, q)), heads(dense(h, k)), heads(dense(h, v)), is_causal=True)
        x = x + dense(h.transpose(1, 2).flatten(2), o)
        x = x + dense(F.gelu(dense(norm(x, g2, b2), up)), down)
    logits = dense(norm(x, *last), out).float()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


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
    ms = statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:]))
    print(f"{name}: {ms:.2f} ms a step, {args.batch * args.seq / ms * 1e3:.0f} tokens a second", flush=True)


def main():
    tokens, targets = (torch.empty((args.batch, args.seq), dtype=torch.int64, device="cuda") for _ in "ab")

    def batch():
        tokens.random_(256)
        targets.random_(256)

    tree = parameters()
    adam = torch.optim.Adam(flat(tree), lr=1e-4, eps=1e-7, fused=True, capturable=True)
    compiled = torch.compile(loss)
    backend = SDPBackend.FLASH_ATTENTION if args.flash else SDPBackend.CUDNN_ATTENTION

    def step():
        with sdpa_kernel(backend):
            value = compiled(tree, tokens, targets)
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
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = step()
    measure(f"{backend.name}, one graph", graph.replay, batch)
    print(f"loss {value.item():.3f}, {torch.cuda.max_memory_allocated() >> 20} MiB")


if __name__ == "__main__":
    main()
