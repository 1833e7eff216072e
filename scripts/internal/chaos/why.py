# SPDX-License-Identifier: Apache-2.0
"""What kolo-why must say of a run of scripts/test chaos, and whether it does. The judge knows who was hit, and when;
kolo-why sees the ranks' recorders alone.

It is asked when the survivors have ended; a victim that was stopped is still there. Of `slow` it is asked while the
victim is stopped. Of `kill` it is asked once more without the files of the victim's node ("hidden"), as if its host were
gone.

  phase                     kill     hidden        stop, slow   absent   return, exit   throw
  before, mpi_init          nothing                nothing
  init                      nothing, or the victim, whatever the word
  first_step, step          killed   lost          stopped      late     left, gave up  gave up, left
  messages                  the same; of a rank that calls shutdown (leave): left
  last_step, shutdown       the same, or nothing where no rank was told of anything
  after                     nothing

Of a `mismatch`, which comes amid the steps, it must say that ranks disagree, and what the victim gave.

"Nothing": there is no recorder, or it names nobody. A healthy rank may never be named. Where it names nobody although a
rank was told of the victim, that is a miss.
"""
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import judge as judging

WORDS = {"kill": {"killed"}, "hidden": {"lost", "killed"}, "stop": {"stopped"}, "slow": {"stopped"},
         "absent": {"late"}, "return": {"left", "gave up"}, "exit": {"left", "gave up"},
         "throw": {"gave up", "left"}, "mismatch": {"mismatch"}, "leave": {"left"}}
NOTHING, MAYBE, NAMED = "nothing", "maybe", "named"
WANTED = {"before": NOTHING, "mpi_init": NOTHING, "init": MAYBE, "first_step": NAMED, "step": NAMED, "messages": NAMED,
          "last_step": NAMED, "shutdown": NAMED, "after": NOTHING}


@dataclass
class Saying:
    kind: str  # of the plan, or "hidden"
    verdict: str  # "-": there is no recorder
    suspects: list
    text: str


def ask(program, folder, kind):
    """What kolo-why says of the recorders in the folder."""
    done = subprocess.run([str(program), "--json", str(folder)], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        return Saying(kind, "-", [], done.stderr.strip())
    said = json.loads(done.stdout)
    return Saying(kind, said["verdict"], said["suspects"], "\n".join(said["sentences"]))


def ask_without_host(program, folder, plan):
    """The same without the files of the victim's node; None: there are no others."""
    hidden = next(members for members in plan.nodes if plan.victim in members)
    copy = Path(folder).with_name("recorders-left")
    if not Path(folder).is_dir():
        return None
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    for rank in hidden:
        for file in copy.glob(f"*/rank.{rank}"):
            file.unlink()
    if not list(copy.glob("*/rank.*")):
        return None
    return ask(program, copy, "hidden")


def judge(plan, phase, was_told, saying, gone=frozenset()):
    """Complaints about one answer. `was_told`: a survivor was told of an error. `gone`: ranks that have ended because the
    victim has."""
    if phase is None:
        return []
    wanted = WANTED[phase]
    healthy = sorted(set(saying.suspects) - {plan.victim, *gone})
    if healthy:
        return [f"kolo-why ({saying.kind}) names {healthy}, which did nothing wrong: {saying.verdict}: {saying.text}"]
    if saying.kind == "mismatch":  # nobody is to blame; the sentence says what each rank gave
        named = plan.victim in judging.numbers(judging.RANKS, saying.text)
        return [] if saying.verdict == "mismatch" and named else [
            f"kolo-why does not tell of the mismatch: {saying.verdict}: {saying.text}"]
    if wanted == NOTHING:
        return [f"kolo-why ({saying.kind}) names the victim: {saying.text}"] if saying.suspects else []
    if not saying.suspects:
        # Nobody was kept waiting: the job is over, or its start had not begun here.
        ends = phase in ("last_step", "shutdown")
        if wanted == MAYBE or (not was_told and (ends or saying.kind != "slow")):
            return []
        return [f"kolo-why ({saying.kind}) does not name rank {plan.victim}: {saying.verdict}: {saying.text}"]
    if wanted == NAMED and saying.verdict not in WORDS[saying.kind]:
        return [f"kolo-why ({saying.kind}) says {saying.verdict}, not {' or '.join(sorted(WORDS[saying.kind]))}: "
                f"{saying.text}"]
    return []
