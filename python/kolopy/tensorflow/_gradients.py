# SPDX-License-Identifier: Apache-2.0
"""How gradients are reduced before they are used."""

from __future__ import annotations

from typing import Any, List, Sequence

import tensorflow as tf

from kolopy.tensorflow import _ops
from kolopy.tensorflow._ops import Average, Sum
from kolopy.tensorflow._world import ProcessSet


class Reduction:
    """How a list of gradients is reduced."""

    def __init__(
        self,
        compression: Any,
        sparse_as_dense: bool,
        op: Any,
        gradient_predivide_factor: float,
        num_groups: int,
        process_set: ProcessSet,
    ) -> None:
        self._op = _ops._reduce_op(op, None)
        if gradient_predivide_factor != 1.0 and self._op != Average:
            raise ValueError("gradient_predivide_factor divides an average in two steps: it needs op=hvd.Average")
        self._compression = compression
        self._sparse_as_dense = sparse_as_dense
        self._predivide = float(gradient_predivide_factor)
        self._num_groups = int(num_groups)
        self.process_set = process_set

    def _options(self) -> "dict[str, Any]":
        options: "dict[str, Any]" = {"compression": self._compression, "op": self._op, "process_set": self.process_set}
        if self._predivide != 1.0:
            options["op"] = Sum
            options["prescale_factor"] = 1.0 / self._predivide
            options["postscale_factor"] = self._predivide / self.process_set.size()
        return options

    def reduce(self, gradients: Sequence[Any], names: Sequence[str]) -> "List[Any]":
        """Gradients that are None stay so, as they must be on all ranks."""
        dense = [
            tf.convert_to_tensor(one) if self._sparse_as_dense and isinstance(one, tf.IndexedSlices) else one
            for one in gradients
        ]
        if self._num_groups > 0:
            return self._reduce_in_groups(dense, names)
        return _ops.reduce_together(dense, names, list(self._options().items()))

    def _reduce_in_groups(self, gradients: "List[Any]", names: Sequence[str]) -> "List[Any]":
        """Those that are dense; the others one by one."""
        reduced: "List[Any]" = list(gradients)
        places = [i for i, one in enumerate(gradients) if one is not None and not isinstance(one, tf.IndexedSlices)]
        others = [i for i, one in enumerate(gradients) if isinstance(one, tf.IndexedSlices)]
        length = -(-len(places) // self._num_groups) if places else 1
        for first in range(0, len(places), length):
            group = places[first : first + length]
            name = f"{names[group[0]]}.group"
            for i, one in zip(
                group, _ops.grouped_allreduce([gradients[i] for i in group], name=name, **self._options())
            ):
                reduced[i] = one
        for i in others:
            reduced[i] = _ops.allreduce(gradients[i], name=names[i], **self._options())
        return reduced
