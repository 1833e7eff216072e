# SPDX-License-Identifier: Apache-2.0
"""Results in memory that Kolo makes."""

from __future__ import annotations

import ctypes
from typing import Any

from kolopy import _library as lib
from kolopy import _tensors


class Owner:
    """A `kolo_result`. It lives as long as arrays of its memory do."""

    __slots__ = ("_place",)

    def __init__(self, place: "ctypes.c_void_p") -> None:
        self._place = place

    def __del__(self) -> None:
        if self._place:
            lib.C.kolo_result_release(self._place)
            self._place = None  # type: ignore[assignment]

    def array(self) -> Any:
        """The result of a collective: an array that owns this object."""
        tensor = lib.Tensor()
        lib.check(lib.C.kolo_result_tensor(self._place, ctypes.addressof(tensor)))
        return _tensors.array_of(self, tensor.data, tensor.dtype, tuple(tensor.shape[: tensor.dims]))

    def splits(self) -> "list[int]":
        """How many rows came from each rank, of an all-to-all."""
        first, count = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_size_t()
        lib.check(lib.C.kolo_result_splits(self._place, ctypes.byref(first), ctypes.byref(count)))
        return list(first[: count.value])

    def bytes(self, index: int) -> "bytes":
        first, size = ctypes.c_void_p(), ctypes.c_size_t()
        lib.check(lib.C.kolo_result_bytes(self._place, index, ctypes.byref(first), ctypes.byref(size)))
        return ctypes.string_at(first.value, size.value) if first.value is not None else b""
