# SPDX-License-Identifier: Apache-2.0
"""The tools that lie in this package, as commands: kolo-run -np 4 python3 train.py"""

from __future__ import annotations

import os
import sys

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")


def _become(name: str, *, script: bool = False) -> None:
    program = os.path.join(_FOLDER, name)
    words = [sys.executable, program] if script else [name]
    try:
        os.execv(sys.executable if script else program, [*words, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {program} cannot be run: {error.strerror}")


def run() -> None:
    """kolo-run"""
    _become("kolo-run")


def info() -> None:
    """kolo-info"""
    _become("kolo-info")


def why() -> None:
    """kolo-why"""
    _become("kolo-why")


def timeline() -> None:
    """kolo-timeline"""
    _become("kolo-timeline", script=True)
