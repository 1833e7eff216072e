# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments: each is refused with the sentence expected, and nothing is sent."""

import unittest

import kolopy as kolo
import numpy as np

TYPES = "bool, an integer of up to 64 bits, float16, bfloat16, float32 or float64"
GIVE = "give a numpy array, or an object with DLPack or the buffer protocol"


class Elsewhere:
    """A tensor of a device that Kolo does not know."""

    def __dlpack__(self, **options):
        raise AssertionError("it must not be asked")

    def __dlpack_device__(self):
        return (10, 0)


class ReadOnly:
    """One that only DLPack knows to be read-only."""

    def __init__(self):
        self.array = np.ones(3)
        self.array.flags.writeable = False

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return (1, 0)


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
        self.refuses(f"the tensor has elements of type longdouble: give {TYPES}".replace("longdouble", np.dtype("g").name),
                     kolo.allreduce, np.ones(3, np.longdouble))
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
        if int(np.__version__.split(".")[0]) >= 2:  # older ones do not export it
            self.refuses(read_only, kolo.allreduce, ReadOnly())
        self.refuses("a number is reduced by value, and has no `out`: use what the call returns",
                     kolo.allreduce, 1.0, out=ones)
        self.refuses("the number 9223372036854775808 does not fit 64 bits: give a float, or an array",
                     kolo.allreduce, 2**63)

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
        self.refuses("the splits are not a sequence of ints: give one number of rows for each rank",
                     kolo.alltoall, ones, [1.5])
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
        self.refuses("a prepared or grouped allgather needs an output: give `out`",
                     kolo.prepare, kolo.Call.allgather(ones), name="p")
        self.refuses("the call is of type ndarray: make one as by Call.allreduce(...)", kolo.run, ones)
        self.refuses("the call is of type ndarray: make one as by Call.allreduce(...)", kolo.grouped, [ones], name="g")
        self.refuses("the tensors are of type int: give a dict by name, or a list", kolo.grouped_allreduce, 3, name="g")
        self.refuses("a tensor's name is of type int: give a str, or None", kolo.grouped_allreduce, {3: ones}, name="g")
        self.refuses(f"the tensor 'w' is of type list: {GIVE}", kolo.broadcast_parameters, {"w": [1]})
        names = "bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64"
        self.refuses(f"there is no element type 'real': give one of {names}", kolo.GradientArena.room_for, 3, "real")
        self.refuses("the arena's size is -1 bytes: give 0 or more", kolo.GradientArena, -1)

    def test_starts(self):
        self.refuses("the setting KOLO_TIMEOUT_S is of type list: give a str, a number or a bool",
                     kolo.Context, timeout_s=[3])
        self.refuses("the store is of type int: give a text as KOLO_STORE has it, or an object with set(key, value) and "
                     "get(key, seconds)", kolo.Context, store=3)
        self.refuses("the store is an object, so `rank` and `size` must be given, too",
                     kolo.Context, store=type("S", (), {"set": print, "get": print}))
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
