# SPDX-License-Identifier: Apache-2.0
"""The same as train.py, with a training loop of its own.

usage: kolo-run -np 4 python3 tape.py [--epochs N]
"""

import argparse

import keras
import tensorflow as tf
from train import BATCH, digits, network

import kolopy.tensorflow as hvd


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    arguments = parser.parse_args()

    hvd.init()
    train, test = digits()
    mine = tf.data.Dataset.from_tensor_slices(train).shard(hvd.size(), hvd.rank()).batch(BATCH // hvd.size())

    keras.utils.set_random_seed(hvd.rank())
    model = network()
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    hvd.broadcast_variables(model.weights, root_rank=0)

    @tf.function
    def step(pixels, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(pixels, training=True))
        tape = hvd.DistributedGradientTape(tape)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return hvd.allreduce(loss)

    for epoch in range(arguments.epochs):
        for pixels, labels in mine:
            loss = step(pixels, labels)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss {float(loss):.4f}", flush=True)

    right = tf.equal(tf.argmax(model(test[0]), 1), test[1])
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks: {tf.reduce_mean(tf.cast(right, tf.float32)):.2%} of the test images recognised")
    hvd.shutdown()


if __name__ == "__main__":
    main()
