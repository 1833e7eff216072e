#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/bench compare concludes from two builds' numbers.

    bench_compare_test.py REPOSITORY
"""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(sys.argv.pop(1)) / "scripts/internal"))
sys.dont_write_bytecode = True
from bench import compare, jobs  # noqa: E402

STEADY = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8]


def conclude(olds, news, limit=1.03, wrong=(0, 0)):
    return compare.conclude("row", list(zip(olds, news)), wrong, limit)


class Concluding(unittest.TestCase):
    def test_the_same_is_neither_worse_nor_better(self):
        row = conclude(STEADY, STEADY)
        self.assertEqual((row["ratio"], row["low"], row["high"]), (1.0, 1.0, 1.0))
        self.assertFalse(row["worse"] or row["better"])

    def test_a_tenth_more_is_worse_and_a_tenth_less_is_better(self):
        slower = conclude(STEADY, [1.1 * time for time in STEADY])
        self.assertAlmostEqual(slower["ratio"], 1.1)
        self.assertTrue(slower["worse"])
        faster = conclude(STEADY, [0.9 * time for time in STEADY])
        self.assertTrue(faster["better"])
        self.assertFalse(faster["worse"])

    def test_what_is_within_the_limit_is_not_worse(self):
        news = [1.04 * time for time in STEADY]
        self.assertTrue(conclude(STEADY, news)["worse"])
        self.assertFalse(conclude(STEADY, news, limit=1.05)["worse"])

    def test_what_both_builds_suffer_alike_does_not_count(self):
        weather = [1, 3, 1, 2, 1, 5, 1]
        olds = [time * factor for time, factor in zip(STEADY, weather)]
        row = conclude(olds, olds)
        self.assertEqual((row["low"], row["high"]), (1.0, 1.0))

    def test_one_round_out_of_line_does_not_decide(self):
        row = conclude(STEADY, STEADY[:-1] + [300.0])
        self.assertFalse(row["worse"])
        self.assertAlmostEqual(row["ratio"], 1.0, delta=0.01)

    def test_noise_makes_the_interval_wide(self):
        row = conclude(STEADY, [90.0, 120.0, 100.0, 115.0, 95.0, 108.0, 99.0])
        self.assertLess(row["low"], 1.0)
        self.assertGreater(row["high"], 1.05)
        self.assertFalse(row["worse"])

    def test_the_interval_covers_the_true_ratio_nine_times_in_ten(self):
        draw = compare.random.Random(7)
        covered = 0
        for _ in range(200):
            rounds = [(100 * draw.gauss(1, 0.03), 105 * draw.gauss(1, 0.03)) for _ in range(7)]
            low, high = compare.interval(rounds)
            covered += low <= 1.05 <= high
        self.assertGreater(covered, 165)
        self.assertLess(covered, 200)

    def test_a_few_rounds_decide_nothing(self):
        row = conclude(STEADY[:4], [2 * time for time in STEADY[:4]])
        self.assertFalse(row["worse"] or row["better"])

    def test_wrong_elements_are_told(self):
        row = conclude(STEADY, STEADY, wrong=(0, 3))
        self.assertEqual((row["wrong_old"], row["wrong_new"]), (0, 3))


class Rows(unittest.TestCase):
    def test_have_one_name_each(self):
        names = [name for group in compare.groups() for name in group.rows]
        self.assertEqual(len(names), len(set(names)))
        for wanted in ("allreduce 4, 2 ranks", "allreduce 64M, 8 ranks, arena", "step many-small grouped, 4 ranks",
                       "reduce_scatter 16M, 4 ranks", "CPU time of an idle engine, 2 ranks"):
            self.assertIn(wanted, names)

    def test_records_are_the_rows_in_their_order(self):
        (group,) = [group for group in compare.groups() if "latency" in group.rows[0]]
        self.assertEqual(compare.of_records(group, [{"time_us": 5.0, "wrong": -1}, {"time_us": 6.0}]), [(5.0, 0), (6.0, 0)])
        with self.assertRaises(jobs.Failed):
            compare.of_records(group, [{"time_us": 5.0}])

    def test_memory_is_two_rows_of_one_record(self):
        group = next(group for group in compare.groups() if group.measure == "memory")
        self.assertEqual(compare.of_records(group, [{"held_bytes": 7, "peak_bytes": 9}]), [(7, 0), (9, 0)])


class Builds(unittest.TestCase):
    def test_must_be_optimised_alike_and_without_sanitizers(self):
        release = "CMAKE_BUILD_TYPE:STRING=RelWithDebInfo\nKOLO_SANITIZE:STRING=\nCMAKE_CXX_FLAGS:STRING=\n"
        self.assertEqual(compare.builds_differ(release, release), "")
        self.assertEqual(compare.builds_differ(release, "CMAKE_BUILD_TYPE:STRING=Debug\n"),
                         "NEW is not optimised: build it with the preset release")
        self.assertEqual(compare.builds_differ(release.replace("SANITIZE:STRING=", "SANITIZE:STRING=thread"), release),
                         "OLD was built with KOLO_SANITIZE")
        self.assertEqual(compare.builds_differ(release, release.replace("FLAGS:STRING=", "FLAGS:STRING=-O1")),
                         "they differ in CMAKE_CXX_FLAGS: '' and '-O1'")


unittest.main()
