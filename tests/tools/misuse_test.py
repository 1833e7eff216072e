#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles misuse.cpp and looks whether each of its wrong lines is an error that says what to do.

usage: misuse_test.py FOLDER COMPILER...
"""

import os
import re
import subprocess
import sys
from pathlib import Path

BEGINNING = re.compile(r"In file included from |\S+: In |\S+:\d+:\d+: error: ")


def messages_in(said):
    """Each error with what stands before and behind it that belongs to it."""
    messages = [""]
    for line in said.splitlines(keepends=True):
        if BEGINNING.match(line) and " error: " in messages[-1]:
            messages.append("")
        messages[-1] += line
    return messages


def main():
    source, compiler = Path(sys.argv[1]) / "misuse.cpp", sys.argv[2:]
    all_errors = ["-ferror-limit=0"] if "clang" in Path(compiler[0]).name else []
    command = [*compiler, "-std=c++17", "-Wall", "-Werror", *all_errors, "-fsyntax-only", str(source)]
    said = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    messages = messages_in(said.stderr)
    missing = 0
    for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), 1):
        wanted = re.search(r"// says: (.*)", line)
        about = [message for message in messages if f"misuse.cpp:{number}:" in message]
        if wanted and not any(re.search(wanted.group(1), message) for message in about):
            print(f"misuse.cpp:{number}: no error that says '{wanted.group(1)}':", "".join(about) or "none at all")
            missing += 1
    return missing


if __name__ == "__main__":
    sys.exit(main())
