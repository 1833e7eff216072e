# SPDX-License-Identifier: Apache-2.0
"""Joining a job and leaving it."""

from __future__ import annotations

import ctypes
import multiprocessing.util
import os
import sys
from types import TracebackType
from typing import Any, Callable, Mapping, Optional, Protocol, Type, TypeVar, Union

from kolopy import _groups, _operations
from kolopy import _library as lib
from kolopy._errors import Error, InvalidArgumentError, NotInitializedError, Status, error_of
from kolopy._groups import Group

T = TypeVar("T")
SettingValue = Union[str, int, float, bool]
#: Receives log records: the level ("info"), the rank (-1 until it is known), seconds since 1970, the message.
LogSink = Callable[[str, int, float, str], Any]

LEVELS = ("trace", "debug", "info", "warning", "error")


class Store(Protocol):
    """A key-value service of the program's own, by which rank 0 tells the others where it listens."""

    def set(self, key: str, value: bytes) -> Any:
        """Sets the key's value, and replaces an earlier one."""

    def get(self, key: str, seconds: float) -> Optional[bytes]:
        """The key's value. If there is none, waits for it for so long at most, and then returns None."""


class _Callbacks:
    """The program's functions as C calls them. What they raise is kept, and raised by the start."""

    def __init__(self, store: Optional[Store], log: Optional[LogSink]) -> None:
        self.store, self.log = store, log
        self.error: Optional[BaseException] = None
        self.c_store = lib.Store(ctypes.sizeof(lib.Store), None, lib.StoreSet(self._set), lib.StoreGet(self._get))
        self.c_log = lib.LogSink(self._log) if log is not None else lib.LogSink()

    def _set(self, _data: Any, key: bytes, value: int, size: int) -> int:
        try:
            assert self.store is not None
            self.store.set(key.decode(), ctypes.string_at(value, size))
            return int(Status.OK)
        except BaseException as error:
            self.error = error
            return int(Status.USER_EXCEPTION)

    def _get(self, _data: Any, key: bytes, seconds: float, value: int, capacity: int, size: Any) -> int:
        try:
            assert self.store is not None
            found = self.store.get(key.decode(), seconds)
            if found is None:
                return int(Status.PENDING)
            found = bytes(found)
            if len(found) > capacity:
                raise ValueError(f"the store's value for {key.decode()} has {len(found)} bytes, more than {capacity}")
            ctypes.memmove(value, found, len(found))
            size[0] = len(found)
            return int(Status.OK)
        except BaseException as error:
            self.error = error
            return int(Status.USER_EXCEPTION)

    def _log(self, _data: Any, level: int, rank: int, seconds: float, message: bytes) -> None:
        if self.log is not None:
            self.log(LEVELS[level], rank, seconds, message.decode("utf-8", "replace"))


def _settings_of(settings: Optional[Mapping[str, SettingValue]], more: Mapping[str, SettingValue]) -> "dict[str, str]":
    """By the names of the environment's variables: `timeout_s=30` is KOLO_TIMEOUT_S."""
    merged: "dict[str, str]" = {}
    for name, value in [*(settings or {}).items(), *more.items()]:
        variable = name.upper() if name.upper().startswith("KOLO_") else "KOLO_" + name.upper()
        if isinstance(value, bool):
            text = "1" if value else "0"
        elif isinstance(value, (str, int, float)):
            text = str(value)
        else:
            raise InvalidArgumentError(
                f"the setting {variable} is of type {type(value).__name__}: give a str, a number or a bool"
            )
        merged[variable] = text
    return merged


class _Options:
    """A `kolo_init_options` with all that it points to."""

    def __init__(
        self,
        settings: Optional[Mapping[str, SettingValue]],
        store: Union[Store, str, None],
        rank: Optional[int],
        size: Optional[int],
        log: Optional[LogSink],
        visible_devices: Optional[str],
        separate: bool,
        more: Mapping[str, SettingValue],
    ) -> None:
        texts = _settings_of(settings, more)
        if store is None or isinstance(store, str):
            for name, value in (("KOLO_STORE", store), ("KOLO_RANK", rank), ("KOLO_SIZE", size)):
                if value is not None:
                    texts[name] = str(value)
            store = None
        elif not (callable(getattr(store, "set", None)) and callable(getattr(store, "get", None))):
            raise InvalidArgumentError(
                f"the store is of type {type(store).__name__}: give a text as KOLO_STORE has it, or an object with "
                "set(key, value) and get(key, seconds)"
            )
        elif rank is None or size is None:
            raise InvalidArgumentError("the store is an object, so `rank` and `size` must be given, too")
        if log is not None and not callable(log):
            raise InvalidArgumentError(f"the log sink is of type {type(log).__name__}: give a function")
        self.callbacks = _Callbacks(store, log)
        self._list = (lib.Setting * max(len(texts), 1))()
        for place, (name, value) in zip(self._list, texts.items()):
            place.name, place.value = lib.encoded(name, "a setting's name"), lib.encoded(value, f"the setting {name}")
        self.c = lib.InitOptions(
            ctypes.sizeof(lib.InitOptions),
            self._list,
            len(texts),
            ctypes.pointer(self.callbacks.c_store) if store is not None else None,
            lib.int32_of(rank, "the rank") if store is not None else 0,
            lib.int32_of(size, "the size") if store is not None else 1,
            self.callbacks.c_log,
            None,
            lib.encoded(visible_devices, "visible_devices"),
            int(separate),
            0,
        )


class Context:
    """This process's membership in a job. `init` makes the process's own; `Context(...)` makes one beside it, for a
    library, with the arguments of `init`. Do not shut one down while another thread uses it."""

    world: Group  #: the group of all ranks

    def __init__(
        self,
        settings: Optional[Mapping[str, SettingValue]] = None,
        *,
        store: Union[Store, str, None] = None,
        rank: Optional[int] = None,
        size: Optional[int] = None,
        log: Optional[LogSink] = None,
        visible_devices: Optional[str] = None,
        **more: SettingValue,
    ) -> None:
        self._begin(_Options(settings, store, rank, size, log, visible_devices, True, more))

    def _begin(self, options: _Options) -> None:
        place = ctypes.c_void_p()
        status = lib.C.kolo_init(ctypes.byref(options.c), ctypes.byref(place))
        if status != 0:
            error, cause = error_of(status, lib.last_error()), options.callbacks.error
            if cause is not None and not isinstance(cause, Exception):
                raise cause  # KeyboardInterrupt
            raise error from cause
        self._callbacks = options.callbacks  # the log sink is called until the end
        self._adopt(place.value)
        _live.add(self)
        _leave_at_exit()

    def _adopt(self, pointer: Optional[int]) -> None:
        self._pointer = pointer
        self.world = Group(lib.C.kolo_world(pointer), True, self)

    @property
    def pointer(self) -> int:
        """The `kolo_context` of C."""
        if self._pointer is None:
            raise NotInitializedError("this context has been shut down")
        return self._pointer

    @property
    def rank(self) -> int:
        return self.world.rank

    @property
    def size(self) -> int:
        return self.world.size

    @property
    def local_rank(self) -> int:
        """This rank's place among the ranks of its node."""
        return _groups._asked(lib.C.kolo_local_rank, self.pointer)

    @property
    def local_size(self) -> int:
        return _groups._asked(lib.C.kolo_local_size, self.pointer)

    @property
    def cross_rank(self) -> int:
        """This rank's place among the ranks of the same local rank, one on each node."""
        return _groups._asked(lib.C.kolo_cross_rank, self.pointer)

    @property
    def cross_size(self) -> int:
        return _groups._asked(lib.C.kolo_cross_size, self.pointer)

    def abandon(self, reason: Union[str, BaseException]) -> None:
        """Leaves because of an error on this rank: on the other ranks operations fail with UserExceptionError, and
        its text contains `reason`. The context still has to be shut down, which waits for nobody then."""
        lib.check(lib.C.kolo_abandon(self.pointer, lib.reason_of(reason)))

    def start_timeline(self, path: "Union[str, os.PathLike[str]]") -> None:
        """Starts a timeline of all ranks in this file, which opens in Perfetto. Every rank calls it, with the same
        path."""
        lib.check(lib.C.kolo_start_timeline(self.pointer, lib.path_of(path, "the path")))

    def stop_timeline(self) -> None:
        """Ends this rank's timeline."""
        lib.check(lib.C.kolo_stop_timeline(self.pointer))

    def shutdown(self) -> None:
        """Leaves the job: waits (at most KOLO_TIMEOUT_S) until every rank has called it. Operations that are still
        open fail with ShutDownError. A second call does nothing."""
        if self._pointer is None:
            return
        _operations.join_helpers()
        lib.check(lib.C.kolo_shutdown(self._pointer))
        self._pointer = None
        self.world._close()
        _live.discard(self)
        if _groups.process_world is self.world:
            _groups.set_process_world(None)
        _operations.sweep()

    def __enter__(self) -> "Context":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], _trace: Optional[TracebackType]
    ) -> None:
        leave(self, error)

    def __repr__(self) -> str:
        if self._pointer is None:
            return "<kolopy.Context that has been shut down>"
        return f"<kolopy.Context rank {self.rank} of {self.size}>"


_live: "set[Context]" = set()  # a log sink is called as long as its context lives


def init(
    settings: Optional[Mapping[str, SettingValue]] = None,
    *,
    store: Union[Store, str, None] = None,
    rank: Optional[int] = None,
    size: Optional[int] = None,
    log: Optional[LogSink] = None,
    visible_devices: Optional[str] = None,
    **more: SettingValue,
) -> Context:
    """Joins the job that a launcher started, or makes a world of one where none did. Waits for the other ranks.

    settings, more   win over the environment: {"KOLO_TIMEOUT_S": 30}, or timeout_s=30
    store            where the ranks meet: a text as KOLO_STORE has it, or an object with `set` and `get` (Store), with
                     `rank` and `size`
    log              receives the log records; None: lines on standard error
    """
    context = Context.__new__(Context)
    context._begin(_Options(settings, store, rank, size, log, visible_devices, False, more))
    global _process_context
    _process_context = context
    _groups.set_process_world(context.world)
    return context


_process_context: Optional[Context] = None


def context() -> Context:
    """The context that calls without a group use."""
    found: Context = _groups.group_of(None)._context
    return found


def shutdown() -> None:
    """Leaves the job; see Context.shutdown. Does nothing if `init` was not called."""
    if _groups.current.own is not None:
        context().shutdown()  # refuses
    elif _process_context is not None:
        _process_context.shutdown()


def abandon(reason: Union[str, BaseException]) -> None:
    """Leaves the job because of an error on this rank; see Context.abandon."""
    context().abandon(reason)


def is_initialized() -> bool:
    """Whether calls without a group have a context."""
    return _groups.current.own is not None or _groups.process_world is not None


def leave(context: Context, error: Optional[BaseException]) -> None:
    """Shuts down; after an error the other ranks get its text, and nobody is waited for."""
    if context._pointer is None:
        return
    failed = error is not None and not (isinstance(error, SystemExit) and not error.code)
    if failed:
        assert error is not None
        context.abandon(error)
    context.shutdown()


class Session:
    """`init` at the beginning of a `with`, and `shutdown` at its end. The arguments are those of `init`. If an
    exception leaves it, the other ranks get its text, and nobody is waited for. Inside `run_local` it uses the
    rank's context and leaves it open."""

    def __init__(
        self,
        settings: Optional[Mapping[str, SettingValue]] = None,
        *,
        store: Union[Store, str, None] = None,
        rank: Optional[int] = None,
        size: Optional[int] = None,
        log: Optional[LogSink] = None,
        visible_devices: Optional[str] = None,
        **more: SettingValue,
    ) -> None:
        self._begin: Callable[[], Context] = lambda: init(
            settings, store=store, rank=rank, size=size, log=log, visible_devices=visible_devices, **more
        )
        self._context: Optional[Context] = None

    def __enter__(self) -> Context:
        if _groups.current.own is not None:
            return context()
        self._context = self._begin()
        return self._context

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], _trace: Optional[TracebackType]
    ) -> None:
        if self._context is not None:
            leave(self._context, error)


# --- the end of the process

_leaves_at_exit = 0  # the process that does


def _leave_at_exit() -> None:
    """Once a process. Unlike what atexit calls, this is called in the processes of multiprocessing, too. In a forked
    child it is not."""
    global _leaves_at_exit
    if _leaves_at_exit != os.getpid():
        _leaves_at_exit = os.getpid()
        finalize: Any = multiprocessing.util.Finalize
        finalize(None, _leave_all, exitpriority=90)


def _leave_all() -> None:
    """Leaves the jobs of a program that ends without `shutdown`, while Python can still run callbacks."""
    error = sys.exc_info()[1] or getattr(sys, "last_value", None)
    for one in list(_live):
        try:
            leave(one, error)
        except Error as failure:
            print(f"kolopy: at the end of the process: {failure}", file=sys.stderr)


# --- ranks on threads


def run_local(ranks: int, body: Callable[..., T], *arguments: Any, **settings: SettingValue) -> "list[T]":
    """Runs `body(*arguments)` as so many ranks on threads of this process, each with a context of its own. Returns
    what they return, by rank. It is for tests: one thread at a time runs Python. If ranks raise, the first
    exception is raised here, and the other ranks' operations fail. Keywords are settings."""
    results: "list[Any]" = [None] * max(lib.int32_of(ranks, "the number of ranks"), 0)
    errors: "list[BaseException]" = []

    def run(_data: Any, pointer: int) -> int:
        rank_context = Context.__new__(Context)
        rank_context._adopt(pointer)
        _groups.current.own = rank_context.world
        try:
            results[rank_context.rank] = body(*arguments)
            return int(Status.OK)
        except BaseException as error:
            errors.append(error)
            try:
                rank_context.abandon(error)
            except Error:  # the job has ended
                pass
            return int(Status.USER_EXCEPTION)
        finally:
            _groups.current.own = None
            rank_context._pointer = None
            rank_context.world._close()

    options = _Options(None, None, None, None, None, None, False, settings)
    status = lib.C.kolo_run_local(ranks, lib.Body(run), None, ctypes.byref(options.c))
    sentence = lib.last_error()
    _operations.sweep()
    if errors:
        raise errors[0]
    if status != 0:
        raise error_of(status, sentence)
    return results
