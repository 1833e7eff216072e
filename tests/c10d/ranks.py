# SPDX-License-Identifier: Apache-2.0
"""Ranks as forked processes (PyTorch is imported once, before they are made), and as processes of torchrun."""

import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback

import torch


class Ranks:
    """Runs body(rank, size, folder) in `size` processes; `folder` is theirs alone."""

    def __init__(self, size, body):
        self.size = size
        self.folder = tempfile.TemporaryDirectory(prefix="kolo-c10d-")
        sys.stdout.flush()
        sys.stderr.flush()
        self.pids = [self._fork(rank, body) for rank in range(size)]

    def _fork(self, rank, body):
        pid = os.fork()
        if pid != 0:
            return pid
        status = 1
        try:
            body(rank, self.size, self.folder.name)
            status = 0
        except BaseException:
            sys.stderr.write(f"rank {rank} of {self.size}:\n{traceback.format_exc()}")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def wait(self):
        """The ranks' exit statuses; minus the signal's number for one that was killed."""
        statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in self.pids]
        self.folder.cleanup()
        return statuses


def as_installed(folder):
    """The environment of processes in which PyTorch finds this kolo_torch's entry points, as if pip had installed it:
    those of its pyproject.toml, in files that lie in `folder`."""
    package = pathlib.Path(importlib.util.find_spec("kolo_torch_autoload").origin).parent
    information = pathlib.Path(folder) / "kolo_torch-0.dist-info"
    information.mkdir(exist_ok=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: kolo-torch\nVersion: 0\n")
    project = (pathlib.Path(__file__).parents[2] / "python/kolo_torch/pyproject.toml").read_text()
    groups = re.findall(r'^\[project\.entry-points\."(.*)"\]\nkolo = "(.*)"$', project, re.MULTILINE)
    (information / "entry_points.txt").write_text("".join(f"[{group}]\nkolo = {entry}\n" for group, entry in groups))
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(package), os.environ.get("PYTHONPATH", "")])}


def can_make_hosts():
    """Whether scripts/with hosts can."""
    return os.geteuid() == 0 and shutil.which("ip") is not None


def torchrun(ranks, *command, hosts=1):
    """What the job prints on stdout; it must succeed. With more hosts they are made by scripts/with hosts, and have
    ranks / hosts each."""
    is_old = torch.__version__.startswith("1.")
    options = ["--nproc_per_node", str(ranks // hosts)]
    # Not --standalone: with PyTorch 1.13 that is one port for all jobs of the machine.
    endpoint = "localhost:0" if hosts == 1 else "host1:29500"
    options += ["--nnodes", str(hosts), "--rdzv_backend", "c10d", "--rdzv_endpoint", endpoint]
    if is_old:
        # With Debian's Python 3.11 only the redirections 1 and 2 of PyTorch 1.13 work. Each line begins with its rank.
        options += ["--redirects", "1", "--tee", "1"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, *command]
    # The agent of PyTorch 1.13 chooses a port that is free and lets go of it; a worker takes it later. On a host of its
    # own nobody else does.
    if hosts > 1 or (is_old and can_make_hosts()):
        with_hosts = pathlib.Path(__file__).parents[2] / "scripts/internal/with/hosts"
        command = [str(with_hosts), str(hosts), "--each", shlex.join(command)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return re.sub(r"^\[default[0-9]+\]:", "", result.stdout, flags=re.MULTILINE)


def kill_me():
    os.kill(os.getpid(), signal.SIGKILL)
