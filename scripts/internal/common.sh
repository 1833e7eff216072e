# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts: where the repository is, how they speak, and what mpirun needs.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
me=$(basename "$0")

say() { printf '\n== %s\n' "$*"; }
die() {
  printf '%s: %s\n' "$me" "$*" >&2
  exit 2
}

# The comment at the head of a script is its help.
show_help() { awk 'NR > 2 && !/^#/ { exit } NR > 2 { sub(/^# ?/, ""); print }' "$0"; }

# Open MPI refuses root unless told twice; containers and the fresh root of check-fresh have nobody else.
mpirun_as_anyone() {
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
}
