# SPDX-License-Identifier: Apache-2.0
"""Messages from one rank of the group to another. A failed message does not end the job."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Optional

from kolopy import _library as lib
from kolopy import _operations, _tensors
from kolopy._errors import InvalidArgumentError
from kolopy._groups import group_of
from kolopy._operations import Handle, Operation
from kolopy._tensors import View

ANY_RANK = lib.ANY_RANK
ANY_TAG = lib.ANY_TAG


class Received(NamedTuple):
    """What was received: so many elements, at the beginning of the array, from this rank of the group."""

    elements: int
    source: int
    tag: int


def _send(begin: Any, view: View, to: int, tag: int, group: Any, timeout: Optional[float]) -> Any:
    of, options = group_of(group), lib.pack_message_options(lib.timeout_of(timeout))
    arguments = (of.pointer, view.packed, lib.int32_of(to, "the rank"), lib.int32_of(tag, "the tag"), options)
    return begin(lib.C.kolo_send, arguments, Operation(view, None))


def _recv(begin: Any, view: View, source: int, tag: int, group: Any, timeout: Optional[float]) -> Any:
    of, place = group_of(group), lib.Received()
    options = lib.pack_message_options(lib.timeout_of(timeout))
    arguments = (of.pointer, view.packed, lib.int32_of(source, "the rank"), lib.int32_of(tag, "the tag"), options)

    def finish() -> Received:
        view.write_back()
        return Received(place.elements, place.source, place.tag)

    return begin(lib.C.kolo_recv, (*arguments, ctypes.byref(place)), Operation(view, finish, place))


def send(tensor: Any, to: int, tag: int = 0, *, group: Any = None, timeout: Optional[float] = None) -> None:
    """Sends an array to rank `to`, which may be this one. Returns when the array may be used again; a long one waits
    for its receive. `tag` is not negative. After `timeout` seconds (KOLO_TIMEOUT_S) it raises ExpiredError."""
    _send(_operations.run, _tensors.input_of(tensor), to, tag, group, timeout)


def send_async(
    tensor: Any, to: int, tag: int = 0, *, group: Any = None, timeout: Optional[float] = None
) -> "Handle[None]":
    return Handle(_send(_operations.start, _tensors.input_of(tensor), to, tag, group, timeout))


def recv(
    tensor: Any, source: int = ANY_RANK, tag: int = ANY_TAG, *, group: Any = None, timeout: Optional[float] = None
) -> Received:
    """Receives a message of at most as many elements as the array has, of the same type, into its beginning."""
    received: Received = _recv(_operations.run, _tensors.output_of(tensor), source, tag, group, timeout)
    return received


def recv_async(
    tensor: Any, source: int = ANY_RANK, tag: int = ANY_TAG, *, group: Any = None, timeout: Optional[float] = None
) -> "Handle[Received]":
    return Handle(_recv(_operations.start, _tensors.output_of(tensor), source, tag, group, timeout))


def sendrecv(
    tensor: Any,
    to: int,
    into: Any,
    source: int = ANY_RANK,
    *,
    send_tag: int = 0,
    recv_tag: int = ANY_TAG,
    group: Any = None,
    timeout: Optional[float] = None,
) -> Received:
    """Sends one array and receives another at the same time, and waits for both. Two arrays: they must not overlap.
    If one message fails, the other is given up."""
    sent, wanted = _tensors.input_of(tensor), _tensors.output_of(into)
    if _tensors.overlap(sent, wanted):
        raise InvalidArgumentError(
            "sendrecv: the tensor that it sends and the one that it receives into overlap; give it two"
        )
    receive: "Handle[Received]" = Handle(_recv(_operations.start, wanted, source, recv_tag, group, timeout))
    try:
        _send(_operations.run, sent, to, send_tag, group, timeout)
    except BaseException:
        if not receive.cancel():
            receive.end("sendrecv: what it was to send has failed")
        raise
    return receive.wait()
