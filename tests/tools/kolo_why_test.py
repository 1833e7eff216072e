#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of three processes that end or hang in some way, what kolo-why says of them, and what their timelines show.

usage: kolo_why_test.py KOLO_WHY KOLO_RUN WHY_JOB
"""
import contextlib
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import timelines

KOLO_WHY, KOLO_RUN, WHY_JOB = sys.argv[1:4]
RANKS = 3


class Job:
    """A job in a folder of its own."""

    def __init__(self, what, **variables):
        self.folder = tempfile.TemporaryDirectory(prefix="kolo-why-")
        self.recorders = f"{self.folder.name}/recorders"
        self.process = subprocess.Popen(
            [KOLO_RUN, "-n", str(RANKS), WHY_JOB, what], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "KOLO_RECORDER": self.recorders, "KOLO_LATCH_TIMEOUT_S": "2", **variables})

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            for rank in self.ask().get("ranks", []):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank["pid"], signal.SIGKILL)
        self.process.wait()
        self.folder.cleanup()

    def ask(self):
        """What kolo-why says now; empty: there is no recorder."""
        done = subprocess.run([KOLO_WHY, "--json", self.recorders], capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode in (0, 1) else {}

    def said_at_last(self):
        """When the job is over."""
        self.process.wait()
        return self.ask()

    def said(self, verdict):
        """Once it says so; ctest ends a test in which it never does."""
        while True:
            found = self.ask()
            if found.get("verdict") == verdict:
                return found
            time.sleep(0.05)


class KoloWhy(unittest.TestCase):
    def check(self, found, suspects, tensors=None):
        self.assertEqual(found["suspects"], suspects, found["sentences"])
        if tensors is not None:
            self.assertEqual(found["tensors"], tensors, found["sentences"])

    def test_a_job_that_ends_in_order_leaves_nothing(self):
        with Job("fine") as job:
            self.assertEqual(job.said_at_last(), {})
            self.assertEqual(os.listdir(job.recorders), [])

    def test_a_rank_is_killed(self):
        with Job("kill") as job:
            found = job.said_at_last()
            self.assertEqual(found["verdict"], "killed")
            self.check(found, [1])
            self.assertEqual(found["ranks"][1]["state"], "was killed")

    def test_a_rank_is_stopped(self):
        with Job("stop") as job:
            self.check(job.said("stopped"), [1])

    def test_a_rank_never_submits(self):
        with Job("hang") as job:
            self.check(job.said("late"), [1], ["layer1.weight", "layer2.weight"])

    def test_a_rank_never_submits_until_the_deadline(self):
        with Job("deadline", KOLO_TIMEOUT_S="1") as job:
            found = job.said("late")
            while not any("has not completed within" in sentence for sentence in found["sentences"]):
                found = job.said("late")
            self.check(found, [1], ["layer1.weight", "layer2.weight"])

    def test_ranks_call_in_different_orders(self):
        with Job("order") as job:
            self.check(job.said("order"), [0, 1, 2], ["first", "second"])

    def test_pytorchs_flight_recorder_has_what_the_late_rank_lacks(self):
        with Job("hang") as job:
            job.said("late")
            folder = f"{job.folder.name}/traces"
            subprocess.run([KOLO_WHY, "--fr-trace", folder, job.recorders], stdout=subprocess.DEVNULL, check=False)
            dumps = [pickle.loads(pathlib.Path(f"{folder}/kolo_rank_{rank}").read_bytes()) for rank in range(RANKS)]
        entries = [{entry["collective_seq_id"]: entry for entry in dump["entries"]} for dump in dumps]
        self.assertEqual(set(entries[0]), set(entries[2]))
        missing = [entries[0][number] for number in sorted(set(entries[0]) - set(entries[1]))]
        self.assertEqual([entry["frames"][0]["name"] for entry in missing], ["layer1.weight", "layer2.weight"])
        self.assertEqual({entry["state"] for entry in missing}, {"scheduled"})
        self.assertEqual({entry["state"] for entry in entries[1].values()}, {"completed"})
        self.assertEqual([entry["input_sizes"] for entry in missing], [[[400]], [[4000]]])

    def test_ranks_disagree(self):
        with Job("mismatch") as job:
            found = job.said_at_last()
            self.assertEqual(found["verdict"], "mismatch")
            self.assertIn('tensor "layer3" of allreduce: ranks disagree about shape: [4] on ranks 0 and 2; [3] on rank 1',
                          found["sentences"][-1])

    def test_a_rank_throws(self):
        with Job("throw") as job:
            found = job.said_at_last()
            self.assertEqual(found["verdict"], "gave up")
            self.check(found, [1])

    def test_a_rank_leaves_early(self):
        with Job("leave", KOLO_TIMEOUT_S="3") as job:
            found = job.said_at_last()
            self.assertEqual(found["verdict"], "left")
            self.check(found, [1])

    def test_a_group_is_never_made(self):
        with Job("group") as job:
            found = job.said("late")
            self.check(found, [1])
            self.assertIn("the making of the group of ranks 0 and 1", found["sentences"][0])

    def test_a_message_never_comes(self):
        with Job("message") as job:
            found = job.said("late")
            while not any(sentence.startswith("Rank 0 receives from rank 1") for sentence in found["sentences"]):
                found = job.said("late")
            self.check(found, [1])


class Output(unittest.TestCase):
    def test_what_cannot_be_printed_is_an_error(self):
        with Job("kill") as job, open("/dev/full", "w", encoding="ascii") as full:
            job.process.wait()
            for arguments in (["--help"], [job.recorders], ["--json", job.recorders]):
                done = subprocess.run([KOLO_WHY, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
                self.assertEqual((done.returncode, done.stderr), (2, "kolo-why: standard output could not be written\n"))


class Timeline(unittest.TestCase):
    def test_the_file_of_a_job_that_was_killed_opens(self):
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/run.json"
            with Job("kill", KOLO_TIMELINE=file) as job:
                job.process.wait()
            events = timelines.read(file)
            survivors = [event for event in events if event["pid"] != 1]
            self.assertEqual(sum(event["name"] == "error" for event in survivors), 2)
            self.assertEqual(sum(event["name"] == "step 4 ends" for event in survivors), 2)
            timelines.check_clocks(self, survivors, RANKS - 1)  # what the third did last may not have been written


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
