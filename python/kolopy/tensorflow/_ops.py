# SPDX-License-Identifier: Apache-2.0
"""The collectives as TensorFlow's operations, in eager mode and inside `tf.function`, with gradients.

A name says which calls of the ranks belong together. Inside a `tf.function` every operation has one, fixed when it is
traced. In eager mode a call without a name is matched by the order of such calls.
"""

from __future__ import annotations

import enum
import functools
import re
from typing import Any, Callable, List, Optional, Sequence, Tuple

import tensorflow as tf

from kolopy.tensorflow import _world
from kolopy.tensorflow._agreement import agree
from kolopy.tensorflow._world import ProcessSet, global_process_set, number_of, operations

try:
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext as _is_for_xla
except ImportError:  # then XLA's own error has to do

    def _is_for_xla(graph: Any) -> bool:
        return False


try:
    from tensorflow.python.ops.control_flow_v2_func_graphs import ControlFlowFuncGraph as _Branch
except ImportError:  # then all of TensorFlow's functions are taken for one

    _Branch = tf.Graph


class ReduceOp(enum.IntEnum):
    """The numbers are kolo_op's."""

    Sum = 0
    Average = 1
    Min = 2
    Max = 3
    Product = 4


Sum, Average, Min, Max, Product = ReduceOp.Sum, ReduceOp.Average, ReduceOp.Min, ReduceOp.Max, ReduceOp.Product


class _NoCompression:
    send_as = -1


class _Float16Compression:
    send_as = 9


class _BFloat16Compression:
    send_as = 10


class Compression:
    """As what float32 and float64 travel. Sums are made in float32."""

    none = _NoCompression
    fp16 = _Float16Compression
    bf16 = _BFloat16Compression


# --- names


def _is_eager() -> bool:
    return bool(tf.executing_eagerly())


def _is_counted(graph: Any) -> bool:
    """Whether TensorFlow has put a number behind the function's name, which counts all functions of a process. It does
    so for branches, loops and gradients; a number of the user's stays."""
    return isinstance(graph, _Branch) or str(graph.name).startswith("__")


def _prefix_of(graph: Any) -> str:
    """The names of the functions that a graph belongs to, the same in every process."""
    names: "List[str]" = []
    while getattr(graph, "name", None) is not None:
        names.append(re.sub(r"_\d+$", "", graph.name) if _is_counted(graph) else graph.name)
        graph = getattr(graph, "outer_graph", None)
    return "".join(name + "/" for name in reversed(names))


def check_graph() -> None:
    if not _is_eager() and _is_for_xla(tf.compat.v1.get_default_graph()):
        raise NotImplementedError(
            "XLA compiles this function (jit_compile=True), and it has no kernels for Kolo's operations: give "
            "jit_compile=False to model.compile or tf.function, or compile only the part without collectives. With a "
            "callback of hvd.callbacks model.fit does so by itself"
        )


def traced_name(kind: str) -> str:
    """A name that is new in the graph that is being traced; "" in eager mode."""
    if _is_eager():
        return ""
    graph = tf.compat.v1.get_default_graph()
    return _prefix_of(graph) + str(graph.unique_name(kind))


def _make(operation: str, arguments: "Tuple[Any, ...]", name: Optional[str], **attributes: Any) -> Any:
    """Makes an operation, named by the user or by its place in the graph."""
    function = getattr(operations, re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower())
    if _is_eager():
        return function(*arguments, tensor_name=name or "", **attributes)
    graph = tf.compat.v1.get_default_graph()
    check_graph()
    node = str(graph.unique_name(operation))
    with tf.control_dependencies(_before(graph, operation)):
        made = function(*arguments, tensor_name=name or _prefix_of(graph) + node, name=node + "/", **attributes)
    first = made[0] if isinstance(made, (list, tuple)) else made
    _run_concurrently(graph, first.op if isinstance(first, tf.Tensor) else first)
    return made


_FENCES = ("KoloBarrier", "KoloJoin")


def _before(graph: Any, operation: str) -> "List[Any]":
    """What has to run before an operation: a join or barrier comes after the graph's collectives before it, and before
    those after it."""
    earlier = getattr(graph, "_kolo_operations", [])
    return earlier if operation in _FENCES else [one for one in earlier if one.type in _FENCES]


def _run_concurrently(graph: Any, operation: Any) -> None:
    """TensorFlow runs a function's stateful operations one after another. Collectives have names, so they need no
    order, and Kolo combines those that are under way at the same time."""
    earlier = [] if operation.type in _FENCES else getattr(graph, "_kolo_operations", [])
    graph._kolo_operations = [*earlier, operation]
    manager = getattr(graph, "experimental_acd_manager", None)
    if manager is not None and operation.type not in _FENCES:
        manager.run_independently(operation)


_grouped_calls: "dict[int, int]" = {}


def _grouped_name(process_set: ProcessSet) -> str:
    """In eager mode: kolo_grouped takes no call without a name, so the order of such calls is the name."""
    number = number_of(process_set)
    _grouped_calls[number] = _grouped_calls.get(number, 0) + 1
    return f"grouped.{_grouped_calls[number]}"


# --- arguments

#: AutoGraph leaves a function alone.
_as_it_is: Any = tf.autograph.experimental.do_not_convert


def _tensor(value: Any) -> Any:
    if isinstance(value, (tf.SparseTensor, tf.RaggedTensor)):
        raise TypeError(
            f"a {type(value).__name__} has no dense memory: give a tensor, or tf.IndexedSlices to allreduce"
        )
    tensor = tf.convert_to_tensor(value)
    device = str(tensor.device)
    if device and tf.DeviceSpec.from_string(device).device_type not in (None, "CPU"):
        raise NotImplementedError(
            f"the tensor lies on {device}, and kolopy.tensorflow has kernels for the CPU only: hide the GPUs by "
            'tf.config.set_visible_devices([], "GPU"), or make the tensor under tf.device("CPU:0")'
        )
    return tensor


def _reduce_op(op: Any, average: Optional[bool]) -> ReduceOp:
    if average is not None:
        if op is not None:
            raise ValueError("give op= alone: average= is its older form")
        return Average if average else Sum
    if op is None:
        return Average
    try:
        return ReduceOp(op)
    except ValueError:
        raise ValueError(f"there is no reduce operation {op!r}: give hvd.Average, Sum, Min, Max or Product") from None


def _reduction(
    op: ReduceOp, compression: Any, prescale: float, postscale: float, process_set: ProcessSet
) -> "dict[str, Any]":
    return {
        "reduce_op": int(op),
        "send_as": compression.send_as,
        "prescale": repr(float(prescale)),
        "postscale": repr(float(postscale)),
        "process_set": number_of(process_set),
    }


# --- collectives


@_as_it_is
def allreduce(
    tensor: Any,
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduces element by element over all ranks: hvd.Average (the default), Sum, Min, Max or Product.
    `tf.IndexedSlices` become the slices of all ranks: their sum is the sum, and the average is that, divided by their number.
    """
    its_op = _reduce_op(op, average)
    if isinstance(tensor, tf.IndexedSlices):
        return _allreduce_slices(tensor, its_op, prescale_factor, postscale_factor, name, process_set)
    attributes = _reduction(its_op, compression, prescale_factor, postscale_factor, process_set)
    return _make("KoloAllreduce", (_tensor(tensor),), name, **attributes)


def _allreduce_slices(
    slices: Any, op: ReduceOp, prescale: float, postscale: float, name: Optional[str], process_set: ProcessSet
) -> Any:
    if op not in (Average, Sum):
        raise NotImplementedError(
            f"{op.name} of tf.IndexedSlices is not there: convert them by tf.convert_to_tensor, or give Average or Sum"
        )
    values = allgather(slices.values, name and f"{name}.values", process_set)
    indices = allgather(slices.indices, name and f"{name}.indices", process_set)
    scale = prescale * postscale / (process_set.size() if op == Average else 1)
    if scale != 1:
        values = values * tf.cast(scale, values.dtype)
    return tf.IndexedSlices(values, indices, slices.dense_shape)


@_as_it_is
def allgather(tensor: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Any:
    """Concatenates all ranks' tensors along the first dimension, which may differ by rank."""
    return _make("KoloAllgather", (_tensor(tensor),), name, process_set=number_of(process_set))


@_as_it_is
def broadcast(
    tensor: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Rank `root_rank`'s tensor, on every rank. Of a process set's ranks the root is given as a rank of the world."""
    root = _root(root_rank, process_set)
    return _make("KoloBroadcast", (_tensor(tensor),), name, root_rank=root, process_set=number_of(process_set))


def _root(root_rank: int, process_set: ProcessSet) -> int:
    """Horovod counts roots in the world; Kolo in the group."""
    ranks = process_set.ranks
    number_of(process_set)
    if ranks is None or root_rank not in ranks:
        raise ValueError(f"the root is rank {root_rank}, which is not one of {ranks}")
    return ranks.index(root_rank)


@_as_it_is
def alltoall(
    tensor: Any, splits: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Sends `splits[r]` rows to rank r; returns the rows received, in the order of ranks, and how many came from each.
    Without splits every rank gets the same number, and the rows alone are returned."""
    rows, received = _alltoall(tensor, splits, name, process_set)
    return rows if splits is None else (rows, received)


def _alltoall(tensor: Any, splits: Any, name: Optional[str], process_set: ProcessSet) -> "Tuple[Any, Any]":
    given = tf.zeros([0], tf.int64) if splits is None else tf.cast(tf.convert_to_tensor(splits), tf.int64)
    made = _make("KoloAlltoall", (_tensor(tensor), given), name, process_set=number_of(process_set))
    return made[0], made[1]


@_as_it_is
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """As allreduce, but each rank gets its part of the rows: of `rows` rows on n ranks rows / n, in the order of ranks,
    and the first rows % n ranks one more."""
    attributes = _reduction(_reduce_op(op, None), compression, prescale_factor, postscale_factor, process_set)
    return _make("KoloReducescatter", (_tensor(tensor),), name, **attributes)


@_as_it_is
def grouped_allreduce(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> "List[Any]":
    """Reduces several tensors as one operation, which runs on all ranks or on none."""
    if not tensors:
        return []
    if any(isinstance(tensor, tf.IndexedSlices) for tensor in tensors):
        raise NotImplementedError("a grouped allreduce takes no tf.IndexedSlices: convert them by tf.convert_to_tensor")
    attributes = _reduction(_reduce_op(op, average), compression, prescale_factor, postscale_factor, process_set)
    return list(_make("KoloGroupedAllreduce", ([_tensor(tensor) for tensor in tensors],), name, **attributes))


@_as_it_is
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> "List[Any]":
    """The same of reducescatter."""
    if not tensors:
        return []
    attributes = _reduction(_reduce_op(op, None), compression, prescale_factor, postscale_factor, process_set)
    its_name = name or (_grouped_name(process_set) if _is_eager() else None)
    return list(_make("KoloGroupedReducescatter", ([_tensor(tensor) for tensor in tensors],), its_name, **attributes))


@_as_it_is
def grouped_allgather(
    tensors: Sequence[Any], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> "List[Any]":
    """The same of allgather. The numbers of rows are gathered before."""
    if not tensors:
        return []
    listed = [_tensor(tensor) for tensor in tensors]
    its_name = name or (_grouped_name(process_set) if _is_eager() else None)
    own = tf.stack([tf.shape(tensor, tf.int64)[0] for tensor in listed])
    rows = allreduce(own, op=Sum, name=its_name and f"{its_name}.rows", process_set=process_set)
    return list(_make("KoloGroupedAllgather", (listed, rows), its_name, process_set=number_of(process_set)))


@_as_it_is
def barrier(process_set: ProcessSet = global_process_set) -> Any:
    """Completes when every rank has called it."""
    return _make("KoloBarrier", (), None, process_set=number_of(process_set))


@_as_it_is
def join(process_set: ProcessSet = global_process_set) -> Any:
    """This rank is out of data; the others go on without it. Returns when all ranks have joined: the rank that joined
    last, whose parameters the others take. Averages are over the ranks that have not joined."""
    return _make("KoloJoin", (), None, process_set=number_of(process_set))


# --- gradients


def _attributes(operation: Any) -> "Tuple[ReduceOp, dict[str, Any]]":
    names = ("reduce_op", "send_as", "prescale", "postscale", "process_set")
    found = {name: operation.get_attr(name) for name in names}
    for name in ("prescale", "postscale"):
        if isinstance(found[name], bytes):
            found[name] = found[name].decode()
    op = ReduceOp(found["reduce_op"])
    if op not in (Average, Sum):
        raise NotImplementedError(
            f"{operation.type} with {op.name} has no gradient: only Average and Sum have one (tf.stop_gradient ends it)"
        )
    return op, found


def _gathered(gradient: Any, op: ReduceOp, found: "dict[str, Any]") -> Any:
    """Of a reduce-scatter's result: what its input had."""
    gradient = _tensor(gradient)
    if op == Average:
        gradient = gradient / tf.cast(_set_of(found["process_set"]).size(), gradient.dtype)
    scale = float(found["prescale"]) * float(found["postscale"])
    return gradient if scale == 1 else gradient * tf.cast(scale, gradient.dtype)


def _set_of(number: int) -> ProcessSet:
    return global_process_set if number == 0 else _world._sets[number]


@tf.RegisterGradient("KoloAllreduce")
def _gradient_of_allreduce(operation: Any, gradient: Any) -> Any:
    _, found = _attributes(operation)
    return _make("KoloAllreduce", (_tensor(gradient),), None, **found)


@tf.RegisterGradient("KoloGroupedAllreduce")
def _gradient_of_grouped_allreduce(operation: Any, *gradients: Any) -> Any:
    _, found = _attributes(operation)
    return list(_make("KoloGroupedAllreduce", ([_tensor(one) for one in gradients],), None, **found))


@tf.RegisterGradient("KoloReducescatter")
def _gradient_of_reducescatter(operation: Any, gradient: Any) -> Any:
    op, found = _attributes(operation)
    return allgather(_gathered(gradient, op, found), process_set=_set_of(found["process_set"]))


@tf.RegisterGradient("KoloGroupedReducescatter")
def _gradient_of_grouped_reducescatter(operation: Any, *gradients: Any) -> Any:
    op, found = _attributes(operation)
    own = [_gathered(gradient, op, found) for gradient in gradients]
    return grouped_allgather(own, process_set=_set_of(found["process_set"]))


def _own_rows(gradient: Any, rows: Any, process_set: ProcessSet) -> Any:
    """This rank's rows of the gradients' sum over all ranks."""
    all_rows = allgather(tf.reshape(rows, [1]), process_set=process_set)
    whole = allreduce(_tensor(gradient), op=Sum, process_set=process_set)
    first = tf.reduce_sum(all_rows[: process_set.rank()])
    return whole[first : first + rows]


@tf.RegisterGradient("KoloAllgather")
def _gradient_of_allgather(operation: Any, gradient: Any) -> Any:
    rows = tf.shape(operation.inputs[0], tf.int64)[0]
    return _own_rows(gradient, rows, _set_of(operation.get_attr("process_set")))


@tf.RegisterGradient("KoloGroupedAllgather")
def _gradient_of_grouped_allgather(operation: Any, *gradients: Any) -> Any:
    process_set = _set_of(operation.get_attr("process_set"))
    rows = [tf.shape(tensor, tf.int64)[0] for tensor in operation.inputs[:-1]]
    own = [_own_rows(gradient, its_rows, process_set) for gradient, its_rows in zip(gradients, rows)]
    return [*own, None]


@tf.RegisterGradient("KoloBroadcast")
def _gradient_of_broadcast(operation: Any, gradient: Any) -> Any:
    process_set = _set_of(operation.get_attr("process_set"))
    whole = allreduce(_tensor(gradient), op=Sum, process_set=process_set)
    return whole if process_set.rank() == operation.get_attr("root_rank") else tf.zeros_like(whole)


@tf.RegisterGradient("KoloAlltoall")
def _gradient_of_alltoall(operation: Any, gradient: Any, _: Any) -> "List[Any]":
    process_set = _set_of(operation.get_attr("process_set"))
    return [_alltoall(gradient, operation.outputs[1], None, process_set)[0], None]


for _kind in ("KoloBarrier", "KoloJoin"):
    tf.no_gradient(_kind)


# --- what a tape has reduced

_FOLLOWED = frozenset(("Identity", "Cast", "Reshape", "Mul", "RealDiv", "Minimum", "Maximum", "ClipByValue"))


def _parts(gradient: Any) -> Any:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def note_reduced(gradient: Any) -> None:
    """That of a DistributedGradientTape."""
    tensor = _parts(gradient)
    if tensor is None:
        return
    if _is_eager():
        tensor._kolo_is_reduced = True
    else:
        tensor.graph._kolo_reduced = getattr(tensor.graph, "_kolo_reduced", frozenset()) | {tensor.name}


def was_reduced(gradient: Any) -> bool:
    """Whether it is one that was noted; of a traced function also where it was clipped, scaled or cast since."""
    tensor = _parts(gradient)
    if not isinstance(tensor, tf.Tensor):
        return False
    if _is_eager():
        return hasattr(tensor, "_kolo_is_reduced")
    noted = getattr(tensor.graph, "_kolo_reduced", frozenset())
    while noted and tensor.name not in noted:
        if tensor.op.type not in _FOLLOWED:
            return False
        tensor = tensor.op.inputs[0]
    return bool(noted)


# --- several tensors at once


@_as_it_is
def reduce_together(tensors: Sequence[Any], names: Sequence[str], options: "Sequence[Tuple[str, Any]]") -> "List[Any]":
    """Reduces each of the tensors, some of which are None, under its name. All are under way at the same time, in eager
    mode, too, where one operation after another would run: a function makes them there."""
    given = [(tensor, name) for tensor, name in zip(tensors, names) if tensor is not None]
    if not given:
        return list(tensors)
    listed, its_names = [tensor for tensor, _ in given], tuple(name for _, name in given)
    if _is_eager() and len(listed) > 1:
        number_of(dict(options)["process_set"])  # raises here what a function that was traced before would not
        for tensor in listed:
            _tensor(tensor.values if isinstance(tensor, tf.IndexedSlices) else tensor)
        reduced = iter(_function(its_names, tuple(options))(listed))
    else:
        reduced = iter([allreduce(tensor, name=name, **dict(options)) for tensor, name in zip(listed, its_names)])
    return [None if tensor is None else next(reduced) for tensor in tensors]


@functools.lru_cache(maxsize=64)
def _function(names: "Tuple[str, ...]", options: "Tuple[Tuple[str, Any], ...]") -> "Callable[..., Any]":
    @tf.function(autograph=False, reduce_retracing=True)
    def reduce(tensors: Any) -> Any:
        return [allreduce(tensor, name=name, **dict(options)) for tensor, name in zip(tensors, names)]

    return reduce  # type: ignore[no-any-return]


def broadcast_together(tensors: Sequence[Any], root_rank: int, process_set: ProcessSet, name: str) -> "List[Any]":
    """The same of broadcast."""

    def copy(listed: Any) -> "List[Any]":
        return [broadcast(one, root_rank, f"{name}.{i}", process_set) for i, one in enumerate(listed)]

    if _is_eager() and len(tensors) > 1:
        return list(tf.function(copy, autograph=False)(list(tensors)))
    return copy(tensors)


@_as_it_is
def broadcast_variables(
    variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> None:
    """Copies rank `root_rank`'s variables to all ranks': TensorFlow's and Keras's, in the same order on all ranks. In
    eager mode all ranks raise MismatchError if their numbers, types or shapes differ."""
    listed = list(variables)
    if _is_eager():
        agree("broadcast_variables", process_set, "", listed)
    if not listed:
        return
    name = traced_name("broadcast_variables") or "broadcast_variables"
    values = broadcast_together([tf.convert_to_tensor(one) for one in listed], root_rank, process_set, name)
    for one, value in zip(listed, values):
        one.assign(value)


@_as_it_is
def size_op(process_set: ProcessSet = global_process_set, name: Optional[str] = None) -> Any:
    return tf.constant(process_set.size(), name=name)


@_as_it_is
def rank_op(name: Optional[str] = None) -> Any:
    return tf.constant(global_process_set.rank(), name=name)
