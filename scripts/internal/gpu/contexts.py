#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which processes have a context on which GPU while ranks reduce, as nvidia-smi lists them: a rank must have one on its
own GPU, and on no other. (One on another is some 500 MiB of that GPU's memory.)

usage: contexts.py RANKS COMMAND...

COMMAND starts a job of so many ranks: each prints "process PID of rank RANK uses GPU-..." and stays until standard input
ends. Exit status: 0 when all is well; 77 when nvidia-smi lists no process of the job, as inside some containers; else 1, or
the job's own.
"""
import re
import subprocess
import sys
from collections import Counter

PLACE = re.compile(r"process (\d+) of rank (\d+) uses (GPU-[0-9a-f-]+)")
CANNOT_TELL = 77


def listed():
    """{(pid, GPU), ...}"""
    text = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,gpu_uuid", "--format=csv,noheader"],
                          capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^(\d+), (GPU-\S+)$", text, re.M))


def judge(places, before, now):
    """(exit status, sentences). `places`: {pid: (rank, GPU)}, as the ranks say."""
    of_job = {(pid, gpu) for pid, gpu in now if pid in places} or now - before
    if not of_job:
        return CANNOT_TELL, ["nvidia-smi lists no process of this job, so where its ranks have contexts cannot be told"]
    wrong = []
    if any(pid in places for pid, _ in of_job):
        for pid, (rank, own) in sorted(places.items(), key=lambda place: int(place[1][0])):
            found = sorted(gpu for one, gpu in of_job if one == pid)
            if found != [own]:
                wrong.append(f"rank {rank} uses {own} and has contexts on {', '.join(found) or 'none'}")
    else:  # processes have other numbers there: as many as ranks have come, each on one GPU
        gpus_of = Counter(pid for pid, _ in of_job)
        wrong += [f"process {pid} has contexts on {count} GPUs" for pid, count in sorted(gpus_of.items()) if count > 1]
        found, wanted = Counter(gpu for _, gpu in of_job), Counter(gpu for _, gpu in places.values())
        wrong += [f"ranks that use {gpu}: {wanted[gpu]}; processes that have contexts there: {found[gpu]}"
                  for gpu in sorted({*found, *wanted}) if found[gpu] != wanted[gpu]]
    return (1, wrong) if wrong else (0, [f"each of {len(places)} ranks has a context on its own GPU alone"])


def main():
    ranks, *command = sys.argv[1:]
    try:
        before = listed()
    except (OSError, subprocess.CalledProcessError):  # the job says what is missing
        before = set()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        places = {}
        for line in job.stdout:
            print(line, end="", flush=True)
            for pid, rank, gpu in PLACE.findall(line):
                places[pid] = (rank, gpu)
            if len(places) == int(ranks):
                break
        now = listed() if len(places) == int(ranks) else set()
        job.stdin.close()
        print(job.stdout.read(), end="")
        status = job.wait()
    if status != 0 or len(places) < int(ranks):
        sys.exit(status or 1)
    print(*(f"pid {pid} on {gpu}" for pid, gpu in sorted(now)), sep="\n")
    status, sentences = judge(places, before, now)
    print(*sentences, sep="\n")
    sys.exit(status)


if __name__ == "__main__":
    main()
