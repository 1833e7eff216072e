# SPDX-License-Identifier: Apache-2.0
"""kolopy.tensorflow under Keras: digits against one process with the same global batch, the optimizer's options, callbacks,
saved models, and XLA.

usage: kolo-run -np N python3 keras_test.py      N: 1, 2, or 4
"""

import copy
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import time
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples" / "keras_digits"))

import keras
import kolopy
import numpy as np
import tensorflow as tf
from tensorflow_test import raises
from train import BATCH, digits, network

import kolopy.tensorflow as hvd
from kolopy.tensorflow._optimizer import is_distributed

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
            loaded = keras.models.load_model(path)
            assert is_distributed(loaded.optimizer) != isinstance(optimizer, Mine)
            assert int(loaded.optimizer.iterations) == int(model.optimizer.iterations) == 5
            same_weights(loaded, model, 0)
            ours = hvd.load_model(path)
            assert is_distributed(ours.optimizer)
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


def sgd(name=None):
    return keras.optimizers.SGD(0.1, momentum=0.9, name=name)


def stepped(optimizer):
    """What a variable is after one step with gradients that differ by rank."""
    variable = keras.Variable([0.0])
    optimizer.build([variable])
    optimizer.apply([tf.constant([float(hvd.rank())])], [variable])
    return float(variable.numpy()[0])


@test
def copies_stay_distributed():
    """A copy that was a plain optimizer trained a model of its own on each rank, in silence."""
    average, total = (np.float32(-0.1 * number) for number in ((hvd.size() - 1) / 2, hvd.size() * (hvd.size() - 1) / 2))
    ways = {
        "from_config": lambda one: type(one).from_config(one.get_config()),
        "deepcopy": copy.deepcopy,
        "copy": copy.copy,
        "pickle": lambda one: pickle.loads(pickle.dumps(one)),
        "serialize": lambda one: keras.optimizers.deserialize(keras.optimizers.serialize(one)),
        "saving": lambda one: keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(one)),
        "get": lambda one: keras.optimizers.get(keras.optimizers.serialize(one)),
    }
    for options, expected in (({}, average), ({"op": hvd.Sum}, total)):
        for name, way in ways.items():
            ours = hvd.DistributedOptimizer(sgd(), **options)
            made = way(way(ours))
            assert is_distributed(made) and made is not ours, name
            np.testing.assert_allclose(stepped(made), expected, rtol=1e-6, err_msg=name)
            if name in ("from_config", "deepcopy", "copy", "pickle"):  # not by the class's name: also of one's own class
                own = way(hvd.DistributedOptimizer(Mine(0.1), **options))
                assert isinstance(own, Mine) and is_distributed(own), name
                np.testing.assert_allclose(stepped(own), expected, rtol=1e-6, err_msg=name)
            again = hvd.DistributedOptimizer(way(ours), op=hvd.Sum)  # a copy takes other options
            np.testing.assert_allclose(stepped(again), total, rtol=1e-6, err_msg=name)
    scaled = hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(sgd(), initial_scale=1.0))
    for name, way in ways.items():
        np.testing.assert_allclose(stepped(way(scaled)), average, rtol=1e-6, err_msg=name)
    part = hvd.add_process_set([0])
    limited = copy.deepcopy(hvd.DistributedOptimizer(sgd(), process_set=part))
    raises(TypeError, lambda: pickle.dumps(limited), "ProcessSet([0]) belongs to this process")
    if part.included():
        assert stepped(limited) == 0
    hvd.remove_process_set(part)


@test
def copied_models_train_alike():
    train, _ = digits()
    model = compiled(started(0), hvd.DistributedOptimizer(sgd()))

    def compiled_again():
        other = keras.models.clone_model(model)
        other.set_weights(model.get_weights())
        other.compile_from_config(model.get_compile_config())
        return other

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        copies = [compiled_again(), keras.models.load_model(path), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]
        for one in copies:
            one.fit(dataset(train).take(3), verbose=0)  # without any callback
            sums = hvd.allgather_object([float(np.sum(weight.numpy())) for weight in one.weights])
            assert all(its == sums[0] for its in sums)
            same_weights(one, copies[0], 0)


@test
def plain_optimizers_are_refused():
    """By each callback, before the first batch."""
    train, _ = digits()
    given = hvd.DistributedOptimizer(Mine(0.1))
    forgot = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(given))
    for optimizer in (sgd("forgot"), forgot, keras.optimizers.LossScaleOptimizer(sgd())):
        for callback in callbacks():
            model = compiled(started(0), optimizer)
            before = model.get_weights()
            error = raises(ValueError, lambda: model.fit(dataset(train), verbose=0, callbacks=[callback]))
            assert str(error).startswith(f"the model's optimizer {optimizer.name!r} is not distributed, so each rank would "
                                         "train a model of its own: give model.compile hvd.DistributedOptimizer(optimizer)")
            assert all(np.array_equal(one, other) for one, other in zip(before, model.get_weights()))

    class OwnStep(keras.Sequential):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True))
            gradients = hvd.DistributedGradientTape(tape).gradient(loss, self.trainable_variables)
            self.optimizer.apply(gradients, self.trainable_variables)
            return {"loss": loss}

    own = OwnStep(started(0).layers)
    own.compile(sgd(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    own.fit(dataset(train).take(2), verbose=0, callbacks=callbacks())
    ours = compiled(started(0), hvd.DistributedOptimizer(sgd()))
    ours.fit(dataset(train).take(2), verbose=0, callbacks=callbacks())
    same_weights(own, ours, 0)
    plain = compiled(started(0), sgd())
    plain.evaluate(*(part[:64] for part in train), verbose=0, callbacks=callbacks())  # reads only


def hold(size):
    return {2: "ranks 0 and 1 hold", 4: "ranks 0-3 hold"}.get(size)


@test
def unequal_ranks_are_told():
    """Before the first step, if no broadcast has made them alike."""
    rank, size = hvd.rank(), hvd.size()
    if size == 1:
        return
    train, _ = digits()
    several = {"backward_passes_per_step": 2}
    for options, eagerly in (({}, False), ({}, True), (several, False)):
        model = compiled(started(rank), hvd.DistributedOptimizer(sgd("mine"), **options), run_eagerly=eagerly)
        before = model.get_weights()
        error = raises(tf.errors.InvalidArgumentError, lambda: model.fit(dataset(train), verbose=0))
        first = f"mine/0/{hvd.broadcast_object(model.weights[0].path)}"
        expected = (f'parameter "{first}" is not the same on all ranks before the first step: {hold(size)} different '
                    "values; 1 more parameter differs. Give all ranks the values of one")
        assert expected in str(error), str(error)
        assert all(np.array_equal(one, other) for one, other in zip(before, model.get_weights()))
    state = hvd.DistributedOptimizer(sgd("state"))  # of the optimizer
    variable = keras.Variable([0.0], name="weight")
    state.build([variable])
    state.momentums[0].assign([float(rank)])
    for call in (lambda: state.apply([tf.constant([1.0])], [variable]), lambda: compiled_step(state, variable)):
        raises(tf.errors.InvalidArgumentError, call, 'parameter "state/weight_momentum" is not the same on all ranks', "before the first step")
        state = hvd.DistributedOptimizer(copy.copy(state))
        state.build([variable])
        state.momentums[0].assign([float(rank)])
    for _ in range(2):  # as often as it is tried
        raises(tf.errors.InvalidArgumentError, lambda: state.apply([tf.constant([1.0])], [variable]), "before the first step")
    shape = keras.Variable(np.zeros(3 if rank == 0 else 4, np.float32), name="uneven")
    error = raises(kolopy.MismatchError, lambda: hvd.DistributedOptimizer(sgd()).apply([tf.zeros(shape.shape)], [shape]))
    assert str(error) == ('DistributedOptimizer: rank 0 has the variable "uneven" of float32 [3] at place 0, and rank 1 '
                          '"uneven" of float32 [4]: all ranks need the same model, optimizer and options'), str(error)
    uneven = hvd.DistributedOptimizer(sgd(), op=hvd.Sum if rank == 0 else hvd.Average)
    error = raises(kolopy.MismatchError, lambda: uneven.apply([tf.zeros([1])], [variable]))
    assert str(error) == ("DistributedOptimizer: rank 0 has the options op=Sum, and rank 1 the options of default: all "
                          "ranks need the same model, optimizer and options"), str(error)


def compiled_step(optimizer, variable):
    tf.function(lambda: optimizer.apply([tf.constant([1.0])], [variable]))()


@test
def ranks_that_drift_apart_are_told():
    """After every N-th step of KOLO_CHECK_REPLICAS."""
    rank, size = hvd.rank(), hvd.size()
    if size == 1:
        return

    def steps(count, passes, traced):
        """How many calls are made until an error, when the first has made ranks differ."""
        variable = keras.Variable([0.0], name="weight")
        optimizer = hvd.DistributedOptimizer(sgd("mine"), backward_passes_per_step=passes)

        def call():
            optimizer.apply([tf.constant([1.0])], [variable])

        call = tf.function(call) if traced else call
        for number in range(1, count + 1):
            try:
                call()
            except tf.errors.InvalidArgumentError as error:
                after = f"is not the same on all ranks after step {number // passes} (KOLO_CHECK_REPLICAS)"
                after = f'parameter "mine/0/weight" {after}'
                assert after in str(error), str(error)
                return number
            if number == 1:
                variable.assign([float(rank)])
        return None

    settings = {"2": {1: 2, 2: 4}, "3,-*seldom*": {1: 3, 2: 6}, "first": {}, "2,-mine/*": {}, "off": {}}
    for setting, found in settings.items():
        hvd.shutdown()
        hvd.init(check_replicas=setting)
        for passes in (1, 2):
            for traced in (False, True):
                assert steps(7, passes, traced) == found.get(passes), (setting, passes, traced)
        variable = keras.Variable([float(rank)], name="weight")
        unequal = lambda: hvd.DistributedOptimizer(sgd("mine")).apply([tf.ones([1])], [variable])  # noqa: E731
        if "-mine" in setting or setting == "off":
            unequal()
        else:
            raises(tf.errors.InvalidArgumentError, unequal, 'parameter "mine/0/weight"', "before the first step")
    hvd.shutdown()
    hvd.init()


@test
def seeds_are_found_by_what_they_are():
    """A layer whose name holds "seed" kept its own optimizer state on each rank."""
    rank = hvd.rank()

    class Noisy(keras.optimizers.SGD):
        def __init__(self, *arguments, **keywords):
            super().__init__(*arguments, **keywords)
            self.noise = keras.random.SeedGenerator(rank)
            self._track_variable(self.noise.state)

    for optimizer in (Noisy(0.1, momentum=0.9), keras.optimizers.LossScaleOptimizer(Noisy(0.1, momentum=0.9))):
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10, name="seed_state")])
        compiled(model, hvd.DistributedOptimizer(optimizer))
        optimizer.build(model.trainable_variables)
        noisy = getattr(optimizer, "inner_optimizer", optimizer)
        for one in noisy.momentums:
            one.assign(np.full(one.shape, rank + 1.0))
        own = noisy.noise.state.numpy()
        callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
        callback.set_model(model)
        callback.on_train_begin()
        assert all(np.all(one.numpy() == 1.0) for one in noisy.momentums)
        assert np.array_equal(noisy.noise.state.numpy(), own)
        assert len(set(hvd.allgather_object(tuple(own.tolist())))) == hvd.size()
        train, _ = digits()
        model.fit(dataset(train).take(1), verbose=0)  # the seeds differ, and no comparison minds


@test
def nothing_is_reduced_twice():
    """Each gradient would be multiplied by the number of ranks once more."""
    rank, size = hvd.rank(), hvd.size()
    total = {"op": hvd.Sum}
    inner = hvd.DistributedOptimizer(sgd("inner"), **total)
    for outer in (keras.optimizers.LossScaleOptimizer(inner, name="outer"),
                  keras.optimizers.LossScaleOptimizer(keras.optimizers.LossScaleOptimizer(inner), name="outer")):
        error = raises(ValueError, lambda: hvd.DistributedOptimizer(outer, **total))
        assert str(error) == ("the optimizer 'inner', by which 'outer' steps, is distributed already: gradients would be "
                              "reduced twice. Give hvd.DistributedOptimizer the outer one alone")
    plain = sgd("inner")
    outer = hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(plain, initial_scale=1.0, name="outer"), **total)
    hvd.DistributedOptimizer(plain, **total)  # afterwards
    variable = keras.Variable([0.0])
    for call in (lambda: outer.apply([tf.ones([1])], [variable]), tf.function(lambda: outer.apply([tf.ones([1])], [variable]))):
        error = raises(ValueError, call, "the optimizer 'inner' and 'outer', which steps by it, are both distributed: "
                       "gradients would be reduced twice. Give hvd.DistributedOptimizer the outer one alone")

    def clipped(gradients):
        return tf.clip_by_global_norm([one * 0.5 for one in gradients], 1.0)[0]

    def train(optimizer, change):
        with tf.GradientTape() as tape:
            loss = variable * (rank + 1.0)
        gradients = hvd.DistributedGradientTape(tape, **total).gradient(loss, [variable.value])
        optimizer.apply(change(gradients), [variable])

    sentence = ("these gradients are of a DistributedGradientTape, and a distributed optimizer would reduce them again: use "
                "one of the two")
    variable.assign([0.0])
    for change, traced in ((list, False), (list, True), (clipped, True)):
        step = lambda: train(hvd.DistributedOptimizer(sgd(), **total), change)  # noqa: E731
        raises(ValueError, tf.function(step) if traced else step, sentence)
    optimizer = keras.optimizers.SGD(1.0)
    tf.function(lambda: train(optimizer, list))()
    assert float(variable.numpy()[0]) == -size * (size + 1) / 2


@test
def resumes_as_horovod_does():
    """Rank 0 loads the model, and the others build it anew, under other names."""
    rank, size = hvd.rank(), hvd.size()
    train, _ = digits()
    whole = compiled(started(0), hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    whole.fit(dataset(train), epochs=3, verbose=0, callbacks=callbacks())
    first = compiled(started(0), hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    first.fit(dataset(train), epochs=1, verbose=0, callbacks=callbacks())
    with tempfile.TemporaryDirectory() as folder:
        path = hvd.broadcast_object(os.path.join(folder, "model.keras"))
        if rank == 0:
            first.save(path)
        for options in ({}, {"backward_passes_per_step": 1, "compression": hvd.Compression.none}):
            epoch = hvd.broadcast_object(1 if rank == 0 else None)
            if rank == 0:
                model = hvd.load_model(path, **options)
            else:
                for _ in range(rank):  # Keras counts layers and optimizers
                    started(7), keras.optimizers.Adam()
                model = compiled(started(rank + 5), hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), **options))
            paths = hvd.allgather_object([one.path for one in model.trainable_variables])
            assert size == 1 or paths[0] != paths[1]
            model.fit(dataset(train), initial_epoch=epoch, epochs=3, verbose=0, callbacks=callbacks())
            same_weights(model, whole, 0)
            assert int(model.optimizer.iterations) == 33
        if size > 1:
            model = compiled(started(0), hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), op=hvd.Sum))
            model = hvd.load_model(path) if rank == 0 else model
            raises(kolopy.MismatchError, lambda: model.fit(dataset(train), verbose=0, callbacks=callbacks()),
                   "DistributedOptimizer: rank 0 has the options of default, and rank 1 the options op=Sum: all ranks need "
                   "the same model, optimizer and options")
        hvd.barrier()


@test
def layers_that_thaw_and_freeze():
    frozen = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="below", kernel_initializer="ones"),
                               keras.layers.Dense(1, name="above", kernel_initializer="ones")])
    x, y = np.ones((4, 3), np.float32), np.zeros((4, 1), np.float32)
    optimizer = hvd.DistributedOptimizer(sgd(), backward_passes_per_step=2)
    frozen.layers[0].trainable = False
    frozen.compile(optimizer, "mse")
    frozen.fit(x, y, batch_size=1, verbose=0)
    frozen.layers[0].trainable = True
    frozen.compile(optimizer, "mse")
    raises(ValueError, lambda: frozen.fit(x, y, batch_size=1, verbose=0),
           f"the optimizer was made for 2 variables, and {frozen.name}/below/kernel is not one of them: after a layer was thawed, compile "
           "the model with a new optimizer")
    a, b = keras.Variable([0.0]), keras.Variable([0.0])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    optimizer.apply([tf.ones([1])] * 2, [a, b])  # b is frozen amid a step
    optimizer.apply([tf.ones([1])], [a])
    assert [float(one.numpy()[0]) for one in (a, b)] == [-2.0, 0.0]
    for _ in range(2):
        optimizer.apply([tf.ones([1])] * 2, [a, b])
    assert [float(one.numpy()[0]) for one in (a, b)] == [-4.0, -2.0]  # nothing of that was left


OPTIMIZERS = {
    "SGD": lambda: keras.optimizers.SGD(0.1),
    "SGD, momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "SGD, nesterov": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda: keras.optimizers.Adam(0.1),
    "Adam, amsgrad": lambda: keras.optimizers.Adam(0.1, amsgrad=True, global_clipnorm=1.0),
    "Adam, averages": lambda: keras.optimizers.Adam(0.1, use_ema=True, ema_overwrite_frequency=3),
    "AdamW": lambda: keras.optimizers.AdamW(0.1, weight_decay=0.01),
    "Adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "Adadelta": lambda: keras.optimizers.Adadelta(0.1),
    "RMSprop": lambda: keras.optimizers.RMSprop(0.1, momentum=0.9, centered=True),
    "Adamax": lambda: keras.optimizers.Adamax(0.1),
    "Nadam": lambda: keras.optimizers.Nadam(0.1),
    "Ftrl": lambda: keras.optimizers.Ftrl(0.1),
    "Lion": lambda: keras.optimizers.Lion(0.1),
    "Adafactor": lambda: keras.optimizers.Adafactor(0.1),
    "a schedule": lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5), momentum=0.9),
    "LossScaleOptimizer": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.1), dynamic_growth_steps=3),
}


def readers(folder):
    """What reads a model and its optimizer, by name."""
    arrays = lambda model: {  # noqa: E731
        f"{i}": one.numpy() for i, one in enumerate([*model.weights, *model.optimizer.variables])}
    return {
        "get_config": lambda model: model.optimizer.get_config(),
        "serialize": lambda model: keras.optimizers.serialize(model.optimizer),
        "get_compile_config": lambda model: model.get_compile_config(),
        "save_own_variables": lambda model: model.optimizer.save_own_variables({}),
        "model.save": lambda model: model.save(os.path.join(folder, "read.keras")),
        "save_weights": lambda model: model.save_weights(os.path.join(folder, "read.weights.h5")),
        "evaluate": lambda model: model.evaluate(np.ones((2, 3), np.float32), np.ones((2, 2), np.float32), verbose=0),
        "check_replicas": lambda model: kolopy.check_replicas(arrays(model)),
        "variables": lambda model: [one.numpy() for one in model.optimizer.variables],
    }


@test
def reading_changes_nothing():
    """The bits of ten steps, with and without each way to read after each step; and loaded in the middle."""
    rank = hvd.rank()
    data = np.random.default_rng(rank).normal(size=(10, 4, 3)).astype(np.float32)

    def begun(make, **options):
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, "tanh")])
        model.compile(hvd.DistributedOptimizer(make(), **options), "mse", run_eagerly=True)
        model.optimizer.build(model.trainable_variables)
        return model, stepping(model)

    def stepping(model):
        @tf.function
        def step(rows):
            with tf.GradientTape() as tape:
                loss = model.optimizer.scale_loss(tf.reduce_mean(tf.square(model(rows, training=True) - 0.5)))
            gradients = tape.gradient(loss, [one.value for one in model.trainable_variables])
            model.optimizer.apply(gradients, model.trainable_variables)

        return step

    def variables(model):
        return [*model.weights, *model.optimizer.variables]

    def bits(model):
        return [one.numpy().tobytes() for one in variables(model)]

    def trained(model, step, read=lambda model: None):
        for rows in data:
            step(rows)
            read(model)
        return bits(model)

    def loaded(make, path):
        model, step = begun(make)
        for number, rows in enumerate(data):
            if number == 5:
                model.save(path)
                model = keras.models.load_model(path) if rank % 2 == 0 else hvd.load_model(path)
                step = stepping(model)
            step(rows)
        return bits(model)

    warnings.filterwarnings("ignore", message="Skipping variable loading")  # of a copy, whose state begins anew
    tried, differ = 0, []

    def compare(name, ways, make, **options):
        """Returns what ten steps give that nothing reads."""
        nonlocal tried
        model, step = begun(make, **options)
        beginning = [one.numpy() for one in variables(model)]
        alone = trained(model, step)
        for how, read in ways.items():
            for one, value in zip(variables(model), beginning):
                one.assign(value)
            tried += 1
            if trained(model, step, read) != alone:
                differ.append(f"{name}: {how}")
        return alone

    with tempfile.TemporaryDirectory() as folder:
        ways = readers(folder)
        for name, make in list(OPTIMIZERS.items())[: None if hvd.size() <= 2 else 3]:
            alone = compare(name, ways, make)
            tried += 1
            if loaded(make, os.path.join(folder, "middle.keras")) != alone:
                differ.append(f"{name}: loaded")
        ways["deepcopy"] = lambda model: copy.deepcopy(model.optimizer)
        ways["pickle"] = lambda model: pickle.dumps(model.optimizer)
        compare("two passes", ways, OPTIMIZERS["Adam"], backward_passes_per_step=2)  # amid a step, too
    assert not differ, differ
    if rank == 0:
        print(f"  combinations tried: {tried}; whose bits differ: {len(differ)}", flush=True)


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
