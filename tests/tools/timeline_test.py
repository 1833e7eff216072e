#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Timelines of jobs on several processes: whole, and of one clock. (Ranks as threads: tests/worlds/looking_test.cpp;
torchrun: tests/c10d/torchrun_timeline_test.py; a job that is killed: kolo_why_test.py.)

usage: timeline_test.py WHY_JOB RANKS COMMAND...         a job of one machine; COMMAND starts it: mpirun -np 3
       timeline_test.py WHY_JOB RANKS hosts WITH_HOSTS   on as many hosts, made by scripts/with hosts
"""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import timelines

WHY_JOB, RANKS, COMMAND = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
TENSORS, STEPS = ("layer1.weight", "layer2.weight"), 10


def command_of():
    if COMMAND[0] != "hosts":
        return [*COMMAND, WHY_JOB, "fine"]
    shell = f"exec $KOLO_MPIRUN -x KOLO_TIMELINE -x KOLO_RECORDER -np {RANKS} {WHY_JOB} fine"
    return [COMMAND[1], str(RANKS), "--slots", "1", "--shell", shell]


class Timeline(unittest.TestCase):
    def check_picture(self, file, picture):
        tool = Path(__file__).resolve().parents[2] / "src/tools/kolo-timeline"
        said = subprocess.run([tool, file, picture], check=True, capture_output=True, text=True).stdout
        self.assertIn(f"of step {STEPS - 1}", said)
        drawn = picture.read_text(encoding="utf-8")
        for rank in range(RANKS):
            self.assertIn(f">rank {rank}</text>", drawn)

    def test_it_is_whole_and_of_one_clock(self):
        with tempfile.TemporaryDirectory(prefix="kolo-timeline-") as folder:
            subprocess.run(command_of(), check=True, stdout=subprocess.DEVNULL,
                           env={**os.environ, "KOLO_TIMELINE": f"{folder}/run.json", "KOLO_RECORDER": f"{folder}/recorders"})
            files = sorted(Path(folder).glob("run.json*"))
            # The hosts share a clock, and a file system: each writes to a file of its own.
            self.assertEqual(len(files), RANKS if COMMAND[0] == "hosts" else 1)
            events = timelines.read(*files)
            if len(files) == 1:
                self.check_picture(files[0], Path(folder) / "step.svg")
        timelines.check_whole(self, events, RANKS, TENSORS, STEPS)
        timelines.check_clocks(self, events, RANKS)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
