"""Exports steps of DTensor whose pieces and rows depend on the rank.

    python tools/torch/dtensor.py DIR                                # one process stands for 4 ranks
    torchrun --nproc-per-node 2 tools/torch/dtensor.py -record DIR   # with every rank's inputs and results
    lowerdump run -inputs DIR -expect DIR DIR/NAME.fw.graph.json.gz DIR/NAME.bw.graph.json.gz

On the CPU.
"""
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn import functional as F

import concert_export


class Block(nn.Module):
    """Sequence parallelism around a tensor-parallel MLP, between rows of an embedding and of a head."""

    def __init__(self, mesh):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(64, 32), nn.LayerNorm(32)
        self.up, self.down, self.head = nn.Linear(32, 64), nn.Linear(64, 32), nn.Linear(32, 64, bias=False)
        parallelize_module(self, mesh, {
            "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)), "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)), "down": RowwiseParallel(output_layouts=Replicate()),
            "head": ColwiseParallel(output_layouts=Replicate()),
        })

    def forward(self, x, labels):
        x = self.down(F.gelu(self.up(self.norm(self.embedding(x)))))
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


class Spread(nn.Module):
    """Weights that are spread, and pieces along both dimensions of what all ranks have."""

    def __init__(self, mesh):
        super().__init__()
        self.mesh = mesh
        self.rows = nn.Parameter(distribute_tensor(torch.randn(32, 48), mesh, [Shard(0)]))
        self.columns = nn.Parameter(distribute_tensor(torch.randn(48, 32), mesh, [Shard(1)]))

    def forward(self, x):
        all_ranks = [Replicate()]
        x = DTensor.from_local(x, self.mesh, all_ranks)
        y = torch.softmax(x @ self.rows.redistribute(self.mesh, all_ranks), -1)
        y = y.redistribute(self.mesh, [Shard(0)]).cumsum(1).redistribute(self.mesh, [Shard(1)]).cumsum(0).redistribute(self.mesh, all_ranks) @ self.columns
        return y.cumsum(0).redistribute(self.mesh, all_ranks).to_local().square().mean()


def main():
    record, out = sys.argv[1:-1] == ["-record"], sys.argv[-1]
    if record:
        dist.init_process_group("gloo")
    else:
        concert_export.pretend(4)
    os.makedirs(out, exist_ok=True)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(1)
    for name, module, inputs in (
        ("dtensor", Block(mesh), (torch.randint(0, 64, (2, 8)), torch.randint(0, 64, (2, 8)))),
        ("dtensor_spread", Spread(mesh), (torch.randn(8, 32),)),
    ):
        print(name, *map(os.path.basename, concert_export.export(module, inputs, os.path.join(out, name), record=record)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
