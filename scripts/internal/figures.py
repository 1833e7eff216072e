# SPDX-License-Identifier: Apache-2.0
"""The figures of scripts/internal/figures."""

import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import coverage_table

LIBRARY = ("src", "include", "mpi")
CODE = (".hpp", ".cpp", ".cu")
LONG = 500
SHORT = 60
# Where messages are written down: the log's, those up the tree, and the mirrors of a signature. Bytes know none.
MESSAGES = re.compile(r"src/control/codec(?:\.cpp|/(?!bytes\.hpp).*)")
WAYS = {"step": "a step by name", "short": "a 64-byte all-reduce", "gather": "a 1 MiB gather"}
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


def functions(text):
    """The functions that a header declares in its namespaces."""
    found = []
    for statement in statements(text):
        inner = re.match(r"(?:inline )?namespace [\w:]*\s*\{(.*)\}$", statement, re.S)
        if inner:
            found += functions(inner[1])
        elif ("(" in re.sub(r"\{.*\}", "", statement, flags=re.S) and
              not re.match(r"(?:using|class|struct|enum|static_assert|template <[^;{]*>\s*struct)\b", statement)):
            found.append(statement)
    return found


def lines_of(file):
    return len(file.read_text(encoding="utf-8", errors="replace").splitlines())


def git(root, *command):
    done = subprocess.run(["git", "-C", str(root), *command], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()


def name_of(root):
    """The commit; with a star, and something has changed since."""
    changed = git(root, "status", "--porcelain", "--untracked-files=no")
    return git(root, "rev-parse", "--short=7", "HEAD")[0] + ("*" if changed else "")


def names_in_two_folders(root):
    """{file name: folders of src that have it}."""
    folders = defaultdict(set)
    for file in (root / "src").rglob("*"):
        if file.suffix in CODE:
            folders[file.name].add(file.parent.relative_to(root).as_posix())
    return {name: sorted(its) for name, its in sorted(folders.items()) if len(its) > 1}


def figures_of(root):
    """All that can be counted without a build."""
    modules, lengths = Counter(), {}
    for top in (*LIBRARY, "tests", "bench", "examples"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix in CODE:
                lengths[file.relative_to(root).as_posix()] = lines_of(file)
                if top in LIBRARY:
                    modules[file.parent.relative_to(root).as_posix()] += code_lines(file.read_text(encoding="utf-8"))
    of_src = {file: lines for file, lines in lengths.items() if file.startswith("src/") and not file.endswith(".cu")}
    longest = max(of_src, key=of_src.get)
    collectives = without_comments((root / "include/kolo/collectives.hpp").read_text(encoding="utf-8"))
    ways = [file for file in of_src
            if re.search(r"\benum class Way\b", without_comments((root / file).read_text(encoding="utf-8")))]
    figures = {
        "code_lines": sum(modules.values()), "code_lines_by_module": dict(sorted(modules.items())),
        "files_of_src": len(of_src), "short_files_of_src": sum(lines <= SHORT for lines in of_src.values()),
        "files_of_control": sum(file.is_file() for file in (root / "src/control").rglob("*")),
        "lines_of_messages": sum(lines for file, lines in of_src.items() if MESSAGES.fullmatch(file)),
        "lines_of_collectives": lengths["include/kolo/collectives.hpp"],
        "functions_of_collectives": len(functions(re.sub(r"^ *#.*$", "", collectives, flags=re.M))),
        "longest_file": [longest, of_src[longest]], "names_in_two_folders": names_in_two_folders(root),
        "enums_called_way": len(ways),
        "lines_of_tests": sum(lines_of(root / file) for file in git(root, "ls-files", "tests") if (root / file).is_file()),
        "commands": sum(file.is_file() for file in (root / "scripts").iterdir()),
        "long_files": {file: lines for file, lines in lengths.items() if lines > LONG},
        "large_classes": large_classes(root), "exported_functions": exported_functions(root), "members": {}, "flags": {}}
    for name, path in CLASSES.items():
        if (root / path).is_file():
            all_members = members(without_comments((root / path).read_text(encoding="utf-8")), name)
            figures["members"][name] = len(all_members)
            figures["flags"][name] = [MEMBER.search(member).group(1) for member in all_members if FLAG.match(member)]
    return figures


def entered_by_calls(root, tree):
    """{call: the files that it enters}, by a build for gcov."""
    # Static, so that the program and the library count into the same objects.
    off = ("BUILD_SHARED_LIBS", "KOLO_WITH_MPI", "KOLO_WITH_CUDA", "KOLO_WITH_TORCH", "KOLO_BUILD_BENCH",
           "KOLO_BUILD_EXAMPLES", "KOLO_BUILD_TOOLS")
    subprocess.run(["cmake", "--preset", "debug", "-B", tree, "-DKOLO_COVERAGE=ON", "-DKOLO_UNITY=ON",
                    *(f"-D{option}=OFF" for option in off)], cwd=root, stdout=subprocess.DEVNULL, check=True)
    subprocess.run(["cmake", "--build", tree, "--target", "entered_files"], stdout=sys.stderr, check=True)
    found = {}
    for way in WAYS:
        for counts in tree.rglob("*.gcda"):
            counts.unlink()
        subprocess.run([tree / "bin/entered_files", way], check=True)
        found[way] = entered(root, tree)
    return found


def sources(files):
    return sum(not file.endswith(".hpp") and not file.startswith("src/base/") for file in files)


def table_of(figures):
    """[(row, figure)], as text."""
    calls = figures.get("entered", {})
    rows = [(f"sources entered: {said}", f"{sources(calls[way])}" if calls else "-") for way, said in WAYS.items()]
    both = "{}; {}".format
    return rows + [
        (f"C++ files in src; of {SHORT} lines or fewer", both(figures["files_of_src"], figures["short_files_of_src"])),
        ("code lines of src, include, mpi", str(figures["code_lines"])),
        ("control: files; lines of messages' codecs", both(figures["files_of_control"], figures["lines_of_messages"])),
        ("collectives.hpp: lines; functions",
         both(figures["lines_of_collectives"], figures["functions_of_collectives"])),
        ("longest file in src", "{1} {0}".format(Path(figures["longest_file"][0]).name, figures["longest_file"][1])),
        ("file names in two or more folders; enum Way",
         both(len(figures["names_in_two_folders"]), figures["enums_called_way"])),
        ("tests, lines; commands in scripts", both(figures["lines_of_tests"], figures["commands"]))]


def print_table(found):
    tables = [table_of(one) for one in found.values()]
    print(f"{'':<46}" + "".join(f"{name:>26}" for name in found))
    for rows in zip(*tables):
        print(f"{rows[0][0]:<46}" + "".join(f"{value:>26}" for _, value in rows))


def print_details(name, figures):
    print(f"\n{name}: code lines (no blanks, no comments) of modules")
    for module, lines in figures["code_lines_by_module"].items():
        print(f"  {module:<58} {lines:>7}")
    print(f"files of more than {LONG} lines: {len(figures['long_files'])}")
    for file, lines in figures["long_files"].items():
        print(f"  {file:<58} {lines:>7}")
    for one, count in figures["members"].items():
        print(f"members of {one}: {count}; flags and counts among them: {len(figures['flags'][one])}")
    print(f"classes of over {MOST_MEMBERS} members or {MOST_METHODS} methods: {len(figures['large_classes'])}")
    for one, (its_members, its_methods) in figures["large_classes"].items():
        print(f"  {one:<58} {its_members:>3} members {its_methods:>3} methods")
    print(f"exported functions of include/kolo: {figures['exported_functions']}")


def print_files(name, figures):
    for way, files in figures.get("entered", {}).items():
        print(f"\n{name}: {WAYS[way]} enters {len(files)} files")
        print("".join(f"  {file}\n" for file in files), end="")
    print(f"\n{name}: file names in two or more folders")
    for file, folders in figures["names_in_two_folders"].items():
        print(f"  {file:<34} {', '.join(folders)}")
    for one, flags in figures["flags"].items():
        print(f"flags of {one}: {' '.join(flags)}")
