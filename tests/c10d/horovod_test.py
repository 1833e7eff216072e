#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kolo_torch.horovod, call by call, on 2 and 3 processes; and KOLO_CHECK_REPLICAS, there and in PyTorch's DDP.

usage: horovod_test.py [CHECK...]      needs kolo_torch on the path (PYTHONPATH)
"""

import copy
import os
import pickle
import sys
import warnings

import torch
import torch.distributed as dist

import kolo_torch.horovod as hvd
from ranks import Ranks

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def same(actual, expected, what=""):
    assert actual.dtype == expected.dtype and torch.equal(actual, expected), (what, actual, expected)


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), f"{text!r} is not in {str(error)!r}"
        return
    raise AssertionError(f"no {kind} with {text!r}")


@check
def places(rank, size):
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (rank, size, rank, size)
    assert (hvd.cross_rank(), hvd.cross_size(), hvd.is_homogeneous()) == (0, 1, True)


@check
def allreduces(rank, size):
    mine, total = torch.full((3,), float(rank + 1)), size * (size + 1) / 2
    same(hvd.allreduce(mine, op=hvd.Sum), torch.full((3,), total))
    same(hvd.allreduce(mine, average=False), torch.full((3,), total))
    same(mine, torch.full((3,), float(rank + 1)))
    same(hvd.allreduce(mine), torch.full((3,), (size + 1) / 2))
    same(hvd.allreduce(torch.tensor([rank + 1])), torch.tensor([int(total) // size]))
    same(hvd.allreduce(mine, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5), torch.full((3,), total))
    same(hvd.allreduce(mine, op=hvd.Sum, compression=hvd.Compression.fp16), torch.full((3,), total))
    in_place = mine.clone()
    assert hvd.allreduce_(in_place, op=hvd.Max) is in_place
    same(in_place, torch.full((3,), float(size)))
    grouped = hvd.grouped_allreduce([mine, 2 * mine], name="both", op=hvd.Sum)
    same(grouped[0], torch.full((3,), total))
    same(grouped[1], torch.full((3,), 2 * total))
    raises(ValueError, "give average or op", lambda: hvd.allreduce(mine, average=True, op=hvd.Sum))
    with_gradient = mine.clone().requires_grad_()
    hvd.allreduce(with_gradient, op=hvd.Sum, name="with.gradient").sum().backward()
    same(with_gradient.grad, torch.full((3,), float(size)))


@check
def names_in_any_order(rank, size):
    tensors = {name: torch.full((2,), float(len(name) + rank)) for name in ("a", "bb", "ccc")}
    order = sorted(tensors, reverse=rank % 2 == 1)
    handles = {name: hvd.allreduce_async_(tensors[name], name=name, op=hvd.Sum) for name in order}
    for name in tensors:
        same(hvd.synchronize(handles[name]), torch.full((2,), float(sum(len(name) + r for r in range(size)))))
        assert hvd.poll(handles[name])


@check
def other_collectives(rank, size):
    same(hvd.broadcast(torch.tensor([rank]), size - 1), torch.tensor([size - 1]))
    gathered = hvd.allgather(torch.full((rank, 2), rank), name="rows")
    same(gathered, torch.cat([torch.full((r, 2), r) for r in range(size)]))
    same(hvd.alltoall(torch.arange(size) + 10 * rank), torch.tensor([rank + 10 * r for r in range(size)]))
    rows = torch.full((sum(range(1, size + 1)), 2), float(rank))
    output, received = hvd.alltoall(rows, splits=torch.arange(1, size + 1))
    same(output, torch.cat([torch.full((rank + 1, 2), float(r)) for r in range(size)]))
    assert received.tolist() == [rank + 1] * size
    part = hvd.reducescatter(torch.ones(2 * size + 1, 3), op=hvd.Sum)
    same(part, torch.full((3 if rank == 0 else 2, 3), float(size)))
    assert hvd.broadcast_object(obj=["from", rank], root_rank=1) == ["from", 1]
    assert hvd.allgather_object(obj=rank) == list(range(size))
    hvd.barrier()


@check
def gradients_through_collectives(rank, size):
    """What each rank multiplies its results by comes back to where they came from."""
    total = float(size * (size + 1) / 2)
    for name in (None, "through"):
        mine = torch.full((3,), float(rank), requires_grad=True)
        (hvd.broadcast(mine, 1, name) * (rank + 1)).sum().backward()
        same(mine.grad, torch.full((3,), total / size if rank == 1 else 0.0))
        mine = torch.ones(rank + 1, 2, requires_grad=True)
        gathered = hvd.allgather(mine, name)
        factors = torch.arange(float(gathered.shape[0])).reshape(-1, 1)
        (gathered * factors * (rank + 1)).sum().backward()
        first = rank * (rank + 1) // 2
        same(mine.grad, (total / size * factors[first : first + rank + 1]).expand(-1, 2).contiguous())
        mine = torch.ones(size, 2, requires_grad=True)
        (hvd.alltoall(mine, name=name) * (rank + 1)).sum().backward()
        same(mine.grad, torch.arange(1.0, size + 1).reshape(-1, 1).expand(-1, 2).contiguous())
        mine = torch.ones(sum(range(1, size + 1)), requires_grad=True)  # r + 1 rows to rank r
        output, _ = hvd.alltoall(mine, torch.arange(1, size + 1), name)
        (output * (rank + 1)).sum().backward()
        same(mine.grad, torch.cat([torch.full((r + 1,), r + 1.0) for r in range(size)]))
        both = [torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)]
        outputs = hvd.grouped_allreduce(both, name=name, op=hvd.Sum)
        (outputs[0].sum() + 2 * outputs[1].sum()).backward()
        same(both[0].grad, torch.full((2,), float(size)))
        same(both[1].grad, torch.full((1,), 2.0 * size))


def network(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def data(size):
    generator = torch.Generator().manual_seed(7)
    return torch.randn(6, 2 * size, 4, generator=generator), torch.randn(6, 2 * size, 1, generator=generator)


@check
def training(rank, size):
    """As one process that sees everybody's samples."""
    inputs, targets = data(size)
    model = network(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (rank + 1), momentum=0.5)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    assert isinstance(optimizer, torch.optim.SGD) and optimizer.param_groups[0]["lr"] == 0.1
    alone = network(0)
    reference = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.5)
    for x, y in zip(inputs, targets):
        mine = slice(2 * rank, 2 * rank + 2)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x[mine]), y[mine]).backward()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
        reference.zero_grad()
        torch.nn.functional.mse_loss(alone(x), y).backward()
        reference.step()
    for trained, wanted in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(trained, wanted)


@check
def a_scheduler_that_was_made_before(rank, size):
    """It puts a `step` of its own before the optimizer's class; the gradients are averaged all the same."""
    for before in (True, False):
        parameter = torch.nn.Parameter(torch.zeros(2))
        optimizer = torch.optim.SGD([parameter], lr=1.0)
        if before:
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        optimizer = hvd.DistributedOptimizer(optimizer)
        if not before:
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                optimizer.zero_grad()
                (parameter.sum() * 2 * rank).backward()
                optimizer.step()
                scheduler.step()
        same(parameter.detach(), torch.full((2,), -1.5 * (size - 1)))


@check
def several_passes_a_step(rank, size):
    """Gradients of several passes are added up, as Horovod does."""
    inputs, targets = data(size)
    model = network(0)
    alone = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), backward_passes_per_step=2)
    reference = torch.optim.SGD(alone.parameters(), lr=0.1)
    for x, y in zip(inputs, targets):
        for sample in range(2):
            mine = slice(2 * rank + sample, 2 * rank + sample + 1)
            torch.nn.functional.mse_loss(model(x[mine]), y[mine]).backward()
        optimizer.step()
        optimizer.zero_grad()
        (2 * torch.nn.functional.mse_loss(alone(x), y)).backward()
        reference.step()
        reference.zero_grad()
    for trained, wanted in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(trained, wanted)
    torch.nn.functional.mse_loss(model(x), y).backward()
    torch.nn.functional.mse_loss(model(x), y).backward()
    again = lambda: torch.nn.functional.mse_loss(model(x), y).backward()  # noqa: E731
    raises((AssertionError, RuntimeError), "more than backward_passes_per_step times", again)
    raises(AssertionError, "before step() or synchronize()", optimizer.zero_grad)
    raises(RuntimeError, "was changed while it was being reduced", optimizer.synchronize)
    optimizer.set_backward_passes_per_step(3)
    for _ in range(3):
        again()
    optimizer.synchronize()
    raises(ValueError, "backward_passes_per_step is 0", lambda: optimizer.set_backward_passes_per_step(0))


@check
def names_that_do_not_fit(rank, size):
    parameters = list(network(0).named_parameters())
    plain = torch.optim.SGD([p for _, p in parameters], lr=0.1)
    for count, names, text in (
        (1, ("w", "w", "v", "u"), "two of named_parameters have the same name, w"),
        (1, ("v", "w"), "named_parameters lacks 2 of the optimizer's 4 parameters: first number 2, of shape [1, 8]"),
        (0, ("u", "v", "w", "x"), "backward_passes_per_step is 0; it must be at least 1"),
    ):
        named = [(name, p) for name, (_, p) in zip(names, parameters)]
        raises(ValueError, text, lambda: hvd.DistributedOptimizer(  # noqa: B023
            plain, named, backward_passes_per_step=count))  # noqa: B023
    assert type(plain) is torch.optim.SGD
    hvd.DistributedOptimizer(plain)
    raises(ValueError, "is a DistributedOptimizer already", lambda: hvd.DistributedOptimizer(plain))


def loss_of(model, x, y):
    return torch.nn.functional.mse_loss(model(x), y)


def close(model, alone):
    """The same as one process has, and the same on all ranks."""
    for trained, wanted in zip(model.parameters(), alone.parameters()):
        torch.testing.assert_close(trained, wanted)
        same(trained.detach(), hvd.broadcast(trained.detach(), 0))


@check
def closures(rank, size):
    """The optimizer calls them itself, L-BFGS several times a step and with decisions by the loss, which magnify what
    is rounded."""
    inputs, targets = (tensor.double() for tensor in data(size))
    mine = slice(2 * rank, 2 * rank + 2)
    for make in (
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.5),
        lambda parameters: torch.optim.LBFGS(parameters, max_iter=6, line_search_fn="strong_wolfe"),
    ):
        model, alone = network(0).double(), network(0).double()
        optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters())
        reference = make(alone.parameters())

        def closure(net, its_optimizer, x, y):
            its_optimizer.zero_grad()
            loss = loss_of(net, x, y)
            loss.backward()
            return loss

        for x, y in zip(inputs, targets):
            loss = optimizer.step(lambda: closure(model, optimizer, x[mine], y[mine]))  # noqa: B023
            wanted = reference.step(lambda: closure(alone, reference, x, y))  # noqa: B023
            torch.testing.assert_close(loss, wanted.detach())
        close(model, alone)
    # One that synchronizes by itself, and one that returns a number.
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))

    def synchronizing():
        optimizer.zero_grad()
        (weight.sum() * rank).backward()
        optimizer.synchronize()
        weight.grad.clamp_(max=0.25)
        return float(rank)

    with optimizer.skip_synchronize():
        assert optimizer.step(synchronizing) == (size - 1) / 2
    same(weight.detach(), torch.full((2,), -0.25))

    def forgetful():
        optimizer.zero_grad()
        (weight.sum() * rank).backward()

    with optimizer.skip_synchronize():
        raises(RuntimeError, "would use gradients that are not reduced", lambda: optimizer.step(forgetful))
    same(weight.detach(), torch.full((2,), -0.25))
    optimizer.synchronize()


class StepsBeforeItsClosure(torch.optim.SGD):
    """As some that look ahead: the gradients that are there are used first."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        with torch.enable_grad():
            closure()
        super().step()


@check
def gradients_before_a_closure(rank, size):
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(StepsBeforeItsClosure([weight], lr=1.0))
    for _ in range(2):
        optimizer.zero_grad()
        (weight.sum() * rank).backward()

        def closure():
            optimizer.zero_grad()
            (weight.sum() * 2 * rank).backward()

        optimizer.step(closure)
    same(weight.detach(), torch.full((2,), -3.0 * (size - 1)))


@check
def what_has_changed_since(rank, size):
    """Layers are thawed and frozen, groups come, gradients are set by hand: what is stepped is the average."""
    inputs, targets = data(size)
    mine = slice(2 * rank, 2 * rank + 2)
    for set_to_none in (True, False):
        model, alone = network(0), network(0)
        pairs = []
        for net in (model, alone):
            for parameter in net[0].parameters():
                parameter.requires_grad_(False)
            optimizer = torch.optim.SGD(net[2].parameters(), lr=0.1, weight_decay=0.01)
            optimizer.add_param_group({"params": [net[0].weight]})
            pairs.append((net, optimizer))
        named = [(name, p) for name, p in model.named_parameters() if name != "0.bias"]
        optimizer = hvd.DistributedOptimizer(pairs[0][1], named)

        def for_both(change):
            for net, its_optimizer in pairs:
                change(net, its_optimizer)

        for step, (x, y) in enumerate(zip(inputs, targets)):
            if step == 1:
                for_both(lambda net, _: net[0].weight.requires_grad_(True))
            if step == 2:
                for_both(lambda net, _: net[0].bias.requires_grad_(True))
                for_both(lambda net, its_optimizer: its_optimizer.add_param_group({"params": [net[0].bias]}))
            if step == 4:
                for_both(lambda net, _: net[2].weight.requires_grad_(False))
            loss_of(model, x[mine], y[mine]).backward()
            if step == 3:
                optimizer.synchronize()
                (loss_of(model, x[mine], y[mine]) * 2).backward()
            if step == 5:
                model[2].weight.grad = torch.full_like(model[2].weight, float(rank))
            optimizer.step()
            loss_of(alone, x, y).backward()
            if step == 3:
                (loss_of(alone, x, y) * 2).backward()
            if step == 5:
                alone[2].weight.grad = torch.full_like(alone[2].weight, (size - 1) / 2)
            pairs[1][1].step()
            for_both(lambda _, its_optimizer: its_optimizer.zero_grad(set_to_none=set_to_none))  # noqa: B023
        close(model, alone)


@check
def steps_that_are_refused(rank, size):
    weight, frozen = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2), requires_grad=False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight, frozen], lr=1.0), [("w", weight), ("f", frozen)])

    def backward():
        ((weight + frozen).sum() * rank).backward()

    def clip():
        weight.grad.clamp_(max=0.5)

    def replace():
        weight.grad = torch.zeros(2)

    for change in (clip, replace, lambda: setattr(weight, "grad", None)):
        backward()
        change()
        raises(RuntimeError, "the gradient of w was changed while it was being reduced: between", optimizer.step)
        optimizer.zero_grad()
    not_reduced = "step() within skip_synchronize() would use gradients that are not reduced"

    def skips():
        with optimizer.skip_synchronize():
            optimizer.step()

    backward()
    raises(RuntimeError, not_reduced, skips)
    optimizer.synchronize()
    backward()
    raises(RuntimeError, not_reduced, skips)
    optimizer.synchronize()
    frozen.requires_grad_(True)
    frozen.grad = torch.ones(2)
    raises(RuntimeError, not_reduced, skips)
    same(weight.detach(), torch.zeros(2))
    optimizer.synchronize()
    clip()
    skips()
    same(weight.detach(), torch.full((2,), -0.5))
    optimizer.zero_grad()
    for copied in (copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
        another = copied(optimizer)
        refusal = "this is a copy of a DistributedOptimizer: give it to DistributedOptimizer, too"
        for call in (another.step, another.zero_grad, another.synchronize):
            raises(RuntimeError, refusal, call)
    weight = another.param_groups[0]["params"][0]  # of the pickled one
    hvd.DistributedOptimizer(another)
    (weight.sum() * rank).backward()
    another.step()
    same(weight.detach(), torch.full((2,), -0.5 - (size - 1) / 2))


@check
def optimizers_one_after_another(rank, size):
    """For the same model: with the first still there, gone, and gone in the middle of a step."""
    for ends in ("kept", "gone", "gone in flight"):
        weight = torch.nn.Parameter(torch.zeros(2))
        kept = []
        for make in (torch.optim.SGD, torch.optim.SGD, torch.optim.Adagrad):
            optimizer = hvd.DistributedOptimizer(make([weight], lr=1.0), [("w", weight)])
            for _ in range(2):
                optimizer.zero_grad()
                (weight.sum() * (rank + 1)).backward()
                optimizer.step()
            optimizer.zero_grad()
            if ends == "kept":
                kept.append(optimizer)
            if ends == "gone in flight":
                (weight.sum() * rank).backward()
            del optimizer
            if ends == "gone in flight":
                weight.grad = None
        mean = (size + 1) / 2
        adagrad = -1.0 - 0.5**0.5
        torch.testing.assert_close(weight.detach(), torch.full((2,), -4 * mean + adagrad))
        if kept:
            (weight.sum() * rank).backward()
            belongs = "w belongs to a DistributedOptimizer that was made later"
            raises(RuntimeError, belongs, kept[0].step)
            raises(RuntimeError, belongs, kept[0].synchronize)
            kept[2].step()
            kept.clear()
        weight.grad = None
        plain = torch.optim.SGD([weight], lr=1.0)
        before = weight.detach().clone()
        for _ in range(3):
            plain.zero_grad()
            (weight.sum() * rank).backward()
            plain.step()
        same(weight.detach(), before - 3 * rank)  # alone, as was asked


@check
def uneven_data(rank, size):
    """Rank 0 has one batch more than the others."""
    for step in range(2 if rank == 0 else 1):
        reduced = hvd.allreduce(torch.ones(2), name="batch", op=hvd.Sum)
        same(reduced, torch.full((2,), float(size if step == 0 else 1)))
    assert 0 <= hvd.join(device=-1) < size


def refuses_another_launcher():
    os.environ.pop("RANK", None)
    for variable in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "HOROVOD_SIZE", "SLURM_STEP_NUM_TASKS"):
        os.environ[variable] = "4"
        raises(RuntimeError, (
            f"{variable} says that a launcher has started 4 processes, but RANK is not set, so each of them would be "
            "alone. Start the program by torchrun (torchrun --nproc-per-node 4 train.py), or give every process RANK, "
            "WORLD_SIZE, MASTER_ADDR and MASTER_PORT."
        ), hvd.init)
        assert not hvd.is_initialized()
        del os.environ[variable]


def all_checks(rank, size, folder):
    assert not hvd.is_initialized()
    refuses_another_launcher()
    raises(ValueError, "need hvd.init()", hvd.rank)
    dist.init_process_group("kolo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    hvd.init()
    assert hvd.is_initialized()
    for function in CHECKS:
        if sys.argv[1:] and function.__name__ not in sys.argv[1:]:
            continue
        try:
            function(rank, size)
        except BaseException:
            sys.stderr.write(f"check {function.__name__} failed on rank {rank} of {size}\n")
            raise
    hvd.shutdown()
    assert not hvd.is_initialized()


def replicas(rank, size, folder):
    """Every third step, in a world of its own: other checks have other values on each rank."""
    os.environ["KOLO_CHECK_REPLICAS"] = "3"
    dist.init_process_group("kolo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    (x, *_), (y, *_) = data(size)

    def step(model, optimizer):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()

    def differs_in(name):
        return f'parameter "{name}" is not the same on all ranks after step 6 (KOLO_CHECK_REPLICAS): rank 1 holds other'

    unequal = network(rank)  # that is told before the first step, until it is repaired
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(unequal.parameters(), lr=0.1), unequal.named_parameters())
    before = unequal[0].weight.detach().clone()
    told = (
        'DistributedOptimizer: parameter "0.weight" is not the same on all ranks before the first step: ranks 0-2 hold '
        "different values; 3 more parameters differ. Give all ranks the values of one (broadcast_parameters), or leave out "
        "what is to differ (KOLO_CHECK_REPLICAS=first,-PATTERN)"
    )
    raises(RuntimeError, told, lambda: step(unequal, optimizer))
    assert torch.equal(unequal[0].weight, before)
    optimizer.synchronize()  # what the backward pass has begun
    hvd.broadcast_parameters(unequal.state_dict())
    step(unequal, optimizer)

    model = network(0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    wrapped = torch.nn.parallel.DistributedDataParallel(network(0))
    plain = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    for _ in range(5):
        step(model, optimizer)
        step(wrapped, plain)
    if rank == 1:
        model[2].bias.data.add_(1)
        wrapped.module[0].weight.data[0, 0] += 1
    raises(RuntimeError, f"DistributedOptimizer: {differs_in('2.bias')}", lambda: step(model, optimizer))
    step(wrapped, plain)  # the check comes before the next forward pass
    raises(RuntimeError, f"DistributedDataParallel: {differs_in('0.weight')}", lambda: step(wrapped, plain))
    dist.destroy_process_group()


def main():
    failed = 0
    for size in (2, 3):
        statuses = Ranks(size, all_checks).wait()
        outcome = "passed" if not any(statuses) else f"FAILED, {statuses}"
        print(f"{len(CHECKS)} checks on {size} ranks: {outcome}", flush=True)
        failed += any(statuses)
    if not sys.argv[1:]:
        statuses = Ranks(3, replicas).wait()
        print(f"replicas on 3 ranks: {'FAILED, ' + str(statuses) if any(statuses) else 'passed'}", flush=True)
        failed += any(statuses)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
