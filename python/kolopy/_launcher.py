# SPDX-License-Identifier: Apache-2.0
"""kolo-run: runs a program as several processes of this machine.

    kolo-run -np 4 python3 train.py
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Becomes the program that lies beside the library."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kolo-run")
    try:
        os.execv(program, ["kolo-run", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"kolo-run: {program} cannot be run: {error.strerror}")


if __name__ == "__main__":
    main()
