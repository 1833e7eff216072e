#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu-check's page from records: each number where it belongs, and none where nothing was measured; and how its
steps end.

usage: gpu_check_test.py SOURCE
"""
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(sys.argv[1])
sys.path.insert(0, str(SOURCE / "scripts/internal"))
from gpu import contexts, machine, page, steps  # noqa: E402

STEPS = [("kolo_info", "passed", 0.1, ""), ("gpu_test", "failed", 3.5, ""), ("pack_16M", "says no device", 0, "a | b"),
         ("ddp_1_rank", "not run", 0, "no time was left"), ("contexts", "skipped", 0, "needs two GPUs, and there is 1")]
ROW = {"submit": "by-name", "tensors": 161, "time_us": 111.5, "host_step_us": 222.5, "host_submit_us": 99.25,
       "host_submit_one_us": 0.616, "wrong": 0, "baseline": {"nccl-grouped": {"time_us": 333.5, "wrong": 0}}}
SIZE = {"bytes": 1024, "in_place": True, "time_us": 25.25, "wrong": 0, "baseline": {"nccl": {"time_us": 5.5, "wrong": 0}}}
BARE = {"bytes": 2048, "in_place": True, "time_us": 31.5, "wrong": 0}  # without a peer
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
    for line in ("1 passed, 1 failed, 1 says no device, 1 not run, 1 skipped.",
                 "| gpu_test | failed | 3.5 | 15 | [  FAILED  ] 3 tests, listed below: |",
                 "| pack_16M | says no device | 0.0 | 15 | a \\| b |"):
        assert line in bare, (line, bare)
    assert "##" not in bare, bare
    full = written({step: json.dumps(record) for step, record in {
        "grouped_2_ranks": [ROW], "small_2_ranks": [SIZE], "pack_16M": PACK, "times_2_ranks": TIMES, "ddp_1_rank": DDP,
        "beside_nccl": [BESIDE], "step_1_rank": [{}], "peer_allreduce_arena": [BARE]}.items()} | {"batches_1ms": "", "allreduce_alone": "[{"})
    for line in ("| Kolo, by-name | 111.5 | 222.5 | 99.2 | 0.616 | 0 |", "| nccl-grouped | 333.5 |  |  |  | 0 |",
                 "| 1024 | yes | 25.2 | 5.5 | 0 |", "| 2048 | yes | 31.5 |  | 0 |", "| pack | 44.5 | 2297 | 87.5 % |", "| woken | 12.5 | 11.0 | 15.0 |",
                 "| 555.5 | 666.5 | 0 |", "| fsdp2 | kolo | 9.500 | 8.125 | 0 |",
                 "step_1_rank: not the record that was expected (KeyError('submit'))"):
        assert line in full, (line, full)
    assert "## batches_1ms" not in full and "## allreduce_alone" not in full, full


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
        told = steps.Step("told", 1, ["sh", "-c", "echo one; echo cannot be told; exit 77"])
        assert here.run(told, 9) == ("skipped", "cannot be told")
        for says, verdict in (("via P2P/", ("passed", "")), ("via NET/", ("failed", "its output does not say 'via NET/'"))):
            spoken = steps.Step("spoken", 1, ["echo", "0[0] -> 1[0] via P2P/IPC"], says=says)
            assert here.run(spoken, 9) == verdict, here.run(spoken, 9)


def what_a_machine_lacks_is_a_sentence():
    with tempfile.TemporaryDirectory() as folder:
        here = machine.Machine(prepared_in(folder), Path(folder), rehearsed=False, with_torch=False)
    all_steps = {step.name: step for step in steps.all_steps(Path("prepared"), Path("work"))}
    assert next(iter(all_steps)) == "contexts", list(all_steps)
    here.gpus = 1
    assert here.lacks(all_steps["contexts"]) == "needs two GPUs, and there is 1"
    for version, said in (((2, 28, 9), "NCCL is 2.28.9"), (None, "NCCL is not there")):
        here.nccl, here.description["NCCL"] = version, version and ".".join(map(str, version))
        lacks = here.lacks(all_steps["peer_allreduce"])
        assert lacks.startswith("needs two GPUs, or NCCL 2.30 ") and lacks.endswith(said), lacks
    for here.gpus, here.nccl in ((1, (2, 30, 0)), (1, (3, 0, 0)), (2, (2, 28, 9))):
        assert here.lacks(all_steps["peer_allreduce"]) == ""
    assert here.lacks(all_steps["contexts"]) == ""


def contexts_are_judged():
    places = {"10": ("0", "GPU-a"), "11": ("1", "GPU-b")}
    good = {("10", "GPU-a"), ("11", "GPU-b")}
    assert contexts.judge(places, set(), good | {("7", "GPU-a")})[0] == 0  # and somebody else's
    assert contexts.judge(places, set(), good | {("11", "GPU-a")}) == (
        1, ["rank 1 uses GPU-b and has contexts on GPU-a, GPU-b"])
    assert contexts.judge(places, set(), {("10", "GPU-a")}) == (1, ["rank 1 uses GPU-b and has contexts on none"])
    # Where the driver numbers processes otherwise.
    before = {("7", "GPU-a")}
    elsewhere = before | {("910", "GPU-a"), ("911", "GPU-b")}
    assert contexts.judge(places, before, elsewhere)[0] == 0
    assert contexts.judge(places, before, elsewhere | {("911", "GPU-a")}) == (
        1, ["process 911 has contexts on 2 GPUs", "ranks that use GPU-a: 1; processes that have contexts there: 2"])
    status, sentences = contexts.judge(places, before, before)
    assert status == 77 and "cannot be told" in sentences[0], sentences


def contexts_are_asked_for_while_the_job_runs():
    """The script itself, with a job and an nvidia-smi that play their parts."""
    job = "touch $1; for rank in 0 1; do echo process 1$rank of rank $rank uses GPU-a$rank; done; cat; rm $1"
    smi = "#!/bin/sh\n[ -e {0} ] || exit 0\necho '10, GPU-a0'; echo '11, GPU-a{1}'\n"
    for gpu, status, sentence in ((1, 0, "each of 2 ranks has a context on its own GPU alone"),
                                  (0, 1, "rank 1 uses GPU-a1 and has contexts on GPU-a0")):
        with tempfile.TemporaryDirectory() as folder:
            running = Path(folder, "running")
            Path(folder, "nvidia-smi").write_text(smi.format(running, gpu), encoding="utf-8")
            Path(folder, "nvidia-smi").chmod(0o755)
            command = [sys.executable, SOURCE / "scripts/internal/gpu/contexts.py", "2", "sh", "-c",
                       job, "job", running]
            done = subprocess.run(command, capture_output=True, text=True, check=False,
                                  env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
            assert done.returncode == status and sentence in done.stdout, done
            assert not running.exists(), "the job has ended by itself"
    failed = subprocess.run([sys.executable, SOURCE / "scripts/internal/gpu/contexts.py", "2", "sh", "-c",
                             "echo there is no CUDA device; exit 3"], capture_output=True, text=True, check=False)
    assert failed.returncode == 3 and "no CUDA device" in failed.stdout, failed


def main():
    the_page()
    every_step_has_a_name_of_its_own()
    steps_end_as_they_should()
    what_a_machine_lacks_is_a_sentence()
    contexts_are_judged()
    contexts_are_asked_for_while_the_job_runs()
    print("PASS")


main()
