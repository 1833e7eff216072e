# SPDX-License-Identifier: Apache-2.0
"""The command line of examples/hybrid_trainer: what it prints, what it refuses, what it returns.

usage: hybrid_trainer_cli.py HYBRID_TRAINER
"""

import os
import subprocess
import sys
import unittest

TRAINER = sys.argv[1]


def run(*flags):
    return subprocess.run([TRAINER, *flags], capture_output=True, text=True, timeout=600, check=False,
                          env={**os.environ, "KOLO_ALONE": "1"})


class CommandLine(unittest.TestCase):
    def refused(self, sentence, *flags):
        done = run(*flags)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", f"hybrid_trainer: {sentence}\n"))

    def test_threads_print_losses_that_fall_and_are_those_of_one_rank(self):
        done = run("--local", "--check", "--steps", "20")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        self.assertEqual(lines.pop(), "one rank has the same losses")
        self.assertEqual(len(lines), 20)
        for number, line in enumerate(lines, 1):
            self.assertRegex(line, rf"^step {number}  loss 0\.\d{{15}}$")
        self.assertLess(float(lines[-1].split()[-1]), float(lines[0].split()[-1]))

    def test_one_rank_prints_the_same_to_12_digits(self):
        alone = run("--tensor", "1", "--data", "1", "--pipeline", "1", "--micro-batches", "1").stdout.splitlines()
        together = run("--local").stdout.splitlines()
        self.assertEqual(len(alone), 10)
        self.assertEqual([line[:-3] for line in alone], [line[:-3] for line in together])

    def test_bad_flags(self):
        self.refused("there is no flag --pipelines", "--pipelines", "2")
        self.refused("--data takes a whole number from 1", "--data", "0")
        self.refused("--data takes a whole number from 1", "--data")
        self.refused("--blocks must be a multiple of --pipeline", "--pipeline", "3")
        self.refused("--hidden must be a multiple of --tensor", "--tensor", "3")
        self.refused("--batch-size must be a multiple of --data times --micro-batches", "--batch-size", "33")
        self.refused("these degrees need 8 ranks", "--check")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
