# SPDX-License-Identifier: Apache-2.0
"""libkolo.so and its C API (kolo.h), by ctypes.

Calls through ctypes.CDLL release the GIL, so no function of Kolo ever runs with it. Structs that are only read are
packed into bytes, which costs a third of what a ctypes.Structure does.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from ctypes import POINTER, c_char_p, c_double, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, Optional, Union

from kolopy import _errors
from kolopy._version import SONAME

FOLDER = os.path.dirname(os.path.abspath(__file__))
ABI_VERSION = 1

ANY_RANK = -1
ANY_TAG = -1
NO_GROUP = -1
OWN_TYPE = -1
MAX_DIMS = 8
CPU = 0
CUDA = 1
PENDING = int(_errors.Status.PENDING)


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("dtype", c_int32),
        ("dims", c_int32),
        ("shape", c_int64 * MAX_DIMS),
        ("device", c_int32),
        ("index", c_int32),
        ("stream", c_void_p),
    ]


class NamedTensor(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("tensor", Tensor)]


class Setting(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


StoreSet = ctypes.CFUNCTYPE(ctypes.c_int, c_void_p, c_char_p, c_void_p, c_size_t)
StoreGet = ctypes.CFUNCTYPE(ctypes.c_int, c_void_p, c_char_p, c_double, c_void_p, c_size_t, POINTER(c_size_t))
LogSink = ctypes.CFUNCTYPE(None, c_void_p, ctypes.c_int, c_int32, c_double, c_char_p)
Body = ctypes.CFUNCTYPE(ctypes.c_int, c_void_p, c_void_p)
Done = ctypes.CFUNCTYPE(None, c_void_p, ctypes.c_int, c_char_p)


class Store(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("data", c_void_p), ("set", StoreSet), ("get", StoreGet)]


class InitOptions(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("settings", POINTER(Setting)),
        ("setting_count", c_size_t),
        ("store", POINTER(Store)),
        ("rank", c_int32),
        ("ranks", c_int32),
        ("log", LogSink),
        ("log_data", c_void_p),
        ("visible_devices", c_char_p),
        ("separate", c_int32),
        ("reserved", c_int32),
    ]


class Call(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("collective", c_int32),
        ("root", c_int32),
        ("in_", c_void_p),
        ("out", c_void_p),
        ("splits", c_void_p),
        ("split_count", c_size_t),
        ("reduction", c_void_p),
        ("options", c_void_p),
    ]


class Received(ctypes.Structure):
    _fields_ = [("elements", c_int64), ("source", c_int32), ("tag", c_int32)]


# Packed structs: a tensor up to its shape, by the number of dimensions, and the rest of it on the CPU.
_TENSOR_HEADS = [struct.Struct(f"@Pii{dims}q") for dims in range(MAX_DIMS + 1)]
_TENSOR_TAILS = [bytes(96 - head.size) for head in _TENSOR_HEADS]
_REDUCTION = struct.Struct("@Niidddii")
_OPTIONS = struct.Struct("@Ndii")
_MESSAGE_OPTIONS = struct.Struct("@Nd")
_JOIN_OPTIONS = struct.Struct("@Ndii")


def pack_tensor(data: int, dtype: int, shape: "tuple[int, ...]") -> bytes:
    """A kolo_tensor of the CPU."""
    dims = len(shape)
    return _TENSOR_HEADS[dims].pack(data, dtype, dims, *shape) + _TENSOR_TAILS[dims]


@functools.lru_cache(maxsize=256)
def pack_reduction(op: int, send_as: int, prescale: float, postscale: float, timeout: float, priority: int) -> bytes:
    """A kolo_allreduce_options."""
    return _REDUCTION.pack(_REDUCTION.size, op, send_as, prescale, postscale, timeout, priority, 0)


@functools.lru_cache(maxsize=256)
def pack_options(timeout: float, priority: int) -> bytes:
    """A kolo_options."""
    return _OPTIONS.pack(_OPTIONS.size, timeout, priority, 0)


class GroupOptions(ctypes.Structure):
    """A kolo_group_options."""

    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("timeout", ctypes.c_double),
        ("fails_alone", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


def pack_message_options(timeout: float) -> bytes:
    return _MESSAGE_OPTIONS.pack(_MESSAGE_OPTIONS.size, timeout)


def pack_join_options(timeout: float, counts_in_averages: bool) -> bytes:
    return _JOIN_OPTIONS.pack(_JOIN_OPTIONS.size, timeout, int(counts_in_averages), 0)


def _find() -> str:
    """The library of this package, else the system's, which the loader finds by its name."""
    own = os.path.join(FOLDER, SONAME)
    return own if os.path.exists(own) else SONAME


LIBRARY = _find()


def _open() -> Any:
    """A process has one libkolo: what has loaded it before, such as a program in C++, has chosen which."""
    try:
        return ctypes.CDLL(SONAME, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        pass
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise ImportError(f"kolopy cannot load its library: {error}{_remedy(str(error))}") from error


def _remedy(error: str) -> str:
    """Of a library that is missing: which package of Debian's has it."""
    if error.startswith("libhwy.so."):
        return ". Debian's package libhwy1 has it: apt-get install libhwy1"
    if error.startswith(SONAME):
        package = "libkolo" + SONAME.rpartition(".so.")[2]
        return (
            f". It is neither in {FOLDER} nor where the system looks: install kolopy by pip, or Kolo's package {package}, "
            "or use a build tree's python/"
        )
    return ""


def _load() -> Any:
    library = _open()
    status, pointer, places = ctypes.c_int, c_void_p, {"group": c_void_p, "name": c_char_p}
    tensor = options = c_char_p  # packed
    group, name = places["group"], places["name"]
    signatures: "dict[str, tuple[Any, ...]]" = {
        "init": (pointer, pointer),
        "shutdown": (pointer,),
        "abandon": (pointer, c_char_p),
        "run_local": (c_int32, Body, pointer, pointer),
        "local_rank": (pointer, pointer),
        "local_size": (pointer, pointer),
        "cross_rank": (pointer, pointer),
        "cross_size": (pointer, pointer),
        "rank": (group, pointer),
        "size": (group, pointer),
        "group_of": (group, pointer, c_size_t, pointer, pointer),
        "group_split": (group, c_int32, c_int32, pointer, pointer),
        "address": (group, c_int32, pointer),
        "group_is_member": (group, pointer),
        "group_members": (group, pointer, c_size_t),
        "group_release": (group,),
        "allreduce": (group, name, tensor, tensor, options, pointer),
        "reduce": (group, name, tensor, tensor, c_int32, options, pointer),
        "broadcast": (group, name, tensor, tensor, c_int32, options, pointer),
        "allgather": (group, name, tensor, options, pointer, pointer),
        "allgather_into": (group, name, tensor, tensor, options, pointer),
        "gather": (group, name, tensor, c_int32, options, pointer, pointer),
        "gather_into": (group, name, tensor, tensor, c_int32, options, pointer),
        "scatter": (group, name, tensor, tensor, c_int32, pointer, c_size_t, options, pointer),
        "alltoall": (group, name, tensor, pointer, c_size_t, options, pointer, pointer),
        "alltoall_into": (group, name, tensor, tensor, pointer, c_size_t, options, pointer),
        "reduce_scatter": (group, name, tensor, options, pointer, pointer),
        "reduce_scatter_into": (group, name, tensor, tensor, options, pointer),
        "barrier": (group, name, options, pointer),
        "grouped": (group, name, pointer, c_size_t, pointer),
        "grouped_allreduce": (group, name, pointer, c_size_t, options, pointer),
        "prepare": (group, name, pointer, pointer),
        "prepare_grouped": (group, name, pointer, c_size_t, pointer),
        "prepare_grouped_allreduce": (group, name, pointer, c_size_t, options, pointer),
        "start": (pointer, pointer),
        "prepared_release": (pointer,),
        "wait": (pointer, c_double),
        "test": (pointer, pointer),
        "release": (pointer,),
        "on_done": (pointer, Done, pointer),
        "cancel": (pointer, pointer),
        "end": (pointer, c_char_p),
        "late_ranks": (pointer, c_double, pointer, c_size_t, pointer),
        "result_tensor": (pointer, pointer),
        "result_splits": (pointer, pointer, pointer),
        "result_bytes": (pointer, c_size_t, pointer, pointer),
        "result_release": (pointer,),
        "send": (group, tensor, c_int32, c_int32, options, pointer),
        "recv": (group, tensor, c_int32, c_int32, options, pointer, pointer),
        "join": (group, options, pointer, pointer),
        "end_step": (group,),
        "broadcast_bytes": (group, c_char_p, c_size_t, c_int32, pointer),
        "allgather_bytes": (group, c_char_p, c_size_t, pointer),
        "broadcast_parameters": (group, pointer, c_size_t, c_int32),
        "replica_interval": (group, pointer),
        "check_replicas": (group, name, pointer, c_size_t, c_int64),
        "arena_make": (group, c_size_t, c_int32, c_int32, name, pointer),
        "arena_for": (group, pointer, c_size_t, name, pointer),
        "arena_allocate": (pointer, pointer),
        "arena_room_for": (pointer, pointer),
        "arena_sizes": (pointer, pointer, pointer),
        "arena_contains": (pointer, pointer, pointer),
        "arena_release": (pointer,),
        "metrics": (group, pointer),
        "describe": (group, pointer),
        "settings": (group, pointer),
        "devices": (pointer,),
        "start_timeline": (pointer, c_char_p),
        "stop_timeline": (pointer,),
        "explain_job": (c_char_p, pointer),
        "cuda_bind": (group, pointer),
        "cuda_wait_on": (pointer, pointer),
        "tensor_from_dlpack": (pointer, pointer),
    }
    for short, arguments in signatures.items():
        function = getattr(library, "kolo_" + short)
        function.argtypes, function.restype = arguments, status
    for short, result in (("version", c_char_p), ("last_error", c_char_p), ("abi_version", c_int32)):
        function = getattr(library, "kolo_" + short)
        function.argtypes, function.restype = (), result
    library.kolo_world.argtypes, library.kolo_world.restype = (pointer,), pointer
    if library.kolo_abi_version() < ABI_VERSION:
        raise ImportError(
            f"kolopy needs a library of the ABI {ABI_VERSION} or newer, and {LIBRARY} has {library.kolo_abi_version()}"
        )
    return library


def path() -> str:
    """Where the library lies."""
    if os.path.isabs(LIBRARY):
        return LIBRARY
    with open("/proc/self/maps", encoding="utf-8") as maps:  # the loader has found it
        found = next(line.split(maxsplit=5)[5].rstrip("\n") for line in maps if "/libkolo.so." in line)
    named = os.path.join(os.path.dirname(found), SONAME)
    return named if os.path.exists(named) else found


def include_folder() -> str:
    """Where the headers lie: in this package, or beside the system's library."""
    own = os.path.join(FOLDER, "include")
    above = os.path.dirname(path())
    while not os.path.isdir(own) and above != "/":
        above = os.path.dirname(above)
        if os.path.exists(os.path.join(above, "include", "kolo", "kolo.h")):
            return os.path.join(above, "include")
    return own


def cmake_folder() -> str:
    """Where find_package(kolo) finds the CMake package: in this package, or beside the system's library."""
    own = os.path.join(FOLDER, "cmake", "kolo")
    return own if os.path.isdir(own) else os.path.join(os.path.dirname(path()), "cmake", "kolo")


C: Any = _load()
VERSION: str = C.kolo_version().decode()


def last_error() -> str:
    """The sentence of this thread's last failure."""
    sentence: bytes = C.kolo_last_error()
    return sentence.decode("utf-8", "replace")


def check(status: int) -> None:
    """Raises what a function has returned, unless that is KOLO_OK. On the thread that has called it."""
    if status != 0:
        raise _errors.error_of(status, last_error())


def address_of(packed: Optional[bytes]) -> Optional[int]:
    """Where the bytes of a packed struct lie, as long as they live."""
    return ctypes.cast(c_char_p(packed), c_void_p).value


def encoded(text: Optional[str], what: str) -> Optional[bytes]:
    """A name for C; None stays none."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise _errors.InvalidArgumentError(f"{what} is of type {type(text).__name__}: give a str, or None")
    if "\0" in text:
        raise _errors.InvalidArgumentError(f"{what} contains a zero character: leave it out")
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of a pair of UTF-16
        raise _errors.InvalidArgumentError(f"{what} is {text!r}, which UTF-8 has no bytes for") from None


def reason_of(reason: Union[str, BaseException]) -> bytes:
    """A reason for the other ranks. It has to reach them, whatever is in it."""
    text = str(reason).replace("\0", "")
    if isinstance(reason, BaseException):
        kind = type(reason).__name__
        text = f"{kind}: {text}" if text else kind
    return text.encode(errors="backslashreplace")


def path_of(path: "Union[str, os.PathLike[str]]", what: str) -> bytes:
    try:
        name = os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        raise _errors.InvalidArgumentError(f"{what} is {path!r}: give a path") from None
    if b"\0" in name:
        raise _errors.InvalidArgumentError(f"{what} contains a zero character: leave it out")
    return name


def float_of(number: Any, what: str) -> float:
    try:
        return float(number)
    except (TypeError, ValueError, OverflowError):
        raise _errors.InvalidArgumentError(f"{what} is {number!r}: give a float") from None


def timeout_of(seconds: Union[float, None]) -> float:
    """None is the default, which is negative in C."""
    if seconds is None:
        return -1.0
    seconds = float_of(seconds, "the timeout")
    if seconds < 0:
        raise _errors.InvalidArgumentError(f"the timeout is {seconds:g} s: give more than 0, or None for the default")
    return seconds


def int32_of(number: Any, what: str) -> int:
    """A number that fits C's int32_t; ctypes would cut it off."""
    return _int_of(number, what, 31)


def int64_of(number: Any, what: str) -> int:
    return _int_of(number, what, 63)


def _int_of(number: Any, what: str, bits: int) -> int:
    try:
        value = number.__index__()
    except (AttributeError, TypeError):
        raise _errors.InvalidArgumentError(f"{what} is of type {type(number).__name__}: give an int") from None
    if not -(2**bits) <= value < 2**bits:
        raise _errors.InvalidArgumentError(f"{what} is {value}, which is too large a number")
    return int(value)
