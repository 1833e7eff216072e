#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/bench-cpu says of records: which peer counts, what is met, and what was not measured.

    bench_cpu_test.py REPOSITORY
"""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(sys.argv.pop(1)) / "scripts/internal"))
from bench import parts, targets  # noqa: E402


def record(collective, size, ranks, time, peers, **more):
    return {"collective": collective, "bytes": size, "ranks": ranks, "nodes": 1, "in_place": True, "time_us": time,
            "wrong": 0, "arena": False, "baseline": {name: {"time_us": us, "ratio": us / time}
                                                     for name, us in peers.items()}, **more}


def row_of(rows, what, against=""):
    (found,) = [row for row in rows if row["what"] == what and against in row["against"]]
    return found


class Judging(unittest.TestCase):
    def test_nothing_measured_is_neither_met_nor_missed(self):
        for row in targets.judge({}):
            self.assertIsNone(row["met"], row)
            self.assertIn("not measured", row["measured"])

    def test_the_best_of_the_peers_counts(self):
        size = 64 << 20
        peers = {"mpi apart": 300.0, "mpi apart, unbound": 260.0, "mpi tuned: ring": 150.0}
        rows = targets.judge({"large": [record("allreduce", size, 2, 100.0, peers),
                                        record("allreduce", size, 2, 50.0, peers, job="kolo arena", arena=True)]})
        default = row_of(rows, "all-reduce 64 MiB, 256 MiB; 2, 4, 8 ranks")
        self.assertTrue(default["met"])
        self.assertIn("64M on 2: 2.60", default["measured"])
        self.assertTrue(row_of(rows, "the same", "best setting")["met"])
        self.assertTrue(row_of(rows, "the same, in the arena", "Open MPI")["met"])

    def test_one_case_that_misses_misses_the_row(self):
        records = [record("allreduce", 64 << 10, ranks, time, {"mpi apart": 20.0})
                   for ranks, time in ((2, 10), (4, 16))]
        rows = targets.judge({"small-to-16M": records})
        self.assertFalse(row_of(rows, "all-reduce 64 KiB to 16 MiB, every size; 2, 4, 8 ranks")["met"])

    def test_small_sizes_are_judged_by_the_difference_at_two_ranks(self):
        rows = targets.judge({"small-to-16M": [record("allreduce", 4, 2, 2.3, {"mpi apart": 0.4}),
                                               record("allreduce", 4, 4, 2.5, {"mpi apart": 2.4})]})
        self.assertTrue(row_of(rows, "synchronous all-reduce 4 B to 1 KiB, 2 ranks")["met"])
        self.assertTrue(row_of(rows, "the same, 4 and 8 ranks")["met"])

    def test_horovod_by_way_of_mpi_per_tensor(self):
        one = record("step", 1, 2, 10.0, {"mpi-per-tensor, mpi apart": 20.0}, model="resnet50", submit="prepared",
                     job="kolo arena")
        one["arena"] = True
        rows = targets.judge({"resnet50-2": [one]})
        against = "Horovod 0.28.1, its defaults"
        self.assertTrue(row_of(rows, "ResNet-50 and BERT-base step, in the arena", against)["met"])  # 2 x 134 / 40
        self.assertIn("6.70", row_of(rows, "ResNet-50 and BERT-base step, in the arena", against)["measured"])

    def test_the_link_between_hosts(self):
        rows = targets.judge({"hosts": [record("allreduce", 64 << 20, 8, 805306 * 1.1, {"mpi": 1.69e6})]})
        row = row_of(rows, "all-reduce across hosts, 1 Gbit/s, 16 and 64 MiB")
        self.assertTrue(row["met"])
        self.assertIn("64M on 4 x 2: 1.10", row["measured"])

    def test_whether_the_peer_is_slowed(self):
        records = [record("allreduce", 1 << 20, 2, 50.0, {"mpi": 110.0, "mpi apart": 100.0})]
        self.assertEqual(targets.beside_or_apart(records), [("1M", 110.0, 100.0, 1.1)])


class Peers(unittest.TestCase):
    def test_are_entered_row_by_row_under_their_names(self):
        own = [record("step", 8, 2, 10.0, {})]
        peer = record("step", 8, 2, 30.0, {"mpi-packed": 20.0}, contestant="mpi-per-tensor")
        parts.add_peers(own, "mpi apart", [peer])
        self.assertEqual({name: one["ratio"] for name, one in own[0]["baseline"].items()},
                         {"mpi-per-tensor, mpi apart": 3.0, "mpi-packed, mpi apart": 2.0})
        with self.assertRaises(AssertionError):
            parts.add_peers(own, "mpi apart", [record("step", 9, 2, 1.0, {}, contestant="mpi")])


unittest.main()
