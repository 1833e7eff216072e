#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples of examples/pytorch train the digits on several processes as well as on one.

usage: examples_test.py      needs kolo_torch on the path (PYTHONPATH)

Prints the accuracies.
"""

import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "pytorch"


def accuracy(example, ranks):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    result = subprocess.run([*command, str(FOLDER / example)], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    print(f"{example}: {result.stdout.strip()}", flush=True)
    return float(re.search(rf"^{ranks} ranks\b.*: accuracy ([0-9.]+) %$", result.stdout, re.MULTILINE)[1])


def main():
    for example, sizes in (("horovod_style.py", (1, 4)), ("ddp.py", (1, 2)), ("fsdp2.py", (1, 2))):
        alone, together = (accuracy(example, ranks) for ranks in sizes)
        assert together > 95 and abs(together - alone) < 1, f"{example}: {together} beside {alone}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
