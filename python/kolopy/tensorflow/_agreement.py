# SPDX-License-Identifier: Apache-2.0
"""Which variables of the ranks belong together: those at the same place of a list.

Their names may differ: Keras counts the layers of a process, and a model that was loaded has the names of the process
that saved it. So ranks tell each other what they have when they first use it, and take the names of the lowest rank.
"""

from __future__ import annotations

import json
from typing import Any, List, NamedTuple, Sequence, Tuple

import keras
import tensorflow as tf

import kolopy
from kolopy.tensorflow._world import ProcessSet


class Agreed(NamedTuple):
    """What the lowest rank calls them."""

    title: str
    paths: "List[str]"


def resource_of(variable: Any) -> Any:
    """The variable of TensorFlow that one of Keras has."""
    return variable.value if isinstance(variable, keras.Variable) else variable


def is_variable(thing: Any) -> bool:
    return isinstance(thing, (keras.Variable, tf.Variable))


def key_of(variable: Any) -> Any:
    """What is the variable's alone in this process."""
    return resource_of(variable)._unique_id


def path_of(variable: Any) -> str:
    return str(getattr(variable, "path", None) or variable.name)


def _described(variable: Any) -> "Tuple[str, str]":
    """The path, and what must be the same on all ranks."""
    dtype = tf.as_dtype(resource_of(variable).dtype).base_dtype.name
    return path_of(variable), f"{dtype} {list(variable.shape)}"


def agree(
    caller: str, process_set: ProcessSet, title: str, variables: Sequence[Any], options: Sequence[str] = ()
) -> Agreed:
    """Raises MismatchError, the same on every rank, where they have other variables or options. All ranks of the
    process set call it in the same order; those that have joined are passed over."""
    own = {"title": title, "options": list(options), "variables": [_described(one) for one in variables]}
    if process_set.size() == 1:
        return Agreed(title, [path for path, _ in own["variables"]])
    texts = kolopy.allgather_bytes(json.dumps(own).encode(), group=process_set.group())
    given = [(rank, json.loads(text)) for rank, text in enumerate(texts) if text]
    ranks = process_set.ranks or range(len(texts))
    first_rank, first = given[0]
    for rank, other in given[1:]:
        difference = _difference(first, other)
        if difference:
            one, another = difference
            raise kolopy.MismatchError(
                f"{caller}: rank {ranks[first_rank]} has {one}, and rank {ranks[rank]} {another}: all ranks need the "
                "same model, optimizer and options"
            )
    return Agreed(first["title"], [path for path, _ in first["variables"]])


def _difference(first: Any, other: Any) -> "Tuple[str, str] | None":
    if first["options"] != other["options"]:
        texts = ["the options " + (", ".join(one["options"]) or "of default") for one in (first, other)]
        return texts[0], texts[1]
    mine, others = first["variables"], other["variables"]
    for place, ((path, kind), (its_path, its_kind)) in enumerate(zip(mine, others)):
        if kind != its_kind:
            return f'the variable "{path}" of {kind} at place {place}', f'"{its_path}" of {its_kind}'
    if len(mine) == len(others):
        return None
    place, longer = min(len(mine), len(others)), max(mine, others, key=len)
    counts = [f"{len(one)} variables" for one in (mine, others)]
    extra = f"\"{longer[place][0]}\" is the first that only one has"
    return counts[0], f"{counts[1]} ({extra})"
