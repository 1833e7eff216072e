# SPDX-License-Identifier: Apache-2.0
"""The example in C: it learns, its replicas agree, and any number of ranks trains as one does.

usage: trainer_test.py C_TRAINER KOLO_RUN
"""

import re
import subprocess
import sys
import unittest

TRAINER, KOLO_RUN = sys.argv[1], sys.argv[2]


class Trainer(unittest.TestCase):
    def run_trainer(self, *arguments, ranks=1):
        launcher = [KOLO_RUN, "-np", str(ranks)] if ranks > 1 else []
        return subprocess.run([*launcher, TRAINER, *arguments], capture_output=True, text=True, check=False)

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
                self.assertAlmostEqual(self.train(ranks)[0], accuracy, delta=1)
                self.assertAlmostEqual(self.train(ranks)[1], loss, delta=1e-3)

    def test_what_is_wrong_is_said(self):
        for arguments, status, words in ((("none",), 2, "usage:"), (("1", "/no/such/file"), 1, "cannot be opened"),
                                         (("1", __file__), 1, "image 1 of ")):
            with self.subTest(arguments):
                done = self.run_trainer(*arguments)
                self.assertEqual((done.returncode, words in done.stderr), (status, True), done.stderr)
        done = self.run_trainer("1", ranks=3)
        self.assertIn("a number of ranks that divides 32", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
