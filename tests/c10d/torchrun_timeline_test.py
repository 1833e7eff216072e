#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The timeline of a job that torchrun starts: whole, and of one clock.

usage: torchrun_timeline_test.py      needs kolo_torch on the path (PYTHONPATH)
"""

import os
import pathlib
import sys
import tempfile
import unittest

from ranks import torchrun

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tools"))
import timelines  # noqa: E402

SIZE, STEPS = 2, 5


def train():
    """A rank."""
    import torch
    import torch.distributed as dist

    import kolo_torch  # noqa: F401

    dist.init_process_group("kolo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    for _ in range(STEPS):
        model(torch.ones(8, 64)).sum().backward()
    dist.barrier()
    dist.destroy_process_group()


class Timeline(unittest.TestCase):
    def test_of_torchrun(self):
        with tempfile.TemporaryDirectory(prefix="kolo-timeline-") as folder:
            os.environ["KOLO_TIMELINE"] = f"{folder}/run.json"
            torchrun(SIZE, __file__, "--rank")
            events = timelines.read(f"{folder}/run.json")
        for rank in range(SIZE):
            found = [event for event in events if event["pid"] == rank and event["name"] == "allreduce"]
            self.assertGreaterEqual(sum(event["args"]["requests"] for event in found), STEPS)
        timelines.check_clocks(self, events, SIZE)


if __name__ == "__main__":
    if "--rank" in sys.argv:
        train()
    else:
        unittest.main()
