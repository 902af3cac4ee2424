"""Times a training step of a Llama under XLA, and writes it for concert: four layers of the sizes
of Llama 3 8B, bfloat16, 2048 tokens on each of four GPUs, parameters sharded over them (FSDP),
forward, backward and SGD.

    python tools/jax/llama.py OUT
    lowerdump run -device=cuda -bench -random=quick OUT/llama8b_l4_fsdp4.stablehlo.mlir.gz

XLA gets cuDNN's attention and its latency-hiding scheduler, and partitions a global program;
concert gets the same step with its collectives written out (shard_map) and attention as einsums
and a softmax. Both run on the same machine, one after the other. -layers, -tokens and the like
make it smaller; -cpu writes and times it on virtual devices of a CPU, without cuDNN. Needs
JAX 0.11.
"""
import argparse
import functools
import gzip
import os
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("out")
for name, default in (("ranks", 4), ("layers", 4), ("tokens", 2048), ("width", 4096), ("hidden", 14336), ("heads", 32), ("kv", 8), ("vocab", 128256), ("calls", 20)):
    parser.add_argument("-" + name, type=int, default=default)
parser.add_argument("-cpu", action="store_true")
args = parser.parse_args()
flags = os.environ.get("XLA_FLAGS", "")
if args.cpu:
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={args.ranks}"
    os.environ["JAX_PLATFORMS"] = "cpu"
else:
    os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_enable_latency_hiding_scheduler=true"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

D = args.width // args.heads


def rms(x, w):
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-5)).astype(x.dtype) * w


def rotate(x):
    """x: [b, s, h, d], turned by its place in the sequence."""
    s = x.shape[1]
    f = 1.0 / 500000.0 ** (jnp.arange(0, D, 2, dtype=jnp.float32) / D)
    a = jnp.arange(s, dtype=jnp.float32)[:, None] * f[None]
    c, n = jnp.cos(a)[None, :, None], jnp.sin(a)[None, :, None]
    y = x.astype(jnp.float32)
    l, r = y[..., : D // 2], y[..., D // 2 :]
    return jnp.concatenate([l * c - r * n, r * c + l * n], -1).astype(x.dtype)


def written(q, k, v):
    """Causal attention as einsums and a softmax."""
    k, v = (jnp.repeat(t, args.heads // args.kv, 2) for t in (k, v))
    a = jnp.einsum("bshd,bthd->bhst", q, k).astype(jnp.float32) / np.sqrt(D).astype(np.float32)
    a = jnp.where(jnp.tril(jnp.ones(a.shape[-2:], bool)), a, -1e30)
    return jnp.einsum("bhst,bthd->bshd", jax.nn.softmax(a, -1).astype(q.dtype), v)


def cudnn(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="xla" if args.cpu else "cudnn")


def loss(params, tokens, whole, attend):
    """whole gives a parameter as it is used."""
    b, s = tokens.shape
    x = whole(params["embed"])[tokens]
    for p in params["layers"]:
        h = rms(x, whole(p["norm1"]))
        q = rotate((h @ whole(p["q"])).reshape(b, s, args.heads, D))
        k = rotate((h @ whole(p["k"])).reshape(b, s, args.kv, D))
        v = (h @ whole(p["v"])).reshape(b, s, args.kv, D)
        x = x + attend(q, k, v).reshape(b, s, -1) @ whole(p["o"])
        h = rms(x, whole(p["norm2"]))
        x = x + (jax.nn.silu(h @ whole(p["gate"])) * (h @ whole(p["up"]))) @ whole(p["down"])
    logits = (rms(x, whole(params["norm"])) @ whole(params["head"])).astype(jnp.float32)
    at = jnp.take_along_axis(logits, jnp.roll(tokens, -1, 1)[..., None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - at)


def step(params, tokens, value_and_grad):
    value, grads = value_and_grad(params, tokens)
    return value, jax.tree.map(lambda p, g: p - (1e-3 * g).astype(p.dtype), params, grads)


def shapes():
    w, kv = args.width, args.kv * D
    one = {"norm1": (w,), "q": (w, w), "k": (w, kv), "v": (w, kv), "o": (w, w), "norm2": (w,), "gate": (w, args.hidden), "up": (w, args.hidden), "down": (args.hidden, w)}
    return {"embed": (args.vocab, w), "head": (w, args.vocab), "norm": (w,), "layers": [dict(one) for _ in range(args.layers)]}


def main():
    devices = jax.devices()[: args.ranks]
    if len(devices) < args.ranks:
        raise SystemExit(f"{args.ranks} ranks on {len(devices)} devices")
    mesh = Mesh(np.array(devices), ("x",))
    rows = NamedSharding(mesh, P("x"))
    leaf = lambda s: isinstance(s, tuple)
    make = lambda i, s: jax.jit(lambda: 0.02 * jax.random.normal(jax.random.key(i), s, jnp.bfloat16), out_shardings=rows)()
    flat, tree = jax.tree.flatten(shapes(), is_leaf=leaf)
    tokens = jax.device_put(np.random.default_rng(0).integers(0, args.vocab, (args.ranks, args.tokens), np.int32), rows)

    # For concert: each rank gathers a parameter where it is used, which makes the gradient a reduce_scatter.
    def local(params, tokens):
        whole = lambda p: jax.lax.all_gather(p, "x", tiled=True)
        mean = lambda p, t: loss(p, t, jax.checkpoint(whole), written) / args.ranks
        value, new = step(params, tokens, jax.value_and_grad(mean))
        return jax.lax.psum(value, "x"), new

    specs = jax.tree.unflatten(tree, [P("x")] * len(flat))
    manual = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=(specs, P("x")), out_specs=(P(), specs), check_vma=False), donate_argnums=0)
    abstract = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(s, jnp.bfloat16, sharding=rows) for s in flat])
    text = manual.lower(abstract, jax.ShapeDtypeStruct(tokens.shape, tokens.dtype, sharding=rows)).as_text()
    os.makedirs(args.out, exist_ok=True)
    path = os.path.join(args.out, f"llama8b_l{args.layers}_fsdp{args.ranks}.stablehlo.mlir.gz")
    with gzip.open(path, "wt") as f:
        f.write(text)
    print(f"{path}: {len(text)} bytes")

    # For XLA: the global program, which its partitioner cuts.
    whole = lambda p: jax.lax.with_sharding_constraint(p, NamedSharding(mesh, P()))
    run = jax.jit(functools.partial(step, value_and_grad=jax.value_and_grad(lambda p, t: loss(p, t, whole, cudnn))), donate_argnums=0,
                  out_shardings=(NamedSharding(mesh, P()), jax.tree.unflatten(tree, [rows] * len(flat))))
    params = jax.tree.unflatten(tree, [make(i, s) for i, s in enumerate(flat)])
    for _ in range(3):
        value, params = run(params, tokens)
    jax.block_until_ready(params)
    start = time.perf_counter()
    for _ in range(args.calls):
        value, params = run(params, tokens)
    jax.block_until_ready(params)
    print(f"XLA: {(time.perf_counter() - start) / args.calls * 1e3:.2f} ms a step, {args.ranks} devices, loss {float(value):.3f}")


if __name__ == "__main__":
    main()
