#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kolo-bench as people run it: records, exact results, peers beside it, and sentences for wrong flags.

    kolo_bench_test.py KOLO_BENCH RANKS [MPIRUN ARGS...]
"""
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

NUMBER = (int, float)
ROOTED = ("reduce", "broadcast")
COLLECTIVE = {"collective": str, "bytes": int, "count": int, "dtype": str, "op": str, "root": int, "ranks": int,
              "nodes": int, "split": int, "in_place": bool, "contestant": str, "time_us": NUMBER, "time_p10_us": NUMBER,
              "time_p90_us": NUMBER, "samples": int, "algbw": NUMBER, "busbw": NUMBER, "wrong": int, "arena": bool,
              "device": str}
STEP = {**COLLECTIVE, "model": str, "tensors": int, "submit": str}
OVERLAP = {"collective": str, "model": str, "tensors": int, "bytes": int, "dtype": str, "op": str, "time_us": NUMBER,
           "time_p10_us": NUMBER, "time_p90_us": NUMBER, "compute_us": NUMBER, "reduce_us": NUMBER, "hidden": NUMBER,
           "wrong": int, "ranks": int, "nodes": int, "arena": bool}
MEMORY = {"collective": str, "model": str, "tensors": int, "bytes": int, "submit": str, "held_bytes": int,
          "peak_bytes": int, "wrong": int, "ranks": int, "nodes": int}
PEER = {"time_us": NUMBER, "time_p10_us": NUMBER, "time_p90_us": NUMBER, "ratio": NUMBER, "ratio_p10": NUMBER,
        "ratio_p90": NUMBER, "wrong": int}


def run(command, *flags):
    return subprocess.run([*command, *flags], capture_output=True, text=True, timeout=600, check=False)


def records(command, *flags):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "out.json"
        result = run(command, *flags, "-n", "2", "-w", "1", "-t", "0.05", "--json", str(file))
        assert result.returncode == 0, result.stdout + result.stderr
        return json.loads(file.read_text())


def check_types(record, types):
    for key, kind in types.items():
        assert isinstance(record.get(key), kind), (key, record)
        assert isinstance(record[key], bool) == (kind is bool), (key, record)
    unknown = record.keys() - types.keys() - {"baseline"}
    assert not unknown, unknown


def check_record(record, types, ranks, peers=()):
    check_types(record, types)
    assert record["ranks"] == ranks and record["wrong"] == 0, record
    assert set(record.get("baseline", {})) == set(peers), record
    if "time_us" in types:
        assert 0 < record["time_p10_us"] <= record["time_us"] <= record["time_p90_us"], record
    for peer in record.get("baseline", {}).values():
        assert peer["wrong"] == 0 and abs(peer["ratio"] - peer["time_us"] / record["time_us"]) < 1e-9, record
        if types is not OVERLAP:
            check_types(peer, PEER)


def check_collectives(command, ranks, peers):
    names = ["mpi"] if peers else []
    baseline = ["--baseline", "mpi"] if peers else []
    rows = records(command, "allreduce", "-b", "48K", "-e", "3M", "-f", "8", "-d", "float32,int8", "-o", "sum,max",
                   *baseline)
    assert len(rows) == 2 * 2 * 3 * 2, len(rows)  # dtypes, operations, sizes, places
    assert {row["bytes"] for row in rows} == {48 << 10, 384 << 10, 3 << 20}
    for row in rows:
        check_record(row, COLLECTIVE, ranks, names)
        assert abs(row["busbw"] - row["algbw"] * 2 * (ranks - 1) / ranks) < 1e-9, row
    for mode, places in (("reduce", 2), ("broadcast", 2), ("allgather", 1), ("alltoall", 1), ("reduce_scatter", 2)):
        rows = records(command, mode, "-b", "1", "-e", "100K", "-f", "300", *baseline)
        assert len(rows) == 3 * places, rows
        for row in rows:
            check_record(row, COLLECTIVE, ranks, names)
            assert row["collective"] == mode and row["root"] == (0 if mode in ROOTED else -1), row
            factor = 1 if mode in ROOTED else (ranks - 1) / ranks
            assert abs(row["busbw"] - row["algbw"] * factor) < 1e-9, row
    for mode in ("gather", "scatter", "sendrecv", "pingpong"):
        rows = records(command, mode, "-b", "1", "-e", "100K", "-f", "300", *baseline)
        assert len(rows) == 3, rows
        for row in rows:
            check_record(row, COLLECTIVE, ranks, names)
    for row in records(command, "barrier", *baseline):
        check_record(row, COLLECTIVE, ranks, names)
    for row in records(command, "join"):
        check_record(row, COLLECTIVE, ranks)
    for row in records(command, "allreduce", "-b", "4", "-e", "1M", "-f", "512", "--arena", *baseline):
        check_record(row, COLLECTIVE, ranks, names)
        assert row["arena"], row
    for mode in ("allreduce", "gather", "alltoall", "barrier"):
        for split in (split for split in (1, 2) if ranks % split == 0):
            rows = records(command, mode, "-b", "1K", "-e", "64K", "-f", "64", "--split", str(split), *baseline)
            for row in rows:
                check_record(row, COLLECTIVE, ranks, names)
                assert row["split"] == split, row
    rows = records(command, "allreduce", "-b", "1K", "-e", "1K", "-d", "all", "-o", "all")
    assert len(rows) == 2 * (13 * 4 + 4), len(rows)  # averages of floats only
    for row in rows:
        check_record(row, COLLECTIVE, ranks)


def check_steps(command, ranks, peers):
    names = ["mpi-per-tensor", "mpi-packed"] if peers else []
    baseline = ["--baseline", ",".join(names)] if peers else []
    with tempfile.TemporaryDirectory() as folder:
        shapes = Path(folder) / "shapes"
        shapes.write_text("# a small model\n64 3 7 7\n64\n1000 64\n")
        model = ["--shapes", str(shapes)]
        ways = ["by-name", "prepared", "grouped"]
        for op in ("average", "sum"):
            rows = records(command, "step", *model, "--submit", ",".join(ways), "-o", op, *baseline)
            assert [row["submit"] for row in rows] == ways, rows
            for row in rows:
                check_record(row, STEP, ranks, names)
                assert not row["arena"] and row["tensors"] == 3 and row["count"] == 64 * 147 + 64 + 64000 and row["op"] == op, row
        (row,) = records(command, "step", *model, "--arena", "--submit", "prepared", *baseline)
        check_record(row, STEP, ranks, names)
        assert row["arena"], row
        (row,) = records(command, "overlap", *model, *(baseline and ["--baseline", "mpi-per-tensor"]))
        check_record(row, OVERLAP, ranks, names[:1])
        (row,) = records(command, "overlap", *model, "--timeline", "--arena")
        check_timeline(row.pop("timeline"), [4 * 64000, 4 * 64, 4 * 64 * 147])
        check_record(row, OVERLAP, ranks)
        (row,) = records(command, "memory", *model)
        check_record(row, MEMORY, ranks)
        shapes.write_text("64 x\n")
        result = run(command, "step", *model)
        assert result.returncode == 2 and "shapes:1" in result.stderr, result.stderr


def check_timeline(timeline, sizes):
    """Gradients in backward order, each submitted before it is done."""
    check_types(timeline, {"bytes": list, "submitted_us": list, "done_us": list, "end_us": NUMBER})
    assert timeline["bytes"] == sizes, timeline
    submitted, done = timeline["submitted_us"], timeline["done_us"]
    assert len(done) == len(sizes) and submitted == sorted(submitted) and submitted[0] >= 0, timeline
    assert all(begin <= end for begin, end in zip(submitted, done)), timeline
    assert submitted[-1] <= timeline["end_us"], timeline


def check_peer_alone(command, ranks):
    (peer,) = records(command, "allreduce", "-b", "4K", "-e", "4K", "--place", "in", "--baseline", "mpi", "--peer-only")
    check_record(peer, COLLECTIVE, ranks)
    assert peer["contestant"] == "mpi", peer
    rows = records(command, "step", "--model", "many-small", "--baseline", "mpi-packed,mpi-per-tensor", "--peer-only")
    assert rows[0]["contestant"] == "mpi-packed" and set(rows[0]["baseline"]) == {"mpi-per-tensor"}, rows


def check_turns(command):
    """Two jobs that measure in turns: both end, with as many rows."""
    with tempfile.TemporaryDirectory() as folder:
        common = ["allreduce", "-b", "4K", "-e", "64K", "-f", "4", "-t", "0.05", "-n", "2", "--baseline", "mpi"]
        jobs = [subprocess.Popen([*command, *common, "--turn", f"{i}/2:{folder}", "--json", f"{folder}/{i}.json",
                                  *(["--peer-only"] if i else [])], stdout=subprocess.DEVNULL) for i in range(2)]
        assert [job.wait(timeout=600) for job in jobs] == [0, 0]
        rows = [json.loads(Path(f"{folder}/{i}.json").read_text()) for i in range(2)]
        assert [row["bytes"] for row in rows[0]] == [row["bytes"] for row in rows[1]] and len(rows[0]) == 6, rows


def check_interrupt(command):
    """Ctrl-C ends every rank, and what was measured is told."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "out.json"
        flags = ["allreduce", "-b", "4", "-e", "4M", "-f", "1024", "-n", "1000000000", "-t", "0.5", "--json", str(file)]
        job = subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not job.stdout.readline().lstrip().startswith("4 "):  # the first row is done, the next under way
            assert job.poll() is None
        job.send_signal(signal.SIGINT)
        _, errors = job.communicate(timeout=600)
        assert job.returncode != 0 and "interrupted" in errors, (job.returncode, errors)
        assert json.loads(file.read_text())[0]["bytes"] == 4


def check_bad_flags(command):
    """Which flags are wrong, and what is said of them: tests/bench. Here: what only a job knows, and the exit code."""
    for flags, word in ((["alreduce"], "allreduce, reduce, broadcast"), (["broadcast", "-r", "99"], "rank"),
                        (["allreduce", "--baseline", "mpi"], "mpirun")):
        result = run(command, *flags)
        assert result.returncode == 2 and word in result.stderr, (flags, result.returncode, result.stderr)


def check_lost_json(command):
    """Whoever cannot write the records says so before anything is measured."""
    result = run(command, "allreduce", "--json", "/no/such/folder/out.json")
    assert result.returncode != 0 and result.stdout == "", (result.returncode, result.stdout)
    assert "kolo-bench: --json: '/no/such/folder/out.json' cannot be written (see --help)" in result.stderr, result.stderr


def check_latency(command, ranks):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "out.json"
        result = run(command, "latency", "-n", "2", "-w", "1", "-t", "0.05", "--json", str(file))
        assert result.returncode == 0, result.stdout + result.stderr
        rows = [line.split() for line in result.stdout.splitlines() if not line.startswith("#")]
        assert [row[-1] for row in rows] == ["latency", "latency-callback"], result.stdout
        for row in json.loads(file.read_text()):
            check_record(row, COLLECTIVE, ranks)


def main():
    bench, ranks, *launcher = sys.argv[1:]
    command = [*launcher, bench]
    check_collectives(command, int(ranks), bool(launcher))
    check_steps(command, int(ranks), bool(launcher))
    check_latency(command, int(ranks))
    check_lost_json(command)
    check_interrupt(command)
    if launcher:
        check_peer_alone(command, int(ranks))
        check_turns(command)
    else:
        check_bad_flags(command)
        assert run(command, "--help").returncode == 0 and "busbw" in run(command, "--help").stdout
    print("PASS")


main()
