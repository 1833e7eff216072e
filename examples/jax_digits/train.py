#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JAX as pip installs it, on several processes: each has its rows of a batch, and JAX adds the gradients up over Kolo.

    kolo-run -np 4 python3 examples/jax_digits/train.py
"""

import hashlib
from pathlib import Path

import kolopy.jax as kj  # before jax

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import NamedSharding, PartitionSpec

import kolopy

DIGITS = Path(__file__).resolve().parent.parent / "data" / "digits.csv"
BATCH, EPOCHS, RATE = 96, 20, 0.2


def logits(params, x):
    return jnp.tanh(x @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]


def loss(params, x, y):
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits(params, x)) * jax.nn.one_hot(y, 10), axis=1))


@jax.jit
def step(params, x, y):
    gradients = jax.grad(loss)(params, x, y)  # x is sharded, params are not: JAX adds an all-reduce for each gradient
    return jax.tree.map(lambda p, g: p - RATE * g, params, gradients)


def main() -> None:
    kj.init()
    mesh = jax.sharding.Mesh(jax.devices(), ("data",))
    kj.prepare(mesh)
    everywhere = NamedSharding(mesh, PartitionSpec())
    by_rows = NamedSharding(mesh, PartitionSpec("data"))

    rows = numpy.loadtxt(DIGITS, delimiter=",")
    x, y = (rows[:, :64] / 16).astype(numpy.float32), rows[:, 64].astype(numpy.int32)
    training = len(rows) * 4 // 5

    random = numpy.random.default_rng(1)
    start = {
        "w1": random.normal(0, 0.1, (64, 32)).astype(numpy.float32),
        "b1": numpy.zeros(32, numpy.float32),
        "w2": random.normal(0, 0.1, (32, 10)).astype(numpy.float32),
        "b2": numpy.zeros(10, numpy.float32),
    }
    params = jax.tree.map(lambda p: jax.make_array_from_callback(p.shape, everywhere, lambda at, p=p: p[at]), start)
    for _ in range(EPOCHS):
        order = random.permutation(training)
        for first in range(0, training - BATCH + 1, BATCH):
            batch = order[first : first + BATCH]
            params = step(
                params,
                jax.make_array_from_callback((BATCH, 64), by_rows, lambda at, batch=batch: x[batch][at]),
                jax.make_array_from_callback((BATCH,), by_rows, lambda at, batch=batch: y[batch][at]),
            )

    mine = jax.tree.map(lambda p: numpy.asarray(p.addressable_data(0)), params)
    bits = hashlib.sha256(b"".join(p.tobytes() for p in jax.tree.leaves(mine))).hexdigest()
    models = kolopy.allgather_object(bits)
    right = numpy.mean(numpy.argmax(logits(mine, x[training:]), axis=1) == y[training:])
    if kj.rank() == 0:
        same = "the same model" if len(set(models)) == 1 else "DIFFERENT MODELS"
        print(f"{kj.size()} ranks, {same} on all; {100 * right:.1f} % of the test images are right")


if __name__ == "__main__":
    main()
