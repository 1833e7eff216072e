#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Saves a checkpoint and reads every part with PyPI's safetensors, which needs numpy.

usage: safetensors_test.py JOB

JOB is saving_job, which writes in each number to which step it belongs (its own file says how).
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy
import safetensors
from safetensors.numpy import load_file


def check(path):
    with open(os.path.join(path, "index.json"), encoding="utf-8") as file:
        index = json.load(file)
    parts = {}
    for file in index["files"]:
        parts[file["name"]] = load_file(os.path.join(path, file["name"]))
        with safetensors.safe_open(os.path.join(path, file["name"]), "numpy") as opened:
            assert opened.metadata()["format"] == "kolo", opened.metadata()
    step = index["numbers"]["program/step"]
    tensors, pieces = 0, 0
    for tensor in index["tensors"]:
        row = numpy.concatenate([parts[piece["file"]].pop(tensor["name"]).reshape(-1)
                                 for piece in sorted(tensor["pieces"], key=lambda piece: piece["first"])])
        assert row.dtype == tensor["dtype"] and list(row.reshape(tensor["shape"]).shape) == tensor["shape"], tensor
        if tensor["name"].startswith("parameters/"):
            numpy.testing.assert_array_equal(row, step * 100 + numpy.arange(row.size) % 97)
        elif tensor["name"].startswith(("optimizer/mean/", "optimizer/square/")):
            numpy.testing.assert_array_equal(row, step * 100)
        elif tensor["name"] == "program/step":
            assert row == [step]
        tensors, pieces = tensors + 1, pieces + len(tensor["pieces"])
    assert not any(parts.values()), "a file has what the index does not list"
    return tensors, pieces, len(parts)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n\n")[1])
    for ranks in 1, 2, 3, 4:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "checkpoint")
            subprocess.run([sys.argv[1], path, str(ranks), "1", "--once"], check=True, stdout=subprocess.DEVNULL)
            tensors, pieces, files = check(path)
            print(f"safetensors {safetensors.__version__}, {ranks} ranks: {tensors} tensors in {pieces} pieces, "
                  f"{files} files")


if __name__ == "__main__":
    main()
