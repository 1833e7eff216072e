#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/test chaos plans for a seed, and what it concludes from what ranks note down.

    chaos_test.py REPOSITORY
"""
import sys
import unittest
from dataclasses import replace
from pathlib import Path

ROOT = Path(sys.argv.pop(1))
sys.path.insert(0, str(ROOT / "scripts/internal"))
sys.dont_write_bytecode = True
from chaos import judge, plan  # noqa: E402


def run(kind="kill", victim=2, ranks=4, per_node=4, start="node"):
    return replace(plan.plan_of(1), kind=kind, victim=victim, ranks=ranks, per_node=per_node, start=start)


def facts_of(*lines):
    return judge.Facts.parse("".join(f"{number}.5 {line}\n" for number, line in enumerate(lines)))


def survivor(sentence, code="rank_lost"):
    return facts_of("PROCESS 7", "READY", f"TOLD step {code} {sentence}", "LEFT", "EXIT status 10")


def complete():
    return facts_of("PROCESS 7", "READY", "STEPS 20", "LEFT", "EXIT status 0")


def dead(phase="step", end="signal 9"):
    return facts_of("PROCESS 9", "READY", f"HIT {phase}", f"EXIT {end}")


def complaints(the_plan, facts, output=""):
    return judge.judge(the_plan, facts, output)[0]


class Plans(unittest.TestCase):
    def test_a_seed_is_a_plan(self):
        self.assertEqual(plan.plan_of(5), plan.plan_of(5))

    def test_a_hundred_runs_meet_every_kind_in_every_phase(self):
        for first in (1, 123456789012):
            met = {(one.phase, one.kind) for one in map(plan.plan_of, range(first, first + 100))}
            self.assertEqual(met, set(plan.CELLS))

    def test_victims_and_nodes_are_among_the_ranks(self):
        for one in map(plan.plan_of, range(1000)):
            self.assertIn(one.victim, range(one.ranks))
            self.assertEqual(sum(one.nodes, []), list(range(one.ranks)))
            self.assertLessEqual(one.ranks, 8)
            if one.kind in ("return", "exit", "throw"):
                self.assertEqual(one.delay_us, 0)


    def test_runs_amid_messages_meet_every_end_in_small_worlds(self):
        for first in (1, 123456789012):
            plans = [plan.plan_of(seed, cells=plan.CELLS_OF_MESSAGES) for seed in range(first, first + 100)]
            self.assertEqual({(one.phase, one.kind) for one in plans}, set(plan.CELLS_OF_MESSAGES))
            self.assertEqual({one.style for one in plans}, {"calls", "session", "escape", "abort"})
            for one in plans:
                self.assertIn(one.ranks, (2, 3, 4))
                self.assertIn(one.victim, range(one.ranks))
                self.assertEqual(sum(one.nodes, []), list(range(one.ranks)))


class Naming(unittest.TestCase):
    def test_ranks_in_the_middle_of_a_chain_are_not_blamed(self):
        first = run(kind="leave", victim=1)
        recv = "recv of up to 3 elements of int32 from rank 2 with tag 1: "
        for sentence in (recv + "rank 1 has left the job, and rank 2 because of that",
                         "rank 1 has shut down, and rank 2 because of that; rank 2 will not submit tensor \"w\".",
                         "rank 1 has left the job, and because of that rank 2 was lost: its process has ended.",
                         recv + "rank 1 has left the job, and rank 2 has given up its send because of that",
                         recv.replace("recv", "send") + "rank 2 has not received it within 15 s; meanwhile rank 1 has "
                         "left the job"):
            self.assertEqual(judge.names(first, sentence), (True, []), sentence)
        self.assertEqual(judge.names(first, recv + "rank 2 has left the job"), (False, ["rank 2"]))

    def test_ranks_and_ranges(self):
        self.assertEqual(judge.names(run(), "ranks 0-1, 3 and 2 have not submitted it"), (True, ["rank 0", "rank 1", "rank 3"]))
        self.assertEqual(judge.names(run(), 'tensor "rank": rank 2 has left'), (True, []))

    def test_a_node_stands_for_its_leader_alone(self):
        on_two = run(per_node=2)
        self.assertEqual(judge.names(on_two, "node 1 did not answer"), (True, []))
        self.assertEqual(judge.names(on_two, "node 0 did not answer"), (False, ["node 0"]))
        self.assertEqual(judge.names(run(per_node=2, victim=3), "node 1 did not answer"), (False, []))


class Judging(unittest.TestCase):
    def test_amid_messages_a_receive_may_expire_if_it_names_who_left(self):
        leaves = run(kind="leave")
        for phase, left, complaint in (("messages", "; meanwhile rank 2 has left the job", False), ("messages", "", True),
                                       ("step", "; meanwhile rank 2 has left the job", True)):
            told = survivor("recv of up to 1 element of int32 from any rank with tag 1: no message that fits has come "
                            "within 15 s" + left, "expired")
            told.lines = [(seconds, text.replace("TOLD step", "TOLD " + phase)) for seconds, text in told.lines]
            self.assertEqual(bool(complaints(leaves, [told, told, dead(phase, "status 7"), told])), complaint, (phase, left))

    def test_all_as_expected(self):
        told = [survivor("rank 2 was lost: its process has ended.") for _ in range(4)]
        told[2] = dead()
        self.assertEqual(judge.judge(run(), told, ""), ([], "step"))

    def test_each_thing_that_can_go_wrong_is_told(self):
        good = survivor("rank 2 was lost.")
        for name, bad, want in (
                ("nobody named", survivor("a rank was lost."), "rank 1 was not told of rank 2: rank_lost: a rank was lost."),
                ("another named", survivor("ranks 1, 2 were lost."),
                 "rank 1 was told of rank 1, which did nothing wrong: ranks 1, 2 were lost."),
                ("another code", survivor("rank 2 was lost.", "timeout"),
                 "rank 1 was told timeout, not rank_lost: rank 2 was lost."),
                ("not told", complete(), "rank 1 was told 0 times, not once"),
                ("does not end", facts_of("READY"), "rank 1 did not end; the last that it noted: READY"),
                ("never began", facts_of(), "rank 1 did not end; the last that it noted: it never came to main"),
                ("another status", facts_of("TOLD step rank_lost rank 2 was lost.", "EXIT status 1"),
                 "rank 1 ended with status 1, the program with 10"),
                ("something held", facts_of("TOLD step rank_lost rank 2 was lost.", "LEFT", "HOLDS open: 5 memfd:kolo"),
                 "rank 1 still holds after shutdown: open: 5 memfd:kolo"),
                ("wrong data", facts_of("WRONG byte 3"), "rank 1: byte 3")):
            with self.subTest(name):
                self.assertIn(want, complaints(run(), [good, bad, dead(), good]))

    def test_who_has_got_all_messages_before_a_kill_completes(self):
        facts = [complete(), survivor("rank 2 was lost: gone"), dead("messages"), complete()]
        self.assertEqual(complaints(run(), facts), [])
        self.assertNotEqual(complaints(run(kind="exit"), facts), [])
        facts[2] = dead()
        self.assertNotEqual(complaints(run(), facts), [])

    def test_on_hosts_a_call_of_mpi_that_never_returns_is_a_known_limit(self):
        kept = facts_of("PROCESS 7", "READY", "EXIT status 1")
        waited = survivor("rank 1, the leader of this node, does not answer; its process is stopped", "timeout")
        facts = [survivor("rank 2 was lost: connection closed"), kept, dead(), waited]
        said = "| x\nkolo: rank 1: a call of MPI point-to-point has not returned within 8 s\n"
        self.assertEqual(complaints(run(start="hosts"), facts, said), [])
        self.assertNotEqual(complaints(run(start="hosts"), facts, said.replace("rank 1", "rank 0")), [])
        self.assertNotEqual(complaints(run(start="hosts"), facts), [])
        self.assertNotEqual(complaints(run(), facts, said), [])

    def test_on_hosts_the_signal_of_a_broken_pipe_is_a_known_limit(self):
        pipe = facts_of("PROCESS 7", "READY", "EXIT signal 13")
        told = [survivor("rank 2 was lost: connection closed"), pipe, dead(), survivor("rank 2 was lost: gone")]
        self.assertEqual(complaints(run(start="hosts"), told), [])
        self.assertNotEqual(complaints(run(), told), [])
        told[3] = survivor("rank 1 was lost: its process has ended.")
        self.assertEqual(complaints(run(start="hosts"), told), [])
        told[3] = survivor("rank 0 was lost: its process has ended.")
        self.assertNotEqual(complaints(run(start="hosts"), told), [])
        self.assertNotEqual(complaints(run("throw", start="hosts"), told), [])

    def test_before_init_has_returned_survivors_fail_in_whatever_way(self):
        gone = facts_of("PROCESS 7", "EXIT status 1")
        self.assertEqual(complaints(run(), [gone, gone, dead("mpi_init"), gone]), [])
        self.assertIn("rank 1 completed all steps without rank 2", complaints(run(), [gone, complete(), dead("init"), gone]))

    def test_after_the_last_step_they_may_be_told(self):
        self.assertEqual(complaints(run(), [complete(), survivor("rank 2 was lost."), dead("shutdown"), complete()]), [])
        self.assertIn("rank 1 was told of rank 0, which did nothing wrong: rank 0 was lost.",
                      complaints(run(), [complete(), survivor("rank 0 was lost."), dead("shutdown"), complete()]))

    def test_who_is_merely_slow_harms_nobody(self):
        slow = facts_of("HIT step", "CONTINUED", "STEPS 20", "EXIT status 0")
        self.assertEqual(complaints(run("slow"), [complete(), complete(), slow, complete()]), [])
        self.assertIn("rank 0 was told of a failure in step: timeout: rank 2 is late.",
                      complaints(run("slow"), [survivor("rank 2 is late.", "timeout"), complete(), slow, complete()]))

    def test_the_status_of_who_leaves_is_its_own(self):
        told = [survivor("rank 2 has left.") for _ in range(4)]
        told[2] = dead(end="status 3")
        self.assertEqual(complaints(run("exit"), told), [])
        told[2] = dead(end="status 1")
        self.assertEqual(complaints(run("exit"), told), ["rank 2 ended with status 1, the program with 3"])

    def test_a_victim_that_was_not_reached_is_one_of_all(self):
        self.assertEqual(judge.judge(run(), [complete()] * 4, ""), ([], None))
        self.assertEqual(complaints(run(), [complete()] * 3 + [facts_of("READY", "EXIT status 0")]),
                         ["rank 3 did not complete its steps"])


unittest.main()
