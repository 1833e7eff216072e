# SPDX-License-Identifier: Apache-2.0
"""Groups: ranks that act together."""

from __future__ import annotations

import ctypes
import json
import threading
from typing import Any, Optional, Sequence

from kolopy import _library as lib
from kolopy import _results
from kolopy._errors import InvalidArgumentError, NotInitializedError
from kolopy._operations import interruptible


class Group:
    """Ranks that act together: all ranks of a context, its world, or some of them. Every call takes one as `group`;
    its roots and ranks are ranks of the group. A group ends when the program drops it; a world ends with its
    context."""

    def __init__(self, pointer: Optional[int], is_world: bool, context: Any) -> None:
        """The package's own. `Group.of` and `split` make groups."""
        self._pointer = pointer
        self._is_world = is_world
        self._context = context  # keeps it alive
        self._rank: Optional[int] = None
        self._size: Optional[int] = None

    def __del__(self) -> None:
        pointer, self._pointer = getattr(self, "_pointer", None), None
        if pointer is not None and not self._is_world:
            lib.C.kolo_group_release(pointer)

    @property
    def pointer(self) -> int:
        """The `kolo_group` of C."""
        if self._pointer is None:
            raise NotInitializedError("the group's context has been shut down")
        return self._pointer

    @property
    def rank(self) -> int:
        """This rank's place in the group, from 0."""
        if self._rank is None or self._pointer is None:
            self._rank = _asked(lib.C.kolo_rank, self.pointer)
        return self._rank

    @property
    def size(self) -> int:
        """How many ranks the group has."""
        if self._size is None or self._pointer is None:
            self._size = _asked(lib.C.kolo_size, self.pointer)
        return self._size

    @property
    def is_member(self) -> bool:
        """Whether this rank is a member: false only for a group that `split` has given for the colour None."""
        return bool(_asked(lib.C.kolo_group_is_member, self.pointer))

    @property
    def members(self) -> "list[int]":
        """The group's ranks as ranks of the world, in the group's order."""
        room = (ctypes.c_int32 * self.size)()
        lib.check(lib.C.kolo_group_members(self.pointer, room, self.size))
        return list(room)

    @staticmethod
    def of(
        ranks: Sequence[int],
        *,
        parent: "Optional[Group]" = None,
        name: Optional[str] = None,
        timeout: Optional[float] = None,
        fails_alone: bool = False,
    ) -> "Group":
        """The group of these ranks of `parent` (the world), in any order. Each rank of the list calls it, with the
        same list, and waits for the others, `timeout` seconds at most (KOLO_TIMEOUT_S). Then the job ends, or with
        `fails_alone` only this call fails, on every rank that makes it (ExpiredError)."""
        of = group_of(parent)
        listed = [lib.int32_of(rank, "a rank of the list") for rank in ranks]
        array = (ctypes.c_int32 * len(listed))(*listed)
        options = _options(name, timeout, fails_alone)
        return _made(
            of, lambda place: lib.C.kolo_group_of(of.pointer, array, len(listed), ctypes.addressof(options), place)
        )

    def split(
        self,
        color: Optional[int],
        key: int = 0,
        *,
        name: Optional[str] = None,
        timeout: Optional[float] = None,
        fails_alone: bool = False,
    ) -> "Group":
        """The group of all ranks of this one that give the same colour (0 or more), in the order of their keys. All
        ranks call it, and wait `timeout` seconds at most (KOLO_TIMEOUT_S); `fails_alone` is that of `of`. With None as
        the colour the result is a group without this rank, which can only be dropped."""
        number = lib.NO_GROUP if color is None else lib.int32_of(color, "the colour")
        if color is not None and number < 0:
            raise InvalidArgumentError(f"the colour is {number}: give 0 or more, or None for no group")
        order = lib.int32_of(key, "the key")
        options = _options(name, timeout, fails_alone)
        return _made(
            self,
            lambda place: lib.C.kolo_group_split(self.pointer, number, order, ctypes.addressof(options), place),
        )

    def address(self, rank: int) -> str:
        """An address of the machine of rank `rank` of the group, by which other machines may reach it."""
        place = ctypes.c_void_p()
        lib.check(lib.C.kolo_address(self.pointer, lib.int32_of(rank, "the rank"), ctypes.byref(place)))
        return _results.Owner(place).bytes(0).decode()

    def metrics(self) -> "dict[str, Any]":
        """This rank's counters, each an int; a collective is a dict of "calls", "bytes" and "ns", a histogram one of
        "bounds", "counts", "count" and "sum"."""
        place = ctypes.c_void_p()
        lib.check(lib.C.kolo_metrics(self.pointer, ctypes.byref(place)))
        counters: "dict[str, Any]" = json.loads(_results.Owner(place).bytes(0))
        return counters

    def describe(self) -> str:
        """Several lines for a person: version, place, nodes, transports and backends chosen."""
        place = ctypes.c_void_p()
        lib.check(lib.C.kolo_describe(self.pointer, ctypes.byref(place)))
        return _results.Owner(place).bytes(0).decode()

    def settings(self) -> "list[dict[str, str]]":
        """The settings as this context uses them: each a dict with "name", "value", "default", "source" ("default",
        "environment", "option", "rank 0"), "range" and "help"."""
        place = ctypes.c_void_p()
        lib.check(lib.C.kolo_settings(self.pointer, ctypes.byref(place)))
        listed: "list[dict[str, str]]" = json.loads(_results.Owner(place).bytes(0))
        return listed

    def _close(self) -> None:
        """Its context has been shut down."""
        self._pointer = None

    def __repr__(self) -> str:
        if self._pointer is None:
            return "<kolopy.Group of a context that has been shut down>"
        if not self.is_member:
            return "<kolopy.Group without this rank>"
        return f"<kolopy.Group rank {self.rank} of {self.size}>"


def _options(name: Optional[str], timeout: Optional[float], fails_alone: bool) -> lib.GroupOptions:
    size = ctypes.sizeof(lib.GroupOptions)
    return lib.GroupOptions(size, lib.encoded(name, "the name"), lib.timeout_of(timeout), int(bool(fails_alone)), 0)


class _Current(threading.local):
    """The world that calls without a group use: the thread's own (run_local), else the process's."""

    own: Optional[Group] = None


current = _Current()
process_world: Optional[Group] = None


def set_process_world(world: Optional[Group]) -> None:
    global process_world
    process_world = world


def devices() -> "list[dict[str, Any]]":
    """The machine's GPUs: each a dict with "machine_number", "process_number" (None where CUDA_VISIBLE_DEVICES hides
    the GPU), "name", "uuid", "memory_bytes", "free_bytes" and "driver". Needs no context. Empty without a GPU, or where
    the library has no CUDA part."""
    place = ctypes.c_void_p()
    lib.check(lib.C.kolo_devices(ctypes.byref(place)))
    listed: "list[dict[str, Any]]" = json.loads(_results.Owner(place).bytes(0))
    return listed


def explain_job(directory: Optional[str]) -> "dict[str, Any]":
    """What `kolo-why --json` prints of the job in this directory."""
    place = ctypes.c_void_p()
    encoded = None if directory is None else lib.path_of(directory, "the directory")
    lib.check(lib.C.kolo_explain_job(encoded, ctypes.byref(place)))
    report: "dict[str, Any]" = json.loads(_results.Owner(place).bytes(0))
    return report


def group_of(group: Any) -> Group:
    """What is given as `group`: a Group, a Context, or None for the world."""
    if group is None:
        world = current.own or process_world
        if world is None:
            raise NotInitializedError(
                "there is no context: call kolopy.init() first, or write `with kolopy.Session():`"
            )
        return world
    if isinstance(group, Group):
        return group
    world = getattr(group, "world", None)
    if isinstance(world, Group):
        return world
    raise InvalidArgumentError(f"the group is of type {type(group).__name__}: give a Group, a Context, or None")


def _asked(function: Any, pointer: int) -> int:
    answer = ctypes.c_int32()
    lib.check(function(pointer, ctypes.byref(answer)))
    return answer.value


def _made(parent: Group, make: Any) -> Group:
    place = ctypes.c_void_p()
    interruptible(lambda: lib.check(make(ctypes.byref(place))))
    return Group(place.value, False, parent._context)
