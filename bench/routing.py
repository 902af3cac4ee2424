"""Inputs with which routers of experts are decisive, made alike in Go and Python: internal/fillrand/routing.go has the definition.

With random weights a router that gives each expert the best C of T tokens, or each token its best experts, finds many of them
closer together than bfloat16 rounds, every implementation orders them in its own way, and all that is ordered by them differs. found() finds the routers of a
traced graph, and the parameters and data that must be made otherwise; fill() makes these; margins() measures how far from being
ordered otherwise the tokens are.

Run as a program it prints elements of inputs, a line of its input each: the bfloat16 bits, or the integers; or what it finds in a
graph.
    echo ROLE AXIS FIRST EXPERTS TAKES WIDTH TOKENS ROWS SEED INDEX RANK DIM,DIM,... COUNT | python3 routing.py
    python3 routing.py graph RANK GRAPH.json.gz
"""
import gzip
import json
import math
import struct
import sys

import fillrand
from fillrand import MASK, mix

TOP = 0x3F80  # the bfloat16 1: the largest key
FALL = 1920  # how far the smallest key may be below, in bfloat16 values: 15 octaves
STEP = 64  # between two keys at most, in bfloat16 values
LEAST = 3  # the same, at least
STAIR = 0.25  # between the keys of a token's experts, where tokens take experts
LOW = -2.0  # what tokens have on the channels of experts that they do not go to
GAIN = 8.0  # of a router
QUIET = 256  # over the width: what is added to the residual stream is multiplied by the power of two at or below
LANES = 8


class Routing:
    """Routers behind an embedding of rows by width: each token takes so many experts, or each expert, if takes is 0, the best
    2*tokens/experts of the tokens."""

    def __init__(self, experts, takes, width, tokens, rows, inputs=None, routers=None):
        self.experts, self.takes, self.width, self.tokens, self.rows = experts, takes, width, tokens, rows
        self.inputs = inputs or {}  # by number: role, axis, name of the group that it is gathered in or None
        self.routers = routers or {}  # the products that are routers' logits: how many tokens an expert takes
        self.step = min(STEP, max(1, FALL // (tokens // experts)))
        self.quiet = 2.0 ** math.floor(math.log2(QUIET / width))

    @staticmethod
    def possible(experts, takes, width, tokens, rows):
        ordered = takes < experts if takes else FALL // (tokens // experts) >= LEAST
        return experts > 2 and tokens % experts == 0 and width % (LANES * experts) == 0 and rows >= tokens and ordered

    def described(self, graph, rank):
        """What another program needs to make the same inputs for a rank, as JSON."""
        inputs = {str(k): {"role": role, "axis": axis, "first": self.first(graph, k, rank)} for k, (role, axis, _) in self.inputs.items()}
        return {"experts": self.experts, "takes": self.takes, "width": self.width, "tokens": self.tokens, "rows": self.rows, "inputs": inputs}

    def first(self, graph, k, rank):
        """The place along its axis of a rank's part of input k in the whole."""
        _, axis, group = self.inputs[k]
        if group is None or axis != 0:
            return 0
        part = next(p for p in graph["groups"][group] if rank in p)
        shape = [n for n in graph["nodes"] if n["kind"] == "input"][k]["out"][0]["shape"]
        return part.index(rank) * shape[0]

    # What follows takes ints, or int64 tensors of them.

    def of_router(self, c):
        """Whether channel c belongs to a router."""
        return c % LANES == c // (LANES * self.experts) % LANES

    def expert(self, c):
        """The expert that a router's channel belongs to."""
        return c // LANES % self.experts

    @staticmethod
    def negative(c):
        """Whether channel c of a router counts negatively: 1 or 0."""
        return mix(c & MASK) >> 31

    @staticmethod
    def magnitude(c):
        """Of channel c of the embedding, where it belongs to no router, in units of 2^-24."""
        return (1 << 23) + (mix(c & MASK) >> 8)

    def goes(self, row):
        """The experts of a row of the embedding, the best first, and the number of its key."""
        slot = row % self.tokens
        j, first = slot // self.experts, slot % self.experts
        others = range((self.takes or 2) - 1)
        return [first, *((first + 1 + (j + r) % (self.experts - 1)) % self.experts for r in others)], j

    def key(self, j):
        return struct.unpack("<f", struct.pack("<I", TOP - self.step * j << 16))[0]

    def of_expert(self, r, j):
        """What a row with the key of number j has on the channels of the expert of rank r among its own."""
        if self.takes:
            return STAIR * (self.takes - 1 - r)
        return self.key(j) if r == 0 else 0.0

    def factor(self):
        """Of the tokens' order: about 5/8 of them, prime to their number."""
        m = self.tokens * 5 // 8
        while math.gcd(m, self.tokens) > 1:
            m += 1
        return m

    # Elements, one by one.

    def of_table(self, row, c, h):
        if not self.of_router(c):
            v = self.magnitude(c) / (1 << 24)
            return -v if h >> 31 else v
        experts, j = self.goes(row)
        e = self.expert(c)
        v = self.of_expert(experts.index(e), j) if e in experts else LOW
        return -v if self.negative(c) else v

    def gain(self):
        return GAIN * LANES * self.experts / self.width

    def of_routers_weight(self, e, c):
        if not self.of_router(c) or self.expert(c) != e:
            return 0.0
        return -self.gain() if self.negative(c) else self.gain()

    def token(self, t, shift, h):
        return h % (self.rows // self.tokens) * self.tokens + (t * self.factor() + shift) % self.tokens


def fill(torch, q, role, axis, first, shape, dtype, seed, index, rank, device):
    """One input of a rank that has a role in routing."""
    if role == "table":
        return table(torch, q, first, shape, dtype, seed, index, rank, device)
    if role == "router":
        return router(torch, q, first, shape, dtype, device)
    if role == "ids":
        n = math.prod(shape)
        t = torch.arange(n, dtype=torch.int64, device=device)
        h = fillrand.hashes(torch, 0, n, seed, index, rank, device)
        return q.token(t, fillrand.keys(seed, index, rank)[1], h).to(dtype).view(shape)
    if role == "bias":
        return torch.zeros(shape, dtype=dtype, device=device)
    if role == "unit":
        return fillrand.fill(torch, [math.prod(shape)], dtype, seed, index, rank, device).view(shape)
    out = fillrand.fill(torch, shape, dtype, seed, index, rank, device)
    c = first + torch.arange(shape[axis], dtype=torch.int64, device=device)
    its = q.of_router(c).nonzero().view(-1)
    if role == "out":
        out *= q.quiet
        return out.index_fill_(axis, its, 0)
    return out.index_fill_(axis, its, 1)  # norm


def channels(torch, q, device):
    """All channels, and of those that belong to routers the numbers, experts and signs."""
    c = torch.arange(q.width, dtype=torch.int64, device=device)
    its = c[q.of_router(c)]
    return c, its, q.expert(its), (1 - 2 * q.negative(its.clone())).float()


def table(torch, q, first, shape, dtype, seed, index, rank, device):
    out = torch.empty(shape, dtype=dtype, device=device)
    c, its, experts, signs = channels(torch, q, device)
    magnitudes = q.magnitude(c.clone()).float() / (1 << 24)
    keys = torch.tensor([[q.of_expert(r, j) for j in range(q.tokens // q.experts)] for r in range(q.takes or 2)], device=device)
    rows = max(1, (1 << 24) // q.width)
    for at in range(0, shape[0], rows):
        end = min(shape[0], at + rows)
        h = fillrand.hashes(torch, at * q.width, end * q.width, seed, index, rank, device).view(-1, q.width)
        values = magnitudes * (1 - 2 * (h >> 31)).float()
        taken, j = q.goes(first + torch.arange(at, end, dtype=torch.int64, device=device))
        wanted = torch.full((end - at, q.experts), LOW, device=device)
        for r, e in enumerate(taken):
            wanted.scatter_(1, e.view(-1, 1), keys[r][j].view(-1, 1))
        values[:, its] = wanted[:, experts] * signs
        out[at:end] = values.to(dtype)
    return out


def router(torch, q, first, shape, dtype, device):
    out = torch.zeros(shape, device=device)
    _, its, experts, signs = channels(torch, q, device)
    here = (experts >= first) & (experts < first + shape[0])
    out[experts[here] - first, its[here]] = signs[here] * q.gain()
    return out.to(dtype)


def steps(torch, x):
    """The distance of bfloat16 values at x."""
    return torch.where(x == 0, 0.0, torch.exp2(torch.floor(torch.log2(x.abs().clamp_min(1e-300))) - 7))


def margins(torch, logits, take, by_token):
    """How far apart the best tokens of each expert are, in the order in which it takes them and with the first that it does not; or
    the best experts of each token.

    1 is as far as two neighbours move towards each other if every logit of both is off by a whole step of bfloat16, all in the
    worst direction: from there on no rounding of logits can make a difference."""
    x = logits.double()
    step = steps(torch, x)
    if by_token:
        x, step = x.t(), step.t()
        score, off = x, step
    else:
        score = x.log_softmax(1)
        p = score.exp()
        off = (1 - 2 * p) * step + (p * step).sum(1, keepdim=True)  # the sum of |d log p / d x| times the steps
    best, at = score.topk(min(take + 1, len(x)), 0)
    off = off.gather(0, at)
    return (best[:-1] - best[1:]) / (off[:-1] + off[1:]).clamp_min(1e-300)


def found(graph, literal):
    """The routers of a traced graph, if there are some that fill() can make decisive. literal(text, names) evaluates arguments."""
    finder = Finder(graph, literal)
    try:
        return finder.routing()
    except Unclear:
        return None


class Unclear(Exception):
    """The graph is not of the form that is looked for."""


def need(condition):
    if not condition:
        raise Unclear


class Name(str):
    """A node among the arguments of another."""


class Finder:
    def __init__(self, graph, literal):
        self.nodes = {n["name"]: n for n in graph["nodes"]}
        self.inputs = [n["name"] for n in graph["nodes"] if n["kind"] == "input"]
        self.literal, self.names = literal, {name: Name(name) for name in self.nodes}
        self.known = {}

    def op(self, name):
        n = self.nodes[name]
        if n["kind"] in ("input", "output"):
            return n["kind"]
        _, _, op = n["target"].partition(".")
        return op.split(".")[0] or ("getitem" if "getitem" in n["target"] else n["target"])

    def args(self, name):
        if name not in self.known:
            self.known[name] = self.literal(self.nodes[name]["args"], self.names) or ()
        return self.known[name]

    def shape(self, name):
        return self.nodes[name]["out"][0]["shape"]

    def of(self, kind):
        return [name for name in self.nodes if self.nodes[name]["kind"] != "input" and self.op(name) == kind]

    def parameter(self, name, axis):
        """The input that a value is, whole or gathered, its axis that becomes the value's, and the group."""
        group = None
        while self.op(name) != "input":
            op, args = self.op(name), self.args(name)
            if op == "permute":
                axis = args[1][axis]
            elif op == "t":
                axis = 1 - axis
            elif op == "all_gather_into_tensor":
                need(group is None)
                group = args[2]
            else:
                need(op in ("wait_tensor", "convert_element_type", "alias", "clone") or op == "view" and self.shape(name) == self.shape(args[0]))
            name = args[0]
        return self.inputs.index(name), axis, group

    def logits(self, name):
        """The product that probabilities of experts are made of."""
        while self.op(name) not in ("mm", "addmm"):
            need(self.op(name) in ("permute", "t", "div", "exp", "sub", "convert_element_type", "_softmax", "sigmoid", "view"))
            name = self.args(name)[0]
        return name

    def is_parameter(self, name):
        try:
            return self.nodes[self.inputs[self.parameter(name, 0)[0]]]["role"] == "parameter"
        except (Unclear, IndexError):
            return False

    def writers(self, name, width, stream):
        """What writes the channels of a value of the model's width: parameters, with the axis of the channels."""
        op, args = self.op(name), self.args(name)
        last = len(self.shape(name)) - 1
        if op in ("mm", "bmm", "_grouped_mm"):
            return [(args[1], len(self.shape(args[1])) - 1)]
        if op == "addmm":
            return [(args[0], len(self.shape(args[0])) - 1), (args[2], 1)]
        if self.is_parameter(name):
            return [(name, last)]
        need(op != "input" and name not in stream)
        out = []
        for arg in args:
            if isinstance(arg, Name) and len(self.shape(arg)) > 1 and self.shape(arg)[-1] == width and self.op(arg) != "full":
                out += self.writers(arg, width, stream)
        need(out)
        return out

    def added(self, embedding, width):
        """What writes the channels of all that is added to the residual stream, which begins with an embedding."""
        stream, out = {embedding}, []
        for name in self.nodes:
            if self.op(name) in ("view", "add"):
                args = [a for a in self.args(name) if isinstance(a, Name)]
                ours = [a for a in args if a in stream]
                if not ours or self.shape(name)[-1] != width:
                    continue
                if len(args) == 2 and len(ours) == 1:
                    other = args[1 - args.index(ours[0])]
                    if self.shape(other)[-1] != width:
                        continue
                    out += self.writers(other, width, stream)
                stream.add(name)
        return out

    def router(self, t, tokens, width):
        """The product of a router, how many a topk takes of tokens or experts, and its parameters with what they are."""
        chances, take = self.args(t)[:2]
        by_token = self.shape(chances)[0] == tokens
        product = self.logits(chances)
        experts = self.shape(chances)[by_token]
        need(self.shape(chances) == ([tokens, experts] if by_token else [experts, tokens]) and self.shape(product) == [tokens, experts])
        need(by_token or take * experts == 2 * tokens)
        *bias, x, weight = self.args(product)
        inputs = {}
        k, axis, group = self.parameter(weight, 1)
        need(axis == 0)
        inputs[k] = ("router", 0, group)
        for b in bias:
            k, axis, group = self.parameter(b, 0)
            inputs[k] = ("bias", 0, group)
        while self.op(x) in ("view", "convert_element_type"):
            x = self.args(x)[0]
        need(self.op(x) == "mul")
        scales = [a for a in self.args(x) if isinstance(a, Name) and self.shape(a) == [width]]
        need(len(scales) == 1)
        k, axis, group = self.parameter(scales[0], 0)
        inputs[k] = ("norm", 0, group)
        return product, experts, take if by_token else 0, take, inputs

    def routing(self):
        """Routers are what takes the best of probabilities or logits: of tokens for each expert, or of experts for each token."""
        takers = [t for t in self.of("topk") if len(self.shape(t)) == 2 and self.args(t)[2:3] in ((), (1,), (-1,))]
        tables = self.of("embedding")
        need(takers and len(tables) == 1)
        rows_by_width = self.shape(self.args(tables[0])[0])
        ids = self.args(tables[0])[1]
        need(self.op(ids) == "input")
        (rows, width), tokens = rows_by_width, math.prod(self.shape(ids))
        inputs, routers, kinds = {}, {}, set()
        for t in takers:
            product, experts, takes, take, its = self.router(t, tokens, width)
            routers[product] = take
            kinds.add((experts, takes))
            inputs.update(its)
        need(len(kinds) == 1)
        (experts, takes), = kinds
        need(Routing.possible(experts, takes, width, tokens, rows))
        for weight, channels in self.added(tables[0], width):
            k, axis, group = self.parameter(weight, channels)
            inputs[k] = ("out", axis, group)
        k, axis, group = self.parameter(self.args(tables[0])[0], 0)
        need(axis == 0)
        inputs[k] = ("table", 0, group)
        inputs[self.inputs.index(ids)] = ("ids", 0, None)
        for k, name in enumerate(self.inputs):
            if self.nodes[name]["role"] == "data" and "float" in self.nodes[name]["out"][0]["dtype"]:
                inputs[k] = ("unit", 0, None)
        return Routing(experts, takes, width, tokens, rows, inputs, routers)


class Anything:
    """Stands for torch among a graph's arguments, of which only names and sizes matter here."""

    def __getattr__(self, name):
        return self

    def __call__(self, *args, **kwargs):
        return self


def described(path, rank):
    """What found() finds in a graph, as JSON; null for nothing."""
    with gzip.open(path) as f:
        graph = json.load(f)
    known = {"torch": Anything(), "device": Anything(), "inf": math.inf, "nan": math.nan, "__builtins__": {}}
    q = found(graph, lambda text, names: eval(text, known, names) if text else ())
    return json.dumps(q and q.described(graph, rank))


def elements(line):
    """The first elements of the input that a line describes, as text."""
    role, *numbers, dims, count = line.split()
    axis, first, experts, takes, width, tokens, rows, seed, index, rank = map(int, numbers)
    shape = [int(d) for d in dims.split(",")]
    q = Routing(experts, takes, width, tokens, rows)
    inner = math.prod(shape[axis + 1:])
    for e in range(int(count)):
        h = fillrand.hash_of(seed, index, rank, e)
        if role == "ids":
            yield str(q.token(e, fillrand.keys(seed, index, rank)[1], h))
            continue
        place = e // inner % shape[axis] + first
        if role == "table":
            v = q.of_table(place, e % width, h)
        elif role == "router":
            v = q.of_routers_weight(place, e % width)
        elif role == "bias":
            v = 0.0
        elif q.of_router(place):
            v = 0.0 if role == "out" else 1.0
        else:
            v = ((h >> 8) - (1 << 23)) * fillrand.scale(len(shape)) * (q.quiet if role == "out" else 1)
        f32 = struct.unpack("<I", struct.pack("<f", v))[0]
        yield f"{f32 + 0x7FFF + (f32 >> 16 & 1) >> 16:04x}"


def main(argv):
    if argv[:1] == ["graph"]:
        print(described(argv[2], int(argv[1])))
        return
    for line in sys.stdin:
        print(*elements(line))


if __name__ == "__main__":
    main(sys.argv[1:])
