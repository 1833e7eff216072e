# SPDX-License-Identifier: Apache-2.0
"""Every collective, of every element type, of arrays that are contiguous and that are not, in every form, on as many
ranks as the launcher starts. Sums are exact; outputs are poisoned before; every rank compares.

usage: kolo-run -np N python3 collectives.py [--calls COUNT]

--calls COUNT   instead: so many calls of several kinds, after which the process must not have grown
"""

import array
import gc
import json
import os
import sys
import tempfile
import threading
import weakref

import kolopy as kolo
import numpy as np

try:
    import ml_dtypes
except ImportError:  # it comes from PyPI alone
    ml_dtypes = None

DTYPES = [
    np.dtype(name)
    for name in ("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64").split()
]
if ml_dtypes is not None:
    DTYPES.append(np.dtype(ml_dtypes.bfloat16))
POISON = 77


def is_float(dtype):
    return dtype.kind == "f" or dtype.name == "bfloat16"


def values(rank, shape, dtype, scale=1):
    """What a rank gives: small numbers that differ by rank and place."""
    count = int(np.prod(shape, dtype=int))
    numbers = (np.arange(count) * 3 + rank) % 5 + (rank + 1) % 3
    if dtype.kind == "b":
        return (numbers % 2 == 0).reshape(shape)
    return (scale * numbers).reshape(shape).astype(dtype)


class Layout:
    """An array as it may lie in memory. What is around its elements is poisoned, and must stay so."""

    def __init__(self, name, content):
        shape = content.shape
        if name == "contiguous":
            self.around = np.full((content.size + 4,), POISON, content.dtype)
            self.array = self.around[2 : 2 + content.size].reshape(shape)
        elif name == "steps":  # every second element of rows that are longer
            self.around = np.full(tuple(2 * extent + 1 for extent in shape), POISON, content.dtype)
            self.array = self.around[tuple(slice(0, 2 * extent, 2) for extent in shape)]
        elif name == "backward":
            self.around = np.full(shape, POISON, content.dtype)
            self.array = self.around[::-1] if shape else self.around
        else:  # columns
            self.around = np.full(shape[::-1], POISON, content.dtype)
            self.array = self.around.T
        assert self.array.shape == shape
        self.array[...] = content
        marks = np.zeros(self.around.shape, np.int8)
        if content.size:
            strides = tuple(s // content.itemsize for s in self.array.strides)
            np.lib.stride_tricks.as_strided(marks[_first(self.around, self.array)], shape, strides)[...] = 1
        self.outside = marks == 0

    def check(self, expected, what):
        same(self.array, expected, what)
        rest = self.around[self.outside]
        same(rest, np.full(rest.shape, POISON, rest.dtype), f"{what}: around it")


def _first(around, inner):
    """The flat slice of `around` from the first element of `inner` on."""
    offset = (inner.__array_interface__["data"][0] - around.__array_interface__["data"][0]) // around.itemsize
    return np.unravel_index(offset, around.shape) + (Ellipsis,) if around.ndim else (Ellipsis,)


def same(found, expected, what):
    kinds = (what, found.dtype, found.shape, expected.shape)
    assert found.dtype == expected.dtype and found.shape == expected.shape, kinds
    bits = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[found.dtype.itemsize]
    equal = np.ascontiguousarray(found).view(bits) == np.ascontiguousarray(expected).view(bits)
    assert equal.all(), f"rank {kolo.rank()}: {what}: {found} is not {expected}"


class Form:
    """Waiting or started, with a name or without."""

    def __init__(self, is_async, name):
        self.is_async, self.name = is_async, name

    def __call__(self, function, *arguments, **options):
        if self.is_async:
            return getattr(kolo, function + "_async")(*arguments, name=self.name, **options).wait()
        return getattr(kolo, function)(*arguments, name=self.name, **options)


FORMS = [Form(False, None), Form(True, None), Form(False, "w"), Form(True, "w")]
LAYOUTS = ["contiguous", "steps", "backward", "columns"]


def reductions_of(dtype):
    if is_float(dtype):
        return ["sum", "average", "min", "max", "product"]
    return ["sum", "min", "max", "product", "bit_and", "bit_or", "bit_xor"]


def reduced(op, parts, dtype):
    if dtype.kind == "b":
        function = {"sum": np.logical_or, "max": np.logical_or, "bit_or": np.logical_or, "bit_xor": np.logical_xor}.get(
            op, np.logical_and
        )
        return function.reduce(parts)
    function = {
        "sum": np.add,
        "average": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "product": np.multiply,
        "bit_and": np.bitwise_and,
        "bit_or": np.bitwise_or,
        "bit_xor": np.bitwise_xor,
    }[op]
    wide = function.reduce([part.astype(np.float64) if is_float(dtype) else part for part in parts])
    return (wide / len(parts) if op == "average" else wide).astype(dtype)


def check_call(what, layout, form, function, given, *arguments, expected, has_out=True, **options):
    """What the call returns (or does to its array), and what it writes into `out`, where this rank may give one."""
    mine = Layout(layout, given)
    result = form(function, mine.array, *arguments, **options)
    if function in ("allreduce", "reduce", "broadcast"):  # in place
        assert result is mine.array or function == "reduce"
        mine.check(expected, f"{function} {what}")
    else:
        same(getattr(result, "rows", result), expected, f"{function} {what}")
        mine.check(given, f"{function}'s input {what}")
    mine, out = Layout(layout, given), Layout(layout, np.full(expected.shape, POISON, given.dtype))
    into = form(function, mine.array, *arguments, out=out.array if has_out else None, **options)
    assert into is out.array or function in ("reduce", "gather")
    mine.check(given, f"{function}'s input {what}")
    out.check(expected if has_out else np.full(expected.shape, POISON, given.dtype), f"{function} into {what}")
    return result


def check_reductions(rank, size, dtype, layout, form):
    shape, root = (2 * size + 1, 3), size - 1
    for op in reductions_of(dtype):
        scale = size if op == "average" else 1
        parts = [values(r, shape, dtype, scale) for r in range(size)]
        if op == "product" and dtype.kind != "b":
            parts = [part % 2 + 1 if not is_float(dtype) else np.where(part > 2, 2, 1).astype(dtype) for part in parts]
        total, mine = reduced(op, parts, dtype), parts[rank]
        what = f"{dtype} {layout} {op}"
        check_call(what, layout, form, "allreduce", mine, op, expected=total)
        check_call(what, layout, form, "reduce", mine, root, op, expected=total if rank == root else mine,
                   has_out=rank == root)
        begin = rank * 2 + min(rank, 1)
        check_call(what, layout, form, "reduce_scatter", mine, op, expected=total[begin : begin + 2 + (rank == 0)])


def check_moves(rank, size, dtype, layout, form):
    what, root = f"{dtype} {layout}", size // 2
    check_call(what, layout, form, "broadcast", values(rank, (3, 4), dtype), root, expected=values(root, (3, 4), dtype))

    uneven = [values(r, (r, 2), dtype) for r in range(size)]  # rank 0 has none
    everything, nothing = np.concatenate(uneven), np.empty((0, 2), dtype)
    check_call(what, layout, form, "allgather", uneven[rank], expected=everything)
    check_call(what, layout, form, "gather", uneven[rank], root, expected=everything if rank == root else nothing,
               has_out=rank == root)

    for splits in (None, [1 + r % 2 for r in range(size)]):
        begin = sum((splits or [2] * size)[:rank])
        end = begin + (splits or [2] * size)[rank]
        rows = values(0, (sum(splits or [2] * size), 3), dtype)
        source = Layout(layout, rows).array if rank == root else None
        out = Layout(layout, np.full((end - begin, 3), POISON, dtype))
        options = {} if splits is None or rank != root else {"splits": splits}
        assert form("scatter", source, root, out=out.array, **options) is out.array
        out.check(rows[begin:end], f"scatter {what} with {splits}")

    for splits in ([2] * size, list(range(size))):  # as many rows for each rank, and as many as its number
        sent = [values(r, (sum(splits), 3), dtype) for r in range(size)]
        begin = sum(splits[:rank])
        expected = np.concatenate([part[begin : begin + splits[rank]] for part in sent])
        arguments = () if splits[0] == 2 else (splits,)
        found = check_call(what, layout, form, "alltoall", sent[rank], *arguments, expected=expected)
        assert found.splits == [splits[rank]] * size


def check_messages(rank, size, dtype, layout):
    right, left = (rank + 1) % size, (rank - 1) % size
    mine = Layout(layout, values(rank, (2, 3), dtype))
    into = Layout(layout, np.full((2, 3), POISON, dtype))
    received = kolo.sendrecv(mine.array, right, into.array, left, send_tag=4, recv_tag=4)
    assert received == (6, left, 4), received
    into.check(values(left, (2, 3), dtype), "sendrecv")
    into = Layout(layout, np.full((2, 3), POISON, dtype))
    receive = kolo.recv_async(into.array)
    kolo.send(mine.array[:1], right, 9)  # fewer elements than there is room for
    assert receive.wait() == (3, left, 9) and receive.wait().tag == 9
    expected = np.full((2, 3), POISON, dtype)
    expected[0] = values(left, (2, 3), dtype)[0]
    into.check(expected, "recv of less")
    kolo.barrier()


def check_types(rank, size):
    for dtype in DTYPES:
        for layout, form in [(layout, form) for layout in LAYOUTS for form in FORMS]:
            if form.name is not None and layout in ("backward", "columns"):
                continue
            check_reductions(rank, size, dtype, layout, form)
            check_moves(rank, size, dtype, layout, form)
        for layout in LAYOUTS:
            check_messages(rank, size, dtype, layout)


def check_shapes(rank, size):
    for shape in ((), (0,), (3, 0, 2), (1,) * 8):
        mine = np.full(shape, rank + 1, np.int64)
        kolo.allreduce(mine)
        same(mine, np.full(shape, size * (size + 1) // 2, np.int64), f"shape {shape}")
    assert kolo.allgather(np.array(rank)).tolist() == list(range(size))  # a scalar is one row
    large = np.full((1 << 20, 2), rank, np.float32)[:, 0]
    kolo.allreduce(large, "max")
    assert (large == size - 1).all()
    assert kolo.allreduce(rank + 1) == size * (size + 1) // 2 and type(kolo.allreduce(1)) is int
    assert kolo.allreduce(2.0, "average") == 2.0 and kolo.allreduce(rank == 0, "max") is True
    check_large_numbers(rank, size)
    number = kolo.allreduce(np.float32(rank + 1))
    assert number == size * (size + 1) // 2 and type(number) is np.float32
    half = np.full(5, 1.0, np.float32)
    kolo.allreduce(half, "average", send_as="bfloat16", prescale=2.0, postscale=0.5, timeout=60.0, name="h", priority=3)
    assert (half == 1.0).all()


def check_large_numbers(rank, size):
    """Sums and products of integers are right, or an error on every rank."""
    for first, rest in ((2**62, -(2**62)), (-(2**63), 1), (2**63 - 1, 0), (7, 2**40)):
        for kind in (int, np.int64):
            number = kolo.allreduce(kind(first if rank == 0 else rest))
            assert number == first + (size - 1) * rest and type(number) is kind, number
    assert kolo.allreduce(0 if rank == 0 else 2**62, "product") == 0
    assert kolo.allreduce(-(2**62) if rank == 0 else 1, "product", name="p") == -(2**62)
    for number, op, low, high, found, remedy in (
        (2**62, "sum", -(2**63), 2**63 - 1, size << 62, "give a float"),
        (-(2**62) - 1, "sum", -(2**63), 2**63 - 1, -size * (2**62 + 1), "give a float"),
        (np.int8(100), "sum", -128, 127, 100 * size, "give a wider type, or a float"),
        (np.uint64(2**63), "sum", 0, 2**64 - 1, size << 63, "give a wider type, or a float"),
        (2**62, "product", -(2**63), 2**63 - 1, (2**62) ** size, "give a float"),
        (np.int16(200), "product", -(2**15), 2**15 - 1, 200**size, "give a wider type, or a float"),
    ):
        name = getattr(number, "dtype", np.dtype("int64")).name
        text = str(found) if op == "sum" else f"about {float(found):.3g}"
        sentence = f"the {op} over all ranks is {text}, and {name} holds {low} to {high}: {remedy}"
        try:
            assert kolo.allreduce(number, op) == found and low <= found <= high
        except kolo.InvalidArgumentError as error:
            assert str(error) == sentence and not low <= found <= high, error


class Exported:
    """An array that is known by DLPack alone. An old one can only be read."""

    def __init__(self, inner, is_old=False, device=None):
        self.inner, self.is_old, self.device = inner, is_old, device

    def __dlpack__(self, **options):
        if self.is_old and options:
            raise TypeError("__dlpack__() takes no keyword arguments")
        try:
            return self.inner.__dlpack__(**options)
        except TypeError:  # numpy before 2.1
            if options:
                raise
            return self.inner.__dlpack__()

    def __dlpack_device__(self):
        return self.device or self.inner.__dlpack_device__()


def check_protocols(rank, size):
    total = size * (size + 1) // 2
    for is_old in (False, True):
        for inner in (
            np.full((2, 3), rank + 1, np.float32),
            np.full((3, 4), rank + 1, np.int16)[:, ::2],
            np.full((3, 4), rank + 1, np.float64).T,
            np.full((), rank + 1, np.uint8),
        ):
            exported, summed = Exported(inner, is_old), np.zeros(inner.shape, inner.dtype)
            assert kolo.allreduce(exported, out=summed) is summed and (inner == rank + 1).all()
            assert (summed == total).all(), summed
            assert kolo.allgather(Exported(np.full((1, 2), rank), is_old))[:, 1].tolist() == list(range(size))
    numbers = array.array("d", [rank + 1, 2])
    assert kolo.allreduce(numbers) is numbers and list(numbers) == [total, 2 * size]
    text = bytearray([rank, 7])
    kolo.broadcast(text, size - 1)
    assert text == bytes([size - 1, 7])
    assert kolo.allgather(b"%d" % rank).tobytes() == b"".join(b"%d" % r for r in range(size))
    words = memoryview(array.array("i", [rank + 1, 5, rank + 1, 5]))[::2]
    kolo.allreduce(words)
    assert words.tolist() == [total, total]


def check_others(rank, size):
    total = size * (size + 1) // 2
    tensors = {"a": np.full(3, rank + 1.0), "b": np.full((4, 4), rank + 1, np.int32)[:, ::2]}
    assert kolo.grouped_allreduce(tensors, name="both") is tensors
    assert (tensors["a"] == total).all() and (tensors["b"] == total).all()
    listed = kolo.grouped_allreduce_async([np.full(3, rank + 1.0), np.full(2, 1, np.uint8)], "max", name="list").wait()
    assert (listed[0] == size).all() and (listed[1] == 1).all()
    arrays = [np.full((i + 1, 2), rank, np.float32) for i in range(3)]
    outs = [np.full((size * (i + 1), 2), POISON, np.float32) for i in range(3)]
    calls = [kolo.Call.allgather(array, out=out) for array, out in zip(arrays, outs)]
    for out in (*kolo.grouped(calls, name="gathers"), *kolo.grouped_async(calls, name="gathers").wait()):
        assert (out == np.repeat(np.arange(size, dtype=np.float32), len(out) // size)[:, None]).all()
    assert kolo.run(kolo.Call.reduce_scatter(np.full(size, 1.0))) == [size]
    assert kolo.start(kolo.Call.barrier()).wait() is None

    weight = np.empty(100, np.float32)
    prepared = kolo.prepare(kolo.Call.allreduce(weight), name="weight")
    both = kolo.prepare([kolo.Call.broadcast(weight, 0), kolo.Call.broadcast(tensors["a"], 0)], name="prepared both")
    all_three = kolo.prepare_grouped_allreduce({"x": weight, "y": tensors["a"]}, "max", name="prepared grouped")
    for step in range(5):
        weight[:] = rank + step
        assert prepared.run() is weight and (weight == size * step + total - size).all()
        weight[:] = rank + step
        handle = prepared.start()
        assert handle.wait() is weight and (weight == size * step + total - size).all()
        weight[:] = rank + step
        assert both.run()[0] is weight and (weight == step).all()
        weight[:] = rank
        all_three.start().wait()
        assert (weight == size - 1).all()
    prepared.release()
    kolo.allreduce(weight, name="weight")  # the name is free again

    parameters = {"w": np.full((3, 4), rank, np.float32)[:, ::3], "b": np.full(2, rank, np.float64)}
    kolo.broadcast_parameters(parameters, root=size - 1)
    assert (parameters["w"] == size - 1).all() and (parameters["b"] == size - 1).all()
    kolo.broadcast_parameters([np.zeros(2)], root=0)
    assert kolo.replica_interval() == 0
    kolo.check_replicas(parameters, step=0)
    parameters["b"].flags.writeable = False
    kolo.check_replicas(parameters, name="mine")
    if size > 1:
        differ = {**parameters, "b": np.full(2, float(rank == 0))}
        for arguments, when in (({}, ""), ({"step": 0}, " before the first step"),
                                ({"step": 7}, " after step 7 (KOLO_CHECK_REPLICAS)")):
            try:
                kolo.check_replicas(differ, **arguments)
                raise AssertionError("not refused")
            except kolo.MismatchError as error:
                assert f'parameter "b" is not the same on all ranks{when}: rank' in str(error), str(error)
    assert kolo.broadcast_object({"epoch": 3, "rank": rank}, root=size - 1) == {"epoch": 3, "rank": size - 1}
    assert kolo.allgather_object((rank, "x" * rank)) == [(r, "x" * r) for r in range(size)]
    assert kolo.broadcast_bytes(b"root" if rank == 0 else None) == b"root"
    assert kolo.allgather_bytes(b"\0" * rank) == [b"\0" * r for r in range(size)]

    arena = kolo.GradientArena.like({"w": np.zeros((8, 3), np.float32), "b": np.zeros(3)}, name="mine")
    assert arena.tensors["w"].shape == (8, 3) and arena.tensors["b"].dtype == np.float64
    assert arena.tensors["w"] in arena and weight not in arena
    arena.tensors["w"][...] = rank + 1
    kolo.allreduce(arena.tensors["w"], name="w")
    assert (arena.tensors["w"] == total).all()
    room = kolo.GradientArena(10000)
    before = room.allocated
    gradient = room.allocate((5, 5), np.int32)
    assert room.capacity >= 10000 and room.allocated - before == room.room_for((5, 5), np.int32) and gradient in room
    assert (gradient == 0).all()
    del arena, room
    gc.collect()
    gradient[...] = 1
    kolo.allreduce(gradient)
    assert (gradient == size).all()  # the arena lives as long as its arrays

    counters = kolo.metrics()
    parts = {name: value for name, value in counters.items() if isinstance(value, dict)}
    histograms = {name for name, value in parts.items() if "bounds" in value}
    assert counters["submissions"] > 0 and all(isinstance(counters[name], int) for name in counters.keys() - parts.keys())
    assert all(parts[name].keys() == {"calls", "bytes", "ns"} for name in parts.keys() - histograms)
    assert parts["allreduce"]["calls"] > 0 and parts["allreduce"]["bytes"] > 0
    assert {"negotiation_ns", "execution_ns", "wait_ns", "batch_requests", "batch_bytes"} == histograms
    assert sum(counters["batch_requests"]["counts"]) == counters["batch_requests"]["count"]
    file = kolo.broadcast_object(tempfile.mktemp(prefix="kolo-timeline-") if rank == 0 else None, root=0)
    kolo.start_timeline(file)
    kolo.allreduce(np.ones(3), name="in the timeline")
    kolo.stop_timeline()
    kolo.barrier()
    with open(file, encoding="utf-8") as lines:
        events = json.load(lines)  # whole, once the last rank has stopped it
    assert sum(event["name"] == "allreduce" for event in events) == size
    kolo.barrier()
    if rank == 0:
        os.unlink(file)
    try:
        kolo.explain_job("/nowhere")
        raise AssertionError("there is a job where there is none")
    except kolo.InvalidArgumentError as error:
        assert "there is no recorder in" in str(error)
    assert kolo.__version__ in kolo.describe()
    settings = {one["name"]: one for one in kolo.settings()}
    assert settings["KOLO_TIMEOUT_S"].keys() == {"name", "value", "default", "source", "range", "help"}
    assert all(set(one) == {"machine_number", "process_number", "name", "uuid", "memory_bytes", "free_bytes", "driver"}
               for one in kolo.devices())
    kolo.end_step()
    assert 0 <= kolo.join() < size
    assert 0 <= kolo.join_async(counts_in_averages=True, timeout=60).wait() < size


def check_groups(rank, size):
    assert kolo.world().members == list(range(size)) and kolo.local_size() * kolo.cross_size() >= size
    assert 0 <= kolo.local_rank() < kolo.local_size() and 0 <= kolo.cross_rank() < kolo.cross_size()
    parity = kolo.world().split(rank % 2, key=-rank)
    assert parity.members == sorted(range(rank % 2, size, 2), reverse=True)
    assert kolo.rank(parity) == parity.members.index(rank)
    assert kolo.allreduce(1, group=parity) == parity.size
    if rank < 2:
        pair = kolo.Group.of(list(range(min(size, 2)))[::-1], name="pair")
        assert kolo.allgather(np.array([rank]), group=pair).tolist() == [1, 0][-pair.size :]
        assert kolo.broadcast_object(rank, 0, group=pair) == min(size, 2) - 1
    assert all(kolo.world().address(other) == kolo.world().address(0) for other in range(size))
    outside = kolo.world().split(None if rank == 0 else 0, name="outside", timeout=60, fails_alone=True)
    assert outside.is_member == (rank != 0)
    if rank == 0 and size > 1:
        try:
            kolo.Group.of([0, 1], name="nobody", timeout=0.05, fails_alone=True)
            raise AssertionError("a group without rank 1")
        except kolo.ExpiredError as late:
            assert "rank 1 has not called Group::of" in str(late)
    kolo.barrier(group=kolo.context())


def check_handles(rank, size):
    """Handles that are dropped, waited for twice, by several threads, or asked."""
    kept = np.ones(1000)
    handles = [kolo.allreduce_async(np.full(10, 1.0), name=f"h{i}") for i in range(50)]
    assert all((array == size).all() for array in kolo.wait_all(handles))
    handle = kolo.allreduce_async(kept, name="kept")
    outcomes = []
    threads = [threading.Thread(target=lambda: outcomes.append(handle.wait())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 4 and all(outcome is kept for outcome in outcomes) and handle.is_done()
    assert handle.wait_for(0) and handle.late_ranks(0.1) == []

    class Subclass(np.ndarray):
        """One that can be referred to weakly."""

    dropped = np.ones(1000).view(Subclass)
    gone = weakref.ref(dropped)
    receive = kolo.recv_async(dropped, rank, 5)
    assert not receive.wait_for(0.01) and not receive.is_done()
    del dropped, receive
    gc.collect()
    kolo.barrier()
    assert gone() is not None  # no message has come yet
    kolo.send(np.full(1000, 7.0), rank, 5)
    kolo.barrier()
    kolo.barrier_async().wait()
    gc.collect()
    assert gone() is None

    called = []
    handle = kolo.recv_async(np.zeros(1), rank, 6)
    handle.on_done(called.append)
    assert called == []
    kolo.send(np.zeros(1), rank, 6)
    handle.wait()
    handle.on_done(called.append)
    while len(called) < 2:
        pass
    assert called == [None, None]
    handle = kolo.recv_async(np.zeros(1), rank, 7)
    assert handle.cancel()
    try:
        handle.wait()
        raise AssertionError("the receive was cancelled")
    except kolo.CancelledError as error:
        assert error.code == kolo.Status.CANCELLED and not error.ends_job
    handle = kolo.recv_async(np.zeros(1), rank, 8)
    handle.end("enough")
    try:
        handle.wait()
        raise AssertionError("the receive was ended")
    except kolo.Error as error:
        assert "enough" in str(error), error
    late = None
    if size > 1:
        if rank == 0:
            handle = kolo.allreduce_async(np.zeros(1), name="late")
            late = handle.late_ranks(5)
        kolo.barrier()
        if rank != 0:
            handle = kolo.allreduce_async(np.zeros(1), name="late")
        handle.wait()
        assert late in (None, list(range(1, size))), late


def check_threads(rank, size):
    """Threads that call at once, by names."""

    def work(number):
        for i in range(50):
            mine = np.full(64, rank + number, np.int32)[::2]
            kolo.allreduce(mine, name=f"{number}/{i}")
            assert (mine == size * number + size * (size - 1) // 2).all()

    errors = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def check_mismatch(rank, size):
    if size == 1:
        return
    try:
        kolo.allreduce(np.zeros(3 + rank), name="mismatch")
        raise AssertionError("the shapes differ")
    except kolo.MismatchError as error:
        assert error.code == kolo.Status.MISMATCH and "mismatch" in str(error)
    kolo.barrier()


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def many_calls(count):
    """Of kinds that take all ways through the package."""
    size = kolo.size()
    plain, steps, text = np.ones(64, np.float32), np.ones((8, 16), np.float32)[:, ::2], bytearray(8)

    def some(times):
        for i in range(times):
            kolo.allreduce(plain, "max")
            kolo.allreduce_async(plain, "max", name="w").wait()
            kolo.allreduce(steps, "max")
            kolo.allgather(plain)
            kolo.allreduce_async(plain, "max")  # dropped
            kolo.broadcast(text)
            kolo.alltoall(np.ones((size, 2)), [1] * size)
            kolo.grouped_allreduce([plain], "max", name="g")
            try:
                kolo.allreduce(plain, "max", name="kolo.x")
            except kolo.InvalidArgumentError:
                pass
            handle = kolo.recv_async(plain, kolo.rank())
            kolo.send(plain, kolo.rank())
            handle.wait()
            if i % 100 == 0:
                kolo.world().split(0)
                assert kolo.broadcast_object(i) == i
        kolo.barrier()
        gc.collect()

    some(2000)
    before = resident()
    some(count // 10)
    grown = resident() - before
    assert grown < 4 << 20, f"{grown} bytes more after {count} calls"
    if kolo.rank() == 0:
        print(f"{count} calls: {grown} bytes more", flush=True)


def main():
    with kolo.Session():
        rank, size = kolo.rank(), kolo.size()
        if sys.argv[1:2] == ["--calls"]:
            many_calls(int(sys.argv[2]))
            return
        for check in (
            check_shapes,
            check_protocols,
            check_groups,
            check_handles,
            check_threads,
            check_mismatch,
            check_types,
            check_others,
        ):
            check(rank, size)
        if rank == 0:
            types = len(DTYPES)
            print(f"PASS: every collective on {size} rank{'s' * (size > 1)}, {types} element types", flush=True)
    assert not kolo.is_initialized()


if __name__ == "__main__":
    main()
