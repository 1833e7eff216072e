# SPDX-License-Identifier: Apache-2.0
"""Arrays of Python as tensors of Kolo: numpy's, those of DLPack, those of the buffer protocol.

What is contiguous is used where it lies. An input that is not is copied. An output that is not gets a contiguous copy,
which is written back when the operation has succeeded.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Iterator, Optional, Sequence

from kolopy import _library as lib
from kolopy._errors import InvalidArgumentError, UnsupportedError

np: Any = None
try:
    import numpy as np
except ImportError:  # optional
    pass

#: The element types, in the order of their numbers in kolo.h.
NAMES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
)
SIZES = (1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8)
NUMBERS = {name: number for number, name in enumerate(NAMES)}
_BFLOAT16 = NUMBERS["bfloat16"]
_TYPES = "bool, an integer of up to 64 bits, float16, bfloat16, float32 or float64"
_GIVE = "give a numpy array, or an object with DLPack or the buffer protocol"

_number_of_dtype: "dict[Any, int]" = {}  # by numpy's dtype
_address_of = ctypes.addressof
_from_buffer_of = ctypes.c_char.from_buffer


class View:
    """An array as a `kolo_tensor`."""

    __slots__ = ("packed", "keep", "number", "shape", "copied", "_target")

    def __init__(
        self, packed: bytes, keep: Any, number: int, shape: "tuple[int, ...]", copied: bool = False, target: Any = None
    ) -> None:
        self.packed = packed
        self.keep = keep  # what must live as long as the memory is used
        self.number = number  # of the element type
        self.shape = shape
        self.copied = copied  # because it is not contiguous
        self._target = target  # where the copy belongs once it has been written

    def write_back(self) -> None:
        if self._target is not None:
            self._target[...] = self.keep

    def extent(self) -> "tuple[int, int]":
        """Where its memory begins and ends, or that of its copy."""
        tensor, size = lib.Tensor.from_buffer_copy(self.packed), SIZES[self.number]
        for length in self.shape:
            size *= length
        return tensor.data or 0, (tensor.data or 0) + size

    def written(self) -> Any:
        """The memory in which the result is to be, as an array of numpy's."""
        if self._target is not None:
            return self._target
        begin, end = self.extent()
        return np.asarray(Memory(self.keep, begin, (end - begin,), "|u1"))


def overlap(one: View, other: View) -> bool:
    """Whether they use the same memory. Copies are memory of their own."""
    (begin, end), (its_begin, its_end) = one.extent(), other.extent()
    return max(begin, its_begin) < min(end, its_end)


def overlapping_outputs(views: "Sequence[View]") -> "Optional[tuple[int, int]]":
    """The places of two whose results would be written to the same memory, if one of them is a copy: the library, which
    refuses the others, sees the copies alone."""
    if all(view._target is None for view in views):
        return None
    arrays = [view.written() for view in views]
    extents = sorted((*_extent_of(array), i) for i, array in enumerate(arrays))
    for at, (_, end, i) in enumerate(extents):
        for begin, _, j in extents[at + 1 :]:
            if begin >= end:
                break
            if _share_memory(arrays[i], arrays[j]):
                return min(i, j), max(i, j)
    return None


def _extent_of(array: Any) -> "tuple[int, int]":
    begin = end = array.__array_interface__["data"][0]
    if array.size == 0:
        return begin, end
    for length, stride in zip(array.shape, array.strides):
        begin, end = begin + min(0, (length - 1) * stride), end + max(0, (length - 1) * stride)
    return begin, end + array.itemsize


def _share_memory(one: Any, other: Any) -> bool:
    try:
        return bool(np.shares_memory(one, other, max_work=1_000_000))
    except RuntimeError:  # numpy would think for too long
        return True


def input_of(array: Any, what: str = "the tensor") -> View:
    """An array that is read."""
    if np is not None and isinstance(array, np.ndarray):
        if array.__class__ is not np.ndarray:
            _check_class(array, what)
        number = _number_of_dtype.get(array.dtype)
        if number is None:
            number = _number_of(array.dtype, what)
        if array.ndim > lib.MAX_DIMS:
            _refuse_dims(what, array.ndim)
        copied = not array.flags.c_contiguous
        if copied:
            array = np.ascontiguousarray(array).reshape(array.shape)
        shape = array.shape
        return View(lib.pack_tensor(array.__array_interface__["data"][0], number, shape), array, number, shape, copied)
    return _foreign(array, what, writes=False)


def output_of(array: Any, what: str = "the tensor") -> View:
    """An array that is written, or read and written."""
    if np is not None and isinstance(array, np.ndarray):
        if array.__class__ is not np.ndarray:
            _check_class(array, what)
        number = _number_of_dtype.get(array.dtype)
        if number is None:
            number = _number_of(array.dtype, what)
        if array.ndim > lib.MAX_DIMS:
            _refuse_dims(what, array.ndim)
        flags = array.flags
        if not flags.writeable:
            raise InvalidArgumentError(f"{what} is read-only: give one that can be written, or a copy")
        target = None
        if not flags.c_contiguous:
            if _overlaps_itself(array.shape, array.strides, array.itemsize):
                raise InvalidArgumentError(
                    f"{what} has elements that share memory (strides {array.strides}), so a result cannot be "
                    "written there: give a copy"
                )
            target, array = array, np.ascontiguousarray(array).reshape(array.shape)
        shape = array.shape
        try:  # a third of the time of __array_interface__
            address = _address_of(_from_buffer_of(array))
        except (TypeError, ValueError):  # nothing in it, or of a type that has no buffer, such as bfloat16
            address = array.__array_interface__["data"][0]
        return View(lib.pack_tensor(address, number, shape), array, number, shape, target is not None, target)
    return _foreign(array, what, writes=True)


def like(dtype: Any) -> int:
    """The number of the element type that numpy, or a name, calls so."""
    if isinstance(dtype, str) and dtype in NUMBERS:
        return NUMBERS[dtype]
    if np is None:
        raise InvalidArgumentError(f"there is no element type {dtype!r}: give one of {', '.join(NAMES)}")
    try:
        return _number_of(np.dtype(dtype), "the array")
    except TypeError:
        raise InvalidArgumentError(f"there is no element type {dtype!r}: give one of {', '.join(NAMES)}") from None


def dtype_of(number: int) -> Any:
    """Numpy's dtype of the element type."""
    if number != _BFLOAT16:
        return np.dtype(NAMES[number])
    try:
        import ml_dtypes
    except ImportError:
        raise UnsupportedError(
            "numpy has no bfloat16 of its own, and this result would be one: pip install ml_dtypes, or give `out`"
        ) from None
    return np.dtype(ml_dtypes.bfloat16)


def check_result_type(number: int) -> None:
    """Raises, before anything is sent, if numpy has no such type."""
    if np is not None:
        dtype_of(number)


class Memory:
    """Memory that Kolo made, as numpy takes it over: its `owner` lives as long as an array of it."""

    __slots__ = ("owner", "__array_interface__")

    def __init__(self, owner: Any, address: int, shape: "tuple[int, ...]", typestr: str) -> None:
        self.owner = owner
        self.__array_interface__ = {"data": (address, False), "shape": shape, "typestr": typestr, "version": 3}


def array_of(owner: Any, address: Optional[int], number: int, shape: "tuple[int, ...]") -> Any:
    """Memory of Kolo's as a numpy array (without numpy: a memoryview). The array keeps `owner` alive."""
    count = 1
    for extent in shape:
        count *= extent
    if np is None:
        return _memoryview_of(owner, address, number, shape, count)
    dtype = dtype_of(number)
    if count == 0 or address is None:
        return np.empty(shape, dtype)
    if number == _BFLOAT16:
        return np.asarray(Memory(owner, address, shape, "<u2")).view(dtype)
    return np.asarray(Memory(owner, address, shape, dtype.str))


#: The letters of the buffer protocol. How long an integer is depends on more than its letter.
_FORMATS = {
    "?": "bool",
    "c": "uint8",
    **dict.fromkeys("bhilq", "int"),
    **dict.fromkeys("BHILQ", "uint"),
    "e": "float16",
    "f": "float32",
    "d": "float64",
}
_CASTS = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H"}
_CASTS.update({"uint32": "I", "uint64": "Q", "float16": "H", "bfloat16": "H", "float32": "f", "float64": "d"})


def _memoryview_of(owner: Any, address: Optional[int], number: int, shape: "tuple[int, ...]", count: int) -> memoryview:
    """Numbers of 16 bits are there as their bits, in a memoryview of uint16."""
    if count == 0 or address is None:  # a memoryview of several dimensions cannot be empty
        nothing: Any = memoryview(b"")
        return nothing.cast(_CASTS[NAMES[number]])  # type: ignore[no-any-return]
    memory = (ctypes.c_char * (count * SIZES[number])).from_address(address)
    memory.owner = owner  # type: ignore[attr-defined]  # an instance of a ctypes array takes attributes
    plain: Any = memoryview(memory).cast("B")
    typed: memoryview = plain.cast(_CASTS[NAMES[number]], shape)
    return typed


def _number_of(dtype: Any, what: str) -> int:
    """Of numpy's dtype; remembers it."""
    name = dtype.name
    if not dtype.isnative:
        raise InvalidArgumentError(
            f"{what} has elements in the other byte order ({dtype.str}): convert it, as by astype({name!r})"
        )
    if dtype.kind in "biuf":
        name = {"b": "bool", "i": "int", "u": "uint", "f": "float"}[dtype.kind] + (
            "" if dtype.kind == "b" else str(8 * dtype.itemsize)
        )
    number = NUMBERS.get(name)
    if number is None or SIZES[number] != dtype.itemsize:
        raise InvalidArgumentError(f"{what} has elements of type {dtype.name}: give {_TYPES}")
    _number_of_dtype[dtype] = number
    return number


def _check_class(array: Any, what: str) -> None:
    """Of numpy's arrays of another class."""
    if isinstance(array, np.ma.MaskedArray):
        raise InvalidArgumentError(
            f"{what} is a masked array, and its mask would be lost: give filled(value) of it, or its data and its mask "
            "as two arrays"
        )


def _refuse_dims(what: str, dims: int) -> None:
    raise InvalidArgumentError(f"{what} has {dims} dimensions: give 0 to {lib.MAX_DIMS}")


def _overlaps_itself(shape: "tuple[int, ...]", strides: "tuple[int, ...]", itemsize: int) -> bool:
    """Whether elements may share memory. Of strides that interleave it says so, too."""
    span = itemsize
    for stride, extent in sorted((abs(stride), extent) for stride, extent in zip(strides, shape)):
        if extent <= 1:
            continue
        if stride < span:
            return True
        span = stride * (extent - 1) + span
    return False


def _foreign(array: Any, what: str, writes: bool) -> View:
    """What is no array of numpy's."""
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _from_dlpack(array, what, writes)
    if np is not None and isinstance(array, np.generic) and not writes:  # its buffer has bytes for some types
        return input_of(np.array(array), what)
    try:
        buffer = memoryview(array)
    except TypeError:
        raise InvalidArgumentError(f"{what} is of type {type(array).__name__}: {_GIVE}") from None
    except (BufferError, ValueError) as error:
        raise InvalidArgumentError(f"{what} cannot be read as a buffer: {error}") from error
    if writes and buffer.readonly:
        raise InvalidArgumentError(f"{what} is read-only: give one that can be written, or a copy")
    number = _number_of_format(buffer, what)
    if np is not None:
        if buffer.format[-1:] == "c":
            buffer = buffer.cast("B")
        view = np.asarray(buffer)
        return output_of(view, what) if writes else input_of(view, what)
    return _from_buffer(buffer, number, what, writes)


def _number_of_format(buffer: memoryview, what: str) -> int:
    letters = buffer.format.lstrip("@=<" if _IS_LITTLE else "@=>")
    name = _FORMATS.get(letters, "")
    if name in ("int", "uint"):
        name += str(8 * buffer.itemsize)
    number = NUMBERS.get(name)
    if number is None or SIZES[number] != buffer.itemsize:
        raise InvalidArgumentError(f"{what} has elements of format {buffer.format!r}: give {_TYPES}")
    return number


_IS_LITTLE = ctypes.c_uint16.from_buffer_copy(b"\1\0").value == 1


def _from_buffer(buffer: memoryview, number: int, what: str, writes: bool) -> View:
    """Without numpy."""
    shape = tuple(buffer.shape or ())
    if len(shape) > lib.MAX_DIMS:
        _refuse_dims(what, len(shape))
    if buffer.nbytes == 0:
        return View(lib.pack_tensor(0, number, shape), buffer, number, shape)
    if buffer.c_contiguous and not buffer.readonly:
        address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        return View(lib.pack_tensor(address, number, shape), buffer, number, shape)
    if writes:
        raise InvalidArgumentError(f"{what} is not contiguous, which takes numpy to write to: give a contiguous one")
    copy = ctypes.create_string_buffer(buffer.tobytes(), buffer.nbytes)
    return View(lib.pack_tensor(ctypes.addressof(copy), number, shape), copy, number, shape, True)


# --- DLPack


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


_READ_ONLY = 1  # a bit of the flags
_DL_CPU, _DL_CUDA, _DL_PINNED = 1, 2, 3
_CUDA_LEGACY_STREAM = 1  # as DLPack's exchange calls the default stream, which NULL is for Kolo

_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.argtypes, _is_capsule.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int
_in_capsule = ctypes.pythonapi.PyCapsule_GetPointer
_in_capsule.argtypes, _in_capsule.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p


#: Libraries whose arrays can always be written. Their versions from before DLPack 1.0 cannot say so.
_WRITABLE = (("torch", "Tensor"), ("cupy", "ndarray"))


def _is_of(array: Any, library: str, kind: str) -> bool:
    its = getattr(sys.modules.get(library), kind, None)
    return isinstance(its, type) and isinstance(array, its)


def _capsule_of(array: Any, what: str) -> Any:
    if _is_of(array, "torch", "Tensor") and array.is_neg():  # DLPack cannot say so, and PyTorch does not look
        raise InvalidArgumentError(
            f"{what} is the negative of what its memory has (Tensor.is_neg()): give resolve_neg() of it"
        )
    try:
        device = int(array.__dlpack_device__()[0])
        if device in (_DL_CPU, _DL_CUDA, _DL_PINNED):
            arguments = {"stream": _CUDA_LEGACY_STREAM} if device == _DL_CUDA else {}
            try:
                return array.__dlpack__(max_version=(1, 0), **arguments)
            except TypeError:  # from before DLPack 1.0
                return array.__dlpack__(**arguments)
    except Exception as error:  # of a tensor that requires a gradient, say
        raise InvalidArgumentError(f"{what} cannot be read by DLPack: {error}") from error
    raise UnsupportedError(
        f"{what} lies on a device that Kolo does not know (DLPack's number of its kind: {device}): give one of the "
        "CPU or of CUDA"
    )


def _from_dlpack(array: Any, what: str, writes: bool) -> View:
    """The capsule is kept, not consumed: it gives the memory back when the view goes."""
    capsule = _capsule_of(array, what)
    if _is_capsule(capsule, b"dltensor_versioned"):
        whole = _Versioned.from_address(_in_capsule(capsule, b"dltensor_versioned"))
        if whole.major > 1:
            raise UnsupportedError(f"{what} comes by DLPack {whole.major}.{whole.minor}, and Kolo knows 1")
        if writes and whole.flags & _READ_ONLY:
            raise InvalidArgumentError(f"{what} is read-only: give one that can be written, or a copy")
        tensor = whole.tensor
    elif _is_capsule(capsule, b"dltensor"):
        if writes and not any(_is_of(array, *one) for one in _WRITABLE):
            raise InvalidArgumentError(
                f"{what} may be read-only: its {type(array).__name__} comes by a DLPack from before 1.0, which cannot "
                "say so. Give an array of numpy's or PyTorch's to write to"
            )
        tensor = _DLTensor.from_address(_in_capsule(capsule, b"dltensor"))
    else:
        raise InvalidArgumentError(
            f"{what} cannot be read by DLPack: __dlpack__ has returned {capsule!r}, where a new capsule of a tensor is "
            "right"
        )
    if tensor.ndim > lib.MAX_DIMS:
        _refuse_dims(what, tensor.ndim)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.device_type != _DL_CUDA and not _is_contiguous(tensor, shape) and np is not None:
        return _from_strided(tensor, capsule, shape, what, writes)
    described = lib.Tensor()
    lib.check(lib.C.kolo_tensor_from_dlpack(ctypes.addressof(tensor), ctypes.addressof(described)))
    return View(bytes(described), capsule, described.dtype, shape)


def _is_contiguous(tensor: _DLTensor, shape: "tuple[int, ...]") -> bool:
    if not tensor.strides or 0 in shape:
        return True
    stride = 1
    for i in reversed(range(len(shape))):
        if shape[i] != 1 and tensor.strides[i] != stride:
            return False
        stride *= shape[i]
    return True


def _from_strided(tensor: _DLTensor, capsule: Any, shape: "tuple[int, ...]", what: str, writes: bool) -> View:
    """A tensor of the CPU whose elements do not follow one another: numpy copies it."""
    strides = (ctypes.c_int64 * max(tensor.ndim, 1))(*(tensor.strides[i] for i in range(tensor.ndim)))
    plain = _DLTensor.from_buffer_copy(tensor)
    plain.strides = None
    described = lib.Tensor()
    lib.check(lib.C.kolo_tensor_from_dlpack(ctypes.addressof(plain), ctypes.addressof(described)))  # the type
    number = described.dtype
    stands_for = "<u2" if number == _BFLOAT16 else np.dtype(NAMES[number]).str
    memory = Memory(capsule, described.data, shape, stands_for)
    memory.__array_interface__["strides"] = tuple(SIZES[number] * strides[i] for i in range(tensor.ndim))
    view = output_of(np.asarray(memory), what) if writes else input_of(np.asarray(memory), what)
    if number == _BFLOAT16:
        view.packed = lib.pack_tensor(view.keep.__array_interface__["data"][0], number, shape)
        view.number = number
    return view
