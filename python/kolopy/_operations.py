# SPDX-License-Identifier: Apache-2.0
"""Operations under way, and the handles by which a program waits for them.

An operation's arrays must live until it is over, whatever the program does meanwhile: drops the handle, or raises
KeyboardInterrupt while it waits. So every operation is in `_open` from before its start until it is over. An operation
that nobody can wait for any more is looked at again at later starts.

A signal's handler may raise between any two steps of Python. `kolo_wait` frees its handle, so what it returns must not
be lost: `list.extend(map(...))` calls it and keeps what it returns in one step.
"""

from __future__ import annotations

import _thread
import collections
import ctypes
import itertools
import os
import threading
import time
from typing import Any, Callable, Generic, Iterable, Optional, TypeVar

from kolopy import _library as lib
from kolopy._errors import Error, InvalidArgumentError, error_of

T = TypeVar("T")

_SLICE = 0.1  # seconds that pass at most before Python looks after signals, and after other threads
_wait = lib.C.kolo_wait
_test = lib.C.kolo_test
_release = lib.C.kolo_release


class Operation:
    """One that is being started, or has been."""

    __slots__ = (
        "handle",
        "place",
        "keep",
        "finish",
        "result",
        "_statuses",
        "_sentence",
        "lock",
        "guests",
        "__weakref__",
    )

    def __init__(self, keep: Any, finish: Optional[Callable[[], Any]], result: Any = None) -> None:
        self.handle = ctypes.c_void_p()  # written by the call that starts it
        self.place = ctypes.byref(self.handle)
        self.keep = keep  # everything whose memory it uses
        self.finish = finish  # called once it has succeeded: writes back, and returns what `wait` returns
        self.result = result  # what `kolo_wait` writes
        self._statuses: "list[int]" = []
        self._sentence = ""
        self.lock = threading.Lock()  # of the handle in C
        self.guests = 0  # threads that want to cancel it, or ask it something, while another waits
        _open[id(self)] = self

    def wait(self, seconds: float) -> bool:
        """Waits for so long at most, once. Whether it is over. The caller has the lock, where there are others."""
        statuses = self._statuses
        if not self.is_over():
            del statuses[:]
            statuses.extend(map(_wait, (self.handle,), (seconds,)))
            if statuses[0] == lib.PENDING:
                return False
        if statuses[0] != 0 and not self._sentence:
            self._sentence = lib.last_error()
        _open.pop(id(self), None)
        return True

    def error(self) -> Optional[Error]:
        """Of one that is over."""
        status = self._statuses[-1]
        return None if status == 0 else error_of(status, self._sentence)

    def is_over(self) -> bool:
        return bool(self._statuses) and self._statuses[-1] != lib.PENDING


_guests = threading.Lock()  # of the counts of all operations
_open: "dict[int, Operation]" = {}
_dropped: "collections.deque[Operation]" = collections.deque()


def drop(operation: Operation) -> None:
    """Nobody waits for it any more."""
    if not operation.is_over():
        _dropped.append(operation)


def sweep() -> None:
    """Forgets what was dropped and is over."""
    is_done = ctypes.c_int32()
    for _ in range(len(_dropped)):
        try:
            operation = _dropped.popleft()
        except IndexError:  # another thread was faster
            return
        if operation.handle:
            status = _test(operation.handle, ctypes.byref(is_done))
            if status == 0 and not is_done.value:
                _dropped.append(operation)
                continue
            if status != 0:
                continue  # a fork of the rank: it stays in `_open`
            _release(operation.handle)
        _open.pop(id(operation), None)


def start(function: Callable[..., int], arguments: "tuple[Any, ...]", operation: Operation) -> Operation:
    """Calls a function of C that takes the place of the handle last."""
    if _dropped:
        sweep()
    try:
        status = function(*arguments, operation.place)
    except BaseException:  # an argument that ctypes does not take, or a signal
        if operation.handle:
            drop(operation)
        else:
            _open.pop(id(operation), None)
        raise
    if status != 0:
        _open.pop(id(operation), None)
        raise error_of(status, lib.last_error())
    return operation


def run(function: Callable[..., int], arguments: "tuple[Any, ...]", operation: Operation) -> Any:
    """The same, and waits."""
    start(function, arguments, operation)
    try:
        while not operation.wait(_SLICE):
            pass
    except BaseException:
        drop(operation)
        raise
    error = operation.error()
    if error is not None:
        raise error
    return operation.finish() if operation.finish is not None else None


def _forget_locks() -> None:
    """In the child of a fork only this thread is left."""
    global _guests
    _guests = threading.Lock()
    _dropped.clear()
    _helpers.clear()
    for operation in _open.values():
        operation.lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_locks)


class Handle(Generic[T]):
    """An operation that was started. `wait` waits for it, and returns what the call would have returned.

    The arrays live until the operation is over, also if the handle is dropped. Dropping neither waits nor cancels. What
    was copied because it is not contiguous is written back by `wait` (or `wait_for`, `wait_all`) alone.

    May be used by several threads at once.
    """

    __slots__ = ("_operation", "_result", "__weakref__")

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self._result: "Optional[list[T]]" = None  # of one that has succeeded

    def __del__(self) -> None:
        operation = getattr(self, "_operation", None)
        if operation is not None:
            drop(operation)

    def wait(self) -> T:
        """Waits until the operation's own deadline; raises its error. May be called again, and returns the same."""
        while not self._wait_once(_SLICE):
            pass
        if self._result is None:
            error = self._operation.error()
            assert error is not None
            raise error
        return self._result[0]

    def wait_for(self, seconds: float) -> bool:
        """Waits for so long at most. Whether the operation is over: then `wait` does not wait."""
        seconds = lib.float_of(seconds, "the time to wait")
        if not seconds >= 0:
            raise InvalidArgumentError(f"the time to wait is {seconds:g} s: give 0 or more, or call wait()")
        end = time.monotonic() + seconds
        while not self._wait_once(min(max(end - time.monotonic(), 0.0), _SLICE)):
            if time.monotonic() >= end:
                return False
        return True

    def is_done(self) -> bool:
        """Whether the operation has succeeded or failed. Does not wait."""
        operation = self._operation
        if operation.is_over():
            return True
        answer = ctypes.c_int32()
        self._ask(lib.C.kolo_test, ctypes.byref(answer))
        return operation.is_over() or bool(answer.value)

    def on_done(self, function: "Callable[[Optional[Error]], Any]") -> None:
        """Calls the function once with the operation's error, or None: at once if it is over, else on whichever
        thread runs the engine then. It must be short, and must not wait for an operation nor shut down. What it
        raises is given to `sys.unraisablehook`. Copies have not been written back yet."""
        if not callable(function):
            raise InvalidArgumentError(f"the callback is of type {type(function).__name__}: give a function")
        operation = self._operation
        if not operation.is_over():
            key = next(_keys)
            _callbacks[key] = function
            try:
                if self._ask(lib.C.kolo_on_done, _call_back, key):
                    return
            except BaseException:
                _callbacks.pop(key, None)
                raise
            if _callbacks.pop(key, None) is None:
                return
        function(operation.error())

    def cancel(self) -> bool:
        """Cancels a receive if no message has come for it, and says whether. `wait` then raises CancelledError."""
        answer = ctypes.c_int32()
        self._ask(lib.C.kolo_cancel, ctypes.byref(answer))
        return bool(answer.value)

    def end(self, reason: str) -> None:
        """Ends the operation, so that its arrays can be used again. A message fails alone; anything else ends this
        rank's part of the job. `wait` then raises."""
        self._ask(lib.C.kolo_end, lib.reason_of(reason))

    def late_ranks(self, seconds: float = 1.0) -> "list[int]":
        """Which ranks of the group have not made this call yet. Waits for their answers for so long at most; without
        them the list is empty."""
        room, count, seconds = 64, ctypes.c_size_t(), lib.float_of(seconds, "the time to wait")
        while True:
            ranks = (ctypes.c_int32 * room)()
            if not self._ask(lib.C.kolo_late_ranks, seconds, ranks, room, ctypes.byref(count)):
                return []
            if count.value <= room:
                return list(ranks[: count.value])
            room = count.value

    def cuda_wait_on(self, stream: int) -> None:
        """Work given to this CUDA stream (its pointer as an int) from now on runs after the operation."""
        self._ask(lib.C.kolo_cuda_wait_on, stream)

    def _ask(self, function: Callable[..., int], *arguments: Any) -> bool:
        """Calls a function of C with the handle. False if it is gone, because the operation is over."""
        operation = self._operation
        with _guests:
            operation.guests += 1
        try:
            with operation.lock:
                if operation.is_over():
                    return False
                lib.check(function(operation.handle, *arguments))
                return True
        finally:
            with _guests:
                operation.guests -= 1

    def _wait_once(self, seconds: float) -> bool:
        operation = self._operation
        if operation.guests > 0:
            time.sleep(0.0005)  # lets them have the lock
        with operation.lock:
            if not operation.wait(seconds):
                return False
            if self._result is None and operation.error() is None:
                self._result = [operation.finish() if operation.finish is not None else None]  # type: ignore[list-item]
            operation.keep = operation.finish = operation.result = None
            return True


def wait_all(handles: "Iterable[Handle[Any]]") -> "list[Any]":
    """Waits for all of them, also if one fails, and returns their results; raises the first failure in their order."""
    listed = list(handles)
    for handle in listed:
        if not isinstance(handle, Handle):
            raise InvalidArgumentError(f"one of the handles is of type {type(handle).__name__}: give handles alone")
    first: "Optional[Error]" = None
    results = []
    for handle in listed:
        try:
            results.append(handle.wait())
        except Error as error:
            first = first or error
    if first is not None:
        raise first
    return results


# --- callbacks

_keys = itertools.count(1)
_callbacks: "dict[int, Callable[[Optional[Error]], Any]]" = {}


def _on_done(key: Optional[int], status: int, sentence: bytes) -> None:
    function = _callbacks.pop(key or 0, None)
    if function is None:
        return
    try:
        function(None if status == 0 else error_of(status, sentence.decode("utf-8", "replace")))
    except KeyboardInterrupt:
        _thread.interrupt_main()  # the main thread's own code gets it


_call_back = lib.Done(_on_done)


# --- calls of C that wait and have no handle

class _Helper:
    """A call on a thread of its own. Others `wait`, not by `Thread.join`: one that a signal interrupts takes
    the thread for ended in Python 3.9 to 3.12."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.claim = [function]  # whoever takes it out: the thread, or who wants no call any more
        self.done = threading.Event()
        self.result: Any = None
        self.error: Optional[BaseException] = None

    def run(self) -> None:
        try:
            self.result = self.claim.pop()()
        except BaseException as error:
            self.error = error
        self.done.set()

    def wait(self) -> None:
        """In slices: a signal may have been delivered to another thread, which does not wake this one."""
        while not self.done.wait(_SLICE):
            pass


_helpers: "list[_Helper]" = []  # those that run, and those whose caller was interrupted


def join_helpers() -> None:
    """Before a context is shut down: calls whose caller was interrupted may still use it. They end when their operation
    has been made by all ranks, or has failed."""
    for helper in list(_helpers):
        try:
            helper.claim.pop()  # its thread has not begun
        except IndexError:
            helper.wait()
        if helper in _helpers:
            _helpers.remove(helper)


def interruptible(function: Callable[[], T]) -> T:
    """Calls a function that waits inside C. On the main thread another one calls it, so that Ctrl-C raises
    KeyboardInterrupt here; it then goes on there, until it is done or has failed."""
    if threading.current_thread() is not threading.main_thread():
        return function()
    helper = _Helper(function)
    _helpers.append(helper)
    threading.Thread(target=helper.run, name="kolopy", daemon=True).start()
    helper.wait()
    _helpers.remove(helper)
    if helper.error is not None:
        raise helper.error
    return helper.result  # type: ignore[no-any-return]
