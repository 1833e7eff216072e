# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts: where the repository is, how they speak, and what mpirun needs.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# As the user called it: scripts/test chaos is scripts/internal/test/chaos.
me=$(realpath "$0")
me=${me#"$root/scripts/"} me=${me#internal/} me=${me/\// }

say() { printf '\n== %s\n' "$*"; }
die() {
  printf '%s: %s\n' "$me" "$*" >&2
  exit 2
}

# The comment at the head of a script is its help.
show_help() { awk 'NR > 2 && !/^#/ { exit } NR > 2 { sub(/^# ?/, ""); print }' "$0"; }

# read_flags SPEC... -- ARGUMENT...: reads the arguments of a script. Each flag sets a variable of its name (--build-dir:
# build_dir). A SPEC is
#   --name     a flag: the variable becomes 1
#   --name=    one with a value; --name=number: with a number from 1
#   --name=... one with a value that may be given again: the variable is a list
# What is no flag goes into `rest`, and so does all behind `--`. With the SPEC `stop` the first that is no flag ends them.
read_flags() {
  local -A kinds=()
  local name stop=''
  while [ "$1" != -- ]; do
    case $1 in
      stop) stop=1 ;;
      *=*) kinds[${1%%=*}]=value:${1#*=} ;;
      *) kinds[$1]=flag ;;
    esac
    shift
  done
  shift
  rest=()
  while [ $# -gt 0 ]; do
    case $1 in
      --help | -h) show_help; exit 0 ;;
      --) shift; break ;;
      --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    esac
    if [[ $1 != -?* ]]; then
      [ -z "$stop" ] || break
      rest+=("$1")
      shift
      continue
    fi
    name=${1#--} name=${name//-/_}
    case ${kinds[$1]:-} in
      '') die "there is no flag '$1' (see --help)" ;;
      flag) declare -g "$name=1" ;;
      *)
        [ $# -ge 2 ] || die "$1 needs a value (see --help)"
        [[ ${kinds[$1]} != value:number || $2 =~ ^[1-9][0-9]*$ ]] || die "$1 needs a number from 1, not '$2'"
        if [ "${kinds[$1]}" = value:... ]; then
          local -n list=$name
          list+=("$2")
          unset -n list
        else
          declare -g "$name=$2"
        fi
        shift
        ;;
    esac
    shift
  done
  rest+=("$@")
}

# no_rest: for a script that takes flags alone.
no_rest() { [ ${#rest[@]} = 0 ] || die "there is nothing to do with '${rest[0]}' (see --help)"; }

# release_tree TARGET...: sets `build` to the tree that --build-dir names, or to build/release, where these are compiled.
release_tree() {
  build=$(realpath -m "${build_dir:-$root/build/release}")
  [ -n "$build_dir" ] || "$root/scripts/internal/compile" "$@"
}

# version_of_kolo: the version, by the only place that has it.
version_of_kolo() { sed -nE 's/^project\(kolo VERSION ([0-9.]+) .*/\1/p' "$root/CMakeLists.txt"; }

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
