#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every tool says its version and its purpose, and the pages name the version of this build.

usage: versions_test.py VERSION REPOSITORY TOOL...
"""

import re
import subprocess
import sys
import unittest
from pathlib import Path

VERSION, REPOSITORY, TOOLS = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
MINOR = VERSION.rpartition(".")[0]
# What a page says with the version in it, and which part of the version that is.
SAID = ((r"find_package\(kolo ([\d.]+)", MINOR), (r"libkolo\.so\.(\d[\d.]*\d)", MINOR), (r"libkolo(\d[\d.]*\d)", MINOR),
        (r"(?:kolopy|kolo_torch)-([\d.]+\d)", VERSION), (r"lib\w+-?(?:dev|tools|libtorch)?_([\d.]+\d)_", VERSION))


def run(*words, out=subprocess.PIPE):
    return subprocess.run(words, stdout=out, stderr=subprocess.PIPE, text=True, check=False, timeout=600)


class Tools(unittest.TestCase):
    def test_say_their_version(self):
        for tool in TOOLS:
            done = run(tool, "--version")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, f"{Path(tool).name} {VERSION}\n", ""))

    def test_say_what_they_do_and_how_to_call_them(self):
        for tool in TOOLS:
            done = run(tool, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""), tool)
            self.assertIn(Path(tool).name, done.stdout)
            self.assertIn("--version", done.stdout)


class Pages(unittest.TestCase):
    def test_name_this_version(self):
        for page in [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]:
            text = page.read_text(encoding="utf-8")
            for pattern, version in SAID:
                for found in re.finditer(pattern, text):
                    self.assertEqual(found[1], version, f"{page.name}: {found[0]}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
