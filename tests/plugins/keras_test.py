# SPDX-License-Identifier: Apache-2.0
"""kolopy.tensorflow under Keras: digits against one process with the same global batch, the optimizer's options, callbacks,
saved models, and XLA.

usage: kolo-run -np N python3 keras_test.py      N: 1, 2, or 4
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples" / "keras_digits"))

import keras
import numpy as np
import tensorflow as tf
from tensorflow_test import raises
from train import BATCH, digits, network

import kolopy.tensorflow as hvd

tf.get_logger().setLevel("ERROR")
warnings.filterwarnings("ignore", message=".*shuffle=True.*")
tests = []


def test(function):
    tests.append(function)
    return function


def dataset(train):
    """This rank's part of each global batch."""
    return tf.data.Dataset.from_tensor_slices(train).shard(hvd.size(), hvd.rank()).batch(BATCH // hvd.size())


def compiled(model, optimizer, **options):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"], **options)
    return model


def started(seed, model=network):
    keras.utils.set_random_seed(seed)
    return model()


def callbacks(*more):
    return [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(), *more]


def fitted(optimizer, train, epochs, model=network, more=(), **options):
    """By the ranks together, and by this process alone with the whole batches."""
    ours = compiled(started(hvd.rank(), model), hvd.DistributedOptimizer(optimizer(), **options))
    history = ours.fit(dataset(train), epochs=epochs, verbose=0, callbacks=callbacks(*more)).history
    alone = compiled(started(0, model), optimizer())
    reference = alone.fit(tf.data.Dataset.from_tensor_slices(train).batch(BATCH), epochs=epochs, verbose=0).history
    return ours, history, alone, reference


def same_weights(one, other, tolerance=1e-5):
    for a, b in zip(one.weights, other.weights):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=tolerance, err_msg=a.path)


@test
def digits_as_one_process():
    train, held_out = digits()
    ours, history, alone, reference = fitted(lambda: keras.optimizers.SGD(0.05, momentum=0.9), train, 15)
    np.testing.assert_allclose(history["loss"], reference["loss"], atol=1e-5)
    np.testing.assert_allclose(history["accuracy"], reference["accuracy"], atol=1e-6)
    same_weights(ours, alone)
    accuracies = [model.evaluate(*held_out, verbose=0)[1] for model in (ours, alone)]
    assert accuracies[0] == accuracies[1] and accuracies[0] > 0.93, accuracies
    if hvd.rank() == 0:
        difference = np.max(np.abs(np.subtract(history["loss"], reference["loss"])))
        print(f"  {accuracies[0]:.2%} of held-out digits; losses differ by {difference:.1e}", flush=True)


@test
def other_optimizers():
    train, _ = digits()
    for optimizer, tolerance in (
        (lambda: keras.optimizers.Adam(0.01), 1e-4),
        (lambda: keras.optimizers.AdamW(0.01, weight_decay=0.01, global_clipnorm=0.5), 1e-4),
        (lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 5, 0.9), use_ema=True), 1e-5),
    ):
        ours, history, alone, reference = fitted(optimizer, train, 2)
        np.testing.assert_allclose(history["loss"], reference["loss"], atol=tolerance)
        same_weights(ours, alone, 10 * tolerance)


@test
def options():
    train, _ = digits()
    sgd = lambda: keras.optimizers.SGD(0.05)  # noqa: E731
    for given in ({"gradient_predivide_factor": 2.0}, {"num_groups": 2}):
        ours, _, alone, _ = fitted(sgd, train, 1, **given)
        same_weights(ours, alone)
    ours, _, alone, _ = fitted(sgd, train, 1, compression=hvd.Compression.fp16)
    same_weights(ours, alone, 1e-3)
    raises(ValueError, lambda: hvd.DistributedOptimizer(hvd.DistributedOptimizer(sgd())), "distributed already")
    raises(TypeError, lambda: hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1)), "Keras 3")
    raises(ValueError, lambda: hvd.DistributedOptimizer(sgd(), backward_passes_per_step=0), "1 or more")


@test
def several_passes_a_step():
    rank, size = hvd.rank(), hvd.size()
    def seven_passes(averages, eager):
        variable, unused = keras.Variable([0.0, 0.0]), keras.Variable(1.0)
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=3,
                                             average_aggregated_gradients=averages)

        def call(gradient):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the gradient that is None
                optimizer.apply([gradient, None], [variable, unused])

        call = call if eager else tf.function(call)
        for number in range(7):
            call(tf.constant([1.0, float(rank)]))
            steps = (number + 1) // 3
            each = 1.0 if averages else 3.0
            np.testing.assert_allclose(variable.numpy(), [-each * steps, -each * steps * (size - 1) / 2], rtol=1e-6)
            assert int(optimizer.iterations) == steps
        assert float(unused) == 1.0

    for averages in (False, True):
        for eager in (False, True):
            seven_passes(averages, eager)
    train, _ = digits()
    ours = compiled(started(hvd.rank()), hvd.DistributedOptimizer(keras.optimizers.SGD(0.05), backward_passes_per_step=2,
                                                                  average_aggregated_gradients=True))
    smaller = tf.data.Dataset.from_tensor_slices(train).shard(size, rank).batch(BATCH // size // 2)
    ours.fit(smaller.take(20), verbose=0, callbacks=callbacks())
    alone = compiled(started(0), keras.optimizers.SGD(0.05))
    alone.fit(tf.data.Dataset.from_tensor_slices(train).batch(BATCH).take(10), verbose=0)
    same_weights(ours, alone)


@test
def embeddings():
    """Their gradients are tf.IndexedSlices."""
    words = np.random.default_rng(3).integers(0, 50, (256, 5))
    labels = words.sum(1) % 10

    def model():
        return keras.Sequential([keras.Input((5,)), keras.layers.Embedding(50, 8), keras.layers.Flatten(),
                                 keras.layers.Dense(10)])

    for given in ({}, {"sparse_as_dense": True}, {"num_groups": 1}):
        ours, history, alone, reference = fitted(lambda: keras.optimizers.SGD(0.5), (words, labels), 3, model, **given)
        np.testing.assert_allclose(history["loss"], reference["loss"], atol=1e-5)
        same_weights(ours, alone)


@test
def mixed_precision():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        train, _ = digits()
        scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05))
        model = compiled(started(hvd.rank()), hvd.DistributedOptimizer(scaled))
        assert model.optimizer is scaled
        losses = model.fit(dataset(train), epochs=3, verbose=0, callbacks=callbacks()).history["loss"]
        assert losses[-1] < losses[0], losses
        sums = hvd.allgather_object([float(np.sum(one.numpy())) for one in model.weights])
        assert all(one == sums[0] for one in sums)
        around = compiled(started(0), hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)))  # Keras puts a scale around it
        raises(ValueError, lambda: around.fit(dataset(train), verbose=0, callbacks=callbacks()), "LossScaleOptimizer")
    finally:
        keras.config.set_dtype_policy("float32")


@test
def two_networks_in_one_step():
    """As a GAN trains. The optimizers' names keep their gradients apart."""
    first, second = keras.Variable([0.0]), keras.Variable([0.0, 0.0])
    one, other = (hvd.DistributedOptimizer(keras.optimizers.SGD(1.0)) for _ in range(2))

    @tf.function
    def step(x):
        with tf.GradientTape() as a, tf.GradientTape() as b:
            loss_a, loss_b = tf.reduce_sum(first * x), tf.reduce_sum(second * 2.0 * x)
        one.apply(a.gradient(loss_a, [first.value]), [first])
        other.apply(b.gradient(loss_b, [second.value]), [second])

    step(tf.constant(float(hvd.rank())))
    mean = (hvd.size() - 1) / 2
    np.testing.assert_allclose(first.numpy(), [-mean])
    np.testing.assert_allclose(second.numpy(), [-2 * mean] * 2)


@keras.saving.register_keras_serializable("mine")
class Mine(keras.optimizers.SGD):
    pass


@test
def saved_models():
    train, _ = digits()
    for optimizer in (keras.optimizers.Adam(0.01), Mine(0.01)):
        model = compiled(started(hvd.rank()), hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2))
        model.fit(dataset(train), verbose=0, callbacks=callbacks())
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.keras")
            model.save(path)
            plain = keras.models.load_model(path)
            assert type(plain.optimizer) is type(optimizer).__mro__[2], type(plain.optimizer).__mro__
            assert int(plain.optimizer.iterations) == int(model.optimizer.iterations) == 5
            same_weights(plain, model, 0)
            ours = hvd.load_model(path)
            assert isinstance(ours.optimizer, type(plain.optimizer))
            assert int(ours.optimizer.iterations) == 5
            ours.fit(dataset(train), verbose=0, callbacks=callbacks())
            sums = hvd.allgather_object([float(np.sum(one.numpy())) for one in ours.weights])
            assert all(one == sums[0] for one in sums)
            if hvd.rank() == 0 and not isinstance(optimizer, Mine):  # where there is no Kolo
                code = ("import sys, keras; m = keras.models.load_model(sys.argv[1]); "
                        "assert type(m.optimizer) is keras.optimizers.Adam and int(m.optimizer.iterations) == 5; "
                        "assert not any('kolo' in name for name in sys.modules)")
                site = os.path.dirname(os.path.dirname(tf.__file__))
                subprocess.run([sys.executable, "-c", code, path], check=True, env={**os.environ, "PYTHONPATH": site})
        hvd.barrier()


@test
def learning_rates():
    rates = []

    class Note(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            rates.append(float(self.model.optimizer.learning_rate))

    x, y = np.zeros((8, 64), np.float32), np.zeros(8, np.int64)
    size = hvd.size()
    model = compiled(started(0), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 * size)))
    history = model.fit(x, y, batch_size=2, epochs=4, verbose=0, callbacks=callbacks(
        hvd.callbacks.LearningRateWarmupCallback(0.1 * size, warmup_epochs=2),
        hvd.callbacks.LearningRateScheduleCallback(0.1 * size, 0.5, start_epoch=3), Note())).history
    warm = [0.1 * (1 + (size - 1) * (i + 1) / 8) for i in range(8)]
    np.testing.assert_allclose(rates, warm + [0.1 * size] * 4 + [0.05 * size] * 4, rtol=1e-5)
    np.testing.assert_allclose(history["lr"], [rates[3], rates[7], 0.1 * size, 0.05 * size], rtol=1e-5)
    raises(NotImplementedError, lambda: hvd.callbacks.LearningRateWarmupCallback(0.1, momentum_correction=True), "Keras 3")


@test
def metrics():
    class Give(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["b"], logs["a"] = float(hvd.rank()), 2.0

    seen = []

    class See(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(dict(logs))

    x, y = np.zeros((4, 64), np.float32), np.zeros(4, np.int64)
    model = compiled(started(0), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    history = model.fit(x, y, validation_data=(x, y), epochs=2, verbose=0,
                        callbacks=[Give(), hvd.callbacks.MetricAverageCallback(), See()]).history
    assert history["b"] == [(hvd.size() - 1) / 2] * 2 and history["a"] == [2.0, 2.0]
    assert seen[0]["b"] == (hvd.size() - 1) / 2 and "val_loss" in seen[0]


@test
def weights_that_begin_later():
    """A model without an Input has no variables before its first batch."""
    def late():
        return keras.Sequential([keras.layers.Dense(4), keras.layers.Dropout(0.5), keras.layers.Dense(10)])

    train, _ = digits()
    model = compiled(started(hvd.rank(), late), hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    model.fit(dataset(train), verbose=0, callbacks=callbacks())
    sums = hvd.allgather_object([float(np.sum(one.numpy())) for one in [*model.weights, *model.optimizer.variables]])
    assert all(one == sums[0] for one in sums)


@test
def xla():
    """jit_compile="auto" may choose XLA, which knows no kernels but its own."""
    train, _ = digits()

    class Automatic(keras.Sequential):
        def _resolve_auto_jit_compile(self):  # as on a machine with a GPU, and in older releases of Keras
            return True

    def model():
        return Automatic(network().layers)

    chosen = compiled(started(0, model), hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)))
    assert chosen.jit_compile
    chosen.fit(dataset(train), verbose=0, callbacks=callbacks())
    assert not chosen.jit_compile
    without = compiled(started(0, model), hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)))
    raises(NotImplementedError, lambda: without.fit(dataset(train), verbose=0), "jit_compile=False")
    eager = compiled(started(0), hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)), run_eagerly=True)
    eager.fit(dataset(train).take(3), verbose=0, callbacks=callbacks())
    several = compiled(started(0), hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)), steps_per_execution=4)
    several.fit(dataset(train), verbose=0, callbacks=callbacks())


def main():
    hvd.init()
    wanted = sys.argv[1:]
    for one in tests:
        if wanted and one.__name__ not in wanted:
            continue
        start = time.time()
        one()
        if hvd.rank() == 0:
            print(f"passed: {one.__name__} ({time.time() - start:.1f} s)", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
