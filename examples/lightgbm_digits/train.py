#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LightGBM on several processes: each has its rows of the digits, and all get the same model.

    kolo-run -np 4 python3 examples/lightgbm_digits/train.py
"""

import hashlib
from pathlib import Path

import lightgbm
import numpy

import kolopy
import kolopy.lightgbm

DIGITS = Path(__file__).resolve().parent.parent / "data" / "digits.csv"


def main() -> None:
    kolopy.init()
    rank, size = kolopy.rank(), kolopy.size()

    rows = numpy.loadtxt(DIGITS, delimiter=",")
    training, test = rows[: len(rows) * 4 // 5], rows[len(rows) * 4 // 5 :]
    mine = training[rank::size]

    params = {"objective": "multiclass", "num_class": 10, "tree_learner": "data", "num_leaves": 15, "min_data_in_leaf": 5,
              "pre_partition": True, "num_threads": 1, "verbosity": -1}  # fmt: skip
    with kolopy.lightgbm.attach():
        data = lightgbm.Dataset(mine[:, :64], mine[:, 64], params=params)
        booster = lightgbm.train(params, data, num_boost_round=30)

    trees = booster.model_to_string().partition("\nparameters:")[0].encode()
    models = kolopy.allgather_object(hashlib.sha256(trees).hexdigest())
    right = numpy.mean(booster.predict(test[:, :64]).argmax(axis=1) == test[:, 64])
    if rank == 0:
        same = "the same model" if len(set(models)) == 1 else "DIFFERENT MODELS"
        print(f"{size} ranks, {same} on all; {100 * right:.1f} % of the test images are right")
    kolopy.shutdown()


if __name__ == "__main__":
    main()
