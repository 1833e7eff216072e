#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts jobs of kolo-info by every way that needs no MPI: kolo-run, a meeting place in variables, the variables that
torchrun and srun set; and starts them wrongly.

usage: start_test.py KOLO_INFO KOLO_RUN
"""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
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
    return [(job.returncode, out, err) for job, (out, err) in ((job, job.communicate(timeout=600)) for job in jobs)]


def sentence_of(text):
    """What a start that failed has said; behind it come the ways to start."""
    first, _, ways = text.partition("\n")
    assert ways.startswith("ways to start, in this order\n"), text
    return steady(first)


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
        for restarts in ("000", "111", "100"):  # each node's agent counts its own
            with socket.socket() as agent:  # torchrun's agent has the port itself
                agent.bind(("127.0.0.1", int(port)))
                agent.listen()
                self.expect_job([{"RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                                  "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "none",
                                  "TORCHELASTIC_RESTART_COUNT": restarts[rank]} for rank in range(3)],
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
                      "    KOLO_KEEPER (kolo-run --min-np): not there\n"
                      "    KOLO_STORE, KOLO_RANK, KOLO_SIZE: not there\n"
                      "    torchrun (TORCHELASTIC_RUN_ID): not there\n"
                      "    MPI (variables of mpirun, or of a PMI): not there\n"
                      "    RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT: there, but an earlier one goes first\n"
                      "    srun (SLURM_STEP_NUM_TASKS): not there\n"
                      "    a world of one: not needed\n", done[0][1])


class WrongStarts(unittest.TestCase):
    def expect_sentences(self, variables_of_ranks, sentences, status=1):
        done = run(variables_of_ranks)
        self.assertEqual([sentence_of(err) for _, _, err in done], [f"kolo-info: {sentence}" for sentence in sentences])
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

    def test_rank_0_twice(self):
        sentence = ("rank 0 came twice: process P, which listens, and process P at ADDRESS; give every process a rank of "
                    "its own (RANK_NAME), and every job a place of its own")
        with tempfile.TemporaryDirectory() as folder:
            port = str(free_port())
            for name, variables in (("KOLO_RANK", {"KOLO_STORE": f"tcp://127.0.0.1:{port}", "KOLO_RANK": "0", "KOLO_SIZE": "2"}),
                                    ("KOLO_RANK", {"KOLO_STORE": f"file://{folder}/job", "KOLO_RANK": "0", "KOLO_SIZE": "2"}),
                                    ("RANK", {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                              "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "none"})):
                env = {**PLAIN, **variables, "KOLO_CONNECT_TIMEOUT_S": "40"}
                with subprocess.Popen([KOLO_INFO], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      text=True) as first:
                    wait_until(lambda job=first: listens(job.pid))
                    if "KOLO_STORE" in variables and "file" in variables["KOLO_STORE"]:
                        wait_until(lambda: os.path.exists(f"{folder}/job"))
                    second = subprocess.run([KOLO_INFO], env=env, capture_output=True, text=True, timeout=600, check=False)
                    said = [first.communicate(timeout=600)[1], second.stderr]
                said = [re.sub(r"P at \S+;", "P at ADDRESS;", sentence_of(one)) for one in said]
                self.assertEqual(said, ["kolo-info: " + sentence.replace("RANK_NAME", name)] * 2)

    def test_between_nodes(self):
        store = f"tcp://127.0.0.1:{free_port()}"
        sentence = ("rank 0: this job has 2 nodes, and no MPI has started it that could carry data between them: start it "
                    "by mpirun, or let UCX carry the data (KOLO_TRANSPORT=ucx, with UCX installed on every host; Debian: "
                    "libucx0)")
        self.expect_sentences([{"KOLO_STORE": store, "KOLO_RANK": str(rank), "KOLO_SIZE": "2",
                                "KOLO_RANKS_PER_NODE": "1", "KOLO_TRANSPORT": "mpi"} for rank in (0, 1)], [sentence] * 2)

    def test_several_worlds_of_one(self):
        self.expect_sentences([{"KOLO_STORE": "file:///tmp/none", "KOLO_RANK": "0", "KOLO_SIZE": "1",
                                "OMPI_COMM_WORLD_SIZE": "4"}],
                              ["KOLO_SIZE is 1, but OMPI_COMM_WORLD_SIZE says that a launcher has started 4 processes, and "
                               "each of them would be alone: start them by one launcher, or set KOLO_ALONE=1 if each is to "
                               "run alone"])
        done = run([{"HOROVOD_SIZE": "4"}])
        self.assertIn("  a world of one: an error: HOROVOD_SIZE says that a launcher has started 4 processes, ", done[0][2])


def wait_until(holds):
    deadline = time.monotonic() + 600
    while not holds():
        assert time.monotonic() < deadline


def is_gone(pid):
    """Whether the process has ended; whoever adopted it may not have waited for it yet."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def listens(pid):
    """Whether the process has a TCP socket that listens."""
    try:
        own = {os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
    except OSError:
        return False
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}", encoding="ascii") as file:
            for line in file.readlines()[1:]:
                words = line.split()
                if words[3] == "0A" and f"socket:[{words[9]}]" in own:
                    return True
    return False


def kolo_run(*arguments, **more):
    return subprocess.run([KOLO_RUN, *arguments], env={**PLAIN, "KOLO_CONNECT_TIMEOUT_S": "20"}, capture_output=True,
                          text=True, timeout=600, check=False, **more)


class Sentences(unittest.TestCase):
    """What a start says once, on rank 0."""

    def expect_on_rank_0(self, variables_of_ranks, sentence, *before):
        jobs = [subprocess.Popen([*before, KOLO_INFO, "--all"], env={**PLAIN, **variables}, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True) for variables in variables_of_ranks]
        errors = [job.communicate(timeout=600)[1] for job in jobs]
        self.assertEqual([job.returncode for job in jobs], [0] * len(jobs))
        self.assertRegex(errors[0], sentence)
        self.assertEqual(errors[1:], [""] * (len(jobs) - 1))

    def of_ranks(self, size, **variables):
        store = f"tcp://127.0.0.1:{free_port()}"
        return [{"KOLO_STORE": store, "KOLO_RANK": str(rank), "KOLO_SIZE": str(size), **variables} for rank in range(size)]

    def test_threads_outnumber_the_cpus(self):
        self.expect_on_rank_0(self.of_ranks(3, LD_PRELOAD="libgomp.so.1", OMP_NUM_THREADS="5000"),
                              r"\A\[kolo 0 warning [^]]*\] the ranks of rank 0's machine \(3\) have 15000 threads of OpenMP together for "
                              r"\d+ CPUs, and these threads wait for each other: a step can take many times as long\. Set "
                              r"OMP_NUM_THREADS=\d+ \(kolo-run does\)\n\Z")

    def test_hosts_meet_over_a_loopback(self):
        ranks = [{**its, "HOST_NAME": f"host{rank}"} for rank, its in enumerate(self.of_ranks(2))]
        self.expect_on_rank_0(ranks, r"ranks 0 and 1 count as of different hosts, but have met over a loopback interface: they "
                              r"are on one, and share no memory, because its containers have host names of their own\. "
                              r"Give them one host name \(docker run --uts=host\), or networks of their own\n\Z",
                              "unshare", "--uts", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c",
                              'hostname "$HOST_NAME"; exec "$@"', "sh")


class KoloRun(unittest.TestCase):
    def test_a_job(self):
        for ranks in (1, 2, 4):
            done = kolo_run("-np", str(ranks), KOLO_INFO, "--all", "--json")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(places(done.stdout), [(rank, ranks) for rank in range(ranks)])

    def test_threads_of_openmp(self):
        def given(ranks, **variables):
            environment = {name: value for name, value in {**PLAIN, **variables}.items() if value is not None}
            done = subprocess.run([KOLO_RUN, "-np", str(ranks), "sh", "-c", "echo $OMP_NUM_THREADS"], env=environment,
                                  capture_output=True, text=True, timeout=600, check=True)
            self.assertEqual(len(set(done.stdout.split())), 1)
            return int(done.stdout.split()[0])

        alone = given(1, OMP_NUM_THREADS=None)
        self.assertIn(alone, range(1, len(os.sched_getaffinity(0)) + 1))
        for ranks in (2, 3, 8):
            self.assertEqual(given(ranks, OMP_NUM_THREADS=""), max(1, alone // ranks))
        self.assertEqual(given(2, OMP_NUM_THREADS="7"), 7)

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
            self.assertEqual(job.wait(timeout=600), 128 + signal.SIGINT)
        for rank in ranks:
            self.assertRaises(ProcessLookupError, os.kill, rank, 0)

    def test_what_ranks_have_started_ends_with_them(self):
        # Shells that do not exec their programs.
        for command, status in (("wait", None), ("exit 3", 3), ("exit 0", 0)):
            with subprocess.Popen([KOLO_RUN, "-np", "3", "sh", "-c", f"sleep 1000 & echo $!; {command}"], env=PLAIN,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as job:
                left = [int(job.stdout.readline()) for _ in range(3)]
                if status is None:
                    job.send_signal(signal.SIGTERM)
                self.assertEqual(job.wait(timeout=600), 128 + signal.SIGTERM if status is None else status)
            for one in left:
                self.assertRaises(ProcessLookupError, os.kill, one, 0)

    def test_a_killed_kolo_run_leaves_nothing(self):
        for victim in ("kolo-run", "keeper"):
            with subprocess.Popen([KOLO_RUN, "-np", "2", "sh", "-c", "sh -c 'echo $$; sleep 1000; true'; true"], env=PLAIN,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
                below_shells = [int(job.stdout.readline()) for _ in range(2)]
                with open(f"/proc/{job.pid}/task/{job.pid}/children", encoding="ascii") as file:
                    keeper = int(file.read())
                os.kill(job.pid if victim == "kolo-run" else keeper, signal.SIGKILL)
                self.assertEqual(job.wait(timeout=600), -signal.SIGKILL if victim == "kolo-run" else 128 + signal.SIGKILL)
                self.assertEqual(job.communicate()[0], "")  # nobody holds the pipe any more: all have ended
            for one in below_shells:
                wait_until(lambda pid=one: is_gone(pid))

    def test_output_that_is_lost_is_an_error(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            for tool, arguments in ((KOLO_RUN, ["-np", "2", "echo", "lost"]), (KOLO_RUN, ["--help"]), (KOLO_INFO, ["--help"]),
                                    (KOLO_INFO, ["--version"]), (KOLO_INFO, ["--devices"]), (KOLO_INFO, [])):
                done = subprocess.run([tool, *arguments], env=PLAIN, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
                                      timeout=600)
                said = {KOLO_INFO: "kolo-info: standard output could not be written\n",
                        KOLO_RUN: "kolo-run: standard output could not be written\n"}[tool]
                if "lost" in arguments:
                    said = "kolo-run: the ranks' output could not be written: No space left on device (errno 28)\n"
                self.assertEqual((done.returncode, done.stderr), (1, said), [tool, *arguments])

    def test_a_rank_has_time_to_save_its_work(self):
        script = "trap 'sleep 3; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
        with subprocess.Popen([KOLO_RUN, "-np", "2", "sh", "-c", script], env=PLAIN, stdout=subprocess.PIPE,
                              text=True) as job:
            self.assertEqual([job.stdout.readline() for _ in range(2)], ["ready\n"] * 2)
            job.send_signal(signal.SIGTERM)
            self.assertEqual(job.communicate(timeout=600)[0], "saved\n" * 2)
        self.assertEqual(job.returncode, 128 + signal.SIGTERM)

    def test_a_second_signal_ends_what_does_not_end(self):
        with subprocess.Popen([KOLO_RUN, "-np", "2", "sh", "-c", "trap '' TERM; echo $$; while :; do sleep 0.1; done"],
                              env=PLAIN, stdout=subprocess.PIPE, text=True) as job:
            ranks = [int(job.stdout.readline()) for _ in range(2)]
            begin = time.monotonic()
            while job.poll() is None and time.monotonic() < begin + 25:  # less than what they are given
                job.send_signal(signal.SIGTERM)
                time.sleep(0.1)
            self.assertEqual(job.poll(), 128 + signal.SIGTERM)
        for rank in ranks:
            self.assertRaises(ProcessLookupError, os.kill, rank, 0)

    def test_signals_that_are_ignored_stay_so_and_others_are_passed_on(self):
        script = "trap 'echo warned; exit 0' USR1; echo ready; while :; do sleep 0.1; done"
        command = ["sh", "-c", "trap '' HUP INT; exec \"$@\"", "sh", KOLO_RUN, "-np", "2", "sh", "-c", script]  # nohup
        with subprocess.Popen(command, env=PLAIN, stdout=subprocess.PIPE, text=True) as job:
            self.assertEqual([job.stdout.readline() for _ in range(2)], ["ready\n"] * 2)
            job.send_signal(signal.SIGHUP)
            job.send_signal(signal.SIGINT)
            job.send_signal(signal.SIGUSR1)
            self.assertEqual(job.communicate(timeout=600)[0], "warned\n" * 2)
        self.assertEqual(job.returncode, 0)

    def test_a_rank_whose_child_writes_for_ever(self):
        with subprocess.Popen([KOLO_RUN, "-np", "2", "sh", "-c", "if [ $KOLO_RANK = 1 ]; then yes & exit 3; fi"], env=PLAIN,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
            reader = threading.Thread(target=lambda: [None for _ in iter(lambda: job.stdout.read1(1 << 16), b"")])
            reader.start()
            self.assertEqual(job.wait(timeout=600), 3)
            reader.join()
            self.assertEqual(job.stderr.read(), b"kolo-run: rank 1 of 2 ended with exit status 3\n")

    def test_nobody_reads_the_output(self):
        with subprocess.Popen([KOLO_RUN, "-np", "2", "sh", "-c", "echo $$; exec yes"], env=PLAIN,
                              stdout=subprocess.PIPE) as job:
            ranks = set()
            while len(ranks) < 2:
                line = job.stdout.readline()
                if line != b"y\n":
                    ranks.add(int(line))
            wait_until(lambda: all(is_asleep(one) for one in (job.pid, *ranks)))  # every pipe is full
            job.send_signal(signal.SIGINT)
            self.assertEqual(job.wait(timeout=600), 128 + signal.SIGINT)
        for rank in ranks:
            self.assertRaises(ProcessLookupError, os.kill, rank, 0)

    def test_lines_that_have_no_end(self):
        with subprocess.Popen([KOLO_RUN, "-np", "1", "sh", "-c", "printf '50 %%\r'; head -c 100000 /dev/zero; exec sleep 1000"],
                              env=PLAIN, stdout=subprocess.PIPE) as job:
            self.assertEqual(job.stdout.read(5), b"50 %\r")
            self.assertEqual(job.stdout.read(60000), b"\0" * 60000)
            job.send_signal(signal.SIGINT)
            job.stdout.read()
            self.assertEqual(job.wait(timeout=600), 128 + signal.SIGINT)

    def test_without_standard_descriptors(self):
        for closed in ("<&-", ">&-", "<&- >&- 2>&-"):
            with tempfile.TemporaryDirectory() as folder:
                script = f'echo out; echo $KOLO_RANK >"{folder}/$KOLO_RANK"'
                done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", KOLO_RUN, "-np", "2", "sh", "-c", script],
                                      env=PLAIN, capture_output=True, text=True, timeout=600, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertEqual(done.stdout, "out\n" * 2 if closed == "<&-" else "")
                self.assertEqual(sorted(os.listdir(folder)), ["0", "1"])

    def test_the_limit_of_open_files_is_raised_as_needed(self):
        command = f"ulimit -Sn 64; ulimit -Hn 4096; exec {shlex.quote(KOLO_RUN)} -np 40 sh -c 'ulimit -Sn'"
        done = subprocess.run(["sh", "-c", command], env=PLAIN, capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual((done.returncode, done.stderr, done.stdout), (0, "", "1344\n" * 40))

    def test_its_own_death_ends_all(self):
        with subprocess.Popen([KOLO_RUN, "-np", "3", "sh", "-c", "echo $$; exec sleep 1000"], env=PLAIN,
                              stdout=subprocess.PIPE, text=True) as job:
            ranks = [int(job.stdout.readline()) for _ in range(3)]
            job.kill()
        deadline = time.monotonic() + 600
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
        done = kolo_run("-np", "1", "/etc/passwd")
        self.assertEqual((done.returncode, done.stderr.splitlines()[0]),
                         (126, "kolo-run: cannot run /etc/passwd: Permission denied (errno 13)"))


def state_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None


def is_asleep(pid):
    return all(state_of(pid) == "S" for _ in range(20))


def is_running(pid):
    """Not a process that has ended and that its new parent has not asked for yet."""
    return state_of(pid) not in (None, "Z")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
