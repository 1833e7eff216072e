# SPDX-License-Identifier: Apache-2.0
"""The pictures of docs/benchmarks, each a function of what scripts/bench cpu has written: its SVG text, or None where
nothing of it was measured."""
import math
from collections import defaultdict

from .drawing import ARENA, COMPUTING, Drawing, FRAME, GRID, MARGIN, PEER, PRIVATE, WIDTH, one_of_each, provenance
from .targets import HOROVOD, size_name, torch_name

MODELS = {"resnet50": "ResNet-50, 102 MB of gradients", "bert-base": "BERT-base, 438 MB of gradients"}
NAMES = {"resnet50": "ResNet-50", "bert-base": "BERT-base"}


def parts_with(data, wanted):
    """(part, its records that are wanted), of those parts that have some."""
    found = [(part, [record for record in part["records"] if wanted(record)]) for part in data["parts"].values()]
    return [(part, records) for part, records in found if records]


# ---------------------------------------------------------------- steps: bars

LEFT, RIGHT, BAR, GAP = 270, 80, 17, 5
MPI, PACKED = "MPI, a call a tensor", "MPI, packed"


def label_of(name, peer):
    if name.startswith("ddp"):
        return f"{torch_name(peer)} DDP over Gloo"
    return MPI if name.startswith("mpi-per-tensor") else PACKED


def times_of(records, arena):
    """{contestant: its times, in ms} of a step whose gradients are submitted as prepared requests."""
    times = defaultdict(list)
    for record in records:
        if record["submit"] != "prepared" or record.get("arena", False) != arena:
            continue
        times["Kolo"].append(record["time_us"] / 1000)
        for name, peer in record.get("baseline", {}).items():
            times[label_of(name, peer)].append(peer["time_us"] / 1000)
    return times


def bars_of(records, model, ranks):
    """[(label, ms, colour)], the fastest first. Of Kolo's jobs the slowest counts, of a peer's the fastest."""
    own, arena = times_of(records, False), times_of(records, True)
    bars = [("Kolo, in a GradientArena", max, arena["Kolo"], ARENA),
            ("Kolo, in private memory", max, own["Kolo"], PRIVATE),
            ("Open MPI, the best of its ways", min, own[MPI] + own[PACKED], PEER)]
    bars += [(label, min, times, PEER) for label, times in own.items() if label.startswith("PyTorch")]
    if (model, ranks) in HOROVOD:
        factor = min(HOROVOD[model, ranks])
        bars.append(("Horovod 0.28.1, its best (indirectly)", min, [factor * time for time in own[MPI]], PEER))
    found = [(label, choose(times), colour) for label, choose, times, colour in bars if times]
    return sorted(found, key=lambda bar: bar[1])


def draw_bars(drawing, y, bars):
    longest = max(time for _, time, _ in bars)
    for label, time, colour in bars:
        length = (WIDTH - LEFT - RIGHT) * time / longest
        drawing.text(LEFT - 8, y + 13, label, anchor="end")
        drawing.box(LEFT, y, length, BAR, colour)
        drawing.text(LEFT + length + 6, y + 13, f"{time:.0f}" if time >= 100 else f"{time:.1f}")
        y += BAR + GAP
    return y


def steps(data):
    """How long the gradients of a step take, beside the peers."""
    parts = parts_with(data, lambda record: record["collective"] == "step" and record["model"] in MODELS)
    if not parts:
        return None
    groups = defaultdict(list)
    for _, records in parts:
        for record in records:
            groups[list(MODELS).index(record["model"]), record["ranks"]].append(record)
    versions = one_of_each(sorted(torch_name(peer) for _, records in parts for record in records
                                  for peer in record.get("baseline", {}).values() if "torch" in peer))
    drawing = Drawing()
    y = drawing.head("Reducing the gradients of one step, in milliseconds: shorter is better",
                     [*provenance([part for part, _ in parts], [versions] if versions else []),
                      "All peers took turns with Kolo but Horovod, whose factor over Open MPI is of another machine. "
                      "4 ranks share 2 CPUs."])
    for (index, ranks), records in sorted(groups.items()):
        model = list(MODELS)[index]
        y += 14
        drawing.text(MARGIN, y, f"{MODELS[model]}, {ranks} ranks", 13, bold=True)
        y = draw_bars(drawing, y + 8, bars_of(records, model, ranks))
    return drawing.svg(y + 8)


# ---------------------------------------------------------------- sizes: ratio curves

LEAST, TICKS = 0.5, (0.5, 1, 2, 4, 8, 16, 32)
PANEL, PANEL_HEIGHT, PANEL_GAP = 372, 300, 46


class Panel:
    """A square of two logarithmic axes: bytes, and how many times as fast."""

    def __init__(self, drawing, left, top, sizes, most):
        self.drawing, self.left, self.top, self.sizes, self.most = drawing, left, top, sizes, most

    def x(self, size):
        span = math.log(self.sizes[-1] / self.sizes[0]) or 1  # one size alone stands on the left
        return self.left + (PANEL - 20) * math.log(size / self.sizes[0]) / span + 10

    def y(self, ratio):
        shown = min(max(ratio, LEAST), self.most)
        return self.top + PANEL_HEIGHT * (1 - math.log(shown / LEAST) / math.log(self.most / LEAST))

    def axes(self, title):
        right, bottom = self.left + PANEL, self.top + PANEL_HEIGHT
        self.drawing.text(self.left, self.top - 8, title, 13, bold=True)
        for tick in TICKS:
            if tick <= self.most:
                self.drawing.line([(self.left, self.y(tick)), (right, self.y(tick))], GRID)
                self.drawing.text(self.left - 5, self.y(tick) + 4, f"{tick:g} x", 11, "end")
        for size in self.sizes[::2]:
            self.drawing.line([(self.x(size), self.top), (self.x(size), bottom)], GRID)
            self.drawing.text(self.x(size), bottom + 15, byte_name(size), 10, "middle")
        self.drawing.line([(self.left, self.y(1)), (right, self.y(1))], FRAME, 1.4)
        self.drawing.line([(self.left, self.top), (self.left, bottom), (right, bottom)], FRAME)

    def curve(self, records, colour):
        records = sorted(records, key=lambda record: record["bytes"])
        upper = [(self.x(record["bytes"]), self.y(max(record["ratios"]))) for record in records]
        lower = [(self.x(record["bytes"]), self.y(min(record["ratios"]))) for record in records]
        middle = [(self.x(record["bytes"]), self.y(record["ratio"])) for record in records]
        self.drawing.area(upper + lower[::-1], colour)
        self.drawing.line(middle, colour, 2)
        for point in middle:
            self.drawing.dot(*point, colour)


def byte_name(size):
    name = size_name(size)
    return f"{name[:-1]} {name[-1]}iB" if name[-1].isalpha() else f"{name} B"


def sizes(data):
    """How many times as fast as Open MPI an all-reduce is, by size, with its spread."""
    parts = [(part, part["records"]) for name, part in data["parts"].items() if name.startswith("curve-")]
    if not parts:
        return None
    records = [record for _, found in parts for record in found]
    launches = max(len(record["ratios"]) for record in records)
    drawing = Drawing()
    y = drawing.head("All-reduce: the time of Open MPI over Kolo's, by size: above 1 Kolo is faster",
                     [*provenance([part for part, _ in parts]),
                      "At every size the fastest of Open MPI's settings: bound, unbound, segmented rings of 128 KiB "
                      "and 1 MiB, UCX. float32, sums, in place.",
                      f"Lines: medians of {launches} launches. Bands: the lowest and the highest launch. "
                      "4 ranks share 2 CPUs."])
    lines = [("gradients in a GradientArena", ARENA, True), ("in private memory", PRIVATE, False)]
    for number, (label, colour, _) in enumerate(lines):
        drawing.box(MARGIN + 220 * number, y, 18, 10, colour)
        drawing.text(MARGIN + 24 + 220 * number, y + 10, label)
    highest = max(max(record["ratios"]) for record in records)
    most = next((tick for tick in TICKS if tick >= highest), TICKS[-1])
    all_sizes = sorted({record["bytes"] for record in records})
    for number, ranks in enumerate(sorted({record["ranks"] for record in records})):
        panel = Panel(drawing, 46 + (PANEL + PANEL_GAP) * number, y + 44, all_sizes, most)
        panel.axes(f"{ranks} ranks")
        for _, colour, arena in lines:
            panel.curve([record for record in records if record["ranks"] == ranks and record["arena"] == arena], colour)
    return drawing.svg(y + 44 + PANEL_HEIGHT + 28)


# ---------------------------------------------------------------- timeline: one step

ROW = 2.6
AXIS = 150  # where time 0 lies


def scale_of(last_us):
    """Microseconds to pixels, and the milliseconds between ticks."""
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**9) if last_us / 1000 / step <= 12)
    return (lambda us: AXIS + (WIDTH - AXIS - 30) * us / last_us), step


def draw_axis(drawing, x, step, last_us, top, bottom):
    for ms in range(0, int(last_us / 1000) + 1, step):
        drawing.line([(x(1000 * ms), top), (x(1000 * ms), bottom)], GRID)
        drawing.text(x(1000 * ms), bottom + 14, f"{ms} ms", 10, "middle")


def draw_computing(drawing, x, y, submitted):
    """The backward pass in one bar; shades change from gradient to gradient."""
    begin = 0
    for number, end in enumerate(submitted):
        drawing.box(x(begin), y, x(end) - x(begin), BAR, (COMPUTING, "#a9aeb5")[number % 2])
        begin = end


def timeline(data):
    """One training step: the backward pass, and each gradient from its submission until it is reduced."""
    parts = parts_with(data, lambda record: "timeline" in record)
    if not parts:
        return None
    (part, (record, *_)) = parts[0]
    times = record["timeline"]
    submitted, done, end = times["submitted_us"], times["done_us"], times["end_us"]
    apart = record["compute_us"] + record["reduce_us"]
    last = max(end, max(done), apart)
    colour = ARENA if record["arena"] else PRIVATE
    where = "a GradientArena" if record["arena"] else "private memory"
    drawing = Drawing()
    y = drawing.head("One training step: gradients are reduced while the backward pass still computes",
                     [*provenance([part]),
                      f"{NAMES.get(record['model'], record['model'])}'s {record['tensors']} gradients "
                      f"({record['bytes'] / 1e6:.0f} MB) in {where}, {record['ranks']} ranks; rank 0, the step of "
                      "median length of 21.",
                      "The backward pass is arithmetic, split over the gradients by their sizes."])
    x, step = scale_of(last)
    top, rows = y + 8, y + 62
    bottom = rows + ROW * len(done)
    draw_axis(drawing, x, step, last, top, bottom + 44)
    drawing.text(AXIS - 8, top + 13, "backward pass", anchor="end")
    draw_computing(drawing, x, top, submitted)
    drawing.text(AXIS - 8, top + 35, "waiting", anchor="end")
    drawing.box(x(submitted[-1]), top + 22, max(x(end) - x(submitted[-1]), 0.5), BAR, "white", FRAME)
    for number, words in enumerate(("each gradient,", "from submitted", "to reduced;", "the last layer's", "above")):
        drawing.text(AXIS - 8, rows + 14 + 15 * number, words, anchor="end")
    for number, (begin, finish) in enumerate(zip(submitted, done)):
        drawing.box(x(begin), rows + ROW * number, max(x(finish) - x(begin), 0.7), ROW - 0.6, colour)
    for moment in (submitted[-1], end):
        drawing.line([(x(moment), top), (x(moment), bottom)], FRAME, 1, "4 3")
    drawing.text(AXIS - 8, bottom + 25, "one after the other", anchor="end")
    drawing.box(x(0), bottom + 12, x(record["compute_us"]) - x(0), BAR, COMPUTING)
    drawing.box(x(record["compute_us"]), bottom + 12, x(apart) - x(record["compute_us"]), BAR, colour)
    drawing.text(MARGIN, bottom + 84, f"This step: {end / 1000:.1f} ms, of which {(end - submitted[-1]) / 1000:.1f} ms "
                 "waiting after the backward pass.")
    drawing.text(MARGIN, bottom + 100, f"Medians of all steps: computing alone {record['compute_us'] / 1000:.1f} ms, "
                 f"reducing alone {record['reduce_us'] / 1000:.1f} ms, both together "
                 f"{record['time_us'] / 1000:.1f} ms.")
    return drawing.svg(bottom + 112)


PICTURES = {"steps": steps, "sizes": sizes, "timeline": timeline}
