#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What programs of a build with CUDA say where no device is visible: `no CUDA device`, and why.

usage: no_cuda_device_test.py NO_CUDA_DEVICE KOLO_INFO CUDA_TRAINER PROGRAMS

CUDA_TRAINER may be empty; kolo-bench is looked for in the folder PROGRAMS.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ENVIRONMENT = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}


def run(*command):
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=600, check=False)


def must_refuse(status, *command):
    result = run(*command)
    assert result.returncode == status, (command, result.returncode, result.stdout, result.stderr)
    assert "no CUDA device: " in result.stderr, (command, result.stderr)


def main():
    program, kolo_info, trainer, programs = sys.argv[1:]

    result = run(program)
    assert result.returncode == 0, result.stdout + result.stderr
    for line in result.stdout.splitlines():
        assert "no CUDA device: " in line, line
    assert len(result.stdout.splitlines()) == 5, result.stdout

    result = run(kolo_info)
    assert result.returncode == 0 and "CUDA backend: no CUDA device: " in result.stdout, result.stdout
    assert "no CUDA device" in json.loads(run(kolo_info, "--json").stdout)["ranks"][0]["machine"]["gpu"]

    if trainer:
        must_refuse(1, f"{programs}/{trainer}")
    if Path(programs, "kolo-bench").exists():
        for flags in (["allreduce"], ["step"], ["broadcast", "--baseline", "nccl"]):
            must_refuse(2, f"{programs}/kolo-bench", *flags, "--device", "cuda")
    print("PASS")


main()
