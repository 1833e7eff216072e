#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's programs over Kolo beside NCCL on CUDA devices: they take turns, sample by sample, in one job.

    torchrun --nproc-per-node 2 bench/pytorch/beside_nccl.py [--only NAME,...] [--json FILE]

  allreduce     one all-reduce of 4 bytes to 256 MiB of float32, and 1000 of 1 KiB at once
  resnet50      DistributedDataParallel, gradients as those of ResNet-50 (25.6 million, float32)
  bert-base     the same with those of BERT-base (109.5 million)
  fsdp2         fully_shard on eight layers of 512 x 512: many small collectives, so the host's time

Worker r uses device r, or several share one: of those the times mean nothing (--check then looks at results alone). The
models compute next to nothing (beside_gloo.py). Two times of each sample, of its slowest rank, the medians: the device's,
between two events on the current stream around it, and the host's, until the calls have returned. "compute" is the same
step without communication. "arena": kolo_torch.reduce_in_arena. "wrong" counts elements that are not the mean or sum of
all ranks', which all are exact.
"""

import argparse
import contextlib
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import kolo_torch
from beside_gloo import Parameters, bert_base, resnet50


def slowest(values):
    times = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return statistics.median(times.tolist())


def in_turns(contestants, samples):
    """{name: (device's ms, host's ms)}. One communicator at a time: the host waits for the device between them."""
    device, host = ({name: [] for name in contestants} for _ in range(2))
    for sample in range(samples + 2):
        for name, run in contestants.items():
            torch.cuda.synchronize()
            dist.barrier()
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            events[0].record()
            begin = time.perf_counter()
            run()
            seconds = time.perf_counter() - begin
            events[1].record()
            torch.cuda.synchronize()
            if sample > 1:  # the first are to get warm
                host[name].append(1000 * seconds)
                device[name].append(events[0].elapsed_time(events[1]))
    return {name: (slowest(device[name]), slowest(host[name])) for name in contestants}


def all_reduces(groups, samples, sizes):
    rows, wrong, rank, size = [], 0, dist.get_rank(), dist.get_world_size()
    for count in sizes:
        tensors = {name: torch.zeros(count, device="cuda") for name in groups}
        for name, tensor in tensors.items():
            dist.all_reduce(tensor.fill_(rank + 1), group=groups[name])
            wrong += int((tensor != size * (size + 1) / 2).sum())
            tensor.zero_()
        contestants = {name: lambda n=name: dist.all_reduce(tensors[n], group=groups[n]) for name in groups}
        rows += [(f"allreduce {4 * count} bytes", name, *ms) for name, ms in in_turns(contestants, samples).items()]
    small = {name: [torch.zeros(256, device="cuda") for _ in range(1000)] for name in groups}

    def at_once(name):
        for work in [dist.all_reduce(tensor, group=groups[name], async_op=True) for tensor in small[name]]:
            work.wait()

    contestants = {name: lambda n=name: at_once(n) for name in groups}
    rows += [("1000 allreduces at once", name, *ms) for name, ms in in_turns(contestants, samples).items()]
    return rows, wrong


def data_parallel(what, shapes, groups, samples):
    models, x = {}, torch.tensor(float(dist.get_rank() + 1), device="cuda")
    for name, group in (*groups.items(), ("kolo, arena", groups["kolo"])):
        model = DistributedDataParallel(Parameters(shapes).cuda(), process_group=group, gradient_as_bucket_view=True)
        if "arena" in name:
            kolo_torch.reduce_in_arena(model)
        models[name] = model

    def step(name, sync=True):
        model = models[name]
        model.zero_grad()
        with contextlib.nullcontext() if sync else model.no_sync():
            model(x).backward()

    for name in models:  # buckets are made again after the first
        step(name), torch.cuda.synchronize(), step(name), torch.cuda.synchronize()
    exact, rounding = (dist.get_world_size() + 1) / 2, 0 if dist.get_world_size() in (1, 2, 4, 8) else 1e-6
    wrong = sum(int(((p.grad - exact).abs() > rounding).sum()) for model in models.values() for p in model.parameters())
    contestants = {"compute": lambda: step("nccl", sync=False)}
    contestants.update({name: lambda n=name: step(n) for name in models})
    return [(what, name, *ms) for name, ms in in_turns(contestants, samples).items()], wrong


def fully_sharded(groups, samples):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    models, x = {}, torch.full((1, 512), float(dist.get_rank() + 1), device="cuda")
    for name, group in groups.items():
        torch.manual_seed(0)
        model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)]).cuda()
        mesh = DeviceMesh.from_group(group, "cuda")
        for layer in model:
            fully_shard(layer, mesh=mesh)
        models[name] = fully_shard(model, mesh=mesh)

    def step(name):
        models[name].zero_grad()
        models[name](x).sum().backward()

    for name in models:
        step(name), torch.cuda.synchronize()
    gradients = [[p.grad.to_local() for p in models[name].parameters()] for name in groups]
    wrong = sum(int((~torch.isclose(one, other, rtol=1e-5)).sum()) for one, other in zip(*gradients))
    times = in_turns({name: lambda n=name: step(n) for name in models}, samples)
    return [("fsdp2", name, *ms) for name, ms in times.items()], wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="allreduce,resnet50,bert-base,fsdp2")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--check", action="store_true", help="one sample, small sizes")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    local, devices = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if devices == 0:
        raise SystemExit("beside_nccl: PyTorch sees no CUDA device")
    if local >= devices or int(os.environ["LOCAL_WORLD_SIZE"]) > devices:  # ranks of one device are for NCCL of hosts
        os.environ.update(KOLO_SHARE_DEVICE="1", NCCL_HOSTID=f"rank-{local}", NCCL_NET="Socket", NCCL_SOCKET_IFNAME="lo")
    torch.cuda.set_device(local % devices)
    dist.init_process_group("kolo")
    groups = {"nccl": dist.new_group(backend="nccl"), "kolo": dist.group.WORLD}
    samples = 1 if arguments.check else arguments.samples
    sizes = [4**n for n in range(0, 6 if arguments.check else 14)]
    runs = {
        "allreduce": lambda: all_reduces(groups, samples, sizes),
        "resnet50": lambda: data_parallel("resnet50", resnet50(), groups, samples),
        "bert-base": lambda: data_parallel("bert-base", bert_base(), groups, samples),
        "fsdp2": lambda: fully_sharded(groups, samples),
    }
    records, all_wrong = [], 0
    for what in arguments.only.split(","):
        rows, wrong = runs[what]()
        all_wrong += wrong
        for row, name, device, host in rows:
            records.append({"what": row, "contestant": name, "ranks": dist.get_world_size(), "devices": devices,
                            "device_ms": device, "host_ms": host, "wrong": wrong})
            if dist.get_rank() == 0:
                print(f"{row:28} {name:12} device {device:9.3f} ms  host {host:9.3f} ms  wrong {wrong}", flush=True)
    if dist.get_rank() == 0 and arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(records, file, indent=1)
    dist.destroy_process_group()
    return 1 if all_wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
