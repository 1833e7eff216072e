# SPDX-License-Identifier: Apache-2.0
"""Jobs that measure in turns: kolo-bench and its peers, each launched by itself (bench/README.md)."""
import json
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
CPUS = len(os.sched_getaffinity(0))


class Failed(Exception):
    """A job failed or took too long; str() says which, and how it ended."""


@dataclass
class Job:
    """One launch. `arguments` of kolo-bench, unless `program` is something else that knows --turn and --json."""
    name: str
    ranks: int
    arguments: list
    bound: bool = True  # by mpirun, to a core
    mca: dict = field(default_factory=dict)
    program: list = None
    bench: Path = None  # another kolo-bench than the other jobs'
    environment: dict = field(default_factory=dict)  # beyond the usual

    def command(self, bench):
        if self.program:
            return [*self.program, *self.arguments]
        command = ["mpirun", "-np", str(self.ranks)]
        if self.ranks > CPUS:
            command.append("--oversubscribe")
        if not self.bound:
            command += ["--bind-to", "none"]
        elif self.ranks > CPUS:  # as evenly as can be; left to the system, they crowd on a CPU for seconds
            command += ["--bind-to", "core:overload-allowed"]
        for name, value in self.mca.items():
            command += ["--mca", name, str(value)]
        return [*command, str(self.bench or bench), *self.arguments]


def end(process):
    """Ends a launch and what it started: mpirun ends its ranks when told to."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, signal_number)
            process.wait(timeout=5)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            pass


def wait_for(ready, processes, deadline, what):
    while not ready():
        for job, process, output in processes:
            if process.poll() not in (None, 0):
                raise Failed(f"{job.name} ended with {process.returncode}: {tail(output)}")
        if time.monotonic() > deadline:
            raise Failed(f"{what} took too long")
        time.sleep(0.02)


def tail(output):
    output.seek(0)
    lines = [line for line in output.read().splitlines() if line.strip() and not line.startswith("---")]
    return " / ".join(lines[-3:])


def run(bench, jobs, timeout):
    """Runs the jobs in turns; the first leads. {name: its records}. Throws Failed."""
    deadline = time.monotonic() + timeout
    processes = []
    with tempfile.TemporaryDirectory(prefix="kolo-turns-") as folder:
        try:
            # From last to first: a job's pipes are its own sign of life until the one before it is started.
            for index in reversed(range(len(jobs))):
                job = jobs[index]
                flags = ["--json", f"{folder}/{index}.json"]
                if len(jobs) > 1:
                    flags += ["--turn", f"{index}/{len(jobs)}:{folder}"]
                output = tempfile.TemporaryFile("w+")  # closed by Python when forgotten
                process = subprocess.Popen(job.command(bench) + flags, env={**ENVIRONMENT, **job.environment},
                                           stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
                processes.append((job, process, output))
                if index > 0:
                    pipes = [Path(f"{folder}/{index}.{rank}") for rank in range(job.ranks)]
                    wait_for(lambda: all(pipe.exists() for pipe in pipes), processes, deadline, f"starting {job.name}")
            wait_for(lambda: all(process.poll() is not None for _, process, _ in processes), processes, deadline,
                     f"measuring {', '.join(job.name for job in jobs)}")
            return {job.name: json.loads(Path(f"{folder}/{i}.json").read_text()) for i, job in enumerate(jobs)}
        finally:
            for _, process, _ in processes:
                if process.poll() is None:
                    end(process)
