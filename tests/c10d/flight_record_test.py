#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job of kolo_torch in which one rank is late, as PyTorch's flight recorder shows it: `kolo-why --fr-trace` writes what
the ranks did, and `torchfrtrace`, where this PyTorch has it, names the rank.

usage: flight_record_test.py KOLO_WHY      needs kolo_torch on the path (PYTHONPATH)
"""

import importlib.util
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

import kolo_torch  # noqa: F401
from ranks import Ranks

SIZE, LATE = 3, 1


def train(rank, size, folder):
    """Three steps. The late rank computes for ever in the fourth."""
    dist.init_process_group("kolo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    for step in range(4):
        if step == 3 and rank == LATE:
            (pathlib.Path(folder) / "late").touch()
            while True:
                time.sleep(1)
        model(torch.ones(8, 64)).sum().backward()


def wait_until_explained(kolo_why, recorders):
    """Until kolo-why says who is late; ctest ends a test in which it never does."""
    while True:
        said = subprocess.run([kolo_why, recorders], capture_output=True, text=True, check=False).stdout
        if said.partition("\n")[0].endswith(": late"):
            return said
        time.sleep(0.1)


def check_dump(folder):
    dumps = {}
    for rank in range(SIZE):
        dumps[rank] = pickle.loads((pathlib.Path(folder) / f"kolo_rank_{rank}").read_bytes())
        assert dumps[rank]["version"] == "2.10", dumps[rank]
        assert dumps[rank]["pg_config"]["0"] == {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}, dumps[rank]
    numbers = {rank: {entry["collective_seq_id"] for entry in dump["entries"]} for rank, dump in dumps.items()}
    missing = numbers[0] - numbers[LATE]
    assert len(missing) == 1 and numbers[0] == numbers[2] and numbers[LATE] <= numbers[0], numbers
    (last,) = (entry for entry in dumps[0]["entries"] if entry["collective_seq_id"] in missing)
    assert last["profiling_name"] == "c10d:all_reduce" and last["state"] == "scheduled", last
    assert last["input_sizes"] == [[4 * (64 * 64 + 64)]], last
    others = [entry["state"] for entry in dumps[0]["entries"] if entry is not last]
    assert set(others) <= {"completed"}, others


def check_torchfrtrace(folder):
    done = subprocess.run([sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", folder],
                          capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "Not all ranks joining collective" in said and f"missing ranks: {{{LATE}}}" in said, said
    print(said)


def main():
    kolo_why = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="kolo-flight-") as folder:
        recorders = f"{folder}/recorders"
        os.environ["KOLO_RECORDER"] = recorders
        ranks = Ranks(SIZE, train)
        print(wait_until_explained(kolo_why, recorders))
        subprocess.run([kolo_why, "--fr-trace", f"{folder}/traces", recorders], stdout=subprocess.DEVNULL, check=False)
        for pid in ranks.pids:
            os.kill(pid, 9)
        ranks.wait()
        check_dump(f"{folder}/traces")
        if importlib.util.find_spec("torch.distributed.flight_recorder") is None:
            print("the dump says who is late: passed. (PyTorch has no torchfrtrace here.)")
            return 0
        check_torchfrtrace(f"{folder}/traces")
    print("torchfrtrace says who is late: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
