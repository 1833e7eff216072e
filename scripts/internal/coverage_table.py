# SPDX-License-Identifier: Apache-2.0
"""Line coverage of src/ and mpi/ by module, read from gcov.

usage: coverage_table.py REPOSITORY BUILD_TREE [--lines]

A line of a header counts as reached when any file that includes it reached it.
"""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path


def reports(tree):
    notes = sorted(str(path) for path in tree.rglob("*.gcno") if "CompilerId" not in str(path))
    for start in range(0, len(notes), 50):
        # One JSON document a line. An object that never ran has no counters: gcov then reports zeros.
        command = ["gcov", "--json-format", "--stdout", *notes[start:start + 50]]
        output = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
        for line in output.splitlines():
            if line.startswith(b"{"):
                yield json.loads(line)


def main():
    root, tree = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    reached = defaultdict(lambda: defaultdict(int))  # file -> line -> count
    for report in reports(tree):
        for file in report["files"]:
            path = Path(report["current_working_directory"], file["file"]).resolve()
            if not path.is_relative_to(root):
                continue
            name = path.relative_to(root)
            if name.parts[0] == "mpi" or (name.parts[0] == "src" and name.parts[1] != "tools"):
                for line in file["lines"]:
                    reached[name][line["line_number"]] += line["count"]

    modules = defaultdict(lambda: [0, 0])
    for name, lines in reached.items():
        module = "/".join(name.parts[:-1])
        modules[module][0] += sum(1 for count in lines.values() if count)
        modules[module][1] += len(lines)
        missed = [str(line) for line, count in sorted(lines.items()) if not count]
        if "--lines" in sys.argv and missed:
            print(f"{name}: {' '.join(missed)}")

    print(f"\n{'module':<20} {'lines':>7} {'reached':>8} {'':>8}")
    for module, (hit, total) in sorted(modules.items()):
        print(f"{module:<20} {total:>7} {hit:>8} {100 * hit / total:>6.1f} %")
    hit, total = (sum(column) for column in zip(*modules.values())) if modules else (0, 0)
    if total == 0:
        sys.exit("coverage: no lines of src/ or mpi/ found")
    print(f"{'all':<20} {total:>7} {hit:>8} {100 * hit / total:>6.1f} %")


if __name__ == "__main__":
    main()
