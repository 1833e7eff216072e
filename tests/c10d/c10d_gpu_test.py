#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The backend "kolo" on CUDA tensors: every call of c10d_test.py, streams, DDP and FSDP2 beside one process on the CPU.

usage: c10d_gpu_test.py [--ranks N,...] [CHECK...]      needs kolo_torch on the path (PYTHONPATH), and a GPU

Rank r uses device r, or as many ranks as there are share the devices; Kolo is asked to reduce by NCCL, which takes ranks
of one device for ranks of different hosts, and by way of the host ("staged"). Results are compared to the bit.
"""

import argparse
import contextlib
import copy
import os
import sys
import warnings

import torch
import torch.distributed as dist

import c10d_test
import kolo_torch
from c10d_test import same
from ranks import Ranks

# Not on devices: the sum of sparse tensors. That a timeout's sentence is right does not depend on the device.
ELSEWHERE = {"sparse_tensors"}
CHECKS = [function for function in c10d_test.CHECKS if function.__name__ not in ELSEWHERE]


def check(function):
    CHECKS.append(function)
    return function


def is_by_nccl():
    return os.environ["KOLO_GPU_BACKEND"] == "nccl"


@check
def the_backend_of_both(rank, size):
    assert dist.get_backend_config() == "cpu:kolo,cuda:kolo", dist.get_backend_config()
    for device in ("cpu", "cuda"):
        tensor = torch.full((3,), float(rank), device=device)
        dist.all_reduce(tensor)
        same(tensor, torch.full((3,), float(sum(range(size))), device=device))


@check
def behind_a_long_kernel(rank, size):
    """A collective comes behind what the current stream was given before; who waits for it is not held up."""
    stream, other = torch.cuda.Stream(), torch.cuda.Stream()
    tensor = torch.zeros(1000)
    dist.all_reduce(torch.zeros(1))  # the first prepares the device, which takes longer than the kernel
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(2_000_000_000)
        long_kernel = torch.cuda.Event()
        long_kernel.record()
        tensor.fill_(rank + 1)
        work = dist.all_reduce(tensor, async_op=True)
    with torch.cuda.stream(other):
        work.wait()
        if is_by_nccl():  # else a result is given to the device when it is known
            assert not long_kernel.query(), "the host has waited for the device"
            assert not work.is_completed()
        doubled = tensor * 2
    other.synchronize()
    assert long_kernel.query()
    c10d_test.until(work.is_completed)
    same(doubled, torch.full((1000,), float(size * (size + 1))))


@check
def futures_on_streams(rank, size):
    torch.cuda._sleep(100_000_000)
    tensor = torch.full((1000,), float(rank + 1))
    chained = dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    with torch.cuda.stream(torch.cuda.Stream()):
        same(chained.wait(), torch.full((1000,), float(size * (size + 1))))


@check
def memory_that_nobody_keeps(rank, size):
    """Tensors and works are dropped at once; their memory is not used again while a collective has it."""
    kept = []
    for step in range(50):
        kept.append(torch.full((100_000,), float(rank + step)))
        dist.all_reduce(kept[-1], async_op=True)
        dropped = c10d_test.strided(torch.ones(50_000))
        dist.all_reduce(dropped, async_op=True)
        del dropped
        torch.full((100_000,), -1.0)
    dist.barrier()
    dist.all_reduce(torch.ones(1))
    torch.cuda.synchronize()
    for step, tensor in enumerate(kept):
        same(tensor, torch.full((100_000,), float(sum(range(size)) + size * step)), step)


@check
def a_barrier_waits_for_the_stream(rank, size):
    dist.all_reduce(torch.ones(1))
    if rank == 0:
        torch.cuda._sleep(500_000_000)
    event = torch.cuda.Event()
    event.record()
    dist.barrier()
    assert event.query()


def trained(model, optimizer, device, rank, size, steps=5):
    """The parameters after some steps, each on this rank's share of 24 rows."""
    for step in range(steps):
        torch.manual_seed(step)
        inputs = torch.randn(24, 64, dtype=torch.float64, device="cpu")
        targets = torch.randn(24, 16, dtype=torch.float64, device="cpu")
        mine = slice(rank * 24 // size, (rank + 1) * 24 // size)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs[mine].to(device)), targets[mine].to(device))
        loss.backward()
        optimizer.step()
    whole = [p.detach().full_tensor() if hasattr(p, "full_tensor") else p.detach() for p in model.parameters()]
    return [p.cpu() for p in whole]


def networks():
    """The same on every rank and device."""
    with torch.random.fork_rng(), torch.device("cpu"):
        torch.manual_seed(7)
        layers = [torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU()]
        model = torch.nn.Sequential(*layers, torch.nn.Linear(256, 16)).double()
    return model, copy.deepcopy(model).cuda()


def alike(mine, wanted):
    for tensor, reference in zip(mine, wanted):
        torch.testing.assert_close(tensor, reference, rtol=1e-9, atol=1e-12)


@check
def data_parallel_as_one_process_on_the_cpu(rank, size):
    for in_arena in (False, True):
        reference, model = networks()
        wanted = trained(reference, torch.optim.SGD(reference.parameters(), lr=0.1), "cpu", 0, 1)
        model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.3, gradient_as_bucket_view=True)
        if in_arena:
            kolo_torch.reduce_in_arena(model)
        alike(trained(model, torch.optim.SGD(model.parameters(), lr=0.1), "cuda", rank, size), wanted)


@check
def fully_sharded_as_one_process_on_the_cpu(rank, size):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    reference, model = networks()
    wanted = trained(reference, torch.optim.Adam(reference.parameters(), lr=1e-3), "cpu", 0, 1)
    mesh = DeviceMesh.from_group(dist.group.WORLD, "cuda")
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    alike(trained(model, torch.optim.Adam(model.parameters(), lr=1e-3), "cuda", rank, size), wanted)


def nccl_has_not(op, dtype):
    return dtype == torch.int16 or op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR)


def on_rank(wanted, backend, rank, size, folder):
    os.environ.update(KOLO_GPU_BACKEND=backend, KOLO_SHARE_DEVICE="1", NCCL_HOSTID=f"kolo-{rank}", NCCL_NET="Socket",
                      NCCL_SOCKET_IFNAME="lo", NCCL_MAX_CTAS="2")
    assert torch.cuda.is_available(), "PyTorch sees no CUDA device"  # asked here: nothing of CUDA outlives a fork
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    torch.set_default_device(device)
    warnings.filterwarnings("ignore", message=r"barrier\(\): using the device")
    if backend == "nccl":
        c10d_test.is_reduced = lambda op, dtype: not nccl_has_not(op, dtype)
    c10d_test.join_world(rank, size, folder)
    for function in CHECKS:
        if wanted and function.__name__ not in wanted:
            continue
        try:
            function(rank, size)
            torch.cuda.synchronize()
        except BaseException:
            sys.stderr.write(f"check {function.__name__} failed on rank {rank} of {size}, {backend}\n")
            with contextlib.suppress(RuntimeError):
                kolo_torch.backend_of().abandon(f"check {function.__name__} failed on rank {rank}")
            raise
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--backends", default="nccl,staged")
    parser.add_argument("checks", nargs="*")
    arguments = parser.parse_args()
    if torch.version.cuda is None or "cuda" not in kolo_torch._DEVICES:
        sys.exit("c10d_gpu_test: PyTorch, or kolo_torch, was built without CUDA")
    failed = 0
    for size in map(int, arguments.ranks.split(",")):
        for backend in arguments.backends.split(","):
            body = lambda *place, b=backend: on_rank(arguments.checks, b, *place)  # noqa: E731
            statuses = Ranks(size, body).wait()
            outcome = "passed" if not any(statuses) else f"FAILED, {statuses}"
            print(f"{len(arguments.checks or CHECKS)} checks on {size} ranks, {backend}: {outcome}", flush=True)
            failed += any(statuses)
    print("PASS" if not failed else "FAIL")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
