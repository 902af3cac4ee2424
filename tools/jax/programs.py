"""Writes small JAX programs with their inputs and results, as the tests of testdata/jax read them.

    python tools/jax/programs.py OUT [NAME...]
    lowerdump run -inputs OUT -expect OUT OUT/NAME.stablehlo.mlir.gz

Each program is a function below. Those that get a mesh are written for its devices, with the shards
of each rank in files of its own. JAX's results are of virtual devices of the CPU. Needs JAX 0.11,
flax and optax.
"""
import gzip
import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax, nn, random, shard_map
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from safetensors.numpy import save_file

rng = np.random.default_rng(7)
programs = {}


def program(f):
    programs[f.__name__] = f
    return f


def floats(*shape):
    return np.asarray(rng.normal(size=shape), np.float32)


def integers(low, high, *shape):
    return np.asarray(rng.integers(low, high, size=shape), np.int32)


def mesh(*sizes):
    devices = np.array(jax.devices()[: int(np.prod(sizes))])
    return Mesh(devices.reshape(sizes), ("data", "model")[: len(sizes)])


def put(m, x, *axes):
    return jax.device_put(x, NamedSharding(m, P(*axes)))


@program
def convnet():
    """A convolutional network of flax: batch norm, pools, groups, a transposed convolution."""

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            x = linen.Conv(16, (3, 3), strides=2)(x)
            x = nn.relu(linen.BatchNorm(use_running_average=False)(x))
            x = linen.max_pool(x, (2, 2), strides=(2, 2))
            x = linen.Conv(16, (3, 3), feature_group_count=4)(x)
            x = linen.avg_pool(x, (2, 2), strides=(1, 1), padding="SAME")
            x = linen.ConvTranspose(8, (3, 3), strides=(2, 2))(x)
            return linen.Dense(10)(x.mean((1, 2)))

    x, y = floats(4, 32, 32, 3), integers(0, 10, 4)
    net, optimizer = Net(), optax.sgd(0.1, momentum=0.9, nesterov=True)
    variables = net.init(random.PRNGKey(0), x)
    params, stats = variables["params"], variables["batch_stats"]

    def step(params, stats, state, x, y):
        def loss(params):
            out, new = net.apply({"params": params, "batch_stats": stats}, x, mutable=["batch_stats"])
            return optax.softmax_cross_entropy_with_integer_labels(out, y).mean(), new

        (l, new), gradients = jax.value_and_grad(loss, has_aux=True)(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), new, state, l

    return step, (params, stats, optimizer.init(params), x, y)


@program
def experts():
    """A mixture of experts with capacity, as einsums of one-hot tensors."""

    def f(weights, x):
        def loss(weights):
            gate, up, down = weights
            p = nn.softmax(x @ gate)
            top, index = lax.top_k(p, 2)
            top = top / top.sum(-1, keepdims=True)
            chosen = nn.one_hot(index, 4)
            place = nn.one_hot(jnp.cumsum(chosen.reshape(-1, 4), 0).reshape(chosen.shape) * chosen - 1, 12)
            to = (place * chosen[..., None]).sum(1)
            back = (top[:, :, None, None] * place * chosen[..., None]).sum(1)
            rows = jnp.einsum("tec,td->ecd", to, x)
            out = jnp.einsum("ecf,efd->ecd", nn.silu(jnp.einsum("ecd,edf->ecf", rows, up)), down)
            out = jnp.einsum("tec,ecd->td", back, out)
            return (out**2).mean() + 0.04 * (p.mean(0) * chosen.mean((0, 1))).sum()

        return jax.value_and_grad(loss)(weights)

    return f, ((floats(16, 4), floats(4, 16, 32) * 0.2, floats(4, 32, 16) * 0.2), floats(20, 16))


@program
def graph_network():
    def f(weights, x, sender, receiver):
        def loss(weights):
            message = nn.relu(jnp.concatenate([x[sender], x[receiver]], -1) @ weights[0])
            total = jax.ops.segment_sum(message, receiver, 10)
            largest = jax.ops.segment_max(message, receiver, 10)
            largest = jnp.where(jnp.isfinite(largest), largest, 0)
            count = jax.ops.segment_sum(jnp.ones_like(receiver, jnp.float32), receiver, 10)
            share = jnp.exp(message - message.max())
            attention = share / jax.ops.segment_sum(share, receiver, 10)[receiver]
            all = jnp.concatenate([total, largest, total / jnp.maximum(count, 1)[:, None]], -1)
            return ((all @ weights[1]) ** 2).mean() + attention.mean()

        return jax.value_and_grad(loss)(weights)

    return f, ((floats(16, 12), floats(36, 4)), floats(10, 8), integers(0, 10, 30), integers(0, 10, 30))


@program
def random_numbers():
    def f(key):
        a, b, c, d, e, g, h = random.split(key, 7)
        return (
            random.uniform(a, (5, 7)), random.normal(b, (33,)), random.bernoulli(c, 0.3, (10,)),
            random.randint(d, (6, 3), -5, 100), random.permutation(e, 20),
            random.categorical(g, jnp.arange(12.0).reshape(3, 4)), random.gumbel(h, (4,)),
            random.truncated_normal(a, -2, 2, (9,)), random.exponential(b, (3,)),
            random.choice(c, 10, (4,), replace=False), random.laplace(d, (5,)), random.bits(e, (4,)),
            random.fold_in(g, 3), random.rademacher(h, (8,)), random.cauchy(a, (3,)),
        )

    return f, (random.PRNGKey(3),)


@program
def indexing():
    def f(x, i, j):
        return (
            x.at[i].set(1.0), x.at[i, j].add(2.0), x.at[:, j].mul(3.0), x.at[i].max(x[j]), x[i, j], x[i][:, j],
            x.at[2:5, ::2].set(0.0), jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
            x.at[jnp.array([20, -1])].get(mode="fill", fill_value=7.0),
            lax.dynamic_update_slice(x, x[:2, :3], (i[0], j[0])), lax.dynamic_slice(x, (i[1], j[1]), (3, 3)),
            jnp.roll(x, 3, 1), jnp.flip(x, 0), jnp.diagonal(x), jnp.tril(x), jnp.triu(x, 1), jnp.where(x > 0, x, 0.0).argmax(0),
        )

    return f, (floats(10, 10), integers(0, 10, 4), integers(0, 10, 4))


@program
def sorting():
    def f(x, n):
        return (
            jnp.sort(x, 0), jnp.argsort(x, 1, descending=True), lax.top_k(x, 3), jnp.median(x, 1),
            jnp.percentile(x, jnp.array([10.0, 50.0, 95.0]), axis=0), jnp.unique(n, size=8, fill_value=-1),
            jnp.searchsorted(jnp.sort(x[0]), x[1]), lax.sort((n, x[:, 0]), num_keys=1), jnp.lexsort((x[:, 0], n)),
            jnp.histogram(x, 7, (-2.0, 2.0))[0], jnp.digitize(x, jnp.linspace(-1, 1, 5)),
            jnp.nonzero(n > 3, size=6)[0], jnp.partition(x, 3, 1)[:, 3], lax.approx_max_k(x, 2)[0],
        )

    return f, (floats(10, 12), integers(0, 8, 10))


@program
def cumulative():
    def f(x, w):
        def linear(a, b):
            return a[0] * b[0], a[1] * b[0] + b[1]

        return (
            jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x, 1), lax.cummin(x, 0, reverse=True), lax.cumlogsumexp(x, 1),
            lax.associative_scan(linear, (w, x), axis=1)[1], jnp.diff(x, 2), jnp.convolve(x[0], w[0], mode="same"),
            jnp.correlate(x[1], w[1]), jnp.interp(x[0], jnp.linspace(-1, 1, 9), jnp.arange(9.0)), jnp.gradient(x[0]),
            jax.vjp(lambda a: jnp.cumsum(a, 1), x)[1](w)[0], jax.vjp(lambda a: lax.cummax(a, 1), x)[1](w)[0],
        )

    return f, (floats(6, 16), floats(6, 16))


@program
def linalg():
    def f(a, b):
        s = a @ a.T + 8 * jnp.eye(8)
        return (
            jnp.linalg.cholesky(s), jnp.linalg.solve(a, b), jnp.linalg.inv(s), jnp.linalg.det(a), jnp.linalg.slogdet(a)[1],
            jax.scipy.linalg.solve_triangular(jnp.tril(s), b, lower=True), jnp.linalg.matrix_power(a / 4, 5),
            jnp.linalg.norm(a, axis=0), jnp.kron(a[:2, :2], b[:2, :2]), jnp.trace(a), jnp.linalg.multi_dot([a, a, b]),
            jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(s), True), b), jax.scipy.linalg.expm(a / 8),
            jax.grad(lambda m: jnp.linalg.slogdet(m)[1])(s),
        )

    return f, (floats(8, 8), floats(8, 3))


@program
def control_flow():
    def f(x, n):
        def small(c):
            return (c[0] < n) & (jnp.abs(c[1]).max() < 100)

        product = jax.grad(lambda y: lax.scan(lambda c, v: (c * v + 1, c), 1.0, y)[0])
        repeated = jax.vmap(lambda v, m: lax.fori_loop(0, m, lambda i, z: z + v, 0.0), (0, 0))
        return (
            lax.while_loop(small, lambda c: (c[0] + 1, c[1] * 1.1 + x), (0, x)),
            lax.cond(n > 3, lambda y: y * 2, lambda y: y - 1, x), lax.switch(n, [jnp.sin, jnp.cos, jnp.tanh], x),
            lax.fori_loop(0, 5, lambda i, y: y.at[i].add(i * 1.0), x), lax.map(lambda v: v * v.sum(), x.reshape(-1, 2)),
            product(x), repeated(x, jnp.arange(x.size)),
            jax.vmap(lambda p, v: lax.cond(p, jnp.exp, jnp.negative, v))(x > 0, x),
        )

    return f, (floats(8), np.int32(5))


@program
def beam_search():
    batch, beams, vocabulary = 2, 3, 11

    def f(embedding, head, first):
        def step(i, state):
            tokens, scores = state
            last = jnp.take_along_axis(tokens, jnp.full((batch, beams, 1), i), 2)[..., 0]
            total = (scores[..., None] + nn.log_softmax(embedding[last] @ head)).reshape(batch, beams * vocabulary)
            scores, index = lax.top_k(total, beams)
            tokens = jnp.take_along_axis(tokens, (index // vocabulary)[..., None], 1)
            return tokens.at[:, :, i + 1].set(index % vocabulary), scores

        tokens = jnp.broadcast_to(first[:, None, None], (batch, beams, 8)).astype(jnp.int32)
        return lax.fori_loop(0, 6, step, (tokens, jnp.zeros((batch, beams)) - jnp.arange(beams) * 5.0))

    return f, (floats(11, 6), floats(6, 11), integers(0, 11, 2))


@program
def decode():
    """Attention over a cache of keys and values that grows in a loop."""

    def f(keys, values, q, k, v, at):
        def one(state, new):
            keys, values, at = state
            q, k, v = new
            keys = lax.dynamic_update_slice(keys, k[:, None], (0, at, 0, 0))
            values = lax.dynamic_update_slice(values, v[:, None], (0, at, 0, 0))
            s = jnp.einsum("bhd,bthd->bht", q, keys) / 4
            s = jnp.where(jnp.arange(16)[None, None] <= at, s, -jnp.inf)
            return (keys, values, at + 1), jnp.einsum("bht,bthd->bhd", nn.softmax(s), values)

        return lax.scan(one, (keys, values, at), (q, k, v))

    new = floats(3, 2, 4, 8), floats(3, 2, 4, 8), floats(3, 2, 4, 8)
    return f, (floats(2, 16, 4, 8), floats(2, 16, 4, 8), *new, np.int32(5))


@program
def ctc_loss():
    def f(logits, paddings, labels, label_paddings):
        return jax.value_and_grad(lambda x: optax.ctc_loss(x, paddings, labels, label_paddings).mean())(logits)

    ends = np.array([[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 1]], np.float32)
    return f, (floats(3, 10, 6), np.zeros((3, 10), np.float32), integers(1, 6, 3, 4), ends)


@program
def transforms():
    def h(x):
        return jnp.sin(x[0]) * x[1] ** 2 + jnp.exp(-x[2])

    def f(x, v):
        return (
            jax.hessian(h)(x), jax.jacfwd(lambda x: x * h(x))(x), jax.jacrev(lambda x: x * h(x))(x), jax.jvp(h, (x,), (v,)),
            jax.vmap(jax.grad(h))(jnp.stack([x, v])), jax.linearize(h, x)[1](v),
            jax.grad(lambda x: jax.grad(lambda y: h(y) ** 2)(x).sum())(x),
        )

    return f, (floats(3), floats(3))


@program
def tensor_parallel():
    m = mesh(2, 2)

    def f(x, w1, w2):
        def loss(w):
            h = lax.with_sharding_constraint(nn.gelu(x @ w[0]), NamedSharding(m, P("data", "model")))
            y = lax.with_sharding_constraint(h @ w[1], NamedSharding(m, P("data", None)))
            return (y**2).mean()

        l, g = jax.value_and_grad(loss)((w1, w2))
        return l, w1 - 0.1 * g[0], w2 - 0.1 * g[1]

    return f, (put(m, floats(8, 16), "data"), put(m, floats(16, 32), None, "model"), put(m, floats(32, 16), "model", None))


@program
def vocabulary():
    """A table of embeddings, which is the head as well, sharded by rows."""
    m = mesh(2, 2)

    def f(table, tokens, labels):
        def loss(table):
            logits = jnp.tanh(table[tokens]) @ table.T
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        l, g = jax.value_and_grad(loss)(table)
        return l, table - 0.1 * g

    t = integers(0, 64, 4, 6)
    return f, (put(m, floats(64, 16), "model", None), put(m, t, "data"), put(m, np.roll(t, -1, 1), "data"))


@program
def scanned_layers():
    m = mesh(2, 2)

    def f(weights, x):
        def loss(weights):
            def layer(x, w):
                return x + jnp.tanh(x @ w[0]) @ w[1], None

            return (lax.scan(layer, x, weights)[0] ** 2).mean()

        l, g = jax.value_and_grad(loss)(weights)
        return jax.tree.map(lambda a, b: a - 0.1 * b, weights, g), l

    up = put(m, floats(3, 16, 32) * 0.2, None, "data", "model")
    down = put(m, floats(3, 32, 16) * 0.2, None, "model", "data")
    return f, ((up, down), put(m, floats(8, 16), "data"))


@program
def long_softmax():
    """Attention, running sums, sorts and shifts along a sharded sequence."""
    m = mesh(4)

    def f(q, k, v):
        s = jnp.einsum("bthd,bshd->bhts", q, k)
        return (
            jnp.einsum("bhts,bshd->bthd", nn.softmax(s), v), jnp.cumsum(q, 1), jnp.sort(q, 1), q[:, ::-1],
            jnp.roll(q, 1, 1), jnp.argmax(q, 1), q.var(1), jnp.concatenate([q, k], 1),
        )

    return f, tuple(put(m, floats(2, 16, 2, 8), None, "data") for _ in range(3))


@program
def dropout():
    m = mesh(4)

    def f(key, x):
        return jnp.where(random.bernoulli(key, 0.8, x.shape), x / 0.8, 0), random.normal(key, x.shape) + x

    return f, (put(m, random.PRNGKey(4)), put(m, floats(8, 12), "data"))


@program
def spatial_convolution():
    m = mesh(2)

    def f(x, w):
        def convolution(w):
            return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

        return linen.max_pool(convolution(w), (2, 2), (2, 2)), jax.grad(lambda w: (convolution(w) ** 2).mean())(w)

    return f, (put(m, floats(2, 8, 8, 3), None, "data"), put(m, floats(3, 3, 3, 4)))


@program
def collectives():
    m = mesh(4)

    def f(x):
        def g(x):
            all = lax.all_gather(x, "data", tiled=True)
            turned = lax.all_to_all(x.reshape(2, 8), "data", 1, 0, tiled=True).reshape(8, 2)
            return (
                lax.ppermute(x, "data", [(j, (j + 1) % 4) for j in range(4)]), lax.psum(x, "data"),
                x * lax.axis_index("data"), all[:2] * 1.0, lax.psum_scatter(all, "data", tiled=True), turned * 1.0,
                lax.pmax(x, "data") - lax.pmin(x, "data") + lax.pmean(x, "data"),
            )

        specs = P("data"), P(), P("data"), P("data"), P("data"), P(None, "data"), P("data")
        return shard_map(g, mesh=m, in_specs=P("data"), out_specs=specs)(x)

    return f, (put(m, floats(8, 8), "data"),)


@program
def ring_attention():
    m = mesh(4)

    def f(q, k, v):
        def g(q, k, v):
            def step(_, state):
                k, v, largest, total, out = state
                s = jnp.einsum("btd,bsd->bts", q, k)
                new = jnp.maximum(largest, s.max(-1))
                p, old = jnp.exp(s - new[..., None]), jnp.exp(largest - new)
                ring = [(j, (j + 1) % 4) for j in range(4)]
                out = out * old[..., None] + jnp.einsum("bts,bsd->btd", p, v)
                return lax.ppermute(k, "data", ring), lax.ppermute(v, "data", ring), new, total * old + p.sum(-1), out

            zero = (q * 0).sum(-1)
            state = lax.fori_loop(0, 4, step, (k + 0 * q, v + 0 * q, zero - 1e9, zero, q * 0))
            return state[4] / state[3][..., None]

        sharded = shard_map(g, mesh=m, in_specs=P(None, "data"), out_specs=P(None, "data"))
        return sharded(q, k, v), sharded(k, q, v)

    return f, tuple(put(m, floats(2, 16, 8), None, "data") for _ in range(3))


@program
def pipeline():
    """Four stages and four micro-batches, by shifts along the ranks."""
    m = mesh(4)

    def f(w, x):
        def g(w, x):
            stage, state, out = lax.axis_index("data"), jnp.zeros_like(x[0]) + 0 * w[0, 0, 0], []
            for t in range(7):
                y = jnp.tanh(jnp.where(stage == 0, x[min(t, 3)], state) @ w[0])
                out.append(y)
                state = lax.ppermute(y, "data", [(j, j + 1) for j in range(3)])
            return jnp.stack(out[3:])[None]

        return shard_map(g, mesh=m, in_specs=(P("data"), P()), out_specs=P("data"))(w, x)[-1]

    return f, (put(m, floats(4, 8, 8) * 0.5, "data"), put(m, floats(4, 2, 8)))


@program
def spectra():
    """Eigenvalues and singular values, and what takes no sign from their vectors."""
    def f(a):
        s = a @ a.T
        return (
            jnp.linalg.eigvalsh(s), jnp.abs(jnp.linalg.qr(a)[1]), jnp.linalg.svd(a, compute_uv=False),
            jnp.linalg.lstsq(a, a[:, 0])[0], jnp.linalg.pinv(a), jnp.linalg.matrix_rank(s),
        )

    return f, (floats(8, 5),)


def store(path, arrays):
    arrays = [np.asarray(a) for a in arrays]
    save_file({"%03d" % i: np.ascontiguousarray(a.reshape(a.shape or (1,))) for i, a in enumerate(arrays)}, path)


def write(folder, name):
    f, args = programs[name]()
    args = jax.tree.map(jnp.asarray, args)
    lowered = jax.jit(f, keep_unused=True).lower(*args)
    with gzip.GzipFile(f"{folder}/{name}.stablehlo.mlir.gz", "wb", mtime=0) as out:
        out.write(lowered.as_text().encode())
    for what, values in (("in", args), ("out", lowered.compile()(*args))):
        values = jax.tree.leaves(values)
        devices = sorted({d for a in jax.tree.leaves(args) for d in a.sharding.device_set}, key=lambda d: d.id)
        for rank, device in enumerate(devices):
            shards = [s.data for a in values for s in a.addressable_shards if s.device == device]
            store(f"{folder}/{name}.{what}{f'.rank{rank}' if len(devices) > 1 else ''}.safetensors", shards)


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    for name in sys.argv[2:] or programs:
        write(sys.argv[1], name)
