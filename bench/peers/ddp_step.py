#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model's gradients by PyTorch's DistributedDataParallel over Gloo, on the CPUs of this machine.

    ddp_step.py --ranks N --shapes FILE [--view] [--turn I/N:FOLDER] [--seconds S] [--json FILE]

Measured is what DDP takes beyond the pure backward pass: the backward hands out gradients that lie ready, once with
DDP's hooks and once inside no_sync(), in turns; the time is the median of the differences. FILE holds one tensor a
line, dimensions separated by spaces. --turn as in kolo-bench (bench/README.md). Needs python3-torch.
"""
import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from ddp_peer import Model, Turns, backward, bind_evenly, own_rank, read_shapes, run_ranks


def step(model, ddp, synchronised):
    model.zero_grad(set_to_none=True)
    dist.barrier()
    begin = time.perf_counter()
    backward(ddp, synchronised)
    slowest = torch.tensor([time.perf_counter() - begin])
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


def measure(flags, rank):
    sizes = read_shapes(flags.shapes)
    model = Model(sizes, rank)
    ddp = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=flags.view)
    turns = Turns(flags.turn, rank)
    turns.begin()
    for _ in range(3):  # buckets are made anew after the first
        step(model, ddp, True)
        step(model, ddp, False)
    step(model, ddp, True)
    wrong = torch.tensor([model.wrong(flags.ranks)])
    dist.all_reduce(wrong)
    turns.end(False)
    differences = []
    start = time.perf_counter()
    while turns.begin():
        if flags.turn:  # having slept, as kolo-bench's jobs (kSettlingMicroseconds): this one does not count
            step(model, ddp, True)
        differences.append(step(model, ddp, True) - step(model, ddp, False))
        if flags.turn is None:
            over = torch.tensor([time.perf_counter() - start > flags.seconds], dtype=torch.uint8)
            dist.all_reduce(over, dist.ReduceOp.MAX)
            if over.item():
                break
        turns.end(False)
    turns.end(True)
    return sizes, differences, wrong.item()


def run_rank(flags, rank):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=flags.ranks)
    sizes, differences, wrong = measure(flags, rank)
    if rank == 0:
        times = sorted(difference * 1e6 for difference in differences)
        name = "ddp-view" if flags.view else "ddp"
        record = {"collective": "step", "contestant": name, "torch": torch.__version__, "tensors": len(sizes),
                  "bytes": 4 * sum(sizes), "ranks": flags.ranks, "time_us": statistics.median(times),
                  "time_p10_us": times[len(times) // 10], "time_p90_us": times[len(times) * 9 // 10],
                  "samples": len(times), "wrong": wrong}
        print(f"{name}: {record['time_us']:.0f} us beyond the backward pass, #wrong {wrong}")
        if flags.json:
            Path(flags.json).write_text(json.dumps([record], indent=2) + "\n", encoding="ascii")
    dist.barrier()
    dist.destroy_process_group()
    return 0 if wrong == 0 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--shapes", required=True)
    parser.add_argument("--view", action="store_true", help="gradient_as_bucket_view")
    parser.add_argument("--turn")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--json")
    flags = parser.parse_args()
    rank = own_rank()
    if rank is None:
        return run_ranks(flags.ranks)
    bind_evenly(rank, flags.ranks)
    return run_rank(flags, rank)


sys.exit(main())
