# SPDX-License-Identifier: Apache-2.0
"""Kolo in Python: collectives for training, over numpy arrays and anything with DLPack or the buffer protocol.

    import kolopy as kolo

    with kolo.Session():                      # or kolo.init() ... kolo.shutdown()
        kolo.allreduce(gradient, op="average")             # in place
        total = kolo.allgather(rows)                       # rows may differ by rank
        h = kolo.allreduce_async(gradient, name="w"); h.wait()
        kolo.broadcast_object({"epoch": 3}, root=0)

docs/python.md in Kolo's source is the tutorial.
"""

from __future__ import annotations

import os as _os
from typing import Any as _Any
from typing import Optional as _Optional
from typing import Union as _Union

from kolopy import _groups, _library
from kolopy._arena import GradientArena
from kolopy._calls import (
    Alltoall,
    Call,
    Prepared,
    grouped,
    grouped_allreduce,
    grouped_allreduce_async,
    grouped_async,
    prepare,
    prepare_grouped_allreduce,
    run,
    start,
)
from kolopy._collectives import (
    allgather,
    allgather_async,
    allreduce,
    allreduce_async,
    alltoall,
    alltoall_async,
    barrier,
    barrier_async,
    broadcast,
    broadcast_async,
    gather,
    gather_async,
    reduce,
    reduce_async,
    reduce_scatter,
    reduce_scatter_async,
    scatter,
    scatter_async,
)
from kolopy._context import (
    Context,
    LogSink,
    Session,
    Store,
    abandon,
    context,
    init,
    is_initialized,
    run_local,
    shutdown,
)
from kolopy._errors import (
    CancelledError,
    DuplicateNameError,
    Error,
    ExpiredError,
    InvalidArgumentError,
    InvalidSettingError,
    IoError,
    MismatchError,
    NotInitializedError,
    OutOfMemoryError,
    RankLostError,
    ShutDownError,
    Status,
    TimeoutError,
    TransportError,
    UnsupportedError,
    UserExceptionError,
)
from kolopy._groups import Group
from kolopy._messages import ANY_RANK, ANY_TAG, Received, recv, recv_async, send, send_async, sendrecv
from kolopy._objects import (
    allgather_bytes,
    allgather_object,
    broadcast_bytes,
    broadcast_object,
    broadcast_parameters,
    check_replicas,
    cuda_bind,
    end_step,
    join,
    join_async,
    replica_interval,
)
from kolopy._operations import Handle, wait_all

__version__ = _library.VERSION


def world() -> Group:
    """The group of all ranks."""
    return _groups.group_of(None)


def rank(group: _Any = None) -> int:
    """This rank's place among all ranks, or among the group's, from 0."""
    return _groups.group_of(group).rank


def size(group: _Any = None) -> int:
    """How many ranks there are, or are in the group."""
    return _groups.group_of(group).size


def local_rank() -> int:
    """This rank's place among the ranks of its node."""
    return context().local_rank


def local_size() -> int:
    """How many ranks this node has."""
    return context().local_size


def cross_rank() -> int:
    """This rank's place among the ranks of the same local rank, one on each node."""
    return context().cross_rank


def cross_size() -> int:
    """How many nodes have a rank with this local rank."""
    return context().cross_size


def metrics(group: _Any = None) -> "dict[str, _Any]":
    """This rank's counters, each an int; a histogram is a dict of "bounds", "counts", "count" and "sum"."""
    return _groups.group_of(group).metrics()


def describe(group: _Any = None) -> str:
    """Several lines for a person: version, place, nodes, transports and backends chosen."""
    return _groups.group_of(group).describe()


def settings(group: _Any = None) -> "list[dict[str, str]]":
    """The settings as this context uses them: each a dict with "name", "value", "default", "source", "range", "help"."""
    return _groups.group_of(group).settings()


def devices() -> "list[dict[str, _Any]]":
    """The machine's GPUs, each a dict; empty without a GPU. Needs no context."""
    return _groups.devices()


def start_timeline(path: "_Union[str, _os.PathLike[str]]") -> None:
    """Starts a timeline of all ranks in this file, which opens in Perfetto. Every rank calls it, with the same path."""
    context().start_timeline(path)


def stop_timeline() -> None:
    """Ends this rank's timeline."""
    context().stop_timeline()


def explain_job(directory: "_Optional[str]" = None) -> "dict[str, _Any]":
    """Why a job is as it is, by the recorders in this directory (None: where jobs of this user record): what
    `kolo-why --json` prints. Needs no context."""
    return _groups.explain_job(directory)


def get_library() -> str:
    """The path of libkolo.so, for programs and plug-ins that link it."""
    return _library.path()


def get_include() -> str:
    """The folder of the headers (kolo/kolo.h) that fit it, in an installed package."""
    return _library.include_folder()


def get_cmake_dir() -> str:
    """The folder of the CMake package that fits it, in an installed package: -Dkolo_DIR=..."""
    return _library.cmake_folder()


__all__ = [
    "ANY_RANK",
    "ANY_TAG",
    "Alltoall",
    "Call",
    "CancelledError",
    "Context",
    "DuplicateNameError",
    "Error",
    "ExpiredError",
    "GradientArena",
    "Group",
    "Handle",
    "InvalidArgumentError",
    "InvalidSettingError",
    "IoError",
    "LogSink",
    "MismatchError",
    "NotInitializedError",
    "OutOfMemoryError",
    "Prepared",
    "RankLostError",
    "Received",
    "Session",
    "ShutDownError",
    "Status",
    "Store",
    "TimeoutError",
    "TransportError",
    "UnsupportedError",
    "UserExceptionError",
    "abandon",
    "allgather",
    "allgather_async",
    "allgather_bytes",
    "allgather_object",
    "allreduce",
    "allreduce_async",
    "alltoall",
    "alltoall_async",
    "barrier",
    "barrier_async",
    "broadcast",
    "broadcast_async",
    "broadcast_bytes",
    "broadcast_object",
    "broadcast_parameters",
    "check_replicas",
    "context",
    "cross_rank",
    "cross_size",
    "cuda_bind",
    "describe",
    "devices",
    "end_step",
    "explain_job",
    "gather",
    "gather_async",
    "get_cmake_dir",
    "get_include",
    "get_library",
    "grouped",
    "grouped_allreduce",
    "grouped_allreduce_async",
    "grouped_async",
    "init",
    "is_initialized",
    "join",
    "join_async",
    "local_rank",
    "local_size",
    "metrics",
    "prepare",
    "prepare_grouped_allreduce",
    "rank",
    "recv",
    "recv_async",
    "reduce",
    "reduce_async",
    "reduce_scatter",
    "reduce_scatter_async",
    "replica_interval",
    "run",
    "run_local",
    "scatter",
    "scatter_async",
    "send",
    "send_async",
    "sendrecv",
    "shutdown",
    "size",
    "start",
    "start_timeline",
    "stop_timeline",
    "wait_all",
    "world",
    "__version__",
]
