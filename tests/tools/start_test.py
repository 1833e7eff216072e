#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts jobs of kolo-info by every way that needs no MPI: kolo-run, a meeting place in variables, the variables that
torchrun and srun set; and starts them wrongly.

usage: start_test.py KOLO_INFO KOLO_RUN
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

KOLO_INFO, KOLO_RUN = sys.argv[1:3]
LAUNCHERS = ("KOLO_", "HOROVOD_", "OMPI_", "PMI", "MV2_", "SLURM_", "TORCHELASTIC_")
PLAIN = {name: value for name, value in os.environ.items()
         if not name.startswith(LAUNCHERS) and name not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run(variables_of_ranks, *flags):
    """One process a rank; (exit status, standard output, standard error) of each."""
    jobs = [subprocess.Popen([KOLO_INFO, *flags], env={**PLAIN, **variables}, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True) for variables in variables_of_ranks]
    return [(job.returncode, out, err) for job, (out, err) in ((job, job.communicate(timeout=50)) for job in jobs)]


def steady(text):
    text = re.sub(r"process \d+", "process P", text)
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)


def places(text):
    return [(one["place"]["rank"], one["place"]["size"]) for one in json.loads(text)["ranks"]]


class Starts(unittest.TestCase):
    def expect_job(self, variables_of_ranks, reason):
        done = run(variables_of_ranks, "--all", "--json")
        size = len(variables_of_ranks)
        self.assertEqual([(status, err) for status, _, err in done], [(0, "")] * size)
        self.assertEqual(places(done[0][1]), [(rank, size) for rank in range(size)])
        self.assertIn(f", because {reason}\n", json.loads(done[0][1])["ranks"][0]["description"])

    def test_tcp(self):
        for host in ("127.0.0.1", "localhost"):
            store = f"tcp://{host}:{free_port()}"
            self.expect_job([{"KOLO_STORE": store, "KOLO_RANK": str(rank), "KOLO_SIZE": "3", "KOLO_JOB_KEY": "s3cret"}
                             for rank in range(3)], "KOLO_STORE is set")

    def test_file(self):
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(2):
                self.expect_job([{"KOLO_STORE": f"file://{folder}/job", "KOLO_RANK": str(rank), "KOLO_SIZE": "3"}
                                 for rank in range(3)], "KOLO_STORE is set")

    def test_torchrun(self):
        port = str(free_port())
        for restart in ("0", "1"):
            with socket.socket() as agent:  # torchrun's agent has the port itself
                agent.bind(("127.0.0.1", int(port)))
                agent.listen()
                self.expect_job([{"RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                                  "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "none",
                                  "TORCHELASTIC_RESTART_COUNT": restart} for rank in range(3)],
                                "torchrun has started this process (TORCHELASTIC_RUN_ID)")

    def test_srun(self):
        self.expect_job([{"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_NODELIST": "localhost",
                          "SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_NTASKS": "3"}
                         for rank in range(3)], "srun has started this process (SLURM_STEP_NUM_TASKS)")

    def test_a_step_of_slurm_in_which_the_batch_script_runs_alone(self):
        done = run([{"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_NODELIST": "a[1-8]"}], "--json")
        self.assertEqual(places(done[0][1]), [(0, 1)])

    def test_a_key_is_never_printed(self):
        done = run([{"KOLO_JOB_KEY": "s3cret", "KOLO_PRINT_SETTINGS": "1", "KOLO_LOG_LEVEL": "info"}])
        self.assertEqual(done[0][0], 0)
        self.assertNotIn("s3cret", done[0][1] + done[0][2])
        self.assertRegex(done[0][1], r"KOLO_JOB_KEY +\(not shown\) +environment")

    def test_the_ways_are_shown_with_what_was_found(self):
        done = run([{"KOLO_ALONE": "1", "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}])
        self.assertIn("  ways to start, in this order\n"
                      "    Options::with_store: not there\n"
                      "    KOLO_ALONE: taken\n"
                      "    KOLO_STORE, KOLO_RANK, KOLO_SIZE: not there\n"
                      "    torchrun (TORCHELASTIC_RUN_ID): not there\n"
                      "    MPI (variables of mpirun, or of a PMI): not there\n"
                      "    RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT: there, but an earlier one goes first\n"
                      "    srun (SLURM_STEP_NUM_TASKS): not there\n"
                      "    a world of one: not needed\n", done[0][1])


class WrongStarts(unittest.TestCase):
    def expect_sentences(self, variables_of_ranks, sentences, status=1):
        done = run(variables_of_ranks)
        self.assertEqual([steady(err) for _, _, err in done], [f"kolo-info: {sentence}\n" for sentence in sentences])
        self.assertEqual([one[0] for one in done], [status] * len(sentences))

    def test_one_is_missing(self):
        store = f"tcp://127.0.0.1:{free_port()}"
        sentence = ('rank 1 did not reach the step "settings" of the start within 3 s (KOLO_CONNECT_TIMEOUT_S): a process '
                    "has not joined yet, is stopped, or has ended")
        self.expect_sentences([{"KOLO_STORE": store, "KOLO_RANK": str(rank), "KOLO_SIZE": "3",
                                "KOLO_CONNECT_TIMEOUT_S": "3"} for rank in (0, 2)], [sentence] * 2)

    def test_one_came_twice(self):
        store = f"tcp://127.0.0.1:{free_port()}"
        sentence = ("rank 1 came twice: process P at 127.0.0.1:PORT and process P at 127.0.0.1:PORT; give every process a "
                    "rank of its own (KOLO_RANK)")
        self.expect_sentences([{"KOLO_STORE": store, "KOLO_RANK": str(rank), "KOLO_SIZE": "3"} for rank in (0, 1, 1)],
                              [sentence] * 3)

    def test_sizes_differ(self):
        store = f"tcp://127.0.0.1:{free_port()}"
        sentence = ("rank 1 (process P at 127.0.0.1:PORT) was told that the job has 4 ranks, and rank 0 that it has 2: give "
                    "all ranks the same size (KOLO_SIZE)")
        self.expect_sentences([{"KOLO_STORE": store, "KOLO_RANK": str(rank), "KOLO_SIZE": str(2 + 2 * rank)}
                               for rank in (0, 1)], [sentence] * 2)

    def test_a_rank_out_of_range(self):
        self.expect_sentences([{"KOLO_STORE": "file:///tmp/none", "KOLO_RANK": "5", "KOLO_SIZE": "4"}],
                              ["KOLO_RANK is 5, but KOLO_SIZE is 4: ranks are 0 to 3"], status=2)

    def test_the_port_is_taken(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            store = f"tcp://127.0.0.1:{other.getsockname()[1]}"
            self.expect_sentences([{"KOLO_STORE": store, "KOLO_RANK": "0", "KOLO_SIZE": "2"}],
                                  ["rank 0 cannot listen at tcp://127.0.0.1:PORT: Address already in use (errno 98); "
                                   "another job, or another program, listens there: choose another port"])

    def test_between_nodes(self):
        store = f"tcp://127.0.0.1:{free_port()}"
        sentence = ("rank 0: this job has 2 nodes, and without MPI tensors travel within one node only: start it by mpirun, "
                    "or keep all ranks on one machine and leave KOLO_RANKS_PER_NODE unset")
        self.expect_sentences([{"KOLO_STORE": store, "KOLO_RANK": str(rank), "KOLO_SIZE": "2",
                                "KOLO_RANKS_PER_NODE": "1"} for rank in (0, 1)], [sentence] * 2)


def kolo_run(*arguments, **more):
    return subprocess.run([KOLO_RUN, *arguments], env={**PLAIN, "KOLO_CONNECT_TIMEOUT_S": "20"}, capture_output=True,
                          text=True, timeout=50, check=False, **more)


class KoloRun(unittest.TestCase):
    def test_a_job(self):
        for ranks in (1, 2, 4):
            done = kolo_run("-np", str(ranks), KOLO_INFO, "--all", "--json")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(places(done.stdout), [(rank, ranks) for rank in range(ranks)])

    def test_whole_lines_and_the_standard_input(self):
        script = 'for i in $(seq 200); do printf "%s " $KOLO_RANK; echo $KOLO_RANK; done; cat; echo err >&2'
        done = kolo_run("-np", "4", "--", "sh", "-c", script, input="to rank 0\n")
        self.assertEqual(sorted(done.stdout.splitlines()), sorted([f"{r} {r}" for r in range(4)] * 200 + ["to rank 0"]))
        self.assertEqual((done.returncode, done.stderr), (0, "err\n" * 4))

    def test_the_rank_that_ends_badly_first_is_named_and_ends_the_others(self):
        for command, sentence, status, others in (("exit 3", "ended with exit status 3", 3, "exec sleep 1000"),
                                                  ("kill -9 $$", "was killed by signal 9 (Killed)", 137, "true")):
            script = f"if [ $KOLO_RANK = 2 ]; then {command}; fi; {others}"
            done = kolo_run("-np", "4", "sh", "-c", script)
            self.assertEqual((done.returncode, done.stderr), (status, f"kolo-run: rank 2 of 4 {sentence}\n"))

    def test_a_signal_ends_all(self):
        with subprocess.Popen([KOLO_RUN, "-np", "3", "sh", "-c", "echo $$; exec sleep 1000"], env=PLAIN,
                              stdout=subprocess.PIPE, text=True) as job:
            ranks = [int(job.stdout.readline()) for _ in range(3)]
            job.send_signal(signal.SIGINT)
            self.assertEqual(job.wait(timeout=50), 128 + signal.SIGINT)
        for rank in ranks:
            self.assertRaises(ProcessLookupError, os.kill, rank, 0)

    def test_its_own_death_ends_all(self):
        with subprocess.Popen([KOLO_RUN, "-np", "3", "sh", "-c", "echo $$; exec sleep 1000"], env=PLAIN,
                              stdout=subprocess.PIPE, text=True) as job:
            ranks = [int(job.stdout.readline()) for _ in range(3)]
            job.kill()
        deadline = time.monotonic() + 30
        alive = ranks
        while alive and time.monotonic() < deadline:
            alive = [rank for rank in alive if is_running(rank)]
        self.assertEqual(alive, [])

    def test_wrong_flags(self):
        for arguments, sentence in ((["-np", "0", "true"], '-np is "0", which is no number of ranks'),
                                    (["-np", "2"], "no program is given"),
                                    (["true"], "-np and the number of ranks come first")):
            done = kolo_run(*arguments)
            self.assertEqual((done.returncode, done.stderr), (2, f"kolo-run: {sentence} (see --help)\n"))
        done = kolo_run("-np", "1", "/no/such/program")
        self.assertEqual((done.returncode, done.stderr.splitlines()[0]),
                         (127, "kolo-run: cannot run /no/such/program: No such file or directory (errno 2)"))


def is_running(pid):
    """Not a process that has ended and that its new parent has not asked for yet."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
