# SPDX-License-Identifier: Apache-2.0
"""Gradients of several passes, summed before they are reduced: `backward_passes_per_step`."""

from __future__ import annotations

from typing import Any, List, Sequence

import tensorflow as tf

from kolopy.tensorflow._agreement import key_of, path_of


class Accumulation:
    """The sums of one optimizer's gradients, by variable."""

    def __init__(self, passes: int, averages: bool) -> None:
        self._passes = passes
        self._averages = averages
        self._sums: "dict[Any, Any]" = {}  # None: the variable has no gradient
        self._count: Any = None

    def check_known(self, built_for: Sequence[Any], variables: Sequence[Any]) -> None:
        """As Keras does it, which would find it at the end of the step only."""
        known = {key_of(one) for one in built_for}
        new = [path_of(one) for one in variables if key_of(one) not in known]
        if new:
            raise ValueError(
                f"the optimizer was made for {len(known)} variables, and {new[0]} is not one of them: after a layer "
                "was thawed, compile the model with a new optimizer"
            )

    def begin(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Makes the sums, outside a function that is being traced."""
        with tf.init_scope():
            if self._count is None:
                self._count = tf.Variable(0, trainable=False, dtype=tf.int64)
            for one, variable in zip(gradients, variables):
                key = key_of(variable)
                if key not in self._sums:
                    zeros = None if one is None else tf.zeros(variable.shape, one.dtype)
                    self._sums[key] = None if zeros is None else tf.Variable(zeros, trainable=False)

    def add(self, gradients: Sequence[Any], variables: Sequence[Any]) -> Any:
        """Whether this pass was the last of a step."""
        sums = [self._sums[key_of(one)] for one in variables]
        changed = [
            path_of(variable)
            for one, its_sum, variable in zip(gradients, sums, variables)
            if (one is None) != (its_sum is None)
        ]
        if changed:
            raise ValueError(
                f"the gradient of {changed[0]} is None in one pass and not in another: give zeros in its place"
            )
        added = [its_sum.assign_add(one) for one, its_sum in zip(gradients, sums) if one is not None]
        with tf.control_dependencies(added):
            count = self._count.assign_add(1)
        return tf.equal(count % self._passes, 0)

    def take(self, variables: Sequence[Any]) -> "List[Any]":
        """The sums of these. All begin anew: a layer that was frozen amid a step leaves nothing behind."""
        sums = [self._sums[key_of(one)] for one in variables]
        taken = [None if one is None else tf.identity(one) for one in sums]
        with tf.control_dependencies([one for one in taken if one is not None]):
            for one in self._sums.values():
                if one is not None:
                    one.assign(tf.zeros_like(one))
        return [one if one is None or not self._averages else one / self._passes for one in taken]
