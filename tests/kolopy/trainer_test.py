# SPDX-License-Identifier: Apache-2.0
"""The example in Python: it learns, its replicas agree, and any number of ranks trains as one does.

usage: trainer_test.py TRAIN_PY KOLO_RUN
"""

import re
import subprocess
import sys
import unittest

TRAIN, KOLO_RUN = sys.argv[1], sys.argv[2]


class Trainer(unittest.TestCase):
    def run_trainer(self, *arguments, ranks=1):
        launcher = [KOLO_RUN, "-np", str(ranks)] if ranks > 1 else []
        command = [*launcher, sys.executable, TRAIN, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def train(self, ranks):
        """The accuracy in percent, and the last epoch's loss."""
        done = self.run_trainer(ranks=ranks)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        found = re.search(r"accuracy ([\d.]+) %  loss ([\d.]+)  (\d+) ranks?  .*\(the same on every rank\)", done.stdout)
        self.assertTrue(found, done.stdout)
        self.assertEqual(int(found[3]), ranks)
        return float(found[1]), float(found[2])

    def test_any_number_of_ranks_trains_as_one(self):
        accuracy, loss = self.train(1)
        self.assertGreater(accuracy, 90)
        for ranks in (2, 4):
            with self.subTest(ranks=ranks):
                others, others_loss = self.train(ranks)
                self.assertAlmostEqual(others, accuracy, delta=1)
                self.assertAlmostEqual(others_loss, loss, delta=1e-3)

    def test_what_is_wrong_is_said(self):
        done = self.run_trainer(ranks=3)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("train.py: give a number of ranks that divides 32, not 3", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
