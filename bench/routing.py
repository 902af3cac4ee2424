"""Inputs with which routers of experts are decisive, made alike in Go and Python: internal/fillrand/routing.go has the definition.

With random weights a router that gives each expert the best C of T tokens finds many of them closer together than bfloat16
rounds, every implementation orders them in its own way, and all that is ordered by them differs. found() finds the routers of a
traced graph, and the parameters and data that must be made otherwise; fill() makes these; margins() measures how far from being
ordered otherwise the tokens are.

Run as a program it prints elements of an input, one line each: the bfloat16 bits, or the integer; or what it finds in a graph.
    python3 routing.py ROLE AXIS FIRST EXPERTS WIDTH TOKENS ROWS SEED INDEX RANK DIM,DIM,... COUNT [FROM]
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
LOW = -2.0  # what tokens have on the channels of experts that they do not go to
GAIN = 8.0  # of a router
QUIET = 256  # over the width: what is added to the residual stream is multiplied by the power of two at or below
LANES = 8


class Routing:
    """Routers of experts, each to get twice tokens/experts of the tokens, behind an embedding of rows by width."""

    def __init__(self, experts, width, tokens, rows, inputs=None, routers=None):
        self.experts, self.width, self.tokens, self.rows = experts, width, tokens, rows
        self.inputs = inputs or {}  # by number: role, axis, name of the group that it is gathered in or None
        self.routers = routers or {}  # the products that are routers' logits: how many tokens an expert takes
        self.step = min(STEP, FALL // (tokens // experts))
        self.quiet = 2.0 ** math.floor(math.log2(QUIET / width))

    @staticmethod
    def possible(experts, width, tokens, rows):
        return experts > 2 and tokens % experts == 0 and width % (LANES * experts) == 0 and rows >= tokens and FALL // (tokens // experts) >= LEAST

    def described(self, graph, rank):
        """What another program needs to make the same inputs for a rank, as JSON."""
        inputs = {str(k): {"role": role, "axis": axis, "first": self.first(graph, k, rank)} for k, (role, axis, _) in self.inputs.items()}
        return {"experts": self.experts, "width": self.width, "tokens": self.tokens, "rows": self.rows, "inputs": inputs}

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
        """The first and second expert of a row of the embedding, and the number of its key."""
        slot = row % self.tokens
        j = slot // self.experts
        first = slot % self.experts
        return first, (first + 1 + j % (self.experts - 1)) % self.experts, j

    def key(self, j):
        return struct.unpack("<f", struct.pack("<I", TOP - self.step * j << 16))[0]

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
        first, second, j = self.goes(row)
        e = self.expert(c)
        v = self.key(j) if e == first else 0.0 if e == second else LOW
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
    keys = torch.tensor([q.key(j) for j in range(q.tokens // q.experts)], device=device)
    rows = max(1, (1 << 24) // q.width)
    for at in range(0, shape[0], rows):
        end = min(shape[0], at + rows)
        h = fillrand.hashes(torch, at * q.width, end * q.width, seed, index, rank, device).view(-1, q.width)
        values = magnitudes * (1 - 2 * (h >> 31)).float()
        one, two, j = q.goes(first + torch.arange(at, end, dtype=torch.int64, device=device))
        wanted = torch.full((end - at, q.experts), LOW, device=device)
        wanted.scatter_(1, one.view(-1, 1), keys[j].view(-1, 1))
        wanted.scatter_(1, two.view(-1, 1), 0.0)
        values[:, its] = wanted[:, experts] * signs
        out[at:end] = values.to(dtype)
    return out


def router(torch, q, first, shape, dtype, device):
    out = torch.zeros(shape, device=device)
    _, its, experts, signs = channels(torch, q, device)
    here = (experts >= first) & (experts < first + shape[0])
    out[experts[here] - first, its[here]] = signs[here] * q.gain()
    return out.to(dtype)


def margins(torch, logits, take):
    """How far apart the best tokens of each expert are, in the order in which it takes them and with the first that it does not.

    1 is as far as two neighbours move towards each other if every logit of both is off by a whole step of bfloat16, all in the
    worst direction: from there on no rounding of logits can make a difference."""
    x = logits.double()
    log = x.log_softmax(1)
    p = log.exp()
    step = torch.where(x == 0, 0.0, torch.exp2(torch.floor(torch.log2(x.abs().clamp_min(1e-300))) - 7))
    off = (1 - 2 * p) * step + (p * step).sum(1, keepdim=True)  # the sum of |d log p / d x| times the steps
    best, at = log.topk(min(take + 1, len(x)), 0)
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
        return "input" if n["kind"] == "input" else "getitem" if "getitem" in n["target"] else n["target"].split(".")[1] if n["kind"] != "output" else "output"

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
                need(op in ("wait_tensor", "convert_element_type", "alias", "clone"))
            name = args[0]
        return self.inputs.index(name), axis, group

    def logits(self, name):
        """The product that probabilities of shape experts by tokens are made of."""
        while self.op(name) not in ("mm", "addmm"):
            need(self.op(name) in ("permute", "t", "div", "exp", "sub", "convert_element_type", "_softmax"))
            name = self.args(name)[0]
        need(self.op(name) == "mm")
        return name

    def products(self, name, width, stream):
        """The products that a value of the model's width is a sum of rows of."""
        op = self.op(name)
        if op in ("mm", "bmm"):
            return [name]
        need(op != "input" and name not in stream)
        out = []
        for arg in self.args(name):
            if isinstance(arg, Name) and len(self.shape(arg)) > 1 and self.shape(arg)[-1] == width and self.op(arg) != "full":
                out += self.products(arg, width, stream)
        need(out)
        return out

    def added(self, embedding, width):
        """The products that are added to the residual stream that begins with an embedding."""
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
                    out += self.products(other, width, stream)
                stream.add(name)
        return out

    def routing(self):
        takers = [t for t in self.of("topk") if len(self.shape(t)) == 2 and self.args(t)[2:3] in ((1,), (-1,))]
        tables = self.of("embedding")
        need(takers and len(tables) == 1)
        rows_by_width = self.shape(self.args(tables[0])[0])
        ids = self.args(tables[0])[1]
        need(self.op(ids) == "input")
        (rows, width), tokens = rows_by_width, math.prod(self.shape(ids))
        inputs, routers, experts = {}, {}, None
        for t in takers:
            chances, take = self.args(t)[:2]
            experts = experts or self.shape(chances)[0]
            product = self.logits(chances)
            need(self.shape(chances) == [experts, tokens] and self.shape(product) == [tokens, experts] and take * experts == 2 * tokens)
            routers[product] = take
            x, weight = self.args(product)
            k, axis, group = self.parameter(weight, 1)
            need(axis == 0)
            inputs[k] = ("router", 0, group)
            need(self.op(x) == "mul")
            scales = [a for a in self.args(x) if isinstance(a, Name) and self.shape(a) == [width]]
            need(len(scales) == 1)
            k, axis, group = self.parameter(scales[0], 0)
            inputs[k] = ("norm", 0, group)
        need(Routing.possible(experts, width, tokens, rows))
        for product in self.added(tables[0], width):
            weight = self.args(product)[1]
            k, axis, group = self.parameter(weight, len(self.shape(weight)) - 1)
            inputs[k] = ("out", axis, group)
        k, axis, group = self.parameter(self.args(tables[0])[0], 0)
        need(axis == 0)
        inputs[k] = ("table", 0, group)
        inputs[self.inputs.index(ids)] = ("ids", 0, None)
        for k, name in enumerate(self.inputs):
            if self.nodes[name]["role"] == "data" and "float" in self.nodes[name]["out"][0]["dtype"]:
                inputs[k] = ("unit", 0, None)
        return Routing(experts, width, tokens, rows, inputs, routers)


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


def main(argv):
    if argv[0] == "graph":
        print(described(argv[2], int(argv[1])))
        return
    role, axis, first, experts, width, tokens, rows, seed, index, rank = argv[0], *(int(v) for v in argv[1:10])
    shape = [int(d) for d in argv[10].split(",")]
    count, start = int(argv[11]), int(argv[12]) if len(argv) > 12 else 0
    q = Routing(experts, width, tokens, rows)
    for e in range(start, start + count):
        h = fillrand.hash_of(seed, index, rank, e)
        if role == "ids":
            print(q.token(e, fillrand.keys(seed, index, rank)[1], h))
            continue
        place = e // math.prod(shape[axis + 1:]) % shape[axis] + first
        if role == "table":
            v = q.of_table(place, e % width, h)
        elif role == "router":
            v = q.of_routers_weight(place, e % width)
        elif q.of_router(place):
            v = 0.0 if role == "out" else 1.0
        else:
            v = ((h >> 8) - (1 << 23)) * fillrand.scale(len(shape)) * (q.quiet if role == "out" else 1)
        f32 = struct.unpack("<I", struct.pack("<f", v))[0]
        print(f"{f32 + 0x7FFF + (f32 >> 16 & 1) >> 16:04x}")


if __name__ == "__main__":
    main(sys.argv[1:])
