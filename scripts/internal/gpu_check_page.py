#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes gpu-check.json and gpu-check.md from the steps, logs and records that scripts/gpu-check left in a folder.

usage: gpu_check_page.py DIR

DIR/steps.tsv has a line a step: name, verdict, seconds, remark. A number is on the page only where a record of a
benchmark has it.
"""

import json
import platform
import re
import subprocess
import sys
from pathlib import Path

VERDICTS = ("passed", "failed", "not run", "needs a device")
FINDING = re.compile(r"accuracy|\[  (PASSED|FAILED)  \] \d+ test|# wrong values|^PASS$|beyond the backward|^  GPU ")


def said(*command):
    """The first line of what a program says, or None where there is no such program, or it fails."""
    try:
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None
    return lines[0] if lines else None


def machine():
    nvcc = said("sh", "-c", "nvcc --version | sed -n 's/^Cuda compilation tools, //p'")
    return {"device": said("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"),
            "system": platform.platform(), "nvcc": nvcc, "compiler": said("c++", "--version"),
            "cmake": said("cmake", "--version"), "mpirun": said("mpirun", "--version"),
            "torch": said("python3", "-c", "import torch; print(torch.__version__, 'CUDA', torch.version.cuda)")}


def finding(log):
    """The line of a log that is worth a place in the table."""
    found = ""
    for line in log.splitlines():
        if FINDING.search(line):
            found = line.strip()
    return found


def read_steps(folder):
    steps = []
    for line in (folder / "steps.tsv").read_text(encoding="utf-8").splitlines():
        name, verdict, seconds, remark = line.split("\t")
        assert verdict in VERDICTS, line
        log = folder / f"{name}.log"
        if not remark and log.exists():
            remark = finding(log.read_text(encoding="utf-8", errors="replace"))
        steps.append({"step": name, "verdict": verdict, "seconds": float(seconds), "finding": remark})
    return steps


def read_records(folder):
    """By file, of the benchmarks that ran."""
    names = ("pack", "step_1_rank", "step_2_ranks", "ddp_1_rank", "ddp_2_ranks", "allreduce_1_rank", "beside_nccl")
    return {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
            for name in names if (folder / f"{name}.json").exists()}


def of_pack(record):
    lines = ["", f"## Packing: {record['tensors']} tensors, {record['bytes']} bytes, "
             f"{record['launches']} launches", "", "| | us | GB/s | of the copy's bandwidth |", "|---|---:|---:|---:|"]
    lines += [f"| {what} | {record[what]['time_us']:.1f} | {record[what]['gb_per_s']:.0f} | "
              f"{100 * record[what]['of_copy']:.1f} % |" for what in ("copy", "pack", "unpack")]
    return lines


def of_steps(ranks, rows, ddp):
    lines = ["", f"## A step of {rows[0]['tensors']} gradients, {ranks}", "",
             "There is no network in these numbers.", "",
             "| | us on the device | us of the host | us to submit all | us to submit one | wrong |",
             "|---|---:|---:|---:|---:|---:|"]
    for row in rows:
        lines.append(f"| Kolo, {row['submit']} | {row['time_us']:.1f} | {row['host_step_us']:.1f} | "
                     f"{row['host_submit_us']:.1f} | {row['host_submit_one_us']:.3f} | {row['wrong']} |")
    for name, peer in rows[0].get("baseline", {}).items():
        lines.append(f"| {name} | {peer['time_us']:.1f} | | | | {peer['wrong']} |")
    if ddp:
        lines.append(f"| DDP beyond its backward pass, PyTorch {ddp['torch']} | {ddp['device_us']['median']:.1f} | "
                     f"{ddp['host_us']['median']:.1f} | | | {ddp['wrong']} |")
    return lines


def of_beside_nccl(rows):
    lines = ["", f"## PyTorch's programs over Kolo and over NCCL, {rows[0]['ranks']} ranks, one a GPU", "",
             "| | | ms on the device | ms of the host | wrong |", "|---|---|---:|---:|---:|"]
    return lines + [f"| {row['what']} | {row['contestant']} | {row['device_ms']:.3f} | {row['host_ms']:.3f} | "
                    f"{row['wrong']} |" for row in rows]


def of_records(records):
    lines = of_pack(records["pack"]) if "pack" in records else []
    for count, name in (("1_rank", "one rank"), ("2_ranks", "two ranks on one GPU")):
        if f"step_{count}" in records:
            lines += of_steps(name, records[f"step_{count}"], records.get(f"ddp_{count}"))
    if records.get("beside_nccl"):
        lines += of_beside_nccl(records["beside_nccl"])
    return lines


def page_of(result):
    page = ["# GPU check", ""]
    page += [f"- {what}: {value or 'none'}" for what, value in result["machine"].items()]
    counts = {verdict: sum(step["verdict"] == verdict for step in result["steps"]) for verdict in VERDICTS}
    page += ["", ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count) + ".", "",
             "| step | verdict | seconds | finding |", "|---|---|---:|---|"]
    for step in result["steps"]:
        text = step["finding"].replace("|", "\\|")
        page.append(f"| {step['step']} | {step['verdict']} | {step['seconds']:.1f} | {text} |")
    return page + of_records(result["records"])


def main():
    folder = Path(sys.argv[1])
    result = {"machine": machine(), "steps": read_steps(folder), "records": read_records(folder)}
    (folder / "gpu-check.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    (folder / "gpu-check.md").write_text("\n".join(page_of(result)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
