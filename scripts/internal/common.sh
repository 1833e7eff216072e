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

# Open MPI refuses root unless told twice; containers and the fresh root of scripts/test fresh have nobody else.
mpirun_as_anyone() {
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
}

# parts_of FOLDER: the parts of a command, which are the programs in scripts/internal/FOLDER.
parts_of() { find "$root/scripts/internal/$1" -maxdepth 1 -type f -perm -u+x -printf '%f\n' | sort | paste -sd ' '; }

# run_part FOLDER [PART [ARGUMENT...]]: goes on as that part of a command.
run_part() {
  local folder=$1 part=${2:-}
  case $part in --help | -h) show_help; exit 0 ;; esac
  [[ -n $part && " $(parts_of "$folder") " == *" $part "* ]] || die "give one of $(parts_of "$folder") (see --help)"
  shift 2
  exec "$root/scripts/internal/$folder/$part" "$@"
}
