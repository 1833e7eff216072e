# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments: each is refused with the sentence expected, and nothing is sent."""

import ctypes
import mmap
import sys
import types
import unittest
import unittest.mock

import kolopy as kolo
import numpy as np
from kolopy import _library, _tensors

TYPES = "bool, an integer of up to 64 bits, float16, bfloat16, float32 or float64"
GIVE = "give a numpy array, or an object with DLPack or the buffer protocol"


class Elsewhere:
    """A tensor of a device that Kolo does not know."""

    def __dlpack__(self, **options):
        raise AssertionError("it must not be asked")

    def __dlpack_device__(self):
        return (10, 0)


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_new_capsule.restype = ctypes.py_object


class Exported:
    """Three float64 that are known by DLPack alone: by a capsule of this name, and with these flags."""

    def __init__(self, name=b"dltensor_versioned", flags=0, value=5.0):
        self.array = np.full(3, value)
        self.name = ctypes.create_string_buffer(name)
        self.whole = _tensors._Versioned(major=1, minor=0, flags=flags)
        tensor, self.shape = self.whole.tensor, (ctypes.c_int64 * 1)(3)
        tensor.data, tensor.device_type, tensor.ndim = self.array.ctypes.data, 1, 1
        tensor.code, tensor.bits, tensor.lanes = 2, 64, 1
        tensor.shape = ctypes.cast(self.shape, ctypes.POINTER(ctypes.c_int64))

    def __dlpack__(self, max_version=None):
        place = self.whole if self.name.value == b"dltensor_versioned" else self.whole.tensor
        return _new_capsule(ctypes.addressof(place), self.name, None)

    def __dlpack_device__(self):
        return (1, 0)


class Failing(Exported):
    """Its library cannot export it."""

    def __dlpack__(self, max_version=None):
        raise ValueError("it is elsewhere")


class Negated(Exported):
    """Stands for a tensor of PyTorch's that is the negative of what its memory has."""

    def is_neg(self):
        return True


class Arguments(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.context = kolo.init(alone=True)

    @classmethod
    def tearDownClass(cls):
        kolo.allreduce(np.ones(3))  # all is as it was
        kolo.shutdown()

    def refuses(self, sentence, function, *arguments, kind=kolo.InvalidArgumentError, **options):
        with self.assertRaises(kolo.Error) as caught:
            function(*arguments, **options)
        self.assertEqual(str(caught.exception), sentence)
        self.assertIs(type(caught.exception), kind)
        self.assertEqual(caught.exception.code, kind.code)

    def test_arrays(self):
        ones = np.ones(3)
        self.refuses(f"the tensor is of type list: {GIVE}", kolo.allreduce, [1, 2])
        self.refuses(f"the tensor is of type NoneType: {GIVE}", kolo.allgather, None)
        self.refuses(f"the output is of type str: {GIVE}", kolo.allreduce, ones, out="out")
        self.refuses(f"the tensor has elements of type complex128: give {TYPES}", kolo.allreduce, ones * 1j)
        self.refuses(f"the tensor has elements of type object: give {TYPES}", kolo.allgather, np.array([None]))
        self.refuses(f"the tensor has elements of type str32: give {TYPES}", kolo.allgather, np.array(["x"]))
        self.refuses(
            f"the tensor has elements of type longdouble: give {TYPES}".replace("longdouble", np.dtype("g").name),
            kolo.allreduce,
            np.ones(3, np.longdouble),
        )
        self.refuses("the tensor has elements in the other byte order (>f4): convert it, as by astype('float32')",
                     kolo.allreduce, np.ones(3, ">f4"))
        self.refuses("the tensor has 9 dimensions: give 0 to 8", kolo.allreduce, np.ones((1,) * 9))
        read_only = "the tensor is read-only: give one that can be written, or a copy"
        self.refuses(read_only, kolo.allreduce, np.broadcast_to(ones, (2, 3)))
        self.refuses(read_only, kolo.broadcast, b"bytes")
        self.refuses(read_only.replace("tensor", "output"), kolo.allgather, ones, out=memoryview(b"12345678"))
        shared = np.lib.stride_tricks.as_strided(np.ones(4), (3, 2), (8, 8))
        self.refuses("the tensor has elements that share memory (strides (8, 8)), so a result cannot be written there: "
                     "give a copy", kolo.allreduce, shared)
        self.assertEqual(kolo.allgather(shared).shape, (3, 2))  # as an input it is copied
        self.refuses("the tensor lies on a device that Kolo does not know (DLPack's number of its kind: 10): give one "
                     "of the CPU or of CUDA", kolo.allreduce, Elsewhere(), kind=kolo.UnsupportedError)
        self.refuses("a number is reduced by value, and has no `out`: use what the call returns", kolo.allreduce, 1.0,
                     out=ones)
        self.refuses("the number 9223372036854775808 does not fit 64 bits: give a float, or an array", kolo.allreduce,
                     2**63)

    def test_arrays_that_promise_not_to_change(self):
        read_only = "the tensor is read-only: give one that can be written, or a copy"
        unknown = (
            "the tensor may be read-only: its Exported comes by a DLPack from before 1.0, which cannot say so. Give an "
            "array of numpy's or PyTorch's to write to"
        )
        frozen = np.full(3, 5.0)
        frozen.flags.writeable = False
        mapped = mmap.mmap(-1, 24, access=mmap.ACCESS_READ)
        of_dlpack, silent, ones = Exported(flags=1), Exported(b"dltensor"), np.ones(3)
        for array, sentence in (
            (of_dlpack, read_only),
            (silent, unknown),
            (frozen, read_only),
            (bytes(24), read_only),
            (mapped, read_only),
            (memoryview(bytearray(24)).toreadonly(), read_only),
            (np.float64(5), None),
        ):
            in_place = sentence or read_only
            with self.subTest(type(array).__name__):
                for function in (kolo.broadcast, kolo.broadcast_async, kolo.recv, kolo.recv_async, kolo.reduce):
                    self.refuses(in_place, function, array)
                for function in (kolo.allreduce, kolo.allreduce_async, kolo.Call.allreduce, kolo.Call.broadcast):
                    if sentence is not None or function is not kolo.allreduce:  # a number is reduced by value
                        self.refuses(in_place, function, array)
                self.refuses(in_place, kolo.sendrecv, ones, 0, array)
                self.refuses(in_place.replace("tensor", "output", 1), kolo.allreduce, ones, out=array)
                self.refuses(in_place.replace("tensor", "output", 1), kolo.scatter, ones, out=array)
                self.refuses(in_place.replace("tensor", "output", 1), kolo.allgather, ones, out=array)
                of_name = in_place.replace("the tensor", "the tensor 'w'", 1)
                self.refuses(of_name, kolo.broadcast_parameters, {"w": array})
                self.refuses(of_name, kolo.grouped_allreduce, {"w": array}, name="g")
                self.refuses(of_name, kolo.prepare_grouped_allreduce, {"w": array}, name="g")
        for array in (of_dlpack, silent, frozen):  # as inputs they serve
            out = np.zeros(3)
            self.assertIs(kolo.allreduce(array, out=out), out)
            self.assertEqual(out.tolist(), [5, 5, 5])
            self.assertEqual(kolo.allgather(array).tolist(), [5, 5, 5])
        self.assertEqual(of_dlpack.array.tolist() + silent.array.tolist() + frozen.tolist(), [5] * 9)
        writable = Exported()
        self.assertIs(kolo.broadcast(writable), writable)
        with unittest.mock.patch.dict(sys.modules, torch=types.SimpleNamespace(Tensor=Negated)):
            tensor = Negated(b"dltensor")  # PyTorch's can be written, and its old versions cannot say so
            tensor.is_neg = lambda: False
            self.assertIs(kolo.allreduce(tensor), tensor)

    def test_arrays_whose_memory_is_not_their_value(self):
        def lost(what):
            return (
                f"{what} is a masked array, and its mask would be lost: give filled(value) of it, or its data and its "
                "mask as two arrays"
            )

        masked, ones = np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0]), np.ones(3)
        for function in (kolo.allreduce, kolo.broadcast, kolo.allgather, kolo.alltoall, kolo.recv, kolo.barrier):
            if function is not kolo.barrier:
                self.refuses(lost("the tensor"), function, masked)
        self.refuses(lost("the tensor"), kolo.send, masked, 0)
        self.refuses(lost("the output"), kolo.allreduce, ones, out=masked)
        self.refuses(lost("the tensor"), kolo.allreduce, np.ma.masked)
        self.refuses(lost("the tensor 'w'"), kolo.broadcast_parameters, {"w": masked})
        self.refuses(lost("the tensor 'w'"), kolo.GradientArena.like, {"w": masked})
        self.assertEqual(kolo.allgather(masked.filled(0)).tolist(), [1, 0, 3])
        pairs = np.zeros(2, [("a", "f4"), ("b", "i4")])
        for array, kind in (
            (pairs, "void64"),
            (pairs[0], "void64"),
            (np.zeros(2, "m8[s]"), "timedelta64[s]"),
            (np.datetime64("2020-01-01"), "datetime64[D]"),
            (np.str_("x"), "str32"),
            (np.complex64(1), "complex64"),
            (np.zeros(2, ">i2").view(np.recarray), None),
        ):
            sentence = f"the tensor has elements of type {kind}: give {TYPES}"
            if kind is None:
                sentence = "the tensor has elements in the other byte order (>i2): convert it, as by astype('int16')"
            self.refuses(sentence, kolo.allgather, array)
        swapped = (ctypes.c_int32.__ctype_be__ * 2)()
        self.refuses(f"the tensor has elements of format '>i': give {TYPES}", kolo.allgather, swapped)
        with unittest.mock.patch.dict(sys.modules, torch=types.SimpleNamespace(Tensor=Negated)):
            for function in (kolo.allreduce, kolo.allgather):
                self.refuses(
                    "the tensor is the negative of what its memory has (Tensor.is_neg()): give resolve_neg() of it",
                    function,
                    Negated(),
                )

    def test_dlpack_that_fails(self):
        where = "a new capsule of a tensor is right"
        for name in (b"used_dltensor", b"used_dltensor_versioned"):
            with self.assertRaisesRegex(
                kolo.InvalidArgumentError,
                f'^the tensor cannot be read by DLPack: __dlpack__ has returned <capsule object "{name.decode()}" at '
                f"0x[0-9a-f]+>, where {where}$",
            ):
                kolo.allgather(Exported(name))
        self.refuses("the tensor cannot be read by DLPack: it is elsewhere", kolo.allreduce, Failing())
        self.refuses(f"the tensor is of type PyCapsule: {GIVE}", kolo.allgather, Exported().__dlpack__())
        released = memoryview(b"x")
        released.release()
        self.refuses("the tensor cannot be read as a buffer: operation forbidden on released memoryview object",
                     kolo.allgather, released)

    def test_outputs_that_overlap(self):
        square, flat = np.zeros((3, 3)), np.arange(10.0)
        apart = "sendrecv: the tensor that it sends and the one that it receives into overlap; give it two"
        self.refuses(apart, kolo.sendrecv, flat, 0, flat)
        self.refuses(apart, kolo.sendrecv, flat[:6], 0, flat[5:])
        self.assertEqual(kolo.sendrecv(flat[:5], 0, flat[5:], send_tag=7), (5, 0, 7))  # nothing of the others was sent
        self.assertEqual(flat.tolist(), [0, 1, 2, 3, 4] * 2)
        kolo.sendrecv(flat[::2], 0, flat[1::2])  # what is not contiguous is copied
        self.assertEqual(flat.tolist(), [0, 0, 2, 2, 4, 4, 1, 1, 3, 3])
        both = "the tensors 'a' and 'b' overlap: give each memory of its own"
        for tensors in ({"a": square, "b": square.T}, {"a": square.T, "b": square[:, 1]}):
            self.refuses(both, kolo.grouped_allreduce, tensors, name="g")
            self.refuses(both, kolo.grouped_allreduce_async, tensors, name="g")
        kolo.grouped_allreduce({"a": square[:, ::2], "b": square[:, 1]}, name="g")  # side by side
        self.refuses("calls 1 and 2 of the group write the same memory: give each its own", kolo.grouped,
                     [kolo.Call.broadcast(x) for x in (flat, square.T, square[1:])], name="g")

    def test_numbers(self):
        self.assertEqual(kolo.allreduce(-(2**63)), -(2**63))
        self.assertEqual(kolo.allreduce(2**63 - 1, "product"), 2**63 - 1)
        self.assertEqual(kolo.allreduce(np.uint64(2**64 - 1)), np.uint64(2**64 - 1))
        for number in (np.int8(-128), np.uint8(255), np.int64(5), np.bool_(True), np.float16(3)):
            self.assertIs(type(kolo.allreduce(number)), type(number))
            self.assertEqual(kolo.allreduce(number), number)
        self.assertIs(kolo.allreduce(True), True)
        self.assertEqual(kolo.allreduce(6, "bit_xor"), 6)
        for number in (2**63, -(2**63) - 1):
            for op in ("sum", "max"):
                sentence = f"the number {number} does not fit 64 bits: give a float, or an array"
                self.refuses(sentence, kolo.allreduce, number, op)
        for function in (kolo.reduce, kolo.broadcast, kolo.allgather, kolo.allreduce_async):
            self.refuses(f"the tensor is of type int: {GIVE}", function, 3)
        ones = np.ones(3)
        self.refuses("a split is 18446744073709551619, which is too large a number", kolo.alltoall, ones, [2**64 + 3])
        large = "the arena's size is 18446744073709551624, which is too large a number"
        self.refuses(large, kolo.GradientArena, 2**64 + 8)
        self.refuses("an extent of the shape is 18446744073709551619, which is too large a number",
                     kolo.GradientArena.room_for, 2**64 + 3)
        self.refuses("an extent of the shape is of type float: give an int", kolo.GradientArena.room_for, (2, 2.5))
        self.refuses("the timeout is 'soon': give a float", kolo.allreduce, ones, timeout="soon")
        self.refuses("the prescale is None: give a float", kolo.allreduce, ones, prescale=None)
        self.refuses("the time to wait is 'long': give a float", kolo.barrier_async().wait_for, "long")

    def test_texts(self):
        for what, function in (
            ("name", lambda text: kolo.allreduce(np.ones(3), name=text)),
            ("name", lambda text: kolo.Group.of([0], name=text)),
            ("setting KOLO_STORE", lambda text: kolo.Context(store=text)),
        ):
            self.refuses(f"the {what} is '\\ud800', which UTF-8 has no bytes for", function, "\ud800")
        give = "give bytes, or call broadcast_object or allgather_object"
        for function in (kolo.broadcast_bytes, kolo.allgather_bytes):
            self.refuses(f"the data is of type str: {give}", function, "abc")
            self.refuses(f"the data is of type int: {give}", function, 3)
        self.assertEqual(kolo.broadcast_bytes(memoryview(b"abcd")[::2]), b"ac")
        self.refuses("the path is 3: give a path", kolo.start_timeline, 3)

    def test_what_the_library_refuses(self):
        ones = np.ones(4)
        for function, arguments, words in (
            (kolo.allreduce, (np.ones(3, np.int32), "average"), "average"),
            (kolo.allreduce, (ones, "bit_and"), "bit"),
            (kolo.broadcast, (ones, 5), "root"),
            (kolo.send, (ones, 7), "rank"),
        ):
            with self.subTest(words), self.assertRaisesRegex(kolo.Error, words):
                function(*arguments)
        with self.assertRaisesRegex(kolo.InvalidArgumentError, "overlap"):
            kolo.allreduce(ones[:3], out=ones[1:])
        with self.assertRaisesRegex(kolo.InvalidArgumentError, "kolo\\."):
            kolo.allreduce(ones, name="kolo.mine")
        with self.assertRaisesRegex(kolo.InvalidArgumentError, "name"):
            kolo.allreduce(ones, name="")
        kolo.recv_async(ones, 0, 3).cancel()
        first = kolo.prepare(kolo.Call.allreduce(ones), name="twice")
        with self.assertRaises(kolo.DuplicateNameError):
            kolo.prepare(kolo.Call.allreduce(ones), name="twice")
        first.release()
        self.refuses("the prepared call has been released", first.run)

    def test_options(self):
        ones = np.ones(3)
        ops = "sum, average, min, max, product, bit_and, bit_or, bit_xor"
        self.refuses(f"there is no operation 'mean': give one of {ops}", kolo.allreduce, ones, "mean")
        self.refuses(f"there is no operation None: give one of {ops}", kolo.allreduce, ones, None)
        self.refuses("send_as is 'int8': give 'float16', 'bfloat16' or None", kolo.allreduce, ones, send_as="int8")
        self.refuses("the timeout is -1 s: give more than 0, or None for the default", kolo.allreduce, ones, timeout=-1)
        self.refuses("the name is of type int: give a str, or None", kolo.allreduce, ones, name=3)
        self.refuses("the name contains a zero character: leave it out", kolo.allreduce, ones, name="a\0b")
        self.refuses("the root is of type str: give an int", kolo.broadcast, ones, "0")
        self.refuses("the root is 4294967296, which is too large a number", kolo.broadcast, ones, 2**32)
        self.refuses("the priority is of type float: give an int", kolo.allreduce, ones, priority=0.5)
        self.refuses("the group is of type int: give a Group, a Context, or None", kolo.allreduce, ones, group=3)
        self.refuses("the splits are not a sequence of ints: give one number of rows for each rank", kolo.alltoall,
                     ones, [1.5])
        self.refuses("the colour is -2: give 0 or more, or None for no group", kolo.world().split, -2)
        self.refuses("the time to wait is -1 s: give 0 or more, or call wait()", kolo.barrier_async().wait_for, -1)
        self.refuses("the callback is of type int: give a function", kolo.barrier_async().on_done, 3)
        self.refuses("one of the handles is of type ndarray: give handles alone", kolo.wait_all, [ones])

    def test_calls(self):
        ones, columns = np.ones((3, 3)), np.ones((3, 3)).T
        where = "a prepared call uses its arrays where they lie: give contiguous ones"
        self.refuses(where, kolo.prepare, kolo.Call.allreduce(columns), name="p")
        self.refuses(where, kolo.prepare, kolo.Call.allreduce(columns, out=ones), name="p")
        self.refuses(where, kolo.prepare_grouped_allreduce, [columns], name="p")
        self.refuses("a prepared or grouped allgather needs an output: give `out`", kolo.prepare,
                     kolo.Call.allgather(ones), name="p")
        self.refuses("the call is of type ndarray: make one as by Call.allreduce(...)", kolo.run, ones)
        self.refuses("the call is of type ndarray: make one as by Call.allreduce(...)", kolo.grouped, [ones], name="g")
        self.refuses("the tensors are of type int: give a dict by name, or a list", kolo.grouped_allreduce, 3, name="g")
        self.refuses("a tensor's name is of type int: give a str, or None", kolo.grouped_allreduce, {3: ones}, name="g")
        self.refuses(f"the tensor 'w' is of type list: {GIVE}", kolo.broadcast_parameters, {"w": [1]})
        names = "bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64"
        self.refuses(f"there is no element type 'real': give one of {names}", kolo.GradientArena.room_for, 3, "real")
        self.refuses("the arena's size is -1 bytes: give 0 or more", kolo.GradientArena, -1)

    def test_starts(self):
        self.refuses("the setting KOLO_TIMEOUT_S is of type list: give a str, a number or a bool", kolo.Context,
                     timeout_s=[3])
        self.refuses(
            "the store is of type int: give a text as KOLO_STORE has it, or an object with set(key, value) and "
            "get(key, seconds)",
            kolo.Context,
            store=3,
        )
        self.refuses("the store is an object, so `rank` and `size` must be given, too", kolo.Context,
                     store=type("S", (), {"set": print, "get": print}))
        self.refuses("the log sink is of type str: give a function", kolo.Context, log="stderr")
        with self.assertRaisesRegex(kolo.InvalidArgumentError, "was called before"):
            kolo.init()
        with self.assertRaisesRegex(kolo.InvalidSettingError, "KOLO_TIMEOUT_S"):
            kolo.Context({"KOLO_ALONE": 1}, timeout_s="soon")

    def test_contexts_that_are_gone(self):
        separate = kolo.Context({"KOLO_ALONE": True})
        group = separate.world.split(0)
        self.assertEqual(kolo.allreduce(3, group=separate), 3)
        self.assertEqual(kolo.allreduce(3, group=group), 3)
        handle = kolo.recv_async(np.ones(3), 0, group=separate)
        separate.shutdown()
        separate.shutdown()
        self.refuses("this context has been shut down", lambda: separate.local_rank, kind=kolo.NotInitializedError)
        self.refuses("the group's context has been shut down", kolo.allreduce, 3, group=separate,
                     kind=kolo.NotInitializedError)
        with self.assertRaises(kolo.NotInitializedError):
            kolo.allreduce(3, group=group)
        with self.assertRaises(kolo.ShutDownError):
            handle.wait()

    def test_a_class_for_each_status(self):
        classes = kolo.Error.__subclasses__()
        self.assertEqual({int(one.code) for one in classes}, set(range(1, 16)))
        for one in classes:
            self.assertTrue(issubclass(one, RuntimeError))
            name = "".join(part.title() for part in one.code.name.split("_"))
            self.assertEqual(one.__name__, name + "Error")
            self.assertIs(getattr(kolo, one.__name__), one)


class Loading(unittest.TestCase):
    def test_a_library_that_is_missing(self):
        missing = "cannot open shared object file: No such file or directory"
        for library, remedy in (
            ("libhwy.so.1", ". Debian's package libhwy1 has it: apt-get install libhwy1"),
            (
                _library.SONAME,
                f". It is neither in {_library.FOLDER} nor where the system looks: install kolopy by pip, or Kolo's package "
                f"libkolo{'.'.join(kolo.__version__.split('.')[:2])}, or use a build tree's python/",
            ),
            ("libc.so.9", ""),
        ):
            error = OSError(f"{library}: {missing}")
            with unittest.mock.patch("ctypes.CDLL", side_effect=error), self.assertRaises(ImportError) as caught:
                _library._open()
            self.assertEqual(str(caught.exception), f"kolopy cannot load its library: {library}: {missing}{remedy}")


class WithoutContext(unittest.TestCase):
    def test_nothing_works(self):
        self.assertFalse(kolo.is_initialized())
        sentence = "there is no context: call kolopy.init() first, or write `with kolopy.Session():`"
        for call in (lambda: kolo.allreduce(np.ones(3)), kolo.rank, kolo.barrier, kolo.metrics, kolo.local_rank):
            with self.assertRaises(kolo.NotInitializedError) as caught:
                call()
            self.assertEqual(str(caught.exception), sentence)
        kolo.shutdown()  # does nothing


if __name__ == "__main__":
    unittest.main()
