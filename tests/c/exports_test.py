# SPDX-License-Identifier: Apache-2.0
"""What libkolo.so exports: every function of the headers for C, the public C++ names, and nothing else. And whether
the programs of wrong arguments call every function.

usage: exports_test.py REPOSITORY LIBKOLO
"""

import re
import subprocess
import sys
from pathlib import Path

FUNCTION = re.compile(r"^KOLO_API\b[^;]*?\b(kolo_\w+)\(", re.M)
NOT_WRONG = {"kolo_last_error"}  # has no arguments


def main():
    repository, library = Path(sys.argv[1]), sys.argv[2]
    declared = {name for header in ("kolo.h", "dlpack.h", "kolo_mpi.h")
                for name in FUNCTION.findall((repository / "include/kolo" / header).read_text(encoding="utf-8"))}
    listed = subprocess.run(["nm", "-DC", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    exported = {line.split(" ", 2)[2] for line in listed.splitlines()}
    of_c = {name for name in exported if re.fullmatch(r"\w+", name)}
    of_cpp = re.compile(r"((typeinfo|typeinfo name|vtable) for )?(non-virtual thunk to )?.*?\bkolo::")
    strangers = {name for name in exported - of_c if not of_cpp.match(name)}
    called = {name for program in ("arguments.c", "mpi.c")
              for name in re.findall(r"\bkolo_\w+(?=[(,])", (repository / "tests/c" / program).read_text(encoding="utf-8"))}
    wrong = [(declared - of_c, "declared, and not exported"), (of_c - declared, "exported, and not declared"),
             (strangers, "exported, and none of Kolo's"), (declared - called - NOT_WRONG, "not called with wrong arguments")]
    for names, what in wrong:
        for name in sorted(names):
            print(f"{what}: {name}")
    print(f"{len(declared)} functions of C, {len(exported)} exported symbols")
    return 1 if any(names for names, _ in wrong) or not declared else 0


if __name__ == "__main__":
    sys.exit(main())
