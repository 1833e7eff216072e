#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts together the folder of which mkdocs makes the site.

usage: site_pages.py REPOSITORY FOLDER

FOLDER gets mkdocs.yml and pages/: the pages of docs/, the other pages and files that they refer to, and the sources of
examples as pages. Doxygen's reference is expected in FOLDER/pages/api: links to headers become links into it. A link that
leads nowhere stays, and mkdocs names it.

Python's Markdown wants an empty line before a list and four spaces for a list in a list; GitHub's does not.
"""
import os
import re
import shutil
import sys
from pathlib import Path

# Pages from outside docs/, and where they go.
OTHERS = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md",
          "bench/README.md": "bench.md", "tests/emulated_cuda/README.md": "emulated-cuda.md", "README.md": "index.md",
          "LICENSE": "LICENSE.txt"}
LANGUAGES = {".cpp": "cpp", ".hpp": "cpp", ".c": "c", ".h": "c", ".py": "python", ".txt": "cmake"}


class Site:
    def __init__(self, root, pages):
        self.root, self.pages = root, pages
        self.examples = {}  # folder in the repository: its page

    def place_of(self, file):
        """Where a file of the repository is on the site; None where it is not."""
        name = file.relative_to(self.root).as_posix()
        if name in OTHERS:
            return OTHERS[name]
        if name.startswith("docs/") and file.is_file():
            return name[len("docs/site/" if name.startswith("docs/site/") else "docs/"):]
        if name == "include/kolo":
            return "api/files.html"
        if name.startswith("include/kolo/"):
            return "api/" + file.name.replace("_", "__").replace(".", "_8") + ".html"
        if name.startswith("examples/"):
            folder = file if file.is_dir() else file.parent
            self.examples[folder] = f"examples/{folder.name}.md"
            return self.examples[folder]
        return None

    def linked(self, text, source, place):
        """The text of a page, with links that fit the site."""

        def fitting(match):
            target, hash_, anchor = match[2].partition("#")
            if not target or re.match(r"\w+:", target):
                return match[0]
            file = Path(os.path.normpath(source.parent / target))
            found = self.place_of(file) if file.exists() and file.is_relative_to(self.root) else None
            if found is None:
                return match[0]
            return f"{match[1]}({os.path.relpath(found, Path(place).parent)}{hash_}{anchor})"

        parts = re.split(r"(```.*?\n\s*```|`[^`\n]*`)", text, flags=re.S)  # code has no links
        # A link's words may be code, so links are looked for in the text around it as well.
        whole = "".join(part if i % 2 == 0 or not part.startswith("```") else f"\0{i}\0" for i, part in enumerate(parts))
        whole = re.sub(r"(\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)", fitting, whole)
        return re.sub("\0(\\d+)\0", lambda match: parts[int(match[1])], whole)

    def add(self, source, place):
        to = self.pages / place
        to.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix != ".md":
            shutil.copy(source, to)
            return
        text = source.read_text(encoding="utf-8")
        to.write_text(lists(self.linked(text, source, place)), encoding="utf-8")

    def add_examples(self):
        """A page for each folder that a page refers to."""
        for folder, place in self.examples.items():
            out = [f"# {folder.name}\n", f"`examples/{folder.name}` in Kolo's source.\n"]
            for file in sorted(folder.iterdir()):
                if file.suffix in LANGUAGES:
                    out.append(f"## {file.name}\n\n```{LANGUAGES[file.suffix]}\n{file.read_text(encoding='utf-8')}```\n")
            to = self.pages / place
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text("\n".join(out), encoding="utf-8")


def lists(text):
    """Lists as Python's Markdown wants them."""
    out, is_code, before = [], False, ""
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        item = re.match(r"( *)(?:[-*]|\d+\.) ", line)
        if not is_code and item:
            if before.strip() and not re.match(r" *(?:[-*]|\d+\.) |  +\S", before):
                out.append("")
            line = " " * len(item[1]) + line  # two spaces become four
        elif not is_code and (more := re.match(r"( {2,})\S", line)) and out and re.match(r" *(?:[-*]|\d+\.) |  +\S", before):
            line = " " * len(more[1]) + line
        out.append(line)
        before = line
    return "\n".join(out)


def main():
    root, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    pages = folder / "pages"
    site = Site(root, pages)
    for source in sorted((root / "docs").rglob("*")):
        if source.is_file() and source.parent.name != "site" and source.suffix != ".in":
            site.add(source, source.relative_to(root / "docs").as_posix())
    for name, place in OTHERS.items():
        if name != "README.md" and (root / name).exists():
            site.add(root / name, place)
    for source in (root / "docs/site").iterdir():
        if source.name == "mkdocs.yml":
            shutil.copy(source, folder)
        else:
            site.add(source, source.name)
    site.add_examples()


main()
