# SPDX-License-Identifier: Apache-2.0
"""What scripts/bench compare measures of two builds, and what it concludes.

Both builds are jobs that take turns sample by sample (bench/README.md), so that what the machine does to one it does to
the other. A round measures every row once. A row's ratio is the new build's median over the old one's, of all rounds;
its interval comes from drawing rounds anew (bootstrap), each with both of its numbers, because they were measured side
by side.
"""
import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import jobs
from .targets import size_name

DRAWS = 1000
CONFIDENCE = 0.9
LEAST_ROUNDS = 5  # fewer say nothing about an interval
LEAST_IDLE_MS = 1.0  # CPU time of an idle engine below this is all the same


@dataclass(frozen=True)
class Group:
    """One launch of both builds; `rows` names the rows that it measures, in the order of the records."""
    rows: tuple
    ranks: int
    arguments: tuple = ()
    measure: str = "bench"  # bench, memory, idle


def sizes(first, last, factor):
    while first <= last:
        yield first
        first *= factor


def of_sizes(mode, ranks, first, last, place, seconds, arena=False):
    arguments = [mode, "-b", str(first), "-e", str(last), "-f", "16", "--place", place, "-n", "20", "-t", str(seconds)]
    where = ", arena" if arena else ""
    rows = tuple(f"{mode} {size_name(size)}, {ranks} ranks{where}" for size in sizes(first, last, 16))
    return Group(rows, ranks, tuple(arguments + ["--arena"] * arena))


def step(model, ranks, seconds, submits="by-name,prepared,grouped", arena=False):
    arguments = ["step", "--model", model, "-o", "average", "-n", "5", "-w", "2", "--submit", submits, "-t",
                 str(seconds)]
    where = ", arena" if arena else ""
    rows = tuple(f"step {model} {submit}, {ranks} ranks{where}" for submit in submits.split(","))
    return Group(rows, ranks, tuple(arguments + ["--arena"] * arena))


def groups():
    """The rows of scripts/bench cpu, shorter; Kolo alone."""
    found = []
    for ranks in (2, 4, 8):
        found += [of_sizes("allreduce", ranks, 4, 64 << 10, "in", 0.4),
                  of_sizes("allreduce", ranks, 256 << 10, 64 << 20, "in", 0.7),
                  of_sizes("allreduce", ranks, 256 << 10, 64 << 20, "in", 0.7, arena=True)]
    for ranks in (2, 4):
        found += [step("resnet50", ranks, 1), step("resnet50", ranks, 1, "prepared", arena=True),
                  step("bert-base", ranks, 2, "prepared"), step("bert-base", ranks, 2, "prepared", arena=True),
                  step("many-small", ranks, 0.5)]
        for mode, place in (("broadcast", "in"), ("allgather", "out"), ("alltoall", "out")):
            found.append(of_sizes(mode, ranks, 1 << 10, 16 << 20, place, 0.4))
        found.append(of_sizes("reduce_scatter", ranks, 1 << 20, 16 << 20, "out", 0.5))
        found.append(Group((f"memory held, bert-base step, {ranks} ranks", f"memory peak, bert-base step, {ranks} ranks"),
                           ranks, ("memory", "--model", "bert-base"), "memory"))
        found.append(Group((f"CPU time of an idle engine, {ranks} ranks",), ranks, ("--seconds", "1", "--steps", "20"),
                           "idle"))
    found.append(Group(("latency, waited for, 2 ranks", "latency, told by a callback, 2 ranks"), 2,
                       ("latency", "-n", "200", "-t", "1")))
    return found


# ---------------------------------------------------------------- measuring

def of_records(group, records):
    """[(value, wrong)] in the order of the group's rows."""
    if group.measure == "memory":
        (record,) = records
        return [(record["held_bytes"], 0), (record["peak_bytes"], 0)]
    if len(records) != len(group.rows):
        raise jobs.Failed(f"{group.arguments[0]}: {len(records)} records for {len(group.rows)} rows")
    return [(record["time_us"], max(record.get("wrong", 0), 0)) for record in records]


def idle_ms(build, group):
    """The CPU time of the rank that used most."""
    over = ["--oversubscribe"] if group.ranks > jobs.CPUS else []
    done = subprocess.run(["mpirun", *over, "-np", str(group.ranks), str(build / "bin/kolo-idle"), *group.arguments],
                          capture_output=True, text=True, timeout=100, env=jobs.ENVIRONMENT, check=False)
    rows = [line.split() for line in done.stdout.splitlines()]
    times = [float(row[1]) for row in rows if len(row) >= 6 and row[0].isdigit()]
    if len(times) != group.ranks:
        raise jobs.Failed(f"kolo-idle: {(done.stderr or done.stdout).strip()[-300:]}")
    return max(LEAST_IDLE_MS, *times)


def measure(group, builds, timeout=200):
    """One round of a group: for each build, in the order given, [(value, wrong)] by row."""
    if group.measure == "idle":
        return [[(idle_ms(build, group), 0)] for build in builds]
    made = [jobs.Job(str(number), group.ranks, list(group.arguments), bench=build / "bin/kolo-bench")
            for number, build in enumerate(builds)]
    if group.measure == "memory":  # it takes no turns
        return [of_records(group, jobs.run(None, [job], timeout)[job.name]) for job in made]
    results = jobs.run(None, made, timeout)
    return [of_records(group, results[job.name]) for job in made]


# ---------------------------------------------------------------- concluding

def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def ratio_of(rounds):
    """New over old, of medians; `rounds`: [(old, new)]."""
    return median([new for _, new in rounds]) / median([old for old, _ in rounds])


def interval(rounds):
    """(low, high) of the ratio, with CONFIDENCE."""
    draw = random.Random(1)
    ratios = sorted(ratio_of(draw.choices(rounds, k=len(rounds))) for _ in range(DRAWS))
    tail = (1 - CONFIDENCE) / 2
    return ratios[int(tail * DRAWS)], ratios[int((1 - tail) * DRAWS) - 1]


def conclude(name, rounds, wrong, limit):
    """A row of the result; `wrong`: elements of the old build and the new one that were not right."""
    low, high = interval(rounds)
    enough = len(rounds) >= LEAST_ROUNDS
    return {"row": name, "old": median([old for old, _ in rounds]), "new": median([new for _, new in rounds]),
            "ratio": ratio_of(rounds), "low": low, "high": high, "worse": enough and low > limit,
            "better": enough and high < 1 / limit, "wrong_old": wrong[0], "wrong_new": wrong[1], "rounds": rounds}


def builds_differ(old, new):
    """Why two build trees cannot be compared; empty: they can. Each: the text of its CMakeCache.txt."""
    def entry(cache, name):
        found = [line.partition("=")[2] for line in cache.splitlines() if line.startswith(f"{name}:")]
        return found[0] if found else ""
    for name, cache in (("OLD", old), ("NEW", new)):
        if entry(cache, "CMAKE_BUILD_TYPE") not in ("Release", "RelWithDebInfo"):
            return f"{name} is not optimised: build it with the preset release"
        for what in ("KOLO_SANITIZE", "KOLO_COVERAGE"):
            if entry(cache, what) not in ("", "OFF"):
                return f"{name} was built with {what}"
    for what in ("CMAKE_BUILD_TYPE", "CMAKE_CXX_COMPILER", "CMAKE_CXX_FLAGS", "BUILD_SHARED_LIBS"):
        if entry(old, what) != entry(new, what):
            return f"they differ in {what}: '{entry(old, what)}' and '{entry(new, what)}'"
    return ""
