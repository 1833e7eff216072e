#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills jobs that save checkpoints, at random moments, and loads what is there afterwards.

usage: killed_saves_test.py JOB [--kills N] [--stops N] [--seed N] [--folder DIR]

Each job has 1 to 4 ranks, loads what the one before has left (tests/killed_saves/saving_job.cpp checks that it is one
whole state), and saves until it is killed: all ranks at once, or one rank, whose death ends the others. What was
loaded must not be older than the last save that had returned. In the end nothing lies beside the checkpoint.

Then jobs in which a rank is stopped amid a save: the others end with KOLO_TIMEOUT_S, however long a save may take.
"""

import argparse
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time


class Job:
    """A job, and the pipe in which all of its processes write: it ends when the last of them has."""

    def __init__(self, command, path, ranks, *more, environment=None):
        self.read_end, write_end = os.pipe()
        self.process = subprocess.Popen([command, path, str(ranks), str(write_end), *more], pass_fds=[write_end],
                                        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
                                        env=environment)
        os.close(write_end)
        self.ranks, self.loaded, self.saved, self.rest, self.ended = [], None, None, b"", False

    def read(self, until=None):
        """Reads lines until the time, or the end of all processes. Returns whether there was anything to read."""
        wait = None if until is None else max(0, until - time.monotonic())
        if not select.select([self.read_end], [], [], wait)[0]:
            return False
        got = os.read(self.read_end, 65536)
        self.ended = not got
        *lines, self.rest = (self.rest + got).split(b"\n")
        for line in lines:
            word, number = line.split()
            if word == b"rank":
                self.ranks.append(int(number))
            elif word == b"loaded":
                self.loaded = int(number)
            else:
                self.saved = int(number)
        return True

    def finish(self):
        """Waits for the end of all processes. Returns what they wrote to standard error."""
        errors = self.process.stderr.read().decode()
        while not self.ended:
            self.read()
        self.process.wait()
        self.process.stderr.close()
        os.close(self.read_end)
        return errors


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def stop_a_rank(command, path, generator):
    """Stops one of two ranks while it writes, and waits for the end of the other. Returns what the job said."""
    job = Job(command, path, 2, environment={**os.environ, "KOLO_TIMEOUT_S": "10"})
    while not job.ended and (job.loaded is None or len(job.ranks) < 2):
        job.read()
    folder = os.path.dirname(path)
    while not any(name.startswith(".kolo-saving-") for name in os.listdir(folder)):
        job.read(time.monotonic())
    stopped = generator.choice(job.ranks)
    os.kill(stopped, signal.SIGSTOP)
    for rank in job.ranks:
        while rank != stopped and is_running(rank):
            job.read(time.monotonic() + 0.1)
    os.kill(stopped, signal.SIGKILL)
    return job.finish()


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("job")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--stops", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--folder", help="for the checkpoints; removed afterwards if it is not given")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    generator = random.Random(arguments.seed)
    temporary = tempfile.TemporaryDirectory()
    folder = os.path.join(arguments.folder or temporary.name, "run")
    path = os.path.join(folder, "checkpoint")

    last_saved, kinds, within, first, longest = 0, {"all": 0, "one": 0}, 0, None, 0.1
    for kill in range(arguments.kills):
        ranks = generator.randint(1, 4)
        job = Job(arguments.job, path, ranks)
        while job.loaded is None and not job.ended:
            job.read()
        if job.ended:
            sys.exit(f"kill {kill}: the job could not load what is there:\n{job.finish()}")
        if job.loaded < last_saved:
            sys.exit(f"kill {kill}: step {job.loaded} was loaded, but {last_saved} had been saved")
        start = time.monotonic()
        end = start + generator.uniform(0, longest)
        while job.read(end) and not job.ended:
            pass
        if job.ended:
            sys.exit(f"kill {kill}: the job ended by itself:\n{job.finish()}")
        kind = generator.choice(["all", "one"])
        kinds[kind] += 1
        if kind == "all":
            os.killpg(job.process.pid, signal.SIGKILL)
        else:
            os.kill(generator.choice(job.ranks), signal.SIGKILL)
        job.finish()
        if job.saved is not None:  # so that some are killed within their first save, and some behind several
            first = first or time.monotonic() - start
            longest = max(0.1, 2.5 * first)
        else:
            longest *= 1.2
        last_saved = max(last_saved, job.loaded, job.saved or 0)
        within += any(name.startswith(".kolo-saving-") for name in os.listdir(folder)) if os.path.isdir(folder) else 0

    job = Job(arguments.job, path, 3, "--once")
    errors = job.finish()
    if job.saved is None or job.loaded < last_saved:
        sys.exit(f"after {arguments.kills} kills: loaded {job.loaded}, saved {job.saved}:\n{errors}")
    if os.listdir(folder) != ["checkpoint"]:
        sys.exit(f"beside the checkpoint lie {os.listdir(folder)}")
    print(f"{arguments.kills} kills ({kinds['all']} of all ranks, {kinds['one']} of one), {within} within a save; "
          f"{job.saved} steps were saved")
    if arguments.kills >= 20 and within == 0:
        sys.exit("no kill hit a save")
    for _ in range(arguments.stops):
        errors = stop_a_rank(arguments.job, path, generator)
        if "has not completed within" not in errors:
            sys.exit(f"a rank was stopped amid a save, and the other did not end by its deadline:\n{errors}")
    print(f"{arguments.stops} ranks stopped amid a save")
    temporary.cleanup()


if __name__ == "__main__":
    main()
