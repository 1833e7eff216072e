#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-check's page from records: each number where it belongs, and none where nothing was measured.

usage: gpu_check_page_test.py SOURCE
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS = """kolo_info\tpassed\t0.1\t
gpu_test\tfailed\t3.5\t
pack\tneeds a device\t0\tkolo-pack | more
ddp_2_ranks\tnot run\t0\tno time was left
"""
ROW = {"submit": "by-name", "tensors": 161, "time_us": 111.5, "host_step_us": 222.5, "host_submit_us": 99.25,
       "host_submit_one_us": 0.616, "wrong": 0, "baseline": {"nccl-grouped": {"time_us": 333.5, "wrong": 0}}}
PACK = {"tensors": 161, "bytes": 102228128, "launches": 7,
        **{what: {"time_us": 44.5, "gb_per_s": 2297.0, "of_copy": 0.875} for what in ("copy", "pack", "unpack")}}
DDP = {"torch": "2.11.0", "device_us": {"median": 555.5}, "host_us": {"median": 666.5}, "wrong": 0}


def page(source, files):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "steps.tsv").write_text(STEPS, encoding="utf-8")
        (folder / "gpu_test.log").write_text("...\n[  FAILED  ] 3 tests, listed below:\n", encoding="utf-8")
        for file, record in files.items():
            (folder / file).write_text(json.dumps(record), encoding="utf-8")
        script = Path(source) / "scripts/internal/gpu_check_page.py"
        subprocess.run([sys.executable, "-B", str(script), name], check=True, timeout=600)
        steps = json.loads((folder / "gpu-check.json").read_text(encoding="utf-8"))["steps"]
        assert [step["verdict"] for step in steps] == ["passed", "failed", "needs a device", "not run"], steps
        return (folder / "gpu-check.md").read_text(encoding="utf-8")


def main():
    bare = page(sys.argv[1], {})
    assert "1 passed, 1 failed, 1 not run, 1 needs a device." in bare, bare
    assert "| gpu_test | failed | 3.5 | [  FAILED  ] 3 tests, listed below: |" in bare, bare
    assert "kolo-pack \\| more" in bare and "##" not in bare, bare
    full = page(sys.argv[1], {"step_1_rank.json": [ROW], "ddp_1_rank.json": DDP, "pack.json": PACK})
    for line in ("| Kolo, by-name | 111.5 | 222.5 | 99.2 | 0.616 | 0 |", "| nccl-grouped | 333.5 | | | | 0 |",
                 "| DDP beyond its backward pass, PyTorch 2.11.0 | 555.5 | 666.5 | | | 0 |",
                 "| pack | 44.5 | 2297 | 87.5 % |", "There is no network in these numbers."):
        assert line in full, (line, full)
    assert "two ranks" not in full, full
    print("PASS")


main()
