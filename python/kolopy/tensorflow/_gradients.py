# SPDX-License-Identifier: Apache-2.0
"""DistributedGradientTape, and DistributedOptimizer for Keras 3: gradients are reduced before they are used."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import tensorflow as tf

from kolopy.tensorflow import _ops
from kolopy.tensorflow._ops import Average, Compression, Sum
from kolopy.tensorflow._world import ProcessSet, global_process_set


class _Reduction:
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
        self._set = process_set

    def _options(self) -> "dict[str, Any]":
        options: "dict[str, Any]" = {"compression": self._compression, "op": self._op, "process_set": self._set}
        if self._predivide != 1.0:
            options["op"] = Sum
            options["prescale_factor"] = 1.0 / self._predivide
            options["postscale_factor"] = self._predivide / self._set.size()
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
        self._kolo = _Reduction(compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, process_set)

    @tf.autograph.experimental.do_not_convert  # type: ignore[misc]
    def gradient(self, target: Any, sources: Any, *arguments: Any, **keywords: Any) -> Any:
        gradients = super().gradient(target, sources, *arguments, **keywords)
        name = _ops.traced_name("DistributedGradientTape") or "DistributedGradientTape"
        listed = tf.nest.flatten(gradients)
        reduced = self._kolo.reduce(listed, [f"{name}/{i}" for i in range(len(listed))])
        return tf.nest.pack_sequence_as(gradients, reduced)


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

    _kolo: Optional[_Reduction] = None  # None in one that Keras has made from a configuration: it is not distributed
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
    reduction = _Reduction(compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, process_set)
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
