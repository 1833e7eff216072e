# SPDX-License-Identifier: Apache-2.0
"""Keras trains a small network on handwritten digits (examples/data), on as many ranks as the launcher starts.

usage: kolo-run -np 4 python3 train.py [--epochs N]

All ranks together take 128 images a step, so that the result does not depend on their number.
"""

import argparse
import pathlib

import keras
import numpy as np
import tensorflow as tf

import kolopy.tensorflow as hvd

BATCH = 128  # over all ranks


def digits():
    """Pixels from 0 to 1 and labels, to train with and to test with."""
    rows = np.loadtxt(pathlib.Path(__file__).parents[1] / "data" / "digits.csv", np.float32, delimiter=",")
    np.random.default_rng(1797).shuffle(rows)  # as all ranks do
    pixels, labels = rows[:, :64] / 16, rows[:, 64].astype(np.int64)
    return (pixels[:1408], labels[:1408]), (pixels[1408:], labels[1408:])


def network():
    return keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    arguments = parser.parse_args()

    hvd.init()
    if BATCH % hvd.size() != 0:
        raise SystemExit(f"{BATCH} images a step cannot be divided among {hvd.size()} ranks")
    train, test = digits()
    mine = tf.data.Dataset.from_tensor_slices(train).shard(hvd.size(), hvd.rank()).batch(BATCH // hvd.size())

    keras.utils.set_random_seed(hvd.rank())  # every rank starts differently, until rank 0's weights are broadcast
    model = network()
    model.compile(
        optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        mine,
        epochs=arguments.epochs,
        verbose=2 if hvd.rank() == 0 else 0,
        callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()],
    )
    accuracy = model.evaluate(*test, verbose=0)[1]
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks: {accuracy:.2%} of the test images recognised")
        model.save("digits.keras")  # loads where there is no Kolo
    hvd.shutdown()


if __name__ == "__main__":
    main()
