#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Process groups whose ranks change while the processes live: torch.distributed._reconfigure over Kolo.

usage: reconfigure_test.py [--kills N]     needs kolo_torch on the path (PYTHONPATH), and PyTorch 2.15 or newer

The cases are those of PyTorch's own test of it; a training of 8, 7, 8 and 3 ranks, some of which are killed; and N (12)
ranks that are killed one after another, each a little later in a start than the one before.
"""

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import kolo_torch
from ranks import Ranks

KILLS = int(sys.argv[2]) if sys.argv[1:2] == ["--kills"] else 12
WITHIN_S = 0.08  # of the start in which they are killed
TIMEOUT = timedelta(seconds=60)


class Place:
    """Where the processes of a case tell each other what a program would find out by itself."""

    def __init__(self, folder, name, size):
        self.name, self.size = name, size
        self.store = dist.FileStore(os.path.join(folder, "store"), -1)
        dist.init_process_group("kolo", store=self.store, rank=max(name, 0), world_size=max(size, 1),
                                timeout=TIMEOUT, enable_reconfigure=True)

    def say(self, key, value="1"):
        self.store.set(f"{key}/{self.name}", value)

    def hear(self, key, names):
        return [self.store.get(f"{key}/{name}").decode() for name in names]

    def handles(self, key, names=None):
        """Those of all processes; each asks once with each key."""
        self.say(key, dist._get_reconfigure_handle())
        return self.hear(key, range(self.size) if names is None else names)


def reconfigure(uuid, handles, timeout=TIMEOUT):
    work = dist._reconfigure(uuid, handles, timeout=timeout)
    assert work.wait()


def check_sum(size):
    """That this many ranks sum what all of them give."""
    assert dist.get_world_size() == size, (dist.get_world_size(), size)
    tensor = torch.full((1000,), dist.get_rank() + 1.0)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((1000,), size * (size + 1) / 2)), tensor


def refused(kind, words, call, *arguments):
    try:
        call(*arguments)
    except kind as error:
        assert all(word in str(error) for word in words), error
        return
    raise AssertionError(f"{call} was not refused")


def no_ranks_before(rank, size, folder):
    place = Place(folder, rank, size)
    assert dist._supports_reconfigure()
    assert (dist.get_rank(), dist.get_world_size()) == (-1, -1)
    refused(RuntimeError, ["it has no ranks", "_reconfigure"], dist.all_reduce, torch.ones(1))
    reconfigure(100, place.handles("first"))
    assert dist.get_rank() == rank
    check_sum(size)
    to, from_ = (rank + 1) % size, (rank - 1) % size
    received = torch.zeros(4)
    for work in (dist.isend(torch.full((4,), rank + 1.0), to), dist.irecv(received, from_)):
        work.wait()
    assert torch.equal(received, torch.full((4,), from_ + 1.0)), received


def a_rank_is_left_out(rank, size, folder):
    place = Place(folder, rank, size)
    handles = place.handles("first")
    reconfigure(1, handles)
    for uuid, out in ((2, size - 1), (3, size // 2), (4, 0)):  # of all, each time
        if rank != out:
            reconfigure(uuid, handles[:out] + handles[out + 1:])
            assert dist.get_rank() == rank - (rank > out)
            check_sum(size - 1)
        place.say(f"done-{uuid}")
        place.hear(f"done-{uuid}", range(size))
        reconfigure(uuid + 10, handles)
        assert dist.get_rank() == rank
        check_sum(size)


def alone_and_together(rank, size, folder):
    place = Place(folder, rank, size)
    handles = place.handles("first")
    reconfigure(600 + rank, [dist._get_reconfigure_handle()])
    check_sum(1)
    reconfigure(610, handles)
    check_sum(size)
    reconfigure(611, handles)  # the same once more
    check_sum(size)
    half = size // 2
    mine = handles[:half] if rank < half else handles[half:]
    reconfigure(620, mine)  # two groups of one number
    check_sum(len(mine))
    reconfigure(622, handles)
    check_sum(size)
    reconfigure(623, set(handles))  # the backend decides who is which
    check_sum(size)


def some_come_later(rank, size, folder):
    place = Place(folder, rank, size)
    handles = place.handles("first")
    if rank < size // 2:
        reconfigure(900, handles[: size // 2])
        check_sum(size // 2)
    reconfigure(901, handles)
    check_sum(size)


def after_an_abort(rank, size, folder):
    place = Place(folder, rank, size)
    handles = place.handles("first")
    reconfigure(1, handles)
    check_sum(size)
    place.say("summed")
    place.hear("summed", range(size))
    dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).abort()
    reconfigure(2, handles)
    check_sum(size)


def after_a_timeout(rank, size, folder):
    place = Place(folder, rank, size)
    handles = place.handles("first")
    reconfigure(1, handles)
    check_sum(size)
    if rank == 1:
        dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).set_timeout(
            timedelta(milliseconds=50))
        try:
            dist.all_reduce(torch.ones(4))
            raise AssertionError("it waited for nobody")
        except RuntimeError as error:
            assert "imed out" in str(error), error
        dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).set_timeout(TIMEOUT)
    place.say("observed")
    place.hear("observed", range(size))
    reconfigure(2, handles)
    check_sum(size)


def what_is_in_flight_fails(rank, size, folder):
    """Nobody waits for ranks that are in another world by now, and nothing of theirs arrives there."""
    place = Place(folder, rank, size)
    handles = place.handles("first")
    reconfigure(1, handles)
    check_sum(size)
    place.say("summed")  # a rank that fails what it has open would fail that, too
    place.hear("summed", range(size))
    old = torch.full((1000,), -7.0)
    work = dist.all_reduce(old, async_op=True) if rank == 0 else None
    message = dist.irecv(torch.empty(4), 0) if rank == 1 else None
    place.say("begun")
    place.hear("begun", range(size))
    reconfigure(2, handles)
    new = torch.full((1000,), rank + 1.0)
    dist.all_reduce(new)
    assert torch.equal(new, torch.full((1000,), size * (size + 1) / 2)), new
    for open_work in (work, message):
        if open_work is not None:
            refused(RuntimeError, [], open_work.wait)
    check_sum(size)


def wrong_uses(rank, size, folder):
    place = Place(folder, rank, size)
    handles = place.handles("first")
    mine = dist._get_reconfigure_handle()
    reconfigure(1, handles)
    refused(ValueError, ["is not among the 1"], reconfigure, 2, [handles[rank - 1]])
    refused(ValueError, ["twice"], reconfigure, 2, [mine, mine])
    refused(RuntimeError, ["already used"], reconfigure, 1, handles)
    check_sum(size)  # none of these has changed anything
    if rank == 0:  # one that does not come
        refused(RuntimeError, ["rank 1"], reconfigure, 3, handles[:2], timedelta(seconds=1))
        refused(RuntimeError, ["it has no ranks"], dist.all_reduce, torch.ones(1))
    place.say("refused")
    place.hear("refused", range(size))
    reconfigure(4, handles)
    check_sum(size)


def a_step(model, optimizer, rows):
    optimizer.zero_grad()
    model(rows).square().mean().backward()
    optimizer.step()


def training(name, size, folder):
    """A process of the training. Others kill it, or start it later: `worlds` says who is in which world."""
    place = Place(folder, name, size)
    model = torch.nn.Linear(20, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    place.say("handle", dist._get_reconfigure_handle())
    for number, (members, killed) in enumerate(WORLDS):
        if name not in members:
            continue
        if number == 1:  # first an attempt that fails: one of its ranks is dead
            refused(RuntimeError, [], reconfigure, 50, place.hear("handle", [*members, 0]), timedelta(seconds=2))
        reconfigure(100 + number, place.hear("handle", members))
        assert dist.get_rank() == members.index(name)
        for values in [*model.parameters()]:  # a rank that has come later gets what the others have
            dist.broadcast(values.data, 0)
        ddp = torch.nn.parallel.DistributedDataParallel(model)
        torch.manual_seed(number * 100 + dist.get_rank())
        try:
            for step in range(6):
                a_step(ddp, optimizer, torch.randn(8, 20))
                if step == 3 and name in killed:
                    place.say(f"killed-{number}")
                    os.kill(os.getpid(), signal.SIGKILL)
            assert not killed, "the dead were not missed"
        except RuntimeError:
            assert killed, "nobody has died"
        # What an interrupted step has done differs by rank: all take rank 0's of the next world.
        if not killed:
            weights = model.weight.detach()
            each = [torch.empty_like(weights) for _ in members]
            dist.all_gather(each, weights)
            assert all(torch.equal(one, weights) for one in each), each
    place.say("end")


#: Who is in each world of the training, in the order of ranks, and who of them is killed amid it.
WORLDS = (
    (list(range(8)), [0]),
    (list(range(1, 8)), []),
    ([*range(1, 8), 8], [1, 3, 5, 6, 7]),
    ([2, 4, 8], []),
)


def holdings():
    """How many descriptors, threads, mappings and segments this process has."""
    count = [len(os.listdir(f"/proc/self/{what}")) for what in ("fd", "task")]
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return [*count, len(maps.readlines())]


def groups_of_former_ranks(rank, size, folder):
    """They end with their ranks, and hold nothing, though the program keeps them."""
    place = Place(folder, rank, size)
    handles = place.handles("begin")
    groups, early = [], None
    for uuid in range(12):
        reconfigure(uuid, handles)
        for group in groups[-1:]:
            try:
                dist.all_reduce(torch.ones(3), group=group)
            except RuntimeError:
                continue
            assert False, "a group of former ranks reduces"
        groups.append(dist.new_group([0, 1, 2]))
        dist.all_reduce(torch.ones(3), group=groups[-1])
        if uuid == 3:
            early = holdings()
    late = holdings()
    assert all(after <= before + 2 for before, after in zip(early, late)), (early, late)


def killed_one(rank, number, place):
    """A process that meets the two others, and is killed while it does."""
    dist.init_process_group("kolo", store=place, rank=0, world_size=1, timeout=TIMEOUT, enable_reconfigure=True)
    place.set(f"handle-{number}/2", dist._get_reconfigure_handle())
    handles = [place.get(f"handle-{number}/{name}").decode() for name in range(3)]
    order = [(each + number) % 3 for each in range(3)]
    place.set(f"goes-{number}", str(time.monotonic()))
    reconfigure(2 * number, [handles[each] for each in order], timedelta(seconds=2))
    while True:
        dist.all_reduce(torch.ones(1000))


def kills(rank, size, folder):
    """Ranks 0 and 1 live; rank 2 starts and kills their companions."""
    store = dist.FileStore(os.path.join(folder, "store"), -1)
    if rank == 2:
        for number in range(KILLS):
            pid = os.fork()
            if pid == 0:
                try:
                    killed_one(rank, number, store)
                finally:
                    os._exit(1)
            begin = float(store.get(f"goes-{number}"))
            while time.monotonic() - begin < WITHIN_S * number / KILLS:
                pass
            os.kill(pid, signal.SIGKILL)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        return
    dist.init_process_group("kolo", store=store, rank=0, world_size=1, timeout=TIMEOUT, enable_reconfigure=True)
    early, met = None, 0
    for number in range(KILLS):
        store.set(f"handle-{number}/{rank}", dist._get_reconfigure_handle())
        handles = [store.get(f"handle-{number}/{name}").decode() for name in range(3)]
        order = [(each + number) % 3 for each in range(3)]
        try:
            reconfigure(2 * number, [handles[each] for each in order], timedelta(seconds=2))
            met += 1
            while True:
                dist.all_reduce(torch.ones(1000))
        except RuntimeError:
            pass
        reconfigure(2 * number + 1, handles[:2])
        check_sum(2)
        if number == KILLS // 3:
            early = holdings()
    late = holdings()
    assert all(after <= before + 2 for before, after in zip(early, late)), (early, late)
    print(f"rank {rank}: {KILLS} companions were killed, {met} of them after the start: {late}", flush=True)


def check(body, size):
    begin = time.monotonic()
    statuses = Ranks(size, body).wait()
    assert statuses == [0] * size, (body.__name__, statuses)
    print(f"{body.__name__.replace('_', ' ')}: passed, {time.monotonic() - begin:.1f} s", flush=True)


def check_training():
    begin = time.monotonic()
    statuses = Ranks(9, training).wait()
    killed = {name for _, dead in WORLDS for name in dead}
    assert statuses == [-signal.SIGKILL if name in killed else 0 for name in range(9)], statuses
    print(f"8, 7, 8 and 3 ranks, {len(killed)} killed: passed, {time.monotonic() - begin:.1f} s", flush=True)


def main():
    torch.set_num_threads(1)
    for body in (no_ranks_before, a_rank_is_left_out, alone_and_together, some_come_later, after_an_abort,
                 after_a_timeout, what_is_in_flight_fails, wrong_uses, groups_of_former_ranks):
        check(body, 3)
    check(kills, 3)
    check_training()
    return 0


if __name__ == "__main__":
    sys.exit(main())
