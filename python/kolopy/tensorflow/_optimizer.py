# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer for Keras 3: gradients are reduced before they are applied."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import tensorflow as tf

from kolopy.tensorflow._gradients import Reduction
from kolopy.tensorflow._ops import Average, Compression
from kolopy.tensorflow._world import ProcessSet, global_process_set


class _Accumulation:
    """Gradients of several passes, summed before they are reduced."""

    def __init__(self, passes: int, averages: bool) -> None:
        self.passes = passes
        self._averages = averages
        self._sums: "List[Any]" = []
        self._count: Any = None

    def begin(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Makes the variables, outside a function that is being traced."""
        if self._count is not None:
            return
        with tf.init_scope():
            self._count = tf.Variable(0, trainable=False, dtype=tf.int64)
            self._sums = [
                None if one is None else tf.Variable(tf.zeros(variable.shape, one.dtype), trainable=False)
                for one, variable in zip(gradients, variables)
            ]

    def add(self, gradients: Sequence[Any]) -> Any:
        """Whether this pass was the last of a step."""
        missing = [
            i for i, (one, its_sum) in enumerate(zip(gradients, self._sums)) if (one is None) != (its_sum is None)
        ]
        if missing or len(gradients) != len(self._sums):
            raise ValueError("gradients are None in one pass and not in another: give zeros in their place")
        added = [its_sum.assign_add(one) for one, its_sum in zip(gradients, self._sums) if one is not None]
        with tf.control_dependencies(added):
            count = self._count.assign_add(1)
        return tf.equal(count % self.passes, 0)

    def take(self) -> "List[Any]":
        taken = [None if one is None else tf.identity(one) for one in self._sums]
        with tf.control_dependencies([one for one in taken if one is not None]):
            for one in self._sums:
                if one is not None:
                    one.assign(tf.zeros_like(one))
        return [one if one is None or not self._averages else one / self.passes for one in taken]


class _Distributed:
    """What the class of a distributed optimizer has before that of the optimizer."""

    _kolo: Optional[Reduction] = None  # None in one that Keras has made from a configuration: it is not distributed
    _kolo_name: str = ""
    _kolo_accumulation: Optional[_Accumulation] = None

    @tf.autograph.experimental.do_not_convert  # type: ignore[misc]
    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        apply: Any = super().apply  # type: ignore[misc]
        gradients = list(grads)
        if self._kolo is None or not gradients:
            return apply(gradients, trainable_variables)
        its_variables: Any = self
        variables = list(its_variables._trainable_variables if trainable_variables is None else trainable_variables)
        names = [f"{self._kolo_name}/{i}/{_path(variable)}" for i, variable in enumerate(variables)]
        accumulation = self._kolo_accumulation
        if accumulation is None:
            return apply(self._kolo.reduce(gradients, names), variables)
        if not its_variables.built:
            its_variables.build(variables)
        gradients = [tf.convert_to_tensor(one) if isinstance(one, tf.IndexedSlices) else one for one in gradients]
        accumulation.begin(gradients, variables)
        reduction = self._kolo

        def step() -> Any:
            apply(reduction.reduce(accumulation.take(), names), variables)
            return True

        return tf.cond(accumulation.add(gradients), step, lambda: False)


def _path(variable: Any) -> str:
    return str(getattr(variable, "path", None) or variable.name)


_classes: "dict[type, type]" = {}


def _class_of(cls: type) -> type:
    """The optimizer's class with `_Distributed` before it, under the same name: what is saved names the optimizer's own
    class, and loads where there is no Kolo."""
    if cls not in _classes:
        made = type(cls.__name__, (_Distributed, cls), {"__module__": cls.__module__, "__doc__": cls.__doc__})
        made.__qualname__ = cls.__qualname__
        import keras

        registered = keras.saving.get_registered_name(cls)
        if ">" in registered:
            package, name = registered.split(">", 1)
            keras.saving.register_keras_serializable(package, name)(made)  # its name, when it is saved
            keras.saving.register_keras_serializable(package, name)(cls)  # and this class, when it is loaded
        _classes[cls] = made
    return _classes[cls]


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Any = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The optimizer, which from now on reduces the gradients that it is given before it applies them. The object stays
    the same, with its variables and its state; its class becomes a subclass of its own.

    name                          stands before the gradients' names; the optimizer's own name by default
    compression                   hvd.Compression.fp16: gradients travel as float16
    sparse_as_dense               makes tf.IndexedSlices dense before they are reduced
    gradient_predivide_factor     divides by this before the sum, and by the rest of the number of ranks after it
    op                            hvd.Average or hvd.Sum
    backward_passes_per_step      gradients of so many calls are added before they are reduced and applied
    average_aggregated_gradients  and divided by that number
    num_groups                    reduces dense gradients in so many groups; 0: each by itself, which Kolo combines
    """
    import keras

    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(
            f"hvd.DistributedOptimizer takes an optimizer of Keras 3, not a {type(optimizer).__module__}."
            f"{type(optimizer).__name__}: with another one use hvd.DistributedGradientTape"
        )
    if keras.config.backend() != "tensorflow":
        raise RuntimeError(
            f"Keras runs over {keras.config.backend()}, and hvd.DistributedOptimizer needs TensorFlow: set "
            "KERAS_BACKEND=tensorflow before the first import of keras"
        )
    if isinstance(optimizer, _Distributed) and optimizer._kolo is not None:
        raise ValueError("the optimizer is distributed already: gradients would be reduced twice")
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step is {backward_passes_per_step}: give 1 or more")
    reduction = Reduction(compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, process_set)
    if not isinstance(optimizer, _Distributed):
        optimizer.__class__ = _class_of(type(optimizer))
    passes = backward_passes_per_step
    # Past the attributes that Keras and TensorFlow track and save.
    optimizer.__dict__["_kolo"] = reduction
    optimizer.__dict__["_kolo_name"] = name or optimizer.name
    optimizer.__dict__["_kolo_accumulation"] = (
        _Accumulation(passes, average_aggregated_gradients) if passes > 1 else None
    )
    return optimizer


def is_distributed(optimizer: Any) -> bool:
    return isinstance(optimizer, _Distributed) and optimizer._kolo is not None


def load_model(filepath: Any, custom_optimizers: Any = None, custom_objects: Any = None, **options: Any) -> Any:
    """keras.models.load_model, with the model's optimizer made distributed. `options` are DistributedOptimizer's."""
    import keras

    objects = dict(custom_objects or {})
    objects.update({one.__name__: one for one in custom_optimizers or ()})
    model = keras.models.load_model(filepath, custom_objects=objects)
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, **options)
    return model
