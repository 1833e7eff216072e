#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files that a job writes on the side (a timeline, metrics): only regular ones, never through a link, and a job without
them ends in order.

usage: files_test.py WHY_JOB KOLO_RUN
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

WHY_JOB, KOLO_RUN = sys.argv[1:3]
RANKS = 2


class Files(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="kolo-files-")
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)

    def run_job(self, **variables):
        """What the job says, without times."""
        done = subprocess.run([KOLO_RUN, "-np", str(RANKS), WHY_JOB, "fine"], capture_output=True, text=True, check=False,
                              timeout=600, env={**os.environ, "KOLO_RECORDER": "off", **variables})
        self.assertEqual(done.returncode, 0, done.stderr)
        return sorted(re.sub(r"\d\d:\d\d:\d\d\.\d+", "T", line) for line in done.stderr.splitlines())

    def others(self):
        """Paths of what is no regular file, and what it is called."""
        (self.folder / "victim").write_text("mine")
        (self.folder / "link").symlink_to("victim")
        os.mkfifo(self.folder / "fifo")
        return {"link": "a symbolic link", "fifo": "a FIFO"}

    def test_a_timeline_is_a_regular_file(self):
        for name, kind in self.others().items():
            self.assertEqual(self.run_job(KOLO_TIMELINE=f"{self.folder}/{name}"),
                             [f"[kolo 0 warning T] there is no timeline (KOLO_TIMELINE): kolo: rank 0: {self.folder}/{name}: "
                              f"is {kind}, no regular file"])
        self.assertEqual((self.folder / "victim").read_text(), "mine")

    def test_metrics_are_a_regular_file(self):
        for name, kind in self.others().items():
            self.assertEqual(self.run_job(KOLO_METRICS_FILE=f"{self.folder}/{name}"),
                             [f"[kolo 0 warning T] metrics are written no more (KOLO_METRICS_FILE): kolo: {self.folder}/{name}: "
                              f"is {kind}, no regular file"])
        self.assertEqual((self.folder / "victim").read_text(), "mine")
        self.assertTrue((self.folder / "fifo").is_fifo())

    def test_they_are_whole_and_nothing_is_beside_them(self):
        self.assertEqual(self.run_job(KOLO_TIMELINE=f"{self.folder}/run.json", KOLO_METRICS_FILE=f"{self.folder}/%r.prom"), [])
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["0.prom", "1.prom", "run.json"])
        json.loads((self.folder / "run.json").read_text())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
