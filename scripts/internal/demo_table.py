# SPDX-License-Identifier: Apache-2.0
"""The table at the end of scripts/demo, and its verdict.

usage: demo_table.py RESULTS_DIR SEEDS     reads <one|mpirun|threads>-<seed>.json; exit status 1 when a promise is broken
"""

import json
import sys
from pathlib import Path

RUNS = [("one", "1 rank", 1), ("mpirun", "4 ranks, mpirun", 4), ("threads", "4 ranks, threads", 4)]
LEAST_ACCURACY = 0.96


def row(cells):
    print(f"{cells[0]:<18} {cells[1]:>4} {cells[2]:>9} {cells[3]:>8} {cells[4]:>9}  {cells[5]:<13} {cells[6]}")


def main():
    folder, seeds = Path(sys.argv[1]), range(1, int(sys.argv[2]) + 1)
    results = {(run, seed): json.loads((folder / f"{run}-{seed}.json").read_text(encoding="utf-8"))
               for run, _, _ in RUNS for seed in seeds}
    faults = []
    row(("", "seed", "accuracy", "seconds", "images/s", "ranks equal", "weights"))
    for run, title, ranks in RUNS:
        for seed in seeds:
            result = results[run, seed]
            row((title, seed, f"{100 * result['accuracy']:.1f} %", f"{result['seconds']:.2f}",
                 f"{result['images_per_second']:.0f}", "yes" if result["all_ranks_equal"] else "NO",
                 result["weights_hash"]))
            if result["ranks"] != ranks:
                faults.append(f"{title}, seed {seed}: ran on {result['ranks']} ranks")
            if not result["all_ranks_equal"]:
                faults.append(f"{title}, seed {seed}: ranks hold different weights")
        values = [results[run, seed] for seed in seeds]
        mean = {key: sum(v[key] for v in values) / len(values) for key in ("accuracy", "seconds", "images_per_second")}
        row((title, "mean", f"{100 * mean['accuracy']:.1f} %", f"{mean['seconds']:.2f}",
             f"{mean['images_per_second']:.0f}", "", ""))
        if mean["accuracy"] < LEAST_ACCURACY:
            faults.append(f"{title}: mean accuracy {100 * mean['accuracy']:.1f} % is below {100 * LEAST_ACCURACY:.0f} %")
    different = [s for s in seeds if results["mpirun", s]["weights_hash"] != results["threads", s]["weights_hash"]]
    faults += [f"seed {seed}: mpirun and threads trained different weights" for seed in different]
    print()
    print(f"mpirun and threads hold the same weights: {'no' if different else 'yes, with every seed'}")
    for fault in faults:
        print(f"FAULT: {fault}")
    return 1 if faults else 0


sys.exit(main())
