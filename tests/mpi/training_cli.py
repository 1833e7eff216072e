# SPDX-License-Identifier: Apache-2.0
"""The example's command line: what it says, what it writes, what it returns.

usage: training_cli.py TRAIN_DIGITS [MPIRUN]
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TRAINER, MPIRUN = sys.argv[1], sys.argv[2]


class CommandLine(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_trainer(self, *flags, launcher=()):
        return subprocess.run([*launcher, TRAINER, *flags], capture_output=True, text=True, timeout=600, check=False)

    def train(self, *flags, launcher=()):
        """Trains, and returns what --json wrote."""
        file = self.folder / "result.json"
        done = self.run_trainer("--json", str(file), *flags, launcher=launcher)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(file.read_text(encoding="utf-8"))

    def refused(self, status, sentence, *flags):
        done = self.run_trainer(*flags)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertIn(sentence, done.stderr)
        self.assertEqual(done.stdout, "")

    def test_help(self):
        done = self.run_trainer("--help")
        self.assertEqual(done.returncode, 0)
        for flag in ("local", "epochs", "batch-size", "learning-rate", "optimizer", "seed", "save", "load", "json",
                     "data", "dtype", "train-rows", "quiet"):
            self.assertIn("--" + flag, done.stdout)

    def test_bad_flags_say_what_would_be_right(self):
        self.refused(2, "--optimizer is 'adam'; it must be sgd or adamw", "--optimizer", "adam")
        self.refused(2, "--dtype is 'float16'; it must be float32 or float64", "--dtype", "float16")
        self.refused(2, "--batch-size is 0; it must be from 1 to", "--batch-size", "0")
        self.refused(2, "--local is -1; it must be from 1 to 1024", "--local=-1")
        self.refused(2, "--epochs", "--epochs", "many")
        self.refused(2, "--seed is -5; it must be from 0 to", "--seed=-5")
        self.refused(2, "--learning-rate must be a number from 0", "--learning-rate", "-1")
        self.refused(2, "--train-rows is 1797, but", "--train-rows", "1797")
        self.refused(2, "--epoch", "--epoch", "3")
        self.refused(2, "(see --help)", "word")

    def test_files_that_are_not_there(self):
        self.refused(1, "/no/such/file: cannot be opened (--data names the file)", "--data", "/no/such/file")
        self.refused(1, "/no/such/file/index.json: open: No such file or directory", "--load", "/no/such/file", "--quiet")
        done = self.run_trainer("--save", "/dev/null/file", "--epochs", "1", "--local", "2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("Not a directory", done.stderr)

    def test_result(self):
        result = self.train("--local", "2", "--epochs", "3", "--seed", "4", "--dtype", "float64", "--batch-size", "31")
        self.assertEqual(set(result), {"accuracy", "loss", "losses", "seconds", "images_per_second", "weights_hash",
                                       "all_ranks_equal", "ranks", "local", "epochs", "batch_size", "optimizer",
                                       "seed", "dtype"})
        self.assertEqual((result["ranks"], result["local"], result["epochs"], result["seed"], result["dtype"]),
                         (2, True, 3, 4, "float64"))
        self.assertEqual(result["batch_size"], 32, "rounded up to a multiple of the ranks")
        self.assertEqual(len(result["losses"]), 3)
        self.assertEqual(result["loss"], result["losses"][-1])
        self.assertIs(result["all_ranks_equal"], True)
        self.assertRegex(result["weights_hash"], "^[0-9a-f]{16}$")
        self.assertGreater(result["images_per_second"], 0)

    def test_lines(self):
        lines = self.run_trainer("--epochs", "2").stdout.splitlines()
        self.assertRegex(lines[0], r"^epoch 1/2  loss \d\.\d{6}$")
        self.assertRegex(lines[1], r"^epoch 2/2  loss \d\.\d{6}$")
        self.assertRegex(lines[2], r"^accuracy \d\d\.\d %  .* 1 rank  weights [0-9a-f]{16} \(the same on every rank\)$")
        self.assertEqual(len(self.run_trainer("--epochs", "2", "--quiet").stdout.splitlines()), 1)

    def test_stopped_and_resumed_under_mpirun_is_what_threads_train(self):
        checkpoint = str(self.folder / "checkpoint")
        mpirun = (MPIRUN, "--oversubscribe", "--bind-to", "none", "-np", "2")
        straight = self.train("--local", "2", "--epochs", "4", "--seed", "1")
        self.train("--epochs", "2", "--seed", "1", "--save", checkpoint, launcher=mpirun)
        resumed = self.train("--epochs", "4", "--seed", "1", "--load", checkpoint, launcher=mpirun)
        self.assertEqual(resumed["weights_hash"], straight["weights_hash"])
        self.assertEqual(resumed["losses"], straight["losses"][2:])
        self.assertIs(resumed["local"], False)

    def test_reads_digits(self):
        accuracies = [self.train("--local", "4", "--seed", str(seed))["accuracy"] for seed in range(1, 6)]
        self.assertGreaterEqual(sum(accuracies) / len(accuracies), 0.96, accuracies)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
