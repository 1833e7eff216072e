# SPDX-License-Identifier: Apache-2.0
"""Collectives.

Each is a `Call`, a collective that has not been made yet, which is run, started, prepared, or grouped with others.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from kolopy import _library as lib
from kolopy import _operations, _results, _tensors
from kolopy._errors import InvalidArgumentError
from kolopy._groups import Group, group_of
from kolopy._operations import Handle, Operation
from kolopy._tensors import View

OPS = {"sum": 0, "average": 1, "min": 2, "max": 3, "product": 4, "bit_and": 5, "bit_or": 6, "bit_xor": 7}
_SEND_AS = {None: lib.OWN_TYPE, "float16": 9, "bfloat16": 10}
_DEFAULT_REDUCTION = lib.pack_reduction(0, lib.OWN_TYPE, 1.0, 1.0, -1.0, 0)
_DEFAULT_OPTIONS = lib.pack_options(-1.0, 0)


class Alltoall(NamedTuple):
    """What an all-to-all gives: the rows from all ranks, and how many came from each."""

    rows: Any
    splits: "list[int]"


def _reduction(
    op: str, send_as: Optional[str], prescale: float, postscale: float, timeout: Optional[float], priority: int
) -> bytes:
    number = OPS.get(op) if isinstance(op, str) else None
    if number is None:
        raise InvalidArgumentError(f"there is no operation {op!r}: give one of {', '.join(OPS)}")
    if send_as not in _SEND_AS:
        raise InvalidArgumentError(f"send_as is {send_as!r}: give 'float16', 'bfloat16' or None")
    return lib.pack_reduction(
        number,
        _SEND_AS[send_as],
        lib.float_of(prescale, "the prescale"),
        lib.float_of(postscale, "the postscale"),
        lib.timeout_of(timeout),
        lib.int32_of(priority, "the priority"),
    )


def _options(timeout: Optional[float], priority: int) -> bytes:
    if timeout is None and priority == 0:
        return _DEFAULT_OPTIONS
    return lib.pack_options(lib.timeout_of(timeout), lib.int32_of(priority, "the priority"))


def _splits(splits: Optional[Sequence[int]]) -> Any:
    """A C array; None stays none."""
    if splits is None:
        return None
    if not hasattr(splits, "__iter__") or not all(hasattr(number, "__index__") for number in splits):
        raise InvalidArgumentError("the splits are not a sequence of ints: give one number of rows for each rank")
    numbers = [lib.int64_of(number, "a split") for number in splits]
    return (ctypes.c_int64 * len(numbers))(*numbers)


class Call:
    """A collective that has not been made yet; `Call.allreduce(...)` and its like make one. `run`, `start`, `prepare`
    and `grouped` take it."""

    __slots__ = ("_kind", "_in", "_out", "_given_out", "_root", "_splits", "_options")

    def __init__(
        self,
        kind: str,
        in_: Optional[View],
        out: Optional[View],
        given_out: Any,
        options: bytes,
        root: int = 0,
        splits: Any = None,
    ) -> None:
        """The package's own."""
        self._kind, self._in, self._out, self._given_out = kind, in_, out, given_out
        self._options, self._root, self._splits = options, root, splits

    @staticmethod
    def allreduce(
        tensor: Any,
        op: str = "sum",
        *,
        out: Any = None,
        send_as: Optional[str] = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
        timeout: Optional[float] = None,
        priority: int = 0,
    ) -> "Call":
        options = _reduction(op, send_as, prescale, postscale, timeout, priority)
        return _elementwise("allreduce", tensor, out, options)

    @staticmethod
    def reduce(
        tensor: Any,
        root: int = 0,
        op: str = "sum",
        *,
        out: Any = None,
        send_as: Optional[str] = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
        timeout: Optional[float] = None,
        priority: int = 0,
    ) -> "Call":
        options = _reduction(op, send_as, prescale, postscale, timeout, priority)
        return _elementwise("reduce", tensor, out, options, root)

    @staticmethod
    def reduce_elsewhere(tensor: Any, root: int, op: str = "sum", **options: Any) -> "Call":
        """The call of a rank that is not the root: its array is only read."""
        template = {"send_as": None, "prescale": 1.0, "postscale": 1.0, "timeout": None, "priority": 0, **options}
        return Call("reduce", _tensors.input_of(tensor), None, tensor, _reduction(op, **template), root)

    @staticmethod
    def broadcast(
        tensor: Any, root: int = 0, *, out: Any = None, timeout: Optional[float] = None, priority: int = 0
    ) -> "Call":
        return _elementwise("broadcast", tensor, out, _options(timeout, priority), root)

    @staticmethod
    def allgather(tensor: Any, *, out: Any = None, timeout: Optional[float] = None, priority: int = 0) -> "Call":
        return _rows("allgather", tensor, out, _options(timeout, priority))

    @staticmethod
    def gather(
        tensor: Any, root: int = 0, *, out: Any = None, timeout: Optional[float] = None, priority: int = 0
    ) -> "Call":
        return _rows("gather", tensor, out, _options(timeout, priority), root)

    @staticmethod
    def scatter(
        tensor: Any,
        root: int = 0,
        *,
        out: Any,
        splits: Optional[Sequence[int]] = None,
        timeout: Optional[float] = None,
        priority: int = 0,
    ) -> "Call":
        source = None if tensor is None else _tensors.input_of(tensor)
        target = _tensors.output_of(out, "the output")
        number = lib.int32_of(root, "the root")
        return Call("scatter", source, target, out, _options(timeout, priority), number, _splits(splits))

    @staticmethod
    def alltoall(
        tensor: Any,
        splits: Optional[Sequence[int]] = None,
        *,
        out: Any = None,
        timeout: Optional[float] = None,
        priority: int = 0,
    ) -> "Call":
        return _rows("alltoall", tensor, out, _options(timeout, priority), splits=_splits(splits))

    @staticmethod
    def reduce_scatter(
        tensor: Any,
        op: str = "sum",
        *,
        out: Any = None,
        send_as: Optional[str] = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
        timeout: Optional[float] = None,
        priority: int = 0,
    ) -> "Call":
        return _rows("reduce_scatter", tensor, out, _reduction(op, send_as, prescale, postscale, timeout, priority))

    @staticmethod
    def barrier(*, timeout: Optional[float] = None) -> "Call":
        return Call("barrier", None, None, None, _options(timeout, 0))

    def _in_c(self, group: Group) -> "Tuple[Callable[..., int], Tuple[Any, ...]]":
        """The function of C, and its arguments between the name and the places for a result and a handle."""
        kind, options = self._kind, self._options
        in_ = self._in.packed if self._in is not None else None
        out = self._out.packed if self._out is not None else None
        if kind == "allreduce":
            return lib.C.kolo_allreduce, (in_, out, options)
        if kind == "broadcast":
            return lib.C.kolo_broadcast, (in_, out, self._root, options)
        if kind == "reduce":
            return lib.C.kolo_reduce, (in_, out, self._root, options)
        if kind == "allgather":
            if out is None:
                return lib.C.kolo_allgather, (in_, options)
            return lib.C.kolo_allgather_into, (in_, out, options)
        if kind == "gather":
            if out is None:
                return lib.C.kolo_gather, (in_, self._root, options)
            return lib.C.kolo_gather_into, (in_, out, self._root, options)
        if kind == "reduce_scatter":
            if out is None:
                return lib.C.kolo_reduce_scatter, (in_, options)
            return lib.C.kolo_reduce_scatter_into, (in_, out, options)
        if kind == "barrier":
            return lib.C.kolo_barrier, (options,)
        splits, count = self._splits, 0 if self._splits is None else len(self._splits)
        if kind == "scatter":
            return lib.C.kolo_scatter, (in_, out, self._root, splits, count, options)
        if out is None:
            return lib.C.kolo_alltoall, (in_, splits, count, options)
        return lib.C.kolo_alltoall_into, (in_, out, splits, count, options)

    def _begin(
        self, begin: Callable[[Callable[..., int], "Tuple[Any, ...]", Operation], Any], name: Optional[str], group: Any
    ) -> Any:
        """Runs or starts it."""
        of = group_of(group)
        function, arguments = self._in_c(of)
        arguments = (of.pointer, lib.encoded(name, "the name"), *arguments)
        if self._out is None and self._kind not in _WITHOUT_RESULT:
            place = ctypes.c_void_p()
            is_alltoall = self._kind == "alltoall"

            def take() -> Any:
                owner = _results.Owner(place)
                return Alltoall(owner.array(), owner.splits()) if is_alltoall else owner.array()

            operation = Operation(self, take, place)
            return begin(function, (*arguments, ctypes.byref(place)), operation)
        return begin(function, arguments, Operation(self, self._finish))

    def _finish(self) -> Any:
        """What has been written, where the program wanted it."""
        if self._out is not None:
            self._out.write_back()
        return self._given_out

    def _fill(self, call: lib.Call) -> None:
        """As a `kolo_call`, which is valid as long as this object is."""
        if self._out is None and self._kind != "barrier":
            raise InvalidArgumentError(f"a prepared or grouped {self._kind} needs an output: give `out`")
        call.size = ctypes.sizeof(lib.Call)
        call.collective = _COLLECTIVES[self._kind]
        call.root = self._root
        call.in_ = lib.address_of(self._in.packed) if self._in is not None else None
        call.out = lib.address_of(self._out.packed) if self._out is not None else None
        if self._splits is not None:
            call.splits, call.split_count = ctypes.addressof(self._splits), len(self._splits)
        if self._kind in _REDUCTIONS:
            call.reduction = lib.address_of(self._options)
        else:
            call.options = lib.address_of(self._options)


_COLLECTIVES = {
    "allreduce": 0,
    "reduce": 1,
    "broadcast": 2,
    "allgather": 3,
    "gather": 4,
    "scatter": 5,
    "alltoall": 6,
    "reduce_scatter": 7,
    "barrier": 8,
}
_REDUCTIONS = ("allreduce", "reduce", "reduce_scatter")
_WITHOUT_RESULT = ("allreduce", "reduce", "broadcast", "scatter", "barrier")


def _elementwise(kind: str, tensor: Any, out: Any, options: bytes, root: int = 0) -> Call:
    """In place, or into another array of the same shape."""
    number = root if root.__class__ is int and 0 <= root < 2**31 else lib.int32_of(root, "the root")
    if out is None:
        view = _tensors.output_of(tensor)
        return Call(kind, view, view, tensor, options, number)
    return Call(kind, _tensors.input_of(tensor), _tensors.output_of(out, "the output"), out, options, number)


def _rows(kind: str, tensor: Any, out: Any, options: bytes, root: int = 0, splits: Any = None) -> Call:
    """Into an array of the caller's, or new memory."""
    view = _tensors.input_of(tensor)
    if out is not None:
        target = _tensors.output_of(out, "the output")
    else:
        target = None
        _tensors.check_result_type(view.number)
    return Call(kind, view, target, out, options, lib.int32_of(root, "the root"), splits)


def run(call: Call, *, name: Optional[str] = None, group: Any = None) -> Any:
    """Makes the call, and waits."""
    return _checked_call(call)._begin(_operations.run, name, group)


def start(call: Call, *, name: Optional[str] = None, group: Any = None) -> "Handle[Any]":
    """Starts the call."""
    return Handle(_checked_call(call)._begin(_operations.start, name, group))


def _checked_call(call: Any) -> Call:
    if not isinstance(call, Call):
        raise InvalidArgumentError(f"the call is of type {type(call).__name__}: make one as by Call.allreduce(...)")
    return call


# --- several calls as one operation


class _Together:
    """Calls of one kind as one operation."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = [_checked_call(call) for call in calls]
        self.list = (lib.Call * max(len(self.calls), 1))()
        for place, call in zip(self.list, self.calls):
            call._fill(place)
        writing = [i for i, call in enumerate(self.calls) if call._out is not None]
        twice = _tensors.overlapping_outputs([self.calls[i]._out for i in writing])  # type: ignore[misc]
        if twice is not None:
            raise InvalidArgumentError(
                f"calls {writing[twice[0]]} and {writing[twice[1]]} of the group write the same memory: give each its "
                "own"
            )

    def finish(self) -> "list[Any]":
        return [call._finish() for call in self.calls]

    def arguments(self) -> "Tuple[Any, ...]":
        return ctypes.addressof(self.list), len(self.calls)


def _grouped(begin: Any, calls: Sequence[Call], name: Optional[str], group: Any) -> Any:
    of, together = group_of(group), _Together(calls)
    arguments = (of.pointer, lib.encoded(name, "the name"), *together.arguments())
    return begin(lib.C.kolo_grouped, arguments, Operation(together, together.finish))


def grouped(calls: Sequence[Call], *, name: Optional[str] = None, group: Any = None) -> "list[Any]":
    """Makes several calls of one kind as one operation, which runs on all ranks or on none. They differ in their
    arrays alone, and each has an output. Returns what each call would have returned."""
    done: "list[Any]" = _grouped(_operations.run, calls, name, group)
    return done


def grouped_async(calls: Sequence[Call], *, name: Optional[str] = None, group: Any = None) -> "Handle[list[Any]]":
    return Handle(_grouped(_operations.start, calls, name, group))


Tensors = Union[Mapping[str, Any], Sequence[Any]]


class _Named:
    """Arrays with names, as a list of `kolo_named_tensor`; of those that are only read `view_of` is `input_of`."""

    def __init__(self, tensors: Tensors, view_of: Any = _tensors.output_of) -> None:
        self.tensors = tensors
        if isinstance(tensors, Mapping):
            pairs = list(tensors.items())
        elif isinstance(tensors, (str, bytes)) or not hasattr(tensors, "__len__"):
            raise InvalidArgumentError(
                f"the tensors are of type {type(tensors).__name__}: give a dict by name, or a list"
            )
        else:
            pairs = [(str(i), tensor) for i, tensor in enumerate(tensors)]
        self.names = [name for name, _ in pairs]
        self.views = [view_of(tensor, f"the tensor {name!r}") for name, tensor in pairs]
        self.list = (lib.NamedTensor * max(len(pairs), 1))()
        for place, name, view in zip(self.list, self.names, self.views):
            place.name = lib.encoded(name, "a tensor's name")
            place.tensor = lib.Tensor.from_buffer_copy(view.packed)

    def __len__(self) -> int:
        return len(self.names)

    def finish(self) -> Any:
        for view in self.views:
            view.write_back()
        return self.tensors


def _grouped_allreduce(begin: Any, tensors: Tensors, options: bytes, name: Optional[str], group: Any) -> Any:
    of, named = group_of(group), _Named(tensors)
    twice = _tensors.overlapping_outputs(named.views)
    if twice is not None:
        one, other = (named.names[i] for i in twice)
        raise InvalidArgumentError(f"the tensors {one!r} and {other!r} overlap: give each memory of its own")
    arguments = (of.pointer, lib.encoded(name, "the name"), ctypes.addressof(named.list), len(named), options)
    return begin(lib.C.kolo_grouped_allreduce, arguments, Operation(named, named.finish))


def grouped_allreduce(
    tensors: Tensors,
    op: str = "sum",
    *,
    name: Optional[str] = None,
    group: Any = None,
    send_as: Optional[str] = None,
    prescale: float = 1.0,
    postscale: float = 1.0,
    timeout: Optional[float] = None,
    priority: int = 0,
) -> Any:
    """Reduces several arrays in place as one operation: a dict of them by name, or a list. Their types may differ."""
    options = _reduction(op, send_as, prescale, postscale, timeout, priority)
    return _grouped_allreduce(_operations.run, tensors, options, name, group)


def grouped_allreduce_async(
    tensors: Tensors,
    op: str = "sum",
    *,
    name: Optional[str] = None,
    group: Any = None,
    send_as: Optional[str] = None,
    prescale: float = 1.0,
    postscale: float = 1.0,
    timeout: Optional[float] = None,
    priority: int = 0,
) -> "Handle[Any]":
    options = _reduction(op, send_as, prescale, postscale, timeout, priority)
    return Handle(_grouped_allreduce(_operations.start, tensors, options, name, group))


# --- calls that repeat


class Prepared:
    """A call that is checked and named once, and started often: `prepare` makes it. Its arrays are contiguous, and
    are used where they lie each time. It gives its name back when the program drops it. One thread at a time."""

    def __init__(self, pointer: Optional[int], keep: Any) -> None:
        """The package's own."""
        self._pointer, self._keep = pointer, keep

    def __del__(self) -> None:
        pointer, self._pointer = getattr(self, "_pointer", None), None
        if pointer is not None:
            lib.C.kolo_prepared_release(pointer)

    def _begin(self, begin: Any) -> Any:
        if self._pointer is None:
            raise InvalidArgumentError("the prepared call has been released")
        return begin(lib.C.kolo_start, (self._pointer,), Operation((self, self._keep), self._keep.finish))

    def run(self) -> Any:
        """Runs the operation, and returns what the call would have returned."""
        return self._begin(_operations.run)

    def start(self) -> "Handle[Any]":
        """Starts it. DuplicateNameError while the last one is in flight."""
        return Handle(self._begin(_operations.start))

    def release(self) -> None:
        """Gives the name back now. An operation in flight goes on."""
        self.__del__()


class _One:
    """The one call of a `Prepared`."""

    def __init__(self, call: Call) -> None:
        self.calls = [call]
        self.list = (lib.Call * 1)()
        call._fill(self.list[0])

    def finish(self) -> Any:
        return self.calls[0]._finish()


def prepare(call: Union[Call, Sequence[Call]], *, name: str, group: Any = None) -> Prepared:
    """Checks a call, or what `grouped` would make of several, and claims its name. Waits for nobody."""
    of, place, encoded = group_of(group), ctypes.c_void_p(), lib.encoded(name, "the name")
    keep: Union[_One, _Together] = _One(call) if isinstance(call, Call) else _Together(call)
    for one in keep.calls:
        if one._in is not None and one._in.copied or one._out is not None and one._out.copied:
            raise InvalidArgumentError("a prepared call uses its arrays where they lie: give contiguous ones")
    first = ctypes.addressof(keep.list)
    if isinstance(keep, _One):
        lib.check(lib.C.kolo_prepare(of.pointer, encoded, first, ctypes.byref(place)))
    else:
        lib.check(lib.C.kolo_prepare_grouped(of.pointer, encoded, first, len(keep.calls), ctypes.byref(place)))
    return Prepared(place.value, keep)


def prepare_grouped_allreduce(
    tensors: Tensors,
    op: str = "sum",
    *,
    name: str,
    group: Any = None,
    send_as: Optional[str] = None,
    prescale: float = 1.0,
    postscale: float = 1.0,
    timeout: Optional[float] = None,
    priority: int = 0,
) -> Prepared:
    """The same for what `grouped_allreduce` makes."""
    options = _reduction(op, send_as, prescale, postscale, timeout, priority)
    of, named, place = group_of(group), _Named(tensors), ctypes.c_void_p()
    if any(view.copied for view in named.views):
        raise InvalidArgumentError("a prepared call uses its arrays where they lie: give contiguous ones")
    lib.check(
        lib.C.kolo_prepare_grouped_allreduce(
            of.pointer,
            lib.encoded(name, "the name"),
            ctypes.addressof(named.list),
            len(named),
            options,
            ctypes.byref(place),
        )
    )
    return Prepared(place.value, named)
