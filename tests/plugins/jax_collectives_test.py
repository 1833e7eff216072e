# SPDX-License-Identifier: Apache-2.0
"""kolopy.jax: JAX's collectives over Kolo beside numpy's sums, over all types, lines and sub-axes of a mesh; training
beside that of one process; communicators from two threads; what is refused.

Run by kolo-run (or another launcher) with any number of ranks; prints one line, from rank 0. Without JAX: one line, and
exit status 0.

usage: jax_collectives_test.py [TYPE ...]         the collectives over these types (default: all)
       jax_collectives_test.py two-devices        what a process with two devices gets, instead
"""

import ctypes
import glob
import hashlib
import itertools
import os
import re
import sys
import threading

try:
    import importlib.metadata

    importlib.metadata.version("jaxlib")
except importlib.metadata.PackageNotFoundError:
    print("skipped: there is no JAX here")
    sys.exit(0)

import kolopy.jax as kj  # before jax

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import NamedSharding, PartitionSpec

import kolopy

jax.config.update("jax_enable_x64", True)

TYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
    "float16 bfloat16 float32 float64 complex64 complex128"
).split()
NAME = re.compile(rb"(?<=\0)(?:MPIX?ABI_|mpiabi_version|mpiwrapper_)[A-Za-z0-9_]+(?=\0)")  # in jaxlib's files
ROWS = 24  # of each rank: divisible by 1, 2, 3 and 4
counts = {"right": 0, "refused": 0, "wrong": 0}
refusals = {}


def meshes():
    devices = numpy.array(jax.devices())
    yield jax.sharding.Mesh(devices, ("a",))
    if devices.size % 2 == 0 and devices.size > 2:
        yield jax.sharding.Mesh(devices.reshape(-1, 2), ("a", "b"))
        yield jax.sharding.Mesh(devices[::-1].reshape(2, -1), ("b", "a"))


def whole_of(mesh, dtype):
    """Of every rank ROWS numbers, which differ, and sum up without rounding."""
    numbers = numpy.arange(mesh.size * ROWS).reshape(*mesh.devices.shape, ROWS) * 7 % 5
    if dtype == "bool":
        return numbers % 2 == 0
    if dtype.startswith("complex"):
        numbers = numbers + 1j * (numbers % 3)
    return numbers.astype(jnp.dtype(dtype))


def group_of(mesh, here, axes):
    """The places of the ranks that differ from `here` along these axes alone, in the order of the axes."""
    names = mesh.axis_names
    for at in itertools.product(*(range(mesh.shape[axis]) for axis in axes)):
        yield tuple(at[axes.index(name)] if name in axes else here[i] for i, name in enumerate(names))


def sums(mesh, data, here, axes):
    """JAX counts with bools."""
    dtype = numpy.int32 if data.dtype == bool else data.dtype
    return numpy.sum([data[at] for at in group_of(mesh, here, axes)], axis=0, dtype=dtype)


def own_part(mesh, whole, here, axes):
    group = list(group_of(mesh, here, axes))
    return numpy.split(whole, len(group))[group.index(here)]


def shifted(mesh, data, here, axes):
    group = list(group_of(mesh, here, axes))
    return data[group[group.index(here) - 1]]


def exchanged(mesh, data, here, axes):
    return numpy.concatenate([own_part(mesh, data[at], here, axes) for at in group_of(mesh, here, axes)])


def ring(mesh, axes):
    length = mesh.shape[axes[0]]
    return [(i, (i + 1) % length) for i in range(length)]


# By name: what JAX computes from a rank's block, what numpy does from all blocks, and whether it takes several axes.
OPERATIONS = {
    "psum": (lambda m, x, axes: jax.lax.psum(x, axes), sums, True),
    "pmax": (
        lambda m, x, axes: jax.lax.pmax(x, axes),
        lambda m, data, here, axes: numpy.max([data[at] for at in group_of(m, here, axes)], axis=0),
        True,
    ),
    "pmin": (
        lambda m, x, axes: jax.lax.pmin(x, axes),
        lambda m, data, here, axes: numpy.min([data[at] for at in group_of(m, here, axes)], axis=0),
        True,
    ),
    "all_gather": (
        lambda m, x, axes: jax.lax.all_gather(x, axes, tiled=True),
        lambda m, data, here, axes: numpy.concatenate([data[at] for at in group_of(m, here, axes)]),
        True,
    ),
    "psum_scatter": (
        lambda m, x, axes: jax.lax.psum_scatter(x, axes, tiled=True),
        lambda m, data, here, axes: own_part(m, sums(m, data, here, axes), here, axes),
        True,
    ),
    "all_to_all": (lambda m, x, axes: jax.lax.all_to_all(x, axes, 0, 0, tiled=True), exchanged, True),
    "ppermute": (lambda m, x, axes: jax.lax.ppermute(x, axes[0], ring(m, axes)), shifted, False),
}


def shard_map(function, mesh, specs):
    mapped = getattr(jax, "shard_map", None)
    if mapped is None:
        from jax.experimental.shard_map import shard_map as mapped
    return jax.jit(mapped(function, mesh=mesh, in_specs=specs, out_specs=specs))


def run(mesh, dtype, what):
    """What this rank gets for each (operation, axes) of `what`, in one program."""
    data = whole_of(mesh, dtype)
    spec = PartitionSpec(*mesh.axis_names)
    lead = (1,) * len(mesh.axis_names)

    def blocks(x):
        results = [OPERATIONS[name][0](mesh, x.reshape(ROWS), axes) for name, axes in what]
        return [result.reshape(*lead, *result.shape) for result in results]

    given = jax.make_array_from_callback(data.shape, NamedSharding(mesh, spec), lambda at: data[at])
    results = shard_map(blocks, mesh, spec)(given)
    return [numpy.asarray(result.addressable_data(0)).reshape(-1) for result in results]


def compare(mesh, dtype, what, results):
    data = whole_of(mesh, dtype)
    here = tuple(int(i[0]) for i in numpy.where(mesh.devices == jax.local_devices()[0]))
    for (name, axes), got in zip(what, results):
        wanted = OPERATIONS[name][1](mesh, data, here, axes)
        is_right = numpy.array_equal(got, wanted.astype(got.dtype))
        counts["right" if is_right else "wrong"] += 1
        if not is_right:
            where = f"rank {kj.rank()}: {name} of {dtype} over {axes} of {mesh.shape}"
            print(f"{where}: {got} instead of {wanted}", flush=True)


def check_line(mesh, types):
    """Each collective alone, for some are refused: that must be an error on all ranks."""
    axes = mesh.axis_names
    for name, dtype in itertools.product(OPERATIONS, types):
        try:
            results = run(mesh, dtype, [(name, axes)])
        except Exception as error:
            counts["refused"] += 1
            refusals[f"{name} of {dtype}"] = str(error).strip().splitlines()[0][:150]
        else:
            compare(mesh, dtype, [(name, axes)], results)


def check_grid(mesh, types):
    """All collectives of a type that a line does not refuse, over all axes and both together, in one program."""
    names = mesh.axis_names
    subsets = [axes for count in range(1, len(names) + 1) for axes in itertools.combinations(names, count)]
    for dtype in types:
        what = [
            (name, axes)
            for name, axes in itertools.product(OPERATIONS, subsets)
            if f"{name} of {dtype}" not in refusals and (len(axes) == 1 or OPERATIONS[name][2])
        ]
        compare(mesh, dtype, what, run(mesh, dtype, what))


def check_collectives():
    types = sys.argv[1:] or TYPES
    for mesh in meshes():
        kj.prepare(mesh)
        (check_line if len(mesh.axis_names) == 1 else check_grid)(mesh, types)


def loss(params, x, y):
    return jnp.mean((jnp.tanh(x @ params[0]) @ params[1] - y) ** 2)


@jax.jit
def step(params, x, y):
    return [p - 0.1 * g for p, g in zip(params, jax.grad(loss)(params, x, y))]


def check_training():
    """The same as with one process, but for the order of sums; the same bits on all ranks."""
    random = numpy.random.default_rng(3)
    x, y = random.normal(size=(48, 8)).astype("f4"), random.normal(size=(48, 2)).astype("f4")
    start = [random.normal(size=(8, 16)).astype("f4"), random.normal(size=(16, 2)).astype("f4")]
    mesh = jax.sharding.Mesh(jax.devices(), ("data",))

    def placed(array, spec):
        return jax.make_array_from_callback(array.shape, NamedSharding(mesh, spec), lambda at: array[at])

    together = [placed(p, PartitionSpec()) for p in start]
    alone = [jax.device_put(p, jax.local_devices()[0]) for p in start]
    rows = PartitionSpec("data")
    for _ in range(30):
        together = step(together, placed(x, rows), placed(y, rows))
        alone = step(alone, x, y)
    mine = [numpy.asarray(p.addressable_data(0)) for p in together]
    for got, wanted in zip(mine, alone):
        numpy.testing.assert_allclose(got, numpy.asarray(wanted), rtol=1e-5, atol=1e-6)
    bits = hashlib.sha256(b"".join(p.tobytes() for p in mine)).hexdigest()
    assert len(set(kolopy.allgather_object(bits))) == 1, "the ranks' parameters differ"


def library():
    its = ctypes.CDLL(kj.LIBRARY)
    its.MPIABI_Comm_split.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
    its.MPIABI_Comm_size.argtypes = (ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
    its.MPIABI_Barrier.argtypes = (ctypes.c_void_p,)
    its.MPIABI_Comm_free.argtypes = (ctypes.POINTER(ctypes.c_void_p),)
    its.MPIABI_Error_string.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int))
    return its


def check_splits():
    """From two threads of a process at once. Which of the ranks' calls meet is chance, so all are used at once, too."""
    its = library()
    world = ctypes.c_void_p.in_dll(its, "MPIABI_COMM_WORLD")
    made = [ctypes.c_void_p() for _ in range(8)]
    codes = []

    def at_once(call, places):
        threads = [threading.Thread(target=lambda i=i: codes.append(call(i))) for i in places]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    for first in range(0, len(made), 2):
        at_once(lambda i: its.MPIABI_Comm_split(world, 0, kj.rank(), ctypes.byref(made[i])), (first, first + 1))
    at_once(lambda i: its.MPIABI_Barrier(made[i]), range(len(made)))
    size = ctypes.c_int()
    for one in made:
        codes.append(its.MPIABI_Comm_size(one, ctypes.byref(size)))
        assert size.value == kj.size()
        codes.append(its.MPIABI_Comm_free(ctypes.byref(one)))
        assert one.value is None
    assert not any(codes), codes


def check_names():
    """jaxlib ends a process that lacks one of them."""
    import jaxlib

    its, wanted = library(), set()
    for file in glob.glob(os.path.join(os.path.dirname(jaxlib.__file__), "**", "*.so*"), recursive=True):
        with open(file, "rb") as binary:
            wanted |= set(NAME.findall(binary.read()))
    missing = sorted(name.decode() for name in wanted if not hasattr(its, name.decode()))
    assert len(wanted) > 400 and not missing, f"{len(wanted)} names, missing: {missing}"
    text, length = ctypes.create_string_buffer(1024), ctypes.c_int()
    code = its.MPIABI_Bcast()
    assert code != 0 and its.MPIABI_Error_string(code, text, ctypes.byref(length)) == 0
    assert text.value.startswith(b"MPI_Bcast is not in libkolo_mpiabi") and len(text.value) == length.value, text.value
    return len(wanted)


def two_devices():
    """A process with two CPU devices gets a sentence, and never a number."""
    kolopy.init()
    jax.config.update("jax_cpu_collectives_implementation", "mpi")
    if hasattr(jax.config, "jax_num_cpu_devices"):
        jax.config.update("jax_num_cpu_devices", 2)
    else:
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    place = kolopy.broadcast_object(kj._free_place() if kolopy.rank() == 0 else None, root=0)
    jax.distributed.initialize(place, kolopy.size(), kolopy.rank(), coordinator_bind_address=place,
                               cluster_detection_method="deactivate")  # fmt: skip
    mesh = jax.sharding.Mesh(jax.devices(), ("a",))
    data = numpy.ones((mesh.size, 4), numpy.float32)
    given = jax.make_array_from_callback(data.shape, NamedSharding(mesh, PartitionSpec("a")), lambda at: data[at])
    try:
        got = shard_map(lambda x: jax.lax.psum(x, "a"), mesh, PartitionSpec("a"))(given)
        got = [numpy.asarray(one.data) for one in got.addressable_shards]
    except Exception as error:
        assert "Kolo has one rank a process" in str(error), error
        if kolopy.rank() == 0:
            print("two devices in a process: a sentence")
        return
    raise AssertionError(f"two devices in a process got {got}")


def main():
    if sys.argv[1:] == ["two-devices"]:
        return two_devices()
    kj.init(timeout_s=60)
    assert jax.process_count() == kj.size() and jax.device_count() == kj.size()
    names = check_names()
    check_collectives()
    check_training()
    check_splits()
    everywhere = kolopy.allgather_object((counts, sorted(refusals)))  # (JAX lists types in an order of chance)
    assert all(one == everywhere[0] for one in everywhere), f"rank 0: {everywhere[0]}, here: {everywhere[kj.rank()]}"
    assert counts["wrong"] == 0 and counts["right"] > 0, counts
    if kj.rank() == 0:
        for what, why in refusals.items():
            print(f"refused: {what}: {why}")
        total = ", ".join(f"{number} {what}" for what, number in counts.items())
        print(f"jax {jax.__version__}: {kj.size()} ranks, {names} names of MPI; {total}; training as with one process")


if __name__ == "__main__":
    main()
