# SPDX-License-Identifier: Apache-2.0
"""What happens in a run of scripts/test chaos. All of it follows from the run's seed."""
import random
from dataclasses import dataclass

PHASES = ("before", "mpi_init", "init", "first_step", "step", "messages", "last_step", "shutdown", "after")
KINDS = ("kill", "stop", "slow", "return", "exit", "throw")
KINDS_FOR_WHY = (*KINDS, "absent", "mismatch", "leave")
STARTS = ("node", "virtual", "hosts")

# Runs of consecutive seeds go through all of these: every kind in every phase, most of them amid the steps.
CELLS = ([(phase, kind) for phase in ("before", "first_step", "step", "step", "step", "last_step") for kind in KINDS] +
         [(phase, kind) for phase in ("mpi_init", "init", "init") for kind in ("kill", "stop", "slow")] +
         [(phase, kind) for phase in ("shutdown", "after") for kind in ("kill", "stop", "slow", "exit")])

# Where kolo-why is judged: also a rank that never submits anything more, from some moment amid the steps, and one whose
# tensor has another shape than that of the others.
CELLS_FOR_WHY = (CELLS + [(phase, "absent") for phase in ("first_step", "step", "step", "last_step")] +
                 [("step", "mismatch")] * 3)

# Where the ranks do nothing but send to each other and receive (--messages): a rank's end fails a message of another
# one, whose end fails one of a third.
CELLS_OF_MESSAGES = [("messages", kind) for kind in ("leave", "return", "exit", "throw", "kill")]

# What is known not to go as expected yet, and why: (phase, kind) that a run aims at. Such runs are left out, unless asked
# for, and the docs say so (docs/writing-a-trainer.md).
KNOWN_LIMITS = {}

# Short, but not so short that ranks of a busy machine seem stopped.
TIMEOUT_S, LATCH_TIMEOUT_S, CONNECT_TIMEOUT_S = 5, 3, 10
# Between nodes each rank of a chain waits for KOLO_LATCH_TIMEOUT_S; the last one's deadline comes after all of them.
TIMEOUT_OF_CHAIN_S, LATCH_OF_CHAIN_S = 15, 1
STEPS = 20


@dataclass(frozen=True)
class Plan:
    seed: int
    start: str
    ranks: int
    per_node: int  # ranks of a node; of hosts the slots
    victim: int
    kind: str
    phase: str  # that is aimed at
    event: int  # of that phase
    delay_us: int
    pause_ms: int
    style: str
    settings: tuple

    @property
    def nodes(self):
        """Ranks by node."""
        return [list(range(first, min(first + self.per_node, self.ranks)))
                for first in range(0, self.ranks, self.per_node)]

    def describe(self):
        where = {"node": "one node", "virtual": f"virtual nodes of {self.per_node}",
                 "hosts": f"{len(self.nodes)} hosts of {self.per_node}"}[self.start]
        when = f"event {self.event}" + (f" and {self.delay_us} us" if self.delay_us else "")
        settings = " ".join(f"{name}={value}" for name, value in self.settings)
        return (f"{self.ranks} ranks, {where}: rank {self.victim}, {self.kind} in {self.phase}, {when}"
                f"{f', for {self.pause_ms} ms' if self.kind == 'slow' else ''}; {self.style}; {settings}")

    def arguments(self, folder):
        """Of mpi_chaos."""
        fields = [folder, "OMPI_COMM_WORLD_RANK", self.seed, STEPS, self.victim, self.kind, self.phase, self.event,
                  self.delay_us, self.pause_ms, self.style]
        return [str(field) for field in fields] + [f"{name}={value}" for name, value in self.settings]


def is_left_out(seed):
    return CELLS[seed % len(CELLS)] in KNOWN_LIMITS


def delay_of(draw, phase, kind):
    if kind in ("return", "exit", "throw", "absent", "mismatch", "leave"):
        return 0  # they are what the main thread does
    if phase == "mpi_init":
        return draw.randrange(150_000)
    if phase == "init":
        return draw.randrange(20_000)
    if phase == "after":
        return draw.randrange(50_000)
    return 0 if draw.random() < 0.5 else int(10 ** draw.uniform(1.5, 4))


def settings_of(draw, start, per_node, phase):
    timeout, latch = (TIMEOUT_OF_CHAIN_S, LATCH_OF_CHAIN_S) if phase == "messages" else (TIMEOUT_S, LATCH_TIMEOUT_S)
    settings = {"KOLO_TIMEOUT_S": timeout, "KOLO_LATCH_TIMEOUT_S": latch,
                "KOLO_CONNECT_TIMEOUT_S": CONNECT_TIMEOUT_S, "KOLO_STALL_WARNING_S": draw.choice(("0.5", "100"))}
    if start == "virtual":
        settings["KOLO_RANKS_PER_NODE"] = per_node
    for name, values in (("KOLO_TREE_FANOUT", (1, 2)), ("KOLO_ROUTES", ("*:none=small;message:none=peers", "*:0-4K=small;message:0-=peers")),
                         ("KOLO_LOG_RING", ("4K", "16K")), ("KOLO_MESSAGE_RING", ("4K", "16K")), ("KOLO_PLAN", (0,)),
                         ("KOLO_OPEN_BATCHES", (1, 16)), ("KOLO_SPIN_US", (0, 50)), ("KOLO_SLOT_BYTES", ("4K", "64K"))):
        if draw.random() < 0.25:
            settings[name] = draw.choice(values)
    return tuple((name, str(value)) for name, value in settings.items())


def plan_of(seed, starts=STARTS, cells=None):
    cells = cells or CELLS
    phase, kind = cells[seed % len(cells)]
    draw = random.Random(seed)
    start = draw.choices(STARTS, (45, 40, 15))[0]
    if start not in starts:
        start = starts[0]
    if start == "node":
        ranks = draw.choices((1, 2, 3, 4, 5, 6, 8), (4, 30, 20, 25, 7, 7, 7))[0]
        ranks = max(ranks, 2) if kind == "mismatch" or phase == "messages" else ranks
        per_node = ranks
    elif start == "virtual":
        ranks = draw.choices((2, 3, 4, 5, 6, 8), (20, 15, 35, 10, 10, 10))[0]
        per_node = draw.randrange(1, ranks)
    else:
        hosts, per_node = draw.choice(((2, 1), (2, 2), (3, 1), (3, 2), (2, 4)))
        ranks = hosts * per_node
    events = {"first_step": 12, "step": 150, "last_step": 8, "messages": 60}
    event = draw.randrange(events[phase]) if phase in events else 0
    style = {"return": "calls", "mismatch": "session"}.get(kind, draw.choice(("calls", "session")))
    if phase == "messages":  # small worlds, and ends that bring others
        ranks = min(ranks, 4)
        per_node = ranks if start == "node" else per_node
        style = draw.choice(("calls", "session", "escape", "abort" if start == "node" else "escape"))
        style = {"return": "calls", "throw": draw.choice(("session", "escape"))}.get(kind, style)
    return Plan(seed=seed, start=start, ranks=ranks, per_node=per_node, victim=draw.randrange(ranks), kind=kind,
                phase=phase, event=event, delay_us=delay_of(draw, phase, kind), pause_ms=draw.randrange(100, 1500),
                style=style, settings=settings_of(draw, start, per_node, phase))
