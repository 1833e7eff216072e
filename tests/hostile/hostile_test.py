#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attacks a job of 4 ranks over loopback: half of the connections go to rank 0's door while the ranks
meet, half to every port on which the job's processes listen while they train (the control tree's, UCX's). The job has
to meet, and to train on with right sums.

The strangers do not know the job's key. Each is of one kind, drawn: it connects and goes; sends garbage; repeats what a
rank of this job said to rank 0, whole or in part; begins as if it were a frame; stays half open for a while. So many are
open at a time, from several addresses.

usage: hostile_test.py HOSTILE_JOB [--connections N] [--at-once M] [--seed S] [--ucx]
"""

import argparse
import collections
import os
import random
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

KINDS = ("goes", "garbage", "long garbage", "replay", "half a replay", "frame", "half open")
PATIENCE = 600
LAUNCHERS = ("KOLO_", "HOROVOD_", "OMPI_", "PMI", "MV2_", "SLURM_", "TORCHELASTIC_", "UCX_")


def fail(text):
    sys.exit(f"hostile_test: {text}")


def wait_until(holds, what):
    deadline = time.monotonic() + PATIENCE
    while not (value := holds()):
        if time.monotonic() > deadline:
            fail(f"not within {PATIENCE} s: {what}")
        time.sleep(0.01)
    return value


class Recorder:
    """Passes on bytes between a rank and rank 0, and keeps what the rank says first: its Hello."""

    def __init__(self, port):
        self.door = socket.create_server(("127.0.0.1", 0))
        self.to = port
        self.hello = b""
        threading.Thread(target=self.run, daemon=True).start()

    def port(self):
        return self.door.getsockname()[1]

    def run(self):
        while True:
            rank, _ = self.door.accept()
            try:
                root = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                rank.close()
                continue
            self.pass_on(rank, root)

    def pass_on(self, rank, root):
        with rank, root:
            said = b""
            while True:
                for one in select.select([rank, root], [], [])[0]:
                    data = one.recv(65536)
                    if not data:
                        return
                    if one is rank and len(said) < 92:
                        said += data
                        self.hello = said[:92]
                    (root if one is rank else rank).sendall(data)


class Strangers:
    def __init__(self, seed, at_once):
        self.random = random.Random(seed)
        self.at_once = at_once
        self.counts = collections.Counter()
        self.refused = 0
        self.longest_word = 0

    def attack(self, addresses, count, hello):
        """A batch at a time; what stays half open goes with its batch."""
        while count > 0:
            batch = [self.begin(self.random.choice(addresses), hello) for _ in range(min(self.at_once, count))]
            count -= len(batch)
            for kind, one in batch:
                if one is not None:
                    self.end(kind, one)

    def begin(self, address, hello):
        kind = self.random.choice(KINDS)
        self.counts[kind] += 1
        one = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        one.settimeout(5)
        # No ports are kept for connections that are over.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try:
            if address[0].startswith("127."):
                one.bind((f"127.0.0.{self.random.randrange(1, 9)}", 0))
            one.connect(address)
            one.sendall(self.words(kind, hello))
        except OSError:
            self.refused += 1
            one.close()
            return kind, None
        return kind, one

    def words(self, kind, hello):
        if kind == "garbage":
            return self.random.randbytes(self.random.randrange(1, 200))
        if kind == "long garbage":
            return self.random.randbytes(20000)
        if kind == "replay":
            return hello
        if kind == "half a replay":
            return hello[:self.random.randrange(1, len(hello))]
        if kind == "frame":
            return b"K" + bytes([self.random.randrange(256)]) + self.random.randbytes(14) + b"\xff" * 40
        return b""

    def end(self, kind, one):
        with one:
            if kind in ("goes", "half open"):
                return
            try:
                one.shutdown(socket.SHUT_WR)
                told = 0
                while data := one.recv(4096):
                    told += len(data)
                self.longest_word = max(self.longest_word, told)
            except OSError:
                pass  # it was reset, or is given up


def listeners(pids):
    """The addresses at which these processes listen."""
    own = set()
    for pid in pids:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                own.add(os.readlink(f"/proc/{pid}/fd/{name}"))
            except OSError:
                pass
    found = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with open(f"/proc/net/{table}", encoding="ascii") as file:
            lines = file.readlines()[1:]
        for words in map(str.split, lines):
            if words[3] != "0A" or f"socket:[{words[9]}]" not in own:
                continue
            host, port = words[1].split(":")
            packed = b"".join(struct.pack("=I", int(host[i:i + 8], 16)) for i in range(0, len(host), 8))
            host = socket.inet_ntop(family, packed)
            host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
            found.append((host, int(port, 16)))
    return sorted(set(found))


class Job:
    def __init__(self, flags, folder):
        self.flags = flags
        self.folder = folder
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]
        self.recorder = Recorder(self.port)
        self.ranks = []
        self.steps = 0

    def start(self, rank, port=None):
        variables = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
        variables.update(KOLO_STORE=f"tcp://127.0.0.1:{port or self.port}", KOLO_RANK=str(rank), KOLO_SIZE="4",
                         KOLO_JOB_KEY="a secret of this job", KOLO_TIMEOUT_S="120", KOLO_CONNECT_TIMEOUT_S="600",
                         UCX_TLS="tcp", UCX_LOG_LEVEL="error")  # it warns of each
        if self.flags.ucx:
            variables.update(KOLO_RANKS_PER_NODE="2", KOLO_TRANSPORT="ucx")
        job = subprocess.Popen([self.flags.program, self.stop_file()], env=variables, stdout=subprocess.PIPE if rank == 0 else None,
                               text=True)
        self.ranks.append(job)
        if rank == 0:
            threading.Thread(target=self.count_steps, args=(job.stdout,), daemon=True).start()

    def count_steps(self, lines):
        for line in lines:
            self.steps = int(line.split()[1])

    def stop_file(self):
        return os.path.join(self.folder, "stop")

    def check(self):
        for rank, job in enumerate(self.ranks):
            if job.poll() is not None:
                fail(f"rank {rank} has ended with status {job.returncode}")

    def door_is_open(self):
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def end(self):
        with open(self.stop_file(), "w", encoding="ascii"):
            pass
        return [job.wait(timeout=PATIENCE) for job in self.ranks]

    def kill(self):
        for job in self.ranks:
            job.kill()


def run(flags, folder):
    job = Job(flags, folder)
    strangers = Strangers(flags.seed, flags.at_once)
    try:
        job.start(0)
        wait_until(job.door_is_open, "rank 0 listens")
        job.start(1, job.recorder.port())
        hello = wait_until(lambda: len(job.recorder.hello) == 92 and job.recorder.hello, "rank 1 has said its Hello")
        job.start(2)
        begin = time.monotonic()
        strangers.attack([("127.0.0.1", job.port)], flags.connections // 2, hello)
        job.check()
        while_meeting = time.monotonic() - begin
        if strangers.refused:
            fail(f"rank 0 did not take {strangers.refused} connections while ranks met")
        if strangers.longest_word != 44:
            fail(f"a stranger was told {strangers.longest_word} bytes, not the 44 of a greeting")
        job.start(3)
        wait_until(lambda: job.check() or job.steps > 0, "the job trains")
        ports = listeners([one.pid for one in job.ranks])
        before, begin = job.steps, time.monotonic()
        if ports:
            strangers.attack(ports, flags.connections - flags.connections // 2, hello)
        while_training = time.monotonic() - begin
        after = job.steps
        wait_until(lambda: job.check() or job.steps > after, "the job trains on")
        statuses = job.end()
        if statuses != [0] * 4:
            fail(f"the ranks ended with {statuses}")
    finally:
        job.kill()
    print(f"{sum(strangers.counts.values())} connections, {flags.at_once} at a time: {flags.connections // 2} in "
          f"{while_meeting:.1f} s while 4 ranks met, the others in {while_training:.1f} s while they trained, to "
          f"{', '.join(f'{host}:{port}' for host, port in ports) or 'nobody (no port was open)'}; {strangers.refused} were "
          f"not taken; {after - before} steps meanwhile, {job.steps} in all")
    print(", ".join(f"{kind}: {count}" for kind, count in strangers.counts.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--connections", type=int, default=3000)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--ucx", action="store_true", help="on 2 virtual nodes, with UCX between them; else on one node")
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(flags, folder)


if __name__ == "__main__":
    main()
