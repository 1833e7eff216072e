#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when one name stands for two things in src: a reader who looks for it must find one place.

Reports
  - a file name that two folders have, unless SAME_FILES lists it, with the interface or the reason that makes them alike;
  - a class, struct or enum of a namespace in a header, or an enum of a class, whose name another header's has, too, unless
    SAME_TYPES lists it, with a reason;
  - an entry of these lists that nothing needs any more.

usage: check_names.py [--root DIR]     exit status 0: clean, 1: violations, one a line on stdout
"""

import argparse
import re
import sys
from collections import defaultdict
from pathlib import Path

# File names, without their suffix, that several folders may have, by the reason.
SAME_FILES = {
    "both implement the part of the API that include/kolo names so, in C++ and in C": ["context", "objects"],
    "C's functions, and what they are about": ["lightgbm"],
    "LibTorch's part of the API, and the same of the library": ["collectives"],
    "one implements the interface that the other declares": ["device"],
    "the message of a rank, of the engine, and of a client": ["messages"],
    "the ranks agree on something: names, requests, gradients": ["agreement"],
    "ranks of a mesh, and messages between any two": ["mesh"],
}

# Names of types that several headers may define, by the reason.
SAME_TYPES = {
    "a word that is always said with its class or namespace": [
        "Direction", "Kind", "Place", "Progress", "Stage", "Start", "State", "Writer"],
    "each party's part of one protocol: the engine, participants, relays, the sequencer": [
        "Departures", "Request", "Sequence", "Set", "Tensor"],
    "the same on a CPU, on a GPU and in a file, which no file uses together": [
        "Carrier", "Chunk", "Exchange", "Half", "Part", "Piece", "Reduction", "Region", "Scaling", "Segment"],
    "bytes between two ranks, and between processes that meet": ["Frame", "Record"],
    "of PyTorch or a vendor, beside Kolo's own": ["Call", "Event", "Origin", "OwnStream", "Work", "Worker"],
    "what a recorder says of it, beside the thing itself": ["Job"],
    "what the ranks' words come to, and what a recording's do": ["Verdict"],
}

COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|^ *#[^\n]*(?:\\\n[^\n]*)*', re.S | re.M)
TEXT = re.compile(r'"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'')
HEAD = re.compile(r"(?:^|[;{}>\s])(?:(?P<kind>enum class|enum|class|struct)\s+(?:KOLO_\w+(?:\([^()]*\))?\s+|alignas\([^)]*\)\s*)*"
                  r"(?P<name>\w+)\b(?!::)(?:\s+final)?(?:\s*:[^;{}]*)?|namespace\s*[\w:]*)\s*$")


def types_of(text):
    """(kind, name, names of the classes around it) of each type that a header defines."""
    text = TEXT.sub('""', COMMENT.sub("", text))
    around, begin = [], 0
    for at, c in enumerate(text):
        if c == "{":
            head = HEAD.search(text[begin:at])
            if head and head["name"] and None not in around:
                yield head["kind"], head["name"], [name for name in around if name]
            around.append(None if not head else head["name"] or "")
        elif c == "}" and around:
            around.pop()
        if c in "{};":
            begin = at + 1


class Names:
    def __init__(self, root):
        self.files, self.types = defaultdict(set), defaultdict(set)
        for path in sorted((root / "src").rglob("*")):
            if path.suffix not in (".hpp", ".cpp", ".cu"):
                continue
            name = path.relative_to(root).as_posix()
            self.files[path.stem].add(path.parent.relative_to(root).as_posix())
            if path.suffix == ".hpp":
                for kind, type_name, around in types_of(path.read_text(encoding="utf-8")):
                    if not around or kind.startswith("enum"):
                        self.types[type_name].add(name)

    def check(self, same_files, same_types):
        wrong = []
        for found, allowed, what in ((self.files, same_files, "the file name"), (self.types, same_types, "the type")):
            twice = {name for name, places in found.items() if len(places) > 1}
            listed = {name for names in allowed.values() for name in names}
            for name in sorted(twice - listed):
                wrong.append(f"{what} {name} is in {', '.join(sorted(found[name]))}: give each a name that says what it is, or "
                             "list it in tests/layers/check_names.py with the reason")
            for name in sorted(listed - twice):
                wrong.append(f"{what} {name} is not there twice any more: tests/layers/check_names.py need not list it")
        return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    names = Names(parser.parse_args().root)
    wrong = names.check(SAME_FILES, SAME_TYPES)
    print("\n".join([*wrong, f"{len(names.files)} names of files, {len(names.types)} of types, {len(wrong)} wrong"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
