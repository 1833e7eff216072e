#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kolo-bench --device cuda as people run it, on an emulated GPU.

    cuda_test.py KOLO_BENCH RANKS [MPIRUN ARGS...]

With more ranks than one they are processes, each with an emulated GPU of its own, and tensors go by way of pinned memory
(NCCL is emulated between threads only).
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path


def run(command, *flags):
    return subprocess.run([*command, *flags], capture_output=True, text=True, timeout=600, check=False)


def records(command, *flags):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "out.json"
        result = run(command, *flags, "--device", "cuda", "-n", "2", "-w", "1", "-t", "0.01", "--json", str(file))
        assert result.returncode == 0, result.stdout + result.stderr
        assert "on GPUs" in result.stdout and "# wrong values: 0;" in result.stdout, result.stdout
        return json.loads(file.read_text())


def check(rows, count, ranks, peers=()):
    assert len(rows) == count, rows
    for row in rows:
        assert row["wrong"] == 0 and row["ranks"] == ranks and row["device"] == "cuda", row
        assert set(row.get("baseline", {})) == set(peers), row
        assert all(peer["wrong"] == 0 for peer in row.get("baseline", {}).values()), row


def main():
    bench, ranks, *launcher = sys.argv[1:]
    command, ranks = [*launcher, bench], int(ranks)
    nccl = [] if launcher else ["nccl"]
    peers = ["--baseline", "nccl"] if nccl else []
    for mode, places in (("allreduce", 2), ("reduce", 2), ("broadcast", 2), ("allgather", 1), ("gather", 1),
                         ("scatter", 1), ("alltoall", 1), ("reduce_scatter", 2), ("sendrecv", 1), ("pingpong", 1)):
        check(records(command, mode, "-b", "4K", "-e", "64K", "-f", "16", *peers), 2 * places, ranks, nccl)
    check(records(command, "barrier"), 1, ranks)
    both = ["nccl-per-tensor", "nccl-grouped"] if nccl else []
    rows = records(command, "step", "--model", "many-small", "--submit", "by-name,prepared,grouped",
                   *(["--baseline", ",".join(both)] if both else []))
    check(rows, 3, ranks, both)
    assert all(0 < row["host_submit_one_us"] < row["host_step_us"] for row in rows), rows
    for flags, words in ((["overlap"], "collectives and step"), (["broadcast", "--arena"], "for allreduce"),
                         (["step", "--baseline", "mpi-packed"], "nccl-grouped"),
                         (["barrier", "--baseline", "nccl"], "no barrier")):
        result = run([bench], *flags, "--device", "cuda")
        assert result.returncode == 2 and words in result.stderr, (flags, result.returncode, result.stderr)
    print("PASS")


main()
