#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the layer checker: every kind of forbidden include, planted in a tree of its own, must be reported."""

import contextlib
import io
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import check_layers

# A house in which nothing is wrong.
CLEAN = {
    "include/kolo/types.hpp": "#include <cstdint>\n#include <vector>\n",
    "include/kolo/context.hpp": "#include <kolo/types.hpp>\n#include <string>\n",
    "include/kolo/mpi.hpp": "#include <kolo/context.hpp>\n",
    "include/kolo/cuda.hpp": "#include <kolo/context.hpp>\n#include <cuda_runtime_api.h>\n",
    "src/base/env.cpp": '#include "base/env.hpp"\nauto x = std::getenv("KOLO_X");\n',
    "src/base/env.hpp": "#include <kolo/types.hpp>\n",
    "src/base/mutex.hpp": "#include <condition_variable>\n#include <mutex>\n",
    "src/data/kernels/reduction.cpp": '#include "hwy/foreach_target.h"\n#include <hwy/highway.h>\n#include HWY_TARGET_INCLUDE\n',
    "src/core/topology.hpp": '#include "base/env.hpp"\n#include <bit>\n#include <sys/mman.h>\n',
    "src/control/board.hpp": '#include "core/topology.hpp"\n#include <boost/container/small_vector.hpp>\n',
    "src/control/tcp/link.hpp": '#include "control/board.hpp"\n#include <boost/asio.hpp>\n#include <net/if.h>\n',
    "src/data/backend.hpp": '#include "core/topology.hpp"\n',
    "src/data/cpu/lane.hpp": '#include "data/backend.hpp"\n#include "transport/node.hpp"\n',
    "src/data/cuda/device/device.cu": '#include "data/backend.hpp"\n#include <cuda_runtime.h>\n',
    "src/transport/node.hpp": '#include "core/topology.hpp"\n',
    "src/transport/shm/segment.hpp": '#include "transport/node.hpp"\n#include <unistd.h>\n',
    "src/transport/threads/queue.hpp": '#include "transport/shm/segment.hpp"\n',
    "src/bootstrap/world.hpp": '#include "transport/threads/queue.hpp"\n',
    "mpi/mpi_api.hpp": '#include "bootstrap/world.hpp"\n#include "mpi/abi/mpi.hpp"\n',
    "mpi/abi/mpi.hpp": "",
    "src/engine/engine.hpp": '#include "control/board.hpp"\n#include "data/backend.hpp"\n#include "transport/node.hpp"\n',
    "src/api/context.cpp": '#include "engine/engine.hpp"\n#include "data/cpu/lane.hpp"\n#include "mpi/mpi_api.hpp"\n',
    "src/optimizer/sgd.cpp": "#include <kolo/types.hpp>\n",
    "src/tools/kolo_info.cpp": "#include <kolo/context.hpp>\n#include <nlohmann/json.hpp>\n"
                               "#include <boost/program_options.hpp>\n",
    "tests/control/board_test.cpp": '#include "control/board.hpp"\n#include <gtest/gtest.h>\n',
    "tests/mpi/ring.cpp": "#include <kolo/mpi.hpp>\n#include <mpi.h>\n",
    "bench/kolo_bench.cpp": "#include <kolo/types.hpp>\n#include <mpi.h>\n",
    "bench/micro/board.cpp": '#include "control/board.hpp"\n#include <benchmark/benchmark.h>\n',
    "examples/hello/main.cpp": "#include <kolo/context.hpp>\n",
}

# One forbidden line each: file, its text, what the report must say.
FORBIDDEN = {
    "base includes core": ("src/base/a.hpp", '#include "core/topology.hpp"', "may not include core"),
    "kernels include core": ("src/data/kernels/a.hpp", '#include "core/plan.hpp"', "may not include core"),
    "core includes control": ("src/core/a.hpp", '#include "control/board.hpp"', "may not include control"),
    "core includes engine": ("src/core/a.hpp", '#include "engine/engine.hpp"', "may not include engine"),
    "control includes data": ("src/control/a.hpp", '#include "data/backend.hpp"', "may not include data"),
    "data includes control": ("src/data/a.hpp", '#include "control/board.hpp"', "may not include control"),
    "data/cpu includes control": ("src/data/cpu/a.hpp", '#include "control/board.hpp"', "may not include control"),
    "data/cuda includes control": ("src/data/cuda/a.hpp", '#include "control/board.hpp"', "may not include control"),
    "control includes its own implementation": ("src/control/a.hpp", '#include "control/tcp/link.hpp"',
                                                "may not include control/tcp"),
    "control/tcp includes data": ("src/control/tcp/a.hpp", '#include "data/backend.hpp"', "may not include data"),
    "data includes a backend": ("src/data/a.hpp", '#include "data/cpu/lane.hpp"', "may not include data/cpu"),
    "a backend includes another": ("src/data/cuda/device/a.cu", '#include "data/cpu/lane.hpp"',
                                   "may not include data/cpu"),
    "data/cpu includes a transport": ("src/data/cpu/a.hpp", '#include "transport/shm/segment.hpp"',
                                      "may not include transport/shm"),
    "transport includes bootstrap": ("src/transport/shm/a.hpp", '#include "bootstrap/world.hpp"',
                                     "may not include bootstrap"),
    "shm includes threads": ("src/transport/shm/a.hpp", '#include "transport/threads/queue.hpp"',
                             "may not include transport/threads"),
    "mpi includes control/tcp": ("mpi/a.hpp", '#include "control/tcp/link.hpp"', "may not include control/tcp"),
    "by a relative path": ("src/data/a.hpp", '#include "../transport/shm/segment.hpp"', "may not include transport/shm"),
    "in angle brackets": ("src/data/a.hpp", "#include <transport/shm/segment.hpp>", "may not include transport/shm"),
    "that does not exist": ("src/data/a.hpp", '#include "transport/absent.hpp"', "may not include transport"),
    "that does not exist, within a module": ("src/data/cpu/a.hpp", '#include "transport/shm/absent.hpp"',
                                           "may not include transport/shm"),
    "by its path from the root": ("src/data/a.hpp", '#include "src/transport/shm/segment.hpp"',
                                  "may not include transport/shm"),
    "engine includes a transport": ("src/engine/a.hpp", '#include "transport/shm/segment.hpp"',
                                    "may not include transport/shm"),
    "engine includes a backend": ("src/engine/a.hpp", '#include "data/cpu/lane.hpp"', "may not include data/cpu"),
    "engine includes bootstrap": ("src/engine/a.hpp", '#include "bootstrap/world.hpp"', "may not include bootstrap"),
    "engine includes mpi": ("src/engine/a.hpp", '#include "mpi/mpi_api.hpp"', "may not include mpi"),
    "engine includes api": ("src/engine/a.hpp", '#include "api/context.hpp"', "may not include api"),
    "api includes optimizer": ("src/api/a.hpp", '#include "optimizer/sgd.hpp"', "may not include optimizer"),
    "optimizer includes base": ("src/optimizer/a.hpp", '#include "base/env.hpp"', "may not include base"),
    "optimizer includes api": ("src/optimizer/a.hpp", '#include "api/context.hpp"', "may not include api"),
    "tool includes internals": ("src/tools/a.cpp", '#include "base/env.hpp"', "may not include base"),
    "example includes internals": ("examples/hello/a.cpp", '#include "control/board.hpp"', "may not include control"),
    "benchmark includes internals": ("bench/a.cpp", '#include "control/board.hpp"', "may not include control"),
    "library includes tests": ("src/engine/a.hpp", '#include "tests/support/world.hpp"', "may not include tests"),
    "public includes internal": ("include/kolo/a.hpp", '#include "control/board.hpp"', "includes the internal"),
    "public includes adapter": ("include/kolo/a.hpp", "#include <kolo/mpi.hpp>", "adapter"),
    "public includes mpi": ("include/kolo/a.hpp", "#include <mpi.h>", "of mpi"),
    "public includes cuda": ("include/kolo/a.hpp", "#include <cuda_runtime.h>", "of cuda"),
    "public includes boost": ("include/kolo/a.hpp", "#include <boost/container/vector.hpp>", "of boost.container"),
    "public includes hwloc": ("include/kolo/a.hpp", "#include <hwloc.h>", "of hwloc"),
    "public includes highway": ("include/kolo/a.hpp", "#include <hwy/highway.h>", "of highway"),
    "public includes nlohmann": ("include/kolo/a.hpp", "#include <nlohmann/json.hpp>", "of nlohmann"),
    "public includes C++20": ("include/kolo/a.hpp", "#include <span>", "not of C++17"),
    "public includes the system": ("include/kolo/a.hpp", "#include <unistd.h>", "not of C++17"),
    "a header for C includes C++": ("include/kolo/a.h", "#include <vector>", "a header for C"),
    "cuda adapter includes mpi": ("include/kolo/cuda.hpp", "#include <mpi.h>", "of mpi"),
    "mpi.h in the engine": ("src/engine/a.cpp", "#include <mpi.h>", "of mpi"),
    "mpi.h in mpi, which has its own": ("mpi/a.cpp", "#include <mpi.h>", "of mpi"),
    "mpi.h in quotes": ("src/api/a.cpp", '#include "mpi.h"', "of mpi"),
    "asio outside control/tcp": ("src/control/a.cpp", "#include <boost/asio/io_context.hpp>", "of boost.asio"),
    "program_options in the library": ("src/api/a.cpp", "#include <boost/program_options.hpp>", "program_options"),
    "highway outside kernels": ("src/data/cpu/a.cpp", "#include <hwy/highway.h>", "of highway"),
    "hwloc outside the tools": ("src/transport/shm/a.cpp", "#include <hwloc.h>", "of hwloc"),
    "nlohmann in the library": ("src/engine/a.cpp", "#include <nlohmann/json.hpp>", "of nlohmann"),
    "gtest in the library": ("src/engine/a.cpp", "#include <gtest/gtest.h>", "of googletest"),
    "a mutex that clang does not check": ("src/engine/a.hpp", "#include <mutex>", "base/mutex.hpp"),
    "a condition variable of such": ("mpi/a.cpp", "#include <condition_variable>", "base/mutex.hpp"),
    "an unknown library": ("src/engine/a.cpp", "#include <fmt/format.h>", "does not know"),
    "ranges": ("src/engine/a.cpp", "#include <ranges>", "does not know"),
    "spaces in the directive": ("src/data/a.hpp", '  #  include   "transport/shm/segment.hpp"',
                                "may not include transport/shm"),
    "a computed include": ("src/data/a.hpp", "#include HEADER_NAME", "computed include"),
    "getenv in the engine": ("src/engine/a.cpp", 'auto x = std::getenv("X");', "calls getenv"),
    "secure_getenv in mpi": ("mpi/a.cpp", 'auto x = secure_getenv("X");', "calls secure_getenv"),
    "stod in the engine": ("src/engine/a.cpp", "auto x = std::stod(text);", "uses stod, which obeys"),
    "strtod in core": ("src/core/a.cpp", "auto x = ::strtod(text, nullptr);", "uses strtod, which obeys"),
    "ostringstream in data": ("src/data/a.cpp", "std::ostringstream text;", "uses ostringstream, which obeys"),
    "printf of a float in mpi": ("mpi/a.cpp", 'std::snprintf(to, n,\n "%d of %.4g s", 1, x);', "uses printf of a float"),
    "getenv in a public header": ("include/kolo/a.hpp", 'inline auto x = ::getenv("X");', "calls getenv"),
    "open in the engine": ("src/engine/a.cpp", "int fd = ::open(path.c_str(), O_RDONLY);", "opens a file by ::open"),
    "an output stream in api": ("src/api/a.cpp", "std::ofstream(path) << 1;", "opens a file by ofstream"),
    "fopen in mpi": ("mpi/a.cpp", 'auto* file = std::fopen(path, "w");', "opens a file by fopen"),
    "rename in a client": ("src/libtorch/a.cpp", "std::rename(from, to);", "opens a file by std::rename"),
    "open of a device": ("src/launch/a.cpp", 'int fd = ::open("/dev/shm", O_RDONLY);', "opens a file by ::open"),
    "a file in no module": ("src/stray/a.cpp", "int x;", "in no module"),
}

PAGE = "docs/architecture.md"
PICTURE = """# Architecture

```mermaid
flowchart TB
  users["tools, examples<br/><i>users</i>"]
  clients["optimizer"]
  api["api<br/><i>implements the public headers</i>"]
  engine["engine"]
  control["control"]
  data["data"]
  transport["transport"]
  starts["bootstrap, mpi"]
  base["core, base"]
  public["public"]
  users --> public
  clients --> public
  api --> engine --> data --> transport --> base --> public
  api --> starts --> transport
  engine --> control --> base
```
"""
# Each a change of the picture, and what the report must say.
FALSE_PICTURES = {
    "no way": ("  engine --> control --> base\n", "  control --> base\n", "no way from engine to control"),
    "an arrow for nothing": ("  users --> public\n", "  users --> public\n  users --> clients\n",
                             "the arrow from users to clients"),
    "no box": ("core, base", "base", "no box for core"),
}

HARMLESS = {
    "in a line comment": ("src/data/a.hpp", '// #include "transport/shm/segment.hpp" and getenv("X")\n'),
    "in a block comment": ("src/data/a.hpp", '/*\n#include "transport/shm/segment.hpp"\n getenv("X") */\n'),
    "in a string": ("src/data/a.hpp", 'auto s = "getenv";\n'),
    "printf of whole numbers": ("src/data/a.cpp", 'std::snprintf(to, n, "%d: %016lx: %s, a fifth", a, b, c);\n'),
    "in a raw string": ("src/data/a.hpp", 'auto s = R"x(\n#include "transport/shm/segment.hpp"\n)x";\n'),
    "what the system has": ("src/launch/a.cpp", 'int a = ::open("/dev/null", O_RDWR);\nstd::ifstream b("/proc/" + pid);\n'),
    "open of something else": ("src/data/a.cpp", "void Run::open(int a) { lengths_.open(a); }\n#include <fstream>\n"),
    "open where it belongs": ("src/base/files.cpp", "int fd = ::open(path, flags);\n"),
    "part of another word": ("src/data/a.hpp", "int my_getenv_count;\n"),
    "a digit separator": ("src/data/a.hpp", "int n = 1'000;\n#include <vector>\nint m = 2'000;\n"),
}


def run_here(root):
    """As a program, but for what starting one takes."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), \
            mock.patch.object(sys, "argv", [check_layers.__file__, "--root", root]):
        code = check_layers.main()
    return code, out.getvalue(), err.getvalue()


def run_as_program(root):
    result = subprocess.run([sys.executable, check_layers.__file__, "--root", root], capture_output=True, text=True,
                            check=False)
    return result.returncode, result.stdout, result.stderr


def run(files, how=run_here):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            file = Path(root) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return how(root)


class LayersTest(unittest.TestCase):
    def test_clean_house_passes(self):
        for how in (run_here, run_as_program):
            code, out, err = run(CLEAN, how)
            self.assertEqual((code, err), (0, ""), out)
            self.assertEqual(out, f"{len(CLEAN)} files read, 0 violations\n")

    def test_each_forbidden_line_is_reported_with_its_place(self):
        for name, (path, line, says) in FORBIDDEN.items():
            with self.subTest(name):
                code, out, err = run({**CLEAN, path: f"// first line\n{line}\n"})
                self.assertEqual((code, err), (1, ""), out)
                where = f"{path}:1:" if says == "in no module" else f"{path}:2:"
                reports = out.splitlines()
                self.assertEqual(len(reports), 2, out)
                self.assertTrue(reports[0].startswith(where), out)
                self.assertIn(says, reports[0])

    def test_what_only_looks_like_code_passes(self):
        for name, (path, text) in HARMLESS.items():
            with self.subTest(name):
                code, out, err = run({**CLEAN, path: text})
                self.assertEqual((code, err), (0, ""), out)

    def test_the_picture_says_what_is_included(self):
        code, out, err = run({**CLEAN, PAGE: PICTURE})
        self.assertEqual((code, err), (0, ""), out)
        for name, (true, false, says) in FALSE_PICTURES.items():
            with self.subTest(name):
                code, out, err = run({**CLEAN, PAGE: PICTURE.replace(true, false)})
                self.assertEqual((code, err), (1, ""), out)
                self.assertIn(says, out)

    def test_an_empty_tree_is_no_success(self):
        for how in (run_here, run_as_program):
            code, out, _ = run({"README.md": ""}, how)
            self.assertEqual(code, 1, out)


if __name__ == "__main__":
    unittest.main()
