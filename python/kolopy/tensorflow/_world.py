# SPDX-License-Identifier: Apache-2.0
"""Joining a job, places in it, and process sets."""

from __future__ import annotations

from typing import Any, Iterable, List, Optional, Sequence, Union

import kolopy
from kolopy.tensorflow import _build

operations, _set_group = _build.load()


class ProcessSet:
    """Some of the ranks. `add_process_set` makes it usable; every rank calls that, members or not."""

    def __init__(self, ranks: Optional[Iterable[int]] = None) -> None:
        self.ranks: "Optional[List[int]]" = None if ranks is None else sorted(int(rank) for rank in ranks)
        self.process_set_id: Optional[int] = None
        self._group: Any = None
        self._number: Optional[int] = None  # since it was added first: functions that were traced then keep it

    def included(self) -> bool:
        """Whether this rank is a member."""
        self._check()
        return self._group is not None

    def size(self) -> int:
        self._check()
        return len(self.ranks or ())

    def rank(self) -> int:
        """This rank's place among the members."""
        return int(self.group().rank)

    def group(self) -> Any:
        """The kolopy.Group. Raises ValueError if this rank is not a member."""
        self._check()
        if self._group is None:
            raise ValueError(f"rank {kolopy.rank()} is not in {self!r}: only its members make calls on it")
        return self._group

    def _check(self) -> None:
        if self.process_set_id is None:
            raise ValueError(f"{self!r} is not in use: give it to hvd.init or to hvd.add_process_set on every rank")

    def __deepcopy__(self, memo: Any) -> "ProcessSet":
        return self  # of which ranks take part, there is no other

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} belongs to this process: pickle its ranks, and make one of them where they are read")

    def __repr__(self) -> str:
        return f"ProcessSet({self.ranks})"


class _World(ProcessSet):
    """All ranks."""

    def _check(self) -> None:
        kolopy.world()  # raises what is to be done

    def included(self) -> bool:
        return True

    def size(self) -> int:
        return kolopy.size()

    def rank(self) -> int:
        return kolopy.rank()

    def group(self) -> Any:
        return kolopy.world()

    def __reduce__(self) -> str:
        return "global_process_set"

    def __repr__(self) -> str:
        return "global_process_set"


global_process_set = _World()
global_process_set.process_set_id = 0
_sets: "dict[int, ProcessSet]" = {}
_made = 0


def init(
    comm: Any = None, process_sets: Optional[Sequence[Union[ProcessSet, Sequence[int]]]] = None, **settings: Any
) -> None:
    """Joins the job that a launcher started, or makes a world of one. After `kolopy.init()` it uses that context.
    `settings` are kolopy.init's: timeout_s=30."""
    if comm is not None:
        raise ValueError(
            "hvd.init takes no communicator nor list of ranks: every process of the job calls hvd.init(), and "
            "hvd.add_process_set(ranks) makes sets of ranks"
        )
    if not kolopy.is_initialized():
        kolopy.init(**settings)
    global_process_set.ranks = list(range(kolopy.size()))
    _set_group(0, kolopy.world().pointer)
    for one in process_sets or ():
        add_process_set(one)


def shutdown() -> None:
    """Leaves the job; waits for the other ranks."""
    for one in list(_sets.values()):
        _forget(one)
    _set_group(0, None)
    global_process_set.ranks = None
    kolopy.shutdown()


def is_initialized() -> bool:
    return kolopy.is_initialized()


def add_process_set(process_set: Union[ProcessSet, Sequence[int]]) -> ProcessSet:
    """Every rank calls it, in the same order, with the same ranks. Its members wait for each other."""
    global _made
    made = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if made is global_process_set or made.process_set_id is not None:
        raise ValueError(f"{made!r} is in use already")
    if (
        not made.ranks
        or len(set(made.ranks)) != len(made.ranks)
        or not 0 <= made.ranks[0] <= made.ranks[-1] < kolopy.size()
    ):
        raise ValueError(f"{made!r} is no process set: give one or more different ranks from 0 to {kolopy.size() - 1}")
    _made += 1  # the ranks' groups differ each time, the number stays
    number = made._number = made._number or _made
    if kolopy.rank() in made.ranks:
        made._group = kolopy.Group.of(made.ranks, name=f"process_set.{_made}")
        _set_group(number, made._group.pointer)
    made.process_set_id = number
    _sets[number] = made
    return made


def remove_process_set(process_set: ProcessSet) -> bool:
    """Whether it was there. Calls on it must be over."""
    if process_set is global_process_set or process_set.process_set_id not in _sets:
        return False
    _forget(process_set)
    return True


def _forget(process_set: ProcessSet) -> None:
    number = process_set.process_set_id
    assert number is not None
    _set_group(number, None)
    del _sets[number]
    process_set.process_set_id = process_set._group = None


def number_of(process_set: ProcessSet) -> int:
    """Of a set that this rank may use."""
    process_set.group()
    assert process_set.process_set_id is not None
    return process_set.process_set_id


def is_homogeneous() -> bool:
    """Whether all nodes have the same number of ranks. Every rank calls it."""
    return len(set(kolopy.allgather_object(kolopy.local_size()))) == 1


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Rank `root_rank`'s object, on every rank: pickled, so that all ranks trust the root."""
    return kolopy.broadcast_object(obj, root_rank, group=process_set.group())


def broadcast_object_fn(
    root_rank: int = 0, session: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    return lambda obj: broadcast_object(obj, root_rank, process_set=process_set)


def allgather_object(
    obj: Any, session: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> "List[Any]":
    """All ranks' objects, by rank: pickled, so that the ranks trust each other."""
    return kolopy.allgather_object(obj, group=process_set.group())
