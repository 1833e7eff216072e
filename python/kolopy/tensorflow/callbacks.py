# SPDX-License-Identifier: Apache-2.0
"""Horovod's callbacks for `model.fit` of Keras 3.

A model whose fit has one of them is not compiled by XLA: Keras's jit_compile="auto" may choose XLA, which has no
kernels for Kolo's operations.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Union

import keras
import numpy as np

import kolopy
from kolopy.tensorflow import _ops, _optimizer
from kolopy.tensorflow._world import ProcessSet, global_process_set


class _Callback(keras.callbacks.Callback):  # type: ignore[misc]
    def set_model(self, model: Any) -> None:
        super().set_model(model)
        if getattr(model, "jit_compile", False):  # fit makes its function after this
            model.jit_compile = False
        optimizer = getattr(model, "optimizer", None)
        is_scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        if is_scaled and not _optimizer.is_distributed(optimizer) and _optimizer.inner_distributed(optimizer):
            raise ValueError(
                "a LossScaleOptimizer around a distributed optimizer leaves out a step on one rank that overflows, "
                "and the others wait for it: give model.compile hvd.DistributedOptimizer(keras.optimizers."
                "LossScaleOptimizer(optimizer))"
            )

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        model, optimizer = self.model, self.model.optimizer
        steps_as_keras = type(model).train_step is keras.Model.train_step  # a step of the user's may have a tape
        if optimizer is not None and steps_as_keras and not _optimizer.reduces_everything(optimizer):
            raise ValueError(
                f"the model's optimizer {optimizer.name!r} is not distributed, so each rank would train a model of its "
                "own: give model.compile hvd.DistributedOptimizer(optimizer). (docs/tensorflow.md says which copies of a "
                "distributed optimizer are distributed)"
            )


class BroadcastGlobalVariablesCallback(_Callback):
    """Copies rank `root_rank`'s weights and optimizer to all ranks when the training begins; those that do not exist
    then, after the first batch. Seeds of random layers stay each rank's own."""

    def __init__(self, root_rank: int, device: str = "", process_set: ProcessSet = global_process_set) -> None:
        super().__init__()
        self._root, self._set = root_rank, process_set
        self._is_done = False

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        self._is_done = False
        optimizer = self.model.optimizer
        if self.model.built and optimizer is not None and not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        # Every rank does the same: a rank that has loaded a checkpoint may have variables that others still lack.
        if all(kolopy.allgather_object(bool(self.model.built), group=self._set.group())):
            self._broadcast()
        elif optimizer is not None:
            _optimizer.await_broadcast(optimizer)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self._is_done:
            self._broadcast()

    def _broadcast(self) -> None:
        variables = list(self.model.weights)
        if self.model.optimizer is not None:
            variables += _optimizer.replicated_variables(self.model.optimizer)
        _ops.broadcast_variables(variables, self._root, self._set)
        self._is_done = True


class MetricAverageCallback(_Callback):
    """Averages the metrics of an epoch over the ranks. Put it before callbacks that read them."""

    def __init__(self, device: str = "", process_set: ProcessSet = global_process_set) -> None:
        super().__init__()
        self._set = process_set

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if not logs:
            return
        names = sorted(logs)
        values = np.array([float(logs[name]) for name in names], np.float64)
        kolopy.allreduce(values, op="average", name="MetricAverageCallback." + ".".join(names), group=self._set.group())
        logs.update({name: float(value) for name, value in zip(names, values)})


class LearningRateScheduleCallback(_Callback):
    """Sets the learning rate to initial_lr * multiplier from start_epoch until before end_epoch. `multiplier`: a
    number, or a function of the epoch; with staircase=False it is called before each batch, with
    fractions of an epoch."""

    def __init__(
        self,
        initial_lr: float,
        multiplier: "Union[float, Callable[[float], float]]",
        start_epoch: int = 0,
        end_epoch: Optional[int] = None,
        staircase: bool = True,
        momentum_correction: bool = False,
        steps_per_epoch: Optional[int] = None,
    ) -> None:
        super().__init__()
        if momentum_correction:
            raise NotImplementedError(
                "momentum_correction is not there: Keras 3 compiles the momentum into the training step as a constant"
            )
        if initial_lr is None:
            raise ValueError("initial_lr is None: give the learning rate that the multiplier multiplies")
        self._initial_lr = float(initial_lr)
        self._start, self._end, self._staircase = start_epoch, end_epoch, staircase
        self._steps = steps_per_epoch
        self._epoch = 0
        if callable(multiplier):
            self._multiplier: "Callable[[float], float]" = multiplier
        else:
            self._staircase, number = True, float(multiplier)
            self._multiplier = lambda epoch: number

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        if self._staircase or self._steps is not None:
            return
        self._steps = (self.params or {}).get("steps")
        if not self._steps:
            raise ValueError("the number of batches of an epoch is not known: give steps_per_epoch to the callback")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch
        if self._staircase:
            self._set_rate(epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if not self._staircase:
            assert self._steps is not None
            self._set_rate(self._epoch + batch / self._steps)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["lr"] = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))

    def _set_rate(self, epoch: float) -> None:
        if epoch < self._start or (self._end is not None and epoch >= self._end):
            return
        self.model.optimizer.learning_rate = self._initial_lr * self._multiplier(epoch)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from initial_lr / size to initial_lr over the first epochs, batch by batch. `initial_lr`
    is the rate after that: the one of one rank times hvd.size()."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = False,
        steps_per_epoch: Optional[int] = None,
        verbose: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        def multiplier(epoch: float) -> float:
            size = process_set.size()
            # Counted to the end of the batch, so that the last one has the whole rate.
            passed = epoch + 1.0 / (self._steps or 1)
            return 1.0 / size * (passed * (size - 1) / warmup_epochs + 1)

        super().__init__(
            initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self._warmup_epochs, self._verbose = warmup_epochs, verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self._verbose and epoch == self._warmup_epochs - 1:
            rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
            print(f"Epoch {epoch + 1}: the learning rate is {rate:g} after the warm-up", flush=True)


__all__ = [
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]
