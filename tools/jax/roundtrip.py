"""Runs StableHLO text under JAX and compares the results with recorded ones.

    lowerdump export -format=stablehlo -passes= -o OUT/NAME.stablehlo.mlir NAME.stablehlo.mlir.gz
    python tools/jax/roundtrip.py DATA OUT/*.stablehlo.mlir

DATA has NAME.in.safetensors and NAME.out.safetensors, or NAME.in.rank0.safetensors and so on
for each replica: tensor k is the k-th argument or result of @main. Those of bfloat16 are
stored as float32, scalars with shape [1]. Needs JAX 0.11, its MLIR bindings, and a device
for each replica: XLA_FLAGS=--xla_force_host_platform_device_count=4 makes some of a CPU.
"""
import gzip
import json
import os
import re
import sys

import jax
import numpy as np
from jax._src import compiler
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jax.sharding import Mesh, NamedSharding, PartitionSpec

DTYPES = {"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1",
          "U64": "u8", "U32": "u4", "U16": "u2", "U8": "u1", "BOOL": "?"}
ELEMENTS = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i1": "bool", "i8": "int8", "i16": "int16",
            "i32": "int32", "i64": "int64", "ui8": "uint8", "ui16": "uint16", "ui32": "uint32", "ui64": "uint64"}


def read(path):
    """The tensors of a safetensors file, in the order of their names."""
    with open(path, "rb") as f:
        data = f.read()
    n = int.from_bytes(data[:8], "little")
    head, body = json.loads(data[8:8 + n]), data[8 + n:]
    head.pop("__metadata__", None)
    return [np.frombuffer(body[slice(*head[k]["data_offsets"])], DTYPES[head[k]["dtype"]]).reshape(head[k]["shape"]) for k in sorted(head)]


def ranks(stem, n):
    """The tensors of each rank."""
    one = stem + ".safetensors"
    return [read(one if os.path.exists(one) else f"{stem}.rank{r}.safetensors") for r in range(n)]


def typed(t):
    """Shape and element type of an MLIR tensor type."""
    t = ir.RankedTensorType(t)
    return tuple(t.shape), jax.numpy.dtype(ELEMENTS[str(t.element_type)])


def run(data, path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt") as f:
        text = f.read()
    name = re.sub(r"\.stablehlo\.mlir(\.gz)?$", "", os.path.basename(path))
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        module.operation.verify()
        attrs = module.operation.attributes
        n = ir.IntegerAttr(attrs["mhlo.num_replicas"]).value
        main = next(op for op in module.body.operations if op.attributes["sym_name"].value == "main")
        args = [typed(t) for t in main.type.inputs]
        module_text = str(module)  # what MLIR prints of what it read
    devices = jax.devices()[:n]
    if len(devices) < n:
        raise SystemExit(f"{path}: {n} replicas on {len(devices)} devices")
    options = compiler.get_compile_options(num_replicas=n, num_partitions=1, device_assignment=np.array([[d.id] for d in devices]))
    exe = devices[0].client.compile_and_load(module_text, devices, options)
    inputs, want = ranks(os.path.join(data, name + ".in"), n), ranks(os.path.join(data, name + ".out"), n)
    if len(inputs[0]) != len(args):
        raise SystemExit(f"{path}: {len(inputs[0])} inputs for {len(args)} arguments")
    everywhere = NamedSharding(Mesh(np.array(devices), ("r",)), PartitionSpec())  # each replica has a tensor of its own
    buffers = [jax.make_array_from_single_device_arrays(shape, everywhere, [jax.device_put(inputs[r][k].reshape(shape).astype(dt), d) for r, d in enumerate(devices)])
               for k, (shape, dt) in enumerate(args)]
    got = exe.execute_sharded(buffers).disassemble_into_single_device_arrays()
    worst, limit = 0.0, 2e-2 if any(str(dt) == "bfloat16" for _, dt in args) else 1e-4
    for k, outs in enumerate(got):
        for r, out in enumerate(outs):
            g, w = np.asarray(out, "f8").ravel(), np.asarray(want[r][k], "f8").ravel()
            worst = max(worst, np.linalg.norm(g - w) / max(np.linalg.norm(w), 1e-30))
    ok = worst <= limit
    print(f"{'ok' if ok else 'FAILED'} {name}: {n} replicas, {len(got)} results, relative error {worst:.2g}, limit {limit:g}")
    return ok


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)  # or 64-bit inputs are cut
    results = [run(sys.argv[1], path) for path in sys.argv[2:]]
    sys.exit(not all(results))
