#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kolo under Gloo's name: what programs see that ask for "gloo", who falls back to PyTorch's own Gloo and says so, and
how such a program ends. Needs kolo_torch on the path (PYTHONPATH).

usage: stand_in_test.py [CHECK...]

With an older PyTorch it checks that this keeps its Gloo, and says so.
"""

import datetime
import inspect
import os
import subprocess
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist

import kolo_torch_autoload
from ranks import Ranks, as_installed

CHECKS = []


def check(*sizes):
    def add(function):
        CHECKS.append((function, sizes))
        return function

    return add


def start(rank, size, folder, backend="gloo", **more):
    dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank, world_size=size, **more)


def its_backend(group=None):
    group = group or dist.group.WORLD
    backend = group._get_backend(torch.device("cpu"))
    return getattr(backend, "wrapped_pg", backend)


def is_kolo(group=None):
    return type(its_backend(group)).__name__ == "GlooStandIn"


def expect_sum(rank, size, group=None):
    tensor = torch.full((3,), rank + 1.0)
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [size * (size + 1) / 2] * 3, tensor


@check(2, 3)
def program_sees_gloo(rank, size, folder):
    kolo_torch_autoload.replace_gloo()
    start(rank, size, folder)
    import kolo_torch

    assert is_kolo() and isinstance(kolo_torch.backend_of(), kolo_torch.ProcessGroupKolo)
    assert dist.get_backend() == "gloo" and dist.group.WORLD._get_backend_name() == "gloo"
    assert its_backend().name() == "gloo"
    expect_sum(rank, size)
    assert kolo_torch.backend_of().counters()["submissions"] > 0
    group = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        assert is_kolo(group)
        tensor = torch.tensor([rank])
        dist.broadcast(tensor, size - 1, group=group)
        assert tensor.item() == size - 1
    objects = [{"from": 0}] if rank == 0 else [None]
    dist.broadcast_object_list(objects)
    assert objects == [{"from": 0}]
    dist.monitored_barrier()
    if hasattr(dist, "set_timeout"):  # not in PyTorch 2.11
        dist.set_timeout(torch.distributed.constants.default_pg_timeout)
    dist.destroy_process_group()


@check(2)
def ddp_and_its_logger(rank, size, folder):
    kolo_torch_autoload.replace_gloo()
    start(rank, size, folder)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1, bias=False))
    model(torch.full((1, 2), rank + 1.0)).sum().backward()
    assert model.module.weight.grad.tolist() == [[1.5, 1.5]], model.module.weight.grad
    logged = model._get_ddp_logging_data()
    assert logged["backend_name"] == "gloo" and logged["gloo_num_threads"] == 2, logged
    dist.destroy_process_group()


@check(2)
def each_way_to_ask(rank, size, folder):
    kolo_torch_autoload.replace_gloo()
    for number, backend in enumerate(("GLOO", "cpu:gloo", None)):
        dist.init_process_group(backend, init_method=f"file://{folder}/store{number}", rank=rank, world_size=size)
        assert is_kolo(), backend
        expect_sum(rank, size)
        dist.destroy_process_group()
    dist.init_process_group("kolo", init_method=f"file://{folder}/last", rank=rank, world_size=size)
    group = dist.new_group(backend="gloo")
    assert is_kolo(group)
    expect_sum(rank, size, group)
    dist.destroy_process_group()


@check(2)
def tensors_of_other_devices_go_to_gloo(rank, size, folder):
    kolo_torch_autoload.replace_gloo()
    start(rank, size, folder)
    expect_sum(rank, size)
    assert not its_backend().has_gloo
    try:
        its_backend().allreduce([torch.empty(2, device="meta")])
    except RuntimeError as error:
        assert "kolo" not in str(error), error
    else:
        raise AssertionError("a tensor without memory was reduced")
    assert its_backend().has_gloo
    dist.destroy_process_group()


@check(2)
def debug_wrapper_keeps_its_gloo(rank, size, folder):
    kolo_torch_autoload.replace_gloo()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    start(rank, size, folder)
    assert is_kolo()
    expect_sum(rank, size)
    group = dist.new_group([0, 1])
    assert is_kolo(group)
    expect_sum(rank, size, group)
    dist.destroy_process_group()


@check(2)
def what_can_be_reconfigured_is_gloo(rank, size, folder):
    if "enable_reconfigure" not in inspect.signature(dist.init_process_group).parameters:  # PyTorch 2.11
        return
    kolo_torch_autoload.replace_gloo()
    start(rank, size, folder, enable_reconfigure=True)
    assert not is_kolo()


@check(2)
def split_groups(rank, size, folder):
    kolo_torch_autoload.replace_gloo()
    start(rank, size, folder)
    before = its_backend().options._timeout
    try:
        part = dist.split_group(split_ranks=[[0], [1]], timeout=datetime.timedelta(seconds=77))
    except RuntimeError as error:
        if "No device associated with the default pg" in str(error):  # PyTorch 2.11 splits no group without one
            return
        raise
    assert is_kolo(part) and part.size() == 1
    expect_sum(0, 1, part)
    assert its_backend().options._timeout == before
    try:
        its_backend(part).allreduce([torch.empty(2, device="meta")])
    except NotImplementedError as error:
        assert "make the group by new_group" in str(error), error
    else:
        raise AssertionError("a group without a Gloo has reduced a tensor that is not on the CPU")
    expect_sum(rank, size)
    dist.destroy_process_group()


class Numbers(torch.utils.data.IterDataPipe):
    """A DataLoader shares the seed of such data by a group of Gloo's that it makes for itself."""

    def __iter__(self):
        return iter(range(8))


@check(2)
def the_group_of_a_data_loader(rank, size, folder):
    kolo_torch_autoload.replace_gloo()
    start(rank, size, folder)
    import kolo_torch

    torch.manual_seed(rank)
    numbers, seeds = torch.utils.data.DataLoader(Numbers(), batch_size=4), []
    for _ in range(3):
        batches = iter(numbers)
        assert is_kolo(batches._pg) and kolo_torch.backend_of(batches._pg).counters()["submissions"] > 0
        assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        seeds.append(batches._shared_seed)
    of_all = [None] * size
    dist.all_gather_object(of_all, seeds)
    assert of_all == [seeds] * size, of_all
    dist.destroy_process_group()


@check(2)
def what_gloo_takes_and_kolo_does_not(rank, size, folder):
    kolo_torch_autoload.replace_gloo()
    start(rank, size, folder)
    product = torch.ones(3).to_sparse()
    try:
        dist.all_reduce(product, op=dist.ReduceOp.PRODUCT)
    except NotImplementedError as error:
        assert "kolo" in str(error), error
    else:
        raise AssertionError("a product of sparse tensors was computed")
    if rank == 0:
        dist.send(torch.ones(2), 1)
    else:
        try:
            dist.recv(torch.ones(3), 0)
        except dist.DistBackendError as error:
            assert "kolo" in str(error), error
        else:
            raise AssertionError("a message was received into a longer tensor")
    expect_sum(rank, size)
    dist.destroy_process_group()


@check(2)
def more_groups_than_256(rank, size, folder):
    kolo_torch_autoload.replace_gloo()
    start(rank, size, folder)
    groups = [dist.new_group([0, 1]) for _ in range(258)]
    assert [is_kolo(group) for group in groups] == [True] * 256 + [False] * 2
    for group in groups[-3:]:
        expect_sum(rank, size, group)
    dist.destroy_process_group()


@check(2)
def groups_that_kolo_has_no_room_for(rank, size, folder):
    os.environ["KOLO_GROUPS"] = "1"
    kolo_torch_autoload.replace_gloo()
    start(rank, size, folder)
    groups = [dist.new_group([0, 1]) for _ in range(3)]
    assert [is_kolo(group) for group in groups] == [True, False, False]
    for group in groups:
        expect_sum(rank, size, group)
    dist.destroy_process_group()


def expect_refusal(rank, size, folder, wants, sentence):
    """All take Gloo, and one that wants Kolo says why."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start(rank, size, folder)
        group = dist.new_group(list(range(size)))
    assert not is_kolo() and not is_kolo(group)
    expect_sum(rank, size)
    expect_sum(rank, size, group)
    said = [str(one.message) for one in caught if "KOLO_AS_GLOO" in str(one.message)]
    assert said == ([sentence] if rank == wants else []), said
    dist.destroy_process_group()


@check(3)
def one_rank_without_the_variable(rank, size, folder):
    kolo_torch_autoload.load() if rank == 0 else kolo_torch_autoload.replace_gloo()
    expect_refusal(rank, size, folder, 1, "KOLO_AS_GLOO: all 3 ranks take PyTorch's own Gloo, because rank 0 cannot "
                   "take Kolo: KOLO_AS_GLOO is not set there")


@check(2)
def one_rank_with_another_torch(rank, size, folder):
    if rank == 1:
        kolo_torch_autoload.misfit = lambda: "kolo_torch was built against torch 1.0, and this is torch 2.0."
    kolo_torch_autoload.replace_gloo()
    expect_refusal(rank, size, folder, 0, "KOLO_AS_GLOO: all 2 ranks take PyTorch's own Gloo, because rank 1 cannot "
                   "take Kolo: kolo_torch was built against torch 1.0, and this is torch 2.0.")


@check(2)
def a_gloo_that_kolo_torch_does_not_know(rank, size, folder):
    import kolo_torch

    del kolo_torch._C.GlooStandIn  # as it is compiled then
    kolo_torch_autoload.replace_gloo()
    expect_refusal(rank, size, folder, 0, "KOLO_AS_GLOO: rank 0 takes PyTorch's own Gloo, because it cannot take Kolo: "
                   "its kolo_torch does not know the Gloo of this PyTorch")


@check(3)
def ranks_without_the_package(rank, size, folder):
    if rank == 0:
        from kolo_torch import _stand_in

        _stand_in._PATIENCE_S = 0.5
        kolo_torch_autoload.replace_gloo()
    expect_refusal(rank, size, folder, 0, "KOLO_AS_GLOO: all 3 ranks take PyTorch's own Gloo, because rank 1 (and 1 "
                   "more) cannot take Kolo: it has no kolo_torch that stands in for Gloo")


OLDER = """
import sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch, torch.distributed as dist, kolo_torch
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
tensor = torch.ones(1)
dist.all_reduce(tensor)
print(kolo_torch.backend_of(), *(one.message for one in caught if "KOLO_AS_GLOO" in str(one.message)))
"""


def an_older_torch(folder):
    """It keeps its Gloo, and says so once."""
    result = subprocess.run([sys.executable, "-c", OLDER, folder], env={**as_installed(folder), "KOLO_AS_GLOO": "1"},
                            text=True, capture_output=True, timeout=600, check=False)
    assert result.stdout == (f"None KOLO_AS_GLOO needs PyTorch 2.11 or newer with Gloo, and this is {torch.__version__}: "
                             "groups of Gloo are PyTorch's own\n"), result


PROGRAM = """
import sys, torch, torch.distributed as dist
assert "kolo_torch" not in sys.modules
dist.init_process_group(BACKEND, init_method=f"file://{sys.argv[1]}/store", rank=int(sys.argv[2]), world_size=2)
kolos = "kolo_torch" in sys.modules
tensor = torch.ones(1)
dist.all_reduce(tensor)
assert tensor.item() == 2
print(f"{dist.get_backend()} by {'Kolo' if kolos else 'itself'}")
if sys.argv[2] == sys.argv[3]:
    sys.stdin.read()  # until the other has ended
"""


def programs(folder, backend, last=0, **variables):
    """Two ranks of PROGRAM. One ends first, without destroy_process_group, while the last goes on by itself."""
    with tempfile.TemporaryDirectory(dir=folder) as store:
        environment = {**as_installed(folder), "OMP_NUM_THREADS": "1", **variables}
        code = PROGRAM.replace("BACKEND", repr(backend))
        jobs = [subprocess.Popen([sys.executable, "-c", code, store, str(rank), str(last)], env=environment, text=True,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                for rank in range(2)]
        results = [job.communicate(timeout=600) for job in sorted(jobs, key=lambda job: jobs.index(job) == last)]
    assert [job.returncode for job in jobs] == [0, 0], results
    assert [error for _, error in results] == ["", ""], results
    return results[0][0].strip()


@check()
def unmodified_programs(folder):
    assert programs(folder, "gloo", KOLO_AS_GLOO="1") == "gloo by Kolo"
    assert programs(folder, "gloo", last=1, KOLO_AS_GLOO="1") == "gloo by Kolo"
    assert programs(folder, "gloo") == "gloo by itself"


@check()
def the_backend_by_its_own_name(folder):
    code = PROGRAM.replace("BACKEND", '"kolo"').replace("    sys.stdin.read()", "    pass")
    with tempfile.TemporaryDirectory(dir=folder) as store:
        jobs = [subprocess.Popen([sys.executable, "-c", code, store, str(rank), "0"], env=as_installed(folder), text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(2)]
        results = [(*job.communicate(timeout=600), job.returncode) for job in jobs]
    assert results == [("kolo by Kolo\n", "", 0)] * 2, results


def main():
    if tuple(map(int, torch.__version__.split(".")[:2])) < kolo_torch_autoload.OLDEST:
        with tempfile.TemporaryDirectory(prefix="kolo-c10d-") as folder:
            an_older_torch(folder)
        print(f"an_older_torch: passed ({torch.__version__}; the other checks need 2.11)")
        return 0
    failed = []
    for function, sizes in CHECKS:
        name = function.__name__
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        if not sizes:
            with tempfile.TemporaryDirectory(prefix="kolo-c10d-") as folder:
                function(folder)
            print(f"{name}: passed", flush=True)
        for size in sizes:
            statuses = Ranks(size, function).wait()
            print(f"{name}, {size} ranks: {'passed' if not any(statuses) else f'FAILED: {statuses}'}", flush=True)
            if any(statuses):
                failed.append(f"{name} on {size}")
    print("OK" if not failed else f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
