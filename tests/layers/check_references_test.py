#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the checker of references: each kind of reference to nothing, planted in a tree of its own, must be reported."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CLEAN = {
    "README.md": "# Kolo\n\nSee [words](docs/architecture.md#words), [this](#kolo) and `src/base/a.hpp` in `src/base/`.\n\n"
                 "`scripts/test` and `scripts/test chaos --why`.\n```\nscripts/run it\n```\n",
    "docs/architecture.md": "# Architecture\n\n## Words\n\n## The way of a gradient\n\n```\n# no heading\n```\n\n"
                            "| what happens | function | file |\n|---|---|---|\n| it runs | `A::run` | `src/base/a.hpp` |\n",
    "src/base/a.hpp": "// What runs (docs/architecture.md, \"Words\").\n//\n// Sleeping. It does (base/a.hpp; and\n"
                      "// a.hpp). A report names \"src/x.cpp:12\", and goes to OUT/report.md.\nstruct A { void run(); };\n",
    "src/base/b.cpp": "#include \"base/a.hpp\"\nint b;  // as a.hpp, \"Sleeping\", says\n",
    "scripts/run": "#!/bin/sh\n# See docs/architecture.md.\n",
    "scripts/test": "#!/bin/sh\n",
    "scripts/internal/test/chaos": "#!/bin/sh\n",
}

# File, a line that is added to it, and what the report must say.
WRONG = {
    "a link to no file": ("README.md", "[here](docs/none.md)", "README.md:9: there is no docs/none.md"),
    "a link to no heading": ("README.md", "[here](docs/architecture.md#layers)",
                             "README.md:9: docs/architecture.md has no heading #layers"),
    "a link to no heading of its own": ("README.md", "[here](#words)", "README.md:9: README.md has no heading #words"),
    "a link to what only looks like a heading": ("docs/architecture.md", "[here](#no-heading)",
                                                 "docs/architecture.md:14: docs/architecture.md has no heading #no-heading"),
    "a name of no file": ("README.md", "`src/base/none.cpp`", "README.md:9: there is no src/base/none.cpp"),
    "a command that is none": ("README.md", "```\nscripts/chaos --why\n```", "README.md:10: there is no scripts/chaos"),
    "a part that a command has not": ("README.md", "```\nscripts/test fuzz\n```",
                                      "README.md:10: there is no scripts/test fuzz"),
    "a comment on no file": ("src/base/b.cpp", "// See base/none.hpp.", "src/base/b.cpp:2: there is no base/none.hpp"),
    "a script's comment on no file": ("scripts/run", "# See none.md.", "scripts/run:2: there is no none.md"),
    "a comment on no heading": ("src/base/b.cpp", "// (docs/architecture.md,\n// \"Layers\")",
                                "src/base/b.cpp:2: docs/architecture.md has no \"Layers\""),
    "a comment on no paragraph": ("src/base/b.cpp", "// (a.hpp, \"Waking\")", "src/base/b.cpp:2: a.hpp has no \"Waking\""),
    "a function elsewhere": ("docs/architecture.md", "| it ends | `A::end` | `src/base/a.hpp` |",
                             "docs/architecture.md:14: A::end is in none of src/base/a.hpp"),
    "a question with two answers": ("docs/architecture.md", "## Where is it decided?\n| it? | `A::run` | `src/base/a.hpp`, "
                                    "`src/base/b.cpp` |",
                                    "docs/architecture.md:15: a question is answered by one file, and by functions in it"),
    "a question with no function": ("docs/architecture.md", "## Where is it decided?\n| it? | running | `src/base/a.hpp` |",
                                    "docs/architecture.md:15: a question is answered by one file, and by functions in it"),
}


def run(tree):
    """Exit status and lines."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in tree.items():
            file = Path(root) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        checker = Path(__file__).with_name("check_references.py")
        done = subprocess.run([sys.executable, checker, "--root", root], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines() + done.stderr.splitlines()


class References(unittest.TestCase):
    def test_what_exists_passes(self):
        self.assertEqual(run(CLEAN), (0, ["7 files, 0 references to what does not exist"]))

    def test_every_kind_is_reported(self):
        for name, (path, line, says) in WRONG.items():
            with self.subTest(name):
                tree = {**CLEAN, path: CLEAN[path] + line + "\n"}
                self.assertEqual(run(tree), (1, [says, "7 files, 1 references to what does not exist"]))


if __name__ == "__main__":
    unittest.main()
