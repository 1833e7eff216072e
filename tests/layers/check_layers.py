#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when a file includes what its layer may not (docs/architecture.md, "Layers").

Reads every #include under include/, src/, mpi/, python/, tests/, bench/ and examples/ and reports
  - a module that includes upward, or a module beside it;
  - a public header that includes anything but the standard library, other public headers and, in an adapter, its
    own vendor's headers; a header for C anything but two of C's;
  - a vendor's header outside the places that may call that vendor;
  - a header that this file does not know: name its vendor in VENDORS, or correct the include;
  - getenv outside src/base, the only reader of the environment;
  - in the library, what spells or reads numbers as the program's locale does: src/base/text.hpp has what does not;
  - the first picture of docs/architecture.md, where its arrows are not what is included: a module in no box, an include
    that no way along the arrows allows, an arrow that no include needs.

usage: check_layers.py [--root DIR]     exit status 0: clean, 1: violations, one a line on stdout
"""

import argparse
import re
import sys
from pathlib import Path, PurePosixPath

# What a module may include besides itself. `public` is include/kolo. A module within a module (data/cpu) has a row of
# its own, and may include only what that says.
GROUND = {"public", "base"}
SHARED = GROUND | {"core"}
RECORDER = {"recorder"}
INTERFACES = SHARED | RECORDER | {"control", "data", "data/kernels", "data/p2p", "transport"}
BELOW_API = INTERFACES | {"control/tcp", "membership", "data/cpu", "data/cuda", "transport/shm", "transport/threads", "transport/ucx",
                          "bootstrap", "launch", "mpi", "engine", "why", "timeline"}
EVERYTHING = BELOW_API | {"api", "optimizer", "checkpoint", "libtorch", "c10d", "python", "lightgbm", "c", "mpiabi"}

MAY_INCLUDE = {
    "public": {"public"},
    "base": {"public"},
    "data/kernels": GROUND,
    "recorder": GROUND,
    "why": SHARED | RECORDER,
    "timeline": SHARED | RECORDER,
    "core": GROUND,
    "control": SHARED,
    "control/tcp": SHARED | {"control"},
    "membership": GROUND,
    "data": SHARED,
    "data/cpu": SHARED | {"data", "data/kernels", "transport"},
    "data/cuda": SHARED | {"data"},
    "data/p2p": SHARED | {"data/kernels", "transport"},
    "transport": SHARED,
    "transport/shm": SHARED | {"transport"},
    "transport/threads": SHARED | {"transport", "transport/shm"},
    "transport/ucx": SHARED | {"transport"},
    "bootstrap": SHARED | {"transport", "transport/shm", "transport/threads"},
    "launch": SHARED | {"membership", "transport", "control/tcp", "bootstrap"},
    "mpi": SHARED | {"transport", "bootstrap"},
    "engine": INTERFACES,
    "api": BELOW_API,
    **{module: {"public"} for module in ("optimizer", "c10d", "lightgbm", "mpiabi")},
    **{module: GROUND for module in ("checkpoint", "libtorch", "c")},
    "python": {"public", "c10d"},
    **{module: {"public"} for module in ("tools", "examples")},
    "bench": {"public", "examples"},
    "bench/micro": EVERYTHING | {"tests", "bench"},
    "tests": EVERYTHING | {"bench", "examples"},
}

# Public headers that exist to meet one vendor's types, and what they may include of it. Other public headers may not
# include them.
ADAPTERS = {"mpi.hpp": set(), "kolo_mpi.h": set(), "cuda.hpp": {"cuda"}, "libtorch.hpp": {"torch"}}

# Whose header it is, and the path prefixes of the files that may include it.
LIBRARY = ("src/", "mpi/", "tests/", "bench/micro/")
VENDORS = [
    # Not mpi/: it has headers of its own, for each ABI.
    ("mpi", r"mpi\.h$|mpi-ext\.h$", ("tests/mpi/", "tests/c/", "tests/chaos/", "bench/")),
    ("ucx", r"uc[pst]/", ("src/transport/ucx/", "tests/transport/ucx/")),
    ("cuda", r"cuda|cupti|nccl|nvtx3/|driver_types\.h$", ("src/data/cuda/", "include/kolo/cuda.hpp", "tests/data/cuda/",
                                       "tests/emulated_cuda/", "tests/c10d/", "tests/c/", "examples/cuda_trainer/",
                                       "bench/")),
    ("torch", r"(torch|ATen|c10)/", ("src/libtorch/", "src/c10d/", "python/", "include/kolo/libtorch.hpp",
                                     "tests/libtorch/", "tests/c10d/", "bench/", "examples/torch_")),
    ("pybind11", r"pybind11/", ("python/",)),
    ("tensorflow", r"tensorflow/", ("python/kolopy/tensorflow/",)),
    ("hwloc", r"hwloc(\.h$|/)", ("src/tools/",)),
    ("highway", r"hwy/", ("src/data/kernels/", "tests/data/kernels/")),
    ("boost.asio", r"boost/(asio|system)", ("src/control/tcp/", "tests/control/tcp/")),
    ("boost.program_options", r"boost/program_options", ("src/tools/", "bench/", "examples/")),
    ("boost.container", r"boost/container", LIBRARY),
    ("boost.circular_buffer", r"boost/circular_buffer", LIBRARY),
    ("nlohmann", r"nlohmann/", ("src/tools/", "src/libtorch/", "bench/", "tests/")),
    ("googletest", r"(gtest|gmock)/", ("tests/",)),
    ("google-benchmark", r"benchmark/", ("bench/micro/",)),
]

STANDARD = set(
    """algorithm any array atomic bitset cassert cctype cerrno cfenv cfloat charconv chrono cinttypes climits clocale
    cmath complex condition_variable csetjmp csignal cstdarg cstddef cstdint cstdio cstdlib cstring ctime cuchar cwchar
    cwctype deque exception execution filesystem forward_list fstream functional future initializer_list iomanip ios
    iosfwd iostream istream iterator limits list locale map memory memory_resource mutex new numeric optional ostream
    queue random ratio regex scoped_allocator set shared_mutex sstream stack stdexcept streambuf string string_view
    system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray variant vector
    """.split()
)
STANDARD_20 = {"barrier", "bit", "compare", "concepts", "coroutine", "latch", "numbers", "semaphore", "source_location",
               "span", "syncstream", "version"}
# Mutexes of the library are those of src/base/mutex.hpp: clang checks what they guard. src/libtorch and src/c10d, which
# see public headers alone, have their own, as src/c and src/mpiabi have.
MUTEXES = {"mutex", "shared_mutex", "condition_variable"}
MAY_HAVE_MUTEXES = ("src/base/mutex.hpp", "src/libtorch/", "src/c10d/", "src/c/", "src/mpiabi/", "tests/", "bench/", "examples/")
# Headers of the system, for everything but public headers.
SYSTEM = re.compile(
    r"(sys|linux|netinet|arpa|asm|bits)/|net/if\.h$|net/if_arp\.h$|[a-z0-9_]+intrin\.h$|"
    r"(cpuid|dirent|dlfcn|errno|execinfo|fcntl|ifaddrs|inttypes|limits|link|malloc|math|netdb|poll|pthread|pwd|sched|semaphore|"
    r"signal|spawn|stdint|stddef|stdio|stdlib|string|syscall|termios|time|unistd|cxxabi)\.h$"
)

# What public headers for C may include.
STANDARD_OF_C = {"stddef.h", "stdint.h"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*(?:include|include_next|import)[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>|(\S+))', re.M)
GETENV = re.compile(r"\b(secure_)?getenv\b")
# The locale that a program has set changes what these do with numbers. (std::to_string of a double, too, which needs a
# reader of types.)
BY_LOCALE = re.compile(r"\bo?i?stringstream\b|\bstrto(?:d|f|ld)\b|\bsto(?:i|l|ul|ll|ull|f|d|ld)\b")
FLOAT_FORMAT = re.compile(r'printf\s*\([^;]*?%[-+ #0-9.*]*l?[aefgAEFG][^;]*;')
# Files are opened by src/base/files.hpp. Beside it: what the system itself has (/proc, /sys, /dev/null), and those who
# make what that reads, or keep to its rules with descriptors of folders.
OPENS = re.compile(r"(?<![\w>])::(?:open(?:at)?|creat|mkostemp|mkstemp|rename(?:at)?)\s*\(|\bstd::rename\s*\(|"
                   r"\bf(?:re)?open\s*\(|\b[io]?fstream\b")
OF_THE_SYSTEM = re.compile(r'"/(?:dev/null|proc/|sys/)')
MAY_OPEN = {
    "src/base/files.cpp": "the three ways",
    "src/base/cpu.cpp": "/proc and /sys, below a root that tests choose",
    "src/checkpoint/disk.cpp": "renames folders that it has made",
    "src/launch/children.cpp": "/proc",
    "src/recorder/directory.cpp": "the folder of the recorders: its owner is checked",
    "src/recorder/recorder.cpp": "makes a new file and maps it, which needs it open to be read",
    "src/transport/shm/peer_memory.cpp": "/proc",
}

# Comments, strings and characters, so that none is taken for code. An include's own quotes stay.
NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S
)


def without_comments(text, keep_strings):
    def blank(match):
        token = match.group(0)
        is_comment = token.startswith(("//", "/*"))
        if not is_comment and keep_strings and not token.startswith('R"'):
            return token
        return "".join(c if c == "\n" else " " for c in token)

    return NOISE.sub(blank, text)


def module_of(path):
    """The module a repository path belongs to, or None when it is in no module."""
    parts = PurePosixPath(path).parts
    if parts[:2] == ("include", "kolo"):
        return "public"
    if parts[0] == "src" and len(parts) > 2:
        inner = "/".join(parts[1:3])
        return inner if inner in MAY_INCLUDE else parts[1]
    if parts[:2] == ("bench", "micro"):
        return "bench/micro"
    if parts[0] in ("mpi", "tests", "bench", "examples", "python") and len(parts) > 1:
        return parts[0]
    return None


def resolve(root, path, name, quoted):
    """The repository path that an include names, or None when it is not one of ours."""
    candidates = [PurePosixPath(prefix) / name for prefix in ("include", "src", "")]
    if quoted:
        candidates.insert(0, PurePosixPath(path).parent / name)
    for candidate in candidates:
        full = root / candidate
        if full.is_file() and full.resolve().is_relative_to(root):
            return str(full.resolve().relative_to(root))
    # Not there: a header that is made by the build or was misspelt is still judged by the module it names.
    first = PurePosixPath(name).parts[0]
    if first == "kolo":
        return f"include/{name}"
    if quoted and "/" in name and first in MAY_INCLUDE:
        return name if first in ("mpi", "tests", "bench", "examples", "python") else f"src/{name}"
    return None


def judge_ours(path, module, target):
    target_module = module_of(target)
    if target_module is None or target_module not in MAY_INCLUDE:
        return f"includes {target}, which is in no module"
    adapter = PurePosixPath(target).name if target_module == "public" else None
    if module == "public" and adapter in ADAPTERS and PurePosixPath(path).name not in ADAPTERS:
        return f"includes the adapter {target}; adapters are included by users only"
    if target_module == module or target_module in MAY_INCLUDE[module]:
        return None
    if module == "public":
        return f"is a public header and includes the internal {target}"
    return f"is in module {module}, which may not include {target_module} ({target})"


def judge_foreign(path, module, name):
    if module == "public" and path.endswith(".h"):
        if name in STANDARD_OF_C or ADAPTERS.get(PurePosixPath(path).name) == {PurePosixPath(name).stem}:
            return None
        return f"is a header for C and includes <{name}>"
    if name in MUTEXES and not path.startswith(MAY_HAVE_MUTEXES):
        return f"includes <{name}>; base/mutex.hpp has the mutexes that clang checks"
    if name in STANDARD or (name in STANDARD_20 and module != "public"):
        return None
    for vendor, pattern, places in VENDORS:
        if re.match(pattern, name):
            if path.startswith(places):
                return None
            return f"includes <{name}> of {vendor}, which only {', '.join(places)} may"
    if module == "public":
        return f"is a public header and includes <{name}>, which is not of C++17's standard library"
    if SYSTEM.match(name):
        return None
    return f"includes <{name}>, which tests/layers does not know"


def check_file(root, path):
    """Violations in one file, each (line, sentence)."""
    module = module_of(path)
    if module is None or module not in MAY_INCLUDE:
        return [(1, "is in no module of docs/architecture.md")]
    text = (root / path).read_text(encoding="utf-8")
    found = []
    includes = without_comments(text, keep_strings=True)
    for match in INCLUDE.finditer(includes):
        line = includes.count("\n", 0, match.start()) + 1
        quoted, angled, computed = match.groups()
        name = quoted or angled
        if name is None:
            # Highway's foreach_target.h includes its own file again through this macro.
            verdict = None if computed == "HWY_TARGET_INCLUDE" else f"has a computed include ({computed})"
        else:
            target = resolve(root, path, name, quoted is not None)
            verdict = judge_ours(path, module, target) if target else judge_foreign(path, module, name)
        if verdict:
            found.append((line, verdict))
    if module != "base":
        code = without_comments(text, keep_strings=False)
        for match in GETENV.finditer(code):
            line = code.count("\n", 0, match.start()) + 1
            found.append((line, f"calls {match.group(0)}; only src/base reads the environment"))
    if path.startswith(("src/", "mpi/")) and path not in MAY_OPEN:
        code = without_comments(text, keep_strings=True)
        for match in OPENS.finditer(without_comments(text, keep_strings=False)):
            statement = code[match.start():code.find(";", match.start())]
            line = code.count("\n", 0, match.start()) + 1
            is_include = code[code.rfind("\n", 0, match.start()) + 1:].startswith("#include")
            if not is_include and not OF_THE_SYSTEM.search(statement):
                found.append((line, f"opens a file by {match.group(0).strip('( ')}; base/files.hpp has the three ways"))
    if path.startswith(("src/", "mpi/")) and path != "src/base/text.hpp" and module not in ("tools", "libtorch"):
        for kind in (BY_LOCALE, FLOAT_FORMAT):
            code = without_comments(text, keep_strings=kind is FLOAT_FORMAT)
            for match in kind.finditer(code):
                line = code.count("\n", 0, match.start()) + 1
                word = "printf of a float" if kind is FLOAT_FORMAT else match.group(0)
                found.append((line, f"uses {word}, which obeys the program's locale; see base/text.hpp"))
    return found


PAGE = "docs/architecture.md"
PICTURE = re.compile(r"^```mermaid$(.*?)^```$", re.S | re.M)
BOX = re.compile(r'^\s*(\w+)\["([^"<]+)', re.M)
ARROWS = re.compile(r"^\s*(\w+(?: --> \w+)+)\s*$", re.M)
# Where the words of a box are no module; what a box `data` says holds for the modules in it, too.
WORDS_OF_BOXES = {"kolo_torch": ("python",)}
NOT_IN_PICTURE = {"tests", "bench", "bench/micro"}


def read_picture(text):
    """The boxes of the first picture, each with its modules, and its arrows."""
    picture = PICTURE.search(text)
    if not picture:
        return None
    boxes = {}
    for box, label in BOX.findall(picture.group(1)):
        words = [word.strip() for word in label.split(",")]
        modules = [module for word in words for module in WORDS_OF_BOXES.get(word, (word,))]
        boxes[box] = {module for module in MAY_INCLUDE if module in modules or module.split("/")[0] in modules}
    arrows = set()
    for chain in ARROWS.findall(picture.group(1)):
        ends = chain.split(" --> ")
        arrows |= set(zip(ends, ends[1:]))
    return boxes, arrows


def includes_of(root, path):
    """The modules that a file includes."""
    text = without_comments((root / path).read_text(encoding="utf-8"), keep_strings=True)
    for quoted, angled, _ in INCLUDE.findall(text):
        target = resolve(root, path, quoted or angled, bool(quoted)) if quoted or angled else None
        if target:
            yield module_of(target)


def check_picture(root, paths):
    """What is wrong with the picture, as lines to print."""
    page = root / PAGE
    found = read_picture(page.read_text(encoding="utf-8")) if page.is_file() else None
    if found is None:
        return []
    boxes, arrows = found
    box_of = {module: box for box, modules in boxes.items() for module in modules}
    lines, used, seen = [], set(), set()
    below = {box: {box} for box in boxes}
    for _ in boxes:
        for begin, end in arrows:
            below[begin] |= below[end]
    for path in paths:
        module = module_of(path)
        if module in NOT_IN_PICTURE or module not in MAY_INCLUDE:
            continue
        for target in includes_of(root, path):
            if (module, target) in seen or target not in MAY_INCLUDE:
                continue
            seen.add((module, target))
            begin, end = box_of.get(module), box_of.get(target)
            if begin is None or end is None:
                lines.append(f"{PAGE}: the first picture has no box for {target if begin else module}")
            elif end not in below[begin]:
                lines.append(f"{PAGE}: the first picture has no way from {module} to {target}, which {path} includes")
            used.add((begin, end))
    lines += [f"{PAGE}: nothing includes what the arrow from {begin} to {end} says"
              for begin, end in sorted(arrows - used)]
    return list(dict.fromkeys(lines))


def check_tree(root):
    """Violations of the whole tree as lines to print, and the number of files read."""
    root = Path(root).resolve()
    lines, paths = [], []
    for top in ("include", "src", "mpi", "python", "tests", "bench", "examples"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix in (".hpp", ".h", ".cpp", ".cc", ".c", ".cu", ".cuh", ".inl") and file.is_file():
                path = file.relative_to(root).as_posix()
                if path.startswith("tests/consumers/"):
                    continue  # projects of their own: strangers that see only what is installed
                paths.append(path)
                lines += [f"{path}:{line}: {what}" for line, what in check_file(root, path)]
    return lines + check_picture(root, paths), len(paths)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=Path(__file__).resolve().parents[2], help="the repository to check")
    lines, files = check_tree(parser.parse_args().root)
    for line in lines:
        print(line)
    print(f"{files} files read, {len(lines)} violations")
    if files == 0:
        print("no files found: is --root right?")
    return 1 if lines or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
