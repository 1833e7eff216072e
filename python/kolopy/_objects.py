# SPDX-License-Identifier: Apache-2.0
"""Objects, parameters, and steps."""

from __future__ import annotations

import ctypes
import pickle
from typing import Any, Optional

from kolopy import _library as lib
from kolopy import _operations, _results, _tensors
from kolopy._calls import Tensors, _Named
from kolopy._errors import InvalidArgumentError
from kolopy._groups import group_of
from kolopy._operations import Handle, Operation, interruptible


def _bytes_of(data: Any) -> bytes:
    """(`bytes(3)` would be three zeros.)"""
    try:
        return memoryview(data).tobytes()
    except TypeError:
        raise InvalidArgumentError(
            f"the data is of type {type(data).__name__}: give bytes, or call broadcast_object or allgather_object"
        ) from None


def broadcast_bytes(data: Optional[bytes], root: int = 0, *, group: Any = None) -> bytes:
    """Rank `root`'s bytes, on every rank. Others may give None."""
    of, place, its_root = group_of(group), ctypes.c_void_p(), lib.int32_of(root, "the root")
    sent = _bytes_of(data) if data is not None and of.rank == its_root else b""
    interruptible(
        lambda: lib.check(lib.C.kolo_broadcast_bytes(of.pointer, sent, len(sent), its_root, ctypes.byref(place)))
    )
    return _results.Owner(place).bytes(0)


def allgather_bytes(data: bytes, *, group: Any = None) -> "list[bytes]":
    """All ranks' bytes, by rank; lengths may differ."""
    of, place, sent = group_of(group), ctypes.c_void_p(), _bytes_of(data)
    interruptible(lambda: lib.check(lib.C.kolo_allgather_bytes(of.pointer, sent, len(sent), ctypes.byref(place))))
    owner = _results.Owner(place)
    return [owner.bytes(rank) for rank in range(of.size)]


def broadcast_object(value: Any, root: int = 0, *, group: Any = None) -> Any:
    """Rank `root`'s object, on every rank: pickled, so that all ranks trust the root. The root gets its own back."""
    of = group_of(group)
    if of.rank == lib.int32_of(root, "the root"):
        broadcast_bytes(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), root, group=of)
        return value
    return pickle.loads(broadcast_bytes(None, root, group=of))


def allgather_object(value: Any, *, group: Any = None) -> "list[Any]":
    """All ranks' objects, by rank: pickled, so that the ranks trust each other."""
    return [pickle.loads(one) for one in allgather_bytes(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), group=group)]


def broadcast_parameters(parameters: Tensors, root: int = 0, *, group: Any = None) -> None:
    """Copies rank `root`'s arrays to every rank's: a dict of them by name, or a list. All ranks agree in number,
    order, names, types and shapes, which is checked before anything is copied."""
    of, named, its_root = group_of(group), _Named(parameters), lib.int32_of(root, "the root")
    first = ctypes.addressof(named.list)
    interruptible(lambda: lib.check(lib.C.kolo_broadcast_parameters(of.pointer, first, len(named), its_root)))
    named.finish()


def replica_interval(*, group: Any = None) -> int:
    """What KOLO_CHECK_REPLICAS says to whatever steps parameters: -1: compare nothing; 0: compare them before the
    first step; N: also after every N-th step."""
    interval = ctypes.c_int64()
    lib.check(lib.C.kolo_replica_interval(group_of(group).pointer, ctypes.byref(interval)))
    return interval.value


def check_replicas(
    parameters: Tensors, *, step: Optional[int] = None, name: Optional[str] = None, group: Any = None
) -> None:
    """Compares arrays over the ranks, bit by bit: a dict of them by name, or a list. If they differ, all ranks raise
    the same MismatchError, which names the first that differs, and the ranks that have other values. With a `step`
    (after that one, or 0: before the first) the sentence says so, and what KOLO_CHECK_REPLICAS leaves out by its name
    is left out. With a name, ranks may make such calls in any order."""
    of, named = group_of(group), _Named(parameters, _tensors.input_of)
    if step is not None and step < 0:
        raise InvalidArgumentError(f"the step is {step}: give 0 for what is before the first, or None")
    arguments = (of.pointer, lib.encoded(name, "the name"), ctypes.addressof(named.list), len(named))
    interruptible(lambda: lib.check(lib.C.kolo_check_replicas(*arguments, -1 if step is None else step)))


def _join(begin: Any, counts_in_averages: bool, timeout: Optional[float], group: Any) -> Any:
    of, last = group_of(group), ctypes.c_int32()
    options = lib.pack_join_options(lib.timeout_of(timeout), counts_in_averages)
    arguments = (of.pointer, options, ctypes.byref(last))
    return begin(lib.C.kolo_join, arguments, Operation(None, lambda: last.value, last))


def join(*, counts_in_averages: bool = False, timeout: Optional[float] = None, group: Any = None) -> int:
    """This rank is out of data; the others go on without it. Returns when all ranks of the group have joined: the
    rank that joined last, whose parameters the others take. With `counts_in_averages` averages count this rank
    meanwhile."""
    last: int = _join(_operations.run, counts_in_averages, timeout, group)
    return last


def join_async(
    *, counts_in_averages: bool = False, timeout: Optional[float] = None, group: Any = None
) -> "Handle[int]":
    return Handle(_join(_operations.start, counts_in_averages, timeout, group))


def end_step(*, group: Any = None) -> None:
    """A training step ends here. A program may call it once per step on every rank, or never."""
    lib.check(lib.C.kolo_end_step(group_of(group).pointer))


def cuda_bind(*, group: Any = None) -> int:
    """Chooses this rank's CUDA device, makes it the calling thread's current one, and returns its number."""
    number = ctypes.c_int32()
    lib.check(lib.C.kolo_cuda_bind(group_of(group).pointer, ctypes.byref(number)))
    return number.value
