# SPDX-License-Identifier: Apache-2.0
"""How the scripts in Python read their flags. The text at the head of a script is its help; what is wrong is one line."""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


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
    print(f"{Path(sys.argv[0]).name}: {why}", file=sys.stderr)
    sys.exit(2)
