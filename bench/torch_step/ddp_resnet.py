#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/torch_resnet under Python's DistributedDataParallel over Gloo; torch_step.py starts one process a rank.

usage: ddp_resnet.py --rank R --size N --store FILE --alone N --steps N --batch N --image N --threads N [--zeros]
                     [--json FILE]

The same model, steps and measurements, and the same JSON. Gradients are views of DDP's buckets.
"""

import argparse
import json
import time

import torch
import torch.distributed as dist
from torch import nn


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


def time_steps(count, step):
    seconds = []
    for _ in range(count):
        dist.barrier()
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return seconds


def mebibytes():
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) / 1024


def main():
    parser = argparse.ArgumentParser()
    for name in ("rank", "size", "alone", "steps", "batch", "image", "threads"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--zeros", action="store_true")
    parser.add_argument("--json")
    flags = parser.parse_args()

    torch.set_num_threads(flags.threads)
    torch.manual_seed(flags.rank)
    dist.init_process_group("gloo", init_method="file://" + flags.store, rank=flags.rank, world_size=flags.size)
    model = ResNet50()
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randn(flags.batch, 3, flags.image, flags.image)
    labels = torch.randint(1000, (flags.batch,))

    def step(network, optimizer):
        optimizer.zero_grad(set_to_none=not flags.zeros)
        torch.nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()

    # Buffers are left alone, as Kolo leaves them unless it is told otherwise.
    ddp = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, broadcast_buffers=False)
    time_steps(flags.steps, lambda: step(ddp, sgd))
    memory = torch.tensor([mebibytes()])
    dist.all_reduce(memory, dist.ReduceOp.MAX)
    other = ResNet50()
    plain = torch.optim.SGD(other.parameters(), lr=0.01)
    together, alone = [], []
    for _ in range(flags.alone):
        together += time_steps(1, lambda: step(ddp, sgd))
        alone += time_steps(1, lambda: step(other, plain))
    if flags.json:
        with open(flags.json, "w", encoding="ascii") as file:
            json.dump({"alone": alone, "together": together, "mebibytes": memory.item()}, file)
    dist.barrier()


main()
