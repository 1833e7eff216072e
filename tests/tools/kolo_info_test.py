#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs kolo-info and reads what it prints.

usage: kolo_info_test.py KOLO_INFO VARIABLES_MD RANKS [LAUNCHER...]
"""

import json
import os
import re
import subprocess
import sys
import unittest

KOLO_INFO, VARIABLES_MD, RANKS = sys.argv[1], sys.argv[2], int(sys.argv[3])
LAUNCHER = sys.argv[4:]


def run(*flags, **variables):
    """Runs it in an environment without Kolo's variables but for these; returns the finished process."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("KOLO_", "HOROVOD_"))}
    environment.update(variables)
    return subprocess.run([*LAUNCHER, KOLO_INFO, *flags], env=environment, capture_output=True, text=True, timeout=600)


def documented_variables():
    with open(VARIABLES_MD, encoding="utf-8") as page:
        return re.findall(r"^\| \[`(KOLO_\w+)`\]", page.read(), re.M)


class KoloInfo(unittest.TestCase):
    def ranks(self, *flags, **variables):
        done = run("--json", *flags, **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["ranks"]

    def test_names_what_it_was_built_with(self):
        build = json.loads(run("--json").stdout)["build"]
        self.assertRegex(build["version"], r"^\d+\.\d+\.\d+$")
        if LAUNCHER:
            self.assertNotEqual(build["mpi"], "")

    def test_prints_its_version(self):
        done = run("--version")
        self.assertRegex(done.stdout, r"^(kolo-info \d+\.\d+\.\d+\n)+$")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_prints_rank_0_alone(self):
        ranks = self.ranks()
        self.assertEqual([one["place"]["rank"] for one in ranks], [0])
        self.assertEqual(ranks[0]["place"]["size"], RANKS)

    def test_all_prints_every_rank_in_order(self):
        ranks = self.ranks("--all")
        self.assertEqual([one["place"]["rank"] for one in ranks], list(range(RANKS)))
        self.assertEqual([one["place"]["local_size"] for one in ranks], [RANKS] * RANKS)

    def test_lists_every_documented_variable_at_its_default(self):
        variables = self.ranks()[0]["variables"]
        self.assertEqual([one["name"] for one in variables], documented_variables())
        for one in variables:
            self.assertEqual((one["value"], one["source"]), (one["default"], "default"), one["name"])

    def test_says_where_a_value_came_from(self):
        variables = self.ranks(KOLO_TIMEOUT_S="30", HOROVOD_FUSION_THRESHOLD="1048576")[0]["variables"]
        by_name = {one["name"]: one for one in variables}
        self.assertEqual((by_name["KOLO_TIMEOUT_S"]["value"], by_name["KOLO_TIMEOUT_S"]["source"]), ("30", "environment"))
        fusion = by_name["KOLO_FUSION_THRESHOLD"]
        self.assertEqual((fusion["value"], fusion["source"]), ("1M", "HOROVOD_FUSION_THRESHOLD"))

    def test_virtual_nodes_show(self):
        places = [one["place"] for one in self.ranks("--all", KOLO_RANKS_PER_NODE="2")]
        self.assertEqual([one["local_rank"] for one in places], [rank % 2 for rank in range(RANKS)])

    def test_text_has_a_table_of_variables(self):
        done = run("--all")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(re.findall(r"^rank (\d+)$", done.stdout, re.M), [str(rank) for rank in range(RANKS)])
        self.assertRegex(done.stdout, r"(?m)^  KOLO_TIMEOUT_S +600 +600 +default$")

    def test_a_bad_value_names_the_variable_and_the_range(self):
        done = run(KOLO_OPEN_BATCHES="65")
        self.assertEqual(done.returncode, 2)
        for word in ("KOLO_OPEN_BATCHES", "65", "1 .. 64"):
            self.assertIn(word, done.stderr)

    def test_prints_the_routes_and_takes_them_back(self):
        routes = self.routes()
        self.assertRegex(routes[0], r"^allreduce:0-\w+=small,0-8K=flat$")
        changed = self.routes(KOLO_ROUTES="allreduce:0-1K=small,none=flat;message:32K-=peers")
        self.assertEqual(changed[0], "allreduce:0-1K=small,none=flat")
        self.assertEqual(changed[1:-1], routes[1:-1])
        self.assertEqual(self.routes(KOLO_ROUTES=";".join(changed)), changed)

    def routes(self, **variables):
        return re.findall(r"^  (\w+:\S+=(?:small|flat|peers))$", self.ranks(**variables)[0]["description"], re.M)

    def test_a_route_that_does_not_exist_is_refused(self):
        done = run(KOLO_ROUTES="broadcast:0-8K=flat")
        self.assertEqual(done.returncode, 2)
        for word in ("KOLO_ROUTES", "no route of broadcast", "one of small"):
            self.assertIn(word, done.stderr)

    def test_bad_flags(self):
        done = run("--everything")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--everything", done.stderr)

    def test_devices_join_no_job(self):
        done = run("--devices", **({} if LAUNCHER else {"OMPI_COMM_WORLD_SIZE": "2"}))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        # Each process looks at its machine by itself; a launcher mixes their lines.
        said = re.findall(r"(?m)^(?:No CUDA-compatible GPU found\.$|GPUs of this machine: )", done.stdout)
        self.assertEqual(len(said), RANKS, done.stdout)

    def test_help(self):
        done = run("--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("Exit status", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
