# SPDX-License-Identifier: Apache-2.0
"""LightGBM over Kolo beside LightGBM over its own sockets: equal models, and what a wrong use gets.

Run by kolo-run with any number of ranks; prints one line, from rank 0.

usage: lightgbm_test.py [--time]      --time: how long each takes, in turns
"""

import argparse
import hashlib
import socket
import statistics
import sys
import threading
import time

import lightgbm
import numpy

import kolopy
import kolopy.lightgbm

ROUNDS = 40


def rows(count):
    random = numpy.random.default_rng(1)
    x = random.standard_normal((count, 28))
    y = x[:, 0] * x[:, 1] + numpy.sin(3 * x[:, 2]) + 0.3 * random.standard_normal(count) > 0
    mine = slice(kolopy.rank(), None, kolopy.size())
    return x[mine], y[mine].astype(float)


def params(**more):
    return {"objective": "binary", "tree_learner": "data", "num_threads": 1, "verbosity": -1, "num_leaves": 63,
            "pre_partition": True, **more}  # fmt: skip


def trees(booster):
    return hashlib.sha256(booster.model_to_string().partition("\nparameters:")[0].encode()).hexdigest()


def train(x, y, **more):
    return lightgbm.train(params(**more), lightgbm.Dataset(x, y), ROUNDS)


def over_kolo(x, y, **more):
    with kolopy.lightgbm.attach():
        booster = train(x, y, **more)
        assert kolopy.lightgbm.calls() > 0 or kolopy.size() == 1
        return booster


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def over_sockets(x, y, **more):
    ports = kolopy.allgather_object(free_port())
    machines = ",".join(f"127.0.0.1:{port}" for port in ports)
    booster = train(x, y, machines=machines, local_listen_port=ports[kolopy.rank()], num_machines=len(ports), **more)
    booster.free_network()
    return booster


def check_models(x, y):
    for more in ({}, {"tree_learner": "voting"}, {"bagging_fraction": 0.7, "bagging_freq": 1}, {"objective": "regression"}):
        mine = trees(over_kolo(x, y, **more))
        assert trees(over_sockets(x, y, **more)) == mine, f"not the model of LightGBM's own network: {more}"
        # With "voting" LightGBM writes sums of this rank's rows into the inner nodes.
        models = set(kolopy.allgather_object(mine))
        assert len(models) == 1 or "voting" in more.values(), f"the ranks' models differ: {more}"


def error_of(body):
    try:
        body()
    except kolopy.InvalidArgumentError as error:
        return str(error)
    return "nothing"


def check_wrong_uses(x, y):
    size = kolopy.size()
    with kolopy.lightgbm.attach():
        assert "which trains alone" in error_of(lambda: train(x, y, tree_learner="serial"))
        assert f"the group has {size} ranks" in error_of(lambda: train(x, y, num_machines=size + 1))
        assert "leave it out while attached" in error_of(lambda: train(x, y, machines="a:1,b:2"))
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(error_of(lambda: train(x, y))))
        thread.start()
        thread.join()
        assert "attach on the thread that trains" in elsewhere[0], elsewhere
        assert "twice on one thread" in error_of(kolopy.lightgbm.attach)
        train(x, y)
    kolopy.lightgbm.attach()
    assert "has never reached for the other ranks" in error_of(kolopy.lightgbm.detach)
    kolopy.lightgbm.detach()
    train(x, y, tree_learner="serial")  # alone, as ever


def told(body):
    try:
        body()
    except (kolopy.Error, lightgbm.basic.LightGBMError, ValueError) as error:
        return str(error)
    return "nothing"


def check_trainings_that_end_apart(x, y):
    """One rank stops early, leaves the training by an error, or detaches: all are told at once, and the job goes on."""
    last = kolopy.size() - 1
    is_last = kolopy.rank() == last
    ranks = "rank 0" if last == 1 else "ranks " + ", ".join(str(r) for r in range(last - 1)) + f" and {last - 1}"
    where = f"LightGBM's training has ended on rank {last}"
    stopped = (
        f"{where} and goes on on {ranks}: end it at the same iteration on every rank; early stopping does if all ranks "
        "give the same validation rows"
    )
    failed = f"{where}, by an error (ValueError: out of paper), and goes on on {ranks}"

    def stops(env):
        if is_last and env.iteration == 3:
            raise lightgbm.callback.EarlyStopException(env.iteration, [])

    def fails(env):
        if is_last and env.iteration == 3:
            raise ValueError("out of paper")

    def loop():
        with kolopy.lightgbm.attach():
            booster = lightgbm.Booster(params(), lightgbm.Dataset(x, y))
            for i in range(ROUNDS):
                if is_last and i == 3:
                    raise ValueError("out of paper")
                booster.update()

    def over(train_with):
        kolopy.lightgbm.attach()
        try:
            said = told(train_with)
            kolopy.barrier()  # not within LightGBM's reach: nobody is left in it
        finally:
            kolopy.lightgbm.detach()
        return said

    def by_callback(callback):
        return lambda: lightgbm.train(params(), lightgbm.Dataset(x, y), ROUNDS, callbacks=[callback])

    for said, sentence in (
        (over(by_callback(stops)), stopped),
        (over(by_callback(fails)), "out of paper" if is_last else failed),
        (told(loop), "out of paper" if is_last else failed),
        (over(by_callback(lambda env: None)), "nothing"),
    ):
        assert said.replace("kolo: ", "", 1) == sentence, said
    assert lightgbm.sklearn.train is lightgbm.engine.train is lightgbm.train  # its classes end with all ranks, too


def check_time():
    x, y = rows(200000)
    times = {over_kolo: [], over_sockets: []}
    for _ in range(5):
        for way, took in times.items():
            kolopy.barrier()
            start = time.monotonic()
            way(x, y)
            took.append(max(kolopy.allgather_object(time.monotonic() - start)))
    if kolopy.rank() == 0:
        mine, theirs = (statistics.median(one) for one in times.values())
        spread = [f"{min(one):.2f} to {max(one):.2f}" for one in times.values()]
        print(f"lightgbm: {kolopy.size()} ranks, {ROUNDS} trees of 200,000 rows: Kolo {mine:.2f} s ({spread[0]}), its "
              f"sockets {theirs:.2f} s ({spread[1]}), ratio {mine / theirs:.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--time", action="store_true")
    arguments = parser.parse_args()
    with kolopy.Session():
        if arguments.time:
            check_time()
        else:
            x, y = rows(8000)
            check_models(x, y)
            if kolopy.size() > 1:
                check_wrong_uses(x, y)
                check_trainings_that_end_apart(x, y)
            if kolopy.rank() == 0:
                print(f"lightgbm {lightgbm.__version__}: {kolopy.size()} ranks, all models equal to its own network's")


if __name__ == "__main__":
    sys.exit(main())
