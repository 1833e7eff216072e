# SPDX-License-Identifier: Apache-2.0
"""Kolo for TensorFlow 2 and Keras 3, under Horovod's names.

    import kolopy.tensorflow as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 * hvd.size()))
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(dataset.shard(hvd.size(), hvd.rank()), epochs=10, verbose=hvd.rank() == 0,
              callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()])

docs/tensorflow.md in Kolo's source is the tutorial. The first import compiles the kernels (g++).
"""

from __future__ import annotations

from typing import Any

from kolopy import cross_rank, cross_size, local_rank, local_size, rank, size
from kolopy.tensorflow import callbacks
from kolopy.tensorflow._ops import (
    Average,
    Compression,
    Max,
    Min,
    Product,
    ReduceOp,
    Sum,
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    broadcast_variables,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    join,
    rank_op,
    reducescatter,
    size_op,
)
from kolopy.tensorflow._optimizer import DistributedOptimizer, load_model, register_all
from kolopy.tensorflow._tape import DistributedGradientTape
from kolopy.tensorflow._world import (
    ProcessSet,
    add_process_set,
    allgather_object,
    broadcast_object,
    broadcast_object_fn,
    global_process_set,
    init,
    is_homogeneous,
    is_initialized,
    remove_process_set,
    shutdown,
)

register_all()

__all__ = [
    "Average",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "ReduceOp",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "callbacks",
    "cross_rank",
    "cross_size",
    "global_process_set",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "load_model",
    "local_rank",
    "local_size",
    "rank",
    "rank_op",
    "reducescatter",
    "remove_process_set",
    "shutdown",
    "size",
    "size_op",
]

_KOLO_RUN = "kolo-run, mpirun, torchrun or srun start the ranks, and Kolo chooses its transport itself"
_ABSENT = {
    "elastic": "the world is fixed when it starts: save checkpoints, and start the job again",
    "Adasum": "give hvd.Average or hvd.Sum",
    "SyncBatchNormalization": "Keras's own BatchNormalization(synchronized=True) is for tf.distribute; use larger "
    "batches a rank, or LayerNormalization",
    "PartialDistributedGradientTape": "reduce the gradients that you want reduced by hvd.allreduce, or take two tapes",
    "PartialDistributedOptimizer": "reduce the gradients that you want reduced by hvd.DistributedGradientTape",
    "broadcast_global_variables": "it is for sessions of TensorFlow 1: use hvd.broadcast_variables(model.variables, 0)",
    "BroadcastGlobalVariablesHook": "it is for sessions of TensorFlow 1: use hvd.callbacks."
    "BroadcastGlobalVariablesCallback, or hvd.broadcast_variables",
    "start_timeline": "KOLO_LOG_LEVEL=debug logs every batch of tensors, and kolopy.metrics() counts them",
    "stop_timeline": "KOLO_LOG_LEVEL=debug logs every batch of tensors, and kolopy.metrics() counts them",
    "allgather_async": "operations inside a tf.function run at the same time by themselves",
    "allreduce_async": "operations inside a tf.function run at the same time by themselves",
    "allreduce_": "tensors of TensorFlow cannot be written; use hvd.allreduce",
    "broadcast_": "tensors of TensorFlow cannot be written; use hvd.broadcast, or hvd.broadcast_variables",
    "get_process_set_ids_and_ranks": "keep the ProcessSet that hvd.add_process_set returns",
    "mpi_threads_supported": _KOLO_RUN,
    "mpi_enabled": _KOLO_RUN,
    "mpi_built": _KOLO_RUN,
    "gloo_enabled": _KOLO_RUN,
    "gloo_built": _KOLO_RUN,
    "nccl_built": "kolopy.tensorflow has kernels for the CPU only",
    "cuda_built": "kolopy.tensorflow has kernels for the CPU only",
    "rocm_built": "kolopy.tensorflow has kernels for the CPU only",
    "ddl_built": _KOLO_RUN,
    "ccl_built": _KOLO_RUN,
    "run": "start the program by kolo-run -np 4 python train.py",
    "local_rank_op": "hvd.local_rank() is a number, which tf.constant takes",
    "local_size_op": "hvd.local_size() is a number, which tf.constant takes",
    "process_set_included_op": "process_set.included() is a bool, which tf.constant takes",
    "check_num_rank_power_of_2": "any number of ranks will do",
    "gpu_available": "kolopy.tensorflow has kernels for the CPU only",
}


def __getattr__(name: str) -> Any:
    if name in _ABSENT:
        raise AttributeError(f"kolopy.tensorflow has no {name}: {_ABSENT[name]}")
    raise AttributeError(f"module 'kolopy.tensorflow' has no attribute {name!r}")
