# SPDX-License-Identifier: Apache-2.0
"""Wraps comments wider than 120 columns, and nothing else: what clang-format does with ReflowComments, but lists and
tables keep their hanging indents.

usage: wrap_comments.py FILE...
"""

import re
import sys
from pathlib import Path

WIDTH = 120
COMMENT = re.compile(r"^(?P<head>\s*(?:///<|///|//) *)(?P<text>.*)$")
# The start of a list entry: "- text", "1. text", "word    text".
ENTRY = re.compile(r"- |\d+\. |[\\@]|\S+(?: \S+)*?\s{2,}")


def wrap(lines):
    """Moves what is too wide into the next line of the same paragraph, or into a new line."""
    i = 0
    while i < len(lines):
        comment = COMMENT.match(lines[i])
        if len(lines[i]) > WIDTH and comment:
            head = comment["head"]
            cut = lines[i].rfind(" ", len(head), WIDTH + 1)
            if cut > len(head):
                rest = lines[i][cut + 1:]
                lines[i] = lines[i][:cut].rstrip()
                entry = ENTRY.match(comment["text"])
                head += " " * len(entry[0]) if entry else ""
                follower = COMMENT.match(lines[i + 1]) if i + 1 < len(lines) else None
                if follower and follower["head"] == head and follower["text"] and not ENTRY.match(follower["text"]):
                    lines[i + 1] = f"{head}{rest} {follower['text']}"
                else:
                    lines.insert(i + 1, head + rest)
        i += 1
    return lines


for name in sys.argv[1:]:
    text = Path(name).read_text(encoding="utf-8")
    wrapped = "\n".join(wrap(text.split("\n")))
    if wrapped != text:
        Path(name).write_text(wrapped, encoding="utf-8")
