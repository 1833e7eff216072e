#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torchrun starts a job again when a worker dies, and the job ends as one that nobody disturbed: on one machine, and on
two hosts made of network namespaces, where scripts/with-hosts can make them (as root, with iproute2).

usage: elastic_test.py      needs kolo_torch on the path (PYTHONPATH)
"""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

import torch

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "pytorch" / "elastic.py"
EPOCHS = 3


def on_one_machine(job):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [*torchrun, "--max-restarts", "1", *job]


def on_two_hosts(job):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    torchrun += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "host1:29500", "--max-restarts", "1", *job]
    return [str(ROOT / "scripts" / "with-hosts"), "2", "--each", shlex.join(torchrun)]


def run(command_of, checkpoint, *arguments):
    """What the job prints, and what it has saved."""
    command = command_of([str(EXAMPLE), "--epochs", str(EPOCHS), "--checkpoint", checkpoint, *arguments])
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout, torch.load(checkpoint)


def check(command_of):
    with tempfile.TemporaryDirectory(prefix="kolo-elastic-") as folder:
        printed, undisturbed = run(command_of, os.path.join(folder, "undisturbed"))
        assert f"2 ranks, epochs 0 to {EPOCHS}: accuracy" in printed, printed
        printed, disturbed = run(command_of, os.path.join(folder, "disturbed"), "--kill-in-epoch", "2")
        assert f"2 ranks, epochs 2 to {EPOCHS}: accuracy" in printed, printed
    for name, parameter in undisturbed["model"].items():
        assert torch.equal(parameter, disturbed["model"][name]), name


def main():
    check(on_one_machine)
    print("a job whose worker died ended as one that nobody disturbed: passed")
    if os.geteuid() == 0 and shutil.which("ip"):
        check(on_two_hosts)
        print("the same on two hosts: passed")
    else:
        print("the same on two hosts: skipped, needs root and iproute2 to make them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
