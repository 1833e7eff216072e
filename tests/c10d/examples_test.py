#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples of examples/pytorch train the digits on several processes as well as on one.

usage: examples_test.py      needs kolo_torch on the path (PYTHONPATH)

Prints the accuracies.
"""

import pathlib
import re
import sys

import torch

from ranks import torchrun

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "pytorch"


def accuracy(example, ranks):
    printed = torchrun(ranks, str(FOLDER / example))
    print(f"{example}: {printed.strip()}", flush=True)
    return float(re.search(rf"^{ranks} ranks\b.*: accuracy ([0-9.]+) %$", printed, re.MULTILINE)[1])


def main():
    examples = {"horovod_style.py": (1, 4), "ddp.py": (1, 2), "fsdp2.py": (1, 2)}
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
        del examples["fsdp2.py"]
        print("fsdp2.py: left out: FSDP2 is in no PyTorch before 2.6")
    for example, sizes in examples.items():
        alone, together = (accuracy(example, ranks) for ranks in sizes)
        assert together > 95 and abs(together - alone) < 1, f"{example}: {together} beside {alone}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
