# SPDX-License-Identifier: Apache-2.0
"""What scripts/bench cpu measures, part by part. Each part is a function of a Setting that returns records as
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
        contestants = {peer["contestant"]: peer, **peer.get("baseline", {})}
        for contestant, one in contestants.items():
            label = name if contestant == "mpi" else f"{contestant}, {name}"
            times = {key: one[key] for key in ("time_us", "time_p10_us", "time_p90_us") if key in one}
            record.setdefault("baseline", {})[label] = {**times, "ratio": one["time_us"] / record["time_us"]}
    return records


def apart(ranks, arguments, baseline="mpi", settings=None):
    """The peers apart: bound, unbound, and with MCA parameters."""
    arguments = [*arguments, "--baseline", baseline, *APART]
    found = [Job("mpi apart", ranks, arguments), Job("mpi apart, unbound", ranks, arguments, bound=False)]
    for name, mca in (settings or {}).items():
        found.append(Job(f"mpi tuned: {name}", ranks, arguments, mca=mca))
    return found


def in_turns(setting, kolo, peers, timeout, more=(), leader=0):
    """Kolo's records with its peers'; `more` are further jobs of Kolo, whose records are returned as well. The job at
    `leader` leads, counted from Kolo's first."""
    every = [kolo, *more, *peers]
    results = setting.run(every[leader:] + every[:leader], timeout)
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


def faster_of(rows, others):
    """Of two jobs of Kolo that differ in how their ranks are bound: each row of the faster one, as of peers."""
    found = []
    for row, other in zip(rows, others):
        faster = {**min(row, other, key=lambda one: one["time_us"])}
        faster.pop("job", None)
        faster["wrong"] = max(row["wrong"], 0) + max(other["wrong"], 0)
        found.append(faster)
    return found


def of_launches(launches):
    """One record for each row of several launches: medians, and the ratio to the launch's fastest peer in each."""
    def medians(ones):
        times = ("time_us", "time_p10_us", "time_p90_us", "barrier_us")
        return {key: statistics.median(one[key] for one in ones) for key in times if key in ones[0]}

    records = []
    for rows in zip(*launches):
        peers = [min(one["time_us"] for one in row["baseline"].values()) for row in rows]
        ratios = [peer / row["time_us"] for peer, row in zip(peers, rows)]
        baseline = {}
        for name in rows[0]["baseline"]:
            baseline[name] = {**medians([row["baseline"][name] for row in rows]), "ratio": statistics.median(
                row["baseline"][name]["time_us"] / row["time_us"] for row in rows)}
        kept = ("collective", "bytes", "ranks", "nodes", "in_place", "arena", "job", "submit")
        records.append({**{key: rows[0][key] for key in kept if key in rows[0]},
                        **medians(rows), "wrong": sum(max(row["wrong"], 0) for row in rows),
                        "ratio": statistics.median(ratios), "ratios": ratios, "baseline": baseline})
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


# Where the result goes where there is a choice: as programs mostly have it.
IN_PLACE = ("allreduce", "broadcast")
COLLECTIVES = ("allreduce", "reduce", "broadcast", "allgather", "gather", "scatter", "alltoall", "reduce_scatter")
MESSAGES = ("sendrecv", "pingpong")


def by_size(setting, ranks, mode, more=()):
    """A collective from 8 B to 64 MiB, and its peers: several launches, in each of which another job leads. (The one
    that leads is slower in some rows, whichever it is.) Kolo and its peer both run bound and unbound, and the
    faster job of each counts: the memory of one job lies better than that of another, so the better of two would mostly
    win against one."""
    records = []
    # Open MPI's reduce-scatter of 1 MiB takes 730 us or 1020, for seconds each: more of it.
    usual = ("24", 8) if mode == "reduce_scatter" else ("24", 2)
    for begin, end, factor, warmup, samples, seconds in (("8", "512", "8", "100", "40", 0.6),
                                                         ("1K", "64K" if setting.quick else "64M", "4", "5", *usual)):
        flags = [mode, "-b", begin, "-e", end, "-f", factor, "--place", "in" if mode in IN_PLACE else "out",
                 "-w", warmup, "-n", samples, "-t", setting.seconds(seconds), *more]
        peers = apart(ranks, flags)
        unbound = Job("kolo, unbound", ranks, flags, bound=False)
        launches = []
        for leader in range(2 + len(peers)):
            near = how_near(setting)
            found = in_turns(setting, Job("kolo", ranks, flags), peers, 300, [unbound], leader)
            rows = faster_of(found[:len(found) // 2], found[len(found) // 2:])
            launches.append([{**row, "barrier_us": near} for row in rows])
        records += of_launches(launches)
    return records


def how_near(setting):
    """A barrier of 2 ranks, in us. The CPUs of a virtual machine move: they may share a core or a cache, or lie on
    different dies, minute by minute; then what goes from one to the other takes several times as long."""
    barrier = Job("barrier", 2, ["barrier", "-w", "100", "-n", "40", "-t", setting.seconds(0.1)])
    return setting.run([barrier], 60)["barrier"][0]["time_us"]


def collectives(ranks):
    def run(setting):
        records = [record for mode in COLLECTIVES for record in by_size(setting, ranks, mode)]
        once = ["-w", "100", "-n", "40"]
        seconds = ["-t", setting.seconds(1)]
        barrier = Job("kolo", ranks, ["barrier", *once, *seconds])
        records += in_turns(setting, barrier, apart(ranks, ["barrier", *once]), 60)
        return records + setting.run([Job("kolo", ranks, ["join", *once, *seconds])], 60)["kolo"]
    run.__doc__ = f"Every collective by size on {ranks} ranks, beside Open MPI's."
    return run


def messages(ranks):
    def run(setting):
        return [record for mode in MESSAGES for record in by_size(setting, ranks, mode)]
    run.__doc__ = f"Messages by size on {ranks} ranks, beside Open MPI's."
    return run


def groups(setting):
    """Two groups of 2 ranks that do the same at once, beside two communicators of Open MPI's."""
    return [record for mode in ("allreduce", "broadcast", "alltoall")
            for record in by_size(setting, 4, mode, ["--split", "2"])]


def calls(ranks):
    """1000 small all-reduces. "kolo" is prepared; its peers pack them into one."""
    def run(setting):
        samples = ["step", "--model", "many-small", "-n", "20", "-w", "5", "-t", setting.seconds(4)]
        own = [Job(name, ranks, [*samples, "-o", "average", "--submit", submit])
               for name, submit in (("kolo", "prepared"), ("kolo unnamed", "unnamed"))]
        peers = apart(ranks, [*samples, "-o", "sum"], "mpi-packed")
        in_turn = in_turns(setting, own[0], peers, 100, own[1:])
        launches = []  # each has the machine and its caches to itself
        for _ in range(2 if setting.quick else LAUNCHES):
            found = {job.name: setting.run([job], 60)[job.name] for job in [*own, *peers]}
            rows = [found["kolo"][0], {**found["kolo unnamed"][0], "job": "kolo unnamed"}]
            for peer in peers:
                for row in rows:
                    add_peers([row], peer.name, found[peer.name])
            launches.append(rows)
        return [{**record, "collective": "calls", "way": way}
                for way, records in (("in turns", in_turn), ("one after the other", of_launches(launches)))
                for record in records]
    run.__doc__ = f"1000 all-reduces of 1 KiB on {ranks} ranks: unnamed, prepared, packed by hand."
    return run


def hosts(setting):
    """Between hosts of 2 ranks each, links shaped to 1 Gbit/s: network namespaces, so root is needed."""
    if os.geteuid() != 0:
        raise jobs.Failed("needs root, for network namespaces")
    records = []
    for count in (2, 4):
        for size, samples in (("64K", "20"), ("16M", "3"), ("64M", "3")):
            with tempfile.NamedTemporaryFile(suffix=".json") as out:
                command = [str(ROOT / "scripts/internal/with/hosts"), str(count), "--slots", "2", "--rate", "1gbit", "--",
                           str(setting.bench), "allreduce", "-b", size, "-e", size, "--place", "in", "-n", samples,
                           "-w", "1", "-t", setting.seconds(2 if size == "64K" else 6), "--baseline", "mpi",
                           "--json", out.name]
                done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=jobs.ENVIRONMENT,
                                      check=False)
                if done.returncode != 0:
                    raise jobs.Failed(f"with hosts {count}: {(done.stderr or done.stdout).strip()[-300:]}")
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
    "collectives-2": collectives(2),
    "collectives-4": collectives(4),
    "messages-2": messages(2),
    "messages-4": messages(4),
    "groups": groups,
    "calls-2": calls(2),
    "calls-4": calls(4),
    "hosts": hosts,
    "timeline": timeline,
    "memory": memory,
    "idle": idle,
}
