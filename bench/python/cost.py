#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a call from Python costs beside the same from C: 16 floats on one rank, so that the call is all there is.

usage: cost.py BUILD_DIR [--calls COUNT] [--rounds ROUNDS]

BUILD_DIR is Kolo's build tree, with kolopy. The programs in C and in Python take turns. The table
has the calling thread's CPU time, which a busy machine hardly changes: medians over the rounds, in microseconds.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROWS = ("allreduce", "allreduce_async, wait", "allreduce_async by name, wait", "prepared, run", "allgather")
HERE = pathlib.Path(__file__).resolve().parent


def measure(calls):
    """One rank of the job in Python."""
    import kolopy as kolo
    import numpy as np

    with kolo.Session():
        array = np.zeros(16, np.float32)
        prepared = kolo.prepare(kolo.Call.allreduce(array), name="prepared")
        bodies = (
            lambda: kolo.allreduce(array),
            lambda: kolo.allreduce_async(array).wait(),
            lambda: kolo.allreduce_async(array, name="w").wait(),
            prepared.run,
            lambda: kolo.allgather(array),
        )
        took = []
        for body in bodies:
            for _ in range(calls // 10):
                body()
            begun = time.thread_time()
            for _ in range(calls):
                body()
            took.append((time.thread_time() - begun) / calls)
        if kolo.rank() == 0:
            print(*(f"{1e9 * one:.0f}" for one in took))


def main():
    if sys.argv[1:2] == ["--measure"]:
        measure(int(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description="What a call from Python costs beside the same from C.")
    parser.add_argument("build_dir", type=pathlib.Path)
    parser.add_argument("--calls", type=int, default=20000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    build = arguments.build_dir.resolve()
    environment = {**os.environ, "PYTHONPATH": str(build / "python"), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="kolo-cost-") as folder:
        program = os.path.join(folder, "cost")
        include = HERE.parents[1] / "include"
        subprocess.run(["cc", "-O2", HERE / "cost.c", "-o", program, f"-I{include}", f"-L{build}",
                        f"-Wl,-rpath,{build}", "-lkolo"], check=True)
        commands = ([program], [sys.executable, __file__, "--measure"])
        found = ([], [])
        for _ in range(arguments.rounds):
            for command, results in zip(commands, found):
                done = subprocess.run([*command, str(arguments.calls)], capture_output=True, text=True,
                                      env=environment, check=True)
                results.append([float(word) / 1000 for word in done.stdout.split()])
    print("us a call | C | Python | more")
    for i, row in enumerate(ROWS):
        c, python = (statistics.median(one[i] for one in results) for results in found)
        print(f"{row} | {c:.1f} | {python:.1f} | {python - c:.1f}")


if __name__ == "__main__":
    main()
