#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when a page or a comment refers to a file or a heading that does not exist.

Reads the Markdown pages and the comments of sources, and reports
  - in a page: a link to a file, or to a heading (`#anchor`) of a page, that is not there; and a name in backquotes that
    begins with a folder of the repository and is none of its files or folders;
  - in a page, in backquotes or at the beginning of a line of code: a command or a part of one (`scripts/test chaos`) that
    scripts/ does not have;
  - in a comment: a file's name (`docs/x.md`, `control/board.hpp`, `joins.hpp`) that no file of the repository has; and
    a heading in quotes behind the name of a file (`docs/x.md, "Heading"`) that this file does not have: a heading of a
    page, or in a source a line of a comment that begins with it;
  - in the tables of docs/architecture.md ("The way of a gradient", "Where is it decided?"): a function that the file
    beside it does not have; and a question that one file does not answer.

usage: check_references.py [--root DIR]     exit status 0: clean, 1: violations, one a line on stdout
"""

import argparse
import re
import sys
from pathlib import Path

FOLDERS = ("include", "src", "mpi", "python", "tests", "bench", "examples", "scripts", "cmake", "docs")
SOURCES = (".hpp", ".cpp", ".h", ".c", ".cu", ".py", ".cmake", ".txt", "")
QUESTIONS = "Where is it decided?"
# What a build makes, and comments speak of.
MADE = {"kolo/config.hpp"}
# Not `OUT/gpu-check.md`, whose place the user names; not "src/x.cpp:12", an example of what a program says.
NAMED_FILE = r"(?<![\w./>-])(?![A-Z]+/)((?:[\w.-]+/)*[A-Za-z][\w-]*\.(?:hpp|cpp|md))\b(?!\.in|:\d)"
COMMAND = re.compile(r"(?:`|^)scripts/([\w-]+)(?: ([a-z][\w-]*))?", re.M)
FENCED = re.compile(r"^ *```.*?^ *```$", re.S | re.M)


def files_of(root):
    """All files, as paths within the repository."""
    tops = [path for path in root.iterdir() if path.is_file()]
    below = [path for folder in FOLDERS for path in (root / folder).rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix() for path in tops + below if "__pycache__" not in path.parts}


def headings_of(text):
    return re.findall(r"^#+ +(.*?) *$", FENCED.sub("", text), re.M)


def anchors_of(text):
    """As GitHub makes them; and those that the page names itself."""
    plain = [re.sub(r"[^\w -]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", one)) for one in headings_of(text)]
    return {one.lower().replace(" ", "-") for one in plain} | set(re.findall(r'<a id="([^"]+)">', text))


def comments_of(path, text):
    """(line, text) of each block of comments; lines that follow one another are one."""
    mark = r"//[/!]?<?" if path.endswith((".hpp", ".cpp", ".cu", ".h", ".c")) else "#"
    block, begin, last = [], 0, 0
    for number, line in enumerate(text.split("\n"), 1):
        found = re.search(rf"(?:^|\s){mark}(?: +(.*))?$", line)
        if not found:
            continue
        if block and number != last + 1:
            yield begin, "\n".join(block)
            block = []
        if not block:
            begin = number
        block.append(found.group(1) or "")
        last = number
    if block:
        yield begin, "\n".join(block)


class References:
    def __init__(self, root):
        self.root = root
        self.files = files_of(root)
        self.texts = {}
        self.wrong = []

    def text_of(self, path):
        if path not in self.texts:
            self.texts[path] = (self.root / path).read_text(encoding="utf-8")
        return self.texts[path]

    def report(self, path, line, what):
        self.wrong.append(f"{path}:{line}: {what}")

    def named(self, name, beside):
        """The files that a name may mean: those that end with it, the nearest first."""
        while name.startswith("../"):
            name = name[3:]
        found = [path for path in self.files if path == name or path.endswith("/" + name)]
        folder = str(Path(beside).parent)
        return sorted(found, key=lambda path: (not path.startswith(folder), path))

    def has_heading(self, path, heading):
        text = self.text_of(path)
        if path.endswith(".md"):
            return heading in headings_of(text)
        return re.search(r"^\s*//+[ -]*" + re.escape(heading) + r"\b", text, re.M) is not None

    def check_page(self, page):
        text = FENCED.sub(lambda block: "\n" * block.group().count("\n"), self.text_of(page))

        def line_of(found):
            return text.count("\n", 0, found.start()) + 1

        for found in re.finditer(r"`((?:" + "|".join(FOLDERS) + r")/[\w./-]+)`", text):
            if not (self.root / found[1]).exists():
                self.report(page, line_of(found), f"there is no {found[1]}")
        for found in re.finditer(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", text):
            if "://" in found[1]:
                continue
            target = self.root / page if not found[1] else (self.root / page).parent / found[1]
            if not target.exists():
                self.report(page, line_of(found), f"there is no {found[1]}")
            elif found[2] and target.suffix == ".md":
                if found[2] not in anchors_of(target.read_text(encoding="utf-8")):
                    self.report(page, line_of(found), f"{found[1] or page} has no heading #{found[2]}")

    def check_commands(self, page):
        for found in COMMAND.finditer(self.text_of(page)):
            command, part = found.groups()
            parts = f"scripts/internal/{command}/"
            if any(path.startswith(parts) for path in self.files):
                wanted = [f"scripts/{command}", *([parts + part] if part else [])]
            else:
                wanted = [f"scripts/{command}"]
            if not all((self.root / path).exists() for path in wanted):
                line = self.text_of(page).count("\n", 0, found.start()) + 1
                self.report(page, line, f"there is no {found[0].lstrip('`')}")

    def check_comments(self, path):
        for line, comment in comments_of(path, self.text_of(path)):
            joined = re.sub(r"\s+", " ", comment)
            for found in re.finditer(NAMED_FILE + r'(?:,? \(?"([A-Z][^"]+)")?', joined):
                name, heading = found[1], found[2]
                if name in MADE:
                    continue
                files = self.named(name, path)
                if not files:
                    self.report(path, line, f"there is no {name}")
                elif heading and not any(self.has_heading(file, heading) for file in files):
                    self.report(path, line, f'{name} has no "{heading}"')

    def check_tables_of_functions(self):
        """Rows of docs/architecture.md that name functions and files. A question has one file."""
        page, heading = "docs/architecture.md", ""
        if page not in self.files:
            return
        for number, line in enumerate(self.text_of(page).split("\n"), 1):
            heading = line.lstrip("# ") if line.startswith("#") else heading
            cells = [cell.strip() for cell in line.split("|")]
            if len(cells) != 5:
                continue
            functions = re.findall(r"`([\w:~]+)`", cells[2])
            files = re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w/.-]+)`", cells[3])
            if heading == QUESTIONS and cells[1] not in ("question", "---") and not (functions and len(files) == 1):
                self.report(page, number, "a question is answered by one file, and by functions in it")
            if not files or not functions or not all(file in self.files for file in files):
                continue
            for function in functions:
                name = function.split("::")[-1]
                if not any(re.search(rf"\b{name}\b", self.text_of(file)) for file in files):
                    self.report(page, number, f"{function} is in none of {', '.join(files)}")

    def check(self):
        for path in sorted(self.files):
            suffix = Path(path).suffix
            if suffix == ".md":
                self.check_page(path)
                self.check_commands(path)
            elif suffix in SOURCES and path.split("/")[0] in FOLDERS and not path.startswith("tests/layers/"):
                self.check_comments(path)
        self.check_tables_of_functions()
        return self.wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    references = References(parser.parse_args().root)
    wrong = references.check()
    print("\n".join([*wrong, f"{len(references.files)} files, {len(wrong)} references to what does not exist"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
