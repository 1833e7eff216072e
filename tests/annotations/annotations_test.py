#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that clang refuses what the annotations of src/base/mutex.hpp forbid.

usage: annotations_test.py COMPILER [KOLO_INCLUDE_DIRECTORY...]
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMPILER, *INCLUDES = sys.argv[1:]
FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wthread-safety", "-Werror",
         *(f"-I{folder}" for folder in (ROOT / "src", ROOT / "include", ROOT, *INCLUDES))]

# A file of the library, a lock that one of its functions takes, and what the compiler says without it.
FORGOTTEN = ("src/transport/regions.cpp",
             "std::size_t Regions::size() const {\n  const base::MutexLock lock(mutex_);\n",
             "reading variable 'entries_' requires holding mutex 'mutex_'")


def compile_text(text, name="file.cpp"):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(text, encoding="utf-8")
        done = subprocess.run([COMPILER, *FLAGS, path], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


class AnnotationsTest(unittest.TestCase):
    def test_each_violation_is_refused_and_nothing_else(self):
        file = ROOT / "tests" / "annotations" / "violations.cpp"
        done = subprocess.run([COMPILER, *FLAGS, "-Xclang", "-verify", file], capture_output=True, text=True,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_lock_that_is_forgotten_in_the_library_is_noticed(self):
        path, lock, says = FORGOTTEN
        text = (ROOT / path).read_text(encoding="utf-8")
        self.assertEqual(text.count(lock), 1, "the test must be given another lock to forget")
        self.assertEqual(compile_text(text), (0, ""))
        code, said = compile_text(text.replace(lock, lock.split("\n", maxsplit=1)[0] + "\n"))
        self.assertNotEqual(code, 0)
        self.assertIn(says, said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
