#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every script, and every part of one, says what it does, and refuses a flag that it does not have in one line, before it
does anything.

    scripts_test.py REPOSITORY
"""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(sys.argv.pop(1)).resolve() / "scripts"


def programs_in(folder):
    return sorted(path for path in folder.iterdir() if path.is_file() and os.access(path, os.X_OK))


def calls():
    """How each is called: [words]."""
    for command in programs_in(SCRIPTS):
        parts = SCRIPTS / "internal" / command.name
        yield [str(command)]
        if parts.is_dir():
            yield from ([str(command), part.name] for part in programs_in(parts))
    yield [str(SCRIPTS / "internal/figures")]


def run(*words):
    with tempfile.TemporaryDirectory() as empty:
        return subprocess.run(words, cwd=empty, capture_output=True, text=True, timeout=60, check=False)


class Scripts(unittest.TestCase):
    def test_say_what_they_do(self):
        for call in calls():
            with self.subTest(call):
                said = run(*call, "--help")
                self.assertEqual((said.returncode, said.stderr), (0, ""))
                self.assertIn("usage: scripts/", said.stdout)
                self.assertEqual(run(*call, "-h").stdout, said.stdout)

    def test_refuse_what_they_do_not_know(self):
        for call in calls():
            with self.subTest(call):
                said = run(*call, "--no-such-flag")
                self.assertEqual((said.returncode, said.stdout), (2, ""))
                self.assertEqual(said.stderr.count("\n"), 1, said.stderr)
                self.assertRegex(said.stderr, r"^[\w -]+: .+\n$")

    def test_flags_take_values_in_both_spellings_and_refuse_bad_ones(self):
        for value in (["--seeds=none"], ["--seeds", "none"]):
            said = run(str(SCRIPTS / "demo"), *value)
            self.assertEqual((said.returncode, said.stderr),
                             (2, "demo: --seeds needs a number from 1, not 'none'\n"))
        self.assertEqual(run(str(SCRIPTS / "demo"), "--build-dir").stderr, "demo: --build-dir needs a value (see --help)\n")
        self.assertEqual(run(str(SCRIPTS / "demo"), "digits").stderr,
                         "demo: there is nothing to do with 'digits' (see --help)\n")


unittest.main()
