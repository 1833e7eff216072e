# SPDX-License-Identifier: Apache-2.0
"""kolopy.jax: what the other processes get when one of them dies or leaves. Starts its processes by itself; prints a
line for each way.

usage: jax_faults_test.py [RANKS]
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

WAYS = {
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "raises": "raise ValueError('no more')",
    "calls sys.exit(3)": "sys.exit(3)",
    "gets SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "gets SIGINT": "os.kill(os.getpid(), signal.SIGINT); time.sleep(1)",
}
PROGRAM = """
import os, signal, sys, time
import kolopy.jax as kj
import jax, numpy
from jax.sharding import NamedSharding, PartitionSpec
kj.init(timeout_s=60)
mesh = jax.sharding.Mesh(jax.devices(), ("a",))
kj.prepare(mesh)
given = jax.make_array_from_callback((kj.size(), 8), NamedSharding(mesh, PartitionSpec("a")),
                                     lambda at: numpy.ones((kj.size(), 8))[at])
total = jax.jit(lambda x: x.sum(axis=0))
for step in range(1000000):
    total(given).block_until_ready()
    if step == 20 and kj.rank() == int(sys.argv[1]):
        print("now", flush=True)
        {way}
"""


def start(ranks, culprit, way, folder):
    store = f"file://{folder}/meeting"
    for rank in range(ranks):
        its = dict(os.environ, KOLO_STORE=store, KOLO_RANK=str(rank), KOLO_SIZE=str(ranks), OMP_NUM_THREADS="1")
        with open(f"{folder}/{rank}.err", "w") as errors:
            yield subprocess.Popen([sys.executable, "-c", PROGRAM.replace("{way}", way), str(culprit)], env=its,
                                   stdout=subprocess.PIPE, stderr=errors, text=True)  # fmt: skip


def check(ranks, culprit, what):
    with tempfile.TemporaryDirectory() as folder:
        processes = list(start(ranks, culprit, WAYS[what], folder))
        try:
            assert processes[culprit].stdout.readline() == "now\n"
            begin, ends = time.monotonic(), {}
            while len(ends) < ranks and time.monotonic() - begin < 120:
                for rank, process in enumerate(processes):
                    if rank not in ends and process.poll() is not None:
                        ends[rank] = time.monotonic() - begin
                time.sleep(0.01)
            codes = [process.poll() for process in processes]
            errors = [open(f"{folder}/{rank}.err").read() for rank in range(ranks)]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    others = [rank for rank in range(ranks) if rank != culprit]
    for rank in others:
        assert codes[rank] not in (0, None), f"rank {rank} ends with {codes[rank]} when rank {culprit} {what}"
        assert f"rank {culprit} " in errors[rank], f"rank {culprit} {what}; rank {rank} says:\n{errors[rank]}"
    assert codes[culprit] not in (0, None), codes
    last = max(ends[rank] for rank in others)
    print(f"rank {culprit} of {ranks} {what}: the others end after {last:.1f} s, and name it; itself after "
          f"{ends[culprit]:.1f} s with {codes[culprit]}", flush=True)  # fmt: skip


def main():
    try:
        import importlib.metadata

        importlib.metadata.version("jaxlib")
    except importlib.metadata.PackageNotFoundError:
        return print("skipped: there is no JAX here")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    for what in WAYS:
        for culprit in (0, ranks - 1):
            check(ranks, culprit, what)


if __name__ == "__main__":
    main()
