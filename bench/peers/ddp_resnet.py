#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training step of ResNet-50 under Python's DistributedDataParallel over Gloo, beside one without.

    ddp_resnet.py --ranks N [--steps N] [--turns N] [--pairs N] [--batch N] [--image N] [--threads N] [--zeros]
                  [--turn I/N:FOLDER] [--json FILE]

The same model, steps and measurements as bench/torch_step/kolo_resnet.cpp, and the same JSON; torch_step.py starts
both. Gradients are views of DDP's buckets (gradient_as_bucket_view); the rest is DDP's default, but that buffers are left
alone, as Kolo leaves them.
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from ddp_peer import Turns, own_rank, run_ranks


def convolution(inputs, outputs, size, stride):
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = convolution(inputs, width, 1, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = convolution(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = convolution(width, 4 * width, 1, 1), nn.BatchNorm2d(4 * width)
        self.shortcut = None
        if stride != 1 or inputs != 4 * width:
            self.shortcut = nn.Sequential(convolution(inputs, 4 * width, 1, stride), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return torch.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet50(nn.Module):
    def __init__(self, classes=1000):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        blocks, inputs, width = [], 64, 64
        for stage, count in enumerate((3, 4, 6, 3)):
            for block in range(count):
                blocks.append(Bottleneck(inputs, width, 2 if stage > 0 and block == 0 else 1))
                inputs = 4 * width
            width *= 2
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, images):
        x = torch.relu(self.bn1(self.conv1(images)))
        x = torch.max_pool2d(x, 3, 2, 1)
        return self.fc(torch.flatten(torch.nn.functional.adaptive_avg_pool2d(self.blocks(x), (1, 1)), 1))


def mebibytes():
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) / 1024


def measure(step):
    """Own time and time until all ranks had done it, CPU time of all threads, page faults, switches between threads."""
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    step()
    own = time.perf_counter()
    dist.barrier()
    end, after = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [own - begin, end - begin, cpu, after.ru_minflt - before.ru_minflt,
            after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw]


def run_rank(flags, rank):
    torch.set_num_threads(flags.threads)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", rank=rank, world_size=flags.ranks)
    turns = Turns(flags.turn, rank)
    turns.begin()
    images = torch.randn(flags.batch, 3, flags.image, flags.image)
    labels = torch.randint(1000, (flags.batch,))

    def step(network, optimizer):
        optimizer.zero_grad(set_to_none=not flags.zeros)
        torch.nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()

    model = ResNet50()
    sgd = torch.optim.SGD(model.parameters(), lr=1e-6)
    ddp = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, broadcast_buffers=False)
    for _ in range(flags.steps):
        step(ddp, sgd)
    record = {"mebibytes": mebibytes(), "turns": []}
    other = ResNet50()
    plain = torch.optim.SGD(other.parameters(), lr=1e-6)
    for _ in range(2):
        step(other, plain)
    turns.end(False)

    for _ in range(flags.turns):
        turns.begin()
        step(ddp, sgd)  # what the other jobs have left in the caches is no part of it
        dist.barrier()
        pairs = {"together": [], "alone": []}
        for pair in range(flags.pairs):
            for kind in ("together", "alone") if pair % 2 == 0 else ("alone", "together"):
                pairs[kind].append(measure(lambda: step(ddp, sgd) if kind == "together" else step(other, plain)))
        record["turns"].append(pairs)
        turns.end(False)
    if flags.json:
        record["weights"] = sum(parameter.detach().double().abs().sum().item() for parameter in model.parameters())
        Path(f"{flags.json}.{rank}").write_text(json.dumps(record), encoding="ascii")
    dist.barrier()
    dist.destroy_process_group()
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    for name, default in (("steps", 4), ("turns", 10), ("pairs", 4), ("batch", 2), ("image", 32), ("threads", 1)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--zeros", action="store_true")
    parser.add_argument("--turn")
    parser.add_argument("--json")
    flags = parser.parse_args()
    rank = own_rank()
    if rank is None:
        return run_ranks(flags.ranks, {"OMP_NUM_THREADS": str(flags.threads)})
    return run_rank(flags, rank)


sys.exit(main())
