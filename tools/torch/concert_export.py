"""Writes a PyTorch training step as graph files that concert reads. Needs PyTorch only.

    import concert_export
    concert_export.export(model, (tokens, labels), "gpt")        # gpt.fw.graph.json.gz, gpt.bw.graph.json.gz
    model = torch.compile(model, backend=concert_export.backend("gpt"))  # the same, while the model trains

The step is what torch.compile traces: forward and backward over ATen operators, with the
collectives of functional collectives, DTensor and modules that gather their parameters
(fsdp() below makes such modules). Every rank may call it; each traces the same program,
and rank 0 writes it. One process can stand for many ranks:

    concert_export.pretend(4)      # a process group of 4 ranks without the other three
    concert_export.export(concert_export.fsdp(model), (tokens, labels), "gpt")

Beside NAME.fw.graph.json.gz and NAME.bw.graph.json.gz, NAME.data.safetensors has the values
of buffers and lifted constants by the name of their input. A buffer that the step changes, such
as running statistics, is named in the field "updates" of forward's output, at the place of its new
value: a loop of steps passes that on.
"""
import contextlib
import ctypes
import gzip
import json
import math
import operator
import os
import struct
import unittest.mock
import warnings
import zlib

import torch
import torch.distributed as dist
import torch.fx as fx
import torch._subclasses.fake_impls
from torch._subclasses.fake_tensor import unset_fake_temporarily

__all__ = ["export", "backend", "fsdp", "pretend"]


def export(fn, args=(), out="step", kwargs=None, backward=True, costs=False, record=False, dynamic=None):
    """Traces fn(*args, **kwargs), a module or a function, and writes OUT.*; returns the files' names.

    backward: also trace the backward step, with gradients of one for every differentiable result,
        of both parts of a complex one.
    costs: measure every operator and collective; the arguments are on a GPU.
    record: write every rank's inputs and results, OUT.fw.rankR.in.safetensors and so on, for
        lowerdump run -inputs and -expect.

    Without costs and record nothing is computed, and the step's results are zeros.
    """
    files, alone = _trace(fn, args, out, kwargs, backward, costs, record, dynamic)
    if not alone:  # copies of the results are
        def copied(*args, **kwargs):
            return torch.utils._pytree.tree_map(lambda r: r.clone() if isinstance(r, torch.Tensor) and r.requires_grad else r, fn(*args, **kwargs))

        files, alone = _trace(copied, args, out, kwargs, backward, costs, record, dynamic)
        if not alone:
            raise NotImplementedError("the backward step takes gradients that are not ones, although no two results share memory")
    return files


def _trace(fn, args, out, kwargs, backward, costs, record, dynamic):
    """The files of a step, and whether each of its results has a gradient of its own: those that share memory, with each other or with inputs, have one in common."""
    recorder = _Recorder(out, costs, record, costs or record, ones=backward)
    torch._dynamo.reset()
    for k, sizes in (dynamic or {}).items():
        for d, most in sizes.items():
            torch._dynamo.mark_dynamic(args[k], d)
            now = args[k].shape[d]  # PyTorch takes sizes that are equal now for one size
            recorder.most[now] = min(most, recorder.most.get(now, most))
    config = torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True, allow_rnn=True)  # sizes that tensors hold
    cells = torch.backends.mkldnn.flags(enabled=False)  # RNNs become the steps of their cells
    with torch.enable_grad() if backward else torch.no_grad(), config, cells:
        results = torch.compile(fn, backend=recorder, fullgraph=True, dynamic=False)(*args, **(kwargs or {}))
        if not backward:
            return list(recorder.files), True
        every = torch.utils._pytree.tree_leaves(results)
        leaves = [r for r in every if isinstance(r, torch.Tensor) and r.requires_grad]
        if not leaves:
            raise ValueError("no result of the step requires a gradient: pass backward=False, or let parameters require gradients")
        torch.autograd.backward(leaves, [torch.full_like(r, 1 + 1j if r.is_complex() else 1) for r in leaves])
    recorder.check(fn)
    for r in every if recorder.unseen else []:
        if not isinstance(r, (torch.Tensor, int, float, complex, str, type(None))):
            raise TypeError("a result is in a %s, which torch.utils._pytree does not know: return tensors, tuples or dicts" % type(r).__name__)
    return list(recorder.files), not recorder.shared and not any(r.is_leaf or r._base is not None and r._base.is_leaf for r in leaves)


def backend(out, costs=False):
    """A backend for torch.compile that writes what it is given to OUT.* (OUT.1.*, ... from the second graph on) and runs it as it is."""
    return _Recorder(out, costs, False, True)


def pretend(world, rank=0):
    """Makes this one process rank `rank` of a default process group of `world` ranks; collectives give arbitrary values.

    What a program makes of its rank then stands for all ranks; traced by all ranks, such programs are refused.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)


_permutations = {}  # source and destination of each rank in permute_tensor, by group and how much this rank sends and receives


@torch._dynamo.assume_constant_result
def _permutes(group, to):
    group = dist.group.WORLD if group is None else group
    if isinstance(group, dist.ProcessGroup):
        to, me = list(to), dist.get_rank(group)
        for way in (to, [to.index(r) for r in range(len(to))] if sorted(to) == list(range(len(to))) else None):  # and backward
            if way is not None:
                _permutations.setdefault((group.group_name, way[me], way.index(me)), []).append(way)


def _permute_tensor(self, src_dst, group, tag=""):
    _permutes(group, tuple(src_dst))
    return _traced_permute_tensor(self, src_dst, group, tag)


# AOT autograd's graphs have exchanges in the place of permutations, with the sizes of one rank.
_traced_permute_tensor = dist._functional_collectives.permute_tensor
dist._functional_collectives.permute_tensor = _permute_tensor


def _piece(x, dim, group_name):
    group = dist.distributed_c10d._resolve_process_group(group_name)
    return x.chunk(dist.get_world_size(group), dim)[dist.get_rank(group)].clone(memory_format=torch.contiguous_format)


# What DTensor cuts for a rank from what all ranks have: traced, the number of the piece would be that of one rank.
_library = torch.library.Library("concert", "DEF")
_library.define("shard(Tensor input, int dim, str group_name) -> Tensor")
_library.impl("shard", _piece, "CompositeExplicitAutograd")


@contextlib.contextmanager
def _without_ranks():
    """Has DTensor name the group whose ranks a piece or the rows of an embedding go to, while graphs are made, not this rank's number."""
    from torch.distributed.tensor import _ops, placement_types

    def piece(self, x, mesh, mesh_dim, *args, **kwargs):
        if x.shape[self.dim] % mesh.size(mesh_dim) != 0:
            raise NotImplementedError("dimension %d of %s is cut into %d pieces, which are not equal" % (self.dim, list(x.shape), mesh.size(mesh_dim)))
        return torch.ops.concert.shard(x, self.dim % x.dim(), mesh.get_group(mesh_dim).group_name)

    def exchange(x, gather_dim, shard_dim, mesh, mesh_dim):
        if mesh.device_type != "cpu":
            return usual(x, gather_dim, shard_dim, mesh, mesh_dim)
        group = mesh.get_group(mesh_dim)  # gloo has no such exchange
        every = dist._functional_collectives.all_gather_tensor(x, gather_dim, group)
        return torch.ops.concert.shard(dist._functional_collectives.wait_tensor(every), shard_dim, group.group_name)

    def rows(self, x, mesh, mesh_dim):
        all_rows, n = self.offset_shape[self.offset_dim], mesh.size(mesh_dim)
        if all_rows % n != 0:
            raise NotImplementedError("%d rows are cut into %d pieces, which are not equal" % (all_rows, n))
        first = torch.ops.concert.shard(torch.arange(0, all_rows, all_rows // n, device=x.device), 0, mesh.get_group(mesh_dim).group_name)[0]
        others = (x < first) | (x >= first + all_rows // n)
        self.mask_buffer.materialize_mask(others)
        return torch.where(others, 0, x - first)

    usual = placement_types.shard_dim_alltoall
    masks = [getattr(m, name) for m in (placement_types, _ops._embedding_ops) for name in ("_MaskPartial", "MaskPartial") if hasattr(m, name)]
    with contextlib.ExitStack() as patches:
        patches.enter_context(unittest.mock.patch.object(placement_types.Shard, "_replicate_to_shard", piece))
        patches.enter_context(unittest.mock.patch.object(placement_types, "shard_dim_alltoall", exchange))
        for m in {m for m in masks if hasattr(m, "_partition_value")}:
            patches.enter_context(unittest.mock.patch.object(m, "_partition_value", rows))
        yield


def _paths(mode, op, log_probs, targets, input_lengths, target_lengths, *_, **__):
    """The shapes of a CTC loss, which PyTorch leaves to the targets' lengths: paths have no more places than targets allow."""
    steps, batch, _ = log_probs.shape
    return log_probs.new_empty(batch), log_probs.new_empty(batch, steps, 2 * targets.shape[-1] + 1)


torch._subclasses.fake_impls.register_op_impl(torch.ops.aten._ctc_loss.Tensor)(_paths)


def fsdp(model, group=None, reduce_dtype=None):
    """Shards a module's parameters over a group: each is gathered where it is read, its gradient reduced and scattered.

    A parameter whose first dimension the group does not divide stays whole, and its gradient is averaged.
    """
    group = group or dist.group.WORLD
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    shared = {}
    for module in list(model.modules()):
        for name, p in list(module.named_parameters(recurse=False)):
            if p not in shared:
                whole = p.dim() == 0 or p.shape[0] % size != 0
                part = p.detach() if whole else p.detach().chunk(size)[rank].clone()
                shared[p] = torch.nn.Parameter(part, requires_grad=p.requires_grad), whole
            part, whole = shared[p]
            setattr(module, name, part)
            if torch.nn.utils.parametrize.is_parametrized(module):  # by the model: weight norms, say
                module.parametrizations.__class__ = _ByName
            with unittest.mock.patch.object(torch.nn.utils.parametrize, "ModuleDict", _ByName):
                torch.nn.utils.parametrize.register_parametrization(module, name, _Sharded(group, size, whole, reduce_dtype), unsafe=True)
        if isinstance(module, torch.nn.RNNBase):
            module._flat_weight_refs = [None] * len(module._flat_weights_names)  # it need not see that they change
            module.register_forward_pre_hook(_gather_list)
            module.register_forward_hook(_forget_list)
    return model


def _gather_list(rnn, _):
    rnn._flat_weights = [getattr(rnn, name) for name in rnn._flat_weights_names]  # what it computes with


def _forget_list(rnn, *_):
    rnn._flat_weights = [None] * len(rnn._flat_weights_names)  # else the step would return them


class _ByName(torch.nn.ModuleDict):
    """Modules by names that a ModuleDict may have methods of: keys, values."""

    def add_module(self, name, module):
        self._modules[name] = module


class _Sharded(torch.nn.Module):
    """The whole parameter, from the part that this rank has."""

    def __init__(self, group, size, whole, reduce_dtype):
        super().__init__()
        self.group, self.size, self.whole, self.reduce_dtype = group, size, whole, reduce_dtype

    def forward(self, part):
        return _Gather.apply(part, self.group, self.size, self.whole, self.reduce_dtype)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part, group, size, whole, reduce_dtype):
        ctx.group, ctx.size, ctx.whole, ctx.reduce_dtype = group, size, whole, reduce_dtype
        if whole:
            return part.view_as(part)
        c10d = torch.ops._c10d_functional
        return c10d.wait_tensor(c10d.all_gather_into_tensor(part.contiguous(), size, group.group_name))

    @staticmethod
    def backward(ctx, grad):
        c10d, dtype = torch.ops._c10d_functional, grad.dtype
        grad = grad.contiguous().to(ctx.reduce_dtype or dtype)
        if ctx.whole:
            grad = c10d.wait_tensor(c10d.all_reduce(grad, "avg", ctx.group.group_name))
        else:
            grad = c10d.wait_tensor(c10d.reduce_scatter_tensor(grad, "avg", ctx.size, ctx.group.group_name))
        return grad.to(dtype), None, None, None, None


class _Recorder:
    """A backend of torch.compile: AOT autograd's forward and backward graphs, written as they come."""

    def __init__(self, out, costs, record, run, ones=False):
        self.out, self.costs, self.record, self.run = out, costs, record, run
        self.ones = ones  # every result that the caller sees has a gradient of ones
        self.unseen, self.shared = [], []  # gradients that are zeros, and such as are neither zeros nor ones
        self.inputs = []
        self.files, self.graphs = {}, 0  # files: a set in order
        self.most = {}  # upper bounds of open sizes by what they are now

    def __call__(self, module, inputs):
        import torch._inductor.lowering  # which decompositions of pools ask
        from torch._dynamo.backends.common import aot_autograd
        from torch._inductor.decomposition import select_decomp_table

        name = self.out if self.graphs == 0 else "%s.%d" % (self.out, self.graphs)
        self.graphs += 1
        step = _Step(self, name, module, inputs)
        self.check(module)
        table = {op: how for op, how in select_decomp_table().items() if op is not torch.ops.aten.roll.default}  # modulo open sizes
        compiled = aot_autograd(
            fw_compiler=lambda graph, _: step.write(graph, "fw"), bw_compiler=lambda graph, _: step.write(graph, "bw"),
            partition_fn=step.partition, decompositions={**table, **_solutions()},
        )
        library = torch._C._get_cudnn_enabled()
        torch._C._set_cudnn_enabled(False)  # its RNNs and CTC losses are one call each; without it they are operators that concert knows
        try:
            with _without_ranks():
                return compiled(module, inputs)
        finally:
            torch._C._set_cudnn_enabled(library)

    def check(self, fn):
        """Refuses what no graph has of the parameters of a step."""
        parameters = list(fn.named_parameters()) if isinstance(fn, torch.nn.Module) else []
        for name, p in parameters + self.inputs:
            if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None):
                raise NotImplementedError("%s has a hook on its gradient, which is in no graph: remove it" % name)
            if any(at.is_partial() for at in getattr(p.grad if p.is_leaf else None, "placements", ())):
                warnings.warn("the gradient of %s is a sum that is still spread over ranks: reduce it" % name)


def _solutions():
    """How PyTorch solves linear equations, where its version factors the transpose of A and gradients use those factors."""
    solve = torch.ops.aten._linalg_solve_ex.default
    with unset_fake_temporarily():
        a = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        if solve(a, a)[1][0, 0] != 2:
            return {}

    def decomposed(A, B, *, left=True, check_errors=False):
        transposed, line = A.is_contiguous() and not A.is_complex(), B.dim() == 1 or B.dim() == A.dim() - 1 and B.shape == A.shape[:-1]
        LU, pivots, info = torch.linalg.lu_factor_ex(A.mT if transposed else A)
        x = torch.linalg.lu_solve(LU, pivots, B.unsqueeze(-1) if line else B, left=left, adjoint=transposed)
        return x.squeeze(-1) if line else x, LU, pivots, info

    return {solve: decomposed}


class _Step:
    """One graph of dynamo's: the forward step and, once autograd asks for it, the backward step."""

    def __init__(self, recorder, name, module, inputs):
        self.recorder, self.name = recorder, name
        self.roles, self.values = [], {}
        # AOT autograd puts parameters that the module still owns before the arguments.
        owned = [p for _, p in module.named_parameters(remove_duplicate=False)] + [b for _, b in module.named_buffers(remove_duplicate=False)]
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        sources = [None] * len(owned) + [_source(n) for n in placeholders]
        for x, source in zip(owned + list(inputs), sources):
            if not isinstance(x, torch.Tensor):
                continue
            recorder.inputs.append((source or "an input", x))
            parameter = isinstance(x, torch.nn.Parameter)
            self.roles.append("parameter" if parameter else "data")
            if not parameter and (source is None or "_buffers[" in source):
                spread = any(not at.is_replicate() for at in getattr(x, "placements", ()))  # a DTensor, whose part on this rank the graph has
                if spread:
                    warnings.warn("the values of %s are not written: they differ by rank" % (source or "a buffer"))
                    continue
                with unset_fake_temporarily():  # the step may change it
                    self.values[len(self.roles) - 1] = (x.detach().to_local() if hasattr(x, "placements") else x.detach()).clone()
        self.saved = {}  # what each output of the forward graph is to the backward graph
        self.passed = False  # backward's constants through forward
        self.data = {}  # buffers and lifted constants by name

    def partition(self, joint, *args, **kwargs):
        """The min-cut partition of PyTorch, where backward gathers sharded parameters again."""
        from functorch.compile import min_cut_rematerialization_partition
        from torch.utils.checkpoint import CheckpointPolicy

        inputs = [n for n in joint.graph.nodes if n.op == "placeholder" and not _is_size(n) and not _is_object(n)]
        gathered = {n for n, role in zip(inputs, self.roles) if role == "parameter"}
        for n in joint.graph.nodes:
            if _draws(n):  # backward cannot draw the same numbers again
                for saved in [n, *n.users]:
                    if "recompute" in saved.meta and (saved is n or _operator(saved)[1] == "getitem"):
                        saved.meta["recompute"] = CheckpointPolicy.MUST_SAVE
            whole = n.op == "call_function" and (_kind(n) in ("view", "wait", "collective") or _operator(n)[1] == "convert_element_type")
            if whole and n.all_input_nodes and all(a in gathered for a in n.all_input_nodes):
                gathered.add(n)
                n.meta["recompute"], n.meta["ac_graph_id"] = CheckpointPolicy.MUST_RECOMPUTE, 0
        # What draws nothing, such as attention without dropout, needs no state of a generator.
        with unittest.mock.patch.object(torch._functorch.partitioners, "has_recomputable_rng_ops", lambda _: False, create=True):
            return min_cut_rematerialization_partition(joint, *args, **kwargs)

    def write(self, graph, half):
        # Forward's first results are what becomes of the inputs at these places.
        changed = torch._guards.TracingContext.get().fw_metadata.mutated_inp_runtime_indices if half == "fw" else []
        recorder, w = self.recorder, _Writer(graph, self, half, changed)
        rank = dist.get_rank() if dist.is_initialized() else 0

        def save(ms):
            document = w.document("%s.%s" % (self.name.rsplit("/", 1)[-1], half), ms)  # on all ranks: they agree on groups
            _agree(document, w.values)
            if rank != 0:
                return
            if half == "fw":
                self.remove(".bw.graph.json.gz", ".data.safetensors")  # an older trace may have left them
            self.save(document, "%s.%s.graph.json.gz" % (self.name, half))
            if half == "fw":
                self.document = document
            elif w.values and not self.passed:
                self.pass_through(w.values, document)
            if w.values:
                self.data.update(w.values)
                _write_safetensors(self.name + ".data.safetensors", self.data)
                recorder.files[self.name + ".data.safetensors"] = None

        if half == "fw":
            self.saved = w.outputs()
        call = graph.forward if recorder.run else _zeros(graph, changed)
        if recorder.costs:
            call = _Timed(graph, save)
        else:
            save({})
        if recorder.record:
            call = _Recorded(call, "%s.%s.rank%d" % (self.name, half, rank), graph.graph, w.values)
        if half == "bw":
            call = _Seeded(call, w, save)
        return _boxed(call)

    def pass_through(self, constants, backward):
        """Makes backward's lifted constants inputs of forward, which hands them on: backward has no inputs of its own but tangents."""
        self.passed = True
        nodes, output = self.document["nodes"], self.document["nodes"][-1]
        inputs = sum(n["kind"] == "input" for n in nodes)
        nodes[inputs:inputs] = [{k: v for k, v in n.items() if k != "from"} for n in backward["nodes"] if n["name"] in constants]
        output["inputs"] += constants
        output["args"] = output["args"][:-3].rstrip(",") + "".join(", " + name for name in constants) + "),)"
        self.save(self.document, self.name + ".fw.graph.json.gz")

    def remove(self, *endings):
        for ending in endings:
            if os.path.exists(self.name + ending):
                os.remove(self.name + ending)

    def save(self, document, path):
        with open(path, "wb") as f, gzip.GzipFile(filename="", mode="wb", fileobj=f, mtime=0) as z:
            z.write(json.dumps(document, separators=(",", ":")).encode())
        self.recorder.files[path] = None


def _source(placeholder):
    """The Python expression that dynamo read an argument from."""
    source = getattr(placeholder.meta.get("grapharg"), "source", None)
    if source is None:
        return ""
    return source.name() if callable(source.name) else source.name


def _boxed(call):
    def run(args):
        args, mine = list(args), args
        mine.clear()  # AOT autograd lets go of what the step no longer needs
        return call(*args)

    run._boxed_call = True
    return run


def _zeros(graph, kept):
    """Stands for a graph: results of its shapes, without computing them. The first are what becomes of the inputs at the places kept: they stay what they are."""
    values = [n.meta["val"] if isinstance(n, fx.Node) else n for n in list(graph.graph.nodes)[-1].args[0]]

    def now(sizes):
        return [one(d) for d in sizes]

    def one(d):  # a size that a tensor holds counts as its bound
        return d if isinstance(d, int) else d.node.hint if d.node.has_hint() else int(d.node.shape_env.bound_sympy(d.node.expr).upper)

    def zero(t):
        if isinstance(t, torch.SymInt):
            return one(t)
        return torch.empty_strided(now(t.shape), now(t.stride()), dtype=t.dtype, device=t.device).zero_() if isinstance(t, torch.Tensor) else t

    return lambda *args: [args[k].detach().clone() for k in kept] + [zero(v) for v in values[len(kept):]]


class _Timed(fx.Interpreter):
    """Runs a graph, the first time node by node with a clock: ms is milliseconds by node name."""

    REPEATS = 5

    def __init__(self, graph, done):
        super().__init__(graph)
        self.graph_module, self.done, self.ms = graph, done, {}

    def __call__(self, *args):
        done, self.done = self.done, None
        if done is None:
            return self.graph_module(*args)
        results = self.run(*args)
        done(self.ms)
        return results

    def run_node(self, n):
        result = super().run_node(n)
        if n.op != "call_function" or _kind(n) in ("view", "wait"):
            return result
        if any(a.alias_info is not None and a.alias_info.is_write for a in n.target._schema.arguments):
            return result  # a second run would write twice
        times = []
        for _ in range(self.REPEATS):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            again = super().run_node(n)
            if _kind(n) == "collective":
                for t in again if isinstance(again, (list, tuple)) else [again]:
                    torch.ops._c10d_functional.wait_tensor(t)
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        self.ms[n.name] = round(min(times), 6)
        return result


class _Seeded:
    """Runs a backward graph, whose file is about gradients of one. What the caller does not see, such as a tensor that a module keeps, has none: zeros in its place."""

    def __init__(self, call, writer, save):
        self.call, self.writer, self.save = call, writer, save

    def __call__(self, *args):
        save, self.save = self.save, None
        if save is not None:
            graph, nodes, recorder = self.writer.graph, self.writer.nodes, self.writer.step.recorder
            inputs = [n for n in graph.graph.nodes if n.op == "placeholder"]
            given = [(n, a) for n, a in zip(inputs, args) if n.name.startswith("tangents_") and isinstance(a, torch.Tensor) and a.numel()]
            odd = [(n, a) for n, a in given if not ((torch.view_as_real(a) if a.is_complex() else a) == 1).all()]
            if odd and not recorder.ones:
                warnings.warn("%s.bw.graph.json.gz is about gradients of one, and the step has had others: compile all that leads to the loss" % self.writer.step.name)
            unseen = [n for n, a in odd if recorder.ones and not a.any()]
            recorder.unseen += unseen
            recorder.shared += [n for n, a in odd if n not in unseen]
            for n in unseen:
                with graph.graph.inserting_after(inputs[-1]):
                    zeros = graph.graph.call_function(torch.ops.aten.mul.Tensor, (n, 0))
                zeros.meta["val"] = n.meta["val"]
                n.replace_all_uses_with(zeros, delete_user_cb=lambda user: user is not zeros)
                nodes.insert(next(k for k, m in enumerate(nodes) if m.op not in ("placeholder", "get_attr")), zeros)
            if unseen:
                graph.recompile()
                save({})
        return self.call(*args)


class _Recorded:
    """Runs a graph and writes what goes in and comes out, the first time."""

    def __init__(self, call, path, graph, values):
        self.call, self.path, self.values = call, path, values
        self.inputs = [n.name for n in graph.nodes if n.op == "placeholder"]
        self.outputs = [n for n in list(graph.nodes)[-1].args[0]]

    def __call__(self, *args):
        path, self.path = self.path, None
        if path is None:
            return self.call(*args)
        given = {n: a for n, a in zip(self.inputs, args) if isinstance(a, torch.Tensor)}
        _write_safetensors(path + ".in.safetensors", self.values | given)
        results = self.call(*args)
        tensors = [(r, n) for r, n in zip(results, self.outputs) if not _is_size(n) and not _is_object(n)]
        kept = {"out%d" % k: r for k, (r, n) in enumerate(tensors) if isinstance(r, torch.Tensor) and not _random_state(n)}
        _write_safetensors(path + ".out.safetensors", kept)
        return results


def _draws(n):
    """Whether a node's results depend on random numbers."""
    if torch.Tag.nondeterministic_seeded not in getattr(n.target, "tags", ()):
        return False
    given = dict(zip([a.name for a in n.target._schema.arguments], n.args)) | n.kwargs
    return all(a.name != "dropout_p" for a in n.target._schema.arguments) or given.get("dropout_p", 0) != 0


def _random_state(n):
    """Whether a value is the seed or offset that an attention kernel chose: nobody computes it again."""
    producer = n.args[0] if isinstance(n, fx.Node) and n.op == "call_function" and not hasattr(n.target, "_schema") else None
    return isinstance(producer, fx.Node) and "attention" in str(producer.target) and not n.meta["val"].dtype.is_floating_point


_COLLECTIVES = {
    "all_gather_into_tensor": "all_gather", "all_gather_into_tensor_out": "all_gather", "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter", "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_reduce": "all_reduce", "all_reduce_": "all_reduce", "all_reduce_coalesced": "all_reduce", "all_reduce_coalesced_": "all_reduce",
    "all_to_all_single": "all_to_all", "broadcast": "broadcast", "broadcast_": "broadcast",
}
_GROUPED = ("_c10d_functional", "_dtensor.", "concert.")  # beginnings of targets that name groups
_COMPUTE = ("mm", "bmm", "addmm", "baddbmm", "dot", "mv", "convolution", "attention", "flash", "_scaled_mm", "_grouped_mm")


def _operator(n):
    """Namespace and name of the operator that a node calls."""
    schema = getattr(n.target, "_schema", None)
    return schema.name.split("::") if schema is not None else ("", getattr(n.target, "__name__", str(n.target)))


def _is_list(n):
    """Whether a node is one of the lists that an operator gives."""
    of = n.args[0] if isinstance(n, fx.Node) and n.op == "call_function" and _operator(n)[1] == "getitem" else None
    return isinstance(of, fx.Node) and isinstance(of.meta.get("val"), tuple) and all(isinstance(v, list) for v in of.meta["val"])


def _is_size(n):
    """Whether a node stands for a number that is known at run time only, or compares or checks some."""
    if not isinstance(n, fx.Node):
        return False
    return isinstance(n.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool)) or n.op == "call_function" and _operator(n)[1] in ("_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size")


def _is_object(n):
    """Whether a node stands for what is neither tensor nor number, such as a mesh, which graphs of DTensor hand on."""
    return isinstance(n, fx.Node) and n.op == "placeholder" and not _is_size(n) and not isinstance(n.meta.get("val"), torch.Tensor)


def _expression(e, env):
    """A sympy expression over sizes as a graph file has it; env knows what values its symbols take."""
    from sympy import Add, Integer, Max, Min, Mul, Pow, Symbol

    if isinstance(e, Symbol):
        return str(e)
    if isinstance(e, Integer):
        return "(%d)" % e if e < 0 else str(e)
    kind = type(e).__name__
    if kind in ("FloorToInt", "TruncToInt", "CeilToInt"):
        n, den = _fraction(e.args[0])
        if kind == "TruncToInt" and env.bound_sympy(n).lower < 0:
            raise NotImplementedError("%s may round up or down" % e)
        return "((%s)//%d)" % (_expression(n, env), den) if kind != "CeilToInt" else "(0-((0-(%s))//%d))" % (_expression(n, env), den)
    if isinstance(e, (Max, Min)):  # one that is it for all values
        for a in e.args:
            if all(env.bound_sympy(a - b if isinstance(e, Max) else b - a).lower >= 0 for b in e.args):
                return _expression(a, env)
    if kind in ("Mod", "PythonMod") and env.bound_sympy(e.args[0]).lower >= 0 and env.bound_sympy(e.args[1] - e.args[0]).lower > 0:
        return _expression(e.args[0], env)
    parts = [_expression(a, env) for a in e.args]
    if isinstance(e, Add):
        return "(" + "+".join(parts) + ")"
    if isinstance(e, Mul):
        return "*".join(parts)
    if kind == "Identity":
        return parts[0]
    if (isinstance(e, Pow) or kind == "PowByNatural") and isinstance(e.args[1], Integer) and e.args[1] > 0:
        return "*".join(parts[:1] * int(e.args[1]))
    if kind in ("FloorDiv", "CleanDiv") and isinstance(e.args[1], Integer):
        return "((%s)//%s)" % tuple(parts)
    if kind in ("Mod", "PythonMod") and isinstance(e.args[1], Integer):
        return "(%s-(%s)//%s*%s)" % (parts[0], parts[0], parts[1], parts[1])
    raise NotImplementedError("%s is no sum, product or quotient by a number" % e)


def _fraction(e):
    """A float of sizes as an expression of integers and what that is divided by, where doubles have it exactly."""
    from sympy import Add, Float, Integer, Mul

    kind = type(e).__name__
    if isinstance(e, Integer) or e.is_Symbol:
        return e, 1
    if isinstance(e, Float):
        over, under = float(e).as_integer_ratio()
        if under <= 1 << 16 and abs(over) < 1 << 32:
            return Integer(over), under
    if kind in ("ToFloat", "Identity"):
        return e.args[0], 1
    if kind in ("IntTrueDiv", "FloatTrueDiv"):
        (a, n), (b, m) = map(_fraction, e.args)
        if isinstance(b, Integer) and b > 0 and n == m == 1:  # a quotient rounds to no other whole number
            return a, int(b)
    if isinstance(e, (Add, Mul)):
        parts = [_fraction(a) for a in e.args]
        under = math.prod(n for _, n in parts)
        if under & (under - 1) == 0 and under <= 1 << 16:
            return e.func(*(a if isinstance(e, Mul) else a * (under // n) for a, n in parts)), under
    raise NotImplementedError("%s is no float that doubles have exactly" % e)


def _size(d, symbols):
    """A size as a graph file has it: a number, or an expression as text; notes its symbols with their shape environment."""
    if isinstance(d, int):
        return d
    e = d.node.shape_env.simplify(d.node.expr)
    symbols.update((str(s), (s, d.node.shape_env)) for s in e.free_symbols)
    return int(e) if e.is_Integer else _expression(e, d.node.shape_env)


def _kind(n):
    if _is_size(n):
        return "size"
    if n.op in ("placeholder", "get_attr"):
        return "input"
    if n.op == "output":
        return "output"
    space, name = _operator(n)
    if space in ("_c10d_functional", "_c10d_functional_autograd"):
        return "wait" if name == "wait_tensor" else "collective"
    schema = getattr(n.target, "_schema", None)
    if schema is None:
        return "view"  # getitem
    infos = [r.alias_info for r in schema.returns]
    if infos and all(i is not None and not i.is_write for i in infos):
        return "view"
    parts = name.split("_")
    return "compute" if any(c in parts or c == name or c in ("attention", "convolution") and c in name for c in _COMPUTE) else "memory"


class _Writer:
    """Turns one FX graph into the document of a graph file."""

    def __init__(self, graph, step, half, changed):
        self.graph, self.step, self.half, self.changed = graph, step, half, changed
        self.groups, self.symbols = {}, {}
        # Inputs first: what forward saved, lifted constants, tangents.
        place = {"placeholder": 0, "get_attr": 1}
        self.nodes = sorted([n for n in graph.graph.nodes if not _is_object(n)], key=lambda n: 2 if half == "bw" and n.op == "placeholder" and n.name not in step.saved and not _is_size(n) else place.get(n.op, 3))
        inputs = [n for n in self.nodes if n.op == "placeholder" and not _is_size(n)]
        known = half == "fw" and len(inputs) == len(step.roles)
        self.roles = dict(zip(inputs, step.roles)) if known else {}
        self.values = {n.name: step.values[k] for k, n in enumerate(inputs) if known and k in step.values}
        if half == "fw" and step.values and not known:
            raise NotImplementedError("the step has %d inputs, its graph %d: buffers that share memory, or parameters of several tensors, cannot be told apart" % (len(step.roles), len(inputs)))
        for n in self.nodes:
            if n.op == "get_attr":
                if half == "bw":
                    n._rename("bw" + n.name)  # both halves' constants stand in one file
                self.values[n.name] = self.value(n)

    def outputs(self):
        """The role in the backward graph of each output of a forward graph, by name.

        A gathered, cast or viewed parameter is a parameter still.
        """
        result = {}
        for n in self.nodes[-1].args[0]:
            at = n
            while isinstance(at, fx.Node) and _kind(at) in ("view", "wait", "collective") and len(at.all_input_nodes) == 1:
                at = at.all_input_nodes[0]
            if isinstance(n, fx.Node):
                result[n.name] = self.roles.get(at, "data") if at.op == "placeholder" else "saved"
        return result

    def document(self, name, ms):
        nodes = [self.node(n, ms) for n in self.nodes if not _is_list(n)]
        world = dist.get_world_size() if dist.is_initialized() else 1
        document = {"name": name, "world": world, "groups": self.groups, "nodes": nodes}
        if self.symbols:
            document["symbols"] = {s: self.symbol(*at) for s, at in sorted(self.symbols.items())}
            document.update({"checks": checks} if (checks := self.checks()) else {})
        return document

    def checks(self):
        """What the trace takes for granted of its sizes: expressions that must not be negative."""
        from sympy import Eq, Ge, Gt, Integer, Le, Lt, Ne

        out = []
        env = next(iter(self.symbols.values()))[1]
        later = [a.expr for asserts in env.deferred_runtime_asserts.values() for a in asserts]  # of sizes that tensors hold
        for e in [env.simplify(guard.expr) for guard in env.guards] + later:
            if not e.free_symbols or not {str(s) for s in e.free_symbols} <= set(self.symbols):
                continue
            if any(abs(int(n)) >= 1 << 60 for n in e.atoms(Integer)):  # an open end of a slice, which all sizes are less than
                continue
            try:
                a, b = _expression(e.lhs, env), _expression(e.rhs, env)
            except (NotImplementedError, AttributeError):  # not even a relation
                warnings.warn("the trace holds for sizes with %s only, which the file does not say" % e)
                continue
            more, less = "%s-(%s)" % (a, b), "%s-(%s)" % (b, a)
            out += {Ge: [more], Gt: [more + "-1"], Le: [less], Lt: [less + "-1"], Eq: [more, less], Ne: ["(%s)*(%s)-1" % (more, more)]}[type(e)]
        return list(dict.fromkeys(out))

    def symbol(self, symbol, env):
        hint = (getattr(env, "backed_var_to_val", None) or env.var_to_val).get(symbol)
        bounds = [self.step.recorder.most.get(hint), env.bound_sympy(symbol).upper]
        bounds = [int(b) for b in bounds if b is not None and b < 1 << 50]
        if not bounds:
            raise ValueError("the size %s has no upper bound: say it by dynamic=, or torch._check(size <= N)" % symbol)
        least = env.bound_sympy(symbol).lower
        least = int(least) if least > 0 else 0  # what an integer is asserted to be at most may have no lower bound
        return {"hint": min([*bounds] + ([] if hint is None else [int(hint)])), **({"min": least} if least > 0 else {}), "max": min(bounds)}

    def node(self, n, ms):
        kind = _kind(n)
        at = {"name": n.name, "kind": kind}
        if n.op == "placeholder" or kind == "input":
            at.update(target=n.name, inputs=[], args="()", kwargs="")
        elif kind == "output":
            args = tuple([a for a in n.args[0] if not _is_size(a) and not _is_object(a)])
            at.update(target="output", inputs=list(dict.fromkeys(a.name for a in args if isinstance(a, fx.Node))), args=_text((args,)), kwargs="")
            at.update({"updates": updates} if (updates := self.updates(args)) else {})
        else:
            args, inputs = tuple(n.args), n.all_input_nodes
            if any(_is_object(i) for i in inputs):
                raise NotImplementedError("%s reads an object that is no tensor%s" % (n.name, _where(n)))
            place = {torch.ops.aten.as_strided.default: 3, torch.ops.aten.as_strided_scatter.default: 4}.get(n.target)
            if place is not None and len(args) > place and args[place] is not None and _kind(args[0]) == "input" and args[0].meta["val"].storage_offset() != 0:
                raise NotImplementedError("%s: %s of an input that begins within its storage%s" % (n.name, _operator(n)[1], _where(n)))
            if args and _is_list(args[0]):  # an item of one of several lists, whose tensors the file has in a row
                lists, k = args[0].args
                args, inputs = (lists, sum(map(len, lists.meta["val"][:k])) + args[1]), [lists]
            at.update(
                target=str(n.target),
                inputs=[i.name for i in inputs], args=_text(args), kwargs=_text(dict(n.kwargs)) if n.kwargs else "",
            )
            if kind == "view" and not hasattr(n.target, "_schema") and at["target"] != "<built-in function getitem>":
                raise NotImplementedError("%s: calls of %s cannot be written%s" % (n.name, n.target, _where(n)))
        if kind == "size":
            if isinstance(n.meta.get("val"), torch.SymInt):
                at["size"] = str(_size(n.meta["val"], self.symbols))
            if getattr(n.target, "__module__", "") in ("torch", "math"):
                at["target"] = "%s.%s" % (n.target.__module__, n.target.__name__)
        at["out"] = [] if kind in ("output", "size") else _tensors(self.value(n), n, self.symbols)
        if n.name in ms or kind in ("input", "output", "view", "wait", "size"):
            at["ms"] = ms.get(n.name, 0.0)
        if kind == "input":
            self.input(n, at)
        if kind == "collective":
            self.collective(n, at)
        elif at.get("target", "").startswith(_GROUPED) and kind != "wait":
            self.group(n.args[-1])
        if kind not in ("input", "output") and _where(n):
            at["loc"] = _where(n).strip()
        return at

    def value(self, n):
        return operator.attrgetter(n.target)(self.graph) if n.op == "get_attr" else n.meta.get("val")

    def updates(self, results):
        """The names of the inputs that the step changes, in the order of the results that are their new values."""
        inputs = [n for n in self.graph.graph.nodes if n.op == "placeholder"]
        names = []
        for k, new in zip(self.changed, results):
            a, b = inputs[k].meta.get("val"), new.meta.get("val") if isinstance(new, fx.Node) else None
            kept = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.shape == b.shape and a.dtype == b.dtype
            names.append(inputs[k].name if kept else "")  # else the tensor becomes another view
        return names

    def input(self, n, at):
        if n.op == "get_attr" or self.half == "fw":
            at["role"] = self.roles.get(n, "data")
        else:
            at["role"] = self.step.saved.get(n.name, "tangent")
        if self.half == "bw" and at["role"] != "tangent":
            at["from"] = n.name

    def collective(self, n, at):
        name = _operator(n)[1]
        if name not in _COLLECTIVES:
            raise NotImplementedError("%s: the collective %s cannot be written%s" % (n.name, name, _where(n)))
        bound = dict(zip((a.name for a in n.target._schema.arguments), n.args)) | dict(n.kwargs)
        at["op"], at["group"] = _COLLECTIVES[name], bound["group_name"]
        if "reduce_op" in bound:
            at["reduce"] = bound["reduce_op"].lower()
        self.group(at["group"])
        if name == "all_to_all_single" and all(isinstance(d, int) for d in bound["input_split_sizes"] + bound["output_split_sizes"]):
            to = _destinations(n, bound)
            if to is not None:
                at.update(op="permute", target="_c10d_functional.permute_tensor.default", args=_text((bound["input"], to, at["group"])), kwargs="")

    def group(self, name):
        if name not in self.groups:
            self.groups[name] = _partition(name)


def _destinations(n, bound):
    """Where the rows of each rank go in an exchange that is a permutation, None if it has the same sizes on all ranks."""
    sent, received, name = bound["input_split_sizes"], bound["output_split_sizes"], bound["group_name"]
    if len(set(sent + received)) <= 1:
        return None
    if dist.get_backend() == "fake":
        me = dist.get_rank(dist.distributed_c10d._resolve_process_group(name))
        ways = []
        if sum(d != 0 for d in sent) == sum(d != 0 for d in received) == 1:
            key = name, next(k for k, d in enumerate(sent) if d), next(k for k, d in enumerate(received) if d)
            ways = _permutations.get(key, [])
        if len(ways) > 0 and all(w == ways[0] for w in ways):
            return ways[0]
        if len(sent) <= 3:
            return None  # what one rank does says it all
        raise NotImplementedError("%s: rank %d sends %s rows, and what the others send is not known: call torch.distributed._functional_collectives.permute_tensor by that name, once concert_export is imported, or trace on a process group with all ranks%s" % (n.name, me, sent, _where(n)))
    every = _of_all((dist.get_process_group_ranks(dist.distributed_c10d._resolve_process_group(name)), sent, received))
    if all(e[1:] == every[0][1:] for e in every):
        return None
    found = set()
    for group in sorted({tuple(e[0]) for e in every}):
        rows = [every[r][1] for r in group]
        to = tuple(next((k for k, d in enumerate(row) if d), -1) for row in rows)
        if any(sum(d != 0 for d in row) != 1 for row in rows) or sorted(to) != list(range(len(group))):
            raise NotImplementedError("%s: ranks %s send %s rows, each others: only permutations differ by rank, or sizes that tensors hold%s" % (n.name, list(group), rows, _where(n)))
        found.add(to)
    if len(found) != 1:
        raise NotImplementedError("%s: the groups permute in different ways, %s%s" % (n.name, sorted(found), _where(n)))
    return list(found.pop())


def _where(n):
    """The innermost line of the user's source that a node comes from: " FILE:LINE, in FUNCTION: TEXT"."""
    lines = [s.strip() for s in (n.meta.get("stack_trace") or "").splitlines()]
    for k in range(len(lines) - 1, -1, -1):
        path, line, function = (lines[k].split(", ") + ["", ""])[:3]
        path = path[6:-1].rpartition("site-packages/")[2].removeprefix(os.getcwd() + "/")
        if lines[k].startswith('File "') and not path.startswith("torch/") and not __file__.endswith(path):
            text = ": " + lines[k + 1] if k + 1 < len(lines) else ""
            return " %s:%s, %s%s" % (path, line.removeprefix("line "), function, text)
    return ""


def _tensors(value, n, symbols):
    out = []
    for t in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(t, (list, tuple)):  # of a pair with a list
            out += _tensors(t, n, symbols)
            continue
        if not isinstance(t, torch.Tensor):
            continue
        try:
            shape, stride = ([_size(d, symbols) for d in sizes] for sizes in (t.shape, t.stride()))
        except NotImplementedError as e:
            raise NotImplementedError("%s: %s%s" % (n.name, e, _where(n))) from None
        out.append({"shape": shape, "stride": stride, "dtype": str(t.dtype).removeprefix("torch.")})
    return out


def _text(a):
    """An argument as Python writes it, with nodes by name."""
    if isinstance(a, fx.Node):
        return a.name
    if isinstance(a, tuple):
        return "(" + ", ".join(_text(x) for x in a) + (",)" if len(a) == 1 else ")")
    if isinstance(a, list):
        return "[" + ", ".join(_text(x) for x in a) + "]"
    if isinstance(a, dict):
        return "{" + ", ".join("%r: %s" % (k, _text(x)) for k, x in a.items()) + "}"
    if isinstance(a, float) and not math.isfinite(a):
        return str(a)
    if isinstance(a, torch.device):  # of every rank, whichever GPU it has
        return "device(type=%r)" % a.type
    return repr(a)


def _of_all(value):
    """The values that all ranks of the world give, in their order."""
    every = [None] * dist.get_world_size()
    with unset_fake_temporarily():  # backends are called while tensors are faked
        dist.all_gather_object(every, value)
    return every


def _agree(document, values):
    """Refuses what only some ranks have traced, such as numbers made of a rank, or have as constants: the program that is written is rank 0's."""
    if not dist.is_initialized() or dist.get_backend() == "fake":
        return
    mine = [" ".join([n["name"], n["target"], n["args"], n["kwargs"]]) for n in document["nodes"] if not n["target"].startswith(_GROUPED)]  # groups' names differ
    mine += ["the constant %s with checksum %08x" % (name, zlib.crc32(_bytes(t))) for name, t in values.items()]
    first = _of_all([zlib.crc32(m.encode()) for m in mine])
    at = next((k for k in range(max(map(len, first))) if len({r[k] if k < len(r) else None for r in first}) > 1), None)
    if at is None:
        return
    have = _of_all(mine[at] if at < len(mine) else "nothing more")
    other = next(r for r, h in enumerate(have) if h != have[0])
    raise ValueError("rank 0 has traced %r, rank %d %r: the program must be the same on all ranks, pass what differs as a tensor, and set PYTHONHASHSEED if it follows from the order of a set" % (have[0], other, have[other]))


def _partition(name):
    """The rank lists of all groups that are made as this one: together they are the world."""
    ranks = dist.get_process_group_ranks(dist.distributed_c10d._resolve_process_group(name))
    world = dist.get_world_size()
    if len(ranks) == world:
        return [ranks]
    if dist.get_backend() != "fake":
        found = [list(r) for r in sorted({tuple(r) for r in _of_all(ranks)})]
    else:  # the other ranks' groups lie as this one does, in a grid
        stride, size = ranks[1] - ranks[0] if len(ranks) > 1 else 1, len(ranks)
        block = stride * size
        found = [[b + o + k * stride for k in range(size)] for b in range(0, world, block) for o in range(stride)]
    if ranks not in found or sorted(r for g in found for r in g) != list(range(world)):
        raise ValueError("the groups that are made as group %s, %s, do not partition the %d ranks into equal parts" % (name, found, world))
    return found


def _bytes(t):
    with unset_fake_temporarily():  # backends are called while tensors are faked
        t = torch.zeros_like(t) if torch._is_zerotensor(t) else t.detach().resolve_conj().resolve_neg().cpu().contiguous()
        return ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()) if t.numel() else b""


def _write_safetensors(path, tensors):
    kinds = {
        torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
        torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
    }
    for name, kind in (("uint64", "U64"), ("uint32", "U32"), ("uint16", "U16"), ("float8_e4m3fn", "F8_E4M3"), ("float8_e5m2", "F8_E5M2"), ("float8_e8m0fnu", "F8_E8M0")):
        if hasattr(torch, name):  # not in every version
            kinds[getattr(torch, name)] = kind
    header, blobs, at = {}, [], 0
    for name, t in tensors.items():
        if t.is_complex():  # concert has pairs
            with unset_fake_temporarily():
                t = torch.view_as_real(t.detach().resolve_conj())
        if t.dtype not in kinds:
            raise TypeError("tensor %s is %s, which concert does not have" % (name, t.dtype))
        blob = _bytes(t)
        header[name] = {"dtype": kinds[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
