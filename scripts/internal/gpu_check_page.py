#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes gpu-check.json and gpu-check.md from the steps and logs that scripts/gpu-check left in a folder.

usage: gpu_check_page.py DIR
"""

import json
import re
import subprocess
import sys
from pathlib import Path


def device():
    """What the driver says of the device, or None."""
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        said = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
    return said or None


def finding(log):
    """The line of a log that is worth a place in the table."""
    found = ""
    for line in log.splitlines():
        if re.search(r"accuracy|\[  (PASSED|FAILED)  \] \d+ test", line):
            found = line.strip()
    return found


def main():
    folder = Path(sys.argv[1])
    steps = []
    for line in (folder / "steps.tsv").read_text(encoding="utf-8").splitlines():
        name, verdict, seconds = line.split("\t")
        log = (folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        steps.append({"step": name, "verdict": verdict, "seconds": float(seconds), "finding": finding(log)})
    result = {"device": device(), "steps": steps}
    (folder / "gpu-check.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    page = ["# GPU check", "", f"Device: {result['device'] or 'none'}", ""]
    page += ["| step | verdict | seconds | finding |", "|---|---|---:|---|"]
    page += [f"| {s['step']} | {s['verdict']} | {s['seconds']:.1f} | {s['finding']} |" for s in steps]
    (folder / "gpu-check.md").write_text("\n".join(page) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
