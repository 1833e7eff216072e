# SPDX-License-Identifier: Apache-2.0
"""Horovod's API for PyTorch over Kolo: `import kolo_torch.horovod as hvd`, and the training loop stays as it is.

What has a name is matched by it, in any order on the ranks, as in Horovod; what has none by the order of the calls.
docs/pytorch.md says what is not here.
"""

from __future__ import annotations

import collections
import contextlib
import os
import weakref
from typing import Any, Callable, Iterable, Iterator, Mapping, NamedTuple

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


class _InFlight(NamedTuple):
    """A reduction under way, and what tells afterwards that somebody has changed its gradient meanwhile."""

    handle: Handle
    gradient: torch.Tensor
    version: int


class _Gradients:
    """The gradients of one DistributedOptimizer: which are being reduced, and which have been.

    A hook of each parameter starts its reduction. A parameter that cannot have one yet (frozen, or new in a parameter
    group) gets it as soon as the optimizer is used; until then `synchronize` reduces its gradient. The hooks go with
    this object. A parameter has one: that of the DistributedOptimizer that was given it last.
    """

    def __init__(self, given_names: dict[torch.nn.Parameter, str], compression: Any, passes: int, op: Any):
        self.given_names = given_names
        self.compression = compression
        self.passes = passes
        self.op = op
        self.synchronizes = True  # in `step`
        self.names: dict[torch.nn.Parameter, str] = {}
        self.lost: set[torch.nn.Parameter] = set()  # to another optimizer
        self.in_flight: dict[torch.nn.Parameter, _InFlight] = {}
        self.passes_left: dict[torch.nn.Parameter, int] = {}
        self.synchronized: dict[torch.nn.Parameter, torch.Tensor] = {}  # as `synchronize` has left them
        self.left: dict[torch.nn.Parameter, tuple[torch.Tensor, int]] = {}  # as `step` and `zero_grad` have left them
        self.hooks: dict[torch.nn.Parameter, Any] = {}
        self.steps = 0
        self.has_compared = False  # the ranks' parameters
        weakref.finalize(self, _let_go, self.hooks, self.in_flight).atexit = False
        _all_gradients.add(self)

    def take(self, parameters: list[torch.nn.Parameter]) -> None:
        """All of the optimizer's. Every rank comes across new ones in the same order, which numbers them."""
        new = [p for p in parameters if p not in self.names]
        for parameter in new:
            number = f"{'added ' if self.given_names else ''}parameter.{len(self.names)}"
            self.names[parameter] = self.given_names.get(parameter, number)
        if new:
            for other in _all_gradients:
                if other is not self:
                    other._give_up(new)
            _wait_for_abandoned()
        is_ready = weakref.WeakMethod(self._is_ready)
        for parameter in parameters:
            if parameter.requires_grad and parameter not in self.hooks and parameter not in self.lost:
                self.hooks[parameter] = _when_accumulated(parameter, is_ready)

    def _give_up(self, parameters: list[torch.nn.Parameter]) -> None:
        mine = [p for p in parameters if p in self.names]
        self.lost.update(mine)
        _let_go({p: self.hooks.pop(p) for p in mine if p in self.hooks},
                {p: self.in_flight.pop(p) for p in mine if p in self.in_flight})

    def _is_ready(self, parameter: torch.nn.Parameter) -> None:
        self.synchronized = {}
        if parameter in self.in_flight:
            raise AssertionError(
                "a gradient was computed more than backward_passes_per_step times before step(): raise "
                "backward_passes_per_step to accumulate gradients locally. (If another optimizer is to step this model "
                "from now on, let go of the DistributedOptimizer first.)"
            )
        self.passes_left[parameter] = self.passes_left.get(parameter, self.passes) - 1
        if self.passes_left[parameter] == 0:
            self._reduce(parameter)

    def _reduce(self, parameter: torch.nn.Parameter) -> None:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        gradient, compression = parameter.grad, self.compression  # the handle must not keep this object
        with torch.no_grad():
            sent, kind = compression.compress(gradient)
            handle = _allreduce_into(
                sent, gradient, self.op, "DistributedOptimizer." + self.names[parameter], 1.0, 1.0,
                lambda tensor: compression.decompress(tensor, kind),
            )
        self.in_flight[parameter] = _InFlight(handle, gradient, gradient._version)

    def check_that_mine(self, parameters: list[torch.nn.Parameter]) -> None:
        lost = [self.names[p] for p in parameters if p in self.lost and p.grad is not None]
        if lost:
            raise RuntimeError(
                f"{lost[0]} belongs to a DistributedOptimizer that was made later, and this one does not reduce its "
                "gradient any more: step a model by one of them, or make this one anew"
            )

    def synchronize(self, parameters: list[torch.nn.Parameter]) -> None:
        """Reduces what is not in flight, and waits. What has no gradient may have one on another rank."""
        self.take(parameters)
        self.check_that_mine(parameters)
        for parameter in parameters:
            has_one = parameter.grad is not None or parameter.requires_grad and parameter not in self.lost
            if has_one and parameter not in self.in_flight:
                self._reduce(parameter)
        changed = [
            self.names[parameter]
            for parameter, (_, gradient, version) in self.in_flight.items()
            if parameter.grad is not gradient or gradient._version != version
        ]
        try:
            for reduction in self.in_flight.values():
                reduction.handle.synchronize()
        finally:
            self.in_flight.clear()
            self.passes_left.clear()
        if changed:
            raise RuntimeError(
                f"the gradient of {changed[0]} was changed while it was being reduced: between backward() and a change "
                "of gradients by hand, as clipping or unscaling them, call synchronize()"
            )
        self.synchronized = {p: p.grad for p in parameters if p.grad is not None}

    def are_reduced(self, parameters: list[torch.nn.Parameter], exactly: bool) -> bool:
        """Since the last backward pass. Exactly: no gradient has been replaced since, not even by a clipped one."""

        def is_reduced(parameter: torch.nn.Parameter) -> bool:
            known = self.synchronized.get(parameter)
            thawed = parameter.requires_grad and parameter not in self.hooks
            return known is not None and not thawed and (known is parameter.grad or not exactly)

        return bool(self.synchronized) and all(p.grad is None or is_reduced(p) for p in parameters)

    def are_as_left(self, parameters: list[torch.nn.Parameter]) -> bool:
        return not self.in_flight and all(
            p.grad is None or p in self.left and self.left[p][0] is p.grad and self.left[p][1] == p.grad._version
            for p in parameters
        )

    def note_as_left(self, parameters: list[torch.nn.Parameter]) -> None:
        self.synchronized = {}
        self.left = {p: (p.grad, p.grad._version) for p in parameters if p.grad is not None}

    def begin_step(self, parameters: list[torch.nn.Parameter]) -> None:
        """Before the first: all ranks must begin with the same parameters."""
        if not self.has_compared and _backend().replica_interval() >= 0:
            self._compare_replicas(parameters)
        self.has_compared = True

    def end_step(self, parameters: list[torch.nn.Parameter]) -> None:
        self.note_as_left(parameters)
        self.steps += 1
        every = _backend().replica_interval()
        if every > 0 and self.steps % every == 0:
            self._compare_replicas(parameters)

    def _compare_replicas(self, parameters: list[torch.nn.Parameter]) -> None:
        self.take(parameters)
        named = [(self.names[p], p) for p in parameters]
        if named:  # the first name tells this optimizer from others
            collective = f"DistributedOptimizer.{named[0][0]} (replicas)"
            kolo_torch._compare_replicas(_backend(), "DistributedOptimizer", collective, named, self.steps)

    def reduce_loss(self, loss: Any) -> Any:
        if not isinstance(loss, (torch.Tensor, float)):
            return loss
        reduced = torch.as_tensor(loss).detach().clone()
        _allreduce_into(reduced, reduced, self.op, "DistributedOptimizer of the loss", 1.0, 1.0).synchronize()
        return reduced if isinstance(loss, torch.Tensor) else reduced.item()


_all_gradients: weakref.WeakSet[_Gradients] = weakref.WeakSet()
_abandoned: list[Handle] = []  # reductions whose optimizer has gone; their names are taken until they have completed


def _let_go(hooks: dict[torch.nn.Parameter, Any], in_flight: dict[torch.nn.Parameter, _InFlight]) -> None:
    for hook in hooks.values():
        hook[-1].remove()
    _abandoned.extend(reduction.handle for reduction in in_flight.values())


def _wait_for_abandoned() -> None:
    while _abandoned:
        with contextlib.suppress(RuntimeError):  # who waited for it has gone
            _abandoned.pop().synchronize()


class _Distributed:
    """What `DistributedOptimizer` puts before the optimizer's own class: `step` is that of the averaged gradients."""

    _kolo: _Gradients | None = None  # of a copy
    param_groups: list[dict[str, Any]]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """For pickle and copy, which would look for this class by the name of the optimizer's own."""
        _, _, *state = super().__reduce_ex__(protocol)
        return _copied, (type(self).__mro__[2],), *state

    def _kolo_gradients(self) -> _Gradients:
        if self._kolo is None:
            raise RuntimeError("this is a copy of a DistributedOptimizer: give it to DistributedOptimizer, too")
        return self._kolo

    def _kolo_settle(self) -> None:
        """Before gradients are used."""
        gradients, parameters = self._kolo_gradients(), _parameters_of(self)
        gradients.check_that_mine(parameters)
        if gradients.are_reduced(parameters, exactly=gradients.synchronizes):
            return
        if not gradients.synchronizes:
            raise RuntimeError(
                "step() within skip_synchronize() would use gradients that are not reduced: call synchronize() between "
                "backward() and step()"
            )
        gradients.synchronize(parameters)

    def synchronize(self) -> None:
        """Waits for all gradients; to clip them before `step`, for instance. Raises RuntimeError where one was changed
        since `backward`."""
        self._kolo_gradients().synchronize(_parameters_of(self))

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """`step` in here does not synchronize: `synchronize` has been called. (Else it raises RuntimeError.)"""
        self._kolo_gradients().synchronizes = False
        try:
            yield
        finally:
            self._kolo_gradients().synchronizes = True

    def set_backward_passes_per_step(self, passes: int) -> None:
        """From now on; what has been counted since the last step counts no more."""
        _check_passes(passes)
        self._kolo_gradients().passes = passes
        self._kolo_gradients().passes_left.clear()

    def step(self, closure: Any = None) -> Any:
        """With a closure, each time that this is called its gradients are reduced, and so is the loss, by which the
        optimizer may decide: all ranks decide alike. It is what `step` returns."""
        gradients = self._kolo_gradients()
        gradients.begin_step(_parameters_of(self))

        def reducing_closure() -> Any:
            gradients.synchronized = {}
            loss = closure()
            self._kolo_settle()
            return gradients.reduce_loss(loss)

        # Gradients that are there before a closure is called may be used, too.
        if closure is None or not gradients.are_as_left(_parameters_of(self)):
            self._kolo_settle()
        self._opt_called = True  # as a learning rate scheduler's own `step` would note
        self._step_count = getattr(self, "_step_count", 0) + 1  # and where that is of PyTorch before 2.4
        result = super().step(closure and reducing_closure)  # type: ignore[misc]
        gradients.end_step(_parameters_of(self))
        return result

    # Schedulers need not put theirs before it.
    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    step._with_counter = True  # type: ignore[attr-defined]  # the same, for PyTorch before 2.4

    def zero_grad(self, *arguments: Any, **keywords: Any) -> None:
        gradients = self._kolo_gradients()
        if gradients.in_flight:
            raise AssertionError("zero_grad() was called after backward() and before step() or synchronize()")
        super().zero_grad(*arguments, **keywords)  # type: ignore[misc]
        gradients.take(_parameters_of(self))
        gradients.note_as_left(_parameters_of(self))


def _class_of(plain: type) -> type:
    return type(plain.__name__, (_Distributed, plain), {})


def _copied(plain: type) -> Any:
    """Steps nothing before it is given to DistributedOptimizer."""
    made = _class_of(plain)
    return made.__new__(made)


def _parameters_of(optimizer: Any) -> list[torch.nn.Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _check_passes(passes: int) -> None:
    if passes < 1:
        raise ValueError(f"backward_passes_per_step is {passes}; it must be at least 1")


def _when_accumulated(parameter: torch.nn.Parameter, method: weakref.WeakMethod[Callable[..., None]]) -> Any:
    """Calls it with the parameter whenever its gradient is there. What is returned must be kept as long; its last part
    removes the hook."""

    def call(accumulated: torch.nn.Parameter) -> None:
        bound = method()
        if bound is not None:
            bound(accumulated)

    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        return [parameter.register_post_accumulate_grad_hook(call)]
    with torch.enable_grad():
        accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]  # PyTorch before 2.1
    return [accumulator, accumulator.register_hook(lambda *_: call(parameter))]


def _names_of(
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None, parameters: list[torch.nn.Parameter]
) -> dict[torch.nn.Parameter, str]:
    if named_parameters is None:
        return {}
    names = {p: name for name, p in named_parameters}
    twice = [name for name, count in collections.Counter(names.values()).items() if count > 1]
    if twice:
        raise ValueError(f"two of named_parameters have the same name, {twice[0]}")
    nameless = [i for i, p in enumerate(parameters) if p not in names]
    if nameless:
        shape = list(parameters[nameless[0]].shape)
        raise ValueError(
            f"named_parameters lacks {len(nameless)} of the optimizer's {len(parameters)} parameters: first number "
            f"{nameless[0]}, of shape {shape}"
        )
    return names


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
    rounding: the last three arguments change nothing.

    What is stepped is what the parameter groups hold then: layers may be thawed, and groups added. A gradient that is
    not reduced is never stepped: `step` reduces it, or raises RuntimeError."""
    distributed: Any = optimizer
    if isinstance(optimizer, _Distributed) and distributed._kolo is not None:
        raise ValueError("this optimizer is a DistributedOptimizer already")
    _check_passes(backward_passes_per_step)
    parameters = _parameters_of(optimizer)
    names = _names_of(named_parameters, parameters)
    distributed.__dict__.pop("step", None)  # of a scheduler that was made before: it would hide ours
    if not isinstance(optimizer, _Distributed):
        distributed.__class__ = _class_of(type(optimizer))
    distributed._kolo = _Gradients(names, compression, backward_passes_per_step, op)
    distributed._kolo.take(parameters)
    return optimizer
