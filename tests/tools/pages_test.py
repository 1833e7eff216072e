#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every C++ block (```cpp) and C block (```c) of README.md and docs/, as its reader would, and looks whether the messages
that docs/troubleshooting.md explains are messages of the library. A block with a main() is a program; others are what
stands inside a function. Blocks that use kolo::libtorch are compiled apart. What is no program of a user's, but the
library's own code, is marked ```c++ and left out.

usage: pages_test.py REPOSITORY plain|libtorch COMPILER...

Exit status: 0 when all is well. What a build leaves out (kolo/config.hpp) is left out here, too.
"""

import re
import subprocess
import sys
from pathlib import Path

# What the pages leave to the reader: what stands before a block, and the variables of a function.
BEFORE = {"libtorch": "#include <torch/torch.h>\n#include <kolo/kolo.hpp>\n#include <kolo/libtorch.hpp>\n", "plain": """
#include <cstddef>
#include <exception>
#include <string>
#include <vector>
#include <kolo/kolo.hpp>
struct Batch {
  std::size_t first;
  std::size_t size() const { return 1; }
};
struct Network {
  std::vector<float> weight, gradient;
  explicit Network(int seed) : weight(1, static_cast<float>(seed)), gradient(1) {}
  std::vector<kolo::Parameter> parameters() { return {{"weight", kolo::view(weight), kolo::view(gradient)}}; }
  template <class Ready> void forward_backward(const Batch&, const Ready& ready) { ready(std::size_t{0}); }
  double loss() const { return 0; }
};
std::vector<int> data(100);
int epochs = 1;
std::vector<Batch> batches(const std::vector<std::size_t>& rows, std::size_t) { return {{rows.front()}}; }
void report(int, double) {}
void train(int) {}
"""}
VARIABLES = {
    "plain": """Network& net, kolo::Sgd& sgd, kolo::DistributedOptimizer<kolo::Sgd>& optimizer, const Batch& batch,
        int& epoch, int options, std::vector<float>& x, std::vector<float>& weight, std::vector<float>& gradient,
        std::vector<float>& mean, std::vector<kolo::Parameter>& list, float* pointer, std::size_t count""",
    "libtorch": "torch::nn::Sequential& model, torch::optim::Adam& adam, std::size_t size",
}
# Parts that a build may lack: what says that a block needs one, its macro, and the variables that come with it.
PARTS = {
    "mpi": (r"<mpi\.h>|kolo/mpi\.hpp|kolo::mpi::", "__has_include(<mpi.h>)", "MPI_Comm my_communicator"),
    "cuda": (r"kolo/cuda\.hpp|kolo::cuda::", "KOLO_WITH_CUDA", "kolo::cuda::StreamHandle stream"),
    "libtorch": (r"kolo::libtorch", "KOLO_WITH_LIBTORCH", ""),
}


# The same for blocks of C.
C_VARIABLES = "kolo_group* group, kolo_tensor tensor, kolo_dl_tensor* dl_tensor"


def blocks_of(page, language="cpp"):
    """(line, code) of each."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(rf"^ *```{language}\n(.*?)^ *```$", text, re.S | re.M):
        yield text.count("\n", 0, found.start(1)) + 1, found.group(1)


def part_of(code):
    return next((part for part, (words, _, _) in PARTS.items() if re.search(words, code)), None)


def compiled(page, line, code, number, which):
    """The block as a translation unit has it."""
    part = part_of(code)
    includes = "".join(re.findall(r"^#include.*\n", code, re.M))
    code = re.sub(r"^#include.*$", "", code, flags=re.M)
    variables = VARIABLES[which]
    if part in PARTS and PARTS[part][2]:
        variables += ", " + PARTS[part][2]
    where = f'#line {line} "{page}"\n'
    if "int main(" in code:
        text = f"{includes}namespace page_{number} {{\n{where}{code.replace('int main(', 'int program(')}}}\n"
    else:
        text = f"{includes}void page_{number}({variables}) {{\n{{\n{where}{code}}}\n}}\n"
    return f"#if {PARTS[part][1]}\n{text}#endif\n" if part else text


def pages_of(repository):
    return [repository / "README.md", repository / "CONTRIBUTING.md", *sorted((repository / "docs").rglob("*.md"))]


def compile_pages(repository, which, compiler):
    chosen = [(page.relative_to(repository), line, code)
              for page in pages_of(repository) for line, code in blocks_of(page)
              if (part_of(code) == "libtorch") == (which == "libtorch")]
    source = BEFORE[which] + "".join(compiled(*block, number, which) for number, block in enumerate(chosen))
    standard = "c++20" if which == "libtorch" else "c++17"  # the newest LibTorch demands it
    command = [*compiler, f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-Wno-unused", "-Wno-return-type",
               "-fsyntax-only", f"-I{repository}/include", "-x", "c++", "-"]
    status = subprocess.run(command, input=source, text=True, check=False).returncode
    print(f"{len(chosen)} blocks of pages: " + ("compiled" if status == 0 else "do not compile"))
    return status


def compile_pages_in_c(repository, compiler):
    source = """#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <kolo/config.hpp>
#include <kolo/dlpack.h>
#if __has_include(<mpi.h>)
#include <mpi.h>
#include <kolo/kolo_mpi.h>
#endif
"""
    number = 0
    for page in pages_of(repository):
        for line, code in blocks_of(page, "c"):
            number += 1
            code = re.sub(r"^#include.*$", "", code, flags=re.M)
            if "int main(" in code:
                code = code.replace("int main(", f"int page_{number}(")
            else:
                code = f"void page_{number}({C_VARIABLES}) {{\n{code}}}\n"
            code = f'#line {line} "{page}"\n{code}'
            source += f"#if __has_include(<mpi.h>)\n{code}\n#endif\n" if "kolo_init_mpi" in code else code
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wno-unused", "-fsyntax-only"]
    command = [*compiler, "-x", "c", *flags, f"-I{repository}/include", "-"]
    status = subprocess.run(command, input=source, text=True, check=False).returncode
    print(f"{number} blocks of C in pages: " + ("compiled" if status == 0 else "do not compile"))
    return status


def literals_of(repository):
    """All words that the library and the packages may say: their string literals, those that stand beside each other joined."""
    sources = [file for folder in ("src", "mpi", "include") for file in (repository / folder).rglob("*.[ch]pp")]
    sources += (repository / "python").rglob("*.py")
    text = "\n".join(file.read_text(encoding="utf-8") for file in sources)
    literals = re.findall(r'"((?:[^"\\\n]|\\.)*)"', re.sub(r'"\s*\n\s*f?"', "", text))
    return [" ".join(re.sub(r"\\.", " ", literal).split()) for literal in literals]


def check_messages(repository):
    """Of each message in bold code some three words that stand together must be the library's (all, if it has fewer).
    mpirun's own messages have a section of theirs."""
    page = repository / "docs/troubleshooting.md"
    text = page.read_text(encoding="utf-8").split("\n## What mpirun adds")
    text = text[0] + text[1][text[1].index("\n## "):]
    known = literals_of(repository)
    unknown = []
    for message in re.findall(r"\*\*`([^`]*)`\*\*", text):
        words = " ".join(message.split())
        parts = [part.split() for part in re.split(r"\.\.\.|\"[^\"]*\"|\[[^]]*\]|\d+|[()]", words) if part.strip()]
        runs = [" ".join(part[i:i + 3]) for part in parts for i in range(max(1, len(part) - 2))]
        longest = max(len(run.split()) for run in runs)
        if not any(run in literal for run in runs if len(run.split()) == longest for literal in known):
            unknown.append(message)
    for message in unknown:
        print(f"{page}: no message of the library: {message}")
    return 1 if unknown else 0


def main():
    repository, which, compiler = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    wrong = which == "plain" and check_messages(repository) > 0
    wrong = wrong or (which == "plain" and compile_pages_in_c(repository, compiler) != 0)
    return compile_pages(repository, which, compiler) or int(wrong)


if __name__ == "__main__":
    sys.exit(main())
