#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An installed Kolo without CUDA has no trace of it: neither libraries, nor symbols, nor device code, nor headers.

usage: without_cuda.py PREFIX BUILD COMPILER     BUILD: its build tree
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Kolo's own namespace, and the functions of the runtime, the driver and NCCL.
SYMBOL = re.compile(r"kolo::cuda::|\b(cuda|__cuda|nccl|pnccl)[A-Z_]\w*|\bcu[A-Z]\w+$")
# What a linked runtime, or code for devices, leaves in a file. (Words for people, as in messages, are no trace.)
CONTENT = re.compile(rb"libcuda|libcudart|libnccl|nv_fatbin|__cudaRegister|compute_[0-9]{2}")


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout


def check_binary(file):
    needed = output("ldd", str(file))
    for line in needed.splitlines():
        assert not re.search(r"libcuda|libnccl|libnv", line), line
    for table in ([], ["-D"]):
        for line in output("nm", "-C", *table, str(file)).splitlines():
            assert not SYMBOL.search(line), f"{file}: {line}"
    found = CONTENT.search(file.read_bytes())
    assert not found, f"{file}: {found}"


def check_headers(include, compiler):
    headers = sorted(path.name for path in (include / "kolo").glob("*.hpp"))
    assert "kolo.hpp" in headers and "cuda.hpp" not in headers, headers
    config = (include / "kolo" / "config.hpp").read_text()
    for part in ("cuda", "libtorch"):  # a part's header is there with the part alone
        built = re.search(rf"#define KOLO_WITH_{part.upper()} ([01])\n", config).group(1) == "1"
        assert (f"{part}.hpp" in headers) == built, (part, headers)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "all.cpp"
        source.write_text("".join(f"#include <kolo/{name}>\n" for name in headers))
        made = output(compiler, "-std=c++17", "-I", str(include), "-M", str(source))
    strange = [path for path in made.split() if re.match(r"cuda|nccl|driver_types", Path(path).name)]
    assert not strange, strange


def main():
    prefix, build, compiler = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    (library,) = {path.resolve() for path in prefix.glob("lib*/**/libkolo.so")}
    tool = prefix / "bin" / "kolo-info"
    check_binary(library)
    check_binary(tool)
    check_headers(prefix / "include", compiler)
    for file in prefix.rglob("*.cmake"):
        if file.name != "KoloFindDependencies.cmake":  # serves every kind of build
            assert not re.search(r"cudart|nccl|CUDA::", file.read_text()), file
    for file in prefix.rglob("*.pc"):
        assert not re.search(r"cuda|nccl", file.read_text()), file
    cache = (build / "CMakeCache.txt").read_text()
    assert "CMAKE_CUDA_COMPILER" not in cache and "CUDAToolkit" not in cache, "the build looked for CUDA"
    said = output(str(tool))
    assert re.search(r"CUDA +not in this build", said) and "GPU" not in said.split("variable")[0], said
    print("PASS")


main()
