# SPDX-License-Identifier: Apache-2.0
"""Compiles `kernels.cpp` for the TensorFlow that is installed, once, and loads it.

The file lies in this folder, or, where that cannot be written, in the user's cache. Its name says for what it was
compiled, so an update of TensorFlow or Kolo leads to another file.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from typing import Any, Iterator, Tuple

import kolopy
import tensorflow as tf
from kolopy import _library

FOLDER = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(FOLDER, "kernels.cpp")
_OLDEST = (2, 16)  # the first with Keras 3


def _compiler() -> "list[str]":
    given = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    if shutil.which(given[0]) is None:
        raise ImportError(
            f"kolopy.tensorflow compiles its kernels for TensorFlow {tf.__version__}, and there is no compiler "
            f"{given[0]!r}: install g++, or name another C++ compiler by the variable CXX. `python -m "
            "kolopy.tensorflow` compiles without importing more."
        )
    return given


def _flags() -> "list[str]":
    return [
        *["-O2", "-fPIC", "-shared", "-fvisibility=hidden"],
        *(
            flag.replace("-I", "-isystem", 1) if flag.startswith("-I") else flag
            for flag in tf.sysconfig.get_compile_flags()
        ),
        f"-I{kolopy.get_include()}",
    ]


def _name() -> str:
    """Of the compiled file."""
    with open(SOURCE, "rb") as file:
        kind = hashlib.sha256(file.read())
    with open(os.path.join(kolopy.get_include(), "kolo", "kolo.h"), "rb") as file:
        kind.update(file.read())
    kind.update(repr((tf.__version__, tf.sysconfig.get_compile_flags(), kolopy.__version__)).encode())
    return f"kernels-tf{tf.__version__}-kolo{kolopy.__version__}-{kind.hexdigest()[:12]}.so"


def _cache() -> str:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "kolopy")


def _folder() -> str:
    """Where the compiled file is made."""
    if os.access(FOLDER, os.W_OK):
        return FOLDER
    folder = _cache()
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise ImportError(
            f"kolopy.tensorflow has to compile its kernels, and can write neither {FOLDER} nor {folder} ({error}): "
            "make one of them writable, or name a folder by XDG_CACHE_HOME"
        ) from error
    if os.stat(folder).st_uid != os.getuid() or not os.access(folder, os.W_OK):
        raise ImportError(f"kolopy.tensorflow would load code from {folder}, which is not this user's: remove it")
    return folder


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Many ranks import at once: one compiles, the others wait."""
    with open(os.path.join(folder, "kernels.lock"), "a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _compile(path: str) -> None:
    compiler = _compiler()
    handle, unfinished = tempfile.mkstemp(suffix=".so", prefix=".kernels-", dir=os.path.dirname(path))
    os.close(handle)
    command = [*compiler, *_flags(), SOURCE, "-o", unfinished, *tf.sysconfig.get_link_flags(), kolopy.get_library()]
    try:
        ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if ran.returncode != 0:
            raise ImportError(
                f"kolopy.tensorflow's kernels do not compile for TensorFlow {tf.__version__}:\n{shlex.join(command)}\n"
                f"{ran.stdout[-4000:]}"
            )
        os.chmod(unfinished, 0o755)
        os.rename(unfinished, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(unfinished)


def compiled() -> str:
    """The path of the compiled kernels; compiles them if need be."""
    version = tuple(int(part) for part in tf.__version__.split(".")[:2])
    if version < _OLDEST:
        raise ImportError(f"kolopy.tensorflow needs TensorFlow 2.16 or newer, and this is {tf.__version__}")
    name = _name()
    if os.path.exists(os.path.join(FOLDER, name)):
        return os.path.join(FOLDER, name)
    folder = _folder()
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        with _locked(folder):
            if not os.path.exists(path):
                _compile(path)
    return path


def load() -> "Tuple[Any, Any]":
    """TensorFlow's module of the operations, and the function that says which group a process set is. libkolo.so is in
    the process already (`kolopy._library`), so that the kernels find that one."""
    assert _library.C is not None
    path = compiled()
    operations = tf.load_op_library(path)
    set_group = ctypes.CDLL(path).kolo_tensorflow_set_group
    set_group.argtypes, set_group.restype = (ctypes.c_int32, ctypes.c_void_p), None
    return operations, set_group
