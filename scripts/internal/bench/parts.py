# SPDX-License-Identifier: Apache-2.0
"""What scripts/bench-cpu measures, part by part. Each part is a function of a Setting that returns records as
kolo-bench writes them; peers that were measured in processes of their own are added to `baseline` of the Kolo record
that they took turns with.

Peers' names: "mpi" runs in Kolo's own process, at MPI_THREAD_MULTIPLE; "mpi apart" in processes of its own at
MPI_THREAD_SINGLE, without Kolo, bound as Kolo is; "mpi apart, unbound" the same with --bind-to none;
"mpi tuned: ..." apart, with other MCA parameters. "ddp" and "ddp-view" are the DDP of Debian's PyTorch, "ddp, PyPI" and
"ddp-view, PyPI" that of the package index's.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import jobs
from .jobs import Job

ROOT = Path(__file__).resolve().parents[3]
APART = ["--peer-only", "-c", "0"]
LAUNCHES = 5  # of a curve


@dataclass
class Setting:
    bench: Path
    idle: Path
    quick: bool
    torch: Path = None  # where PyTorch of the package index is unpacked

    def seconds(self, usual):
        return str(0.1 if self.quick else usual)

    def run(self, job_list, timeout):
        return jobs.run(self.bench, job_list, timeout)


def tuned(algorithm, segment=0):
    """Open MPI's all-reduce by an algorithm of coll_tuned: 4 ring, 5 segmented ring, 6 Rabenseifner."""
    mca = {"coll_tuned_use_dynamic_rules": 1, "coll_tuned_allreduce_algorithm": algorithm}
    return {**mca, "coll_tuned_allreduce_algorithm_segmentsize": segment} if segment else mca


UCX = {"pml": "ucx", "pml_ucx_tls": "any", "pml_ucx_devices": "any"}


def ucx_works(bench):
    """Open MPI may have the component and refuse it: tried, not asked."""
    try:
        jobs.run(bench, [Job("UCX", 2, ["barrier", "--baseline", "mpi", "-t", "0.1", *APART], mca=UCX)], 30)
        return True
    except jobs.Failed as failure:
        print(f"   without UCX: {failure}")
        return False


def tuned_settings(bench):
    settings = {"segmented ring, 128K": tuned(5, 131072), "segmented ring, 1M": tuned(5, 1048576), "ring": tuned(4),
                "Rabenseifner": tuned(6)}
    return {**settings, "UCX": UCX} if ucx_works(bench) else settings


def add_peers(records, name, peers):
    """Enters the records of a peer that was measured apart into those of Kolo, row by row."""
    for record, peer in zip(records, peers):
        assert record["bytes"] == peer["bytes"], (record, peer)
        contestants = {peer["contestant"]: peer["time_us"]}
        contestants.update({other: one["time_us"] for other, one in peer.get("baseline", {}).items()})
        for contestant, time in contestants.items():
            label = name if contestant == "mpi" else f"{contestant}, {name}"
            record.setdefault("baseline", {})[label] = {"time_us": time, "ratio": time / record["time_us"]}
    return records


def apart(ranks, arguments, baseline="mpi", settings=None):
    """The peers apart: bound, unbound, and with MCA parameters."""
    arguments = [*arguments, "--baseline", baseline, *APART]
    found = [Job("mpi apart", ranks, arguments), Job("mpi apart, unbound", ranks, arguments, bound=False)]
    for name, mca in (settings or {}).items():
        found.append(Job(f"mpi tuned: {name}", ranks, arguments, mca=mca))
    return found


def in_turns(setting, kolo, peers, timeout, more=()):
    """Kolo's records with its peers'; `more` are further jobs of Kolo, whose records are returned as well."""
    results = setting.run([kolo, *more, *peers], timeout)
    records = results[kolo.name]
    for job in more:
        results[job.name] = [{**record, "job": job.name} for record in results[job.name]]
    for job in peers:
        add_peers(records, job.name, results[job.name])
        for one in more:
            if len(results[one.name]) == len(results[job.name]):
                add_peers(results[one.name], job.name, results[job.name])
    return records + [record for job in more for record in results[job.name]]


def large(setting):
    """All-reduce of 64 and 256 MiB, plain and in the arena, against Open MPI at its default and at its best."""
    records = []
    settings = tuned_settings(setting.bench)
    for ranks in (2, 4, 8):
        candidates = settings
        for size in ("4M",) if setting.quick else ("64M", "256M"):
            flags = ["allreduce", "-b", size, "-e", size, "--place", "in", "-n", "5", "-w", "1"]
            kolo = Job("kolo", ranks, [*flags, "-t", setting.seconds(8 if size == "64M" else 20)])
            arena = Job("kolo arena", ranks, [*flags, "--arena"])
            found = in_turns(setting, kolo, apart(ranks, flags, settings=candidates), 300, [arena])
            records += found
            best = sorted(candidates, key=lambda name: found[0]["baseline"][f"mpi tuned: {name}"]["time_us"])
            candidates = {name: candidates[name] for name in best[:2]}  # of the best, for the larger size
    return records


def sizes(setting):
    """Synchronous all-reduce from 4 B to 16 MiB."""
    records = []
    for ranks in (2, 4, 8):
        flags = ["allreduce", "-b", "4", "-e", "64K" if setting.quick else "16M", "-f", "2", "--place", "in", "-n", "40"]
        beside = ["--baseline", "mpi"] if ranks == 2 else []
        kolo = Job("kolo", ranks, [*flags, *beside, "-t", setting.seconds(1.6)])
        unbound = [Job("kolo unbound", ranks, flags, bound=False)] if ranks <= jobs.CPUS else []
        records += in_turns(setting, kolo, apart(ranks, flags), 200, unbound)
    return records


def of_launches(launches):
    """One record for each row of several launches: medians, and the ratio to the launch's fastest peer in each."""
    records = []
    for rows in zip(*launches):
        peers = [min(one["time_us"] for one in row["baseline"].values()) for row in rows]
        ratios = [peer / row["time_us"] for peer, row in zip(peers, rows)]
        baseline = {}
        for name in rows[0]["baseline"]:
            time = statistics.median(row["baseline"][name]["time_us"] for row in rows)
            baseline[name] = {"time_us": time, "ratio": statistics.median(
                row["baseline"][name]["time_us"] / row["time_us"] for row in rows)}
        kept = ("collective", "bytes", "ranks", "nodes", "in_place", "arena", "job")
        records.append({**{key: rows[0][key] for key in kept if key in rows[0]},
                        "time_us": statistics.median(row["time_us"] for row in rows),
                        "wrong": sum(max(row["wrong"], 0) for row in rows), "ratio": statistics.median(ratios),
                        "ratios": ratios, "baseline": baseline})
    return records


def curve(ranks):
    def run(setting):
        every = tuned_settings(setting.bench)
        settings = {name: mca for name, mca in every.items() if name == "UCX" or name.startswith("segmented")}
        launches = []
        for _ in range(2 if setting.quick else LAUNCHES):
            rows = []
            for begin, end, warmup, seconds in (("4", "16K", "100", 0.6),
                                                ("64K", "256K" if setting.quick else "64M", "3", 1.5)):
                flags = ["allreduce", "-b", begin, "-e", end, "-f", "4", "--place", "in", "-n", "20", "-w", warmup]
                kolo = Job("kolo", ranks, [*flags, "-t", setting.seconds(seconds)])
                arena = Job("kolo arena", ranks, [*flags, "--arena"])
                rows += in_turns(setting, kolo, apart(ranks, flags, settings=settings), 100, [arena])
            launches.append(rows)
        return of_launches(launches)
    run.__doc__ = f"All-reduce by size on {ranks} ranks, plain and in the arena, in several launches: the curves."
    return run


def timeline(setting):
    """One training step: what of the reduction the backward pass hides, and each gradient's times."""
    flags = ["overlap", "--model", "resnet50", "--arena", "--compute-ms", "40", "--timeline", "-n", "20", "-t",
             setting.seconds(8)]
    return setting.run([Job("kolo", 2, flags)], 60)["kolo"]


def latency(setting):
    """One small tensor, the engine idle before."""
    records = []
    for bound in (True, False):
        name = "kolo" if bound else "kolo unbound"
        found = setting.run([Job(name, 2, ["latency", "-n", "200", "-t", setting.seconds(2)], bound=bound)], 60)[name]
        records += [{**record, "job": name} for record in found]
    return records


def step(model, ranks, seconds):
    def run(setting):
        samples = ["-n", "5", "-w", "2"]
        flags = ["step", "--model", model, "-o", "average", *samples]
        summed = ["step", "--model", model, "-o", "sum", *samples]  # the peer need not even divide
        kolo = Job("kolo", ranks, [*flags, "--submit", "prepared", "-t", setting.seconds(seconds)])
        more = [Job("kolo by name", ranks, [*flags, "--submit", "by-name"]),
                Job("kolo grouped", ranks, [*flags, "--submit", "grouped"]),
                Job("kolo arena", ranks, [*flags, "--submit", "prepared", "--arena"])]
        peers = apart(ranks, summed, "mpi-per-tensor,mpi-packed")
        records = in_turns(setting, kolo, peers, 200, more)
        torches = torches_of(setting)
        if not torches:
            print("   without PyTorch's DDP: python3-torch missing, and no --torch")
            return records
        with tempfile.NamedTemporaryFile("w", suffix=".shapes") as shapes:
            shapes.write("".join(f"{elements}\n" for elements in elements_of(setting.bench, model)))
            shapes.flush()
            script = [str(ROOT / "bench/peers/ddp_step.py"), "--ranks", str(ranks), "--shapes", shapes.name]
            views = [("ddp-view", ["--view"])] + ([("ddp", [])] if model == "many-small" else [])
            ddp = [Job(name + suffix, ranks, more_flags, program=[python, *script], environment=environment)
                   for suffix, python, environment in torches for name, more_flags in views]
            kolos = [Job("kolo, beside ddp", ranks, [*flags, "--submit", "prepared", "-t", setting.seconds(seconds)]),
                     Job("kolo by name, beside ddp", ranks, [*flags, "--submit", "by-name"]),
                     Job("kolo grouped, beside ddp", ranks, [*flags, "--submit", "grouped"]),
                     Job("kolo arena, beside ddp", ranks, [*flags, "--submit", "prepared", "--arena"])]
            found = setting.run([*kolos, *ddp], 200)
        for job in kolos:
            for record in found[job.name]:
                record["job"] = job.name
                for peer_job in ddp:
                    peer = found[peer_job.name][0]
                    record.setdefault("baseline", {})[peer_job.name] = {
                        "time_us": peer["time_us"], "ratio": peer["time_us"] / record["time_us"],
                        "wrong": peer["wrong"], "torch": peer["torch"]}
                records.append(record)
        return records
    run.__doc__ = f"The gradients of {model} on {ranks} ranks."
    return run


def elements_of(bench, model):
    shown = subprocess.run([str(bench), "step", "--model", model, "--list"], capture_output=True, text=True, check=True,
                           env=jobs.ENVIRONMENT)
    return [int(line) for line in shown.stdout.split()]


def torches_of(setting):
    """Each PyTorch that is there: what its peers' names end in, its Python, and what that needs in its environment."""
    debian = python_with_torch()
    found = [("", debian, {})] if debian else []
    return found + ([(", PyPI", sys.executable, {"PYTHONPATH": str(setting.torch)})] if setting.torch else [])


def python_with_torch():
    for python in dict.fromkeys((sys.executable, "/usr/bin/python3")):
        if os.path.exists(python) and subprocess.run([python, "-c", "import torch.distributed"], capture_output=True,
                                                     check=False).returncode == 0:
            return python
    return None


def others(setting):
    """Broadcast, all-gather, all-to-all and reduce-scatter."""
    records = []
    for ranks in (2, 4):
        # Open MPI's reduce-scatter of 1 MiB takes 730 us or 1020, for seconds each: more of it.
        for mode, begin, place, seconds in (("broadcast", "1K", "in", 4), ("allgather", "1K", "out", 4),
                                            ("alltoall", "1K", "out", 4), ("reduce_scatter", "1M", "out", 12)):
            flags = [mode, "-b", begin, "-e", "64K" if setting.quick and begin == "1K" else "64M", "-f", "4", "--place",
                     place, "-n", "24" if seconds < 10 else "200"]
            kolo = Job("kolo", ranks, [*flags, "-t", setting.seconds(seconds)])
            records += in_turns(setting, kolo, apart(ranks, flags), 300)
    return records


def hosts(setting):
    """Between hosts of 2 ranks each, links shaped to 1 Gbit/s: network namespaces, so root is needed."""
    if os.geteuid() != 0:
        raise jobs.Failed("needs root, for network namespaces")
    records = []
    for count in (2, 4):
        for size, samples in (("64K", "20"), ("16M", "3"), ("64M", "3")):
            with tempfile.NamedTemporaryFile(suffix=".json") as out:
                command = [str(ROOT / "scripts/with-hosts"), str(count), "--slots", "2", "--rate", "1gbit", "--",
                           str(setting.bench), "allreduce", "-b", size, "-e", size, "--place", "in", "-n", samples,
                           "-w", "1", "-t", setting.seconds(2 if size == "64K" else 6), "--baseline", "mpi",
                           "--json", out.name]
                done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=jobs.ENVIRONMENT,
                                      check=False)
                if done.returncode != 0:
                    raise jobs.Failed(f"with-hosts {count}: {(done.stderr or done.stdout).strip()[-300:]}")
                records += plain_json(out.name)
    return records


def plain_json(file):
    return json.loads(Path(file).read_text())


def memory(setting):
    """What a rank's resident memory grows by."""
    model = "resnet50" if setting.quick else "bert-base"
    return [record for ranks in (2, 4)
            for record in setting.run([Job("kolo", ranks, ["memory", "--model", model])], 100)["kolo"]]


def idle(setting):
    """What an engine with nothing to do costs: CPU time, and a busy trainer's."""
    records = []
    for ranks in (2, 4):
        over = ["--oversubscribe"] if ranks > jobs.CPUS else []
        kinds = [["--seconds", "1" if setting.quick else "5", "--steps", "20"]]
        if ranks <= jobs.CPUS:  # where busy ranks share a core they slow one another, with Kolo or without
            kinds.append(["--busy", "--seconds", "1" if setting.quick else "10"])
        for flags in kinds:
            command = ["mpirun", *over, "-np", str(ranks), str(setting.idle), *flags]
            done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=jobs.ENVIRONMENT,
                                  check=False)
            lines = [line for line in done.stdout.splitlines() if line.startswith(("good", "MISSED"))]
            if not lines:
                raise jobs.Failed(f"kolo-idle: {(done.stderr or done.stdout).strip()[-300:]}")
            records.append({"collective": "idle", "ranks": ranks, "busy": "--busy" in flags,
                            "good": lines[0].startswith("good"), "verdict": lines[0]})
    return records


PARTS = {
    "small-to-16M": sizes,
    "large": large,
    "curve-2": curve(2),
    "curve-4": curve(4),
    "latency": latency,
    "resnet50-2": step("resnet50", 2, 8),
    "resnet50-4": step("resnet50", 4, 8),
    "bert-base-2": step("bert-base", 2, 30),
    "bert-base-4": step("bert-base", 4, 40),
    "many-small-2": step("many-small", 2, 4),
    "many-small-4": step("many-small", 4, 4),
    "other-collectives": others,
    "hosts": hosts,
    "timeline": timeline,
    "memory": memory,
    "idle": idle,
}
