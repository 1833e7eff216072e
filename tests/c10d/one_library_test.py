#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kolopy and kolo_torch in one process: there is one libkolo, whichever is imported first, and both work at once."""

import os
import subprocess
import sys
import tempfile
import unittest

BOTH = """
import array, os, sys
{imports}
import torch, torch.distributed as dist
import kolopy as kolo

folder, rank, size = sys.argv[1], int(sys.argv[2]), 2
store = dist.FileStore(os.path.join(folder, "store"), size)
dist.init_process_group("kolo", store=store, rank=rank, world_size=size)

class Store:  # kolopy's ranks meet in the same one
    def set(self, key, value):
        store.set("kolopy/" + key, value.hex())
    def get(self, key, seconds):
        return bytes.fromhex(store.get("kolopy/" + key).decode())

with kolo.Session(store=Store(), rank=rank, size=size):
    for step in range(3):
        tensor, numbers = torch.full((10,), rank + 1.0), array.array("d", [rank + step])
        work = dist.all_reduce(tensor, async_op=True)
        kolo.allreduce(numbers)
        work.wait()
        assert tensor.tolist() == [3.0] * 10 and list(numbers) == [1 + 2 * step], (tensor, numbers)
    if hasattr(tensor, "__dlpack__"):
        columns = torch.full((3, 4), rank + 1.0)
        kolo.allreduce(columns)
        assert (columns == 3).all()
        half = torch.full((5,), rank + 1.0, dtype=torch.bfloat16)
        kolo.allreduce(half)
        assert (half == 3).all()
dist.destroy_process_group()
with open("/proc/self/maps") as maps:
    libraries = sorted({{os.path.realpath(line.split()[-1]) for line in maps if "libkolo" in line}})
print(len(libraries), os.path.basename(kolo.get_library()), *libraries)
"""


class OneLibrary(unittest.TestCase):
    def test_both_orders(self):
        for imports in ("import kolopy, kolo_torch", "import kolo_torch, kolopy", "import torch, kolopy, kolo_torch"):
            with self.subTest(imports), tempfile.TemporaryDirectory(prefix="kolo-both-") as folder:
                ranks = [subprocess.Popen([sys.executable, "-c", BOTH.format(imports=imports), folder, str(rank)],
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                          env={**os.environ, "OMP_NUM_THREADS": "1"}) for rank in range(2)]
                for process in ranks:
                    printed = process.communicate()[0]
                    self.assertEqual(process.returncode, 0, printed)
                    self.assertEqual(printed.split("\n")[-2].split()[0], "1", printed)


if __name__ == "__main__":
    unittest.main()
