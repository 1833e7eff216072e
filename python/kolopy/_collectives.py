# SPDX-License-Identifier: Apache-2.0
"""The collectives as functions.

Every rank of the group makes the same calls, with the same type, shape, options and root. Arguments of all:

    name      calls with names are matched by them, in any order and from any threads; calls without one come in the
              same order on all ranks
    group     a Group or a Context; None: the world
    timeout   seconds until it is a fatal error; None: KOLO_TIMEOUT_S
    priority  among waiting calls with names the highest runs first

and of reductions:

    op        "sum", "average", "min", "max", "product", "bit_and", "bit_or" or "bit_xor"
    send_as   "float16" or "bfloat16": float32 and float64 travel as that
    prescale, postscale   every input, and the result, is multiplied by this

Those named `_async` start the operation and return its Handle, whose `wait` returns what the plain one returns.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, Optional, Sequence

from kolopy import _library as lib
from kolopy import _tensors
from kolopy._calls import Call, grouped_allreduce, run, start
from kolopy._errors import InvalidArgumentError
from kolopy._groups import group_of
from kolopy._operations import Handle


def allreduce(
    tensor: Any,
    op: str = "sum",
    *,
    out: Any = None,
    name: Optional[str] = None,
    group: Any = None,
    send_as: Optional[str] = None,
    prescale: float = 1.0,
    postscale: float = 1.0,
    timeout: Optional[float] = None,
    priority: int = 0,
) -> Any:
    """Reduces element by element over all ranks: in place, or into `out`. Returns the array that was written. Sums of
    integers wrap, as numpy's do.

    A number of Python or numpy is reduced by value, and the result returned, of the same type. If a sum or a product of
    integers does not fit the type (64 bits for Python's), all ranks raise InvalidArgumentError. A sum of bools is
    whether any is true."""
    if isinstance(tensor, _NUMBERS):
        if out is not None:
            raise InvalidArgumentError("a number is reduced by value, and has no `out`: use what the call returns")
        options = {"send_as": send_as, "prescale": prescale, "postscale": postscale}
        return _by_value(tensor, op, name=name, group=group, timeout=timeout, priority=priority, **options)
    return run(
        Call.allreduce(
            tensor,
            op,
            out=out,
            send_as=send_as,
            prescale=prescale,
            postscale=postscale,
            timeout=timeout,
            priority=priority,
        ),
        name=name,
        group=group,
    )


def allreduce_async(
    tensor: Any,
    op: str = "sum",
    *,
    out: Any = None,
    name: Optional[str] = None,
    group: Any = None,
    send_as: Optional[str] = None,
    prescale: float = 1.0,
    postscale: float = 1.0,
    timeout: Optional[float] = None,
    priority: int = 0,
) -> "Handle[Any]":
    """Starts `allreduce`."""
    return start(
        Call.allreduce(
            tensor,
            op,
            out=out,
            send_as=send_as,
            prescale=prescale,
            postscale=postscale,
            timeout=timeout,
            priority=priority,
        ),
        name=name,
        group=group,
    )


def reduce(
    tensor: Any,
    root: int = 0,
    op: str = "sum",
    *,
    out: Any = None,
    name: Optional[str] = None,
    group: Any = None,
    send_as: Optional[str] = None,
    prescale: float = 1.0,
    postscale: float = 1.0,
    timeout: Optional[float] = None,
    priority: int = 0,
) -> Any:
    """The same, but only rank `root` gets the result, in place or into `out`; the other ranks' arrays stay as they
    are."""
    call = _for_root(
        Call.reduce,
        tensor,
        root,
        out,
        group,
        op=op,
        send_as=send_as,
        prescale=prescale,
        postscale=postscale,
        timeout=timeout,
        priority=priority,
    )
    return run(call, name=name, group=group)


def reduce_async(
    tensor: Any,
    root: int = 0,
    op: str = "sum",
    *,
    out: Any = None,
    name: Optional[str] = None,
    group: Any = None,
    send_as: Optional[str] = None,
    prescale: float = 1.0,
    postscale: float = 1.0,
    timeout: Optional[float] = None,
    priority: int = 0,
) -> "Handle[Any]":
    """Starts `reduce`."""
    call = _for_root(
        Call.reduce,
        tensor,
        root,
        out,
        group,
        op=op,
        send_as=send_as,
        prescale=prescale,
        postscale=postscale,
        timeout=timeout,
        priority=priority,
    )
    return start(call, name=name, group=group)


def broadcast(
    tensor: Any,
    root: int = 0,
    *,
    out: Any = None,
    name: Optional[str] = None,
    group: Any = None,
    timeout: Optional[float] = None,
    priority: int = 0,
) -> Any:
    """Copies the root's array to every rank's: in place, or from the root's `tensor` to every rank's `out`."""
    return run(Call.broadcast(tensor, root, out=out, timeout=timeout, priority=priority), name=name, group=group)


def broadcast_async(
    tensor: Any,
    root: int = 0,
    *,
    out: Any = None,
    name: Optional[str] = None,
    group: Any = None,
    timeout: Optional[float] = None,
    priority: int = 0,
) -> "Handle[Any]":
    """Starts `broadcast`."""
    return start(Call.broadcast(tensor, root, out=out, timeout=timeout, priority=priority), name=name, group=group)


def allgather(
    tensor: Any,
    *,
    out: Any = None,
    name: Optional[str] = None,
    group: Any = None,
    timeout: Optional[float] = None,
    priority: int = 0,
) -> Any:
    """Concatenates all ranks' arrays along the first dimension, which may differ by rank, in the order of ranks.
    Returns a new array, or `out`."""
    return run(Call.allgather(tensor, out=out, timeout=timeout, priority=priority), name=name, group=group)


def allgather_async(
    tensor: Any,
    *,
    out: Any = None,
    name: Optional[str] = None,
    group: Any = None,
    timeout: Optional[float] = None,
    priority: int = 0,
) -> "Handle[Any]":
    """Starts `allgather`."""
    return start(Call.allgather(tensor, out=out, timeout=timeout, priority=priority), name=name, group=group)


def gather(
    tensor: Any,
    root: int = 0,
    *,
    out: Any = None,
    name: Optional[str] = None,
    group: Any = None,
    timeout: Optional[float] = None,
    priority: int = 0,
) -> Any:
    """The same, but only rank `root` gets the rows; on other ranks the result has none, and `out` is not used."""
    call = _for_root(Call.gather, tensor, root, out, group, timeout=timeout, priority=priority)
    return run(call, name=name, group=group)


def gather_async(
    tensor: Any,
    root: int = 0,
    *,
    out: Any = None,
    name: Optional[str] = None,
    group: Any = None,
    timeout: Optional[float] = None,
    priority: int = 0,
) -> "Handle[Any]":
    """Starts `gather`."""
    call = _for_root(Call.gather, tensor, root, out, group, timeout=timeout, priority=priority)
    return start(call, name=name, group=group)


def scatter(
    tensor: Any,
    root: int = 0,
    *,
    out: Any,
    splits: Optional[Sequence[int]] = None,
    name: Optional[str] = None,
    group: Any = None,
    timeout: Optional[float] = None,
    priority: int = 0,
) -> Any:
    """Distributes the root's rows in the order of ranks, into every rank's `out`: to rank r `splits[r]` of them, or
    to each the same number. Only the root's `tensor` and `splits` are read; other ranks may give None."""
    return run(
        Call.scatter(tensor, root, out=out, splits=splits, timeout=timeout, priority=priority), name=name, group=group
    )


def scatter_async(
    tensor: Any,
    root: int = 0,
    *,
    out: Any,
    splits: Optional[Sequence[int]] = None,
    name: Optional[str] = None,
    group: Any = None,
    timeout: Optional[float] = None,
    priority: int = 0,
) -> "Handle[Any]":
    """Starts `scatter`."""
    return start(
        Call.scatter(tensor, root, out=out, splits=splits, timeout=timeout, priority=priority), name=name, group=group
    )


def alltoall(
    tensor: Any,
    splits: Optional[Sequence[int]] = None,
    *,
    out: Any = None,
    name: Optional[str] = None,
    group: Any = None,
    timeout: Optional[float] = None,
    priority: int = 0,
) -> Any:
    """Sends `splits[r]` of this rank's rows to rank r (or to each the same number), and receives the others' rows
    in the order of ranks. Returns Alltoall(rows, splits): a new array, and how many rows came from each rank; or
    `out`."""
    return run(Call.alltoall(tensor, splits, out=out, timeout=timeout, priority=priority), name=name, group=group)


def alltoall_async(
    tensor: Any,
    splits: Optional[Sequence[int]] = None,
    *,
    out: Any = None,
    name: Optional[str] = None,
    group: Any = None,
    timeout: Optional[float] = None,
    priority: int = 0,
) -> "Handle[Any]":
    """Starts `alltoall`."""
    return start(Call.alltoall(tensor, splits, out=out, timeout=timeout, priority=priority), name=name, group=group)


def reduce_scatter(
    tensor: Any,
    op: str = "sum",
    *,
    out: Any = None,
    name: Optional[str] = None,
    group: Any = None,
    send_as: Optional[str] = None,
    prescale: float = 1.0,
    postscale: float = 1.0,
    timeout: Optional[float] = None,
    priority: int = 0,
) -> Any:
    """As an all-reduce of which each rank gets its rows alone: of `rows` rows on n ranks rows / n, in the order of
    ranks, and the first rows % n ranks one more. Returns a new array, or `out`."""
    return run(
        Call.reduce_scatter(
            tensor,
            op,
            out=out,
            send_as=send_as,
            prescale=prescale,
            postscale=postscale,
            timeout=timeout,
            priority=priority,
        ),
        name=name,
        group=group,
    )


def reduce_scatter_async(
    tensor: Any,
    op: str = "sum",
    *,
    out: Any = None,
    name: Optional[str] = None,
    group: Any = None,
    send_as: Optional[str] = None,
    prescale: float = 1.0,
    postscale: float = 1.0,
    timeout: Optional[float] = None,
    priority: int = 0,
) -> "Handle[Any]":
    """Starts `reduce_scatter`."""
    return start(
        Call.reduce_scatter(
            tensor,
            op,
            out=out,
            send_as=send_as,
            prescale=prescale,
            postscale=postscale,
            timeout=timeout,
            priority=priority,
        ),
        name=name,
        group=group,
    )


def barrier(
    *,
    name: Optional[str] = None,
    group: Any = None,
    timeout: Optional[float] = None,
) -> None:
    """Returns when every rank has called it."""
    run(Call.barrier(timeout=timeout), name=name, group=group)


def barrier_async(
    *,
    name: Optional[str] = None,
    group: Any = None,
    timeout: Optional[float] = None,
) -> "Handle[None]":
    """Starts `barrier`."""
    return start(Call.barrier(timeout=timeout), name=name, group=group)


def _for_root(make: Any, tensor: Any, root: int, out: Any, group: Any, **options: Any) -> Call:
    """A call of which only the root gets the result: the other ranks' output is not used."""
    root = lib.int32_of(root, "the root")
    if group_of(group).rank == root:
        call: Call = make(tensor, root, out=out, **options)
        return call
    return make(tensor, root, **options) if make is Call.gather else Call.reduce_elsewhere(tensor, root, **options)


_NUMBERS = (bool, int, float) if _tensors.np is None else (bool, int, float, _tensors.np.generic)


def _by_value(number: Any, op: str, **options: Any) -> Any:
    """A number becomes an int64, a float64 or a bool, and the result a number of the same kind."""
    of_numpy = _tensors.np is not None and isinstance(number, _tensors.np.generic)
    is_integer = number.dtype.kind in "iu" if of_numpy else isinstance(number, int) and not isinstance(number, bool)
    if is_integer and op in ("sum", "product"):
        return _integer_by_value(number, op, number.dtype if of_numpy else None, options)
    if of_numpy:
        return allreduce(_tensors.np.array(number), op, **options)[()]
    kind: Any = ctypes.c_bool if isinstance(number, bool) else _int64 if is_integer else ctypes.c_double
    place = (kind * 1)(_checked(number) if is_integer else number)
    allreduce(place, op, **options)
    return place[0]


_int64, _uint64 = ctypes.c_int64, ctypes.c_uint64


def _checked(number: int) -> int:
    if not -(2**63) <= number < 2**63:
        raise InvalidArgumentError(f"the number {number} does not fit 64 bits: give a float, or an array")
    return number


def _integer_by_value(number: Any, op: str, dtype: Any, options: "dict[str, Any]") -> Any:
    """A sum or a product of 64 bits wraps. Beside it goes that of the floats, which says how often it has."""
    low, high, name, remedy = -(2**63), 2**63 - 1, "int64", "give a float"
    if dtype is not None:
        info, remedy = _tensors.np.iinfo(dtype), "give a wider type, or a float"
        low, high, name = int(info.min), int(info.max), dtype.name
    value = int(number)
    wrapped = (_uint64 if high >= 2**63 else _int64) * 1
    exact, rounded = wrapped(value if dtype is not None else _checked(value)), (ctypes.c_double * 1)(value)
    grouped_allreduce([exact, rounded], op, **options)
    result, about = exact[0], rounded[0]
    if math.isnan(about):  # an infinite product times 0
        about = 0.0
    if math.isfinite(about):
        result += round((int(about) - result) / 2**64) * 2**64
    if math.isfinite(about) and low <= result <= high:
        return result if dtype is None else dtype.type(result)
    found = str(result) if op == "sum" else f"about {about:.3g}"
    raise InvalidArgumentError(
        f"the {op} over all ranks is {found}, and {name} holds {low} to {high}: {remedy}"
    )
