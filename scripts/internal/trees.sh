# SPDX-License-Identifier: Apache-2.0
# Sourced behind common.sh: the build trees of scripts/test, in the folder $builds. With $quick the sanitizers' trees have
# what takes them long, too.
# shellcheck shell=bash

jobs=$(nproc)
debians_torch=/usr/lib/python3/dist-packages/torch/__init__.py

# Whether kolo_torch can be compiled against Debian's PyTorch, and tested with it: no other is before it on the path.
has_debians_torch() {
  [ -e /usr/include/pybind11/pybind11.h ] && [ -e /usr/include/torch/csrc/distributed/c10d/ProcessGroup.hpp ] &&
    [ "$(/usr/bin/python3 -c 'import torch; print(torch.__file__)' 2>/dev/null)" = "$debians_torch" ]
}

has_newer_torch() {
  python3 -c 'import sys, torch; sys.exit(int(torch.__version__.split(".")[0]) < 2)' 2>/dev/null
}

# configure PRESET [FLAG...]
configure() {
  local preset=$1 flags=(-DKOLO_WERROR=ON "-DKOLO_ALL_SANITIZED=${quick:-OFF}" "${@:2}")
  if [ "$preset" = release ]; then
    flags+=(-DKOLO_UNIT_TESTS=OFF)
    if has_debians_torch; then
      flags+=(-DKOLO_WITH_PYTHON=ON -DPython3_EXECUTABLE=/usr/bin/python3)
    else
      flags+=(-DKOLO_WITH_PYTHON=OFF)
    fi
  fi
  (cd "$root" && cmake --preset "$preset" -B "$builds/$preset" "${flags[@]}" >"$builds/$preset.log" 2>&1) ||
    { cat "$builds/$preset.log"; return 1; }
  grep -E '^-- (Kolo|  )' "$builds/$preset.log" || true
}

# build PRESET [TARGET...]: in a tree that is configured.
build() { cmake --build "$builds/$1" --target "${@:2}" -j "$jobs"; }

# build_all PRESET
build_all() { configure "$1" && build "$1" all; }
