#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two hosts that also have networks which do not connect them: a bridge of containers with the same address on both, and
a private network on which every packet is lost.

usage: networks_test.py PROGRAM    PROGRAM trains on all ranks and prints the hash of its weights (start_anywhere)
"""
import os
import subprocess
import sys
import unittest
from pathlib import Path

WITH_HOSTS = Path(__file__).resolve().parents[2] / "scripts/internal/with/hosts"
# At the other end of eth1's cable nobody listens, and that of the other host is said to be there.
NETWORKS = """set -e
ip link add docker0 type bridge
ip link add container type veth peer name port
ip link set port master docker0
ip addr add 172.17.0.1/16 dev docker0
ip link add eth1 type veth peer name nobody
ip addr add 192.168.9.$KOLO_HOST/24 dev eth1
for link in docker0 container port eth1 nobody; do ip link set $link up; done
ip neigh add 192.168.9.$((3 - KOLO_HOST)) lladdr 02:00:00:00:00:01 dev eth1
"""
PROGRAM = ""


def run(variables):
    return subprocess.run([WITH_HOSTS, "2", "--store", "--prepare", NETWORKS, "--", PROGRAM, "--epochs", "1"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          env={**os.environ, "UCX_TLS": "tcp", "KOLO_LOG_LEVEL": "info", **variables})


class Networks(unittest.TestCase):
    def test_data_takes_the_network_by_which_the_hosts_met(self):
        job = run({})
        self.assertEqual(job.returncode, 0, job.stdout)
        self.assertRegex(job.stdout, r"between nodes: UCX [0-9.]+ over eth0 \(KOLO_TRANSPORT=auto")
        self.assertRegex(job.stdout, r"weights [0-9a-f]{16}")

    def test_a_network_that_leads_nowhere_ends_the_start_on_all_ranks_in_its_time(self):
        job = run({"UCX_NET_DEVICES": "eth1", "KOLO_CONNECT_TIMEOUT_S": "3"})
        self.assertNotEqual(job.returncode, 0, job.stdout)
        sentence = ("rank 0: no data comes by UCX from rank 2 (eth1 192.168.9.2) to rank 0 (eth1 192.168.9.1) within 3 s "
                    "(KOLO_CONNECT_TIMEOUT_S): a firewall, or a network that does not connect these hosts; set "
                    "KOLO_INTERFACE or UCX_NET_DEVICES to one that does")
        self.assertEqual(job.stdout.count(sentence), 4, job.stdout)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
