#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A group of kolo_torch where the program has set a locale with a decimal comma (LOCPATH says where de_DE.UTF-8 is)."""
import datetime
import locale
import unittest

import torch
import torch.distributed as dist

import kolo_torch  # noqa: F401: it makes the backend known


class ForeignLocale(unittest.TestCase):
    def test_a_group_is_made(self):
        locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
        self.assertEqual(locale.format_string("%.1f", 0.5), "0,5")
        dist.init_process_group("kolo", store=dist.HashStore(), rank=0, world_size=1,
                                timeout=datetime.timedelta(seconds=90.25))
        x = torch.ones(3)
        dist.all_reduce(x)
        self.assertEqual(x.tolist(), [1, 1, 1])
        dist.destroy_process_group()


if __name__ == "__main__":
    unittest.main()
