# SPDX-License-Identifier: Apache-2.0
"""opening.cpp by kolopy: the same flags and lines.

With --mpi4py the MPI is mpi4py's (MPI4PY_LIBMPI), which is used before, beside and after Kolo.
"""

import argparse
import array
import ctypes
import re
import sys


def say(line):
    sys.stdout.write(line + "\n")  # one write, so that ranks do not mix theirs
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--load")
    parser.add_argument("--init", action="store_true")
    parser.add_argument("--open", type=int)
    parser.add_argument("--mpi4py", action="store_true")
    flags = parser.parse_args()
    world = None
    if flags.mpi4py:
        from mpi4py import MPI
        world = MPI.COMM_WORLD
        world.allreduce(1)
    library = ctypes.CDLL(flags.load) if flags.load else None
    if flags.init and library.MPI_Init(None, None) != 0:
        return 1
    import kolopy as kolo
    try:
        kolo.init()
        say("MPI " + re.search(r"MPI \((.*), thread level", kolo.describe()).group(1))
        for _ in range(100):
            total = array.array("i", [kolo.rank() + 1])
            kolo.allreduce(total, name="sum")
        if world is not None and world.allreduce(kolo.rank() + 1) != total[0]:
            say("TOLD mpi4py has another sum")
            return 1
        say(f"SUM {total[0]} of {kolo.size()}")
        if flags.open is not None:
            return flags.open
        kolo.shutdown()
    except kolo.Error as error:
        say(f"TOLD {error.code.name.lower()}: {error}")
        return 1
    if world is not None:
        world.barrier()
    if library is not None:
        begun, ended = ctypes.c_int(), ctypes.c_int()
        library.MPI_Initialized(ctypes.byref(begun))
        library.MPI_Finalized(ctypes.byref(ended))
        say(f"INITIALIZED {begun.value} FINALIZED {ended.value}")
        if flags.init:
            library.MPI_Finalize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
