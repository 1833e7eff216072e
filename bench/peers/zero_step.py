#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A step of BERT-base's gradients with AdamW by PyTorch over Gloo, on the CPUs of this machine.

    zero_step.py --ranks N --kind ddp|zero|fsdp2 [--layers N] [--steps N]

ddp: DistributedDataParallel and AdamW. zero: DistributedDataParallel and ZeroRedundancyOptimizer around AdamW. fsdp2:
fully_shard and AdamW (PyTorch 2.6 or newer). The backward pass hands out gradients that lie ready; timed is everything
from the forward pass to the end of the optimizer's step, of the slowest rank, with one thread a rank: the peer of
kolo-shards (bench/README.md). Prints the median, and how many values are not what one process would have.
"""
import argparse
import statistics
import sys
import time

import torch
import torch.distributed as dist

from ddp_peer import Model, bind_evenly, own_rank, run_ranks

WIDTH, INNER = 768, 3072


def bert(layers):
    """How many elements the tensors of BERT-base have, with so many of its 12 layers."""
    sizes = [30522 * WIDTH, 512 * WIDTH, 2 * WIDTH, WIDTH, WIDTH]
    for _ in range(layers):
        sizes += 4 * [WIDTH * WIDTH, WIDTH]
        sizes += [WIDTH, WIDTH, INNER * WIDTH, INNER, WIDTH * INNER, WIDTH, WIDTH, WIDTH]
    return sizes + [WIDTH * WIDTH, WIDTH]


def make(kind, sizes, rank):
    """What the step calls, its optimizer, and the parameters."""
    model = Model(sizes, rank)
    if kind == "fsdp2":
        from torch.distributed.fsdp import fully_shard
        fully_shard(model)
        return model, torch.optim.AdamW(model.parameters())
    ddp = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if kind == "ddp":
        return ddp, torch.optim.AdamW(model.parameters())
    from torch.distributed.optim import ZeroRedundancyOptimizer
    return ddp, ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW)


def step(model, optimizer):
    optimizer.zero_grad(set_to_none=True)
    dist.barrier()
    begin = time.perf_counter()
    model().backward()
    optimizer.step()
    slowest = torch.tensor([time.perf_counter() - begin])
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


def wrong_values(model, steps, ranks):
    """Elements of this rank's parameters that are not those of AdamW with the mean gradient, alone."""
    alone = torch.nn.Parameter(torch.zeros(1))
    adamw = torch.optim.AdamW([alone])
    for _ in range(steps):
        alone.grad = torch.full((1,), (ranks + 1) / 2)
        adamw.step()
    local = (p.to_local() if hasattr(p, "to_local") else p for p in model.parameters())
    return sum(int((parameter != alone).sum()) for parameter in local)


def run_rank(flags, rank):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=flags.ranks)
    model, optimizer = make(flags.kind, bert(flags.layers), rank)
    times = [step(model, optimizer) for _ in range(2 + flags.steps)][2:]  # state and buckets are made in the first
    wrong = torch.tensor([wrong_values(model, 2 + flags.steps, flags.ranks)])
    dist.all_reduce(wrong)
    if rank == 0:
        print(f"{flags.ranks} ranks  {flags.kind}, torch {torch.__version__}: step {statistics.median(times) * 1e3:.1f} "
              f"ms, #wrong {wrong.item()}")
    dist.barrier()
    dist.destroy_process_group()
    return 0 if wrong.item() == 0 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--kind", choices=("ddp", "zero", "fsdp2"), required=True)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--steps", type=int, default=5)
    flags = parser.parse_args()
    rank = own_rank()
    if rank is None:
        return run_ranks(flags.ranks)
    bind_evenly(rank, flags.ranks)
    return run_rank(flags, rank)


if __name__ == "__main__":
    sys.exit(main())
