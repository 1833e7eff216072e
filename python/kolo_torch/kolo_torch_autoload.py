# SPDX-License-Identifier: Apache-2.0
"""What PyTorch calls when it is imported, and when a program asks for the backend "kolo" (its groups of entry points
"torch.backends" and "torch.distributed.backends").

It reads two versions and the variable KOLO_AS_GLOO, and imports nothing: `kolo_torch` is imported when a group is made.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from typing import Any

OLDEST = (2, 11)  # of the PyTorch in which another backend can be given for Gloo
_replaces = False  # replace_gloo was called
_hooked = _has_warned = False


def load() -> None:
    """Registers the backend, and gets between PyTorch and its Gloo. A kolo_torch that does not fit keeps nobody from
    importing PyTorch."""
    try:
        c10d = sys.modules["torch"].distributed.distributed_c10d
    except AttributeError:  # a PyTorch without torch.distributed, or one that is imported itself
        return
    try:
        why = misfit()
        if why:
            warnings.warn(why, stacklevel=2)
        elif not hasattr(c10d.Backend, "KOLO"):
            c10d.Backend.register_backend("kolo", _create, extended_api=True, devices=devices())
        get_between(c10d)
    except Exception as error:  # whatever it is: who wants Kolo reads it here
        warnings.warn(f"kolo_torch could not be registered: {type(error).__name__}: {error}", stacklevel=2)


def register() -> None:
    """Registers the backend "kolo", which a program has asked for."""
    import kolo_torch  # noqa: F401


def misfit() -> str:
    """Why kolo_torch does not fit this PyTorch: what is compiled against one build fits no other. Empty: it does."""
    built, torch_version = _built()["TORCH_VERSION"], sys.modules["torch"].__version__
    if built == torch_version:
        return ""
    return (f"kolo_torch was built against torch {built}, and this is torch {torch_version}. Build it again for this "
            "one, in Kolo's source folder: pip install --force-reinstall --no-deps --no-cache-dir ./python/kolo_torch")


def replace_gloo() -> None:
    """Groups that are asked for as "gloo" from now on are Kolo's, as with KOLO_AS_GLOO=1. All ranks call it, before the
    first group is made."""
    global _replaces
    _replaces = True
    get_between(sys.modules["torch"].distributed.distributed_c10d)


def devices() -> list[str]:
    """Whose tensors Kolo takes: CUDA's where both were built with it, whether this machine has a device or not."""
    return ["cpu", "cuda"] if _built()["TAKES_CUDA"] and sys.modules["torch"].version.cuda else ["cpu"]


@functools.lru_cache(maxsize=None)
def _built() -> dict[str, Any]:
    """What the copy of kolo_torch beside this module was built against, without importing it."""
    values: dict[str, Any] = {}
    with open(os.path.join(os.path.dirname(__file__), "kolo_torch", "_build.py"), encoding="utf-8") as file:
        exec(file.read(), values)
    return values


def _create(options: Any, backend_options: Any = None) -> Any:
    import kolo_torch

    return kolo_torch._create(options, backend_options)


def refusal() -> str:
    """Why this process wants PyTorch's own Gloo, as one of several ranks says it to the others. Empty: it does not."""
    if not _replaces:
        value = os.environ.get("KOLO_AS_GLOO", "")
        if value.lower() in ("", "0", "false", "no", "off"):
            return "KOLO_AS_GLOO is not set there"
        if value.lower() not in ("1", "true", "yes", "on"):
            return f'KOLO_AS_GLOO is "{value}" there, which is no boolean'
    return misfit()


def get_between(c10d: Any) -> None:
    """Gloo's groups are made by `_create_gloo` from now on. Without the variable that makes a Gloo and says so to ranks
    that have it."""
    global _hooked
    version = tuple(int(part) for part in sys.modules["torch"].__version__.split(".")[:2])
    if version < OLDEST or not c10d.is_gloo_available():
        if not refusal():
            _warn_once(f"KOLO_AS_GLOO needs PyTorch {OLDEST[0]}.{OLDEST[1]} or newer with Gloo, and this is "
                       f"{sys.modules['torch'].__version__}: groups of Gloo are PyTorch's own")
        return
    if _hooked:
        return
    _hooked = True
    if hasattr(c10d, "_register_builtin_gloo_backend"):  # PyTorch 2.14 asks its registry for every backend
        if "GLOO" not in c10d.Backend._plugins:
            c10d._register_builtin_gloo_backend()
        make_gloo = c10d.Backend._plugins["GLOO"].creator_fn
        c10d.Backend._plugins["GLOO"] = c10d.Backend._BackendPlugin(
            lambda options, backend_options=None: _create_gloo(make_gloo, options, backend_options), True)
        return
    _get_between_by_class(c10d)


def _warn_once(text: str) -> None:
    global _has_warned
    if not _has_warned:
        _has_warned = True
        warnings.warn(text, stacklevel=4)


def _create_gloo(make_gloo: Any, options: Any, backend_options: Any) -> Any:
    if getattr(options, "enable_reconfigure", False):  # on all ranks alike
        return make_gloo(options, backend_options)
    why = refusal()
    if not why:
        try:
            from kolo_torch import _stand_in

            return _stand_in.create(make_gloo, options, backend_options)
        except ImportError as error:
            why = str(error)
            if options.group_rank == 0:  # where no rank can take Kolo, nobody else says so
                _warn_once(f"KOLO_AS_GLOO: rank 0 takes PyTorch's own Gloo, because it cannot take Kolo: {why}")
    say(options.store, options.group_rank, why)
    return make_gloo(options, backend_options)


def say(store: Any, rank: int, why: str) -> None:
    """Tells the ranks that meet in this store whether this one can do without Gloo: an empty text, or why not."""
    store.set(f"kolo/instead_of_gloo/{rank}", why)


def _get_between_by_class(c10d: Any) -> None:
    """PyTorch 2.11 to 2.13 make Gloo's groups by the name of the class, and tell it nothing of the group's ranks."""
    real, made = c10d.ProcessGroupGloo, c10d._new_process_group_helper

    class Asked:
        """What a group that is being made was asked for with."""

        members: list[int] = []
        name = ""
        wrapping = False

    def make(group_size: int, group_rank: int, members: list[int], backend: Any, store: Any, group_name: str,
             *rest: Any, **named: Any) -> Any:
        Asked.members, Asked.name = members, group_name
        return made(group_size, group_rank, members, backend, store, group_name, *rest, **named)

    class Options:
        def __init__(self, store: Any, rank: int, size: int, timeout: Any) -> None:
            self.store, self.group_rank, self.group_size, self.timeout = store, rank, size, timeout
            self.global_ranks_in_group, self.group_id = Asked.members, Asked.name

    def make_gloo(options: Any, _backend_options: Any) -> Any:
        return real(options.store, options.group_rank, options.group_size, timeout=options.timeout)

    class ByName(type):
        def __call__(cls, store: Any, rank: int, size: int, timeout: Any = c10d.default_pg_timeout) -> Any:
            if Asked.wrapping:
                return real(store, rank, size, timeout=timeout)
            return _create_gloo(make_gloo, Options(store, rank, size, timeout), None)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, real) or type(instance).__name__ == "GlooStandIn"

        def __getattr__(cls, name: str) -> Any:  # ProcessGroupGloo._Options and others
            return getattr(real, name)

    wrap = c10d._create_process_group_wrapper

    def with_gloos_help(*arguments: Any, **named: Any) -> Any:  # TORCH_DISTRIBUTED_DEBUG=DETAIL: Gloo compares
        Asked.wrapping = True
        try:
            return wrap(*arguments, **named)
        finally:
            Asked.wrapping = False

    c10d._new_process_group_helper = make
    c10d._create_process_group_wrapper = with_gloos_help
    c10d.ProcessGroupGloo = ByName("ProcessGroupGloo", (), {})
