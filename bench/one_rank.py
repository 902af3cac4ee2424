"""Rewrites traced steps that are sharded over all ranks (FSDP) as the same steps on one rank.

    python3 bench/one_rank.py DIR OUT

Shards that are gathered become whole inputs, scattered gradients whole results, and groups have one rank: what is computed stays
what one rank of the sharded step computes, so that one GPU is enough to time it. Steps with other collectives than all_gather,
reduce_scatter and all_reduce, or that compute on shards anything but conversions and scaling, are left out and named.
"""
import argparse
import gzip
import json
import os
import re
import shutil

ON_SHARDS = {
    "prims.convert_element_type.default", "aten._to_copy.default", "aten.clone.default", "aten.detach.default", "aten.alias.default",
    "aten.mul.Tensor", "aten.div.Tensor", "_c10d_functional.wait_tensor.default",
}


class Refused(Exception):
    pass


def whole(graph):
    """Makes the graph that of one rank, in place."""
    world, nodes = graph["world"], {n["name"]: n for n in graph["nodes"]}
    users = {}
    for n in graph["nodes"]:
        for name in n["inputs"]:
            users.setdefault(name, []).append(n)
    grown = set()

    def grow(node):
        if node["name"] in grown:
            return False
        grown.add(node["name"])
        out, size = node["out"][0], 1
        out["shape"][0] *= world
        for d in reversed(range(len(out["shape"]))):
            out["stride"][d] = size
            size *= out["shape"][d]
        return True

    def grow_before(node):
        if not grow(node) or node["kind"] == "input":
            return
        if node["target"] not in ON_SHARDS:
            raise Refused(f"{node['name']} = {node['target']} computes on a shard")
        grow_before(nodes[node["inputs"][0]])

    def grow_after(node):
        if not grow(node):
            return
        for user in users.get(node["name"], []):
            if user["kind"] == "output":
                continue
            if user["target"] not in ON_SHARDS:
                raise Refused(f"{user['name']} = {user['target']} computes on a shard")
            grow_after(user)

    for n in graph["nodes"]:
        if n["kind"] != "collective" or n.get("op") == "wait":
            continue
        if n.get("op") not in ("all_gather", "reduce_scatter", "all_reduce"):
            raise Refused(f"{n['name']} = {n['target']}")
        if n["op"] != "all_reduce":
            n["args"] = re.sub(rf", {world},", ", 1,", n["args"])
        if n["op"] == "all_gather":
            grow_before(nodes[n["inputs"][0]])
        elif n["op"] == "reduce_scatter":
            grow_after(n)
    graph["world"], graph["groups"] = 1, {name: [[0]] for name in graph["groups"]}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir")
    p.add_argument("out")
    args = p.parse_args()
    os.makedirs(args.out, exist_ok=True)
    for name in sorted(os.listdir(args.dir)):
        path = os.path.join(args.dir, name)
        if name.endswith(".data.safetensors"):
            shutil.copy(path, args.out)
        if not name.endswith(".graph.json.gz"):
            continue
        with gzip.open(path, "rt") as f:
            graph = json.load(f)
        try:
            whole(graph)
        except Refused as e:
            print(f"{name}: left out: {e}")
            continue
        with gzip.open(os.path.join(args.out, name), "wt") as f:
            json.dump(graph, f)


if __name__ == "__main__":
    main()
