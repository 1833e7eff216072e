# SPDX-License-Identifier: Apache-2.0
"""Whether all ranks hold the same variables: KOLO_CHECK_REPLICAS. The kernel reads the variables where they lie."""

from __future__ import annotations

from typing import Any, Sequence, Tuple

import tensorflow as tf

import kolopy
from kolopy.tensorflow import _ops
from kolopy.tensorflow._agreement import resource_of
from kolopy.tensorflow._world import ProcessSet, number_of, operations

#: What Kolo's hash is told the type of. (Keras keeps no state in others.)
_TYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64".split()
)


def interval_of(process_set: ProcessSet) -> int:
    """-1: nothing is compared; 0: before the first step; N: also after every N-th."""
    return -1 if process_set.size() == 1 else kolopy.replica_interval(group=process_set.group())


def compare(
    name: str, named: "Sequence[Tuple[str, Any]]", process_set: ProcessSet, step: Any, first: int, every: int
) -> None:
    """The variables, if `step` is `first` or a multiple of `every`. Before it comes what the program has done to
    them, and what it does to them later comes after it, in a tf.function, too."""
    served = [(its_name, resource_of(one)) for its_name, one in named]
    served = [(its_name, one) for its_name, one in served if tf.as_dtype(one.dtype).base_dtype.name in _TYPES]
    if not served:
        return
    _ops.check_graph()
    operations.kolo_check_replicas(
        variables=[one.handle for _, one in served],
        step=tf.cast(step, tf.int64),
        names=[its_name for its_name, _ in served],
        first=first,
        every=every,
        tensor_name=name,
        process_set=number_of(process_set),
    )


class Counter:
    """Of steps, in a tf.function and outside it."""

    def __init__(self) -> None:
        with tf.init_scope():
            self._count = tf.Variable(0, trainable=False, dtype=tf.int64)

    def next(self) -> Any:
        return self._count.assign_add(1)
