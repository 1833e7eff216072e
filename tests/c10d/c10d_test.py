#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The backend "kolo" of torch.distributed, call by call, on 2, 3 and 4 processes.

usage: c10d_test.py [CHECK...]      needs kolo_torch on the path (PYTHONPATH)

All data sum exactly, so that results are compared to the bit, on every rank; what is to be written is poisoned first.
Each world size is one launch, in which all checks run one after another. Faults have launches of their own.
"""

import datetime
import gc
import inspect
import itertools
import multiprocessing
import os
import resource
import subprocess
import sys
import threading
import time
import warnings

import torch
import torch.distributed as dist

import kolo_torch
from kolo_torch import ProcessGroupKolo
from ranks import Ranks, kill_me

CHECKS = []
FAULTS = []
LEFT_OUT = {}
POISON = 77
FOR_EVER = datetime.timedelta(days=10**8)  # in microseconds, as PyTorch counts, just about an int64
CommunicationError = getattr(dist, "DistBackendError", RuntimeError)  # PyTorch 1.13 has no type of its own for it
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
COMPLEX = [torch.complex64, torch.complex128]
NEWER = [getattr(torch, name) for name in ("uint16", "uint32", "uint64") if hasattr(torch, name)]
FLOATS_8 = [getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)]


def needs(is_there, reason):
    """Of a check or a fault that is left out, with this reason, where this PyTorch lacks what it is about."""

    def add(function):
        if not is_there:
            LEFT_OUT[function.__name__] = reason
        return function

    return add


def check(function):
    if function.__name__ not in LEFT_OUT:
        CHECKS.append(function)
    return function


def fault(*sizes):
    def add(function):
        if function.__name__ not in LEFT_OUT:
            FAULTS.append((function, sizes))
        return function

    return add


def same(actual, expected, what=""):
    assert actual.dtype == expected.dtype and actual.shape == expected.shape, (what, actual, expected)
    packed = [t.clone(memory_format=torch.contiguous_format).reshape(-1) for t in (actual, expected)]
    as_bytes = [t.view(torch.uint8) for t in packed]
    assert torch.equal(*as_bytes), (what, actual, expected)


def is_old():
    """Whether this is PyTorch 1.13, Debian's."""
    return torch.__version__.startswith("1.")


def until(condition):
    """Of what the host hears soon after a device's work has ended; of the CPU's it has heard."""
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline, "still not so after ten minutes"
        time.sleep(0.001)


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), f"{text!r} is not in {str(error)!r}"
        return
    raise AssertionError(f"no {kind} with {text!r}")


def values(rank, count, dtype):
    """Small whole numbers, others on each rank."""
    numbers = torch.arange(count, dtype=torch.int64) % 5 + rank + 1
    if dtype in COMPLEX:
        return torch.complex(numbers.double(), numbers.double() * 2 + rank).to(dtype)
    if dtype == torch.bool:
        return numbers % 2 == 0
    return numbers.to(dtype)


def strided(tensor):
    """The same numbers with gaps between them, and poison in the gaps."""
    wide = torch.stack([tensor, torch.full_like(tensor, POISON)], dim=-1)
    view = wide[..., 0]
    assert view.numel() < 2 or not view.is_contiguous()
    return view


def poisoned(*shape, dtype=torch.float32):
    return torch.full(shape, POISON, dtype=torch.float32).to(dtype)


def is_reduced(op, dtype):
    """Whether Kolo can; on devices it depends on how (c10d_gpu_test.py)."""
    return True


@check
def reductions(rank, size):
    combine = {
        dist.ReduceOp.SUM: lambda a, b: a + b,
        dist.ReduceOp.PRODUCT: lambda a, b: a * b,
        dist.ReduceOp.MIN: torch.minimum,
        dist.ReduceOp.MAX: torch.maximum,
        dist.ReduceOp.BAND: torch.bitwise_and,
        dist.ReduceOp.BOR: torch.bitwise_or,
        dist.ReduceOp.BXOR: torch.bitwise_xor,
    }
    bits = (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR)
    for op, dtype in itertools.product(combine, FLOATS + INTEGERS + COMPLEX):
        if op in bits and dtype not in INTEGERS or op != dist.ReduceOp.SUM and dtype in COMPLEX:
            continue
        if not is_reduced(op, dtype):
            continue
        expected = values(0, 37, dtype)
        for other in range(1, size):
            expected = combine[op](expected, values(other, 37, dtype))
        for layout in (torch.clone, strided):
            tensor = layout(values(rank, 37, dtype))
            dist.all_reduce(tensor, op)
            same(tensor, expected, (op, dtype, layout))
        for root in range(size):
            tensor = values(rank, 37, dtype)
            dist.reduce(tensor, root, op)
            same(tensor, expected if rank == root else values(rank, 37, dtype), (op, dtype, root))
    tensor = torch.full((5,), float(rank))
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    same(tensor, torch.full((5,), (size - 1) / 2))
    for op, expected in ((dist.ReduceOp.SUM, True), (dist.ReduceOp.BAND, False), (dist.ReduceOp.BOR, True)):
        tensor = torch.tensor([rank == 0])
        dist.all_reduce(tensor, op)
        same(tensor, torch.tensor([expected]), op)


@check
def reductions_of_what_there_is_not(rank, size):
    for dtype in FLOATS_8:
        tensor = poisoned(3, dtype=dtype)
        raises(NotImplementedError, "can be sent and gathered, not reduced", lambda: dist.all_reduce(tensor))
    complex_max = lambda: dist.distributed_c10d._get_default_group().allreduce(  # noqa: E731
        [torch.zeros(2, dtype=torch.complex64)], _options(dist.AllreduceOptions, reduceOp=dist.ReduceOp.MAX)
    )
    raises(NotImplementedError, 'complex numbers can be reduced by SUM and AVG, not by "max"', complex_max)
    for dtype in [torch.bool] + NEWER:
        numbers = torch.zeros(2, dtype=dtype)
        text = "have no average, as PyTorch does not divide them"
        raises(NotImplementedError, text, lambda: dist.all_reduce(numbers, dist.ReduceOp.AVG))  # noqa: B023


@check
def averages_of_integers(rank, size):
    """Their sum, divided and rounded towards zero, as NCCL does it."""
    def mine(dtype, giver):
        return torch.tensor([giver, 3 * giver + 1, -giver if dtype != torch.uint8 else 7], dtype=dtype)

    for dtype, layout in itertools.product(INTEGERS, (torch.clone, strided)):
        if not is_reduced(dist.ReduceOp.AVG, dtype):
            continue
        total = sum(mine(torch.int64, giver) if dtype != torch.uint8 else mine(dtype, giver) for giver in range(size))
        expected = torch.tensor([int(n / size) for n in total.tolist()], dtype=dtype)
        tensor = layout(mine(dtype, rank))
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        same(tensor, expected, dtype)
        tensor = layout(mine(dtype, rank))
        dist.all_reduce(tensor, dist.ReduceOp.AVG, async_op=True).get_future().wait()
        same(tensor, expected, dtype)
        for root in range(size):
            tensor = layout(mine(dtype, rank))
            dist.reduce(tensor, root, dist.ReduceOp.AVG)
            same(tensor, expected if rank == root else mine(dtype, rank), (dtype, root))
        output = layout(poisoned(3, dtype=dtype))
        dist.reduce_scatter(output, [layout(mine(dtype, rank)) for _ in range(size)], dist.ReduceOp.AVG)
        same(output, expected, dtype)
    tensors = [mine(torch.int64, rank), torch.full((2,), float(rank))]
    options = _options(dist.AllreduceCoalescedOptions, reduceOp=dist.ReduceOp.AVG)
    kolo_torch.backend_of().allreduce_coalesced(tensors, options).wait()
    same(tensors[0], torch.tensor([int(n / size) for n in sum(mine(torch.int64, r) for r in range(size)).tolist()]))
    same(tensors[1], torch.full((2,), (size - 1) / 2))


def _options(kind, **fields):
    options = kind()
    for name, value in fields.items():
        setattr(options, name, value)
    return options


@check
def coalesced(rank, size):
    tensors = [values(rank, n, torch.float32) for n in (1, 8, 300)]
    expected = [sum(values(r, n, torch.float32) for r in range(size)) for n in (1, 8, 300)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.all_reduce_coalesced(tensors)
    for tensor, wanted in zip(tensors, expected):
        same(tensor, wanted)
    inputs = [values(rank, n, torch.int64) for n in (2, 5)]
    outputs = [[poisoned(n, dtype=torch.int64) for n in (2, 5)] for _ in range(size)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.all_gather_coalesced(outputs, inputs)
    for other in range(size):
        for tensor, n in zip(outputs[other], (2, 5)):
            same(tensor, values(other, n, torch.int64))


@check
@needs(hasattr(dist.ProcessGroup, "allgather_into_tensor_coalesced"), "its calls are in no PyTorch before 2.0")
def coalesced_in_one_tensor(rank, size):
    group = dist.distributed_c10d._get_default_group()
    outputs = [poisoned(n * size) for n in (2, 5)]
    group.allgather_into_tensor_coalesced(outputs, [values(rank, n, torch.float32) for n in (2, 5)]).wait()
    for tensor, n in zip(outputs, (2, 5)):
        same(tensor, torch.cat([values(r, n, torch.float32) for r in range(size)]))
    outputs = [poisoned(n) for n in (2, 5)]
    inputs = [values(rank, n * size, torch.float32) for n in (2, 5)]
    group.reduce_scatter_tensor_coalesced(outputs, inputs).wait()
    for tensor, n in zip(outputs, (2, 5)):
        same(tensor, sum(values(r, n * size, torch.float32) for r in range(size))[rank * n : (rank + 1) * n])


@check
def broadcasts(rank, size):
    for dtype in FLOATS + INTEGERS + COMPLEX + NEWER + FLOATS_8 + [torch.bool]:
        for root, layout in itertools.product(range(size), (torch.clone, strided)):
            source = values(root, 19, torch.int64)
            source = source.to(torch.float32).to(dtype) if dtype in FLOATS_8 else values(root, 19, dtype)
            tensor = layout(source if rank == root else poisoned(19, dtype=dtype))
            dist.broadcast(tensor, root)
            same(tensor, source, (dtype, root))
    words = ["kolo", {"rank": 1}] if rank == size - 1 else [None, None]
    dist.broadcast_object_list(words, size - 1)
    assert words == ["kolo", {"rank": 1}], words
    conjugate = torch.tensor([1 + 2j, 3 - 1j]).conj() if rank == 0 else torch.zeros(2, dtype=torch.complex64)
    kolo_torch.backend_of().broadcast([conjugate], _options(dist.BroadcastOptions, rootRank=0)).wait()
    same(conjugate.resolve_conj(), torch.tensor([1 - 2j, 3 + 1j]))


@check
def gathers(rank, size):
    for dtype in (torch.float32, torch.bool, torch.complex64, torch.bfloat16):
        all_of_them = [values(r, 6, dtype).reshape(2, 3) for r in range(size)]
        mine = all_of_them[rank].clone()
        for layout in (torch.clone, strided):
            outputs = [layout(poisoned(2, 3, dtype=dtype)) for _ in range(size)]
            dist.all_gather(outputs, layout(mine))
            for output, wanted in zip(outputs, all_of_them):
                same(output, wanted)
        in_one = poisoned(size * 2, 3, dtype=dtype)
        dist.all_gather(list(in_one.chunk(size)), mine)  # adjacent: nothing is copied
        same(in_one, torch.cat(all_of_them))
        output = poisoned(size * 2, 3, dtype=dtype)
        dist.all_gather_into_tensor(output, mine)
        same(output, torch.cat(all_of_them))
        output = poisoned(size, 2, 3, dtype=dtype)
        dist.all_gather_into_tensor(output, mine)
        same(output, torch.stack(all_of_them))
        for root in range(size):
            outputs = [poisoned(2, 3, dtype=dtype) for _ in range(size)] if rank == root else None
            dist.gather(mine, outputs, root)
            for output, wanted in zip(outputs or [], all_of_them):
                same(output, wanted)
    lengths = [3 * r + 1 for r in range(size)]
    outputs = [poisoned(n) for n in lengths]
    dist.all_gather(outputs, values(rank, lengths[rank], torch.float32))
    for other, output in enumerate(outputs):
        same(output, values(other, lengths[other], torch.float32))
    empty = torch.zeros(0)  # by all calls
    dist.all_gather([poisoned(0) for _ in range(size)], empty)
    dist.all_reduce(empty)
    dist.broadcast(empty, 0)
    dist.gather(empty, [poisoned(0) for _ in range(size)] if rank == 0 else None, 0)
    dist.scatter(poisoned(0), [empty] * size if rank == 0 else None, 0)
    dist.reduce_scatter(poisoned(0), [empty] * size)
    dist.all_to_all([poisoned(0) for _ in range(size)], [empty] * size)
    objects = [None] * size
    dist.all_gather_object(objects, ("rank", rank))
    assert objects == [("rank", r) for r in range(size)], objects
    objects = [None] * size if rank == 0 else None
    dist.gather_object({"mine": rank}, objects, 0)
    assert rank != 0 or objects == [{"mine": r} for r in range(size)], objects


@check
@needs(hasattr(ProcessGroupKolo, "gather_single"), "its call is in no PyTorch before 2.15")
def gathers_in_one_tensor(rank, size):
    output = poisoned(size * 3)
    options = _options(dist.GatherOptions, rootRank=1)
    kolo_torch.backend_of().gather_single(output, values(rank, 3, torch.float32), options).wait()
    everybody = torch.cat([values(r, 3, torch.float32) for r in range(size)])
    same(output, everybody if rank == 1 else poisoned(size * 3))


@check
def scatters(rank, size):
    for root, layout in itertools.product(range(size), (torch.clone, strided)):
        inputs = [layout(values(r, 7, torch.float64)) for r in range(size)] if rank == root else None
        output = layout(poisoned(7, dtype=torch.float64))
        dist.scatter(output, inputs, root)
        same(output, values(rank, 7, torch.float64), root)
    mine = [None]
    dist.scatter_object_list(mine, [("to", r) for r in range(size)] if rank == 0 else None, 0)
    assert mine == [("to", rank)], mine


@check
def reduce_scatters(rank, size):
    def part(giver, taker):
        return values(giver + 2 * taker, 5, torch.float32)

    expected = sum(part(r, rank) for r in range(size))
    for layout in (torch.clone, strided):
        output = layout(poisoned(5))
        dist.reduce_scatter(output, [layout(part(rank, r)) for r in range(size)])
        same(output, expected)
    output = poisoned(5)
    dist.reduce_scatter_tensor(output, torch.cat([part(rank, r) for r in range(size)]))
    same(output, expected)
    output = poisoned(5)
    dist.reduce_scatter_tensor(output, torch.cat([part(rank, r) for r in range(size)]), dist.ReduceOp.MAX)
    same(output, torch.stack([part(r, rank) for r in range(size)]).amax(0))
    # Parts of different sizes: none, too.
    for layout, dtype, op in itertools.product(
        (torch.clone, strided), (torch.float32, torch.complex64, torch.int64), (dist.ReduceOp.SUM, dist.ReduceOp.AVG)
    ):
        parts = [values(rank + 2 * taker, 3 * taker, dtype) for taker in range(size)]
        output = layout(poisoned(3 * rank, dtype=dtype))
        inputs = [layout(each) for each in parts]
        dist.reduce_scatter(output, inputs, op)
        total = sum(values(giver + 2 * rank, 3 * rank, dtype) for giver in range(size))
        if op == dist.ReduceOp.AVG:
            total = total.div(size, rounding_mode="trunc") if dtype == torch.int64 else total / size
        if dtype == torch.int64 or op == dist.ReduceOp.SUM:
            same(output, total, (dtype, op))
        else:
            torch.testing.assert_close(output, total)
        for given, wanted in zip(inputs, parts):
            same(given, wanted)
    text = f"the output has 1 elements; it must have {3 * rank}"
    raises(ValueError, text, lambda: dist.reduce_scatter(poisoned(1), [torch.zeros(3 * r) for r in range(size)]))


@check
def all_to_alls(rank, size):
    def rows(giver, taker, count):
        return torch.arange(count * 3, dtype=torch.float32).reshape(count, 3) + 1000 * giver + 100 * taker

    output = poisoned(size * 2, 3)
    dist.all_to_all_single(output, torch.cat([rows(rank, r, 2) for r in range(size)]))
    same(output, torch.cat([rows(r, rank, 2) for r in range(size)]))
    output = poisoned(6 * size)  # of another shape
    dist.all_to_all_single(output, torch.cat([rows(rank, r, 2) for r in range(size)]))
    same(output, torch.cat([rows(r, rank, 2) for r in range(size)]).flatten())
    # From rank i to rank j go (i + j) % 3 rows: none, too.
    gives, takes = [(rank + r) % 3 for r in range(size)], [(r + rank) % 3 for r in range(size)]
    output = poisoned(sum(takes), 3)
    dist.all_to_all_single(output, torch.cat([rows(rank, r, gives[r]) for r in range(size)]), takes, gives)
    same(output, torch.cat([rows(r, rank, takes[r]) for r in range(size)]))
    # Rank 0 has nothing for anybody.
    gives, takes = [0 if rank == 0 else 1] * size, [0 if r == 0 else 1 for r in range(size)]
    output = poisoned(sum(takes), 3)
    dist.all_to_all_single(output, torch.cat([rows(rank, r, gives[r]) for r in range(size)]), takes, gives)
    same(output, torch.cat([rows(r, rank, takes[r]) for r in range(size)]))
    outputs = [poisoned((r + 1) * (rank + 1)) for r in range(size)]
    inputs = [values(rank, (rank + 1) * (r + 1), torch.float32) for r in range(size)]
    dist.all_to_all(outputs, inputs)
    for other, output in enumerate(outputs):
        same(output, values(other, (other + 1) * (rank + 1), torch.float32))


@check
def messages(rank, size):
    after, before = (rank + 1) % size, (rank - 1) % size
    for count, dtype in ((1, torch.float32), (100_000, torch.float64), (64, torch.complex64), (9, torch.bool)):
        output = strided(poisoned(count, dtype=dtype))
        works = [dist.isend(values(rank, count, dtype), after, tag=count), dist.irecv(output, before, tag=count)]
        for work in works:
            work.wait()
        same(output, values(before, count, dtype))
    if rank == 0:
        sources = []
        for _ in range(size - 1):
            output = poisoned(4)
            sources.append(dist.recv(output, tag=3))
            same(output, values(sources[-1], 4, torch.float32))
        assert sorted(sources) == list(range(1, size)), sources
    else:
        dist.send(values(rank, 4, torch.float32), 0, tag=3)
    output = poisoned(8)
    batch = [dist.P2POp(dist.isend, values(rank, 8, torch.float32), after), dist.P2POp(dist.irecv, output, before)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    same(output, values(before, 8, torch.float32))
    # A message of another length than its receiver has room for is an error, and the job goes on.
    if rank < 2:
        if rank == 0:
            dist.send(torch.zeros(3), 1, tag=5)
        else:
            text = "rank 0 has sent 3 elements, and the tensor has 4; they must be as many"
            raises(RuntimeError, text, lambda: dist.recv(poisoned(4), 0, tag=5))
    raises(ValueError, "the tag is -2", lambda: dist.isend(torch.zeros(1), after, tag=-2))


def monitored_barrier(timeout, wait_all_ranks=False):
    """PyTorch's own call is Gloo's alone in 1.13 and again in some later releases; the groups' is there."""
    try:
        dist.monitored_barrier(timeout=timeout, wait_all_ranks=wait_all_ranks)
    except (RuntimeError, ValueError) as error:
        if "only implemented for GLOO" not in str(error):
            raise
        kolo_torch.backend_of().monitored_barrier(timeout, wait_all_ranks)


@check
def barriers(rank, size):
    dist.barrier()
    dist.barrier(async_op=True).wait()
    for _ in range(3):
        monitored_barrier(timeout=datetime.timedelta(seconds=60), wait_all_ranks=True)
    # Rank 1 comes when rank 0 has given it up; the next barrier does not take the one for the other.
    short = datetime.timedelta(milliseconds=50)
    if rank == 0:
        text = f"Ranks {', '.join(map(str, range(1, size)))} failed to pass monitoredBarrier in 50 ms"
        raises(RuntimeError, text, lambda: monitored_barrier(timeout=short, wait_all_ranks=True))
    dist.barrier()
    if rank != 0:
        text = f"Rank {rank} successfully reached monitoredBarrier, but received errors"
        raises(RuntimeError, text, lambda: monitored_barrier(timeout=short))
    dist.barrier()
    monitored_barrier(timeout=datetime.timedelta(seconds=60))


@check
def groups(rank, size):
    for members in itertools.chain(*(itertools.combinations(range(size), n) for n in range(1, size + 1))):
        group = dist.new_group(list(members))
        if rank not in members:
            continue
        tensor = torch.tensor([float(2**rank)])
        dist.all_reduce(tensor, group=group)
        same(tensor, torch.tensor([float(sum(2**r for r in members))]))
        tensor = torch.tensor([rank])
        dist.broadcast(tensor, members[-1], group=group)
        same(tensor, torch.tensor([members[-1]]))
        assert kolo_torch.backend_of(group) is not None and dist.get_rank(group) == members.index(rank)
    dist.barrier()
    # Groups of the same ranks do not meet each other's calls.
    first, second = dist.new_group(), dist.new_group()
    one, two = torch.ones(3), torch.full((3,), 10.0)
    works = [dist.all_reduce(t, group=g, async_op=True) for t, g in ((one, first), (two, second))]
    for work in works if rank % 2 else reversed(works):
        work.wait()
    same(one, torch.full((3,), float(size)))
    same(two, torch.full((3,), 10.0 * size))
    dist.destroy_process_group(first)
    dist.all_reduce(two, group=second)
    same(two, torch.full((3,), 10.0 * size * size))


@check
def a_group_under_gloo(rank, size):
    """The world of a group whose default group is not Kolo's."""
    gloo_world = dist.new_group(backend="gloo")
    assert kolo_torch.backend_of(gloo_world) is None
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=gloo_world)
    same(tensor, torch.full((2,), float(size)))


@check
def many_in_flight(rank, size):
    tensors = [torch.full((n + 1,), float(rank + n)) for n in range(200)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for n in reversed(range(200)):
        works[n].wait()
        until(works[n].is_completed)
        assert works[n].is_success()
        same(tensors[n], torch.full((n + 1,), float(sum(r + n for r in range(size)))))
    # Nobody keeps these works; their memory stays until they have completed.
    for _ in range(50):
        dist.all_reduce(strided(torch.ones(1000)), async_op=True)
    kept = strided(torch.ones(10))
    dist.all_reduce(kept, async_op=True)
    arrived = torch.tensor([0])
    while not arrived:  # what follows looks whether it has completed
        arrived = torch.tensor([int(kept[0] == size)])
        dist.all_reduce(arrived, dist.ReduceOp.MIN)
    same(kept.contiguous(), torch.full((10,), float(size)))


@check
def futures(rank, size):
    tensor = torch.full((4,), float(rank))
    future = dist.all_reduce(tensor, async_op=True).get_future()
    same(future.wait()[0], torch.full((4,), float(sum(range(size)))))

    def and_another(done):  # waits for another future of the group inside a callback
        inner = done.value()[0].clone()
        dist.all_reduce(inner, async_op=True).get_future().wait()
        return inner

    tensor = torch.ones(4)
    chained = dist.all_reduce(tensor, async_op=True).get_future().then(and_another)
    same(chained.wait(), torch.full((4,), float(size * size)))
    outputs = [poisoned(2) for _ in range(size)]
    result = dist.all_gather(outputs, torch.full((2,), float(rank)), async_op=True).get_future().wait()
    for other, output in enumerate(result):
        same(output, torch.full((2,), float(other)))


@check
def sparse_tensors(rank, size):
    # Row `rank` and row 9, which all have; others give other numbers of values.
    indices = torch.tensor([[rank, 9, 9], [0, 1, 1]])
    tensor = torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0, 3.0]), (10, 2))
    expected = torch.zeros(10, 2)
    expected[:size, 0] += 1
    expected[9, 1] += 5 * size
    dist.all_reduce(tensor)
    same(tensor.to_dense(), expected)
    empty = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.int64), torch.zeros(0, 3), (4, 3))
    mine = empty if rank == 0 else torch.sparse_coo_tensor(torch.tensor([[2]]), torch.ones(1, 3), (4, 3))
    dist.all_reduce(mine)
    expected = torch.zeros(4, 3)
    expected[2] = size - 1
    same(mine.to_dense(), expected)


@check
def disagreements(rank, size):
    tensor = torch.zeros(4 + (rank == 1))
    raises(RuntimeError, "all_reduce", lambda: dist.all_reduce(tensor))
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    same(tensor, torch.full((2,), float(size)))
    output = torch.zeros(2 * size + 1)
    text = f"the output has {2 * size + 1} elements; it must have {2 * size}"
    raises(ValueError, text, lambda: dist.all_gather_into_tensor(output, torch.zeros(2)))
    raises(ValueError, "share memory", lambda: dist.all_reduce(torch.ones(1).expand(4)))
    takes = [1] * size
    is_wrong = rank == 0 and size > 1
    if is_wrong:
        takes[:2] = 0, 2

    def exchange():
        dist.all_to_all_single(poisoned(size), torch.ones(size), takes, [1] * size)

    if is_wrong:
        raises(ValueError, "say 0 rows from rank 0, which gave 1", exchange)
    else:
        exchange()


@check
def deadlines_of_messages(rank, size):
    """A message whose time is up ends alone: it is taken back, and the job goes on."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        tensor = torch.zeros(1)
        work = dist.irecv(tensor, 1, tag=4)
        short = datetime.timedelta(milliseconds=20)
        raises(CommunicationError, "recv: Timed out waiting 20ms for operation", lambda: work.wait(short))
        assert work.is_completed() and not work.is_success()
        tensor.fill_(POISON)
        store.set("taken back", "")
        other = torch.zeros(1)
        dist.recv(other, 1, tag=4)
        same(other, torch.ones(1))
        same(tensor, torch.full((1,), float(POISON)))
    elif rank == 1:
        store.wait(["taken back"])
        dist.send(torch.ones(1), 0, tag=4)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    same(tensor, torch.full((3,), float(size)))


@check
def numbers_of_calls(rank, size):
    backend = kolo_torch.backend_of()  # itself: the group asks backends of other names in newer PyTorch alone
    before = backend._get_sequence_number_for_group()
    dist.barrier()
    dist.all_reduce(torch.ones(1))
    assert backend._get_sequence_number_for_group() == before + 2
    assert backend.counters()["submissions"] > 0
    until(lambda: backend.counters()["bytes"] > 0)


def network(width=1):
    inputs, inner, outputs = 20 * width, 40 * width, 5 * width
    first, last = torch.nn.Linear(inputs, inner), torch.nn.Linear(inner, outputs)
    return torch.nn.Sequential(first, torch.nn.BatchNorm1d(inner), torch.nn.ReLU(), last)


@check
@needs(kolo_torch._C.REDUCES_IN_ARENA, "Debian's libtorch-dev lacks a header of DistributedDataParallel's")
def data_parallel_in_an_arena(rank, size):
    """The same gradients as without, and all of their bytes reduced where they lie."""
    backend = kolo_torch.backend_of()
    models = []
    for views in (False, True):
        torch.manual_seed(0)
        net = network(width=10)  # all in one bucket; what is small is copied all the same
        models.append(torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=views))
    for model in models[1:]:
        kolo_torch.reduce_in_arena(model)
    for step in range(4):  # buckets are made again after the first
        gradients = []
        for model in models:
            torch.manual_seed(100 * step + rank)
            model.zero_grad()
            before = backend.counters()["bytes_in_place"]
            torch.nn.functional.mse_loss(model(torch.randn(8, 200)), torch.randn(8, 50)).backward()
            gradients.append([p.grad.clone() for p in model.parameters()])
            through_host = os.environ.get("KOLO_GPU_BACKEND") == "staged"  # of what lies on a device
            in_place = model is not models[0] and not through_host
            wanted = sum(4 * p.numel() for p in model.parameters()) if in_place else 0
            until(lambda: backend.counters()["bytes_in_place"] - before == wanted)  # noqa: B023
        for plain, in_arena in zip(*gradients):
            same(in_arena, plain, step) if size in (2, 4) else torch.testing.assert_close(in_arena, plain)
    raises(ValueError, "whose process group has the backend kolo", lambda: kolo_torch.reduce_in_arena(over_gloo()))


class SumsWhileGoingBack(torch.autograd.Function):
    """Sums a tensor over the ranks on the thread of the backward pass."""

    @staticmethod
    def forward(ctx, x, tensor):
        ctx.tensor = tensor
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        dist.all_reduce(ctx.tensor)
        return gradient, None


@check
def inference_mode(rank, size):
    if size > 2:  # nothing here depends on it
        return
    with torch.inference_mode():
        for one in (reductions, averages_of_integers, coalesced, broadcasts, gathers, scatters, reduce_scatters, all_to_alls,
                    messages, many_in_flight, futures, sparse_tensors):
            one(rank, size)
    expected = torch.full((4,), float(size))
    for guard in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        for layout in (lambda tensor: tensor, strided):
            with torch.inference_mode():
                tensor, gathered = layout(torch.ones(4)), layout(torch.zeros(4 * size))
            with guard():
                dist.all_reduce(tensor)
                same(tensor.clone(), expected)
                work = dist.all_gather([*gathered.chunk(size)], torch.ones(4), async_op=True)
                work.get_future().wait()
                same(gathered.clone(), torch.ones(4 * size))
            x = torch.ones(1, requires_grad=True)
            SumsWhileGoingBack.apply(x, tensor).backward()
            same(tensor.clone(), expected * size)


@check
def no_model_for_an_arena(rank, size):
    text = "needs a model that DistributedDataParallel has made, and this one is of type Sequential"
    raises(TypeError, text, lambda: kolo_torch.reduce_in_arena(network()))


def no_arena(rank, size):
    model = torch.nn.parallel.DistributedDataParallel(network())
    text = (
        "kolo_torch was built against a PyTorch that lacks a header of DistributedDataParallel (Debian's package "
        "does), and has no reduce_in_arena. Leave the call out, or build kolo_torch against the Python package index's "
        "torch: pip install torch, and then pip install . in Kolo's source folder."
    )
    raises(NotImplementedError, text, lambda: kolo_torch.reduce_in_arena(model))


if not kolo_torch._C.REDUCES_IN_ARENA:
    check(no_arena)


def over_gloo():
    return torch.nn.parallel.DistributedDataParallel(network(), process_group=dist.new_group(backend="gloo"))


@check
def data_parallel(rank, size):
    """DistributedDataParallel beside Gloo: the same parameters after every step."""
    gloo = dist.new_group(backend="gloo")
    models = []
    for group in (None, gloo):
        torch.manual_seed(rank)  # others on each rank: DDP makes them alike
        net = network()
        model = torch.nn.parallel.DistributedDataParallel(net, process_group=group, bucket_cap_mb=0.002)
        models.append((model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)))
    for step in range(4):
        losses = []
        for model, optimizer in models:
            torch.manual_seed(100 * step + rank)
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(torch.randn(8, 20)), torch.randn(8, 5))
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        if size == 2:
            same(losses[0], losses[1], step)  # sums of two are the same in any order
        else:
            torch.testing.assert_close(losses[0], losses[1])
    for mine, theirs in zip(models[0][0].parameters(), models[1][0].parameters()):
        torch.testing.assert_close(mine, theirs)
        first = mine.detach().clone()
        dist.broadcast(first, 0)
        same(mine.detach(), first)


def join_world(rank, size, folder, timeout=60):
    dist.init_process_group("kolo", init_method=f"file://{folder}/meet", rank=rank, world_size=size,
                            timeout=datetime.timedelta(seconds=timeout))


def all_checks(rank, size, folder):
    join_world(rank, size, folder)
    assert dist.get_backend() == "kolo"
    wanted = sys.argv[1:]
    for function in CHECKS:
        if wanted and function.__name__ not in wanted:
            continue
        try:
            function(rank, size)
        except BaseException:
            sys.stderr.write(f"check {function.__name__} failed on rank {rank} of {size}\n")
            raise
    dist.destroy_process_group()


def note_the_time(folder):
    with open(f"{folder}/time", "w") as file:
        file.write(str(time.monotonic()))


def hears(rank, folder, text, call):
    """The call ends with PyTorch's exception; prints how long after the noted time, and how it reads."""
    try:
        call()
    except CommunicationError as error:
        now = time.monotonic()
        assert text in str(error), f"{text!r} is not in {str(error)!r}"
        with open(f"{folder}/time") as file:
            after = 1000 * (now - float(file.read()))
        sys.stdout.write(f"  rank {rank} heard after {after:.1f} ms: {error}\n")  # at once: other ranks write, too
        sys.stdout.flush()
        return
    raise AssertionError(f"no CommunicationError with {text!r}")


def tell_of_call(rank):
    dist.distributed_c10d._get_default_store().set(f"called {rank}", "")


def wait_for_calls(size, victim):
    """Until the others wait: a call that is made when the death is known ends at once."""
    dist.distributed_c10d._get_default_store().wait([f"called {rank}" for rank in range(size) if rank != victim])


@fault(2, 4)
def killed_before_a_collective(rank, size, folder):
    join_world(rank, size, folder)
    victim = size - 1
    dist.all_reduce(torch.ones(1))
    if rank == victim:
        wait_for_calls(size, victim)
        note_the_time(folder)
        kill_me()
    waiting = dist.all_reduce(torch.ones(1000), async_op=True)
    tell_of_call(rank)
    hears(rank, folder, f"rank {victim}", waiting.wait)
    raises(RuntimeError, f"rank {victim}", lambda: dist.barrier())
    raises(RuntimeError, f"rank {victim}", lambda: dist.recv(torch.zeros(1), 0))


@fault(2, 4)
def killed_in_a_collective(rank, size, folder):
    """By another thread, while the rank is in one of many long calls."""
    join_world(rank, size, folder)
    victim = size - 1
    tensor = torch.ones(4 << 20)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    begun = threading.Event()

    def kill():
        begun.wait()
        note_the_time(folder)
        kill_me()

    if rank == victim:
        threading.Thread(target=kill, daemon=True).start()

    def forever():
        for step in itertools.count():
            if step == 3:
                begun.set()
            dist.all_reduce(tensor, dist.ReduceOp.MAX)

    hears(rank, folder, f"rank {victim}", forever)
    raises(RuntimeError, f"rank {victim}", lambda: dist.barrier())


@fault(3)
def killed_in_a_backward_pass(rank, size, folder):
    """DistributedDataParallel's, which waits in C++, and FSDP's way: futures."""
    join_world(rank, size, folder)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(network())
    model(torch.ones(4, 20)).sum().backward()
    if rank == 1:
        wait_for_calls(size, 1)
        note_the_time(folder)
        kill_me()
    future = dist.all_gather([torch.zeros(9) for _ in range(size)], torch.ones(9), async_op=True).get_future()
    tell_of_call(rank)
    hears(rank, folder, "rank 1", lambda: model(torch.ones(4, 20)).sum().backward())
    raises(RuntimeError, "rank 1", future.wait)


@fault(3)
def aborted(rank, size, folder):
    join_world(rank, size, folder)
    dist.all_reduce(torch.ones(1))
    store = dist.distributed_c10d._get_default_store()
    store.set(f"through {rank}", "")  # the first is over on all
    if rank == 1:
        store.wait(["through 0", "through 2"])
        note_the_time(folder)
        kolo_torch.backend_of().abandon("enough")
        return
    hears(rank, folder, "rank 1", lambda: dist.all_reduce(torch.ones(1)))
    raises(CommunicationError, "enough", lambda: dist.all_reduce(torch.ones(1)))


SHORT = datetime.timedelta(milliseconds=50)


@fault(2)
def calls_that_time_out(rank, size, folder):
    """Nobody uses the tensor any more, and a rank that comes late gets no sum with what was written into it since."""
    late, timed_out = "rank 1 has not submitted it", "Timed out waiting 50ms for operation"
    reduce = _options(dist.AllreduceOptions, timeout=SHORT)
    calls = [(lambda backend, x: backend.allreduce([x], reduce).wait(), late),
             (lambda backend, x: backend.allreduce([x], reduce).get_future().wait(), late),
             (lambda backend, x: backend.broadcast(
                 [x], _options(dist.BroadcastOptions, rootRank=1, timeout=SHORT)).wait(), late),
             (lambda backend, x: backend.barrier(_options(dist.BarrierOptions, timeout=SHORT)).wait(), late),
             (lambda backend, x: backend.allreduce([x]).wait(SHORT), f"all_reduce: {timed_out}"),
             (lambda backend, x: backend.allreduce_coalesced(list(x.split(2))).wait(SHORT),
              f"all_reduce_coalesced: {timed_out}")]
    for number, (call, text) in enumerate(calls):
        for group_of_two in (False, True):
            dist.init_process_group("kolo", init_method=f"file://{folder}/meet{number}{group_of_two}", rank=rank,
                                    world_size=size)
            backend = kolo_torch.backend_of(dist.new_group([0, 1]) if group_of_two else None)
            store = dist.distributed_c10d._get_default_store()
            tensor = torch.ones(4)
            if rank == 0:
                raises(CommunicationError, text, lambda: call(backend, tensor))
                tensor.fill_(POISON)
                store.set("timed out", "")
                store.wait(["tried"])
                same(tensor, torch.full((4,), float(POISON)))
            else:
                store.wait(["timed out"])
                raises(CommunicationError, text, lambda: call(backend, tensor))
                store.set("tried", "")
            raises(CommunicationError, text, lambda: dist.all_reduce(tensor))
            store.set(f"done {rank}", "")
            store.wait([f"done {1 - rank}"])
            dist.destroy_process_group()


@fault(3)
def other_shapes(rank, size, folder):
    join_world(rank, size, folder)
    dist.all_reduce(torch.ones(1))
    dist.barrier()
    if rank == 1:
        note_the_time(folder)
    dist.barrier()
    hears(rank, folder, "rank", lambda: dist.all_reduce(torch.ones(5 if rank == 1 else 4)))
    dist.destroy_process_group()


@fault(3)
def worlds_one_after_another(rank, size, folder):
    for round in range(3):
        dist.init_process_group("kolo", init_method=f"file://{folder}/meet{round}", rank=rank, world_size=size)
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        same(tensor, torch.full((2,), float(size)))
        dist.destroy_process_group()
        assert kolo_torch.backend_of() is None


def ends_without_destroying(rank, size, folder):
    leave = kolo_torch._leave_worlds

    def record():
        leave()
        raises(RuntimeError, "kolo: all_reduce: ", lambda: dist.all_reduce(torch.ones(1)))  # outside there is none
        open(f"{folder}/left{rank}", "w").close()

    kolo_torch._leave_worlds = record
    join_world(rank, size, folder)
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    same(tensor, torch.full((2,), float(size)))


@fault(3)
def no_destroy_process_group(rank, size, folder):
    """A program that ends as it is leaves its job in order, in processes of multiprocessing, too."""
    process = multiprocessing.get_context("fork").Process(target=ends_without_destroying, args=(rank, size, folder))
    process.start()
    process.join()
    assert process.exitcode == 0, process.exitcode
    assert os.path.exists(f"{folder}/left{rank}")


# Ends while callbacks run, and while a future waits for a call that the other rank does not make.
ENDS_WITH_CALLBACKS = """
import sys, threading
import torch
import torch.distributed as dist
import kolo_torch

rank, folder, end = int(sys.argv[1]), sys.argv[2], sys.argv[3]
ends = threading.Event()
begun = threading.Semaphore(0)

def note(name):
    for _ in range(300_000):  # needs Python for longer than the end of a program that does not wait
        pass
    open(f"{folder}/{end} {name} {rank}", "w").close()

def call_back(future):
    begun.release()
    ends.wait()
    note(len(future.value()))

def call_back_of_none(future):
    try:
        future.value()
    except RuntimeError:
        note("failed")

dist.init_process_group("kolo", init_method=f"file://{folder}/meet {end}", rank=rank, world_size=2)
works = [dist.irecv(torch.zeros(1), 1 - rank, tag=tag) for tag in range(3)]
for work in works:
    work.get_future().then(call_back)
dist.barrier()  # what had come before would have been called back here
for tag in range(3):
    dist.send(torch.ones(1), 1 - rank, tag=tag)
for _ in works:
    begun.acquire()
if rank == 0:
    dist.all_reduce(torch.ones(1), async_op=True).get_future().then(call_back_of_none)
ends.set()
if end == "destroys":
    dist.destroy_process_group()
"""


@fault(2)
def ends_while_futures_call_back(rank, size, folder):
    """A program that ends waits for callbacks of futures: one that needs Python after its end would abort it."""
    for end in ("destroys", "does not destroy"):
        program = [sys.executable, "-c", ENDS_WITH_CALLBACKS, str(rank), folder, end]
        result = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
        assert result.returncode == 0, (end, result)
        assert os.path.exists(f"{folder}/{end} 1 {rank}"), end
        assert rank == 1 or os.path.exists(f"{folder}/{end} failed 0"), end


@fault(2)
def timeouts_without_end(rank, size, folder):
    """As long as a program likes."""
    dist.init_process_group("kolo", init_method=f"file://{folder}/meet", rank=rank, world_size=size,
                            timeout=datetime.timedelta(days=100_000))
    backend = kolo_torch.backend_of()
    group = dist.new_group(timeout=datetime.timedelta(days=100_000))
    for each in (backend, kolo_torch.backend_of(group)):
        tensor = torch.ones(2)
        each.allreduce([tensor], _options(dist.AllreduceOptions, timeout=FOR_EVER)).wait()
        same(tensor, torch.full((2,), 2.0))
        tensor = torch.ones(2)
        each.allreduce([tensor], dist.AllreduceOptions()).get_future().wait()
        same(tensor, torch.full((2,), 2.0))
    if rank == 0:
        dist.send(torch.ones(2), 1)
    else:
        dist.recv(tensor, 0)
        same(tensor, torch.ones(2))
    monitored_barrier(timeout=datetime.timedelta(days=100_000))
    backend.allreduce([tensor], dist.AllreduceOptions()).wait(FOR_EVER)
    dist.destroy_process_group()


@fault(2)
def no_threads(rank, size, folder):
    """Of a process that may have no more of them a future fails when it is asked for, and not in the dark."""
    join_world(rank, size, folder)
    work = dist.all_reduce(torch.ones(4), async_op=True)
    work.wait()
    if os.geteuid() == 0:
        os.setuid(65534)  # root has no limit
    limits = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, limits[1]))
    text = (
        "kolo: all_reduce: no thread can be started that completes futures: Resource temporarily unavailable; "
        '"ulimit -u" limits the threads of a user, and a container\'s pids.max those of a container'
    )
    raises(CommunicationError, text, work.get_future)
    resource.setrlimit(resource.RLIMIT_NPROC, limits)
    work.get_future().wait()
    # Tasks wait for one another where there cannot be a further thread.
    resource.setrlimit(resource.RLIMIT_NPROC, (1, limits[1]))
    sums = [dist.all_reduce(torch.ones(4), async_op=True).get_future().then(lambda done: done.value()) for _ in range(5)]
    for each in sums:
        same(each.wait()[0], torch.full((4,), 2.0))
    del work, each, sums
    dist.destroy_process_group()


class Cycle:
    """Garbage for the collector alone."""

    def __init__(self, *contents):
        self.contents = (self, *contents)


@fault(2)
def forked_with_garbage(rank, size, folder):
    """A data loader's worker collects what the rank has left: open works and futures, and the group itself."""
    join_world(rank, size, folder)
    group = dist.new_group()
    gate = dist.distributed_c10d._get_default_store()
    tensor = torch.ones(2)
    if rank == 0:
        gc.disable()
        dist.barrier()  # leaves a thread
        dist.all_reduce(torch.ones(2), async_op=True).get_future().wait()
        work = dist.all_reduce(tensor, async_op=True)
        again = dist.all_reduce(strided(torch.ones(2)), group=group, async_op=True)
        future = again.get_future().then(lambda done: done.value())
        cycle = Cycle(work, again, future, group, dist.irecv(torch.ones(1), 1, tag=7))

        def worker():
            nonlocal cycle, work, again, future, group
            raises(RuntimeError, "fork", work.wait)
            raises(RuntimeError, "fork", lambda: dist.all_reduce(torch.ones(1)))
            del cycle, again, future, group
            gc.collect()
            del work
            dist.destroy_process_group()
            kolo_torch._leave_worlds()

        process = multiprocessing.get_context("fork").Process(target=worker)
        process.start()
        process.join()
        assert process.exitcode == 0, process.exitcode
        gate.set("forked", "")
        work.wait()
        future.wait()
        gc.enable()
    else:
        dist.barrier()
        dist.all_reduce(torch.ones(2))
        gate.wait(["forked"])
        dist.all_reduce(tensor)
        dist.all_reduce(torch.ones(2), group=group)
        dist.send(torch.ones(1), 0, tag=7)
    same(tensor, torch.full((2,), 2.0))
    dist.barrier()


@fault(2)
def a_world_within_gloo(rank, size, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    group = dist.new_group(backend="kolo")
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=group)
    same(tensor, torch.full((2,), float(size)))
    assert kolo_torch.backend_of(group).counters()["bytes"] > 0
    dist.destroy_process_group()


def binds_to_a_cpu():
    if "device_id" not in inspect.signature(dist.init_process_group).parameters:
        return False
    return 'device_id.type == "cpu"' not in inspect.getsource(dist.distributed_c10d._new_process_group_helper)


@fault(3)
@needs(binds_to_a_cpu(), "this PyTorch binds no group to a CPU")
def a_world_bound_to_a_device(rank, size, folder):
    """PyTorch then asks the ranks that are not in a new group to take part in making it."""
    dist.init_process_group("kolo", init_method=f"file://{folder}/meet", rank=rank, world_size=size,
                            device_id=torch.device("cpu", 0))
    group = dist.new_group([0, 2])
    if rank != 1:
        tensor = torch.ones(2)
        dist.all_reduce(tensor, group=group)
        same(tensor, torch.full((2,), 2.0))
    kolo_torch.backend_of().perform_nocolor_split(torch.device("cpu"))
    dist.barrier()
    dist.destroy_process_group()


@fault(2)
def options_that_there_are_not(rank, size, folder):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        dist.init_process_group("kolo", init_method=f"file://{folder}/meet", rank=rank, world_size=size,
                                pg_options=object())
    messages = [str(warning.message) for warning in seen]
    assert "the backend kolo has no options: pg_options is ignored" in messages, messages
    dist.destroy_process_group()


@fault(2)
@needs(not is_old(), "a group of PyTorch 1.13 has one backend")
def more_than_one_backend(rank, size, folder):
    dist.init_process_group("cpu:kolo,cuda:gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    same(tensor, torch.full((2,), float(size)))
    dist.destroy_process_group()


# The rank that is killed.
VICTIMS = {
    killed_before_a_collective: lambda size: size - 1,
    killed_in_a_collective: lambda size: size - 1,
    killed_in_a_backward_pass: lambda size: 1,
}


def main():
    failed = 0
    names = {function.__name__ for function in CHECKS}
    for size in () if sys.argv[1:] and not names.intersection(sys.argv[1:]) else (2, 3, 4):
        statuses = Ranks(size, all_checks).wait()
        outcome = "passed" if not any(statuses) else f"FAILED, {statuses}"
        print(f"{len(CHECKS)} checks on {size} ranks: {outcome}", flush=True)
        failed += any(statuses)
    for function, sizes in FAULTS:
        for size in () if sys.argv[1:] and function.__name__ not in sys.argv[1:] else sizes:
            statuses = Ranks(size, function).wait()
            victim = VICTIMS.get(function, lambda size: size)(size)
            expected = [-9 if rank == victim else 0 for rank in range(size)]
            outcome = "passed" if statuses == expected else f"FAILED, {statuses}"
            print(f"{function.__name__} on {size} ranks: {outcome}", flush=True)
            failed += statuses != expected
    for name, reason in LEFT_OUT.items():
        print(f"{name}: left out: {reason}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
