#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kolo-bench as people run it: records, exact results, peers beside it, and sentences for wrong flags.

    kolo_bench_test.py KOLO_BENCH RANKS [MPIRUN ARGS...]
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

FIELDS = {"collective", "bytes", "count", "dtype", "op", "ranks", "nodes", "in_place", "time_us", "time_p10_us",
          "time_p90_us", "algbw", "busbw", "wrong"}


def run(command, *flags):
    return subprocess.run([*command, *flags], capture_output=True, text=True, timeout=100, check=False)


def records(command, *flags):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "out.json"
        result = run(command, *flags, "-n", "2", "-w", "1", "-t", "0.05", "--json", str(file))
        assert result.returncode == 0, result.stdout + result.stderr
        return json.loads(file.read_text())


def check_records(command, ranks, peers):
    baseline = ["--baseline", "mpi"] if peers else []
    rows = records(command, "allreduce", "-b", "48K", "-e", "3M", "-f", "8", "-d", "float32,int8", "-o", "sum,max",
                   *baseline)
    assert len(rows) == 2 * 2 * 3 * 2, len(rows)  # dtypes, operations, sizes, places
    for row in rows:
        assert FIELDS <= row.keys(), row
        assert row["ranks"] == ranks and row["wrong"] == 0 and row["time_us"] > 0, row
        assert row["time_p10_us"] <= row["time_us"] <= row["time_p90_us"], row
        assert abs(row["busbw"] - row["algbw"] * 2 * (ranks - 1) / ranks) < 1e-9, row
        if peers:
            assert row["baseline"]["mpi"]["wrong"] == 0 and row["baseline"]["mpi"]["ratio"] > 0, row
    assert {row["bytes"] for row in rows} == {48 << 10, 384 << 10, 3 << 20}
    for mode in ("broadcast", "allgather", "alltoall", "reduce_scatter"):
        for row in records(command, mode, "-b", "1", "-e", "100K", "-f", "300", *baseline):
            assert row["wrong"] == 0 and row["collective"] == mode, row
    halves = records(command, "allreduce", "-b", "1K", "-e", "1K", "-d", "float16,bfloat16,bool", "-o", "min,product")
    assert all(row["wrong"] == 0 for row in halves), halves


def check_steps(command, peers):
    baseline = ["--baseline", "mpi-per-tensor,mpi-packed"] if peers else []
    with tempfile.TemporaryDirectory() as folder:
        shapes = Path(folder) / "shapes"
        shapes.write_text("# a small model\n64 3 7 7\n64\n1000 64\n")
        for submit in ("by-name", "prepared", "grouped"):
            (row,) = records(command, "step", "--shapes", str(shapes), "--submit", submit, *baseline)
            assert row["tensors"] == 3 and row["count"] == 64 * 147 + 64 + 64000 and row["wrong"] == 0, row
            assert set(row.get("baseline", {})) == ({"mpi-per-tensor", "mpi-packed"} if peers else set()), row
        shapes.write_text("64 x\n")
        result = run(command, "step", "--shapes", str(shapes))
        assert result.returncode == 2 and "shapes:1" in result.stderr, result.stderr


def check_bad_flags(command):
    for flags, word in ((["allreduce", "-b", "3X"], "48K"), (["alreduce"], "allreduce, broadcast"), ([], "mode"),
                        (["allreduce", "-d", "float31"], "float32"), (["step", "--model", "vgg"], "resnet50"),
                        (["step", "--baseline", "mpi"], "mpi-per-tensor"), (["allreduce", "-f", "1"], "-i"),
                        (["allreduce", "--nonsense"], "nonsense"), (["broadcast", "-r", "99"], "rank"),
                        (["allreduce", "--baseline", "mpi"], "mpirun")):
        result = run(command, *flags)
        assert result.returncode == 2 and word in result.stderr, (flags, result.returncode, result.stderr)


def main():
    bench, ranks, *launcher = sys.argv[1:]
    command = [*launcher, bench]
    check_records(command, int(ranks), bool(launcher))
    check_steps(command, bool(launcher))
    assert records(command, "latency")[0]["wrong"] == 0
    if launcher:
        (peer,) = records(command, "allreduce", "-b", "4K", "-e", "4K", "--place", "in", "--baseline", "mpi",
                          "--peer-only")
        assert peer["wrong"] == 0 and peer["ranks"] == int(ranks) and "baseline" not in peer, peer
    else:
        check_bad_flags(command)
        assert run(command, "--help").returncode == 0 and "busbw" in run(command, "--help").stdout
    print("PASS")


main()
