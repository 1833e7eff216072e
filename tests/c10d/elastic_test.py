#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torchrun starts a job again when a worker dies, and the job ends as one that nobody disturbed.

usage: elastic_test.py      needs kolo_torch on the path (PYTHONPATH)
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import torch

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "pytorch" / "elastic.py"


def run(folder, name, *arguments):
    """What the job prints, and what it has saved."""
    checkpoint = os.path.join(folder, name)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--max-restarts", "1", str(EXAMPLE), "--epochs", "3", "--checkpoint", checkpoint, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout, torch.load(checkpoint)


def main():
    with tempfile.TemporaryDirectory(prefix="kolo-elastic-") as folder:
        printed, undisturbed = run(folder, "undisturbed")
        assert "2 ranks, epochs 0 to 3: accuracy" in printed, printed
        printed, disturbed = run(folder, "disturbed", "--kill-in-epoch", "2")
        assert "2 ranks, epochs 2 to 3: accuracy" in printed, printed
        for name, parameter in undisturbed["model"].items():
            assert torch.equal(parameter, disturbed["model"][name]), name
    print("a job whose worker died ended as one that nobody disturbed: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
