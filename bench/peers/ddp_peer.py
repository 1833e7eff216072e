# SPDX-License-Identifier: Apache-2.0
"""What the scripts that measure PyTorch's DistributedDataParallel share: ranks, turns, and a backward pass for free."""
import os
import socket
import subprocess
import sys
from pathlib import Path

import torch


class Turns:
    """kolo-bench's (bench/kolo_bench/turns.hpp); this job never leads. `text` is I/N:FOLDER; without it, alone."""

    def __init__(self, text, rank):
        self.own = self.next = None
        if text:
            place, folder = text.split(":", 1)
            index, jobs = (int(part) for part in place.split("/"))
            self.own, self.next = (self.open(f"{folder}/{job}.{rank}") for job in (index, (index + 1) % jobs))

    @staticmethod
    def open(path):
        try:
            os.mkfifo(path, 0o600)
        except FileExistsError:
            pass
        return os.open(path, os.O_RDWR)

    def begin(self):
        return self.own is None or os.read(self.own, 1) == b"+"

    def end(self, row_ended):
        if self.own is not None:
            os.write(self.next, b"." if row_ended else b"+")


class Gradients(torch.autograd.Function):
    """A backward pass that costs nothing."""
    ready = ()

    @staticmethod
    def forward(_, *parameters):
        return parameters[0].new_zeros(())

    @staticmethod
    def backward(_, *__):
        return Gradients.ready


class Model(torch.nn.Module):
    """Parameters of these sizes, with those gradients: on every rank its number from 1 on."""

    def __init__(self, sizes, rank, device="cpu"):
        super().__init__()
        self.tensors = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(size, device=device)) for size in sizes])
        Gradients.ready = tuple(torch.full((size,), float(rank + 1), device=device) for size in sizes)

    def forward(self):
        return Gradients.apply(*self.tensors)

    def wrong(self, ranks):
        """Elements that are not the average, on this rank."""
        wanted = (ranks + 1) / 2
        return sum(int((parameter.grad != wanted).sum()) for parameter in self.parameters())


def read_shapes(file):
    """How many elements each tensor has: a tensor a line, dimensions separated by spaces."""
    sizes = []
    for line in Path(file).read_text(encoding="ascii").splitlines():
        if line and not line.startswith("#"):
            sizes.append(1)
            for extent in line.split():
                sizes[-1] *= int(extent)
    return sizes


def backward(ddp, synchronised):
    """With DDP's hooks, or as if there were none."""
    if synchronised:
        ddp().backward()
    else:
        with ddp.no_sync():
            ddp().backward()


def own_rank():
    """This process's, of those that `run_ranks` has started; None in the process that is to start them."""
    return int(os.environ["RANK"]) if "RANK" in os.environ else None


def bind_evenly(rank, count):
    """Where ranks outnumber CPUs, this rank stays on one, as mpirun has it for Kolo's (scripts/internal/bench/jobs.py)."""
    cpus = sorted(os.sched_getaffinity(0))
    if count > len(cpus):
        os.sched_setaffinity(0, {cpus[rank % len(cpus)]})


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_ranks(count, environment=None, of_rank=lambda _: {}):
    """Runs this very command once a rank, over the loopback interface, with one OpenMP thread unless `environment` says
    otherwise. Returns the exit status."""
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1",
              "GLOO_SOCKET_IFNAME": "lo", **(environment or {})}
    ranks = [subprocess.Popen([sys.executable, *sys.argv], env={**common, "RANK": str(rank), **of_rank(rank)})
             for rank in range(count)]
    return max(abs(rank.wait()) for rank in ranks)
