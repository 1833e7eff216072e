#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles kolo_torch against this python3's PyTorch and a libkolo that is there, where CMake cannot: PyTorch's backend
sees public headers alone, so nothing else of Kolo's need be there.

usage: kolo_torch.py PREPARED OUT     makes OUT/kolo_torch, and OUT/kolopy with a link to the library
"""
import re
import shutil
import sys
from pathlib import Path

import torch
from torch.utils import cpp_extension

ROOT = Path(__file__).resolve().parents[3]
prepared, package = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve() / "kolo_torch"

extension = ROOT / "python/kolo_torch/extension"
library = next(prepared.glob("lib/libkolo.so.*"))
version = re.search(r"project\(kolo VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]
soname = "libkolo.so." + version.rpartition(".")[0]
shutil.copytree(ROOT / "python/kolo_torch/kolo_torch", package, dirs_exist_ok=True)
shutil.copytree(ROOT / "python/kolopy", package.parent / "kolopy", dirs_exist_ok=True)
link = package.parent / "kolopy" / soname
link.unlink(missing_ok=True)
link.symlink_to(library)
sources = [*(ROOT / "src/c10d").glob("*.cpp"), extension / "bindings.cpp", extension / "reduce_in_arena.cpp"]
folders = [ROOT / "include", prepared / "include", ROOT / "src", extension]
cpp_extension.load(
    "_C", [str(source) for source in sources], build_directory=str(package),
    extra_include_paths=[str(folder) for folder in folders],
    extra_cflags=["-std=c++20", "-O2", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-w"],
    # The machine's C++ library, which PyTorch uses, also where the compiler would link one of its own statically. CUDA's
    # part of PyTorch, although no symbol of it is named.
    extra_ldflags=[str(library), "-Wl,--no-as-needed", "-ltorch_cuda",
                   "-l:libstdc++.so.6", "-Wl,--exclude-libs,ALL"])
(package.parent / "kolopy" / "_version.py").write_text(f'VERSION = "{version}"\nSONAME = "{soname}"\n', encoding="utf-8")
(package / "_build.py").write_text(f'TORCH_VERSION = "{torch.__version__}"\nKOLO_VERSION = "{version}"\n', encoding="utf-8")
