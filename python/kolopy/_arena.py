# SPDX-License-Identifier: Apache-2.0
"""Memory for gradients that the ranks of a machine share, and reduce without a copy."""

from __future__ import annotations

import ctypes
from typing import Any, Mapping, Optional, Sequence, Union

from kolopy import _library as lib
from kolopy import _tensors
from kolopy._errors import InvalidArgumentError
from kolopy._groups import Group, group_of
from kolopy._operations import interruptible


class _Memory:
    """A `kolo_arena`. It lives as long as arrays of it do."""

    def __init__(self) -> None:
        self.place = ctypes.c_void_p()

    def __del__(self) -> None:
        if self.place:
            lib.C.kolo_arena_release(self.place)


class GradientArena:
    """An arena of so many bytes, rounded up to pages, in memory of the CPU. Every rank of the group makes it, with
    the same size and name. `allocate` gives arrays of it, and the usual calls reduce them where they lie. Its
    memory lives as long as the arena, or an array of it."""

    def __init__(self, size: int, *, name: Optional[str] = None, group: Any = None) -> None:
        of, encoded = group_of(group), lib.encoded(name, "the name")
        size = lib.int64_of(size, "the arena's size")
        if size < 0:
            raise InvalidArgumentError(f"the arena's size is {size} bytes: give 0 or more")
        memory = self._begin(of)
        interruptible(
            lambda: lib.check(
                lib.C.kolo_arena_make(of.pointer, size, lib.CPU, 0, encoded, ctypes.addressof(memory.place))
            )
        )

    def _begin(self, group: Group) -> _Memory:
        self._group = group
        self._memory = _Memory()
        #: The arrays that `like` has made, by name.
        self.tensors: "dict[str, Any]" = {}
        return self._memory

    @staticmethod
    def like(
        tensors: Union[Mapping[str, Any], Sequence[Any]], *, name: Optional[str] = None, group: Any = None
    ) -> "GradientArena":
        """An arena with an array of zeros for each of these, of the same type and shape, in `tensors`: by the name in
        the dict, or by "0", "1", ... of a list. The backward pass must write there."""
        pairs = tensors.items() if isinstance(tensors, Mapping) else ((str(i), t) for i, t in enumerate(tensors))
        views = {str(key): _tensors.input_of(tensor, f"the tensor {key!r}") for key, tensor in pairs}
        listed = (lib.NamedTensor * max(len(views), 1))()
        for place, (key, view) in zip(listed, views.items()):
            place.name, place.tensor = lib.encoded(key, "a name"), lib.Tensor.from_buffer_copy(view.packed)
        arena, of, encoded = GradientArena.__new__(GradientArena), group_of(group), lib.encoded(name, "the name")
        memory, first = arena._begin(of), ctypes.addressof(listed)
        interruptible(
            lambda: lib.check(
                lib.C.kolo_arena_for(of.pointer, first, len(views), encoded, ctypes.addressof(memory.place))
            )
        )
        for place, (key, view) in zip(listed, views.items()):
            arena.tensors[key] = _tensors.array_of(memory, place.tensor.data, view.number, view.shape)
        return arena

    def allocate(self, shape: Union[int, Sequence[int]], dtype: Any = "float32") -> Any:
        """An array of zeros in the arena."""
        tensor, extents = _tensor_like(shape, dtype)
        lib.check(lib.C.kolo_arena_allocate(self._memory.place, ctypes.addressof(tensor)))
        return _tensors.array_of(self._memory, tensor.data, tensor.dtype, extents)

    @staticmethod
    def room_for(shape: Union[int, Sequence[int]], dtype: Any = "float32") -> int:
        """The bytes that `allocate` takes for such an array."""
        size = ctypes.c_size_t()
        tensor, _ = _tensor_like(shape, dtype)
        lib.check(lib.C.kolo_arena_room_for(ctypes.addressof(tensor), ctypes.byref(size)))
        return size.value

    @property
    def capacity(self) -> int:
        """Its bytes."""
        return self._sizes()[0]

    @property
    def allocated(self) -> int:
        """How many of its bytes are allocated."""
        return self._sizes()[1]

    def _sizes(self) -> "tuple[int, int]":
        capacity, allocated = ctypes.c_size_t(), ctypes.c_size_t()
        lib.check(lib.C.kolo_arena_sizes(self._memory.place, ctypes.byref(capacity), ctypes.byref(allocated)))
        return capacity.value, allocated.value

    def __contains__(self, array: Any) -> bool:
        """Whether the array begins in the arena."""
        answer, view = ctypes.c_int32(), _tensors.input_of(array)
        if view.copied:
            return False
        address = lib.Tensor.from_buffer_copy(view.packed).data
        lib.check(lib.C.kolo_arena_contains(self._memory.place, address, ctypes.byref(answer)))
        return bool(answer.value)


def _tensor_like(shape: Union[int, Sequence[int]], dtype: Any) -> "tuple[lib.Tensor, tuple[int, ...]]":
    listed: Any = shape if hasattr(shape, "__iter__") else (shape,)
    extents = tuple(lib.int64_of(extent, "an extent of the shape") for extent in listed)
    if len(extents) > lib.MAX_DIMS:
        raise InvalidArgumentError(f"the shape has {len(extents)} dimensions: give 0 to {lib.MAX_DIMS}")
    tensor = lib.Tensor(None, _tensors.like(dtype), len(extents))
    for i, extent in enumerate(extents):
        tensor.shape[i] = extent
    return tensor, extents
