#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training step of ResNet-50: LibTorch with Kolo beside Python's DistributedDataParallel over Gloo.

usage: torch_step.py --kolo-resnet PROGRAM [--ranks N] [--rounds N] [--turns N] [--pairs N] [--batch N] [--image N]
                     [--threads N] [--gradients zeros|none|both] [--keep-heap] [--memory] [--json FILE [--more]]

Jobs run at once and take turns; whoever waits sleeps in a read(). There is one of each library, or, with --gradients
both, one for each way to forget gradients: `zeros`, the default of zero_grad() in Kolo and in PyTorch 1.13, keeps them
and sets them to zero, so that a backward pass adds to them where they lie; `none` resets them (set_to_none), and a
backward pass makes new ones. In the step that a rank makes by itself they are forgotten in the same way. A turn is a
step that does not count, and `pairs` of two steps: one together, and one of a second model that every rank trains by
itself, in changing order. The difference of a pair is what a step costs beyond the computation, in that language, in
those processes, at that moment. It is taken of three times:

  beyond      until all ranks have done the step: both steps end in a barrier. The slowest rank's computation is in both,
              so that waiting for it is not charged to who reduces gradients.
  uncorrected until this rank has done it, mean over the ranks: by itself without a barrier, together with the wait for
              the slower rank's computation, which is the same for everybody.
  CPU time    of all threads of a rank, mean over the ranks: no waits but busy ones, though what neighbours take of caches
              and memory shows here, too.

Printed are the means of the middle three fifths, and 95 % intervals by bootstrap: rounds are drawn, and of each its
turns, Kolo's with DDP's beside it. A round is all jobs started anew; --more adds this run's rounds to those in the
file, which must be of the same flags; with --rounds 0 it only prints. Ranks are not bound to CPUs, and have `threads` threads. Images are small, so
that the computation is short beside what is looked for; the gradients are those of ResNet-50 all the same, 102 MB.
With --keep-heap glibc keeps freed memory in every job, by two variables of its own: what a backward pass allocates costs
no page faults then. --memory: instead of times, what a rank holds after 4 steps (its proportional set), each job by
itself. Start it with the Python that has torch: Debian's python3-torch is the same version with the same kernels as
libtorch-dev.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

DDP = Path(__file__).resolve().parents[1] / "peers" / "ddp_resnet.py"
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
OWN, PACED, CPU, FAULTS, SWITCHES = range(5)  # the columns of a measured step
KEEP_HEAP = {"MALLOC_TRIM_THRESHOLD_": str(128 << 20), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}
DRAWS = 2000
LIBRARIES = ("kolo", "ddp")
WAYS = {"zeros": ("zeros",), "none": ("none",), "both": ("zeros", "none")}


def jobs_of(flags):
    """A job is a library and how it forgets gradients, as "kolo-zeros"."""
    return [f"{library}-{way}" for way in WAYS[flags.gradients] for library in LIBRARIES]


def start(job, flags, turns, folder, turn=None):
    """One of the jobs; its ranks write folder/job.RANK."""
    library, way = job.split("-")
    own = [f"--{name}={getattr(flags, name)}" for name in ("pairs", "batch", "image", "threads")]
    own += [f"--turns={turns}", f"--json={folder}/{job}"] + ["--zeros"] * (way == "zeros")
    own += [f"--turn={turn}"] if turn else []
    if library == "kolo":
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(flags.ranks), flags.kolo_resnet]
    else:
        command = [sys.executable, str(DDP), "--ranks", str(flags.ranks)]
    environment = {**ENVIRONMENT, "OMP_NUM_THREADS": str(flags.threads)}
    if flags.keep_heap:
        environment.update(KEEP_HEAP)
    return subprocess.Popen(command + own, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr)


def finish(job, process, flags, folder):
    if process.wait() != 0:
        raise SystemExit(f"torch_step: {job} failed")
    ranks = [json.loads(Path(folder, f"{job}.{rank}").read_text(encoding="ascii")) for rank in range(flags.ranks)]
    if len({rank["weights"] for rank in ranks}) != 1:
        raise SystemExit(f"torch_step: {job}: ranks hold different weights")
    return ranks


def merge(steps):
    """The ranks' rows of one step as one: its end is the slowest rank's, the rest means."""
    row = [statistics.mean(column) for column in zip(*steps)]
    row[PACED] = max(step[PACED] for step in steps)
    return row


def measure_round(flags):
    """By job, its turns: the pairs of each, (together, alone)."""
    jobs = jobs_of(flags)
    with tempfile.TemporaryDirectory() as folder:
        processes = [start(job, flags, flags.turns, folder, f"{place}/{len(jobs)}:{folder}")
                     for place, job in enumerate(jobs)]
        result = {}
        for job, process in zip(jobs, processes):
            ranks = finish(job, process, flags, folder)
            result[job] = [[[merge([turn[kind][pair] for turn in turns]) for kind in ("together", "alone")]
                            for pair in range(flags.pairs)] for turns in zip(*(rank["turns"] for rank in ranks))]
        return result


def measure_memory(flags):
    result = {}
    for job in jobs_of(flags):
        with tempfile.TemporaryDirectory() as folder:
            ranks = finish(job, start(job, flags, 0, folder), flags, folder)
            result[job] = max(rank["mebibytes"] for rank in ranks)
    return result


def middle(values):
    """The mean without the highest and the lowest fifth."""
    values = sorted(values)
    cut = len(values) // 5
    return statistics.fmean(values[cut:len(values) - cut])


def together(column):
    return lambda pairs: middle([pair[0][column] for pair in pairs])


def alone(column):
    return lambda pairs: middle([pair[1][column] for pair in pairs])


def beyond(column):
    return lambda pairs: middle([pair[0][column] - pair[1][column] for pair in pairs])


def pooled(turns):
    return [pair for turn in turns for pair in turn]


def draw(rounds, chance):
    """As many rounds and turns as there are, drawn with replacement; by job, the pairs."""
    drawn = {job: [] for job in rounds[0]}
    for one in chance.choices(rounds, k=len(rounds)):
        turns = range(min(len(of_job) for of_job in one.values()))
        places = chance.choices(turns, k=len(turns))
        for job, of_job in one.items():
            drawn[job] += [pair for place in places for pair in of_job[place]]
    return drawn


class Sample:
    """What was measured, and what might have been."""

    def __init__(self, rounds):
        chance = random.Random(1)
        self.measured = {job: pooled([turn for one in rounds for turn in one[job]]) for job in rounds[0]}
        self.drawn = [draw(rounds, chance) for _ in range(DRAWS)]

    def tell(self, of):
        """The value and its 95 % interval of a function of the pairs by job."""
        values = sorted(of(pairs) for pairs in self.drawn)
        return of(self.measured), values[DRAWS * 25 // 1000], values[DRAWS * 975 // 1000 - 1]


def text(value, scale=1.0, digits=1):
    return "{:.{d}f} ({:.{d}f} to {:.{d}f})".format(*(scale * number for number in value), d=digits)


def images_a_second(flags):
    return lambda pairs: flags.batch * flags.ranks / together(PACED)(pairs)


def report_way(flags, rounds, sample, way):
    """What Kolo and DDP take when both forget gradients in one way."""
    kolo, ddp = (f"{library}-{way}" for library in LIBRARIES)
    rows = [("a step, ms", together(PACED), 1e3), ("of it computation, ms", alone(PACED), 1e3),
            ("beyond it, ms", beyond(PACED), 1e3), ("uncorrected, ms", beyond(OWN), 1e3),
            ("CPU time of the computation, ms", alone(CPU), 1e3), ("CPU time beyond it, ms", beyond(CPU), 1e3),
            ("images/s", images_a_second(flags), 1.0),
            ("page faults of the computation", alone(FAULTS), 1.0), ("page faults beyond", beyond(FAULTS), 1.0),
            ("thread switches of the computation", alone(SWITCHES), 1.0),
            ("thread switches beyond", beyond(SWITCHES), 1.0)]
    print(f"{'gradients: ' + way:36}" + "".join(f"{job:>28}" for job in (kolo, ddp)) + f"{'kolo / ddp':>26}")
    for name, of, scale in rows:
        cells = [text(sample.tell(lambda drawn, job=job: of(drawn[job])), scale) for job in (kolo, ddp)]
        ratio = ""
        if "faults" not in name and "switches" not in name:
            ratio = text(sample.tell(lambda drawn: of(drawn[kolo]) / of(drawn[ddp])), digits=3)
        print(f"{name:36}" + "".join(f"{cell:>28}" for cell in cells) + f"{ratio:>26}")
    by_round = (tuple(beyond(PACED)(pooled(one[job])) for job in (kolo, ddp)) for one in rounds)
    print("beyond it by round, kolo / ddp, ms: " + ", ".join(f"{1e3 * k:.1f} / {1e3 * d:.1f}" for k, d in by_round))


def report_best(flags, sample):
    """Each library in the way in which it is faster."""
    def best(drawn, library):
        return max(images_a_second(flags)(drawn[f"{library}-{way}"]) for way in WAYS["both"])

    ways = {library: max(WAYS["both"], key=lambda way: images_a_second(flags)(sample.measured[f"{library}-{way}"]))
            for library in LIBRARIES}
    ratio = text(sample.tell(lambda drawn: best(drawn, "kolo") / best(drawn, "ddp")), digits=3)
    print(f"images/s, each its faster way: kolo ({ways['kolo']}) / ddp ({ways['ddp']}) = {ratio}")

    def over_fastest(drawn, library):
        """The faster way's step, beyond the fastest computation of both ways and languages."""
        computation = min(alone(PACED)(pairs) for pairs in drawn.values())
        return min(together(PACED)(drawn[f"{library}-{way}"]) for way in WAYS["both"]) - computation

    cells = [text(sample.tell(lambda drawn, of=library: over_fastest(drawn, of)), 1e3) for library in LIBRARIES]
    ratio = text(sample.tell(lambda drawn: over_fastest(drawn, "kolo") / over_fastest(drawn, "ddp")), digits=3)
    print(f"its step beyond the fastest computation of all, ms: kolo {cells[0]}, ddp {cells[1]}, ratio {ratio}")
    for library in LIBRARIES:
        ratio = text(sample.tell(lambda drawn: together(PACED)(drawn[f"{library}-zeros"])
                                 / together(PACED)(drawn[f"{library}-none"])), digits=3)
        print(f"a step of {library}, zeros / none: {ratio}")


def report(flags, rounds):
    sample = Sample(rounds)
    pairs = len(next(iter(sample.measured.values())))
    print(f"ResNet-50, {flags.image} x {flags.image}, batch {flags.batch}, {flags.ranks} ranks of {flags.threads} "
          f"threads{', heap kept' * flags.keep_heap}; {len(rounds)} rounds, {pairs} pairs; with 95 % intervals")
    for way in WAYS[flags.gradients]:
        report_way(flags, rounds, sample, way)
    if flags.gradients == "both":
        report_best(flags, sample)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kolo-resnet", required=True)
    for name, default in (("ranks", 2), ("rounds", 4), ("turns", 6), ("pairs", 4), ("batch", 2), ("image", 32),
                          ("threads", 1)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--gradients", choices=tuple(WAYS), default="both")
    parser.add_argument("--keep-heap", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--more", action="store_true")
    flags = parser.parse_args()

    if flags.memory:
        rounds = [measure_memory(flags) for _ in range(flags.rounds)]
        for job in rounds[0]:
            print(f"{job:11} {' '.join(f'{one[job]:.0f}' for one in rounds)} MiB a rank")
        return
    setup = {name: getattr(flags, name)
             for name in ("ranks", "pairs", "batch", "image", "threads", "gradients", "keep_heap")}
    rounds = []
    if flags.more and flags.json.exists():
        before = json.loads(flags.json.read_text(encoding="ascii"))
        if before["setup"] != setup:
            raise SystemExit(f"torch_step: {flags.json} is of other flags: {before['setup']}")
        rounds = before["rounds"]
    for _ in range(flags.rounds):
        rounds.append(measure_round(flags))
        if flags.json:
            flags.json.write_text(json.dumps({"setup": setup, "rounds": rounds}), encoding="ascii")
    report(flags, rounds)


main()
