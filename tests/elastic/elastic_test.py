#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of kolo-run whose ranks may come and go, each behaviour by itself, judged by what the ranks and kolo-run print.

usage: elastic_test.py ELASTIC_RANK KOLO_RUN
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

RANK, KOLO_RUN = sys.argv[1:3]
PLAIN = {**os.environ, "KOLO_RECORDER": "off", "OMP_NUM_THREADS": "1"}


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Job:
    """A job, and what it has said so far."""

    def __init__(self, case, flags, rank=(), below=(), late=0, **settings):
        self.case = case
        self.folder = tempfile.TemporaryDirectory()
        case.addCleanup(self.folder.cleanup)
        for i in range(late):
            os.mkfifo(f"{self.folder.name}/pipe-{i}")
        self.errors = tempfile.TemporaryFile("w+")
        case.addCleanup(self.errors.close)
        self.process = subprocess.Popen([KOLO_RUN, *flags.split(), *below, RANK, self.folder.name, "--late", str(late),
                                         *rank], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True, env={**PLAIN, **settings})
        case.addCleanup(self.process.stdout.close)
        case.addCleanup(self.kill)
        self.lines = []

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def find(self, pattern):
        return [found for found in (re.fullmatch(pattern, line) for line in self.lines) if found]

    def read_until(self, pattern, times=1):
        """Until so many lines match, or the job has ended; the matches."""
        while len(self.find(pattern)) < times:
            line = self.process.stdout.readline()
            if not line:
                self.case.fail(f"the job has ended before {times} lines like {pattern!r}:\n" + "\n".join(self.lines) + self.said())
            self.lines.append(line.rstrip("\n"))
        return self.find(pattern)

    def ranks(self, generation, size):
        """Once a generation has met: the processes by rank."""
        found = self.read_until(rf"in {generation} rank (\d+) of {size} pid (\d+) step (\d+)", size)
        return [int(one[2]) for one in sorted(found, key=lambda one: int(one[1]))]

    def let_in(self, late):
        with open(f"{self.folder.name}/pipe-{late}", "w", encoding="utf-8"):  # waits for the reader
            pass

    def finish(self):
        """Tells the ranks that the work is done, and reads the rest; kolo-run's exit status."""
        (Path(self.folder.name) / "finish").touch()
        return self.end()

    def end(self):
        self.lines += [line.rstrip("\n") for line in self.process.stdout]
        status = self.process.wait()
        self.case.assertEqual(self.find("wrong.*"), [])
        return status

    def said(self):
        """What kolo-run has said, without numbers of processes."""
        self.errors.seek(0)
        said = [line for line in self.errors if line.startswith("kolo-run: ")]  # ranks say there what Kolo logs
        return re.sub(r"process \d+", "process P", "".join(said))


class Elastic(unittest.TestCase):
    def test_the_work_is_done(self):
        job = Job(self, "-np 3 --min-np 2", ["--steps", "20"])
        self.assertEqual((job.end(), job.said()), (0, ""))
        self.assertEqual(len(job.find(r"done pid \d+ step 20")), 3)

    def test_a_death_is_not_the_end_of_the_others(self):
        job = Job(self, "-np 4 --min-np 2")
        first = job.ranks(1, 4)
        os.kill(first[1], signal.SIGKILL)
        self.assertEqual(job.ranks(2, 3), [first[0], first[2], first[3]])
        os.kill(first[0], signal.SIGKILL)
        self.assertEqual(job.ranks(3, 2), [first[2], first[3]])
        self.assertEqual(job.finish(), 0)
        self.assertEqual(len({one[1] for one in job.find(r"done pid \d+ step (\d+)")}), 1)
        self.assertEqual(job.said(), "kolo-run: rank 1 of 4 (generation 1), process P, was killed by signal 9 (Killed)\n"
                                     "kolo-run: generation 2 begins, with 3 ranks\n"
                                     "kolo-run: rank 0 of 3 (generation 2), process P, was killed by signal 9 (Killed)\n"
                                     "kolo-run: generation 3 begins, with 2 ranks\n")

    def test_two_deaths_at_once(self):
        job = Job(self, "-np 4 --min-np 1")
        first = job.ranks(1, 4)
        for one in first[:2]:
            os.kill(one, signal.SIGKILL)
        job.read_until(r"in \d+ rank 1 of 2 pid \d+ step \d+")
        self.assertEqual(job.finish(), 0)

    def test_too_few_are_left(self):
        job = Job(self, "-np 3 --min-np 3")
        os.kill(job.ranks(1, 3)[2], signal.SIGKILL)
        self.assertEqual(job.end(), 128 + signal.SIGKILL)
        why = "the job has 2 processes, and needs at least 3 (--min-np): no other can come"
        self.assertEqual(len(job.find(rf"farewell pid \d+: {re.escape(why)}")), 2)
        self.assertIn(f"kolo-run: {why}\n", job.said())

    def test_all_are_killed(self):
        job = Job(self, "-np 2 --min-np 1", ["--worker"])
        for one in job.ranks(1, 2):
            os.kill(one, signal.SIGKILL)
        self.assertEqual(job.end(), 128 + signal.SIGKILL)
        self.assertIn("kolo-run: the job has 0 processes, and needs at least 1 (--min-np): no other can come\n", job.said())

    def test_the_only_rank_comes_again(self):
        job = Job(self, "-np 1 --respawn", ["--worker"])
        os.kill(job.ranks(1, 1)[0], signal.SIGKILL)
        job.ranks(2, 1)
        self.assertEqual(job.finish(), 0)

    def test_a_dead_rank_comes_again(self):
        job = Job(self, "-np 2 --respawn")
        first = job.ranks(1, 2)
        os.kill(first[0], signal.SIGKILL)
        second = job.ranks(2, 2)
        self.assertEqual(second[0], first[1])
        self.assertNotIn(second[1], first)
        self.assertEqual(job.finish(), 0)

    def test_not_after_two_early_deaths(self):
        job = Job(self, "-np 2 --min-np 1 --respawn")
        os.kill(job.ranks(1, 2)[1], signal.SIGKILL)
        job.read_until(r"in \d+ rank 1 of 2 pid \d+ step \d+", 2)
        os.kill(int(job.find(r"in \d+ rank 1 of 2 pid (\d+) step \d+")[-1][1]), signal.SIGKILL)
        job.read_until(r"in \d+ rank 0 of 1 pid \d+ step \d+")
        self.assertEqual(job.finish(), 0)
        self.assertRegex(job.said(), r"kolo-run: slot \d stays empty: two of its processes in a row have ended within 10 s of "
                                     r"being taken in, or before\n")

    def test_no_more_often_than_allowed(self):
        job = Job(self, "-np 3 --min-np 1 --respawn --restarts 1")
        os.kill(job.ranks(1, 3)[2], signal.SIGKILL)
        job.read_until(r"in \d+ rank 2 of 3 pid \d+ step \d+", 2)
        os.kill(int(job.find(r"in \d+ rank 0 of 3 pid (\d+) step \d+")[-1][1]), signal.SIGKILL)
        job.read_until(r"in \d+ rank 1 of 2 pid \d+ step \d+")
        self.assertEqual(job.finish(), 0)
        self.assertRegex(job.said(), r"kolo-run: slot \d stays empty: 1 process has been started again, and no more may be "
                                     r"\(--restarts\)\n")

    def test_one_that_comes_later_is_taken_in(self):
        job = Job(self, "-np 3 --start-np 2 --min-np 1", late=1)
        first = job.ranks(1, 2)
        job.let_in(0)
        second = job.ranks(2, 3)
        self.assertEqual(second[:2], first)
        self.assertEqual(job.finish(), 0)
        self.assertEqual(len(job.find(r"out 1 pid \d+ step \d+: in order")), 2)

    def test_who_does_not_come_in_time_is_not_waited_for(self):
        job = Job(self, "-np 3 --start-np 2 --min-np 2 --wait 1", late=1)
        os.kill(job.ranks(1, 2)[0], signal.SIGKILL)
        why = "the job has 1 process, and needs at least 2 (--min-np): no other has come within 1 s (--wait)"
        job.read_until(rf"farewell pid \d+: {re.escape(why)}")
        job.let_in(0)
        self.assertEqual(job.end(), 128 + signal.SIGKILL)

    def test_who_never_comes_ends_with_the_work(self):
        job = Job(self, "-np 3 --start-np 2 --min-np 2", late=1)
        job.ranks(1, 2)
        self.assertEqual((job.finish(), job.said()),
                         (0, "kolo-run: the work is done, and 1 process has never come to it: ended\n"))

    def test_a_rank_leaves(self):
        job = Job(self, "-np 3 --min-np 1 --respawn")
        first = job.ranks(1, 3)
        os.kill(first[1], signal.SIGTERM)
        self.assertEqual(job.ranks(2, 2), [first[0], first[2]])
        self.assertEqual(job.finish(), 0)
        self.assertEqual(len(job.find(r"out 1 pid \d+ step \d+: in order")), 3)
        self.assertTrue(job.find(rf"farewell pid {first[1]}: it wanted to leave"))
        self.assertEqual(job.said(), "kolo-run: generation 2 begins, with 2 ranks\n")

    def test_a_signal_to_kolo_run_ends_the_job_in_order(self):
        job = Job(self, "-np 3 --min-np 1 --respawn")
        job.ranks(1, 3)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual((job.end(), job.said()), (128 + signal.SIGTERM, ""))
        self.assertEqual(len(job.find(r"out 1 pid \d+ step \d+: in order")), 3)
        self.assertEqual(len(job.find(r"farewell pid \d+: kolo-run has got signal 15 \(Terminated\)")), 3)

    def test_a_stopped_rank_is_killed(self):
        job = Job(self, "-np 3 --min-np 1", KOLO_TIMEOUT_S="3", KOLO_LATCH_TIMEOUT_S="2")
        first = job.ranks(1, 3)
        os.kill(first[0], signal.SIGSTOP)
        self.assertEqual(job.ranks(2, 2), first[1:])
        self.assertFalse(is_running(first[0]))
        self.assertEqual(job.finish(), 0)
        self.assertIn("kolo-run: rank 0 of 3 (generation 1) has not answered for 2 s (KOLO_LATCH_TIMEOUT_S): it is killed\n",
                      job.said())

    def test_a_rank_that_computes_is_waited_for(self):
        job = Job(self, "-np 3 --min-np 1", KOLO_TIMEOUT_S="60", KOLO_LATCH_TIMEOUT_S="2")
        first = job.ranks(1, 3)
        os.kill(first[1], signal.SIGUSR1)  # for three seconds
        os.kill(first[2], signal.SIGKILL)
        self.assertEqual(job.ranks(2, 2), first[:2])
        self.assertEqual(job.finish(), 0)
        self.assertNotIn("it is killed", job.said())

    def test_what_a_dead_rank_has_started_ends_with_it(self):
        for below in ([], ["sh", "-c", '"$@"; exit $?', "sh"]):
            job = Job(self, "-np 2 --min-np 1", ["--worker"], below)
            first = job.ranks(1, 2)
            worker = int(job.read_until(rf"worker pid (\d+) of {first[0]}")[0][1])
            os.kill(first[0], signal.SIGKILL)
            self.assertEqual(job.ranks(2, 1), first[1:])
            self.assertFalse(is_running(worker))
            self.assertEqual(job.finish(), 0)

    def test_a_killed_shell_takes_its_program_along(self):
        job = Job(self, "-np 2 --min-np 1", below=["sh", "-c", '"$@"; exit $?', "sh"])
        first = job.ranks(1, 2)
        shell = int(Path(f"/proc/{first[1]}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.kill(shell, signal.SIGKILL)
        self.assertEqual(job.ranks(2, 1), first[:1])
        self.assertFalse(is_running(first[1]))
        self.assertEqual(job.finish(), 0)

    def test_all_end_with_kolo_run(self):
        job = Job(self, "-np 2 --min-np 1", ["--worker"])
        first = job.ranks(1, 2)
        workers = [int(one[1]) for one in job.read_until(r"worker pid (\d+) of \d+", 2)]
        job.process.kill()
        for _ in job.process.stdout:  # its end is that of the last process that has the pipe
            pass
        self.assertEqual([pid for pid in first + workers if is_running(pid)], [])

    def test_a_program_that_cannot_change_is_told_so(self):
        done = subprocess.run([KOLO_RUN, "-np", "2", "--min-np", "1", "--", str(Path(KOLO_RUN).with_name("kolo-info"))],
                              env=PLAIN, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("kolo-run has started this process in a job whose ranks may come and go (--min-np, --max-np, --respawn), "
                      "and this program makes a world that cannot change: start it by kolo-run with -np alone", done.stderr)

    def test_wrong_flags(self):
        for flags, sentence in (
            ("-np 2 --min-np 0", '--min-np is "0", which is no number of ranks (see --help)'),
            ("-np 2 --wait x", '--wait is "x", which is no number of seconds (see --help)'),
            ("-np 2 --max-no 3", "there is no flag --max-no (see --help)"),
            ("-np 2 --min-np 3", "a job of 2 processes cannot need at least 3 ranks (--min-np): give a number from 1 to 2"),
            ("-np 2 --max-np 1", "a job that is started with 2 processes cannot have at most 1 ranks (--max-np): give that "
                                 "number, or more"),
        ):
            done = subprocess.run([KOLO_RUN, *flags.split(), "true"], env=PLAIN, capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (2, f"kolo-run: {sentence}\n"))


unittest.main(argv=sys.argv[:1])
