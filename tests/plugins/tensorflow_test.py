# SPDX-License-Identifier: Apache-2.0
"""kolopy.tensorflow: every operation with exact data on every rank, in eager mode and inside tf.function, its gradient,
tf.IndexedSlices, process sets, names, and errors. On as many ranks as the launcher starts.

usage: kolo-run -np N python3 tensorflow_test.py [death | timeout | abandon | jacobian]

Without an argument all tests but those of the ends of a job, which are one process group each.
"""

import atexit
import os
import sys
import time

if "jacobian" in sys.argv:  # an exception ends that rank, and is no failure; before kolopy, which leaves the job first
    atexit.register(os._exit, 0)

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import kolopy
import numpy as np
import tensorflow as tf

import kolopy.tensorflow as hvd

TYPES = [tf.bool, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64, tf.float16,
         tf.bfloat16, tf.float32, tf.float64]
FLOATS = [tf.float16, tf.bfloat16, tf.float32, tf.float64]
tf.get_logger().setLevel("ERROR")  # it warns of functions that are traced often
tests = []


def test(function):
    tests.append(function)
    return function


def values(rank, shape, dtype):
    """Small numbers that differ by rank and place."""
    numbers = (np.arange(int(np.prod(shape))) * 3 + rank) % 5 + (rank + 1) % 3
    return (numbers % 2 == 0 if dtype == tf.bool else numbers).reshape(shape).astype(dtype.as_numpy_dtype)


def all_values(shape, dtype):
    return [values(rank, shape, dtype) for rank in range(hvd.size())]


def same(found, expected):
    found = found.numpy() if hasattr(found, "numpy") else np.asarray(found)
    expected = np.asarray(expected)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    assert found.dtype == expected.dtype, (found.dtype, expected.dtype)
    assert np.array_equal(found, expected), (found, expected)


def both(function):
    """The function, in eager mode and traced; and traced once more with unknown shapes."""
    yield function
    yield tf.function(function)


def raises(kind, function, *parts):
    try:
        function()
    except kind as error:
        for part in parts:
            assert part in str(error), (part, str(error))
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


REDUCE = {
    hvd.Sum: lambda a, t: np.logical_or.reduce(a) if t == tf.bool else np.add.reduce(a).astype(a[0].dtype),
    hvd.Min: lambda a, t: np.minimum.reduce(a),
    hvd.Max: lambda a, t: np.maximum.reduce(a),
    hvd.Product: lambda a, t: np.multiply.reduce(a).astype(a[0].dtype),
}


@test
def allreduce():
    for dtype in TYPES:
        for shape in [(), (7,), (2, 3, 5), (0, 4)]:
            mine, everything = values(hvd.rank(), shape, dtype), all_values(shape, dtype)
            for op, expected in REDUCE.items():
                for call in both(lambda x, op=op: hvd.allreduce(x, op=op)):
                    given = tf.constant(mine)
                    same(call(given), expected(everything, dtype))
                    same(given, mine)  # is not changed
    for dtype in FLOATS:
        for size in (4, 100000):
            mine = np.full(size, 2.0 * hvd.rank(), dtype.as_numpy_dtype)
            for call in both(hvd.allreduce):
                same(call(tf.constant(mine)), np.full(size, hvd.size() - 1.0, dtype.as_numpy_dtype))


@test
def allreduce_with_scales_and_compression():
    rank, size = hvd.rank(), hvd.size()
    for call in both(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)):
        same(call(tf.constant([1.0 + rank, 8.0])), np.float32([2 * (size * (size + 1) / 2), 16.0 * size]))
    third = hvd.allreduce(tf.constant([1.0], tf.float64), op=hvd.Sum, prescale_factor=1 / 3)
    assert abs(float(third[0]) * 3 / size - 1) < 1e-15  # not rounded to float32
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        for call in both(lambda x, c=compression: hvd.allreduce(x, op=hvd.Sum, compression=c)):
            same(call(tf.constant([1.0 + rank, 0.5])), np.float32([size * (size + 1) / 2, 0.5 * size]))
    lossy = hvd.allreduce(tf.constant([1.0001]), op=hvd.Average, compression=hvd.Compression.fp16)
    same(lossy, np.float32([1.0 if size > 1 else 1.0001]))  # one rank sends nothing
    same(hvd.allreduce(tf.constant([2.0 * rank]), average=False), np.float32([size * (size - 1)]))
    same(hvd.allreduce([1.0, 2.0], average=True), np.float32([1, 2]))  # a list; and op by its older name


@test
def allgather():
    for dtype in TYPES:
        for tail in [(), (3,), (2, 2)]:
            shapes = [((rank * 2) % 3, *tail) for rank in range(hvd.size())]  # rank 0 gives no rows
            everything = [values(rank, shape, dtype) for rank, shape in enumerate(shapes)]
            for call in both(hvd.allgather):
                same(call(tf.constant(everything[hvd.rank()])), np.concatenate(everything))


@test
def broadcast():
    for dtype in TYPES:
        for root in range(hvd.size()):
            call = tf.function(lambda x, root=root: hvd.broadcast(x, root))
            same(call(tf.constant(values(hvd.rank(), (5,), dtype))), values(root, (5,), dtype))
            for shape in [(), (5,), (2, 3)]:
                same(hvd.broadcast(values(hvd.rank(), shape, dtype), root), values(root, shape, dtype))
    raises(ValueError, lambda: hvd.broadcast([1.0], hvd.size()), "the root is rank")


@test
def alltoall():
    rank, size = hvd.rank(), hvd.size()
    for dtype in TYPES:
        splits = [[(sender + receiver) % 3 for receiver in range(size)] for sender in range(size)]
        everything = [values(sender, (sum(splits[sender]), 2), dtype) for sender in range(size)]
        parts = [np.split(everything[sender], np.cumsum(splits[sender])[:-1])[rank] for sender in range(size)]
        for kind in (tf.int32, tf.int64):
            for call in both(hvd.alltoall):
                rows, received = call(tf.constant(everything[rank]), tf.constant(splits[rank], kind))
                same(rows, np.concatenate(parts))
                same(received, np.int32([splits[sender][rank] for sender in range(size)]))
    for call in both(hvd.alltoall):  # the same to each
        same(call(tf.fill([2 * size], rank)), np.repeat(np.arange(size, dtype=np.int32), 2))


@test
def reducescatter():
    rank, size = hvd.rank(), hvd.size()
    for dtype in TYPES:
        for rows in (1, size, 2 * size + 1):
            everything = all_values((rows, 3), dtype)
            first = rank * (rows // size) + min(rank, rows % size)
            end = first + rows // size + (1 if rank < rows % size else 0)
            for op, expected in REDUCE.items():
                for call in both(lambda x, op=op: hvd.reducescatter(x, op=op)):
                    same(call(tf.constant(everything[rank])), expected(everything, dtype)[first:end])
    same(hvd.reducescatter(tf.fill([size], 2.0 * rank)), np.float32([size - 1.0]))
    raises(tf.errors.InvalidArgumentError, lambda: hvd.reducescatter(tf.constant(1.0)), "scalar")


@test
def grouped():
    rank, size = hvd.rank(), hvd.size()
    shapes = [((3,), tf.float32), ((2, 2), tf.float64), ((), tf.int32), ((0,), tf.float16), ((5,), tf.bfloat16)]
    everything = [all_values(shape, dtype) for shape, dtype in shapes]
    for call in both(lambda *x: hvd.grouped_allreduce(list(x), op=hvd.Sum)):
        given = [tf.constant(one[rank]) for one in everything]
        for found, one, (_, dtype), mine in zip(call(*given), everything, shapes, given):
            same(found, REDUCE[hvd.Sum](one, dtype))
            same(mine, one[rank])
    rows = [[values(r, (r + 1, 2), tf.float32) for r in range(size)], [values(r, (2 * r,), tf.int64) for r in range(size)]]
    for call in both(lambda *x: hvd.grouped_allgather(list(x))):
        for found, one in zip(call(*[tf.constant(one[rank]) for one in rows]), rows):
            same(found, np.concatenate(one))
    for call in both(lambda *x: hvd.grouped_reducescatter(list(x), op=hvd.Sum)):
        a, b = call(tf.fill([size, 2], float(rank)), tf.range(2 * size))
        same(a, np.full((1, 2), size * (size - 1) / 2, np.float32))
        same(b, np.int32([2 * rank * size, (2 * rank + 1) * size]))
    assert hvd.grouped_allreduce([]) == [] and hvd.grouped_allgather([]) == []


@test
def gradients():
    rank, size = hvd.rank(), hvd.size()
    weights = [np.float32(np.arange(1, 2 * size + 1) * (r + 1)) for r in range(size)]  # of the loss, by rank
    w, total = tf.constant(weights[rank]), sum(weights)

    def gradient(function, x, weight):
        def run(x, weight):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
                loss = tf.reduce_sum(y * tf.cast(weight, y.dtype))
            return tape.gradient(loss, x)

        for call in both(run):
            yield call(x, weight)

    ones = tf.ones([2 * size])
    for found in gradient(lambda x: hvd.allreduce(x, op=hvd.Sum), ones, w):
        same(found, total)
    for found in gradient(lambda x: hvd.allreduce(x), ones, w):
        np.testing.assert_allclose(found, total / size, rtol=1e-6)
    for found in gradient(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0), ones, w):
        same(found, 6 * total)
    for root in range(size):
        for found in gradient(lambda x, root=root: hvd.broadcast(x, root), ones, w):
            same(found, total if rank == root else 0 * total)
    for found in gradient(hvd.allgather, tf.ones([2]), w):
        same(found, total[2 * rank : 2 * rank + 2])
    for found in gradient(lambda x: hvd.alltoall(x, [2] * size)[0], ones, w):
        # Rank r's weight of what this rank has sent.
        same(found, np.concatenate([weights[r][2 * rank : 2 * rank + 2] for r in range(size)]))
    for found in gradient(lambda x: hvd.reducescatter(x, op=hvd.Sum), ones, w[:2]):
        same(found, np.concatenate([one[:2] for one in weights]))
    for found in gradient(lambda x: hvd.reducescatter(x, prescale_factor=4.0), ones, w[:2]):
        np.testing.assert_allclose(found, 4 / size * np.concatenate([one[:2] for one in weights]), rtol=1e-6)
    for found in gradient(lambda x: tf.concat(hvd.grouped_allreduce([x[:size], x[size:]], op=hvd.Sum), 0), ones, w):
        same(found, total)
    for found in gradient(lambda x: hvd.grouped_allgather([x, 2 * x])[1], tf.ones([2]), w):
        same(found, 2 * total[2 * rank : 2 * rank + 2])
    for found in gradient(lambda x: hvd.grouped_reducescatter([x, x], op=hvd.Sum)[0], ones, w[:2]):
        same(found, np.concatenate([one[:2] for one in weights]))
    with tf.GradientTape() as tape:
        tape.watch(ones)
        y = hvd.allreduce(ones, op=hvd.Max)
    raises(NotImplementedError, lambda: tape.gradient(y, ones), "has no gradient")


@test
def gradients_of_uneven_rows():
    rank, size = hvd.rank(), hvd.size()
    x = tf.ones([rank, 2])  # rank 0 has none
    rows = size * (size - 1) // 2

    @tf.function
    def run():
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(hvd.allgather(x) * tf.reshape(tf.range(2.0 * rows), [rows, 2]))
        return tape.gradient(loss, x)

    first = rank * (rank - 1) // 2
    same(run(), size * np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)[first : first + rank])


@test
def slices():
    rank, size = hvd.rank(), hvd.size()

    def sparse():
        return tf.IndexedSlices(tf.fill([rank + 1, 2], 1.0 + rank), tf.range(rank + 1), tf.constant([size, 2]))

    dense = np.zeros((size, 2), np.float32)
    for r in range(size):
        dense[: r + 1] += r + 1
    for op, divisor in ((hvd.Sum, 1), (hvd.Average, size)):
        for call in both(lambda op=op: hvd.allreduce(sparse(), op=op)):
            found = call()
            assert isinstance(found, tf.IndexedSlices)
            np.testing.assert_allclose(tf.convert_to_tensor(found), dense / divisor, rtol=1e-6)
    raises(NotImplementedError, lambda: hvd.allreduce(sparse(), op=hvd.Max), "IndexedSlices")


@test
def tapes():
    rank, size = hvd.rank(), hvd.size()
    a, b, table, unused = tf.Variable([1.0, 2.0]), tf.Variable(3.0), tf.Variable(tf.ones([4, 2])), tf.Variable(1.0)

    def step(**options):
        with tf.GradientTape() as tape:
            rows = tf.gather(table, [rank % 4, 1])
            loss = tf.reduce_sum(a * float(rank)) + b * b * float(rank + 1) + tf.reduce_sum(rows)
        tape = hvd.DistributedGradientTape(tape, **options)
        return tape.gradient(loss, {"a": a, "b": b, "table": table, "unused": unused})

    dense = np.zeros((4, 2), np.float32)
    for r in range(size):
        dense[r % 4] += 1
        dense[1] += 1
    mean = (size - 1) / 2
    for options in ({}, {"sparse_as_dense": True}, {"gradient_predivide_factor": 2.0}, {"num_groups": 2},
                    {"compression": hvd.Compression.fp16}):
        for call in both(lambda options=options: step(**options)):
            found = call()
            np.testing.assert_allclose(found["a"], [mean, mean], rtol=1e-3)
            np.testing.assert_allclose(found["b"], 6 * (mean + 1), rtol=1e-3)
            assert isinstance(found["table"], tf.IndexedSlices) != ("sparse_as_dense" in options)
            np.testing.assert_allclose(tf.convert_to_tensor(found["table"]), dense / size, rtol=1e-3)
            assert found["unused"] is None
    with hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum) as tape:  # made before it is used
        loss = a[0] * float(rank)
    same(tape.gradient(loss, [a])[0], np.float32([size * (size - 1) / 2, 0]))
    raises(ValueError, lambda: hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum, gradient_predivide_factor=2.0))
    raises(TypeError, lambda: hvd.DistributedGradientTape(3))


@test
def tapes_made_inside_the_with():
    """Two tapes that both believed themselves to be recording ended the process."""
    mean = (hvd.size() + 1) / 2
    v = tf.Variable([1.0, 2.0])

    def after(persistent):
        with tf.GradientTape(persistent=persistent) as tape:
            loss = tf.reduce_sum(v * v) * (hvd.rank() + 1.0)
            ours = hvd.DistributedGradientTape(tape)
            loss += tf.reduce_sum(v)  # both record it
        return ours.gradient(loss, [v])[0]

    def inside(persistent):
        with tf.GradientTape(persistent=persistent) as tape:
            loss = tf.reduce_sum(v * v) * (hvd.rank() + 1.0)
            tape = hvd.DistributedGradientTape(tape)
            found = tape.gradient(loss, [v])[0]
        return found

    for persistent in (False, True):
        for call in both(lambda persistent=persistent: after(persistent)):
            same(call(), np.float32([2 * mean + 1, 4 * mean + 1]))
        for call in both(lambda persistent=persistent: inside(persistent)):
            same(call(), np.float32([2 * mean, 4 * mean]))
    with tf.GradientTape(persistent=True) as tape:
        ours = hvd.DistributedGradientTape(tape)
        with ours.stop_recording():
            unseen = v * 3.0
        seen = v * (hvd.rank() + 1.0)
    assert ours.gradient(unseen, v) is None and [one.name for one in ours.watched_variables()] == [v.name]
    same(tape.gradient(seen, v), np.float32([hvd.rank() + 1.0] * 2))  # this rank's
    same(ours.gradient(seen, v), np.float32([mean] * 2))
    again = hvd.DistributedGradientTape(tf.GradientTape())
    with again:
        again.watch(tf.constant(1.0))
        again.reset()
        loss = v * v
    same(again.gradient(loss, v), np.float32([2.0, 4.0]))


@test
def what_tapes_refuse():
    """A jacobian would run collectives in a loop, which rank 0 alone may begin."""
    v = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        y = v * v
    ours = hvd.DistributedGradientTape(tape)
    for name in ("jacobian", "batch_jacobian"):
        error = raises(NotImplementedError, lambda name=name: getattr(ours, name)(y, v))
        assert str(error) == (f"a DistributedGradientTape has no {name}: take that of the tape that it was made from, "
                              "and reduce it by hvd.allreduce")
    error = raises(ValueError, lambda: hvd.DistributedGradientTape(ours))
    assert str(error) == "the tape is distributed already: gradients would be reduced twice"
    same(hvd.allreduce(tape.jacobian(y, v)), np.float32([[2, 0], [0, 4]]))


@test
def tapes_of_unequal_ranks():
    """Horovod's own programs broadcast after the first step, so the second is the first that is compared."""
    rank, size = hvd.rank(), hvd.size()

    def make():
        variables = [tf.Variable([1.0, 2.0], name="same"), tf.Variable([float(rank)], name="other")]

        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(variables[0]) + tf.reduce_sum(variables[1])
            for one, gradient in zip(variables, hvd.DistributedGradientTape(tape).gradient(loss, variables)):
                one.assign_sub(gradient)

        return variables, step

    for traced in (False, True):
        variables, step = make()
        step = tf.function(step) if traced else step
        step()
        if size > 1:
            found = f"{variables[1].numpy()}"
            ranks = {2: "ranks 0 and 1", 4: "ranks 0-3"}.get(size, "")
            raises(tf.errors.InvalidArgumentError, step, 'parameter "1/other:0" is not the same on all ranks after step 1 '
                   f"(KOLO_CHECK_REPLICAS): {ranks} hold different values")
            assert found == f"{variables[1].numpy()}"  # nothing was applied
        variables, step = make()
        step = tf.function(step) if traced else step
        step()
        hvd.broadcast_variables(variables, root_rank=0)
        step()
        same(variables[1], np.float32([-2.0]))
    if size > 1:
        few = [tf.Variable([1.0]), tf.Variable([2.0])][: 1 + min(rank, 1)]
        error = raises(kolopy.MismatchError, lambda: hvd.broadcast_variables(few, 0))
        assert str(error) == ('broadcast_variables: rank 0 has 1 variables, and rank 1 2 variables ("Variable:0" is the '
                              "first that only one has): all ranks need the same model, optimizer and options"), str(error)


@test
def variables_and_objects():
    rank, root = hvd.rank(), hvd.size() - 1
    kinds = (tf.float32, tf.int64, tf.bool)
    mine = [tf.Variable(values(rank, (3,), kind)) for kind in kinds]
    hvd.broadcast_variables(mine, root_rank=root)
    for one, kind in zip(mine, kinds):
        same(one, values(root, (3,), kind))
    traced = [tf.Variable(float(rank)), tf.Variable([rank, rank])]
    tf.function(lambda: hvd.broadcast_variables(traced, root_rank=root))()
    same(traced[0], np.float32(root))
    same(traced[1], np.int32([root, root]))
    hvd.broadcast_variables([], 0)
    assert hvd.broadcast_object({"epoch": rank}, root_rank=root) == {"epoch": root}
    assert hvd.allgather_object("x" * rank) == ["x" * r for r in range(hvd.size())]


@test
def process_sets():
    rank, size = hvd.rank(), hvd.size()
    last = hvd.add_process_set([size - 1])
    assert last.included() == (rank == size - 1) and last.size() == 1
    even = hvd.add_process_set(hvd.ProcessSet(range(0, size, 2)))
    if even.included():
        for call in both(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=even)):
            same(call(tf.constant(float(rank))), np.float32(sum(even.ranks)))
        for call in both(lambda x: hvd.broadcast(x, even.ranks[-1], process_set=even)):
            same(call(tf.constant(rank)), np.int32(even.ranks[-1]))
        with tf.GradientTape() as tape:
            x = tf.ones([2])
            tape.watch(x)
            y = hvd.allgather(x, process_set=even)
        same(tape.gradient(y, x), np.full(2, even.size(), np.float32))
        assert hvd.allgather_object(rank, process_set=even) == even.ranks
        assert even.rank() == even.ranks.index(rank)
    else:
        raises(ValueError, lambda: hvd.allreduce(1.0, process_set=even), "is not in ProcessSet")
    raises(ValueError, lambda: hvd.add_process_set([size]), "is no process set")
    raises(ValueError, lambda: hvd.add_process_set(even), "in use already")
    assert hvd.remove_process_set(even) and not hvd.remove_process_set(even)
    raises(ValueError, lambda: hvd.allreduce(1.0, process_set=even), "is not in use")
    hvd.remove_process_set(last)
    # One that is added again is the same to what was traced before.
    traced = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=even))
    v, w = tf.Variable([1.0]), tf.Variable([2.0])
    for _ in range(2):
        hvd.add_process_set(even)
        if even.included():
            same(traced(tf.ones([2])), np.float32([even.size()] * 2))
            with tf.GradientTape() as tape:
                loss = v * w
            found = hvd.DistributedGradientTape(tape, op=hvd.Sum, process_set=even).gradient(loss, [v, w])
            same(found[0], np.float32([2 * even.size()]))
        hvd.remove_process_set(even)
        if rank in even.ranks:
            raises(ValueError, lambda: tf.function(lambda x: hvd.allreduce(x, process_set=even))(1.0), "is not in use")


@test
def names():
    rank, size = hvd.rank(), hvd.size()

    @tf.function
    def named(x):
        return hvd.allreduce(x, op=hvd.Sum, name="mine"), hvd.allreduce(2 * x, op=hvd.Sum)

    @tf.function
    def outer(x, flag):
        inner = [named(x)[1], tf.cond(flag, lambda: hvd.allreduce(x, op=hvd.Max), lambda: hvd.allreduce(x, op=hvd.Min))]
        return [*inner, hvd.allreduce(x, op=hvd.Product)]

    if rank == size - 1:
        tf.function(lambda x: x + 1)(tf.constant(1.0))  # counts up the functions of this process alone
    graph = named.get_concrete_function(tf.TensorSpec([], tf.float32)).graph
    found = [op.get_attr("tensor_name").decode() for op in graph.get_operations() if op.type == "KoloAllreduce"]
    assert found == ["mine", "named/KoloAllreduce_1"], found
    again = named.get_concrete_function(tf.TensorSpec([None], tf.float32)).graph  # traced once more: the same names
    assert [op.get_attr("tensor_name").decode() for op in again.get_operations() if op.type == "KoloAllreduce"] == found
    x = tf.constant(2.0)
    for flag in (True, False):
        assert [float(one) for one in outer(x, tf.constant(flag))] == [4.0 * size, 2.0, 2.0**size]
    # Functions whose names the user has numbered are two, which ranks may call in any order.
    @tf.function
    def number_1(x):
        return hvd.allreduce(x, op=hvd.Sum)

    @tf.function
    def number_2(x):
        return hvd.allreduce(x, op=hvd.Sum)

    traced = [one.get_concrete_function(tf.TensorSpec([], tf.float32)).graph for one in (number_1, number_2)]
    found = [op.get_attr("tensor_name").decode() for graph in traced for op in graph.get_operations() if "Kolo" in op.type]
    assert found == ["number_1/KoloAllreduce", "number_2/KoloAllreduce"], found
    # Ranks may make calls with names in any order.
    order = range(4) if rank % 2 == 0 else reversed(range(4))

    @tf.function
    def any_order():
        return {i: hvd.allreduce(tf.constant(float(i)), op=hvd.Sum, name=f"any.{i}") for i in order}

    assert {i: float(one) for i, one in any_order().items()} == {i: float(i * size) for i in range(4)}


@test
def runs_again_with_constants():
    """TensorFlow must not fold a collective of a constant into a constant, nor drop one whose result nobody uses."""
    before = kolopy.metrics()["tensors"]

    @tf.function
    def step():
        hvd.allreduce(tf.constant([7.0]))
        return hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Sum)

    for _ in range(3):
        same(step(), np.float32([hvd.size(), 2 * hvd.size()]))
    if hvd.size() > 1:
        assert kolopy.metrics()["tensors"] - before == 6, kolopy.metrics()["tensors"] - before


@test
def many_at_once():
    """A function's collectives are under way at the same time, so Kolo combines them."""
    count = 100

    @tf.function
    def step(x):
        return [hvd.allreduce(x * float(i), op=hvd.Sum) for i in range(count)]

    x = tf.ones([64])
    step(x)
    before = kolopy.metrics()
    for _ in range(10):
        for i, one in enumerate(step(x)):
            same(one, np.full(64, float(i * hvd.size()), np.float32))
    after = kolopy.metrics()
    if hvd.size() > 1:
        batches, tensors = after["batches"] - before["batches"], after["tensors"] - before["tensors"]
        assert tensors == 10 * count, tensors
        assert batches < tensors / 3, f"{batches} batches of {tensors} tensors"
        if hvd.rank() == 0:
            print(f"  {tensors} tensors in {batches} batches")


@test
def while_loops():
    @tf.function
    def run(n):
        total = tf.constant(0.0)
        for i in tf.range(n):  # each turn needs the one before it
            total = hvd.allreduce(total + tf.cast(i, tf.float32), op=hvd.Average)
        return total

    same(run(tf.constant(5)), np.float32(10))


@test
def joins_and_barriers():
    rank, size = hvd.rank(), hvd.size()
    hvd.barrier()
    for turn in range(rank + 1):  # rank r has r + 1 batches
        found = hvd.allreduce(tf.constant(1.0 + rank), name=f"turn.{turn}")
        same(found, np.float32(np.mean([1.0 + r for r in range(turn, size)])))
    same(hvd.join(), np.int32(size - 1))

    @tf.function
    def run(x):
        before = hvd.allreduce(x, op=hvd.Sum)
        hvd.barrier()
        last = hvd.join()
        return before, last, hvd.allreduce(x, op=hvd.Max)

    before, last, after = run(tf.constant(float(rank)))
    same(before, np.float32(size * (size - 1) / 2))
    assert 0 <= int(last) < size
    same(after, np.float32(size - 1))


@test
def datasets():
    """Inside tf.data's own functions, whose threads are others."""
    rank, size = hvd.rank(), hvd.size()
    data = tf.data.Dataset.range(5).map(lambda i: hvd.allreduce(i + rank, op=hvd.Sum, name="data"))
    assert [int(i) for i in data] == [size * i + size * (size - 1) // 2 for i in range(5)]


@test
def mismatches():
    rank, size = hvd.rank(), hvd.size()
    invalid = tf.errors.InvalidArgumentError
    if size > 1:
        shape = [2] if rank == 0 else [3]
        for call in both(lambda x: hvd.allreduce(x, name="uneven")):
            raises(invalid, lambda call=call: call(tf.ones(shape)), "uneven", "[2]", "[3]")
        dtype = tf.float32 if rank == 0 else tf.float64
        raises(invalid, lambda: hvd.allreduce(tf.ones([2], dtype), name="type"), "float32", "float64")
        raises(invalid, lambda: hvd.broadcast(tf.ones([2]), 0 if rank == 0 else 1, name="root"), "root")
        raises(invalid, lambda: hvd.allgather(tf.ones([1, 2 + rank % 2]), name="rows"), "rows")
    raises(invalid, lambda: hvd.allreduce(tf.constant(1), op=hvd.Average), "average")
    raises(invalid, lambda: hvd.alltoall(tf.ones([size]), [2] * size))
    raises(invalid, lambda: hvd.allreduce(tf.ones([1] * 9)), "9 dimensions")
    raises(ValueError, lambda: hvd.allreduce(tf.ones([1]), op=17), "Average")
    raises((TypeError, invalid), lambda: hvd.allreduce(tf.constant("text")))
    raises(TypeError, lambda: hvd.allreduce(tf.sparse.from_dense([1.0])), "dense memory")
    same(hvd.allreduce(tf.constant([1.0]), op=hvd.Sum), np.float32([size]))  # the job goes on


@test
def xla():
    """It has no kernels for custom operations; the sentence says what to do."""
    compiled = tf.function(lambda x: hvd.allreduce(x), jit_compile=True)
    raises(NotImplementedError, lambda: compiled(tf.ones([2])), "jit_compile=False")

    @tf.function(jit_compile=True)
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x * x
        return hvd.DistributedGradientTape(tape).gradient(y, x)

    raises(NotImplementedError, lambda: gradient(tf.ones([2])), "jit_compile=False")

    @tf.function(jit_compile=True)
    def part(x):
        return x * 2.0

    same(tf.function(lambda x: hvd.allreduce(part(x)))(tf.ones([2])), np.float32([2, 2]))


@test
def devices():
    """Kernels are for the CPU alone."""

    def elsewhere(x):
        with tf.device("GPU:0"):
            return hvd.allreduce(tf.identity(x))

    raises(NotImplementedError, lambda: tf.function(elsewhere)(tf.ones([2])), "GPU", "CPU only", "set_visible_devices")
    with tf.device("CPU:0"):
        same(hvd.allreduce(tf.ones([2])), np.float32([1, 1]))


@test
def what_is_not_there():
    for name in ("elastic", "Adasum", "SyncBatchNormalization", "PartialDistributedOptimizer", "start_timeline"):
        error = raises(AttributeError, lambda name=name: getattr(hvd, name), f"has no {name}: ")
        assert len(str(error)) > 40
    raises(AttributeError, lambda: hvd.something, "has no attribute 'something'")
    assert not hasattr(hvd, "elastic")
    import kolopy.tensorflow.keras as of_keras

    assert of_keras.DistributedOptimizer is hvd.DistributedOptimizer


@test
def places():
    assert hvd.is_initialized() and 0 <= hvd.local_rank() < hvd.local_size() and hvd.cross_size() >= 1
    assert int(hvd.size_op()) == hvd.size() and int(hvd.rank_op()) == hvd.rank()
    assert hvd.is_homogeneous()
    with open("/proc/self/maps", encoding="utf-8") as maps:
        libraries = {line.split()[-1] for line in maps if "libkolo.so" in line}
    assert len(libraries) == 1, libraries


def run_all():
    hvd.init()
    for one in tests:
        start = time.time()
        one()
        if hvd.rank() == 0:
            print(f"passed: {one.__name__} ({time.time() - start:.1f} s)", flush=True)
    traced = tf.function(lambda x: hvd.allreduce(x))
    traced(tf.ones([2]))
    hvd.shutdown()
    raises(tf.errors.FailedPreconditionError, lambda: traced(tf.ones([2])), "hvd.init()")
    raises(kolopy.NotInitializedError, lambda: hvd.allreduce(1.0))
    hvd.init()  # once more
    same(traced(tf.ones([2])), np.float32([1, 1]))
    hvd.shutdown()


def end(mode):
    """How operations fail that wait for a rank which dies, waits, or leaves."""
    hvd.init(timeout_s=15 if mode == "timeout" else 300)
    last = hvd.rank() == hvd.size() - 1
    step = tf.function(lambda x: [hvd.allreduce(x, op=hvd.Sum), hvd.allgather(x)])
    step(tf.ones([4]))
    if last and mode == "jacobian":  # it once ran collectives of its own, and all waited until the deadline
        with tf.GradientTape() as tape:
            x = tf.ones([2])
            tape.watch(x)
            y = x * x
        hvd.DistributedGradientTape(tape).jacobian(y, x)
    elif last:
        time.sleep(1)
        if mode == "death":
            os._exit(0)
        elif mode == "abandon":
            kolopy.abandon("no more data here")
        else:
            time.sleep(20)
    else:
        kind = {"death": tf.errors.UnavailableError, "abandon": tf.errors.AbortedError,
                "timeout": tf.errors.DeadlineExceededError, "jacobian": tf.errors.AbortedError}[mode]
        error = raises(kind, lambda: step(tf.ones([4])))
        part = {"death": f"rank {hvd.size() - 1}", "abandon": "no more data here",
                "timeout": f"rank {hvd.size() - 1} has not submitted",
                "jacobian": "NotImplementedError: a DistributedGradientTape has no jacobian: take that of the tape"}[mode]
        assert part in str(error), str(error)
        print(f"passed: {mode} on rank {hvd.rank()}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        end(sys.argv[1])
    run_all()
