# SPDX-License-Identifier: Apache-2.0
"""Kolo as a backend of torch.distributed.

    import kolo_torch                               # not needed where PyTorch finds backends by itself (2.5 or newer)
    torch.distributed.init_process_group("kolo")
    model = torch.nn.parallel.DistributedDataParallel(model)

Importing registers the backend. docs/pytorch.md says what it can do.
"""

from __future__ import annotations

import datetime
import inspect
import multiprocessing.util
import os
import sys
import warnings
import weakref
from typing import Any, Iterable

import torch
import torch.distributed as dist

import kolo_torch_autoload
from kolo_torch._build import KOLO_VERSION as __version__

if kolo_torch_autoload.misfit():
    raise ImportError(kolo_torch_autoload.misfit())

import kolopy  # loads libkolo, of which a process has one

if kolopy.__version__ != __version__:
    raise ImportError(
        f"kolo_torch {__version__} was built over kolopy {__version__}, and this is kolopy {kolopy.__version__}. "
        "Install both again, in Kolo's source folder: pip install . and then pip install --no-deps ./python/kolo_torch"
    )

from kolo_torch import _C
from kolo_torch._C import ProcessGroupKolo
from kolo_torch_autoload import replace_gloo

__all__ = ["ProcessGroupKolo", "__version__", "backend_of", "reduce_in_arena", "replace_gloo"]

_NAME = "kolo"
_DEVICES = kolo_torch_autoload.devices()
_leaves_at_exit = 0  # the process that does
_watches_replicas = False


def backend_of(group: dist.ProcessGroup | None = None) -> ProcessGroupKolo | None:
    """Kolo's part of a process group (of the default one without an argument); None if Kolo is not its backend."""
    if group is None:
        if not dist.is_initialized():
            return None
        group = dist.distributed_c10d._get_default_group()
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        return None
    if not hasattr(group, "_get_backend"):  # PyTorch 1.13, where a backend is the group
        return group if isinstance(group, _C.ProcessGroupKolo) else None
    for device in _DEVICES:
        try:
            backend: Any = group._get_backend(torch.device(device))
        except RuntimeError:
            continue
        backend = getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL
        backend = getattr(backend, "kolo", backend)  # where it stands in for Gloo
        if isinstance(backend, _C.ProcessGroupKolo):
            return backend
    return None


def reduce_in_arena(model: torch.nn.parallel.DistributedDataParallel) -> None:
    """The model's buckets of gradients move into memory that the ranks of a machine share (of a model on a GPU: that
    NCCL knows), and are reduced there without a copy. Every rank calls it once, before the first backward pass; it is
    the model's communication hook, so there can be no other. With `gradient_as_bucket_view=True` the gradients
    themselves lie there."""
    if not hasattr(model, "reducer") or not hasattr(model, "process_group"):
        raise TypeError(
            "reduce_in_arena needs a model that DistributedDataParallel has made, and this one is of type "
            f"{type(model).__name__}"
        )
    backend = backend_of(model.process_group)
    if backend is None:
        raise ValueError("reduce_in_arena needs a model whose process group has the backend kolo")
    trained = [p for p in model.parameters() if p.requires_grad]
    # Buckets are made twice: before the first pass, and in the order in which that has computed gradients. Each begins
    # at a multiple of 64 bytes.
    room = 2 * sum(p.numel() * p.element_size() + 64 for p in trained)
    _C.reduce_in_arena(model.reducer, backend, room, str(trained[0].device if trained else "cpu"))


def _create(options: Any, backend_options: Any = None, leaves_early: bool = False) -> ProcessGroupKolo:
    """A group in the default group's world if that is Kolo's; else a world of its own: its ranks meet in its store.
    With `leaves_early` the end of a program that has not left it waits for no other rank."""
    if backend_options is not None:
        warnings.warn("the backend kolo has no options: pg_options is ignored", stacklevel=2)
    timeout = options.timeout
    if not isinstance(timeout, datetime.timedelta):
        timeout = datetime.timedelta(seconds=timeout)
    if getattr(options, "enable_reconfigure", False):
        _leave_worlds_at_exit()
        return _C.reconfigurable(options.store, timeout)
    parent = backend_of() if options.global_ranks_in_group else None
    if parent is not None:
        return parent.subgroup(list(options.global_ranks_in_group), options.group_id, timeout)
    _leave_worlds_at_exit()
    world = _C.ProcessGroupKolo(options.store, options.group_rank, options.group_size, timeout, leaves_early)
    _watch_replicas(world.replica_interval())
    return world


def _watch_replicas(every: int) -> None:
    """KOLO_CHECK_REPLICAS: compares the parameters of each DistributedDataParallel model whose group is Kolo's, before
    the forward pass that follows every so many steps. Once a process."""
    global _watches_replicas
    if every <= 0 or _watches_replicas:
        return
    _watches_replicas = True
    steps: weakref.WeakKeyDictionary[torch.nn.Module, int] = weakref.WeakKeyDictionary()

    def before_forward(model: torch.nn.Module, _inputs: Any) -> None:
        if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
            return
        if not (model.training and torch.is_grad_enabled() and model.require_backward_grad_sync):
            return
        done = steps.get(model, 0)  # each of these forward passes is a step
        steps[model] = done + 1
        backend = backend_of(model.process_group)
        if done == 0 or done % every != 0 or backend is None:
            return
        _compare_replicas(backend, "DistributedDataParallel", None, model.module.named_parameters(), done)

    torch.nn.modules.module.register_module_forward_pre_hook(before_forward)


def _compare_replicas(
    backend: ProcessGroupKolo, caller: str, name: str | None, parameters: Iterable[tuple[str, torch.nn.Parameter]],
    step: int,
) -> None:
    """Raises RuntimeError on all ranks where those that are trained differ, after this step or before the first (0).
    Without a collective's name all ranks make such calls in the same order."""
    trained = [(name, p) for name, p in parameters if p.requires_grad and p.device.type in _DEVICES]
    names, values = [one for one, _ in trained], [p.detach().contiguous() for _, p in trained]
    backend.check_replicas(caller, name, names, values, step)


def _leave_worlds_at_exit() -> None:
    """Once a process. Unlike what atexit calls, this is called in the processes of torch.multiprocessing, too; those
    that are forked forget what their parent has registered."""
    global _leaves_at_exit
    if _leaves_at_exit != os.getpid():
        _leaves_at_exit = os.getpid()
        multiprocessing.util.Finalize(None, _leave_worlds, exitpriority=100)


def _leave_worlds() -> None:
    """Leaves the worlds of a program that ends without destroy_process_group, so that nobody takes it for dead; and
    waits for callbacks of futures, which need Python."""
    error = sys.exc_info()[1] or getattr(sys, "last_value", None)
    failed = error is not None and not (isinstance(error, SystemExit) and not error.code)
    _C.leave_worlds(repr(error) if failed else None)


def _register() -> None:
    if hasattr(dist.Backend, _NAME.upper()):
        return
    register: Any = dist.Backend.register_backend
    arguments: dict[str, Any] = {"extended_api": True}
    if "devices" in inspect.signature(register).parameters:
        arguments["devices"] = _DEVICES
    register(_NAME, _create, **arguments)


_register()
if hasattr(dist.distributed_c10d, "is_gloo_available"):
    kolo_torch_autoload.get_between(dist.distributed_c10d)
