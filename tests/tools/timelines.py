# SPDX-License-Identifier: Apache-2.0
"""What must hold of a timeline (KOLO_TIMELINE), however the job was started."""
import json
from collections import defaultdict
from pathlib import Path

SLACK_US = 50


def read(*files):
    """Their events: whole files, each of a job that ended in order."""
    return [event for file in files for event in json.loads(Path(file).read_text())]


def names_of(events):
    """By rank and row: the tensor, or what else the row is for."""
    return {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}


def kind_of(span):
    """A tensor's wait says for which rank it was, if that is known."""
    return "negotiate" if span["name"].startswith("waiting for rank ") else span["name"]


def spans_of(events, kind):
    """What this kind of span is of, on each rank: {(tensor, number of its round or batch): {rank: span}}."""
    names, spans = names_of(events), defaultdict(dict)
    for event in events:
        if event["ph"] == "X" and kind_of(event) == kind:
            number = event["args"].get("round", event["args"].get("batch"))
            spans[names[event["pid"], event["tid"]], number][event["pid"]] = event
    return spans


def check_whole(test, events, ranks, tensors, steps):
    """Each rank has all steps, and each tensor in each of them: submitted, and reduced."""
    names = names_of(events)
    for rank in range(ranks):
        own = [event for event in events if event["pid"] == rank]
        test.assertEqual([event["name"] for event in own if event["name"].startswith("step ")],
                         [f"step {step + 1} ends" for step in range(steps)])
        for kind in ("negotiate", "allreduce"):
            found = [names[rank, event["tid"]] for event in own if kind_of(event) == kind]
            for tensor in tensors:
                test.assertEqual(found.count(tensor), steps, f"{kind} of {tensor} on rank {rank}")


def check_clocks(test, events, ranks):
    """What is a cause on one rank never comes behind its effect on another one, but for some microseconds: no rank's
    tensor is agreed before every rank has submitted it, and no rank is done before all have begun."""
    checked = 0
    for kind, words in (("negotiate", "was agreed before it was submitted"), ("allreduce", "was done before it had begun")):
        for (tensor, number), by_rank in spans_of(events, kind).items():
            if len(by_rank) != ranks:
                continue
            last_begin = max(event["ts"] for event in by_rank.values())
            first_end = min(event["ts"] + event["dur"] for event in by_rank.values())
            test.assertLessEqual(last_begin, first_end + SLACK_US, f"{tensor}, number {number}, {words}")
            checked += 1
    test.assertGreater(checked, 0)
