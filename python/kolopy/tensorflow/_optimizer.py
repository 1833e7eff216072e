# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer for Keras 3: gradients are reduced before they are applied."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import keras
import tensorflow as tf

from kolopy.tensorflow import _ops, _replicas
from kolopy.tensorflow._accumulation import Accumulation
from kolopy.tensorflow._agreement import agree, key_of
from kolopy.tensorflow._gradients import Reduction
from kolopy.tensorflow._ops import Average, Compression, ReduceOp
from kolopy.tensorflow._world import ProcessSet, global_process_set


class Options(NamedTuple):
    """DistributedOptimizer's. They belong to the class of a distributed optimizer, so that copies have them."""

    name: Optional[str] = None
    compression: Any = Compression.none
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    op: ReduceOp = Average
    backward_passes_per_step: int = 1
    average_aggregated_gradients: bool = False
    num_groups: int = 0
    process_set: ProcessSet = global_process_set

    def described(self) -> "List[str]":
        """Those that are not as they are by default."""
        return [
            f"{name}={getattr(value, '__name__', None) or getattr(value, 'name', None) or repr(value)}"
            for name, value in self._asdict().items()
            if value != self._field_defaults[name]
        ]

    def reduction(self) -> Reduction:
        return Reduction(
            self.compression,
            self.sparse_as_dense,
            self.op,
            self.gradient_predivide_factor,
            self.num_groups,
            self.process_set,
        )


# --- what an optimizer holds


def _held(thing: Any, kind: Any) -> "Iterator[Any]":
    """Things of a kind in an object's attributes, and in lists and dictionaries there."""
    for value in list(vars(thing).values()):
        parts = [value]
        if isinstance(value, Mapping):
            parts = list(value.values())
        elif isinstance(value, (list, tuple, set)):
            parts = list(value)
        yield from (one for one in parts if isinstance(one, kind) and one is not thing)


def _inner_optimizers(optimizer: Any) -> "Iterator[Any]":
    """Those by which it steps, and theirs."""
    for one in {id(held): held for held in _held(optimizer, keras.optimizers.Optimizer)}.values():
        yield one
        yield from _inner_optimizers(one)


def replicated_variables(optimizer: Any) -> "List[Any]":
    """The optimizer's variables that all ranks hold alike: without the states of random seeds, each rank's own."""
    seeds = {
        id(generator.state)
        for holder in (optimizer, *_inner_optimizers(optimizer))
        for generator in _held(holder, keras.random.SeedGenerator)
    }
    return [one for one in optimizer.variables if id(one) not in seeds]


def is_distributed(optimizer: Any) -> bool:
    return isinstance(optimizer, _Distributed)


def inner_distributed(optimizer: Any) -> Any:
    """A distributed optimizer by which this one steps, or None."""
    return next((one for one in _inner_optimizers(optimizer) if is_distributed(one)), None)


def await_broadcast(optimizer: Any) -> None:
    """Ranks may differ in the first step: they are made alike after it."""
    for one in (optimizer, *_inner_optimizers(optimizer)):
        if is_distributed(one):
            one._kolo_ranks().awaits_broadcast = True


def reduces_everything(optimizer: Any) -> bool:
    """Whether no gradient is applied that is not reduced: the optimizer is distributed, or all by which it steps."""
    inner = list(_held(optimizer, keras.optimizers.Optimizer))
    return is_distributed(optimizer) or bool(inner) and all(reduces_everything(one) for one in inner)


# --- the class of a distributed optimizer


class _Ranks:
    """What a distributed optimizer knows of the other ranks, by now. It is no part of what is saved or copied."""

    def __init__(self, options: Options) -> None:
        passes = options.backward_passes_per_step
        self.reduction = options.reduction()
        self.accumulation = Accumulation(passes, options.average_aggregated_gradients) if passes > 1 else None
        self.names: "dict[Any, str]" = {}  # of variables' gradients
        self._title = ""
        self._state: "List[Tuple[str, Any]]" = []  # of the optimizer, with its names
        self._steps: Any = None
        self.awaits_broadcast = False  # after the first batch: until then ranks may differ
        self._options = options

    def meet(self, optimizer: Any, variables: Sequence[Any]) -> None:
        """Agrees on the names of variables that are new, and compares them with the other ranks'."""
        new = [one for one in variables if key_of(one) not in self.names]
        if not new:
            return
        its_set, is_first = self._options.process_set, not self.names
        state = replicated_variables(optimizer) if is_first else []
        title = self._options.name or optimizer.name
        agreed = agree("DistributedOptimizer", its_set, title, [*new, *state], self._options.described())
        if is_first:
            self._title, self._steps = agreed.title, _replicas.Counter()
            self._state = list(zip(agreed.paths[len(new) :], state))
        for variable, path in zip(new, agreed.paths):
            self.names[key_of(variable)] = f"{self._title}/{len(self.names)}/{path}"
        if _replicas.interval_of(its_set) >= 0 and not self.awaits_broadcast:
            try:
                with tf.init_scope():
                    self._compare(new, 0, first=0, every=0)
            except Exception:  # as often as it is tried
                for variable in new:
                    del self.names[key_of(variable)]
                raise

    def end_step(self, variables: Sequence[Any]) -> None:
        every = _replicas.interval_of(self._options.process_set)
        if every > 0:
            self._compare(variables, self._steps.next(), first=-1, every=every)

    def _compare(self, variables: Sequence[Any], step: Any, first: int, every: int) -> None:
        named = [(self.names[key_of(one)], one) for one in variables] + self._state
        _replicas.compare(f"{named[0][0]} (replicas)", named, self._options.process_set, step, first, every)


class _Applying(threading.local):
    """The distributed optimizer that is applying gradients on this thread."""

    outer: Any = None


_applying = _Applying()


class _Distributed:
    """What the class of a distributed optimizer has before that of the optimizer."""

    _kolo_options: Options
    _kolo_plain: Any  # the optimizer's own class
    _kolo_is_copy = True  # until it is given to DistributedOptimizer
    _kolo_its_ranks: Optional[_Ranks] = None

    def _kolo_ranks(self) -> _Ranks:
        # Past the attributes that Keras and TensorFlow track and save.
        found = self.__dict__.get("_kolo_its_ranks")
        if found is None:
            found = self.__dict__["_kolo_its_ranks"] = _Ranks(self._kolo_options)
        return found

    @tf.autograph.experimental.do_not_convert  # type: ignore[misc]
    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        its: Any = self
        gradients = list(grads)
        if not gradients:
            return super().apply(gradients, trainable_variables)  # type: ignore[misc]
        if _applying.outer is not None:
            raise ValueError(
                f"the optimizer {its.name!r} and {_applying.outer.name!r}, which steps by it, are both distributed: "
                "gradients would be reduced twice. Give hvd.DistributedOptimizer the outer one alone"
            )
        if any(_ops.was_reduced(one) for one in gradients):
            raise ValueError(
                "these gradients are of a DistributedGradientTape, and a distributed optimizer would reduce them "
                "again: use one of the two"
            )
        variables = list(its._trainable_variables if trainable_variables is None else trainable_variables)
        if not its.built:
            with tf.init_scope():  # so that they have their values while a function is being traced
                its.build(variables)
        ranks = self._kolo_ranks()
        if ranks.accumulation is None:
            ranks.meet(self, variables)
            return self._kolo_step(gradients, variables)
        accumulation = ranks.accumulation
        gradients = [tf.convert_to_tensor(one) if isinstance(one, tf.IndexedSlices) else one for one in gradients]
        accumulation.check_known(its._trainable_variables, variables)
        ranks.meet(self, variables)
        accumulation.begin(gradients, variables)

        def step() -> Any:
            self._kolo_step(accumulation.take(variables), variables)
            return True

        return tf.cond(accumulation.add(gradients, variables), step, lambda: False)

    def _kolo_step(self, gradients: Sequence[Any], variables: Sequence[Any]) -> Any:
        ranks = self._kolo_ranks()
        reduced = ranks.reduction.reduce(gradients, [ranks.names[key_of(one)] for one in variables])
        _applying.outer = self
        try:
            result = super().apply(reduced, variables)  # type: ignore[misc]
        finally:
            _applying.outer = None
        ranks.end_step(variables)
        return result

    def __reduce__(self) -> Any:
        """For pickle and copy: Keras's way would look for this class by the name of the optimizer's own."""
        _, (file,) = super().__reduce__()
        return _restored, (self._kolo_plain, self._kolo_options, file)


def _restored(plain: Any, options: Options, file: Any) -> Any:
    optimizer = plain._unpickle_model(file)
    optimizer.__class__ = _class_of(plain, options)
    return optimizer


_classes: "dict[tuple[type, Options], type]" = {}


def _class_of(plain: type, options: Options) -> type:
    """The optimizer's class with `_Distributed` before it, under the same name: what is saved names the optimizer's own
    class, and loads where there is no Kolo. Where Kolo is, Keras finds this class."""
    key = (plain, options)
    if key not in _classes:
        made = type(plain.__name__, (_Distributed, plain), {"__module__": plain.__module__, "__doc__": plain.__doc__})
        made.__qualname__ = plain.__qualname__
        made._kolo_options, made._kolo_plain = options, plain  # type: ignore[attr-defined]
        _register(plain, made, options)
        _classes[key] = made
    return _classes[key]


def _register(plain: type, made: type, options: Options) -> None:
    """Keras looks for a class under its registered name first. Without Kolo it does not find that of one of Keras's
    own, and takes the class by its module and name. One of the user's must have the name that the user has given."""
    if getattr(keras.optimizers, plain.__name__, None) is plain:
        described = ", ".join(options.described())
        keras.saving.register_keras_serializable(f"kolo({described})" if described else "kolo", plain.__name__)(made)
        return
    registered = keras.saving.get_registered_name(plain)
    if ">" in registered:
        package, name = registered.split(">", 1)
        keras.saving.register_keras_serializable(package, name)(made)  # its name, when it is saved
        keras.saving.register_keras_serializable(package, name)(plain)  # and this class, when it is loaded


def register_all() -> None:
    """Keras's own, with the options as they are by default: Keras then loads them distributed."""
    if keras.config.backend() != "tensorflow":
        return
    for one in list(vars(keras.optimizers).values()):
        if isinstance(one, type) and issubclass(one, keras.optimizers.Optimizer):
            _class_of(one, Options())


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
    the same, with its variables and its state; its class becomes a subclass of its own. Copies of it are distributed,
    with the same options.

    name                          stands before the gradients' names; the optimizer's own name by default
    compression                   hvd.Compression.fp16: gradients travel as float16
    sparse_as_dense               makes tf.IndexedSlices dense before they are reduced
    gradient_predivide_factor     divides by this before the sum, and by the rest of the number of ranks after it
    op                            hvd.Average or hvd.Sum
    backward_passes_per_step      gradients of so many calls are added before they are reduced and applied
    average_aggregated_gradients  and divided by that number
    num_groups                    reduces dense gradients in so many groups; 0: each by itself, which Kolo combines
    """
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
    if is_distributed(optimizer) and not optimizer._kolo_is_copy:
        raise ValueError("the optimizer is distributed already: gradients would be reduced twice")
    inner = inner_distributed(optimizer)
    if inner is not None:
        raise ValueError(
            f"the optimizer {inner.name!r}, by which {optimizer.name!r} steps, is distributed already: gradients would "
            "be reduced twice. Give hvd.DistributedOptimizer the outer one alone"
        )
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step is {backward_passes_per_step}: give 1 or more")
    options = Options(
        name,
        compression,
        bool(sparse_as_dense),
        float(gradient_predivide_factor),
        _ops._reduce_op(op, None),
        int(backward_passes_per_step),
        bool(average_aggregated_gradients),
        int(num_groups),
        process_set,
    )
    options.reduction()  # raises where they do not fit together
    plain = optimizer._kolo_plain if is_distributed(optimizer) else type(optimizer)
    optimizer.__class__ = _class_of(plain, options)
    optimizer.__dict__["_kolo_is_copy"] = False
    optimizer.__dict__["_kolo_its_ranks"] = None
    return optimizer


def load_model(filepath: Any, custom_optimizers: Any = None, custom_objects: Any = None, **options: Any) -> Any:
    """keras.models.load_model, with the model's optimizer made distributed. `options` are DistributedOptimizer's."""
    objects = dict(custom_objects or {})
    objects.update({one.__name__: one for one in custom_optimizers or ()})
    model = keras.models.load_model(filepath, custom_objects=objects)
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, **options)
    return model
