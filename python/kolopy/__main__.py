# SPDX-License-Identifier: Apache-2.0
"""Where the parts of this kolopy lie, for programs in C and C++ that are built over it.

usage: python -m kolopy --cmake-dir | --pkg-config-dir | --include | --library | --version

cmake -B build "-Dkolo_DIR=$(python -m kolopy --cmake-dir)"
PKG_CONFIG_PATH=$(python -m kolopy --pkg-config-dir) pkg-config --cflags --libs kolo
"""

from __future__ import annotations

import os
import sys

import kolopy

ANSWERS = {
    "--cmake-dir": kolopy.get_cmake_dir,
    "--pkg-config-dir": lambda: os.path.normpath(os.path.join(kolopy.get_cmake_dir(), "..", "..", "pkgconfig")),
    "--include": kolopy.get_include,
    "--library": kolopy.get_library,
    "--version": lambda: f"kolopy {kolopy.__version__}",
    "--help": lambda: (__doc__ or "").strip(),
}


def main() -> None:
    """Answers one question."""
    if len(sys.argv) != 2 or sys.argv[1] not in ANSWERS:
        sys.exit(f"python -m kolopy: give one of {', '.join(ANSWERS)}")
    print(ANSWERS[sys.argv[1]]())


if __name__ == "__main__":
    main()
