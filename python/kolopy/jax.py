# SPDX-License-Identifier: Apache-2.0
"""JAX as pip installs it, whose CPU collectives go over Kolo.

    import kolopy.jax as kj      # before jax
    import jax

    kj.init(timeout_s=60)        # kolopy.init and jax.distributed.initialize: one CPU device a process
    ...                          # plain JAX: jit, grad, shard_map, NamedSharding

Importing this sets MPITRAMPOLINE_LIB, by which jaxlib finds the MPI that it calls: libkolo_mpiabi, beside this file.
docs/jax.md in Kolo's source says more.
"""

from __future__ import annotations

import atexit
import ctypes
import inspect
import itertools
import os
import socket
import sys
from typing import Any, Mapping, Optional

import kolopy
from kolopy import _context
from kolopy import _library as lib
from kolopy._errors import Error, InvalidArgumentError

LIBRARY = os.path.join(lib.FOLDER, "libkolo_mpiabi.so")
_VARIABLE = "MPITRAMPOLINE_LIB"

if not os.path.exists(LIBRARY):
    raise ImportError(f"kolopy.jax lacks its library, {LIBRARY}: install kolopy by pip, or use a build tree's python/")
if "jaxlib" in sys.modules and os.environ.get(_VARIABLE) != LIBRARY:
    raise ImportError("import kolopy.jax before jax: jaxlib looks for its MPI when it is loaded, and never again")
os.environ[_VARIABLE] = LIBRARY

#: What `init` itself gives to jax.distributed.initialize.
_OWN = (
    "coordinator_address",
    "num_processes",
    "process_id",
    "local_device_ids",
    "cluster_detection_method",
    "coordinator_bind_address",
)
_OLDEST = (0, 4, 38)  # older ones ask the environment about clusters, and fail
_PREEMPTION = "JAX_ENABLE_PREEMPTION_SERVICE"
#: JAX's end waits so long for processes that come from Kolo's, where all have met.
_END_S = 10


def rank() -> int:
    """This process's place among all: jax.process_index()."""
    return kolopy.rank()


def size() -> int:
    """How many processes there are: jax.process_count()."""
    return kolopy.size()


def init(settings: Optional[Mapping[str, Any]] = None, **more: Any) -> None:
    """Joins the job, as kolopy.init does, and makes its processes JAX's. Call it before the first computation. Settings
    are Kolo's (`timeout_s=60` is KOLO_TIMEOUT_S) and those of jax.distributed.initialize (`initialization_timeout=60`).
    """
    import jax

    if jax.__version_info__ < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise InvalidArgumentError(f"kolopy.jax needs JAX {oldest} or newer, and this is {jax.__version__}")
    given = [name for name in _OWN if name in more]
    if given:
        raise InvalidArgumentError(f"kolopy.jax.init itself says {given[0]} to JAX: leave it out")
    known = inspect.signature(jax.distributed.initialize).parameters
    of_jax = {name: more.pop(name) for name in list(more) if name in known}
    if "shutdown_timeout_seconds" in known:
        of_jax.setdefault("shutdown_timeout_seconds", _END_S)
    kolopy.init(settings, **more)
    try:
        _join_jax(jax, of_jax)
    except BaseException as error:
        _context.leave(kolopy.context(), error)
        raise
    # JAX's own end waits for processes that may be in a collective of Kolo's. What is registered last runs first.
    atexit.register(_leave_at_exit, jax)


def _join_jax(jax: Any, settings: Mapping[str, Any]) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "mpi")
    if hasattr(jax.config, "jax_num_cpu_devices"):  # from JAX 0.5; before it, only XLA_FLAGS makes more than one
        jax.config.update("jax_num_cpu_devices", 1)
    if _PREEMPTION not in os.environ and hasattr(jax.config, _PREEMPTION.lower()):
        jax.config.update(_PREEMPTION.lower(), False)  # with it SIGTERM ends no process
    place = kolopy.broadcast_object(_free_place() if rank() == 0 else None, root=0)
    # Without the last two JAX asks the environment about clusters, and listens at all addresses.
    jax.distributed.initialize(
        place,
        size(),
        rank(),
        cluster_detection_method="deactivate",
        coordinator_bind_address=place,
        **settings,
    )
    if jax.local_device_count() != 1:
        raise InvalidArgumentError(
            f"Kolo has one rank a process, and this JAX has {jax.local_device_count()} devices in one: set "
            "jax_num_cpu_devices to 1 and JAX_PLATFORMS to cpu, and start a process for each device"
        )
    if jax.process_count() != size():
        raise InvalidArgumentError(f"JAX has {jax.process_count()} processes, and Kolo {size()}")


def _free_place() -> str:
    """Where JAX's coordinator, in this process, can listen so that all reach it."""
    host = "127.0.0.1" if _is_one_machine() else kolopy.world().address(0)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as free:
        free.bind((host, 0))
        port = free.getsockname()[1]
    return f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}"


def _is_one_machine() -> bool:
    world = kolopy.world()
    return all(world.address(other) == world.address(0) for other in range(world.size))


def prepare(mesh: Any) -> None:
    """Makes the communicators of all axes of a mesh, and of all combinations of its axes, in one order on all
    processes. Every process calls it. JAX makes a communicator when a computation first needs it, and all processes
    have to be there then, also those that are not in it; without this call programs must first need them in one order.
    """
    import jax

    shard_map = getattr(jax, "shard_map", None)
    if shard_map is None:
        from jax.experimental.shard_map import shard_map
    names = tuple(mesh.axis_names)
    spec = jax.sharding.PartitionSpec
    whole = jax.sharding.NamedSharding(mesh, spec(*names))
    ones = jax.jit(lambda: jax.numpy.ones(mesh.devices.shape, jax.numpy.int32), out_shardings=whole)()
    for count in range(1, len(names) + 1):
        for axes in itertools.combinations(names, count):
            rest = spec(*(None if name in axes else name for name in names))
            sums = shard_map(lambda x, axes=axes: jax.lax.psum(x, axes), mesh=mesh, in_specs=whole.spec, out_specs=rest)
            jax.block_until_ready(jax.jit(sums)(ones))


def shutdown() -> None:
    """Leaves the job, and JAX's. Every process calls it; at the end of a process it need not be called."""
    import jax

    kolopy.shutdown()
    jax.distributed.shutdown()


def _leave_at_exit(jax: Any) -> None:
    """Leaves Kolo's job. If the job has failed, JAX's own end, which would wait up to five minutes for processes that
    have died, is left out."""
    if not kolopy.is_initialized():
        return
    error = getattr(sys, "last_value", None)
    try:
        is_lost = error is not None or _is_over()
        _context.leave(kolopy.context(), error)
    except Error as failure:
        is_lost = True
        print(f"kolopy.jax: at the end of the process: {failure}", file=sys.stderr)
    if is_lost:
        _forget_jax()


def _is_over() -> bool:
    """Whether the job has ended by an error. Asks nobody."""
    try:
        kolopy.prepare(kolopy.Call.barrier(), name="kolopy.jax.end")
    except Error:
        return True
    return False


def _forget_jax() -> None:
    """JAX's client stays as it is until the process is gone: its destructor would wait, too."""
    from jax._src import distributed

    state = distributed.global_state
    for part in (state.client, state.service, state.preemption_sync_manager):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(part))
    state.client = state.service = state.preemption_sync_manager = None
