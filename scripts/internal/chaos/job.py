# SPDX-License-Identifier: Apache-2.0
"""One run of scripts/test chaos: starts the job, waits until its ranks have ended, cleans up, and says what was left."""
import os
import shlex
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import judge as judging
from . import why

ROOT = Path(__file__).resolve().parents[3]
MARK = "CHAOS_RUN"  # in the environment of every process of a run, whatever becomes of its parents
SHARED = Path("/dev/shm")


@dataclass
class Outcome:
    plan: object
    phase: str  # that the victim was hit in; None: it was not
    complaints: list
    record: str  # facts and outputs, for a person
    mpirun_status: int  # None: it had to be ended
    seconds: float
    broken_pipes: int = 0  # survivors that were ended so (judge.ended_by_broken_pipe),
    kept: int = 0  # and so (judge.kept_by_mpi)
    sayings: list = field(default_factory=list)  # of kolo-why, with what is wrong with each: (saying, complaints)


def can_make_hosts():
    """Whether this machine lets us make network namespaces (scripts/with hosts)."""
    name = f"kolo{os.getpid()}-try"
    try:
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
        return made and subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def environment(mark, folder, transport):
    """Open MPI's own files lie in the run's folder; with them those of ranks that were killed vanish."""
    return {**os.environ, MARK: mark, "KOLO_TRANSPORT": transport, "UCX_TLS": "tcp",
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_orte_tmpdir_base": folder, "OMPI_MCA_btl_vader_backing_directory": folder, "TMPDIR": folder}


def command(plan, program, folder):
    """--enable-recovery: mpirun would end the survivors, too."""
    rank = [str(program), *plan.arguments(folder), f"KOLO_RECORDER={folder}/recorders"]
    if plan.start == "hosts":
        line = " ".join(["exec $KOLO_MPIRUN -x KOLO_TRANSPORT --enable-recovery -np", str(plan.ranks), *map(shlex.quote, rank)])
        return [str(ROOT / "scripts/internal/with/hosts"), str(len(plan.nodes)), "--slots", str(plan.per_node), "--shell", line]
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "--enable-recovery", "-np", str(plan.ranks), *rank]


def state_of(pid):
    """R, S, T, Z ...; empty: there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


def marked(mark):
    """Living processes of the run: {pid: name}."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0") and state_of(folder.name) not in ("Z", ""):
                found[int(folder.name)] = (folder / "comm").read_text().strip()
        except OSError:
            pass  # it ended meanwhile
    return found


def send(pids, signal_number):
    for pid in pids:
        try:
            os.kill(pid, signal_number)
        except ProcessLookupError:
            pass


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class Run:
    def __init__(self, plan, program, folder, transport, asks_why):
        self.plan, self.program, self.folder, self.transport = plan, program, folder, transport
        self.asks_why, self.said_while_stopped = asks_why, None
        self.mark = f"{plan.seed}.{os.getpid()}"

    def facts(self):
        return [judging.Facts.parse(path.read_text()) if path.exists() else judging.Facts()
                for path in (Path(self.folder) / f"rank.{rank}" for rank in range(self.plan.ranks))]

    def go(self):
        begin = time.monotonic()
        shared = set(os.listdir(SHARED))
        with open(f"{self.folder}/output", "w+", encoding="utf-8", errors="replace") as output:
            launcher = subprocess.Popen(command(self.plan, self.program, self.folder), stdout=output,
                                        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                        env=environment(self.mark, self.folder, self.transport), start_new_session=True)
            self.wait_for_survivors(begin, launcher)
            facts = self.facts()
            sayings = self.ask_why_of_all() if self.asks_why else []
            status = self.end(launcher, facts)
            output.seek(0)
            printed = output.read()
            complaints, phase = judging.judge(self.plan, facts, printed)
            pipes = judging.ended_by_broken_pipes(self.plan, facts)
            kept = judging.kept_by_mpi(self.plan, facts, printed)
            was_told = any(one.of("TOLD") for one in facts)
            sayings = [(said, why.judge(self.plan, phase, was_told, said, pipes | kept)) for said in sayings]
            complaints += [f"process {pid} ({name}) is left" for pid, name in self.kill_what_is_left().items()]
            complaints += [f"{SHARED}/{name} is left" for name in sorted(set(os.listdir(SHARED)) - shared)
                           if self.is_ours(name)]
            return Outcome(self.plan, phase, complaints, self.record(facts, printed), status, time.monotonic() - begin,
                           len(pipes), len(kept), sayings)

    def ask_why(self, kind):
        return why.ask(self.program.with_name("kolo-why"), f"{self.folder}/recorders", kind)

    def ask_while_stopped(self, facts):
        """Of a victim that is stopped for a while: if it was so all the time."""
        victim = facts[self.plan.victim]
        if self.plan.kind != "slow" or self.said_while_stopped or not victim.first("HIT") or victim.first("CONTINUED"):
            return
        if state_of(victim.first("PROCESS")[1]) != "T":
            return
        said = self.ask_why("slow")
        if not self.facts()[self.plan.victim].first("CONTINUED"):
            self.said_while_stopped = said

    def ask_why_of_all(self):
        sayings = [self.said_while_stopped] if self.plan.kind == "slow" else [self.ask_why(self.plan.kind)]
        if self.plan.kind == "kill":
            recorders = f"{self.folder}/recorders"
            sayings.append(why.ask_without_host(self.program.with_name("kolo-why"), recorders, self.plan))
        return [said for said in sayings if said]

    def wait_for_survivors(self, begin, launcher):
        """Until all have ended that can, or their time is over."""
        while True:
            facts = self.facts()
            blow = facts[self.plan.victim].first("HIT")
            waits_for = [one for rank, one in enumerate(facts)
                         if not (blow and self.plan.kind in ("stop", "absent") and rank == self.plan.victim)]
            if self.asks_why:
                self.ask_while_stopped(facts)
            if all(one.first("EXIT") for one in waits_for):
                return
            limit = blow[0] + judging.LIMIT_S if blow else begin + judging.LIMIT_OF_START_S
            if time.monotonic() > limit or launcher.poll() is not None and not marked(self.mark):
                return
            time.sleep(0.05)

    def end(self, launcher, facts):
        """Ends a victim that is stopped, and mpirun, which does not end by itself after most failures."""
        stopped = facts[self.plan.victim].first("PROCESS")
        if stopped and self.plan.kind in ("stop", "absent"):
            send([int(stopped[1])], signal.SIGKILL)
        if wait_until(lambda: launcher.poll() is not None, 0.5):
            return launcher.returncode
        for signal_number in (signal.SIGTERM, signal.SIGKILL):  # it may hang itself
            send([pid for pid, name in marked(self.mark).items() if name in ("mpirun", "orterun")], signal_number)
            if wait_until(lambda: launcher.poll() is not None, 5):
                break
        return None

    def kill_what_is_left(self):
        """Processes that outlived mpirun, some patience, and why."""
        wait_until(lambda: not marked(self.mark), 2)
        left = marked(self.mark)
        send(left, signal.SIGKILL)
        wait_until(lambda: not marked(self.mark), 5)
        return left

    @staticmethod
    def is_ours(name):
        """Open MPI's own are not ours to clean; other programs' come and go."""
        theirs = ("vader_segment", "sm_segment", "open_mpi", "ompi", "pmix", "kolo-emulated-", "kolo-tests-")
        return not name.startswith(theirs) and not wait_until(lambda: not (SHARED / name).exists(), 5)

    def record(self, facts, output):
        lines = []
        for rank, one in enumerate(facts):
            start = one.lines[0][0] if one.lines else 0
            lines += [f"  rank {rank} {seconds - start:8.3f} {text}" for seconds, text in one.lines]
        lines += [f"  | {line}" for line in output.splitlines()[:80]]
        return "\n".join(lines)


def run(plan, program, transport, asks_why=False):
    with tempfile.TemporaryDirectory(prefix="kolo-chaos-", ignore_cleanup_errors=True) as folder:
        return Run(plan, program, folder, transport, asks_why).go()
