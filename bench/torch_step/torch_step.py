#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training step of ResNet-50: LibTorch with Kolo against Python's DistributedDataParallel over Gloo.

usage: torch_step.py --torch-resnet PROGRAM [--ranks N] [--rounds N] [--steps N] [--alone N] [--batch N] [--image N]
                     [--threads N] [--gradients none|zeros|both] [--json FILE [--more]]

Both jobs run in turns, `rounds` times, each in fresh processes. Each takes `steps` steps, after which memory is looked
at; then `alone` more, and after each of them one on a second model that every rank takes by itself: what the
computation alone takes, in that language, in those processes, at that moment. A round's time beyond the computation is
the median difference of these pairs, without the first 3. Both reset gradients by set_to_none, and both again by zeroing ("zeros"). Images are
small, batches of 1, so that communication is not lost in the noise of the computation. The interval is that of
Student's t at 95 % over rounds; --more adds this run's rounds to those in the file, which must be of the same flags.
Start it with the Python that has torch: Debian's python3-torch is the same version with the same kernels as
libtorch-dev.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

# Student's t, two-sided 95 %, by degrees of freedom from 1.
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
       2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)
WARM_UP = 3
HERE = Path(__file__).resolve().parent
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def common_flags(flags, zeros):
    names = ("alone", "steps", "batch", "image", "threads")
    return [word for name in names for word in (f"--{name}", str(getattr(flags, name)))] + ["--zeros"] * zeros


def run_kolo(flags, zeros, folder):
    result = folder / "kolo.json"
    environment = {**ENVIRONMENT, "OMP_NUM_THREADS": str(flags.threads)}
    subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(flags.ranks), flags.torch_resnet,
                    *common_flags(flags, zeros), "--json", str(result)], check=True, env=environment,
                   stdout=subprocess.DEVNULL)
    return json.loads(result.read_text())


def run_ddp(flags, zeros, folder):
    result = folder / "ddp.json"
    environment = {**ENVIRONMENT, "OMP_NUM_THREADS": str(flags.threads)}
    with tempfile.TemporaryDirectory(dir=folder) as store:
        jobs = []
        for rank in range(flags.ranks):
            command = [sys.executable, str(HERE / "ddp_resnet.py"), "--rank", str(rank), "--size", str(flags.ranks),
                       "--store", f"{store}/store", *common_flags(flags, zeros)]
            jobs.append(subprocess.Popen(command + (["--json", str(result)] if rank == 0 else []), env=environment))
        if any([job.wait() for job in jobs]):
            raise SystemExit("torch_step: a rank of DDP failed")
    return json.loads(result.read_text())


def measure(run, flags, zeros, folder):
    times = run(flags, zeros, folder)
    pairs = [(1e3 * t, 1e3 * a) for t, a in zip(times["together"], times["alone"])][WARM_UP:]
    return {"alone": statistics.median(a for _, a in pairs), "together": statistics.median(t for t, _ in pairs),
            "beyond": statistics.median(t - a for t, a in pairs), "mebibytes": times["mebibytes"]}


def mean_and_interval(values):
    if len(values) < 2:
        return values[0], math.nan
    student = T95[min(len(values) - 1, len(T95)) - 1]
    return statistics.mean(values), student * statistics.stdev(values) / math.sqrt(len(values))


def summary(rounds):
    table = {}
    for what in ("alone", "together", "beyond", "mebibytes"):
        table[what] = mean_and_interval([one[what] for one in rounds])
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-resnet", required=True)
    for name, default in (("ranks", 2), ("rounds", 5), ("steps", 4), ("alone", 18), ("batch", 1), ("image", 64),
                          ("threads", 1)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--gradients", choices=("none", "zeros", "both"), default="both")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--more", action="store_true")
    flags = parser.parse_args()

    jobs = [(f"{who}{', zeros' if zeros else ''}", run, zeros)
            for zeros in (False, True) if flags.gradients in ("both", "zeros" if zeros else "none")
            for who, run in (("kolo", run_kolo), ("ddp", run_ddp))]
    rounds = {name: [] for name, _, _ in jobs}
    setup = {name: getattr(flags, name) for name in ("ranks", "steps", "alone", "batch", "image", "threads")}
    if flags.more and flags.json.exists():
        before = json.loads(flags.json.read_text())
        if before["setup"] != setup:
            raise SystemExit(f"torch_step: {flags.json} is of other flags: {before['setup']}")
        rounds = {**rounds, **before["rounds"]}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(flags.rounds):
            for name, run, zeros in jobs if number % 2 == 0 else reversed(jobs):
                one = measure(run, flags, zeros, Path(folder))
                rounds[name].append(one)
                print(f"round {number}  {name:12} " + "  ".join(f"{what} {one[what]:.1f}" for what in one),
                      file=sys.stderr, flush=True)
            if flags.json:
                flags.json.write_text(json.dumps({"setup": setup, "rounds": rounds}, indent=1))

    print(f"ResNet-50, {flags.image} x {flags.image}, batch {flags.batch}, {flags.ranks} ranks of {flags.threads} "
          f"threads, {'/'.join(str(len(some)) for some in rounds.values())} rounds; milliseconds, mean +- 95 %")
    rounds = {name: some for name, some in rounds.items() if some}
    print(f"{'':12} {'step':>16} {'computation':>16} {'beyond it':>16} {'images/s':>9} {'MiB a rank':>11}")
    results = {name: summary(values) for name, values in rounds.items()}
    for name, table in results.items():
        cells = " ".join(f"{f'{table[what][0]:.1f} +- {table[what][1]:.1f}':>16}"
                         for what in ("together", "alone", "beyond"))
        images = 1e3 * flags.batch * flags.ranks / table["together"][0]
        print(f"{name:12} {cells} {images:9.1f} {table['mebibytes'][0]:11.0f}")
    for zeros in ("", ", zeros"):
        kolo, ddp = rounds.get("kolo" + zeros, []), rounds.get("ddp" + zeros, [])
        if not kolo:
            continue
        ratio = mean_and_interval([k["beyond"] / d["beyond"] for k, d in zip(kolo, ddp)])
        print(f"beyond the computation, kolo / ddp{zeros}: {ratio[0]:.3f} +- {ratio[1]:.3f}")


main()
