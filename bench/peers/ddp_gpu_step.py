#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model's gradients by PyTorch's DistributedDataParallel over NCCL, on GPUs: what it costs beside a backward pass.

    ddp_gpu_step.py --ranks N --shapes FILE [--device cuda|cpu] [--steps N] [--json FILE]

The backward pass hands out gradients that lie ready, once with DDP's hooks and once inside no_sync(), in turns. Two times
are the median of the differences: the host's, until backward() returns, and the device's, between two events around it.
(On the CPU, for trying the script out, over Gloo: the host's alone.) FILE holds one tensor a line, dimensions separated by
spaces. Ranks share the GPUs there are. Needs PyTorch.
"""
import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from ddp_peer import Model, backward, own_rank, read_shapes, run_ranks

WARM_UP = 5


def settle(device):
    if device == "cuda":
        torch.cuda.synchronize()


def step(model, ddp, synchronised, device):
    """Microseconds of the host and of the device."""
    model.zero_grad(set_to_none=True)
    settle(device)
    dist.barrier()
    settle(device)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if device == "cuda" else None
    if events:
        events[0].record()
    begin = time.perf_counter()
    backward(ddp, synchronised)
    host = time.perf_counter() - begin
    if events:
        events[1].record()
    settle(device)
    return host * 1e6, events[0].elapsed_time(events[1]) * 1e3 if events else host * 1e6


def summary(values):
    values = sorted(values)
    return {"median": statistics.median(values), "p10": values[len(values) // 10], "p90": values[len(values) * 9 // 10]}


def run_rank(flags, rank):
    torch.set_num_threads(1)
    dist.init_process_group("nccl" if flags.device == "cuda" else "gloo", rank=rank, world_size=flags.ranks)
    if flags.device == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    sizes = read_shapes(flags.shapes)
    model = Model(sizes, rank, flags.device)
    ddp = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    host, device = [], []
    for number in range(WARM_UP + flags.steps):
        with_hooks = step(model, ddp, True, flags.device)
        if number == 0:
            wrong = model.wrong(flags.ranks)
        without = step(model, ddp, False, flags.device)
        if number >= WARM_UP:
            host.append(with_hooks[0] - without[0])
            device.append(with_hooks[1] - without[1])
    if rank == 0:
        record = {"collective": "step", "contestant": "ddp", "torch": torch.__version__, "device": flags.device,
                  "tensors": len(sizes), "bytes": 4 * sum(sizes), "ranks": flags.ranks, "host_us": summary(host),
                  "device_us": summary(device), "samples": len(host), "wrong": wrong}
        print(f"ddp, {flags.ranks} ranks, {len(sizes)} tensors: host {record['host_us']['median']:.1f} us, "
              f"device {record['device_us']['median']:.1f} us beyond the backward pass, #wrong {wrong}")
        if flags.json:
            Path(flags.json).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()
    return 0 if wrong == 0 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--shapes", required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--json")
    flags = parser.parse_args()
    if flags.device == "cuda" and not torch.cuda.is_available():
        print("ddp_gpu_step: PyTorch sees no CUDA device", file=sys.stderr)
        return 2
    rank = own_rank()
    if rank is not None:
        return run_rank(flags, rank)
    shared = {}
    if flags.ranks > 1:  # ranks of one GPU are for NCCL ranks of different hosts
        shared = {"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo", "NCCL_MNNVL_ENABLE": "0",
                  "NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "2", "NCCL_RAS_ENABLE": "0"}
    return run_ranks(flags.ranks, shared, lambda rank: {"NCCL_HOSTID": f"ddp-{rank}"})


sys.exit(main())
