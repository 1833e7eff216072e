# SPDX-License-Identifier: Apache-2.0
"""Horovod's API for PyTorch over Kolo: `import kolo_torch.horovod as hvd`, and the training loop stays as it is.

What has a name is matched by it, in any order on the ranks, as in Horovod; what has none by the order of the calls.
docs/pytorch.md says what is not here.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Iterable, Iterator, Mapping

import torch
import torch.distributed as dist

import kolo_torch
from kolo_torch._C import ProcessGroupKolo

__all__ = [
    "Average", "Compression", "DistributedOptimizer", "Max", "Min", "Product", "Sum", "allgather", "allgather_async",
    "allgather_object", "allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "alltoall", "barrier",
    "broadcast", "broadcast_", "broadcast_async", "broadcast_async_", "broadcast_object", "broadcast_optimizer_state",
    "broadcast_parameters", "cross_rank", "cross_size", "grouped_allreduce", "grouped_allreduce_", "init",
    "is_homogeneous", "is_initialized", "join", "local_rank", "local_size", "poll", "rank", "reducescatter", "shutdown",
    "size", "synchronize",
]

Average, Sum, Min, Max, Product = (
    dist.ReduceOp.AVG, dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT
)


# In which launchers say how many processes they have started.
_SIZES = (
    "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "WORLD_SIZE", "HOROVOD_SIZE", "SLURM_STEP_NUM_TASKS"
)


def _check_that_alone() -> None:
    """Else each process of another launcher would train by itself, and nobody would notice."""
    for variable in _SIZES:
        count = os.environ.get(variable, "").strip()
        if count not in ("", "0", "1"):
            raise RuntimeError(
                f"{variable} says that a launcher has started {count} processes, but RANK is not set, so each of them "
                f"would be alone. Start the program by torchrun (torchrun --nproc-per-node {count} train.py), or give "
                "every process RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."
            )


def init() -> None:
    """Joins the job that torchrun started (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), else a world of one. Raises
    RuntimeError where another launcher has started several processes."""
    if dist.is_initialized():
        _backend()
    elif "RANK" in os.environ:
        dist.init_process_group("kolo")
    else:
        _check_that_alone()
        dist.init_process_group("kolo", store=dist.HashStore(), rank=0, world_size=1)


def shutdown() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def is_initialized() -> bool:
    return kolo_torch.backend_of() is not None


def _backend(name: str | None = None) -> ProcessGroupKolo:
    backend = kolo_torch.backend_of()
    if backend is None:
        raise ValueError("Horovod's calls need hvd.init(), or a default process group with the backend kolo")
    return backend if name is None else backend.named(name)


def rank() -> int:
    return _backend().rank()


def size() -> int:
    return _backend().size()


def local_rank() -> int:
    return _backend().place()["local_rank"]


def local_size() -> int:
    return _backend().place()["local_size"]


def cross_rank() -> int:
    return _backend().place()["cross_rank"]


def cross_size() -> int:
    return _backend().place()["cross_size"]


def is_homogeneous() -> bool:
    return bool(_backend().place()["is_homogeneous"])


class Handle:
    """An operation under way, for `poll` and `synchronize`."""

    def __init__(self, works: list[Any], result: Callable[[], Any]):
        self._works = works
        self._result = result

    def poll(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def synchronize(self) -> Any:
        for work in self._works:
            work.wait()
        return self._result()


def poll(handle: Handle) -> bool:
    """Whether it has completed."""
    return handle.poll()


def synchronize(handle: Handle) -> Any:
    """Waits; returns the result."""
    return handle.synchronize()


class _NoCompression:
    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, _dtype: Any) -> torch.Tensor:
        return tensor


class _Float16Compression:
    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return (tensor.half(), tensor.dtype) if tensor.is_floating_point() else (tensor, None)

    @staticmethod
    def decompress(tensor: torch.Tensor, dtype: Any) -> torch.Tensor:
        return tensor if dtype is None else tensor.to(dtype)


class Compression:
    """What gradients are sent as."""

    none = _NoCompression
    fp16 = _Float16Compression


def _operation(average: bool | None, op: Any) -> Any:
    if average is not None and op is not None:
        raise ValueError("give average or op, not both")
    if average is not None:
        return Average if average else Sum
    return Average if op is None else op


def allreduce_async_(
    tensor: torch.Tensor, average: bool | None = None, name: str | None = None, op: Any = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> Handle:
    """In place."""
    return _allreduce_into(tensor, tensor, _operation(average, op), name, prescale_factor, postscale_factor)


def _allreduce_into(
    sent: torch.Tensor, output: torch.Tensor, op: Any, name: str | None, prescale: float, postscale: float,
    decompress: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor,
) -> Handle:
    """`sent` is reduced in place, and the result is in `output`, which may be the same."""
    divides = op == Average and not sent.is_floating_point() and not sent.is_complex()
    if prescale != 1.0:
        sent.mul_(prescale)
    options = dist.AllreduceOptions()
    options.reduceOp = Sum if divides else op
    work = _backend(name).allreduce([sent], options)

    def result() -> torch.Tensor:
        with torch.no_grad():
            if divides:
                sent.div_(size(), rounding_mode="floor")
            if postscale != 1.0:
                sent.mul_(postscale)
            received = decompress(sent)
            if received is not output:
                output.copy_(received)
        return output

    return Handle([work], result)


def allreduce_async(
    tensor: torch.Tensor, average: bool | None = None, name: str | None = None, op: Any = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> Handle:
    output = tensor.detach().clone()
    return allreduce_async_(output, average, name, op, prescale_factor, postscale_factor)


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, op: Any, name: str | None, pre: float, post: float) -> torch.Tensor:
        context.arguments = (op, None if name is None else name + ".grad", pre, post)
        return allreduce_async(tensor, None, name, op, pre, post).synchronize()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        op, name, pre, post = context.arguments
        return allreduce_async(gradient, None, name, op, pre, post).synchronize(), None, None, None, None


def allreduce(
    tensor: torch.Tensor, average: bool | None = None, name: str | None = None, compression: Any = Compression.none,
    op: Any = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> torch.Tensor:
    """A new tensor. Autograd goes through it."""
    compressed, kind = compression.compress(tensor)
    reduced = _Allreduce.apply(compressed, _operation(average, op), name, prescale_factor, postscale_factor)
    return compression.decompress(reduced, kind)


def allreduce_(
    tensor: torch.Tensor, average: bool | None = None, name: str | None = None, op: Any = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> torch.Tensor:
    return allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor).synchronize()


def grouped_allreduce_(
    tensors: list[torch.Tensor], average: bool | None = None, name: str | None = None, op: Any = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    names = [None if name is None else f"{name}.{i}" for i in range(len(tensors))]
    handles = [
        allreduce_async_(tensor, average, its_name, op, prescale_factor, postscale_factor)
        for tensor, its_name in zip(tensors, names)
    ]
    return [handle.synchronize() for handle in handles]


class _GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, op: Any, name: str | None, pre: float, post: float, *tensors: torch.Tensor) -> Any:
        context.arguments = (op, None if name is None else name + ".grad", pre, post)
        copies = [tensor.detach().clone() for tensor in tensors]
        return tuple(grouped_allreduce_(copies, None, name, op, pre, post))

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        op, name, pre, post = context.arguments
        copies = [gradient.clone() for gradient in gradients]
        return None, None, None, None, *grouped_allreduce_(copies, None, name, op, pre, post)


def grouped_allreduce(
    tensors: list[torch.Tensor], average: bool | None = None, name: str | None = None,
    compression: Any = Compression.none, op: Any = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """New tensors. Autograd goes through it."""
    if not tensors:
        return []
    compressed, kinds = zip(*(compression.compress(tensor) for tensor in tensors))
    op = _operation(average, op)
    reduced = _GroupedAllreduce.apply(op, name, prescale_factor, postscale_factor, *compressed)
    return [compression.decompress(tensor, kind) for tensor, kind in zip(reduced, kinds)]


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> Handle:
    options = dist.BroadcastOptions()
    options.rootRank = root_rank
    return Handle([_backend(name).broadcast([tensor], options)], lambda: tensor)


def broadcast_async(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> Handle:
    return broadcast_async_(tensor.detach().clone(), root_rank, name)


def broadcast_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    return broadcast_async_(tensor, root_rank, name).synchronize()


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, root_rank: int, name: str | None) -> torch.Tensor:
        context.arguments = (root_rank, None if name is None else name + ".grad")
        return broadcast_async(tensor, root_rank, name).synchronize()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        root_rank, name = context.arguments
        mean = allreduce_async(gradient, name=name, op=Average).synchronize()
        return mean if rank() == root_rank else torch.zeros_like(mean), None, None


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """A new tensor. Autograd goes through it: the root's gradient is the average of all ranks', the others'
    is zero."""
    return _Broadcast.apply(tensor, root_rank, name)


def _counts(mine: list[int], name: str | None) -> list[list[int]]:
    """Everyone's numbers."""
    sent = torch.tensor(mine)
    received = [torch.empty_like(sent) for _ in range(size())]
    _backend(None if name is None else name + ".counts").allgather([received], [sent]).wait()
    return [counts.tolist() for counts in received]


def allgather_async(tensor: torch.Tensor, name: str | None = None) -> Handle:
    """Along the first dimension, which may differ by rank. Returns when all ranks have called it: they first tell each
    other how many rows they have. So all must call it in the same order, with a name, too."""
    return _allgather_rows(tensor, name)[0]


def _allgather_rows(tensor: torch.Tensor, name: str | None) -> tuple[Handle, list[int]]:
    """Also how many rows each rank has given."""
    rows = [counts[0] for counts in _counts([tensor.shape[0]], name)]
    output = tensor.new_empty([sum(rows), *tensor.shape[1:]])
    work = _backend(name).allgather([list(output.split(rows))], [tensor.detach()])
    return Handle([work], lambda: output), rows


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, name: str | None) -> torch.Tensor:
        handle, context.rows = _allgather_rows(tensor, name)
        context.name = None if name is None else name + ".grad"
        return handle.synchronize()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        mean = allreduce_async(gradient, name=context.name, op=Average).synchronize()
        return mean.split(context.rows)[rank()], None


def allgather(tensor: torch.Tensor, name: str | None = None) -> torch.Tensor:
    """Along the first dimension, which may differ by rank. Autograd goes through it: a row's gradient is the average of
    all ranks'."""
    return _Allgather.apply(tensor, name)


def _exchange(tensor: torch.Tensor, gives: list[int], takes: list[int], name: str | None) -> torch.Tensor:
    """Without the numbers of rows: as many for each rank."""
    output = tensor.new_empty([sum(takes) if takes else tensor.shape[0], *tensor.shape[1:]])
    _backend(name).alltoall_base(output, tensor.detach(), takes, gives).wait()
    return output


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, tensor: torch.Tensor, gives: list[int], takes: list[int], name: str | None
    ) -> torch.Tensor:
        context.arguments = (takes, gives, None if name is None else name + ".grad")
        return _exchange(tensor, gives, takes, name)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        return _exchange(gradient.contiguous(), *context.arguments), None, None, None


def alltoall(tensor: torch.Tensor, splits: torch.Tensor | list[int] | None = None, name: str | None = None) -> Any:
    """The received tensor; with splits also how many rows came from each rank. Autograd goes through it."""
    if splits is None:
        return _Alltoall.apply(tensor, [], [], name)
    gives = [int(rows) for rows in splits]
    takes = [counts[rank()] for counts in _counts(gives, name)]
    return _Alltoall.apply(tensor, gives, takes, name), torch.tensor(takes, dtype=torch.int32)


def reducescatter(
    tensor: torch.Tensor, name: str | None = None, compression: Any = Compression.none, op: Any = Average
) -> torch.Tensor:
    """This rank's rows of the sum: as many for each, and one more for the first ranks if they are not even."""
    rows, more = divmod(tensor.shape[0], size())
    begin = rank() * rows + min(rank(), more)
    return allreduce(tensor, name=name, compression=compression, op=op)[begin : begin + rows + (rank() < more)].clone()


def barrier() -> None:
    _backend().barrier().wait()


def join(device: int = -1) -> int:
    """This rank is out of data, the others go on. Returns the rank that joined last, when all have. The device does not
    matter: on a joined rank nothing is computed."""
    return _backend().join()


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None) -> Any:
    objects = [obj]
    dist.broadcast_object_list(objects, root_rank)
    return objects[0]


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    objects: list[Any] = [None] * size()
    dist.all_gather_object(objects, obj)
    return objects


def broadcast_parameters(params: Mapping[str, Any] | Iterable[tuple[str, Any]], root_rank: int = 0) -> None:
    """A model's `state_dict()` or `named_parameters()`; what is no tensor is left alone."""
    items = params.items() if isinstance(params, Mapping) else params
    handles = [
        broadcast_async_(value.data if isinstance(value, torch.nn.Parameter) else value, root_rank, "parameter." + name)
        for name, value in items
        if isinstance(value, torch.Tensor)
    ]
    for handle in handles:
        handle.synchronize()


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    """Tensors, step counts and hyperparameters, whatever the other ranks' optimizers have."""
    state = broadcast_object(optimizer.state_dict() if rank() == root_rank else None, root_rank)
    if rank() != root_rank:
        optimizer.load_state_dict(state)


class _Distributed:
    """What `DistributedOptimizer` puts before the optimizer's own class: `step` is that of the averaged gradients."""

    _kolo_names: dict[torch.nn.Parameter, str]
    _kolo_handles: dict[torch.nn.Parameter, Handle]
    _kolo_passes: dict[torch.nn.Parameter, int]
    _kolo_options: dict[str, Any]
    _kolo_synchronized: bool

    def _kolo_reduce(self, parameter: torch.nn.Parameter) -> None:
        options = self._kolo_options
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        with torch.no_grad():
            sent, kind = options["compression"].compress(parameter.grad)
            self._kolo_handles[parameter] = _allreduce_into(
                sent, parameter.grad, options["op"], "DistributedOptimizer." + self._kolo_names[parameter],
                1.0, 1.0, lambda tensor: options["compression"].decompress(tensor, kind),
            )

    def _kolo_gradient_ready(self, parameter: torch.nn.Parameter) -> None:
        if parameter in self._kolo_handles:
            raise AssertionError(
                "a gradient was computed more than backward_passes_per_step times before step(): raise "
                "backward_passes_per_step to accumulate gradients locally"
            )
        self._kolo_passes[parameter] -= 1
        if self._kolo_passes[parameter] == 0:
            self._kolo_reduce(parameter)

    def synchronize(self) -> None:
        """Waits for all gradients; to clip them before `step`, for instance."""
        for parameter in self._kolo_names:
            if parameter not in self._kolo_handles:  # not part of this backward pass; it may be elsewhere
                self._kolo_reduce(parameter)
        for parameter, handle in self._kolo_handles.items():
            handle.synchronize()
            self._kolo_passes[parameter] = self._kolo_options["passes"]
        self._kolo_handles.clear()
        self._kolo_synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """`step` in here does not synchronize: `synchronize` has been called."""
        self._kolo_options["synchronizes"] = False
        try:
            yield
        finally:
            self._kolo_options["synchronizes"] = True

    def step(self, closure: Any = None) -> Any:
        if self._kolo_options["synchronizes"] and not (self._kolo_synchronized and not self._kolo_handles):
            self.synchronize()
        self._kolo_synchronized = False
        self._opt_called = True  # as a learning rate scheduler's own `step` would note
        self._step_count = getattr(self, "_step_count", 0) + 1  # and where that is of PyTorch before 2.4
        return super().step(closure)  # type: ignore[misc]

    # Schedulers need not put theirs before it.
    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    step._with_counter = True  # type: ignore[attr-defined]  # the same, for PyTorch before 2.4

    def zero_grad(self, *arguments: Any, **keywords: Any) -> None:
        if self._kolo_handles:
            raise AssertionError("zero_grad() was called after backward() and before step() or synchronize()")
        super().zero_grad(*arguments, **keywords)  # type: ignore[misc]


def _when_accumulated(parameter: torch.nn.Parameter, call: Callable[[torch.nn.Parameter], None]) -> Any:
    """Calls it with the parameter whenever its gradient is there. What is returned must be kept as long."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        return parameter.register_post_accumulate_grad_hook(call)
    accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]  # PyTorch before 2.1
    accumulator.register_hook(lambda *_: call(parameter))
    return accumulator


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
) -> torch.optim.Optimizer:
    """The same optimizer, whose `step` uses the average (or what `op` says) of all ranks' gradients; they are reduced
    while `backward` still computes others. Groups are Kolo's affair, and what is divided first only a matter of
    rounding: the last three arguments change nothing."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if named_parameters is None:
        names = {p: f"parameter.{i}" for i, p in enumerate(parameters)}
    else:
        names = {p: name for name, p in named_parameters}
        if len(set(names.values())) != len(names):
            raise ValueError("two of named_parameters have the same name")
        if any(p not in names for p in parameters):
            raise ValueError("named_parameters lacks parameters of the optimizer")
    distributed: Any = optimizer
    distributed.__dict__.pop("step", None)  # of a scheduler that was made before: it would hide ours
    distributed.__class__ = type(type(optimizer).__name__, (_Distributed, type(optimizer)), {})
    distributed._kolo_names = {p: names[p] for p in parameters if p.requires_grad}
    distributed._kolo_handles = {}
    distributed._kolo_passes = {p: backward_passes_per_step for p in distributed._kolo_names}
    distributed._kolo_synchronized = False
    distributed._kolo_options = {
        "compression": compression, "passes": backward_passes_per_step, "op": op, "synchronizes": True
    }
    distributed._kolo_hooked = [_when_accumulated(p, distributed._kolo_gradient_ready) for p in distributed._kolo_names]
    return optimizer
