#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One program that links no MPI, under each MPI that is there: which one it opens, how it ends, and what it says where it
cannot.

usage: opening_run.py PROGRAM FOREIGN [--times N] MPI...
   PROGRAM  mpi_opening, or opening.py with its Python (words, with blanks). With --mpi4py MPI comes by mpi4py.
   FOREIGN  a libmpi that is of no ABI that Kolo knows
   MPI      name=mpiexec,library: how that MPI starts processes (words, with blanks), and its library. The name begins
            with openmpi or mpich. With mpiexec alone the loader finds the library by itself.
"""

import os
import subprocess
import sys

FAILURES = []
TITLES = {"openmpi": "Open MPI v", "mpich": ("MPICH Version: ", "Intel(R) MPI Library ")}
CLEAN = {name: value for name, value in os.environ.items() if name not in ("KOLO_MPI", "MPI4PY_LIBMPI")}


def run(command, **variables):
    done = subprocess.run(command, env={**CLEAN, **variables}, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout.splitlines(), done.stderr


def expect(what, holds, said):
    if not holds:
        FAILURES.append(what)
        print(f"FAIL {what}: {said}", flush=True)


def kept(lines, word):
    return [line[len(word) + 1:] for line in lines if line.startswith(word + " ")]


def check_job(name, command, ranks, title, status, variables):
    said = run(command, **variables)
    code, lines, _ = said
    wanted = [f"{ranks * (ranks + 1) // 2} of {ranks}"] * ranks
    expect(f"{name}, {ranks} ranks: sums", kept(lines, "SUM") == wanted, said)
    expect(f"{name}, {ranks} ranks: what was opened", all(text.startswith(title) for text in kept(lines, "MPI")), said)
    expect(f"{name}, {ranks} ranks: the status is {status}", code == status, said)


def check_mpi(name, mpiexec, library, program, times):
    title = next(title for start, title in TITLES.items() if name.startswith(start))
    by_mpi4py = "--mpi4py" in program
    variables = {"MPI4PY_LIBMPI" if by_mpi4py else "KOLO_MPI": library} if library else {}
    for ranks in (2, 4):
        job = [*mpiexec, "-np", str(ranks), *program]
        for _ in range(times):
            check_job(name, job, ranks, title, 0, variables)
            check_job(f"{name}, left open", [*job, "--open", "0"], ranks, title, 0, variables)
        check_job(f"{name}, between nodes", job, ranks, title, 0, {**variables, "KOLO_RANKS_PER_NODE": "1",
                                                                   "KOLO_TRANSPORT": "mpi"})
    if library and not by_mpi4py:
        job = [*mpiexec, "-np", "2", *program, "--load", library]
        check_job(f"{name}, loaded", job, 2, title, 0, {})
        check_job(f"{name}, loaded, and KOLO_MPI", job, 2, title, 0, variables)
        check_job(f"{name}, loaded and initialised", [*job, "--init"], 2, title, 0, {})
        _, lines, error = run([*job, "--init"])
        expect(f"{name}: MPI stays the program's", kept(lines, "INITIALIZED") == ["1 FINALIZED 0"] * 2, (lines, error))


def check_refusals(program, foreign, mpis):
    _, lines, error = run([*program, "--load", foreign], OMPI_COMM_WORLD_SIZE="1")
    sentence = (f"transport: {foreign} is no MPI that Kolo can call: it has neither the ABI of Open MPI 3 or newer, nor "
                "MPICH's, nor that of the MPI standard (5.0)")
    expect("a foreign MPI", kept(lines, "TOLD") == [sentence], (lines, error))
    _, lines, error = run(program, OMPI_COMM_WORLD_SIZE="1", KOLO_MPI="libnone.so")
    expect("KOLO_MPI that is not there", kept(lines, "TOLD") == [
        'invalid_setting: KOLO_MPI is "libnone.so", which cannot be opened: libnone.so: cannot open shared object file: '
        "No such file or directory"], (lines, error))
    if len(mpis) < 2:
        return
    libraries = [library for _, _, library in mpis[:2]]
    _, lines, error = run([*program, "--load", libraries[0]], OMPI_COMM_WORLD_SIZE="1", KOLO_MPI=libraries[1])
    said = kept(lines, "TOLD")
    expect("KOLO_MPI beside another MPI",
           len(said) == 1 and said[0].startswith(f'invalid_setting: KOLO_MPI is "{libraries[1]}", but this process has '
                                                 "loaded another MPI ("), (lines, error))
    if not mpis[0][0].startswith("openmpi") or not mpis[1][0].startswith("mpich") or "/" in libraries[0] + libraries[1]:
        return
    _, lines, error = run(program, PMIX_RANK="0", SLURM_PROCID="0")
    said = kept(lines, "TOLD")
    expect("Slurm, and two MPIs",
           len(said) == 1 and said[0].startswith("invalid_setting: the launcher of this process starts programs of any MPI")
           and all(library in said[0] for library in libraries), (lines, error))
    _, lines, error = run(program, PMIX_RANK="0", SLURM_PROCID="0", KOLO_MPI=libraries[1])
    expect("Slurm, and KOLO_MPI", kept(lines, "SUM") == ["1 of 1"], (lines, error))


def main():
    program, foreign, *rest = sys.argv[1:]
    program = program.split()
    times = 1
    if rest[:1] == ["--times"]:
        times, rest = int(rest[1]), rest[2:]
    mpis = []
    for one in rest:
        name, words = one.split("=", 1)
        mpiexec, _, library = words.partition(",")
        mpis.append((name, mpiexec.split(), library))
    for mpi in mpis:
        check_mpi(*mpi, program, times)
    if "--mpi4py" not in program:
        check_refusals(program, foreign, mpis)
    print(f"{'FAIL' if FAILURES else 'PASS'} {len(mpis)} MPIs, {times} times")
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(main())
