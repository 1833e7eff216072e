# SPDX-License-Identifier: Apache-2.0
"""kolopy with arrays of JAX, which promise not to change: they are read, and never written.

Run by kolo-run with any number of ranks; prints one line, from rank 0.
"""

import jax
import numpy

import kolopy

UNKNOWN = (
    "may be read-only: its ArrayImpl comes by a DLPack from before 1.0, which cannot say so. Give an array of numpy's "
    "or PyTorch's to write to"
)
READ_ONLY = "is read-only: give one that can be written, or a copy"  # of a JAX that has DLPack 1.0


def refuses(what, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except kolopy.InvalidArgumentError as error:
        assert str(error) in (f"{what} {UNKNOWN}", f"{what} {READ_ONLY}"), error
    else:
        raise AssertionError(f"{function.__name__} was not refused")


def main():
    with kolopy.Session():
        rank, size = kolopy.rank(), kolopy.size()
        a = jax.numpy.full(5, rank + 1, jax.numpy.float32)
        b = a  # the same memory
        for function in (kolopy.allreduce, kolopy.broadcast, kolopy.allreduce_async, kolopy.recv):
            refuses("the tensor", function, a)
        refuses("the tensor 'w'", kolopy.broadcast_parameters, {"w": a})
        refuses("the output", kolopy.allreduce, numpy.ones(5, numpy.float32), out=a)
        total = size * (size + 1) // 2
        for array in (a, a.astype(jax.numpy.bfloat16), numpy.asarray(a)):
            out = numpy.zeros(5, array.dtype)
            kolopy.allreduce(array, out=out)
            assert (out == total).all() and out.dtype == array.dtype, out
            assert kolopy.allgather(array).reshape(size, 5)[:, 0].tolist() == list(range(1, size + 1))
        refuses("the tensor", kolopy.allreduce, numpy.asarray(a))
        assert (a == rank + 1).all() and (b == rank + 1).all()
        if rank == 0:
            print(f"jax {jax.__version__}: {size} ranks, its arrays are read and never written")


if __name__ == "__main__":
    main()
