#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kolo-info --devices in a build with CUDA, with an NVML that knows four GPUs, and without any.

usage: devices_test.py KOLO_INFO NVML     NVML: the emulated libnvidia-ml.so.1
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

KOLO_INFO, NVML = sys.argv[1], Path(sys.argv[2])


def uuid(number):
    return f"GPU-3{number}656d75-6c61-7465-6420-646576696365"


def run(folder, *flags, visible=None):
    environment = {k: v for k, v in os.environ.items() if k not in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")}
    environment["LD_LIBRARY_PATH"] = f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    done = subprocess.run([KOLO_INFO, "--devices", *flags], env=environment, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


class Devices(unittest.TestCase):
    def test_shows_both_numbers(self):
        lines = run(NVML.parent, visible="2,GPU-30").splitlines()
        self.assertEqual(lines[:3], [
            "GPUs of this machine: 4, driver 580.82.07",
            'CUDA_VISIBLE_DEVICES is "2,GPU-30": "GPU-30" is of another kind than "2"; CUDA ends the list there',
            "  machine  process  memory    free     name             UUID"])
        self.assertEqual([line.split()[:2] for line in lines[3:]],
                         [["0", "hidden"], ["1", "hidden"], ["2", "cuda:0"], ["3", "hidden"]])
        self.assertTrue(lines[5].endswith(f"  1024 MiB  512 MiB  Emulated device  {uuid(2)}"), lines[5])

    def test_json(self):
        rows = json.loads(run(NVML.parent, "--json", visible=f"{uuid(3)},GPU-31"))["devices"]
        self.assertEqual([row["process_number"] for row in rows], [None, 1, None, 0])
        self.assertEqual(rows[3], {"machine_number": 3, "process_number": 0, "name": "Emulated device", "uuid": uuid(3),
                                   "memory_bytes": 1 << 30, "free_bytes": 1 << 29, "driver": "580.82.07"})

    def test_not_set_shows_all(self):
        self.assertEqual(run(NVML.parent).splitlines()[1], "CUDA_VISIBLE_DEVICES is not set: CUDA shows all of them")

    def test_says_that_there_is_none(self):
        with tempfile.TemporaryDirectory() as folder:  # found before a driver's that works
            Path(folder, NVML.name).write_text("no library", encoding="utf-8")
            lines = run(folder).splitlines()
            self.assertEqual(lines[0], "No CUDA-compatible GPU found.")
            self.assertRegex(lines[1], r"^  no NVIDIA driver is installed \(.*libnvidia-ml\.so\.1: .*\)$")
            self.assertEqual(json.loads(run(folder, "--json")), {"devices": []})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
