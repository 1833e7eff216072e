#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torchrun starts a job again when a worker dies, and the job ends as one that nobody disturbed: on one machine, and on
two hosts made of network namespaces, where scripts/with hosts can make them (as root, with iproute2).

usage: elastic_test.py      needs kolo_torch on the path (PYTHONPATH)
"""

import os
import pathlib
import sys
import tempfile

import torch

from ranks import can_make_hosts, torchrun

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "pytorch" / "elastic.py"
EPOCHS = 3


def run(hosts, checkpoint, *arguments):
    """What the job prints, and what it has saved."""
    job = ["--max_restarts", "1", str(EXAMPLE), "--epochs", str(EPOCHS), "--checkpoint", checkpoint, *arguments]
    return torchrun(2, *job, hosts=hosts), torch.load(checkpoint)


def check(hosts):
    with tempfile.TemporaryDirectory(prefix="kolo-elastic-") as folder:
        printed, undisturbed = run(hosts, os.path.join(folder, "undisturbed"))
        assert f"2 ranks, epochs 0 to {EPOCHS}: accuracy" in printed, printed
        printed, disturbed = run(hosts, os.path.join(folder, "disturbed"), "--kill-in-epoch", "2")
        assert f"2 ranks, epochs 2 to {EPOCHS}: accuracy" in printed, printed
    for name, parameter in undisturbed["model"].items():
        assert torch.equal(parameter, disturbed["model"][name]), name


def main():
    check(hosts=1)
    print("a job whose worker died ended as one that nobody disturbed: passed")
    if can_make_hosts():
        check(hosts=2)
        print("the same on two hosts: passed")
    else:
        print("the same on two hosts: skipped, needs root and iproute2 to make them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
