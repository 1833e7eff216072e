# SPDX-License-Identifier: Apache-2.0
"""What must have happened in a run of scripts/test chaos, and whether it has.

The victim's phase is the one that it was hit in, which the rank notes down, not the one that was aimed at.

  phase                    all kinds but slow                      slow
  before, mpi_init, init   every survivor fails                    all complete
  first_step, step         every survivor is told who it was       all complete
  messages                 the same; of a kill, who had got all messages by then may complete
  last_step, shutdown      told who it was, or complete            all complete
  after                    all complete                            all complete

In every phase: a sentence that the program is told names no rank but the victim (unless it says what each rank gave); every process ends in time; its exit
status is the one that the program gave. While the start is under way a sentence may also name who has not reached a
step: MPI holds ranks up behind one that dies while a communicator is made, and nobody can tell which of them is dead.
"""
import re
from dataclasses import dataclass, field

LIMIT_S = 30  # from the blow to the end of the last survivor
LIMIT_OF_START_S = 60  # without a blow

STATUS_OF = {"return": 7, "exit": 3, "throw": 4, "leave": 7}
TOLD_STATUS = 10

FAILS, TOLD, MAY, COMPLETES = "fails", "told", "may", "completes"
EXPECTED = {"before": FAILS, "mpi_init": FAILS, "init": FAILS, "first_step": TOLD, "step": TOLD, "messages": TOLD, "last_step": MAY,
            "shutdown": MAY, "after": COMPLETES}
# Amid messages: a receive from any rank waits on, for others may send; a program's exception drops its handles first.
CODES_OF_MESSAGES = {"return": ("cancelled", "expired"), "throw": ("cancelled", "expired"), "exit": ("expired",),
                     "leave": ("expired",)}
CODES = {"kill": ("rank_lost",), "stop": ("timeout",), "absent": ("timeout",), "return": ("rank_lost", "user_exception"), "exit": ("rank_lost",),
         "throw": ("rank_lost", "user_exception"), "mismatch": ("mismatch",), "leave": ("rank_lost",)}

LATE = "did not reach the step"  # of the start

# Ranks that a sentence names, and does not blame: the other end of a message, which has waited, too, and those that ended
# because of the first.
BLAMELESS = re.compile(r"^(?:send|recv) of [^:]*: (?:rank \d+ has not received it)?"
                       r"|, and ranks? [\d, and-]+ (?:has given up its (?:send|receive) )?because of that(?:; ranks? [\d, and-]+)?"
                       r"|because of that rank \d+")
RANKS = re.compile(r"\branks? (\d+(?:(?:-|, | and )\d+)*)")
NODES = re.compile(r"\bnodes? (\d+(?:(?:-|, | and )\d+)*)")


@dataclass
class Facts:
    """What one rank noted down (tests/chaos/facts.hpp)."""
    lines: list = field(default_factory=list)  # (seconds, text)

    @staticmethod
    def parse(text):
        facts = Facts()
        for line in text.splitlines():
            seconds, _, rest = line.partition(" ")
            facts.lines.append((float(seconds), rest))
        return facts

    def of(self, word):
        """(seconds, what follows the word) of each line that begins with it."""
        return [(seconds, text[len(word):].strip()) for seconds, text in self.lines
                if text == word or text.startswith(word + " ")]

    def first(self, word):
        found = self.of(word)
        return found[0] if found else None


def expected(phase, kind):
    """What is expected of survivors; `phase` None: nobody was hit."""
    return COMPLETES if phase is None or kind == "slow" else EXPECTED[phase]


def numbers(pattern, sentence):
    found = set()
    for text in pattern.findall(sentence):
        for part in re.split(r", | and ", text):
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return found


def names(plan, sentence, gone=frozenset()):
    """(whether it names the victim, healthy ranks that it names). A node that does not answer may stand for its leader.
    `gone`: ranks that have ended because the victim has; they stand for it."""
    sentence = BLAMELESS.sub("", sentence)
    ranks = numbers(RANKS, sentence)
    nodes = numbers(NODES, sentence)
    victims = {plan.victim, *gone}
    leading = [number for number, members in enumerate(plan.nodes) if members[0] in victims]
    healthy = ranks - victims
    wrong_nodes = {f"node {number}" for number in nodes if number >= len(plan.nodes)
                   or not victims & set(plan.nodes[number])}
    named = bool(ranks & victims) or bool(nodes & set(leading))
    return named, sorted(f"rank {rank}" for rank in healthy) + sorted(wrong_nodes)


def judge_told(plan, victim_phase, rank, facts, want, gone):
    complaints = []
    told = facts.of("TOLD")
    if plan.kind == "kill" and victim_phase == "messages" and not told and facts.first("STEPS"):
        want = MAY
    for _, text in told:
        phase, code, sentence = (text.split(" ", 2) + ["", ""])[:3]
        named, healthy = names(plan, sentence, gone)
        # Of a mismatch it says what each rank gave.
        if healthy and plan.kind != "mismatch" and not (want == FAILS and LATE in sentence):
            complaints.append(f"rank {rank} was told of {', '.join(healthy)}, which did nothing wrong: {sentence}")
        if want == COMPLETES:
            complaints.append(f"rank {rank} was told of a failure in {phase}: {code}: {sentence}")
        elif want == TOLD and not named:
            complaints.append(f"rank {rank} was not told of rank {plan.victim}: {code}: {sentence}")
        elif want == TOLD and code not in (CODES[plan.kind] + (CODES_OF_MESSAGES.get(plan.kind, ()) if phase == "messages" else ()) +
                                           (("timeout",) if gone else ())):
            complaints.append(f"rank {rank} was told {code}, not {' or '.join(CODES[plan.kind])}: {sentence}")
    if want == TOLD and len(told) != 1:
        complaints.append(f"rank {rank} was told {len(told)} times, not once")
    if want == FAILS and facts.first("STEPS"):
        complaints.append(f"rank {rank} completed all steps without rank {plan.victim}")
    if want == COMPLETES and not facts.first("STEPS"):
        complaints.append(f"rank {rank} did not complete its steps")
    return complaints


def judge_end(rank, facts, status, want, word="status"):
    """The exit status, and that it came."""
    end = facts.first("EXIT")
    if end is None:
        last = facts.lines[-1][1] if facts.lines else "it never came to main"
        return [f"rank {rank} did not end; the last that it noted: {last}"]
    if status is None:
        return []
    return [] if end[1] == f"{word} {status}" else [f"rank {rank} ended with {end[1]}, the program with {status}"]


def ended_by_broken_pipe(plan, facts):
    """A known limit (docs/writing-a-trainer.md): Open MPI writes to the socket of a rank that has just died, and the
    system's SIGPIPE ends the writer."""
    end = facts.first("EXIT")
    return plan.start == "hosts" and plan.kind == "kill" and end is not None and end[1] == "signal 13"


def ended_by_broken_pipes(plan, facts):
    return {rank for rank, one in enumerate(facts) if ended_by_broken_pipe(plan, one)}


KEPT_BY_MPI = re.compile(r"^kolo: rank (\d+): a call of MPI [^:]* has not returned within ", re.MULTILINE)


def kept_by_mpi(plan, facts, output):
    """Another one: Open MPI loops for ever in a call, and Kolo ends the process."""
    said = {int(rank) for rank in KEPT_BY_MPI.findall(output)}
    return {rank for rank in said if plan.start == "hosts" and plan.kind == "kill" and facts[rank].first("EXIT")
            and facts[rank].first("EXIT")[1] == "status 1"}


def judge(plan, facts, output):
    """Complaints about a run; `facts` by rank, `output`: what was printed. And the phase that the victim was hit in (None:
    it was not)."""
    blow = facts[plan.victim].first("HIT")
    phase = blow[1] if blow else None
    want = expected(phase, plan.kind)
    complaints = []
    ended = ended_by_broken_pipes(plan, facts) | kept_by_mpi(plan, facts, output)
    for rank, one in enumerate(facts):
        complaints += [f"rank {rank}: {text}" for _, text in one.of("WRONG")]
        complaints += [f"rank {rank} still holds after shutdown: {text}" for _, text in one.of("HOLDS")]
        if blow and rank == plan.victim and plan.kind not in ("slow", "mismatch"):
            if plan.kind in STATUS_OF:
                status = 0 if phase == "after" and plan.kind == "return" else STATUS_OF[plan.kind]
                complaints += judge_end(rank, one, status, want)
            continue
        if rank in ended:
            continue
        complaints += judge_told(plan, phase, rank, one, want, ended)
        # A process that gives up inside MPI_Init has no status of the program's to end with.
        status = None if want == FAILS and not one.of("TOLD") else TOLD_STATUS if one.of("TOLD") else 0
        aborts = plan.style == "abort" and one.of("TOLD") and rank % plan.per_node != 0
        complaints += judge_end(rank, one, "6" if aborts else status, want, "signal" if aborts else "status")
    return complaints, phase
