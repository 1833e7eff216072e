#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the man page of a tool, from what the tool says of itself.

usage: man_page.py TOOL OUT [TOOL...]

  TOOL   the program, which has --help and --version
  OUT    the page, packed: kolo-run.1.gz
  TOOL   the names of the others, for SEE ALSO

The help's first sentence is the name's line, its usage or first examples the synopsis. A column of terms with a text each
becomes a list, other indented lines stay as they are, and the rest is filled. (help2man takes examples for terms, and
puts the exit status among the flags.)
"""
import gzip
import re
import subprocess
import sys
from pathlib import Path


def said_by(tool, flag):
    return subprocess.run([tool, flag], check=True, capture_output=True, text=True, timeout=60).stdout


def roff(text):
    """Text for troff, in which a line may begin with anything."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in text.split("\n"))


def column_of(lines):
    """Where the texts beside a column of terms begin; None where there is no such column."""
    found = [len(match[0]) for line in lines if (match := re.match(r" {2,6}\S(?:.*?\S)??  +(?=\S)", line))]
    continued = [len(line) - len(line.lstrip()) for line in lines if re.match(r" {7,}", line)]
    if not found and not continued:
        return None
    places = set(found) | set(continued)
    return places.pop() if len(places) == 1 else None


def listed(lines, column):
    """Terms and their texts."""
    out = []
    for line in lines:
        term, text = line[:column].strip(), line[column:].strip()
        if len(line) > column > 0 and line[column - 1] != " ":
            term, text = line.strip(), ""  # a term as long as the column; its text follows
        if term:
            term = re.sub(r"^(-\w) \[ (--\S+) \]", r"\1, \2", term)  # as Boost writes it
            out += [".TP", f"\\fB{roff(term)}\\fR"]
        if text:
            out.append(roff(text))
    return out


def verbatim(lines):
    return [".PP", ".nf", roff("\n".join(lines)), ".fi"]


def body_of(block):
    """A block of the help: the lines between two empty ones."""
    out, lines = [], list(block)
    exits = re.match(r"exit (status|codes?): *(.*)", lines[0], re.I)
    if exits:
        text = " ".join([exits[2], *(line.strip() for line in lines[1:])])
        return [".SH EXIT STATUS", roff(text[:1].upper() + text[1:])]
    if re.fullmatch(r"\w+:", lines[0]):
        out.append(f".SH {lines.pop(0)[:-1].upper()}")
    if not any(line.startswith("  ") for line in lines):
        return [*out, ".PP", roff("\n".join(lines))]
    column = column_of(lines)
    return out + (listed(lines, column) if column and lines[0].startswith("  ") else verbatim(lines))


def page_of(tool, others):
    name, version = said_by(tool, "--version").split()
    blocks = [block.split("\n") for block in re.split(r"\n\s*\n", said_by(tool, "--help").strip("\n"))]
    purpose = re.sub(rf"^{name}[^:]*: *", "", " ".join(blocks.pop(0))).rstrip(".")
    usage = re.sub(r"^usage:", "      ", "\n".join(blocks[0])).split("\n")
    out = [f'.TH {name.upper()} 1 "" "Kolo {version}" "Kolo"', ".SH NAME",
           f"{roff(name)} \\- {roff(purpose[:1].lower() + purpose[1:])}", ".SH SYNOPSIS"]
    if any(name in line for line in usage):
        blocks.pop(0)
        out += verbatim([line.strip() for line in usage])
    else:
        out += [f"\\fB{roff(name)}\\fR [flags]"]
    out.append(".SH DESCRIPTION")
    bodies = [body_of(block) for block in blocks]
    for body in sorted(bodies, key=lambda body: body[0] == ".SH EXIT STATUS"):
        out += body
    seen = [f"\\fB{roff(other)}\\fR(1)" for other in sorted(others) if other != name]
    out += [".SH SEE ALSO", ", ".join(seen)]
    # A description that begins with a heading is empty.
    text = "\n".join(out) + "\n"
    return re.sub(r"\.SH DESCRIPTION\n(?=\.SH )", "", text)


def main():
    tool, page, *others = sys.argv[1:]
    # Without a time, so that the same build makes the same file.
    Path(page).write_bytes(gzip.compress(page_of(tool, others).encode(), mtime=0))


main()
