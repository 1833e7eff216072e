# SPDX-License-Identifier: Apache-2.0
"""How kolopy.tensorflow compiles its kernels: once, by one of many processes, into the package or the user's cache; and
what it says where it cannot.

usage: python3 tensorflow_build_test.py
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import kolopy

PACKAGE = pathlib.Path(kolopy.__file__).parent


def copied(folder):
    """The package without compiled kernels."""
    ignored = shutil.ignore_patterns("kernels-*.so", "*.lock", "__pycache__", "include")
    shutil.copytree(PACKAGE, folder / "kolopy", symlinks=True, ignore=ignored)
    (folder / "kolopy" / "include").symlink_to(pathlib.Path(kolopy.get_include()).resolve())
    return folder / "kolopy"


def environment(folder, **more):
    paths = [str(folder), *[path for path in sys.path if (pathlib.Path(path) / "tensorflow").is_dir()]]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TF_CPP_MIN_LOG_LEVEL": "3", **more}


def start(folder, code="import kolopy.tensorflow._build as b; print(b.compiled())", **more):
    return subprocess.Popen([sys.executable, "-c", code], env=environment(folder, **more), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def counting_compiler(folder):
    """A compiler that says when it runs."""
    path = folder / "compiler"
    path.write_text(f'#!/bin/sh\necho once >> {folder}/count\nexec g++ "$@"\n')
    path.chmod(0o755)
    return str(path)


def many_at_once():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        package, compiler = copied(folder), counting_compiler(folder)
        ran = [one.communicate() + (one.returncode,) for one in [start(folder, CXX=compiler) for _ in range(3)]]
        assert all(code == 0 for _, _, code in ran), ran
        paths = {output.strip().splitlines()[-1] for output, _, _ in ran}
        assert len(paths) == 1 and pathlib.Path(paths.pop()).parent == package / "tensorflow", paths
        assert (folder / "count").read_text() == "once\n", (folder / "count").read_text()
        assert not list((package / "tensorflow").glob(".kernels-*")), "an unfinished file is left"


def without_a_compiler():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        copied(folder)
        process = start(folder, "import kolopy.tensorflow", CXX="no-such-compiler")
        _, errors = process.communicate()
        assert process.returncode != 0 and "there is no compiler 'no-such-compiler': install g++" in errors, errors
        process = start(folder, "import kolopy.tensorflow", CXX="false")
        _, errors = process.communicate()
        assert process.returncode != 0 and "do not compile for TensorFlow" in errors, errors


def where_the_package_is_read_only():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        package = copied(folder)
        # Root may write everywhere, so the answer to the question is replaced, not the folder's mode.
        code = (
            "import os; real = os.access\n"
            f"os.access = lambda path, mode: real(path, mode) and not str(path).startswith({str(package)!r})\n"
            "import kolopy.tensorflow._build as b; print(b.compiled())"
        )
        process = start(folder, code, XDG_CACHE_HOME=str(folder / "cache"))
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        path = pathlib.Path(output.strip().splitlines()[-1])
        assert path.parent == folder / "cache" / "kolopy" and path.name.startswith("kernels-tf"), path
        assert path.parent.stat().st_mode & 0o77 == 0
        (folder / "file").touch()
        process = start(folder, code, XDG_CACHE_HOME=str(folder / "file"))
        _, errors = process.communicate()
        assert process.returncode != 0 and "can write neither" in errors, errors


for test in (many_at_once, without_a_compiler, where_the_package_is_read_only):
    test()
    print(f"passed: {test.__name__}", flush=True)
