#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long the survivors of a killed rank take to go on with each other (torch.distributed._reconfigure), over Kolo and
over Gloo in turns: from SIGKILL to the end of their first all-reduce.

    OMP_NUM_THREADS=1 python3 bench/pytorch/reconfigure.py [--ranks N] [--times N] [--json FILE]

Each time a job of N processes makes all-reduces of 4 MiB, and this process kills one of them, each rank in its turn. It
then tells the others who is left, as a program's own supervision would. Milliseconds: the median, and in brackets the
shortest, the 99th percentile and the longest, of the slowest survivor; "heard": until its all-reduce failed; "met": until
_reconfigure had returned, from then on; "summed": its first all-reduce. The sums are checked. One CPU for each survivor,
and PyTorch 2.15 or newer.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import kolo_torch

ELEMENTS = 1 << 20
TIMEOUT = timedelta(seconds=10)  # of a group
PATIENCE = timedelta(seconds=100)


def all_reduce(size):
    tensor = torch.full((ELEMENTS,), dist.get_rank() + 1.0)
    dist.all_reduce(tensor)
    if tensor[0] != size * (size + 1) / 2 or tensor[-1] != tensor[0]:
        raise SystemExit(f"wrong: {tensor[0]} of {size} ranks")


def handles(store, key, rank, size):
    store.set(f"{key}/{rank}", dist._get_reconfigure_handle())
    return [store.get(f"{key}/{each}").decode() for each in range(size)]


def survivor(backend, store, rank, size):
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT, enable_reconfigure=True)
    dist._reconfigure(1, handles(store, "first", rank, size)).wait()
    all_reduce(size)
    left = handles(store, "second", rank, size)  # Gloo's are others each time
    store.set(f"runs/{rank}", "1")
    try:
        while True:
            all_reduce(size)
    except RuntimeError:
        heard = time.monotonic()
    dead = int(store.get("dead"))
    dist._reconfigure(2, left[:dead] + left[dead + 1:], timeout=PATIENCE).wait()
    met = time.monotonic()
    all_reduce(size - 1)
    store.set(f"times/{rank}", json.dumps([heard, met, time.monotonic()]))
    store.get("end")


def once(backend, size, dead):
    """Milliseconds of the slowest survivor: in all, heard, met, summed."""
    with tempfile.TemporaryDirectory(prefix="kolo-bench-") as folder:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=PATIENCE)
        sys.stdout.flush()
        pids = []
        for rank in range(size):
            pids.append(os.fork())
            if pids[-1] == 0:
                os.dup2(os.open(os.path.join(folder, str(rank)), os.O_WRONLY | os.O_CREAT), 2)  # what PyTorch logs
                status = 1
                try:
                    client = dist.TCPStore("127.0.0.1", store.port, is_master=False, timeout=PATIENCE)
                    survivor(backend, client, rank, size)
                    status = 0
                finally:
                    os._exit(status)
        others = [rank for rank in range(size) if rank != dead]
        for rank in range(size):
            store.get(f"runs/{rank}")
        begin = time.monotonic()
        os.kill(pids[dead], signal.SIGKILL)
        os.waitpid(pids[dead], 0)
        store.set("dead", str(dead))
        times = [json.loads(store.get(f"times/{rank}")) for rank in others]
        store.set("end", "1")
        for rank in others:
            if os.waitpid(pids[rank], 0)[1] != 0:
                raise SystemExit(f"{backend}: rank {rank} has failed")
    heard, met, summed = max(times, key=lambda each: each[2])
    return [1000 * (summed - begin), 1000 * (heard - begin), 1000 * (met - heard), 1000 * (summed - met)]


def row(samples):
    ordered = sorted(samples)
    return {"median": statistics.median(ordered), "shortest": ordered[0],
            "p99": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], "longest": ordered[-1]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--times", type=int, default=60)
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = {"kolo": [], "gloo": []}
    for number in range(options.times):
        for backend, samples in results.items():
            samples.append(once(backend, options.ranks, number % options.ranks))
    print(f"{options.ranks} ranks, {options.times} times, kolo {kolo_torch.__version__}, torch {torch.__version__}")
    report = {}
    for backend, samples in results.items():
        columns = dict(zip(("in all", "heard", "met", "summed"), zip(*samples)))
        report[backend] = {name: row(column) for name, column in columns.items()}
        for name, each in report[backend].items():
            print(f"{backend:6} {name:8} {each['median']:8.1f}  ({each['shortest']:.1f}, {each['p99']:.1f}, "
                  f"{each['longest']:.1f})")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
