# SPDX-License-Identifier: Apache-2.0
"""How the scripts in Python read their flags. The text at the head of a script is its help; what is wrong is one line."""

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INTERNAL = ROOT / "scripts/internal"
SCRIPT = Path(sys.argv[0]).resolve()
# As the user called it: scripts/test chaos is scripts/internal/test/chaos.
ME = " ".join(SCRIPT.relative_to(INTERNAL).parts) if SCRIPT.is_relative_to(INTERNAL) else SCRIPT.name


class Flags(argparse.ArgumentParser):
    def __init__(self, text):
        super().__init__(description=text.strip(), formatter_class=argparse.RawDescriptionHelpFormatter,
                         usage=argparse.SUPPRESS, add_help=False, allow_abbrev=False)
        self.add_argument("--help", "-h", action="store_true", help=argparse.SUPPRESS)

    def parse_args(self, args=None, namespace=None):
        if {"--help", "-h"} & set(sys.argv[1:] if args is None else args):
            print(self.description)
            sys.exit(0)
        return super().parse_args(args, namespace)

    def error(self, message):
        stop(f"{message} (see --help)")


def stop(why):
    """Ends the script: it could not do what was asked for."""
    print(f"{ME}: {why}", file=sys.stderr)
    sys.exit(2)


def release_tree(build_dir, *targets):
    """The build tree that the user names, or build/release with these programs, which are compiled."""
    if build_dir:
        return Path(build_dir).resolve()
    if subprocess.run([INTERNAL / "compile", *targets], check=False).returncode != 0:
        stop(f"{', '.join(targets)}: cannot be compiled")
    return ROOT / "build/release"
