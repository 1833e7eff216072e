#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the C++ that README.md and docs/writing-a-trainer.md begin with, as their reader would, around a network of
one weight. Exit status: the compiler's.

usage: readme_test.py REPOSITORY COMPILER...
"""

import re
import subprocess
import sys
from pathlib import Path

# What the pages leave to the reader.
READERS_PART = """
#include <cstddef>
#include <vector>
#include <kolo/kolo.hpp>
struct Batch { std::size_t first; };
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
"""


def main():
    repository, compiler = Path(sys.argv[1]), sys.argv[2:]
    for page in ("README.md", "docs/writing-a-trainer.md"):
        trainer = re.search(r"```cpp\n(.*?)```", (repository / page).read_text(encoding="utf-8"), re.S).group(1)
        command = [*compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{repository}/include",
                   "-x", "c++", "-"]
        status = subprocess.run(command, input=READERS_PART + trainer, text=True, check=False).returncode
        if status != 0:
            print(f"{page}: its trainer does not compile")
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
