#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's programs over Kolo beside Gloo: they take turns, sample by sample, in one job.

    OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 bench/pytorch/beside_gloo.py [--only NAME,...] [--json FILE]

  small         1000 all-reduces of 1 KiB, one after another, and all at once
  resnet50      DistributedDataParallel, gradients as those of ResNet-50 (25.6 million, float32)
  bert-base     the same with those of BERT-base (109.5 million)
  fsdp          FSDP2, 8 layers of 2048 x 2048

The models have the parameters of their names and compute next to nothing: what is measured is time beyond the
computation, the median of the samples (in brackets the shortest and the longest), each of which takes as long as its
slowest rank. "compute" is the same step without communication. "arena": kolo_torch.reduce_in_arena. "wrong" counts what
differs from the right result, or from Gloo's, by more than rounding (on 2 ranks by a bit): elements of what was reduced,
and losses of the first steps of a training with SGD, in which every rank has other data.
"""

import argparse
import contextlib
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import kolo_torch


def resnet50():
    shapes = []

    def convolution(outputs, inputs, kernel):
        shapes.extend([(outputs, inputs, kernel, kernel), (outputs,), (outputs,)])

    convolution(64, 3, 7)
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            convolution(width, inputs, 1)
            convolution(width, width, 3)
            convolution(4 * width, width, 1)
            if block == 0:
                convolution(4 * width, inputs, 1)
            inputs = 4 * width
    return shapes + [(1000, 2048), (1000,)]


def bert_base():
    def linear(outputs, inputs):
        return [(outputs, inputs), (outputs,)]

    norm = [(768,), (768,)]
    layer = 4 * linear(768, 768) + norm + linear(3072, 768) + linear(768, 3072) + norm
    return [(30522, 768), (512, 768), (2, 768)] + norm + 12 * layer + linear(768, 768)


class Parameters(torch.nn.Module):
    """Parameters of these shapes. The gradient of each is the input in every element, if that is one number; else the
    parameters learn to be the input."""

    def __init__(self, shapes):
        super().__init__()
        self.all = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(shape)) for shape in shapes])

    def forward(self, x):
        if x.dim() == 0:
            return sum(parameter.sum() for parameter in self.all) * x
        return sum((parameter.view(-1) - x[: parameter.numel()]).square().mean() for parameter in self.all)


def slowest(seconds):
    """Of each sample the time of the rank that took longest."""
    times = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return times.tolist()


def in_turns(contestants, samples):
    """{name: seconds of each sample}."""
    seconds = {name: [] for name in contestants}
    for sample in range(samples + 1):
        for name, run in contestants.items():
            dist.barrier()
            begin = time.perf_counter()
            run()
            if sample > 0:  # the first is to get warm
                seconds[name].append(time.perf_counter() - begin)
    return {name: slowest(values) for name, values in seconds.items()}


def everywhere(count):
    """The ranks' counts, summed."""
    total = torch.tensor(count)
    dist.all_reduce(total)
    return int(total)


def differ(one, other):
    """How many elements do."""
    if dist.get_world_size() == 2:
        return int((one != other).sum())
    return int((~torch.isclose(one, other, rtol=1e-5, atol=1e-7)).sum())


def train(models, loss_of, steps=3):
    """All models begin alike and see the same data. How many losses and parameters of the others differ from the first's."""
    losses = []
    for model in models:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            loss = loss_of(model)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        optimizer.zero_grad()
    wrong = 0
    for n in range(steps, len(losses)):
        wrong += differ(losses[n], losses[n % steps])
    assert not torch.equal(losses[0], losses[steps - 1])
    for model in models[1:]:
        for mine, theirs in zip(models[0].parameters(), model.parameters()):
            local = [p.to_local() if hasattr(p, "to_local") else p for p in (mine.detach(), theirs.detach())]
            wrong += differ(*local)
    return wrong


def small(groups, samples):
    rank, size = dist.get_rank(), dist.get_world_size()
    tensors = {name: [torch.ones(256) for _ in range(1000)] for name in groups}

    def one_by_one(name, op=dist.ReduceOp.MAX):
        for tensor in tensors[name]:
            dist.all_reduce(tensor, op, group=groups[name])

    def at_once(name, op=dist.ReduceOp.MAX):
        group = groups[name]
        for work in [dist.all_reduce(tensor, op, group, async_op=True) for tensor in tensors[name]]:
            work.wait()

    contestants, wrong = {}, 0
    for way, run in (("one by one", one_by_one), ("at once", at_once)):
        for name in groups:
            for n, tensor in enumerate(tensors[name]):
                tensor.fill_(n + rank)
            run(name, dist.ReduceOp.SUM)
            wrong += sum(int((t != size * n + size * (size - 1) / 2).sum()) for n, t in enumerate(tensors[name]))
            contestants[f"{name}, {way}"] = lambda n=name, r=run: r(n)
    return in_turns(contestants, samples), wrong


def data_parallel(shapes, groups, samples):
    models, x = {}, torch.tensor(float(dist.get_rank() + 1))
    for name, group in (*groups.items(), ("kolo, arena", groups["kolo"])):
        model = DistributedDataParallel(Parameters(shapes), process_group=group, gradient_as_bucket_view=True)
        if "arena" in name:
            kolo_torch.reduce_in_arena(model)
        models[name] = model

    def step(name, sync=True):
        model = models[name]
        model.zero_grad()
        with contextlib.nullcontext() if sync else model.no_sync():
            model(x).backward()

    torch.manual_seed(dist.get_rank())
    data = torch.randn(max(p.numel() for p in models["gloo"].parameters()))
    wrong = train(list(models.values()), lambda model: model(data))  # buckets are made again after the first step
    for name in models:
        step(name)
    exact = (dist.get_world_size() + 1) / 2
    for model in models.values():
        wrong += sum(differ(p.grad, torch.tensor(exact)) for p in model.parameters())
    contestants = {"compute": lambda: step("gloo", sync=False)}
    contestants.update({name: lambda n=name: step(n) for name in models})
    return in_turns(contestants, samples), wrong


def fully_sharded(groups, samples):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    models, x = {}, torch.ones(1, 2048)
    for name, group in groups.items():
        torch.manual_seed(0)
        model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)])
        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in model:
            fully_shard(layer, mesh=mesh)
        models[name] = fully_shard(model, mesh=mesh)

    def step(name):
        models[name].zero_grad()
        models[name](x).sum().backward()

    torch.manual_seed(dist.get_rank())
    data = torch.randn(4, 2048)
    wrong = train(list(models.values()), lambda model: model(data).square().mean())
    return in_turns({name: lambda n=name: step(n) for name in models}, samples), wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="small,resnet50,bert-base,fsdp")
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    dist.init_process_group("kolo")
    groups = {"gloo": dist.new_group(backend="gloo"), "kolo": dist.group.WORLD}
    runs = {
        "small": lambda: small(groups, arguments.samples),
        "resnet50": lambda: data_parallel(resnet50(), groups, arguments.samples),
        "bert-base": lambda: data_parallel(bert_base(), groups, arguments.samples),
        "fsdp": lambda: fully_sharded(groups, arguments.samples),
    }
    records = []
    for what in arguments.only.split(","):
        samples, wrong = runs[what]()
        wrong = everywhere(wrong)
        ms = {name: 1000 * statistics.median(seconds) for name, seconds in samples.items()}
        compute = ms.get("compute", 0.0)
        for name, seconds in samples.items():
            gloos = ms[name.replace("kolo", "gloo").replace(", arena", "")] if "kolo" in name else None
            record = {"what": what, "contestant": name, "ranks": dist.get_world_size(), "ms": ms[name],
                      "shortest_ms": 1000 * min(seconds), "longest_ms": 1000 * max(seconds),
                      "beyond_ms": ms[name] - compute,
                      "gloo_over_this": (gloos - compute) / (ms[name] - compute) if gloos else None, "wrong": wrong}
            records.append(record)
            if dist.get_rank() == 0:
                ratio = f"{record['gloo_over_this']:6.2f} x" if gloos else 8 * " "
                spread = f"[{record['shortest_ms']:.1f} .. {record['longest_ms']:.1f}]"
                print(f"{what:10} {name:16} {ms[name]:8.1f} ms {spread:20} beyond {record['beyond_ms']:8.1f} ms {ratio}"
                      f"  wrong {wrong}", flush=True)
    if dist.get_rank() == 0 and arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(records, file, indent=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
