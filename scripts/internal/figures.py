# SPDX-License-Identifier: Apache-2.0
"""The figures of scripts/internal/figures.

usage: figures.py REPOSITORY [--way NAME FILE]... [--files] [--json FILE]
       figures.py REPOSITORY --entered BUILD_TREE

The second form lists the files that a program of BUILD_TREE has entered; the first counts such lists.
"""

import argparse
import json
import re
from collections import Counter
from pathlib import Path

import coverage_table

LIBRARY = ("src", "include", "mpi")
CODE = (".hpp", ".cpp", ".cu")
LONG = 500
# The classes that hold most state.
CLASSES = {"Engine": "src/engine/engine.hpp", "Driver": "src/engine/driver.hpp", "Leader": "src/control/leader.hpp",
           "CpuBackend": "src/data/cpu/cpu_backend.hpp"}
# Comments, and what looks like them: strings stay.
NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
MEMBER = re.compile(r"(\w+)\s*(?:\[[^]]*\]\s*)?(?:=.*|\{.*\})?$", re.S)
MOST_MEMBERS, MOST_METHODS = 25, 40
ADAPTERS = ("libtorch", "cuda", "mpi", "export")
# Says who may touch a member, not what it is: base/mutex.hpp.
ANNOTATION = re.compile(r" KOLO_\w+\((?:[^()]|\([^()]*\))*\)")
FLAG = re.compile(r"^(?:mutable )?(?:bool|std::atomic<(?:bool|int|std::u?int\d+_t)>) ")


def without_comments(text):
    def blank(match):
        token = match.group(0)
        return re.sub(r"[^\n]", "", token) if token.startswith(("//", "/*")) else token

    return NOISE.sub(blank, text)


def code_lines(text):
    return sum(1 for line in without_comments(text).splitlines() if line.strip())


def body_of(text, name):
    """What stands between the braces of a class, or None."""
    head = re.search(rf"\b(?:class|struct) (?:KOLO_\w+(?:\([^()]*\))? )?{name}\b[^;{{]*{{", text)
    if not head:
        return None
    depth, at = 1, head.end()
    while depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return text[head.end():at - 1]


def statements(body):
    """The statements of a class's body, those of nested bodies left out."""
    depth, parens, begin = 0, 0, 0
    for at, c in enumerate(body):
        parens += {"(": 1, ")": -1}.get(c, 0)
        depth += {"{": 1, "}": -1}.get(c, 0)
        ends = c == ";" and depth == 0 and parens == 0
        # The end of a function's body, unlike that of an initialiser, is followed by no semicolon.
        if c == "}" and depth == 0 and parens == 0:
            ends = not body[at + 1:].lstrip().startswith(";")
        if ends:
            yield re.sub(r"\b(?:public|private|protected):", "", body[begin:at + 1]).strip().rstrip(";").strip()
            begin = at + 1


def members(text, name):
    """The data members of a class, each as its declaration; those of structs nested in it in their members' place."""
    found = []
    for statement in statements(body_of(text, name)):
        declaration = ANNOTATION.sub("", " ".join(statement.split()))
        before = re.sub(r"<[^<>]*(?:<[^<>]*>[^<>]*)*>", "<>", re.split(r"[={]", declaration)[0])
        if (not declaration or "(" in before or before.endswith("operator") or
                re.match(r"(static|using|friend|class|struct|enum|template|explicit|typedef|constexpr)\b", declaration)):
            continue
        type_name = re.match(r"(?:const |mutable )*(\w+) ", declaration)
        if type_name and body_of(body_of(text, name), type_name.group(1)) is not None:
            found += members(body_of(text, name), type_name.group(1))
        elif MEMBER.search(declaration):
            found.append(declaration)
    return found


CLASS = re.compile(r"(?<!enum )\bclass (?:KOLO_\w+(?:\([^()]*\))? )?(\w+)[^;{()]*\{")
METHOD = re.compile(r"(?:[~\w]|operator[^\w\s(]+)\(")


def methods(text, name):
    """How many functions a class declares, its constructors and those of nested classes left out."""
    found = 0
    for statement in statements(body_of(text, name)):
        declaration = re.sub(r"\{.*\}", "", ANNOTATION.sub("", " ".join(statement.split())), flags=re.S)
        if re.match(r"(using|friend|class|struct|enum|typedef|static_assert|explicit)\b", declaration):
            continue
        declaration = re.sub(r"<[^<>()]*(?:<[^<>()]*>[^<>()]*)*>", "<>", declaration)
        called = METHOD.search(declaration)
        if called and not re.match(rf"(?:constexpr )?~?{name}\(", declaration):
            before = declaration[:called.start()]
            found += "=" not in before or "operator" in before
    return found


def large_classes(root):
    """The classes of the library's headers of more than 25 members or 40 methods."""
    found = {}
    for top in LIBRARY:
        for file in sorted((root / top).rglob("*.hpp")):
            text = without_comments(file.read_text(encoding="utf-8"))
            for name in dict.fromkeys(CLASS.findall(text)):
                counts = len(members(text, name)), methods(text, name)
                if counts[0] > MOST_MEMBERS or counts[1] > MOST_METHODS:
                    found[f"{name}, {file.relative_to(root).as_posix()}"] = counts
    return found


def exported_functions(root):
    """The functions of include/kolo that the library exports, those of classes left out."""
    text = "\n".join(without_comments(file.read_text(encoding="utf-8"))
                     for file in sorted((root / "include/kolo").glob("*.hpp")) if file.stem not in ADAPTERS)
    return len(re.findall(r"^(?:\[\[nodiscard\]\] )?KOLO_API (?!class|struct)", text, re.M))


def entered(root, tree):
    """The files of the library of which a line has run."""
    files = set()
    for report in coverage_table.reports(tree):
        for file in report["files"]:
            path = Path(report["current_working_directory"], file["file"]).resolve()
            if path.is_relative_to(root) and path.relative_to(root).parts[0] in LIBRARY:
                if any(line["count"] for line in file["lines"]):
                    files.add(path.relative_to(root).as_posix())
    return sorted(files)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("--entered", type=Path)
    parser.add_argument("--way", nargs=2, action="append", default=[])
    parser.add_argument("--files", action="store_true")
    parser.add_argument("--json", type=Path)
    flags = parser.parse_args()
    root = flags.root.resolve()
    if flags.entered:
        print("\n".join(entered(root, flags.entered.resolve())))
        return

    modules, long_files = Counter(), {}
    for top in (*LIBRARY, "tests", "bench", "examples"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in CODE:
                continue
            text = file.read_text(encoding="utf-8")
            if len(text.splitlines()) > LONG:
                long_files[file.relative_to(root).as_posix()] = len(text.splitlines())
            if top in LIBRARY:
                modules[file.parent.relative_to(root).as_posix()] += code_lines(text)
    figures = {"code_lines": sum(modules.values()), "code_lines_by_module": dict(sorted(modules.items())),
               f"files_over_{LONG}_lines": long_files, "members": {}, "flags": {}}
    print(f"{'code lines (no blanks, no comments)':<44} {sum(modules.values()):>7}")
    for module, lines in sorted(modules.items()):
        print(f"  {module:<42} {lines:>7}")
    print(f"{f'files of more than {LONG} lines':<44} {len(long_files):>7}")
    for file, lines in long_files.items():
        print(f"  {file:<42} {lines:>7}")
    for name, path in CLASSES.items():
        if not (root / path).is_file():
            continue
        all_members = members(without_comments((root / path).read_text(encoding="utf-8")), name)
        its_flags = [MEMBER.search(member).group(1) for member in all_members if FLAG.match(member)]
        figures["members"][name], figures["flags"][name] = len(all_members), its_flags
        print(f"{f'members of {name}':<44} {len(all_members):>7}")
        print(f"  {'flags and counts among them':<42} {len(its_flags):>7}")
        if flags.files:
            print(f"    {' '.join(its_flags)}")
    figures["large_classes"] = large_classes(root)
    print(f"{f'classes of over {MOST_MEMBERS} members or {MOST_METHODS} methods':<44} {len(figures['large_classes']):>7}")
    for name, (its_members, its_methods) in figures["large_classes"].items():
        print(f"  {name:<58} {its_members:>3} members {its_methods:>3} methods")
    figures["exported_functions"] = exported_functions(root)
    print(f"{'exported functions of include/kolo':<44} {figures['exported_functions']:>7}")
    for way, listed in flags.way:
        files = Path(listed).read_text(encoding="utf-8").split()
        sources = [file for file in files if not file.endswith(".hpp") and not file.startswith("src/base/")]
        figures.setdefault("entered", {})[way] = files
        print(f"{f'files that it enters: {way}':<44} {len(files):>7}")
        print(f"  {'sources but those of src/base':<42} {len(sources):>7}")
        if flags.files:
            print("".join(f"    {file}\n" for file in files), end="")
    if flags.json:
        flags.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
