# SPDX-License-Identifier: Apache-2.0
"""gpu-check.json and gpu-check.md: the steps, and what the records of the benchmarks say. A number is on the page only
where a record has it."""
import contextlib
import json
import platform
import re
import subprocess
import sys

FINDING = re.compile(r"accuracy|\[  (PASSED|FAILED)  \] \d+ test|# wrong values|wrong values:|# behind|^PASS$|beyond the "
                     r"backward|^  GPU |ERROR SUMMARY|has (a context|contexts) on|was given back")


def output_of(*command):
    """The lines that a program prints, or None where there is no such program, or it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None


def describe_machine():
    def said(*command):
        return (output_of(*command) or [None])[0]

    torch = "import torch; print(torch.__version__, 'CUDA', torch.version.cuda, 'NCCL', *torch.cuda.nccl.version())"
    return {"device": said("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"),
            "system": platform.platform(), "torch": said(sys.executable, "-c", torch)}


def finding(log):
    """The line of a log that is worth a place in the table."""
    lines = [line.strip() for line in log.splitlines() if FINDING.search(line)]
    return lines[-1] if lines else ""


def table(title, columns, rows):
    """A section. Columns are names; of numbers, which stand to the right, they begin with '>'."""
    names = [column.lstrip(">") for column in columns]
    lines = [names, ["---:" if column.startswith(">") else "---" for column in columns], *rows]
    return ["", f"## {title}", "", *("| " + " | ".join(line) + " |" for line in lines)]


def of_pack(name, record):
    rows = [(what, f"{record[what]['time_us']:.1f}", f"{record[what]['gb_per_s']:.0f}",
             f"{100 * record[what]['of_copy']:.1f} %") for what in ("copy", "pack", "unpack")]
    return table(f"{name}: {record['tensors']} tensors, {record['bytes']} bytes, {record['launches']} launches",
                 ("", ">us", ">GB/s", ">of the copy's bandwidth"), rows)


def of_steps(name, record):
    rows = [(f"Kolo, {row['submit']}", f"{row['time_us']:.1f}", f"{row['host_step_us']:.1f}", f"{row['host_submit_us']:.1f}",
             f"{row['host_submit_one_us']:.3f}", str(row["wrong"])) for row in record]
    rows += [(peer, f"{of['time_us']:.1f}", "", "", "", str(of["wrong"]))
             for peer, of in record[0].get("baseline", {}).items()]
    return table(f"{name}: {record[0]['tensors']} gradients", (
        "", ">us on the device", ">us of the host", ">us to submit all", ">us to submit one", ">wrong"), rows)


def of_sizes(name, record):
    def of_nccl(row):
        return f"{row['baseline']['nccl']['time_us']:.1f}" if "baseline" in row else ""

    rows = [(str(row["bytes"]), "yes" if row["in_place"] else "no", f"{row['time_us']:.1f}", of_nccl(row),
             str(row["wrong"])) for row in record]
    return table(name, (">bytes", "in place", ">Kolo us", ">NCCL us", ">wrong"), rows)


def of_times(name, record):
    rows = [(row["what"], *(f"{row[key]:.1f}" for key in ("median_us", "p10_us", "p90_us"))) for row in record["times"]]
    return table(f"{name}: {record['bytes']} bytes, {record['ranks']} ranks", ("", ">us", ">p10", ">p90"), rows)


def of_ddp(name, record):
    return table(f"{name}: beyond the backward pass, PyTorch {record['torch']} over NCCL",
                 (">us on the device", ">us of the host", ">wrong"),
                 [(f"{record['device_us']['median']:.1f}", f"{record['host_us']['median']:.1f}", str(record["wrong"]))])


def of_programs(name, record):
    rows = [(row["what"], row["contestant"], f"{row['device_ms']:.3f}", f"{row['host_ms']:.3f}", str(row["wrong"]))
            for row in record]
    return table(f"{name}: PyTorch's programs, {record[0]['ranks']} ranks on {record[0]['devices']} devices",
                 ("", "", ">ms on the device", ">ms of the host", ">wrong"), rows)


# By how the step's name begins. Records of other steps are in gpu-check.json alone.
SECTIONS = {"pack": of_pack, "allreduce_alone": of_sizes, "small": of_sizes, "grouped": of_steps, "step": of_steps,
            "batches": of_times, "times": of_times, "ddp": of_ddp, "beside": of_programs, "peer_allreduce": of_sizes,
            "peer_grouped": of_steps}


def of_record(name, record):
    section = next((section for begin, section in SECTIONS.items() if name.startswith(begin)), None)
    return section(name, record) if section else []


def write(out, work, machine, steps):
    """`machine`: as `describe_machine` returns it. `steps`: dictionaries of step, verdict, seconds, limit and finding,
    which is the log's where it is empty."""
    records = {}
    for step in steps:
        log, record = work / f"{step['step']}.log", work / f"{step['step']}.json"
        if not step["finding"] and log.exists():
            step["finding"] = finding(log.read_text(encoding="utf-8", errors="replace"))
        with contextlib.suppress(OSError, ValueError):  # no record, or one that was begun
            records[step["step"]] = json.loads(record.read_text(encoding="utf-8"))
    verdicts = [step["verdict"] for step in steps]
    lines = ["# GPU check", "", *(f"- {what}: {value or 'none'}" for what, value in machine.items()), "",
             ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts)) + ".", "",
             "Ranks that share a GPU exchange data through sockets (the steps peer_* by each other's memory) and take turns "
             "on the device. Only their times of the host mean something.", "",
             "| step | verdict | seconds | of | finding |", "|---|---|---:|---:|---|"]
    for step in steps:
        text = step["finding"].replace("|", "\\|")
        lines.append(f"| {step['step']} | {step['verdict']} | {step['seconds']:.1f} | {step['limit']} | {text} |")
    for name, record in records.items():
        try:
            lines += of_record(name, record)
        except (KeyError, IndexError, TypeError) as error:  # its own lines are missing then, and no others
            lines += ["", f"{name}: not the record that was expected ({error!r})"]
    result = {"machine": machine, "steps": steps, "records": records}
    (out / "gpu-check.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    (out / "gpu-check.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
