# SPDX-License-Identifier: Apache-2.0
"""Kolo for PyTorch programs that ask for Gloo: KOLO_AS_GLOO=1, or `replace_gloo` (docs/frameworks.md).

All ranks of a group take Kolo, or all take Gloo. Before a group whose default group is none of these, every rank puts
into the group's store whether it can; groups below such a default group are groups in its world.
"""

from __future__ import annotations

import datetime
import time
import warnings
from typing import Any, Callable

import torch
import torch.distributed as dist

import kolo_torch
import kolo_torch_autoload
from kolo_torch import _C

_PATIENCE_S = 10.0  # between two looks whether a rank that says nothing has begun to make a Gloo
_has_warned = False

MakeGloo = Callable[[Any, Any], Any]


def create(make_gloo: MakeGloo, options: Any, backend_options: Any) -> Any:
    """The stand-in, or what `make_gloo` makes: the same on all ranks."""
    if not hasattr(_C, "GlooStandIn"):
        raise ImportError("its kolo_torch does not know the Gloo of this PyTorch")
    default = _default() if options.global_ranks_in_group else None
    if default is None:
        kolo_torch_autoload.say(options.store, options.group_rank, "")
        refusals = _refusals(options)
        if refusals:
            _warn(refusals, options)
            return make_gloo(options, backend_options)
    try:
        kolo = kolo_torch._create(options, leaves_early=True)
    except ValueError as error:
        if "KOLO_GROUPS" not in str(error):  # what all members hear alike
            raise
        return make_gloo(options, backend_options)
    return _C.GlooStandIn(kolo, options.timeout, lambda: make_gloo(options, backend_options))


def _default() -> Any:
    """The stand-in that the default group has, or None."""
    try:
        backend: Any = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    except RuntimeError:  # it has no backend for the CPU
        return None
    backend = getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL
    return backend if isinstance(backend, _C.GlooStandIn) else None


def _refusals(options: Any) -> dict[int, str]:
    """Why which rank takes Gloo."""
    refusals = {}
    for rank in range(options.group_size):
        why = _heard(options.store, rank, options.timeout)
        if why:
            refusals[rank] = why
    return refusals


def _heard(store: Any, rank: int, timeout: datetime.timedelta) -> str:
    """What a rank has put into the store. One that has no kolo_torch puts nothing there but what Gloo does."""
    key = f"kolo/instead_of_gloo/{rank}"
    until = time.monotonic() + timeout.total_seconds()
    while True:
        left = until - time.monotonic()
        try:
            store.wait([key], datetime.timedelta(seconds=max(min(left, _PATIENCE_S), 0.001)))
            return bytes(store.get(key)).decode()
        except RuntimeError:
            if not store.check([key]) and store.check([f"0/{rank}"]):  # as Gloo calls its first device's address
                return "it has no kolo_torch that stands in for Gloo"
            if left <= _PATIENCE_S:
                raise


def _warn(refusals: dict[int, str], options: Any) -> None:
    """Once a process, on the lowest rank that would take Kolo."""
    global _has_warned
    if _has_warned or options.group_rank != min(set(range(options.group_size)) - set(refusals)):
        return
    _has_warned = True
    rank, why = min(refusals.items())
    others = f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""
    warnings.warn(f"KOLO_AS_GLOO: all {options.group_size} ranks take PyTorch's own Gloo, because rank {rank}{others} "
                  f"cannot take Kolo: {why}", stacklevel=6)
