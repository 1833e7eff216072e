# SPDX-License-Identifier: Apache-2.0
"""One run of scripts/test chaos --elastic: a job of kolo-run whose ranks are killed, stopped and told to leave while others
come; what must become of the rest. All of what is done follows from the run's seed; when, also from the machine."""
import os
import random
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from . import job

# Short, but not so short that ranks of a busy machine seem stopped: they answer by a thread that does nothing else.
TIMEOUT_S, LATCH_TIMEOUT_S, CONNECT_TIMEOUT_S = 6, 2, 30
LIMIT_S = 120  # of a run; longer is a hang
SHARED = job.SHARED

# What is done to a job, and how often: one rank is killed; two at once; rank 0; one, and then another while the rest meet
# anew; one is stopped; one leaves (SIGTERM); one computes for longer than it may be silent while another is killed.
KINDS = {"kill": 3, "two": 2, "root": 2, "meeting": 3, "stop": 1, "leave": 2, "compute": 1}


@dataclass(frozen=True)
class Plan:
    seed: int
    processes: int
    least: int
    late: int  # processes that come after the job has begun
    respawns: bool
    shell: bool  # each rank runs below one
    events: tuple  # (kind, seconds after the ranks have met, where among the ranks)

    def describe(self):
        words = [f"{self.processes} processes, at least {self.least}"]
        words += [f"{self.late} late"] * bool(self.late) + ["respawned"] * self.respawns + ["below shells"] * self.shell
        return ", ".join(words) + ": " + ", ".join(f"{kind} after {delay:.3f} s" for kind, delay, _ in self.events)


def plan_of(seed):
    generator = random.Random(seed)
    processes = generator.randint(2, 6)
    late = generator.choice([0, 0, 1]) if processes > 2 else 0
    least = generator.randint(1, processes - late)
    kinds = generator.choices(list(KINDS), weights=KINDS.values(), k=generator.randint(1, 3))
    events = tuple((kind, generator.choice([0, generator.random() ** 3 * 0.3]), generator.random()) for kind in kinds)
    return Plan(seed, processes, least, late, generator.random() < 0.5, generator.random() < 0.3, events)


def command(plan, programs, folder):
    flags = ["-np", plan.processes, "--min-np", plan.least, "--max-np", plan.processes,
             "--start-np", plan.processes - plan.late, *["--respawn"] * plan.respawns]
    rank = [programs / "elastic_rank", folder, "--late", plan.late, "--worker"]
    below = ["sh", "-c", '"$@"; exit $?', "sh"] if plan.shell else []
    return [str(word) for word in [programs / "kolo-run", *flags, *below, *rank]]


@dataclass
class Outcome:
    plan: Plan
    complaints: list
    record: str
    seconds: float
    done: Counter  # what was done, by kind
    generations: int
    gave_up: bool


@dataclass
class Member:
    """A process of the job, as its lines tell."""
    parent: int
    worker: int = 0
    at: dict = field(default_factory=dict)  # generation: (rank, size)
    end: str = ""  # its last word


class Run:
    def __init__(self, plan, programs, folder):
        self.plan, self.programs, self.folder = plan, programs, folder
        self.mark = f"elastic.{plan.seed}.{os.getpid()}"
        self.lock, self.lines = threading.Condition(), []
        self.members, self.newest = {}, 0
        self.killed, self.stopped, self.left = set(), set(), set()
        self.complaints, self.done = [], Counter()
        self.begin = time.monotonic()
        self.late = 0

    # ---------------------------------------------------------------- what the job says

    def read(self, stream, name):
        for line in stream:
            with self.lock:
                self.lines.append((time.monotonic() - self.begin, name, line.rstrip("\n")))
                if name == "out":
                    self.hear(line)
                self.lock.notify_all()

    def hear(self, line):
        if found := re.match(r"here pid (\d+)", line):
            pid = int(found[1])
            self.members[pid] = Member(parent_of(pid))
        elif found := re.match(r"worker pid (\d+) of (\d+)", line):
            self.members[int(found[2])].worker = int(found[1])
        elif found := re.match(r"next (\d+) pid", line):
            self.newest = max(self.newest, int(found[1]))
        elif found := re.match(r"in (\d+) rank (\d+) of (\d+) pid (\d+)", line):
            self.members[int(found[4])].at[int(found[1])] = (int(found[2]), int(found[3]))
        elif found := re.match(r"(done|farewell) pid (\d+)", line):
            self.members[int(found[2])].end = line.strip()
        elif line.startswith("wrong"):
            self.complaints.append(line.strip())

    def said(self, text):
        return [line for _, name, line in self.lines if name == "err" and text in line]

    def ranks(self):
        """Of the newest generation, by rank, once all have met in it."""
        there = sorted((one.at[self.newest], pid) for pid, one in self.members.items() if self.newest in one.at)
        return [pid for _, pid in there] if there and len(there) == there[0][0][1] else []

    def unharmed(self):
        return [pid for pid in self.ranks() if pid not in self.killed | self.stopped | self.left]

    def gone(self):
        """How many slots stay empty."""
        lost = len(self.said("stays empty")) if self.plan.respawns else len(self.killed | self.stopped)
        return lost + len(self.left)

    def can_meet(self):
        """Whether enough are there without those that are late."""
        return self.plan.processes - self.gone() - (self.plan.late - self.late) >= self.plan.least

    def has_settled(self):
        """Those that can be there have met."""
        here = self.ranks()
        expected = self.plan.processes - self.gone() - (self.plan.late - self.late)
        return len(here) == expected and not set(here) & (self.killed | self.stopped | self.left)

    def wait(self, condition):
        """False: the job has ended, or the time is over."""
        with self.lock:
            while not condition():
                if self.launcher.poll() is not None or time.monotonic() > self.begin + LIMIT_S:
                    return False
                self.lock.wait(0.2)
            return True

    # ---------------------------------------------------------------- what is done to it

    def act(self, kind, delay, where):
        if not self.wait(lambda: self.unharmed() or not self.can_meet()):
            return
        time.sleep(delay)
        with self.lock:
            generation, here = self.newest, self.unharmed()
        if not here:
            return
        chosen = here[int(where * len(here))]
        other = here[int(where * 7919) % len(here)]
        self.done[kind] += 1
        if kind == "stop":
            if len(here) > 1:  # nobody would wait for it
                self.hit(chosen, signal.SIGSTOP, self.stopped)
        elif kind == "leave":
            self.hit(chosen, signal.SIGTERM, self.left)
        elif kind == "compute":
            job.send([chosen], signal.SIGUSR1)
            if other != chosen:
                self.hit(other, signal.SIGKILL, self.killed)
        else:
            self.hit(here[0] if kind == "root" else chosen, signal.SIGKILL, self.killed)
        if kind == "two" and other != chosen:
            self.hit(other, signal.SIGKILL, self.killed)
        if kind == "meeting" and other != chosen and self.can_meet() and self.wait(lambda: self.newest > generation):
            time.sleep(where * 0.02)
            self.hit(other, signal.SIGKILL, self.killed)

    def hit(self, pid, signal_number, group):
        with self.lock:
            if self.members[pid].end or job.state_of(pid) in ("", "Z"):
                return
            group.add(pid)
        job.send([pid], signal_number)

    def come_late(self):
        """Lets the late ones in. A pipe without a reader is that of a process that was killed before."""
        for i in range(self.plan.late):
            if not self.wait(lambda: os.path.exists(f"{self.folder}/late-{i}")):
                return
            while self.wait(lambda: True):
                try:
                    os.close(os.open(f"{self.folder}/pipe-{i}", os.O_WRONLY | os.O_NONBLOCK))
                    break
                except OSError:
                    time.sleep(0.01)
            self.late += 1

    # ---------------------------------------------------------------- a run

    def go(self):
        for i in range(self.plan.late):
            os.mkfifo(f"{self.folder}/pipe-{i}")
        shared = set(os.listdir(SHARED))
        environment = {**os.environ, job.MARK: self.mark, "TMPDIR": self.folder, "KOLO_RECORDER": "off", "OMP_NUM_THREADS": "1",
                       "KOLO_TIMEOUT_S": str(TIMEOUT_S), "KOLO_LATCH_TIMEOUT_S": str(LATCH_TIMEOUT_S),
                       "KOLO_CONNECT_TIMEOUT_S": str(CONNECT_TIMEOUT_S)}
        self.launcher = subprocess.Popen(command(self.plan, self.programs, self.folder), stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment, text=True,
                                         errors="replace", start_new_session=True)
        readers = [threading.Thread(target=self.read, args=pair) for pair in
                   ((self.launcher.stdout, "out"), (self.launcher.stderr, "err"))]
        for one in readers:
            one.start()
        middle = len(self.plan.events) // 2
        for event in self.plan.events[:middle]:
            self.act(*event)
        self.come_late()
        for event in self.plan.events[middle:]:
            self.act(*event)
        if self.plan.processes - self.gone() >= self.plan.least:
            self.wait(self.has_settled)
            self.check_workers()
        else:
            self.wait(lambda: self.said("needs at least"))
        Path(f"{self.folder}/finish").touch()
        self.wait(lambda: False)
        if self.launcher.poll() is None:
            self.complaints.append(f"the job hangs: {self.states()}")
            job.send([self.launcher.pid], signal.SIGKILL)
        self.launcher.wait()
        self.look_for_leftovers(shared)
        for one in readers:
            one.join()
        self.judge(self.launcher.returncode)
        record = "\n".join(f"  {seconds:8.3f} {name} {line}" for seconds, name, line in self.lines)
        return Outcome(self.plan, self.complaints, record, time.monotonic() - self.begin, self.done, self.newest,
                       bool(self.said("needs at least")))

    def states(self):
        return {pid: job.state_of(pid) for pid in self.members}

    def check_workers(self):
        """What a dead rank has started has ended with it."""
        for pid, one in self.members.items():
            if pid in self.killed and job.state_of(one.worker) not in ("", "Z"):
                self.complaints.append(f"process {one.worker} runs, which process {pid} has started, that was killed")

    def look_for_leftovers(self, shared):
        job.wait_until(lambda: not job.marked(self.mark), 10)
        left = job.marked(self.mark)
        job.send(left, signal.SIGKILL)
        self.complaints += [f"process {pid} ({name}) is left" for pid, name in left.items()]
        self.complaints += [f"{SHARED}/{name} is left" for name in sorted(set(os.listdir(SHARED)) - shared)
                            if job.Run.is_ours(name)]

    # ---------------------------------------------------------------- the judgement

    def judge(self, status):
        gave_up = bool(self.said("needs at least"))
        is_too_few = self.plan.processes - self.gone() < self.plan.least
        if gave_up != is_too_few:
            self.complaints.append(f"the job {'gave up' if gave_up else 'went on'} with {self.gone()} slots empty")
        if (status == 0) == gave_up:
            self.complaints.append(f"kolo-run's exit status is {status}")
        lost = self.killed | self.stopped
        survivors = {pid: one for pid, one in self.members.items() if pid not in lost and pid not in self.left}
        wanted = "farewell" if gave_up else "done"
        for pid, one in survivors.items():
            if not one.end.startswith(wanted) and not self.may_end_early(one):
                self.complaints.append(f"process {pid} said {one.end!r} at its end, and not {wanted}")
        if not gave_up and len({one.end.split("step")[1] for one in survivors.values() if one.end.startswith("done")}) != 1:
            self.complaints.append("the ranks have not done the same number of steps")
        self.judge_kills()

    def may_end_early(self, one):
        """It was never a rank: the work may be done before it comes."""
        return not one.at

    def judge_kills(self):
        """kolo-run kills those that are stopped, and nobody else."""
        ours = self.killed | self.stopped
        ours |= {self.members[pid].parent for pid in ours}
        for line in self.said("was killed by signal"):
            pid = re.search(r", process (\d+), was killed", line)
            if pid and int(pid[1]) not in ours:
                self.complaints.append(f"somebody else was killed: {line}")
        kills = len(self.said("it is killed"))
        if kills > len(self.stopped):
            self.complaints.append(f"kolo-run has killed {kills} processes, and {len(self.stopped)} were stopped")


def parent_of(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def run(plan, programs):
    with tempfile.TemporaryDirectory(prefix="kolo-elastic-", ignore_cleanup_errors=True) as folder:
        return Run(plan, programs, folder).go()


def summary(outcomes):
    """What was done in all runs."""
    done = sum((one.done for one in outcomes), Counter())
    return (", ".join(f"{kind} {done[kind]}" for kind in KINDS) + f"; {sum(one.generations for one in outcomes)} generations; "
            f"{sum(one.gave_up for one in outcomes)} jobs had too few left")
