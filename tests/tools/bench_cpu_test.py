#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/bench cpu says of records: which peer counts, what is met, and what was not measured; and what
scripts/bench pictures draws of them.

    bench_cpu_test.py REPOSITORY
"""
import sys
import unittest
import xml.etree.ElementTree as ET
from pathlib import Path

sys.path.insert(0, str(Path(sys.argv.pop(1)) / "scripts/internal"))
from bench import parts, pictures, targets  # noqa: E402


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

    def test_each_torch_has_rows_of_its_own(self):
        one = record("step", 1, 2, 10.0, {}, model="resnet50", submit="prepared", job="kolo, beside ddp")
        one["baseline"] = {"ddp-view": {"time_us": 40.0, "torch": "1.13.1"},
                           "ddp-view, PyPI": {"time_us": 20.0, "torch": "2.15.0+cu130"}}
        rows = targets.judge({"resnet50-2": [one]})
        self.assertTrue(row_of(rows, "the same, private buffers", "PyTorch 1.13 DDP, view")["met"])
        newer = row_of(rows, "the same, private buffers", "PyTorch 2.15 DDP, view")
        self.assertEqual((newer["met"], newer["measured"]), (False, "resnet50 on 2: 2.00"))

    def test_collectives_by_size(self):
        size = 64 << 20
        records = [record("reduce", 8, 2, 0.6, {"mpi apart": 0.35}),
                   record("reduce", 4096, 2, 1.0, {"mpi apart": 3.0}),
                   record("gather", 8, 2, 0.9, {"mpi apart": 0.4, "mpi apart, unbound": 0.8}),
                   record("reduce", size, 2, 10.0, {"mpi apart": 19.0}),
                   record("barrier", 0, 2, 1.0, {"mpi apart": 1.0}),
                   record("pingpong", 8, 2, 0.9, {"mpi apart": 0.63}),
                   record("pingpong", size, 2, 9.0, {"mpi apart": 8.9}),
                   record("join", 0, 2, 30.0, {})]
        rows = targets.judge({"collectives-2": records})
        every = row_of(rows, "reduce 1 KiB to 64 MiB, every size; 2 and 4 ranks")
        self.assertEqual((every["met"], every["measured"]), (True, "4K on 2: 3.00, 64M on 2: 1.90"))
        mean = row_of(rows, "these, geometric mean")
        self.assertEqual((mean["met"], mean["measured"]), (True, "all: 1.78, reduce: 2.39, pingpong: 0.99"))
        self.assertFalse(row_of(rows, "reduce from 1 MiB; 2 and 4 ranks")["met"])
        behind = row_of(rows, "reduce, gather and scatter below 1 KiB; 2 and 4 ranks")
        self.assertEqual((behind["met"], behind["measured"]),
                         (False, "reduce 8 on 2: +0.25 us, gather 8 on 2: +0.50 us"))
        self.assertTrue(row_of(rows, "pingpong 8 B, 2 ranks")["met"])
        long = row_of(rows, "pingpong from 1 MiB; 2 and 4 ranks")
        self.assertEqual((long["met"], long["measured"]), (False, "64M on 2: 0.99"))

    def test_groups_at_once(self):
        peers = {"mpi apart": 0.8, "mpi apart, unbound": 2.0}
        rows = targets.judge({"groups": [record("allreduce", 4096, 4, 1.0, peers),
                                         record("alltoall", 512, 4, 9.0, {"mpi apart": 1.0})]})
        row = row_of(rows, "two disjoint groups of 2 ranks at once, from 1 KiB")
        self.assertEqual((row["met"], row["measured"]), (False, "allreduce 4K: 1.25 x"))

    def test_unnamed_calls(self):
        def calls(submit, time, way):
            return record("calls", 1 << 20, 2, time, {"mpi-packed, mpi apart": 10.0}, submit=submit, way=way)
        rows = targets.judge({"calls-2": [calls("prepared", 8.0, "in turns"), calls("unnamed", 9.0, "in turns"),
                                          calls("prepared", 9.0, "one after the other"),
                                          calls("unnamed", 11.0, "one after the other")]})
        found = [(row["what"], row["against"], row["measured"], row["met"]) for row in rows if "unnamed" in row["what"]]
        self.assertEqual(found, [
            ("1000 x 1 KiB unnamed, in turns", "the same, prepared", "2 ranks: 1.12 x", True),
            ("1000 x 1 KiB unnamed, in turns", "MPI packed", "2 ranks: 0.90 x", True),
            ("1000 x 1 KiB unnamed, one after the other", "the same, prepared", "2 ranks: 1.22 x", False),
            ("1000 x 1 KiB unnamed, one after the other", "MPI packed", "2 ranks: 1.10 x", False)])

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
        peer = {**record("reduce", 8, 2, 30.0, {}, contestant="mpi"), "time_p10_us": 29.0, "time_p90_us": 31.0}
        (one,) = parts.add_peers([record("reduce", 8, 2, 10.0, {})], "mpi apart", [peer])
        self.assertEqual(one["baseline"]["mpi apart"],
                         {"time_us": 30.0, "time_p10_us": 29.0, "time_p90_us": 31.0, "ratio": 3.0})
        with self.assertRaises(AssertionError):
            parts.add_peers(own, "mpi apart", [record("step", 9, 2, 1.0, {}, contestant="mpi")])

    def test_kolo_bound_and_unbound_the_faster_counts_row_by_row(self):
        bound = [record("reduce", 8, 2, 10.0, {"mpi apart": 30.0}), record("reduce", 64, 2, 9.0, {"mpi apart": 30.0})]
        unbound = [{**record("reduce", 8, 2, 12.0, {"mpi apart": 30.0}), "wrong": 2, "job": "kolo, unbound"},
                   {**record("reduce", 64, 2, 8.0, {"mpi apart": 30.0}), "job": "kolo, unbound"}]
        rows = parts.faster_of(bound, unbound)
        self.assertEqual([(row["bytes"], row["time_us"], row["wrong"]) for row in rows], [(8, 10.0, 2), (64, 8.0, 0)])
        self.assertTrue(all("job" not in row for row in rows), "they are judged as those of Kolo's own job are")

    def test_of_several_launches_the_fastest_in_each_counts(self):
        launches = [[record("allreduce", 8, 2, own, {"mpi apart": bound, "mpi apart, unbound": unbound})]
                    for own, bound, unbound in ((10.0, 30.0, 20.0), (10.0, 15.0, 40.0), (10.0, 50.0, 60.0))]
        (one,) = parts.of_launches(launches)
        self.assertEqual((one["ratios"], one["ratio"], one["time_us"]), ([2.0, 1.5, 5.0], 2.0, 10.0))
        self.assertEqual(one["baseline"]["mpi apart"], {"time_us": 30.0, "ratio": 3.0})


def measured(*records):
    machine = {"processor": "Abacus", "cpus": 2, "kernel": "6.1.0-13-amd64", "mpi": "mpirun (Open MPI) 4.1.4"}
    return {"parts": {"curve-2": {"date": "2026-01-31", "commit": "abc1234", "machine": machine, "records": list(records)}}}


def texts_of(svg):
    return [element.text for element in ET.fromstring(svg).iter() if element.tag.endswith("}text")]


PLACE = "Abacus (2 CPUs, Linux 6.1.0); measured 2026-01-31."
VERSIONS = "Kolo at abc1234, Open MPI 4.1.4"


class Pictures(unittest.TestCase):
    def test_nothing_measured_is_no_picture(self):
        for draw in pictures.PICTURES.values():
            self.assertIsNone(draw({"parts": {}}))

    def test_steps_are_bars_from_the_fastest_to_the_slowest(self):
        common = {"model": "resnet50", "submit": "prepared"}
        beside = record("step", 1, 2, 21e3, {}, **common, job="kolo, beside ddp")
        beside["baseline"] = {"ddp-view": {"time_us": 90e3, "torch": "1.13.1"},
                              "ddp-view, PyPI": {"time_us": 70e3, "torch": "2.15.0+cu130"}}
        arena = {**record("step", 1, 2, 10e3, {}, **common, job="kolo arena"), "arena": True}
        found = texts_of(pictures.steps(measured(
            record("step", 1, 2, 20e3, {"mpi-per-tensor, mpi apart": 40e3, "mpi-packed, mpi apart": 80e3}, **common),
            beside, arena)))
        self.assertIn(PLACE, found)
        self.assertIn(f"{VERSIONS}, PyTorch 1.13 and PyTorch 2.15.", found)
        begin = found.index("ResNet-50, 102 MB of gradients, 2 ranks") + 1
        self.assertEqual(found[begin:], ["Kolo, in a GradientArena", "10.0", "Kolo, in private memory", "21.0",
                                         "Open MPI, the best of its ways", "40.0",
                                         "Horovod 0.28.1, its best (indirectly)", "60.0",
                                         "PyTorch 2.15 DDP over Gloo", "70.0", "PyTorch 1.13 DDP over Gloo", "90.0"])

    def test_sizes_have_a_band_from_the_lowest_to_the_highest_launch(self):
        def one(size, ratios, arena):
            return {"collective": "allreduce", "bytes": size, "ranks": 2, "arena": arena, "ratios": ratios,
                    "ratio": sorted(ratios)[1]}
        svg = pictures.sizes(measured(one(4, [1, 2, 4], False), one(64, [0.5, 1, 1], False),
                                      one(4, [4, 4, 4], True), one(64, [2, 2, 2], True)))
        found = texts_of(svg)
        self.assertTrue({PLACE, f"{VERSIONS}.", "2 ranks", "4 B", "1 x", "4 x"} <= set(found), found)
        self.assertTrue(any("medians of 3 launches" in text for text in found), found)
        bands = [element.get("points").split() for element in ET.fromstring(svg).iter()
                 if element.tag.endswith("}polygon")]
        heights = [[float(point.split(",")[1]) for point in band] for band in bands]
        self.assertEqual(heights[0][0], heights[0][3], "the arena's launches do not differ")
        upper, lower = heights[1][0], heights[1][3]
        self.assertEqual((upper, lower > upper), (heights[0][0], True), "4 x lies where 4 x lies, 1 x below")
        self.assertGreater(heights[1][2], lower, "0.5 x lies below 1 x")

    def test_a_timeline_has_a_bar_a_gradient(self):
        one = {"collective": "overlap", "model": "resnet50", "tensors": 2, "bytes": 12e6, "arena": True, "ranks": 2,
               "time_us": 5000.0, "compute_us": 3000.0, "reduce_us": 4000.0,
               "timeline": {"bytes": [4, 8], "submitted_us": [1000, 3000], "done_us": [2000, 4500], "end_us": 4600}}
        svg = pictures.timeline(measured(one))
        self.assertLessEqual({PLACE, f"{VERSIONS}."}, set(texts_of(svg)))
        self.assertIn("This step: 4.6 ms, of which 1.6 ms waiting after the backward pass.", texts_of(svg))
        self.assertIn("Medians of all steps: computing alone 3.0 ms, reducing alone 4.0 ms, both together 5.0 ms.",
                      texts_of(svg))
        bars = [float(element.get("width")) for element in ET.fromstring(svg).iter()
                if element.tag.endswith("}rect") and element.get("height") == "2.0"]
        self.assertEqual(len(bars), 2)
        self.assertAlmostEqual(bars[1] / bars[0], 1.5, places=2)


unittest.main()
