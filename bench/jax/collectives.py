#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long JAX's psum takes over Kolo, or over Gloo: 1 KiB, 1 MiB, 64 MiB, and ResNet-50's gradients as a tree.

    kolo-run -np 2 python3 bench/jax/collectives.py [--over gloo] [--json FILE]

Both ways run the same program, and check every sum. Compare runs in turns, on a quiet machine.
"""

import argparse
import json
import statistics
import time

import kolopy
import kolopy.jax as kj  # before jax

import jax
import numpy
from jax.sharding import NamedSharding, PartitionSpec

#: ResNet-50's parameters: the shapes of its 161 tensors, 25.6 million numbers.
BLOCKS = ((3, 64, 256), (4, 128, 512), (6, 256, 1024), (3, 512, 2048))


def resnet50():
    shapes, before = [(64, 3, 7, 7), (64,), (64,)], 64
    for blocks, inner, outer in BLOCKS:
        for block in range(blocks):
            first = before if block == 0 else outer
            for shape in ((inner, first, 1, 1), (inner, inner, 3, 3), (outer, inner, 1, 1)):
                shapes += [shape, shape[:1], shape[:1]]
            if block == 0:
                shapes += [(outer, first, 1, 1), (outer,), (outer,)]
        before = outer
    return shapes + [(1000, 2048), (1000,)]


def init(over):
    if over == "kolo":
        return kj.init()
    kolopy.init()  # to agree upon the place
    place = kolopy.broadcast_object(kj._free_place() if kolopy.rank() == 0 else None, root=0)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_num_cpu_devices", 1)
    jax.distributed.initialize(place, kolopy.size(), kolopy.rank(), coordinator_bind_address=place,
                               cluster_detection_method="deactivate")  # fmt: skip


def measure(shapes, seconds):
    mesh = jax.sharding.Mesh(jax.devices(), ("a",))
    rows = NamedSharding(mesh, PartitionSpec("a"))
    size, rank = jax.process_count(), jax.process_index()

    def given(shape):
        return jax.make_array_from_callback((size, *shape), rows, lambda _: numpy.full((1, *shape), rank + 1.0, "f4"))

    tree = [given(shape) for shape in shapes]
    one = PartitionSpec()
    sums = jax.jit(jax.shard_map(lambda t: jax.lax.psum(t, "a"), mesh=mesh, in_specs=rows.spec, out_specs=one))
    wrong = sum(not (numpy.asarray(t.addressable_data(0)) == size * (size + 1) / 2).all() for t in sums(tree))
    times = []
    end = time.monotonic() + seconds
    while True:
        begin = time.perf_counter()
        jax.block_until_ready(sums(tree))
        times.append(time.perf_counter() - begin)
        # All ranks stop together: rank 0 says when.
        if len(times) % 10 == 0 and kolopy.broadcast_object(time.monotonic() > end, root=0):
            return {"time_ms": 1e3 * statistics.median(times), "best_ms": 1e3 * min(times), "samples": len(times),
                    "wrong": wrong}  # fmt: skip


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--over", choices=("kolo", "gloo"), default="kolo")
    flags.add_argument("--seconds", type=float, default=3, help="for each row (default 3)")
    flags.add_argument("--json", help="append a record a row to this file")
    chosen = flags.parse_args()
    init(chosen.over)
    rows = {"1 KiB": [(256,)], "1 MiB": [(1 << 18,)], "64 MiB": [(1 << 24,)], "ResNet-50's gradients": resnet50()}
    for name, shapes in rows.items():
        record = measure(shapes, chosen.seconds)
        if kolopy.rank() > 0:
            continue
        print(f"{chosen.over}: {name}: {record['time_ms']:.3f} ms ({record['samples']} times, {record['wrong']} wrong)",
              flush=True)  # fmt: skip
        if chosen.json:
            whole = {"over": chosen.over, "what": name, "ranks": kolopy.size(), "jax": jax.__version__, **record}
            with open(chosen.json, "a") as file:
                file.write(json.dumps(whole) + "\n")


if __name__ == "__main__":
    main()
