#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-check's page from records: each number where it belongs, and none where nothing was measured; and how its
steps end.

usage: gpu_check_test.py SOURCE
"""
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(sys.argv[1])
sys.path.insert(0, str(SOURCE / "scripts/internal"))
from gpu import machine, page, steps  # noqa: E402

STEPS = [("kolo_info", "passed", 0.1, ""), ("gpu_test", "failed", 3.5, ""), ("pack_16M", "says no device", 0, "a | b"),
         ("ddp_1_rank", "not run", 0, "no time was left")]
ROW = {"submit": "by-name", "tensors": 161, "time_us": 111.5, "host_step_us": 222.5, "host_submit_us": 99.25,
       "host_submit_one_us": 0.616, "wrong": 0, "baseline": {"nccl-grouped": {"time_us": 333.5, "wrong": 0}}}
SIZE = {"bytes": 1024, "in_place": True, "time_us": 25.25, "wrong": 0, "baseline": {"nccl": {"time_us": 5.5, "wrong": 0}}}
PACK = {"tensors": 161, "bytes": 102228128, "launches": 7,
        **{what: {"time_us": 44.5, "gb_per_s": 2297.0, "of_copy": 0.875} for what in ("copy", "pack", "unpack")}}
TIMES = {"bytes": 65536, "ranks": 2, "times": [{"what": "woken", "median_us": 12.5, "p10_us": 11.0, "p90_us": 15.0}]}
DDP = {"torch": "2.11.0", "device_us": {"median": 555.5}, "host_us": {"median": 666.5}, "wrong": 0}
BESIDE = {"what": "fsdp2", "contestant": "kolo", "ranks": 2, "devices": 1, "device_ms": 9.5, "host_ms": 8.125, "wrong": 0}


def written(records):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "gpu_test.log").write_text("...\n[  FAILED  ] 3 tests, listed below:\n", encoding="utf-8")
        for step, text in records.items():
            (folder / f"{step}.json").write_text(text, encoding="utf-8")
        done = [*STEPS, *((step, "passed", 1, "") for step in records if step not in [one[0] for one in STEPS])]
        columns = ("step", "verdict", "seconds", "finding")
        page.write(folder, folder, {"device": None}, [dict(zip(columns, one), limit=15) for one in done])
        result = json.loads((folder / "gpu-check.json").read_text(encoding="utf-8"))
        assert [step["step"] for step in result["steps"]] == [one[0] for one in done], result
        return (folder / "gpu-check.md").read_text(encoding="utf-8")


def the_page():
    bare = written({})
    for line in ("1 passed, 1 failed, 1 says no device, 1 not run.",
                 "| gpu_test | failed | 3.5 | 15 | [  FAILED  ] 3 tests, listed below: |",
                 "| pack_16M | says no device | 0.0 | 15 | a \\| b |"):
        assert line in bare, (line, bare)
    assert "##" not in bare, bare
    full = written({step: json.dumps(record) for step, record in {
        "grouped_2_ranks": [ROW], "small_2_ranks": [SIZE], "pack_16M": PACK, "times_2_ranks": TIMES, "ddp_1_rank": DDP,
        "beside_nccl": [BESIDE], "step_1_rank": [{}]}.items()} | {"batches_1ms": "", "allreduce_direct_0": "[{"})
    for line in ("| Kolo, by-name | 111.5 | 222.5 | 99.2 | 0.616 | 0 |", "| nccl-grouped | 333.5 |  |  |  | 0 |",
                 "| 1024 | yes | 25.2 | 5.5 | 0 |", "| pack | 44.5 | 2297 | 87.5 % |", "| woken | 12.5 | 11.0 | 15.0 |",
                 "| 555.5 | 666.5 | 0 |", "| fsdp2 | kolo | 9.500 | 8.125 | 0 |",
                 "step_1_rank: not the record that was expected (KeyError('submit'))"):
        assert line in full, (line, full)
    assert "## batches_1ms" not in full and "## allreduce_direct_0" not in full, full


def every_step_has_a_name_of_its_own():
    names = [step.name for step in steps.all_steps(Path("prepared"), Path("work"))]
    assert len(set(names)) == len(names), names
    listed = subprocess.run([sys.executable, SOURCE / "scripts/gpu-check", "--list"], capture_output=True, text=True,
                            check=True).stdout
    assert re.findall(r"^\S+", listed, re.M) == names, listed


def prepared_in(folder):
    prepared = Path(folder, "prepared")
    for name, text in {"bin/kolo-info": "exit 0", "bin/gpu_test": "exit 3", "openmpi/bin/mpirun": "exit 0"}.items():
        (prepared / name).parent.mkdir(parents=True, exist_ok=True)
        (prepared / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    return prepared


def a_run(*options):
    """The verdicts of two steps."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        command = [sys.executable, SOURCE / "scripts/gpu-check", "--run", prepared_in(folder), "--out", out, *options]
        status = subprocess.run([*command, "--only", "kolo_info", "--only", "gpu_test"], capture_output=True,
                                check=False).returncode
        assert sorted(file.name for file in out.iterdir()) == ["gpu-check.json", "gpu-check.md", "results.tar.gz"]
        done = json.loads((out / "gpu-check.json").read_text(encoding="utf-8"))["steps"]
        return status, {step["step"]: (step["verdict"], step["finding"]) for step in done}


def steps_end_as_they_should():
    status, done = a_run()
    assert status == 1 and done == {"kolo_info": ("passed", ""), "gpu_test": ("failed", "exit status 3")}, done
    status, done = a_run("--seconds", "1")
    assert status == 0 and set(done.values()) == {("not run", "no time was left")}, done
    with tempfile.TemporaryDirectory() as folder:
        here = machine.Machine(prepared_in(folder), Path(folder), rehearsed=False, with_torch=False)
        sleeper = steps.Step("sleeper", 1, ["sh", "-c", "trap '' TERM; sleep 1000 & wait"])
        assert here.run(sleeper, 1) == ("failed", "ended after 1 s")
        assert here.lacks(steps.Step("other", 1, [], needs=("device", "no-such-program"))) == "needs no-such-program"


def main():
    the_page()
    every_step_has_a_name_of_its_own()
    steps_end_as_they_should()
    print("PASS")


main()
