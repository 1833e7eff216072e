#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small network to read handwritten digits, with numpy, on as many ranks as there are:

    python3 train.py                      one rank
    kolo-run -np 4 python3 train.py       four processes of this machine

What is Kolo's in it stands out by its `kolo.`. The all-reduce of a gradient is started when the backward pass has left
it, and runs while the pass goes on. Any number of ranks that divides 32 trains alike.
"""

import argparse
import hashlib
import pathlib

import kolopy as kolo
import numpy as np

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "digits.csv"
BATCH = 32  # images a step, over all ranks
HELD_OUT = 360
WIDTHS = (64, 64, 32, 10)


class Network:
    """Layers of ReLU. `values` and `gradients` are arrays by name."""

    def __init__(self, seed):
        random = np.random.default_rng(seed)
        self.values = {}
        for i, (inputs, outputs) in enumerate(zip(WIDTHS, WIDTHS[1:])):
            limit = (6 / inputs) ** 0.5
            self.values[f"layer{i}.weight"] = random.uniform(-limit, limit, (inputs, outputs)).astype(np.float32)
            self.values[f"layer{i}.bias"] = np.zeros(outputs, np.float32)
        self.arena = kolo.GradientArena.like(self.values)  # gradients are reduced where they lie
        self.gradients = self.arena.tensors

    def forward(self, images):
        """The activations of all layers; the last are the logits."""
        activations = [images]
        for i in range(len(WIDTHS) - 1):
            out = activations[-1] @ self.values[f"layer{i}.weight"] + self.values[f"layer{i}.bias"]
            activations.append(np.maximum(out, 0) if i < len(WIDTHS) - 2 else out)
        return activations

    def backward(self, activations, labels, ready):
        """Leaves the gradients, and calls ready(name) when one is there. Returns the mean loss."""
        logits = activations[-1]
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        softmax = exponentials / exponentials.sum(axis=1, keepdims=True)
        loss = -np.log(softmax[np.arange(len(labels)), labels]).mean()
        error = softmax
        error[np.arange(len(labels)), labels] -= 1
        error /= len(labels)
        for i in reversed(range(len(WIDTHS) - 1)):
            self.gradients[f"layer{i}.bias"][:] = error.sum(axis=0)
            ready(f"layer{i}.bias")
            np.matmul(activations[i].T, error, out=self.gradients[f"layer{i}.weight"])
            ready(f"layer{i}.weight")
            if i > 0:
                error = (error @ self.values[f"layer{i}.weight"].T) * (activations[i] > 0)
        return float(loss)


class Sgd:
    def __init__(self, network, learning_rate, momentum=0.9):
        self.network, self.learning_rate, self.momentum = network, learning_rate, momentum
        self.velocity = {name: np.zeros_like(value) for name, value in network.values.items()}

    def step(self):
        for name, value in self.network.values.items():
            velocity = self.velocity[name]
            velocity *= self.momentum
            velocity += self.network.gradients[name]
            value -= self.learning_rate * velocity


def run_epoch(network, optimizer, images, labels, epoch):
    """One pass over the training images; each rank takes its part of every batch. Returns the mean loss."""
    rank, size = kolo.rank(), kolo.size()
    order = np.random.default_rng(epoch).permutation(len(images))  # the same on all ranks
    steps, mine = len(images) // BATCH, BATCH // size
    total = 0.0
    for step in range(steps):
        chosen = order[step * BATCH + rank * mine : step * BATCH + (rank + 1) * mine]
        handles = []
        total += network.backward(
            network.forward(images[chosen]),
            labels[chosen],
            lambda name: handles.append(kolo.allreduce_async(network.gradients[name], "average", name=name)),
        )
        kolo.wait_all(handles)
        optimizer.step()
        kolo.end_step()
    return kolo.allreduce(total, "average") / steps


def accuracy(network, images, labels):
    """The share that the network gets right; every rank looks at its part."""
    mine = slice(kolo.rank(), None, kolo.size())
    correct = int((network.forward(images[mine])[-1].argmax(axis=1) == labels[mine]).sum())
    return kolo.allreduce(correct) / len(images)


def main():
    parser = argparse.ArgumentParser(description="Trains a small network to read handwritten digits.")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--data", default=DATA)
    arguments = parser.parse_args()

    rows = np.loadtxt(arguments.data, delimiter=",", dtype=np.int64)
    images, labels = (rows[:, :64] / 16).astype(np.float32), rows[:, 64]
    with kolo.Session():
        if BATCH % kolo.size() != 0:
            raise SystemExit(f"train.py: give a number of ranks that divides {BATCH}, not {kolo.size()}")
        network = Network(seed=kolo.rank())  # every rank starts differently ...
        kolo.broadcast_parameters(network.values)  # ... and now as rank 0 did
        optimizer = Sgd(network, learning_rate=0.05)
        loss = 0.0
        for epoch in range(arguments.epochs):
            loss = run_epoch(network, optimizer, images[:-HELD_OUT], labels[:-HELD_OUT], epoch)
        right = accuracy(network, images[-HELD_OUT:], labels[-HELD_OUT:])
        weights = hashlib.sha256(b"".join(value.tobytes() for value in network.values.values())).hexdigest()[:16]
        everyones = kolo.allgather_object(weights)
        if kolo.rank() == 0:
            alike = "the same on every rank" if len(set(everyones)) == 1 else "NOT THE SAME ON EVERY RANK"
            ranks = "1 rank" if kolo.size() == 1 else f"{kolo.size()} ranks"
            print(f"accuracy {100 * right:.1f} %  loss {loss:.6f}  {ranks}  weights {weights} ({alike})")


if __name__ == "__main__":
    main()
