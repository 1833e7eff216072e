# SPDX-License-Identifier: Apache-2.0
"""DistributedGradientTape: gradients are reduced before they are returned."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import tensorflow as tf

from kolopy.tensorflow import _ops, _replicas
from kolopy.tensorflow._agreement import agree, is_variable, key_of, resource_of
from kolopy.tensorflow._gradients import Reduction
from kolopy.tensorflow._ops import Average, Compression
from kolopy.tensorflow._world import ProcessSet, global_process_set


class DistributedGradientTape(tf.GradientTape):  # type: ignore[misc]
    """A tape whose `gradient` gives the ranks' average. Made from a tape, in use or not:

    with tf.GradientTape() as tape:
        loss = ...
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)

    Both record the same, and the tape that it was made from gives this rank's gradients.
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
        if isinstance(gradtape, DistributedGradientTape):
            raise ValueError("the tape is distributed already: gradients would be reduced twice")
        # All that a tape is, is in that one: two that believed themselves to be recording would both stop it.
        self._kolo_tape = gradtape
        self._kolo_reduction = Reduction(
            compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, process_set
        )

    def __enter__(self) -> "DistributedGradientTape":
        self._kolo_tape.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._kolo_tape.__exit__(*error)

    def watch(self, tensor: Any) -> None:
        self._kolo_tape.watch(tensor)

    def stop_recording(self) -> Any:
        return self._kolo_tape.stop_recording()

    def reset(self) -> None:
        self._kolo_tape.reset()

    def watched_variables(self) -> Any:
        return self._kolo_tape.watched_variables()

    @tf.autograph.experimental.do_not_convert  # type: ignore[misc]
    def gradient(self, target: Any, sources: Any, *arguments: Any, **keywords: Any) -> Any:
        gradients = self._kolo_tape.gradient(target, sources, *arguments, **keywords)
        name = _ops.traced_name("DistributedGradientTape") or "DistributedGradientTape"
        _check_replicas([one for one in tf.nest.flatten(sources) if is_variable(one)], self._kolo_reduction.process_set)
        listed = tf.nest.flatten(gradients)
        reduced = self._kolo_reduction.reduce(listed, [f"{name}/{i}" for i in range(len(listed))])
        for one in reduced:
            _ops.note_reduced(one)
        return tf.nest.pack_sequence_as(gradients, reduced)

    def jacobian(self, *arguments: Any, **keywords: Any) -> Any:
        raise NotImplementedError(_NO_JACOBIAN.format("jacobian"))

    def batch_jacobian(self, *arguments: Any, **keywords: Any) -> Any:
        raise NotImplementedError(_NO_JACOBIAN.format("batch_jacobian"))


_NO_JACOBIAN = (
    "a DistributedGradientTape has no {0}: take that of the tape that it was made from, and reduce it by hvd.allreduce"
)


class _Seen:
    """Variables whose gradients tapes compute. Programs make a tape each step, so the variables remember."""

    def __init__(self, variables: Sequence[Any], process_set: ProcessSet) -> None:
        paths = agree("DistributedGradientTape", process_set, "", variables).paths
        self.named = [(f"{place}/{path}", one) for place, (path, one) in enumerate(zip(paths, variables))]
        self.steps = _replicas.Counter()


def _seen(variables: Sequence[Any], process_set: ProcessSet) -> _Seen:
    """What the first of the variables remembers."""
    holder = resource_of(variables[0]).__dict__
    known: "dict[Tuple[Any, ...], _Seen]" = holder.setdefault("_kolo_seen", {})
    key = (id(process_set), *(key_of(one) for one in variables))
    if key not in known:
        known[key] = _Seen(variables, process_set)
    return known[key]


def _check_replicas(variables: "List[Any]", process_set: ProcessSet) -> None:
    """KOLO_CHECK_REPLICAS. The first comparison comes in the second step, not in the first: Horovod's own programs
    broadcast the variables after the first, when the optimizer has its state."""
    every = _replicas.interval_of(process_set)
    if every < 0 or not variables:
        return
    seen = _seen(variables, process_set)
    name = f"DistributedGradientTape/{seen.named[0][0]} (replicas)"
    _replicas.compare(name, seen.named, process_set, seen.steps.next() - 1, first=1, every=every)
