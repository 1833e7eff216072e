# SPDX-License-Identifier: Apache-2.0
"""DistributedGradientTape: gradients are reduced before they are returned."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from kolopy.tensorflow import _ops
from kolopy.tensorflow._gradients import Reduction
from kolopy.tensorflow._ops import Average, Compression
from kolopy.tensorflow._world import ProcessSet, global_process_set


class DistributedGradientTape(tf.GradientTape):  # type: ignore[misc]
    """A tape whose `gradient` gives the ranks' average. Made from a tape, in use or not:

    with tf.GradientTape() as tape:
        loss = ...
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    """

    def __init__(
        self,
        gradtape: Any,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Any = Compression.none,
        sparse_as_dense: bool = False,
        op: Any = Average,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if not isinstance(gradtape, tf.GradientTape):
            raise TypeError(f"DistributedGradientTape takes a tf.GradientTape, not a {type(gradtape).__name__}")
        self.__dict__.update(gradtape.__dict__)
        self._kolo = Reduction(compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, process_set)

    @tf.autograph.experimental.do_not_convert  # type: ignore[misc]
    def gradient(self, target: Any, sources: Any, *arguments: Any, **keywords: Any) -> Any:
        gradients = super().gradient(target, sources, *arguments, **keywords)
        name = _ops.traced_name("DistributedGradientTape") or "DistributedGradientTape"
        listed = tf.nest.flatten(gradients)
        reduced = self._kolo.reduce(listed, [f"{name}/{i}" for i in range(len(listed))])
        return tf.nest.pack_sequence_as(gradients, reduced)
