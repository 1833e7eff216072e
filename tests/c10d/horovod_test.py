#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kolo_torch.horovod, call by call, on 2 and 3 processes.

usage: horovod_test.py [CHECK...]      needs kolo_torch on the path (PYTHONPATH)
"""

import copy
import os
import sys
import warnings

import torch
import torch.distributed as dist

import kolo_torch.horovod as hvd
from ranks import Ranks

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def same(actual, expected, what=""):
    assert actual.dtype == expected.dtype and torch.equal(actual, expected), (what, actual, expected)


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), f"{text!r} is not in {str(error)!r}"
        return
    raise AssertionError(f"no {kind} with {text!r}")


@check
def places(rank, size):
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (rank, size, rank, size)
    assert (hvd.cross_rank(), hvd.cross_size(), hvd.is_homogeneous()) == (0, 1, True)


@check
def allreduces(rank, size):
    mine, total = torch.full((3,), float(rank + 1)), size * (size + 1) / 2
    same(hvd.allreduce(mine, op=hvd.Sum), torch.full((3,), total))
    same(hvd.allreduce(mine, average=False), torch.full((3,), total))
    same(mine, torch.full((3,), float(rank + 1)))
    same(hvd.allreduce(mine), torch.full((3,), (size + 1) / 2))
    same(hvd.allreduce(torch.tensor([rank + 1])), torch.tensor([int(total) // size]))
    same(hvd.allreduce(mine, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5), torch.full((3,), total))
    same(hvd.allreduce(mine, op=hvd.Sum, compression=hvd.Compression.fp16), torch.full((3,), total))
    in_place = mine.clone()
    assert hvd.allreduce_(in_place, op=hvd.Max) is in_place
    same(in_place, torch.full((3,), float(size)))
    grouped = hvd.grouped_allreduce([mine, 2 * mine], name="both", op=hvd.Sum)
    same(grouped[0], torch.full((3,), total))
    same(grouped[1], torch.full((3,), 2 * total))
    raises(ValueError, "give average or op", lambda: hvd.allreduce(mine, average=True, op=hvd.Sum))
    with_gradient = mine.clone().requires_grad_()
    hvd.allreduce(with_gradient, op=hvd.Sum, name="with.gradient").sum().backward()
    same(with_gradient.grad, torch.full((3,), float(size)))


@check
def names_in_any_order(rank, size):
    tensors = {name: torch.full((2,), float(len(name) + rank)) for name in ("a", "bb", "ccc")}
    order = sorted(tensors, reverse=rank % 2 == 1)
    handles = {name: hvd.allreduce_async_(tensors[name], name=name, op=hvd.Sum) for name in order}
    for name in tensors:
        same(hvd.synchronize(handles[name]), torch.full((2,), float(sum(len(name) + r for r in range(size)))))
        assert hvd.poll(handles[name])


@check
def other_collectives(rank, size):
    same(hvd.broadcast(torch.tensor([rank]), size - 1), torch.tensor([size - 1]))
    gathered = hvd.allgather(torch.full((rank, 2), rank), name="rows")
    same(gathered, torch.cat([torch.full((r, 2), r) for r in range(size)]))
    same(hvd.alltoall(torch.arange(size) + 10 * rank), torch.tensor([rank + 10 * r for r in range(size)]))
    rows = torch.full((sum(range(1, size + 1)), 2), float(rank))
    output, received = hvd.alltoall(rows, splits=torch.arange(1, size + 1))
    same(output, torch.cat([torch.full((rank + 1, 2), float(r)) for r in range(size)]))
    assert received.tolist() == [rank + 1] * size
    part = hvd.reducescatter(torch.ones(2 * size + 1, 3), op=hvd.Sum)
    same(part, torch.full((3 if rank == 0 else 2, 3), float(size)))
    assert hvd.broadcast_object(obj=["from", rank], root_rank=1) == ["from", 1]
    assert hvd.allgather_object(obj=rank) == list(range(size))
    hvd.barrier()


@check
def gradients_through_collectives(rank, size):
    """What each rank multiplies its results by comes back to where they came from."""
    total = float(size * (size + 1) / 2)
    for name in (None, "through"):
        mine = torch.full((3,), float(rank), requires_grad=True)
        (hvd.broadcast(mine, 1, name) * (rank + 1)).sum().backward()
        same(mine.grad, torch.full((3,), total / size if rank == 1 else 0.0))
        mine = torch.ones(rank + 1, 2, requires_grad=True)
        gathered = hvd.allgather(mine, name)
        factors = torch.arange(float(gathered.shape[0])).reshape(-1, 1)
        (gathered * factors * (rank + 1)).sum().backward()
        first = rank * (rank + 1) // 2
        same(mine.grad, (total / size * factors[first : first + rank + 1]).expand(-1, 2).contiguous())
        mine = torch.ones(size, 2, requires_grad=True)
        (hvd.alltoall(mine, name=name) * (rank + 1)).sum().backward()
        same(mine.grad, torch.arange(1.0, size + 1).reshape(-1, 1).expand(-1, 2).contiguous())
        mine = torch.ones(sum(range(1, size + 1)), requires_grad=True)  # r + 1 rows to rank r
        output, _ = hvd.alltoall(mine, torch.arange(1, size + 1), name)
        (output * (rank + 1)).sum().backward()
        same(mine.grad, torch.cat([torch.full((r + 1,), r + 1.0) for r in range(size)]))
        both = [torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)]
        outputs = hvd.grouped_allreduce(both, name=name, op=hvd.Sum)
        (outputs[0].sum() + 2 * outputs[1].sum()).backward()
        same(both[0].grad, torch.full((2,), float(size)))
        same(both[1].grad, torch.full((1,), 2.0 * size))


def network(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def data(size):
    generator = torch.Generator().manual_seed(7)
    return torch.randn(6, 2 * size, 4, generator=generator), torch.randn(6, 2 * size, 1, generator=generator)


@check
def training(rank, size):
    """As one process that sees everybody's samples."""
    inputs, targets = data(size)
    model = network(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (rank + 1), momentum=0.5)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    assert isinstance(optimizer, torch.optim.SGD) and optimizer.param_groups[0]["lr"] == 0.1
    alone = network(0)
    reference = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.5)
    for x, y in zip(inputs, targets):
        mine = slice(2 * rank, 2 * rank + 2)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x[mine]), y[mine]).backward()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
        reference.zero_grad()
        torch.nn.functional.mse_loss(alone(x), y).backward()
        reference.step()
    for trained, wanted in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(trained, wanted)


@check
def a_scheduler_that_was_made_before(rank, size):
    """It puts a `step` of its own before the optimizer's class; the gradients are averaged all the same."""
    for before in (True, False):
        parameter = torch.nn.Parameter(torch.zeros(2))
        optimizer = torch.optim.SGD([parameter], lr=1.0)
        if before:
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        optimizer = hvd.DistributedOptimizer(optimizer)
        if not before:
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                optimizer.zero_grad()
                (parameter.sum() * 2 * rank).backward()
                optimizer.step()
                scheduler.step()
        same(parameter.detach(), torch.full((2,), -1.5 * (size - 1)))


@check
def several_passes_a_step(rank, size):
    """Gradients of several passes are added up, as Horovod does."""
    inputs, targets = data(size)
    model = network(0)
    alone = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), backward_passes_per_step=2)
    reference = torch.optim.SGD(alone.parameters(), lr=0.1)
    for x, y in zip(inputs, targets):
        for sample in range(2):
            mine = slice(2 * rank + sample, 2 * rank + sample + 1)
            torch.nn.functional.mse_loss(model(x[mine]), y[mine]).backward()
        optimizer.step()
        optimizer.zero_grad()
        (2 * torch.nn.functional.mse_loss(alone(x), y)).backward()
        reference.step()
        reference.zero_grad()
    for trained, wanted in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(trained, wanted)
    torch.nn.functional.mse_loss(model(x), y).backward()
    torch.nn.functional.mse_loss(model(x), y).backward()
    again = lambda: torch.nn.functional.mse_loss(model(x), y).backward()  # noqa: E731
    raises((AssertionError, RuntimeError), "more than backward_passes_per_step times", again)
    raises(AssertionError, "before step() or synchronize()", optimizer.zero_grad)
    optimizer.synchronize()
    parameters = list(network(0).named_parameters())
    twice = [("w", parameters[0][1]), ("w", parameters[1][1])]
    plain = torch.optim.SGD([p for _, p in parameters], lr=0.1)
    raises(ValueError, "the same name", lambda: hvd.DistributedOptimizer(plain, twice))
    raises(ValueError, "lacks parameters", lambda: hvd.DistributedOptimizer(plain, parameters[:1]))


@check
def uneven_data(rank, size):
    """Rank 0 has one batch more than the others."""
    for step in range(2 if rank == 0 else 1):
        reduced = hvd.allreduce(torch.ones(2), name="batch", op=hvd.Sum)
        same(reduced, torch.full((2,), float(size if step == 0 else 1)))
    assert 0 <= hvd.join(device=-1) < size


def refuses_another_launcher():
    os.environ.pop("RANK", None)
    for variable in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "HOROVOD_SIZE", "SLURM_STEP_NUM_TASKS"):
        os.environ[variable] = "4"
        raises(RuntimeError, (
            f"{variable} says that a launcher has started 4 processes, but RANK is not set, so each of them would be "
            "alone. Start the program by torchrun (torchrun --nproc-per-node 4 train.py), or give every process RANK, "
            "WORLD_SIZE, MASTER_ADDR and MASTER_PORT."
        ), hvd.init)
        assert not hvd.is_initialized()
        del os.environ[variable]


def all_checks(rank, size, folder):
    assert not hvd.is_initialized()
    refuses_another_launcher()
    raises(ValueError, "need hvd.init()", hvd.rank)
    dist.init_process_group("kolo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    hvd.init()
    assert hvd.is_initialized()
    for function in CHECKS:
        if sys.argv[1:] and function.__name__ not in sys.argv[1:]:
            continue
        try:
            function(rank, size)
        except BaseException:
            sys.stderr.write(f"check {function.__name__} failed on rank {rank} of {size}\n")
            raise
    hvd.shutdown()
    assert not hvd.is_initialized()


def main():
    failed = 0
    for size in (2, 3):
        statuses = Ranks(size, all_checks).wait()
        outcome = "passed" if not any(statuses) else f"FAILED, {statuses}"
        print(f"{len(CHECKS)} checks on {size} ranks: {outcome}", flush=True)
        failed += any(statuses)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
