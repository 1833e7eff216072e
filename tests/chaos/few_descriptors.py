# SPDX-License-Identifier: Apache-2.0
"""Starts jobs whose ranks may open few files, and judges by what the ranks note down.

usage: few_descriptors.py [--ranks N] [--limits LIST] [--user UID] PROGRAM

A rank of PROGRAM (mpi_chaos) trains to the end, or is told by an Error how many descriptors it may open and what to do.
No job lasts longer than its deadline, and in a job either all ranks train or all are told.

  --ranks N      of each job (4)
  --limits LIST  of `ulimit -n`, a job each, side by side (20,26,32,40,60)
  --user UID     the jobs belong to this user: root's descriptors on their way are not counted (this one)
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REMEDY = "raise it (ulimit -n)"
DEADLINE_S = 60
SETTINGS = ["KOLO_CONNECT_TIMEOUT_S=20", "KOLO_TIMEOUT_S=20"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--limits", default="20,26,32,40,60")
    parser.add_argument("--user", type=int, default=os.geteuid())
    parser.add_argument("program", type=os.path.abspath)
    return parser.parse_args()


def start(flags, limit, folder):
    """`sh` sets the limit, for the rank alone: mpirun needs more."""
    rank = [flags.program, folder, "OMPI_COMM_WORLD_RANK", "1", "5", "-1", "kill", "step", "0", "0", "0", "calls", *SETTINGS]
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "--enable-recovery", "-np", str(flags.ranks),
               "sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh", *rank]
    environment = {**os.environ, "TMPDIR": folder, "HOME": folder, "OMPI_MCA_orte_tmpdir_base": folder,
                   "OMPI_MCA_btl_vader_backing_directory": folder}
    user = {} if flags.user == os.geteuid() else {"user": flags.user, "group": flags.user, "extra_groups": []}
    with open(f"{folder}/output", "w", encoding="utf-8") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                env=environment, cwd=folder, **user)


def notes(folder, rank):
    path = Path(folder) / f"rank.{rank}"
    return [line.split(" ", 1)[1] for line in path.read_text().splitlines()] if path.exists() else []


def ended(folder, rank):
    return any(note.startswith("EXIT") for note in notes(folder, rank))


def judge(flags, limit, folder):
    complaints, trained, told = [], 0, 0
    for rank in range(flags.ranks):
        noted = notes(folder, rank)
        sentences = [note for note in noted if note.startswith("TOLD")]
        if not ended(folder, rank):
            complaints.append(f"rank {rank} did not end: {noted[-1:]}")
        elif "EXIT status 0" in noted:
            trained += 1
        elif sentences and REMEDY in sentences[0]:
            told += 1
        else:
            complaints.append(f"rank {rank} neither trained nor was told what to do: {noted}")
    if trained and told:
        complaints.append(f"{trained} ranks trained, {told} were told that they cannot")
    verdict = "train" if trained == flags.ranks else "are told: " + " | ".join(
        sorted({note for rank in range(flags.ranks) for note in notes(folder, rank) if note.startswith("TOLD")}))
    return [f"limit {limit}: {complaint}" for complaint in complaints], f"limit {limit}: {flags.ranks} ranks {verdict}"


def run(flags, limit):
    with tempfile.TemporaryDirectory(prefix="kolo-few-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o777)
        job = start(flags, limit, folder)
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end and not all(ended(folder, rank) for rank in range(flags.ranks)):
            if job.poll() is not None:
                break
            time.sleep(0.05)
        complaints, verdict = judge(flags, limit, folder)
        job.terminate()
        try:
            job.wait(timeout=600)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()
        if complaints:
            verdict += "\n" + Path(folder, "output").read_text(encoding="utf-8", errors="replace")[:3000]
        return complaints, verdict


def main():
    flags = parse()
    limits = [int(limit) for limit in flags.limits.split(",")]
    with ThreadPoolExecutor(len(limits)) as pool:
        results = list(pool.map(lambda limit: run(flags, limit), limits))
    failed = 0
    for complaints, verdict in results:
        print(verdict)
        for complaint in complaints:
            print(f"FAIL {complaint}")
        failed += bool(complaints)
    print(f"{len(results) - failed} of {len(results)} jobs as they should")
    return 1 if failed else 0


sys.exit(main())
