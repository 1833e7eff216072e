# SPDX-License-Identifier: Apache-2.0
"""Kills (or stops) one rank of an mpirun job, and judges by what the others print.

usage: faults_run.py MPIRUN PROGRAM SCENARIO RANKS VICTIM

mpirun ends all ranks when one dies, unless it is given --enable-recovery; it then does not always end by itself, so that
this script ends it after the last survivor's line. What must hold: every survivor is told, with the right code and the
victim's rank; its shutdown returns; no file is left in /dev/shm, and no process.
"""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time

PATIENCE_S = 600
MPIRUN, PROGRAM, SCENARIO = sys.argv[1:4]
RANKS, VICTIM = int(sys.argv[4]), int(sys.argv[5])


def shared_files():
    """What is in /dev/shm, but Open MPI's own, which does not clean up after the dead, and that of tests beside this one."""
    theirs = ("vader_segment", "sm_segment", "open_mpi", "ompi", "pmix", "kolo-emulated-", "kolo-tests-")
    return {name for name in os.listdir("/dev/shm") if not name.startswith(theirs)}


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def what_stays(present):
    """Of what is there now, what is still there after some patience. (A test beside this one may have a file for a
    moment, between making it and unlinking it.)"""
    end = time.monotonic() + PATIENCE_S
    stays = present()
    while stays and time.monotonic() < end:
        time.sleep(0.05)
        stays &= present()
    return sorted(stays)


class Job:
    """The mpirun job, and what it has printed so far."""

    def __init__(self):
        command = [MPIRUN, "--oversubscribe", "--bind-to", "none", "--enable-recovery", "-np", str(RANKS), PROGRAM]
        command += [SCENARIO, str(VICTIM)]
        self.mpirun = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        self.queue = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.mpirun.stdout:
            self.queue.put(line.rstrip("\n"))
        self.queue.put(None)

    def gather(self, word, count):
        """Reads until `count` lines begin with the word; whether they came in time."""
        end = time.monotonic() + PATIENCE_S
        while sum(line.startswith(word) for line in self.lines) < count:
            try:
                line = self.queue.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                return False
            if line is None:
                return False
            self.lines.append(line)
        return True

    def pids(self):
        return {int(words[1]): int(words[2]) for words in (l.split() for l in self.lines) if words[:1] == ["PROCESS"]}

    def end(self):
        """Ends mpirun, which ends what is left of the job; the stopped rank by its pid."""
        victim = self.pids().get(VICTIM)
        if victim and is_alive(victim):
            os.kill(victim, signal.SIGKILL)
        self.mpirun.terminate()
        try:
            self.mpirun.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.mpirun.kill()
            self.mpirun.wait()

    def left_over(self):
        """Processes that are still there, after some patience."""
        return what_stays(lambda: {pid for pid in self.pids().values() if is_alive(pid)})


def names_the_victim(error):
    """It, and nobody else."""
    sentence = error.split(" ", 3)[3]
    return set(re.findall(r"\branks? (\d+)", sentence)) == {str(VICTIM)}


def complaints_about(job):
    """What is wrong with what the survivors said."""
    wanted = "timeout" if SCENARIO.startswith("stopped") else "rank_lost"
    complaints = [line for line in job.lines if line.startswith("FAIL")]
    for rank in range(RANKS):
        if rank == VICTIM:
            continue
        errors = [line for line in job.lines if line.startswith(f"ERROR {rank} ")]
        if len(errors) != 1:
            complaints.append(f"rank {rank} was told {len(errors)} times")
        elif not errors[0].startswith(f"ERROR {rank} {wanted} ") or not names_the_victim(errors[0]):
            complaints.append(f"not {wanted} of rank {VICTIM}: {errors[0]}")
        if f"SURVIVED {rank}" not in job.lines:
            complaints.append(f"shutdown of rank {rank} did not return")
    return complaints


def main():
    before = shared_files()
    job = Job()
    job.gather("SURVIVED", RANKS - 1)
    job.end()
    complaints = complaints_about(job)
    complaints += [f"process {pid} is left" for pid in job.left_over()]
    complaints += [f"/dev/shm/{name} is left" for name in what_stays(lambda: shared_files() - before)]
    if complaints:
        print("\n".join(job.lines))
    for complaint in complaints:
        print(f"FAIL {SCENARIO} of rank {VICTIM} of {RANKS}: {complaint}")
    if not complaints:
        print(f"PASS {SCENARIO} of rank {VICTIM} of {RANKS}: {RANKS - 1} survivors")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
