# SPDX-License-Identifier: Apache-2.0
"""How long the reduction of a step's gradients takes in TensorFlow, by kolopy.tensorflow or by the collectives of
MultiWorkerMirroredStrategy: a step, less the same step with an identity in the reduction's place. The gradients have
ResNet-50's shapes. One intra-op thread a process.

usage: kolo-run -np 2 python3 step.py {kolo | mirrored} [--steps N] [--small]

--small   1000 gradients of 1 KiB instead
"""

import argparse
import json
import os
import socket
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import kolopy
import numpy as np
import tensorflow as tf


def resnet50():
    shapes, width = [(7, 7, 3, 64), (64,), (64,)], 64
    for blocks, inner in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            kernels = [(1, 1, width, inner), (3, 3, inner, inner), (1, 1, inner, 4 * inner)]
            if block == 0:
                kernels.append((1, 1, width, 4 * inner))
            for kernel in kernels:
                shapes += [kernel, kernel[-1:], kernel[-1:]]
            width = 4 * inner
    return [*shapes, (2048, 1000), (1000,)]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("by", choices=("kolo", "mirrored"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()

    context = kolopy.init()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    strategy = None
    if arguments.by == "mirrored":
        workers = [f"127.0.0.1:{port}" for port in kolopy.allgather_object(free_port())]
        os.environ["TF_CONFIG"] = json.dumps(
            {"cluster": {"worker": workers}, "task": {"type": "worker", "index": context.rank}}
        )
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    else:
        import kolopy.tensorflow as hvd

        hvd.init()

    shapes = [(256,)] * 1000 if arguments.small else resnet50()
    weights = [tf.Variable(tf.ones(shape)) for shape in shapes]

    def reduced(gradients):
        if strategy is None:
            return [hvd.allreduce(one, op=hvd.Sum) for one in gradients]
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients)

    def step_with(reduction):
        def step(x):
            gradients = reduction([weight * x for weight in weights])
            return tf.add_n([tf.reduce_max(one) for one in gradients])

        if strategy is None:
            return tf.function(step)
        return tf.function(lambda x: strategy.run(step, args=(x,)))

    steps = {
        "reduced": step_with(reduced),
        "identity": step_with(lambda gradients: [tf.identity(g) for g in gradients]),
    }
    x, times = tf.constant(1.0), {name: [] for name in steps}
    for number in range(arguments.steps + 3):
        for name, step in steps.items():
            kolopy.barrier()
            begin = time.perf_counter()
            result = float(step(x))
            if number >= 3:
                times[name].append(time.perf_counter() - begin)
            assert result == len(shapes) * (context.size if name == "reduced" else 1), result
    medians = {name: statistics.median(its) for name, its in times.items()}
    slowest = np.array([medians["reduced"], medians["identity"]])
    kolopy.allreduce(slowest, op="max")
    if context.rank == 0:
        size = sum(4 * int(np.prod(shape)) for shape in shapes)
        print(
            f"{arguments.by}: {len(shapes)} gradients, {size / 2**20:.1f} MiB, {context.size} processes: "
            f"{1e3 * (slowest[0] - slowest[1]):.1f} ms (step {1e3 * slowest[0]:.1f} ms, identity {1e3 * slowest[1]:.1f} ms), "
            f"median of {arguments.steps}, results right",
            flush=True,
        )
    kolopy.shutdown()
    os._exit(0)  # the strategy's servers do not end by themselves


if __name__ == "__main__":
    main()
