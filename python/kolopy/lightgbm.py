# SPDX-License-Identifier: Apache-2.0
"""LightGBM over Kolo: its parallel learners use a group in place of sockets and a list of machines.

    import kolopy.lightgbm
    kolopy.init()
    kolopy.lightgbm.attach()
    booster = lightgbm.train({"tree_learner": "data", ...}, my_part_of_the_data)
    kolopy.lightgbm.detach()

or `with kolopy.lightgbm.attach(): ...`. Every rank has its part of the rows, and gets the same model. docs/lightgbm.md
says more.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from types import TracebackType
from typing import Any, Dict, Optional, Type

from kolopy import _groups
from kolopy import _library as lib
from kolopy._errors import Error, InvalidArgumentError
from kolopy._groups import Group

try:
    import lightgbm as _lightgbm
    from lightgbm import basic as _basic
    from lightgbm import engine as _engine
    from lightgbm import sklearn as _sklearn
except ImportError as _missing:
    raise ImportError("kolopy.lightgbm needs LightGBM: pip install lightgbm") from _missing

lib.C.kolo_lightgbm_attach.argtypes = (ctypes.c_void_p,)
lib.C.kolo_lightgbm_calls.argtypes, lib.C.kolo_lightgbm_calls.restype = (), ctypes.c_uint64
lib.C.kolo_lightgbm_detach.argtypes = ()
lib.C.kolo_lightgbm_end_training.argtypes = (ctypes.c_char_p,)

_PARALLEL = ("data", "voting")


class _Network:
    """That of a thread that has attached; gone with the thread."""

    def __init__(self, size: int) -> None:
        self.size = size


_here = threading.local()
_everywhere: "weakref.WeakSet[_Network]" = weakref.WeakSet()


class _Attachment:
    """What `attach` returns: detaches at the end of a `with` block."""

    def __enter__(self) -> "_Attachment":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], _trace: Optional[TracebackType]
    ) -> None:
        if error is not None:
            _tell(error)
        try:
            detach()
        except Error:
            if error is None:
                raise


def attach(group: Optional[Group] = None) -> _Attachment:
    """From now on LightGBM, on this thread, reaches the other ranks of the group (the world) through Kolo. Every rank
    of the group calls it, on the thread that will make the datasets and train: LightGBM keeps its network by thread.
    While a thread is attached, the boosters that it makes get `num_machines`, if they do not have it, and
    `lightgbm.train`, `lightgbm.cv` and the classes of scikit-learn's manner end with all ranks: if one rank ends a
    training and another goes on, both raise, and say which."""
    given = _groups.group_of(group)
    lib.check(lib.C.kolo_lightgbm_attach(given.pointer))
    _here.network = _Network(given.size)
    _everywhere.add(_here.network)
    _know_boosters()
    _know_trainings()
    return _Attachment()


def calls() -> int:
    """How many collectives LightGBM has run on this thread since `attach`."""
    return int(lib.C.kolo_lightgbm_calls())


def detach() -> None:
    """LightGBM is alone again on this thread; models stay. Every rank of the group calls it: MismatchError if LightGBM
    goes on on another one. Raises InvalidArgumentError if LightGBM has never called, though the group has several
    ranks: then each has trained on its own data alone. Does nothing if the thread has not attached."""
    _here.network = None
    lib.check(lib.C.kolo_lightgbm_detach())


def _know_boosters() -> None:
    """From the first `attach` on each new booster is looked at, once: LightGBM trains alone without a word if it is
    made on another thread, or without these parameters."""
    init = _basic.Booster.__init__
    if getattr(init, "looked_at_by_kolopy", False):
        return

    @functools.wraps(init)
    def looked_at(self: Any, params: Any = None, train_set: Any = None, *rest: Any, **named: Any) -> None:
        if train_set is not None:
            params = _params_of(params)
        init(self, params, train_set, *rest, **named)

    looked_at.looked_at_by_kolopy = True  # type: ignore[attr-defined]
    _basic.Booster.__init__ = looked_at


def _know_trainings() -> None:
    """From the first `attach` on a training ends with all ranks."""
    for module in (_lightgbm, _engine, _sklearn):
        for name in ("train", "cv"):
            function = getattr(module, name, None)
            if function is not None and not hasattr(function, "ended_by_kolopy"):
                setattr(module, name, _ending(function))


@functools.lru_cache(maxsize=None)
def _ending(function: Any) -> Any:
    @functools.wraps(function)
    def train(*arguments: Any, **options: Any) -> Any:
        if getattr(_here, "network", None) is None:
            return function(*arguments, **options)
        try:
            result = function(*arguments, **options)
        except BaseException as error:
            _tell(error)
            raise
        lib.check(lib.C.kolo_lightgbm_end_training(None))
        return result

    train.ended_by_kolopy = True  # type: ignore[attr-defined]
    return train


def _tell(error: BaseException) -> None:
    """Tells the ranks that go on of the error that has ended the training here."""
    try:
        lib.check(lib.C.kolo_lightgbm_end_training(lib.reason_of(error)))
    except Error:  # they have been told, or the job has ended
        pass


def _params_of(given: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    params = dict(given or {})
    network: Optional[_Network] = getattr(_here, "network", None)
    if network is None:
        if _value_of("tree_learner", params) in _PARALLEL and any(one.size > 1 for one in _everywhere):
            raise InvalidArgumentError(
                "another thread has called kolopy.lightgbm.attach(), and LightGBM keeps its network by thread: attach on "
                "the thread that trains"
            )
        return params
    size = network.size
    if size == 1:
        return params
    learner = _value_of("tree_learner", params)
    if learner not in _PARALLEL:
        raise InvalidArgumentError(
            f"this thread is attached to {size} ranks, but tree_learner is {learner or 'serial'!r}, which trains alone: "
            'give "data" (or "voting"), or call kolopy.lightgbm.detach() before'
        )
    machines = _value_of("num_machines", params)
    if machines is None:
        params["num_machines"] = size
    elif int(machines) != size:
        raise InvalidArgumentError(f"num_machines is {machines}, and the group has {size} ranks: leave it out")
    if _value_of("machines", params) is not None:
        raise InvalidArgumentError("`machines` is for LightGBM's own sockets: leave it out while attached")
    return params


def _value_of(name: str, params: Dict[str, Any]) -> Any:
    """A parameter by its name or one of LightGBM's other names for it."""
    for alias in _basic._ConfigAliases.get(name):
        if params.get(alias) is not None:
            return params[alias]
    return None
