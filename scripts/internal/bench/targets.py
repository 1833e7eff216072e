# SPDX-License-Identifier: Apache-2.0
"""The targets, and what the records say of each. A row: what, against, target, measured, met (None: not measured)."""
import math

SMALL, MEDIUM = 1 << 10, 32 << 10
MI = 1 << 20
# Horovod 0.28.1 beside per-tensor MPI in one job: its time over MPI's, at its defaults and at its best setting.
HOROVOD = {("resnet50", 2): (134 / 40, 60 / 40), ("resnet50", 4): (291 / 125, 159 / 125),
           ("bert-base", 2): (474 / 189, 225 / 189), ("bert-base", 4): (1142 / 602, 707 / 602)}
LINK = 125e6  # bytes a second of 1 Gbit/s


def size_name(count):
    for suffix in ("", "K", "M"):
        if count < 1024 or count % 1024:
            return f"{count}{suffix}"
        count //= 1024
    return f"{count}G"


def plain(records, **wanted):
    """Records of Kolo's own first job (not in the arena, not unbound, ...) that have these members."""
    return [record for record in records
            if "job" not in record and all(record.get(key) == value for key, value in wanted.items())]


def best_peer(record, among):
    """The shortest time of the peers whose name passes."""
    times = [one["time_us"] for name, one in record.get("baseline", {}).items() if among(name)]
    return min(times) if times else None


def default_mpi(name):
    return name == "mpi" or name.startswith("mpi apart")


def any_mpi(name):
    return name.startswith("mpi")


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


class Rows:
    def __init__(self):
        self.rows = []

    def add(self, what, against, target, measured, met):
        self.rows.append({"what": what, "against": against, "target": target, "measured": measured, "met": met})

    def ratios(self, what, against, least, cases):
        """`cases`: (label, ratio); met when every one reaches `least`."""
        target = f"{least} x faster" if least > 1 else f"at least {least} x as fast"
        text = ", ".join(f"{label}: {ratio:.2f}" for label, ratio in cases)
        self.add(what, against, target, text or "not measured",
                 all(ratio >= least for _, ratio in cases) if cases else None)


def label_of(record):
    return f"{size_name(record['bytes'])} on {record['ranks']}"


def ratio_cases(records, among):
    cases = []
    for record in records:
        peer = best_peer(record, among)
        if peer:
            cases.append((label_of(record), peer / record["time_us"]))
    return cases


def large(rows, records):
    own = plain(records, collective="allreduce")
    arena = [record for record in records if record.get("arena")]
    rows.ratios("all-reduce 64 MiB, 256 MiB; 2, 4, 8 ranks", "Open MPI, default", 2.5, ratio_cases(own, default_mpi))
    rows.ratios("the same", "Open MPI, best setting", 1.4, ratio_cases(own, any_mpi))
    rows.ratios("the same, in the arena", "Open MPI, default", 5, ratio_cases(arena, default_mpi))


def small(rows, records):
    own = plain(records, collective="allreduce")
    middle = ratio_cases([record for record in own if record["bytes"] >= 64 << 10], default_mpi)
    rows.ratios("all-reduce 64 KiB to 16 MiB, every size; 2, 4, 8 ranks", "Open MPI, default", 1.3, middle)
    if middle:
        mean = geometric_mean([ratio for _, ratio in middle])
        rows.ratios("the same, geometric mean", "Open MPI, default", 2, [("all", mean)])
    tiny = [record for record in own if record["bytes"] <= SMALL]
    behind = [(label_of(record), record["time_us"] - best_peer(record, default_mpi))
              for record in tiny if record["ranks"] == 2 and best_peer(record, default_mpi)]
    rows.add("synchronous all-reduce 4 B to 1 KiB, 2 ranks", "Open MPI, default", "at most 2 us slower",
             ", ".join(f"{label}: {us:+.2f} us" for label, us in behind) or "not measured",
             all(us <= 2 for _, us in behind) if behind else None)
    rows.ratios("the same, 4 and 8 ranks", "Open MPI, default", 0.95,
                ratio_cases([record for record in tiny if record["ranks"] > 2], default_mpi))
    between = [record for record in own if 2 * SMALL <= record["bytes"] <= MEDIUM]
    rows.ratios("synchronous all-reduce 8 to 32 KiB, 2 ranks", "Open MPI, default", 1,
                ratio_cases([r for r in between if r["ranks"] == 2 and r["bytes"] >= 8 << 10], default_mpi))
    rows.ratios("synchronous all-reduce 2 to 32 KiB, 4 and 8 ranks", "Open MPI, default", 1.2,
                ratio_cases([record for record in between if record["ranks"] > 2], default_mpi))


def latency(rows, records):
    for name, what in (("latency", "waited for"), ("latency-callback", "told by a callback")):
        found = [(record["job"], record["time_us"]) for record in records if record["collective"] == name]
        rows.add(f"asynchronous small tensor, engine idle before, {what}; 2 ranks", "-", "under 20 us",
                 ", ".join(f"{job}: {us:.1f} us" for job, us in found) or "not measured",
                 all(us < 20 for job, us in found if job == "kolo") if found else None)


def steps(rows, by_part):
    records = [record for part, found in by_part.items() for record in found if record["collective"] == "step"]

    def of(model, ranks, submit, arena=False, ddp=False):
        return next((record for record in records
                     if (record["model"], record["ranks"], record["submit"], record["arena"]) ==
                     (model, ranks, submit, arena) and ("ddp" in record.get("job", "")) == ddp), None)

    def cases(peer, times):
        found = []
        for model in ("resnet50", "bert-base"):
            for ranks in (2, 4):
                record = times(model, ranks)
                time = record and best_peer(record, peer)
                if time:
                    found.append((f"{model} on {ranks}", time / record["time_us"]))
        return found

    def mpi(name):
        return name.startswith("mpi-p")

    def per_tensor(name):
        return name.startswith("mpi-per-tensor")

    rows.ratios("ResNet-50 and BERT-base step, 2 and 4 ranks, prepared", "best of MPI per tensor and packed", 1.6,
                cases(mpi, lambda model, ranks: of(model, ranks, "prepared")))
    rows.ratios("the same, by name", "best of MPI per tensor and packed", 1.6,
                cases(mpi, lambda model, ranks: of(model, ranks, "by-name")))
    for suffix, torch in torches(records):
        for arena in (True, False):
            found = cases(lambda name, suffix=suffix: name == "ddp-view" + suffix,
                          lambda model, ranks, arena=arena: of(model, ranks, "prepared", arena, True))
            where = "in the arena" if arena else "private buffers"
            rows.ratios(f"the same, {where}", f"{torch} DDP, view", 3, found)
    many(rows, of, torches(records))
    for index, (name, least) in enumerate((("its defaults", 5), ("its best setting", 2.5))):
        found = [(f"{model} on {ranks}", factors[index] * ratio) for (model, ranks), factors in HOROVOD.items()
                 for label, ratio in cases(per_tensor, lambda m, r: of(m, r, "prepared", True))
                 if label == f"{model} on {ranks}"]
        rows.ratios("ResNet-50 and BERT-base step, in the arena", f"Horovod 0.28.1, {name}, by way of MPI per tensor",
                    least, found)


def torches(records):
    """What names of peers end in, and the PyTorch that it stands for: Debian's, and the package index's if measured."""
    found = {"": "PyTorch 1.13"}
    for record in records:
        for name, peer in record.get("baseline", {}).items():
            if name.startswith("ddp") and "torch" in peer:
                found[name[name.index(","):] if "," in name else ""] = torch_name(peer)
    return found.items()


def torch_name(peer):
    return f"PyTorch {'.'.join(peer['torch'].split('.')[:2])}"


def many(rows, of, torches_found):
    what = "1000 x 1 KiB step"
    for ranks in (2, 4):
        batch = [of("many-small", ranks, "prepared"), of("many-small", ranks, "grouped")]
        batch = [record for record in batch if record]
        one = of("many-small", ranks, "by-name")
        if not batch or not one:
            rows.add(f"{what}, {ranks} ranks", "MPI packed", "1.3 x faster", "not measured", None)
            continue
        packed = best_peer(batch[0], lambda name: name.startswith("mpi-packed"))
        rows.ratios(f"{what}, {ranks} ranks, prepared or grouped", "MPI packed", 1.3,
                    [(record["submit"], packed / record["time_us"])
                     for record in [min(batch, key=lambda record: record["time_us"])]])
        rows.add(f"{what}, {ranks} ranks, one by one by name", "MPI packed", "at most 1.5 x its time",
                 f"{one['time_us'] / packed:.2f} x", one["time_us"] <= 1.5 * packed)
        for suffix, torch in torches_found:
            names = ("ddp" + suffix, "ddp-view" + suffix)
            for submits, least in ((("prepared", "grouped"), 25), (("by-name",), 12)):
                found = [of("many-small", ranks, submit, False, True) for submit in submits]
                ratios = [(record["submit"], time / record["time_us"]) for record in found if record
                          for time in [best_peer(record, names.__contains__)] if time]
                rows.ratios(f"{what}, {ranks} ranks, {' or '.join(submits)}", f"{torch} DDP", least,
                            [max(ratios, key=lambda case: case[1])] if ratios else [])


MODES = ("allreduce", "reduce", "broadcast", "allgather", "gather", "scatter", "alltoall", "reduce_scatter", "sendrecv",
         "pingpong")


def collectives(rows, records):
    means = []
    every = []
    for mode in MODES:
        found = ratio_cases([record for record in plain(records, collective=mode) if record["bytes"] >= SMALL],
                            default_mpi)
        rows.ratios(f"{mode} 1 KiB to 64 MiB, every size; 2 and 4 ranks", "Open MPI, default", 0.9, found)
        if found:
            every += [ratio for _, ratio in found]
            means.append((mode, geometric_mean([ratio for _, ratio in found])))
    rows.add("these, geometric mean", "Open MPI, default", "1.2 x faster", ", ".join(
        f"{mode}: {mean:.2f}" for mode, mean in [("all", geometric_mean(every)), *means]) if every else "not measured",
             geometric_mean(every) >= 1.2 if every else None)
    for mode, least in (("reduce", 2), ("reduce_scatter", 5)):
        rows.ratios(f"{mode} from 1 MiB; 2 and 4 ranks", "Open MPI, default", least, ratio_cases(
            [record for record in plain(records, collective=mode) if record["bytes"] >= MI], default_mpi))
    behind = [(f"{record['collective']} {label_of(record)}", record["time_us"] - best_peer(record, default_mpi))
              for mode in ("reduce", "gather", "scatter") for record in plain(records, collective=mode)
              if record["bytes"] < SMALL]
    rows.add("reduce, gather and scatter below 1 KiB; 2 and 4 ranks", "Open MPI, default", "at most 0.3 us slower",
             ", ".join(f"{label}: {us:+.2f} us" for label, us in behind) or "not measured",
             all(us <= 0.3 for _, us in behind) if behind else None)
    messages = plain(records, collective="pingpong")
    rows.ratios("pingpong 8 B, 2 ranks", "Open MPI, default", 0.67, ratio_cases(
        [record for record in messages if record["bytes"] == 8 and record["ranks"] == 2], default_mpi))
    rows.ratios("pingpong from 1 MiB; 2 and 4 ranks", "Open MPI, default", 1, ratio_cases(
        [record for record in messages if record["bytes"] >= MI], default_mpi))


def groups(rows, records):
    found = [(f"{record['collective']} {size_name(record['bytes'])}", 1 / ratio)
             for record in plain(records) if record["bytes"] >= SMALL
             for _, ratio in ratio_cases([record], default_mpi)]
    rows.add("two disjoint groups of 2 ranks at once, from 1 KiB", "Open MPI, two communicators",
             "at most 1.1 x its time", ", ".join(f"{label}: {times:.2f} x" for label, times in found) or "not measured",
             all(times <= 1.1 for _, times in found) if found else None)


def calls(rows, records):
    """1000 unnamed asynchronous calls."""
    for way in ("in turns", "one after the other"):
        for against, most in (("the same, prepared", 1.2), ("MPI packed", 1)):
            found = []
            for unnamed in records:
                if unnamed["way"] != way or unnamed["submit"] != "unnamed":
                    continue
                prepared = next(record for record in records
                                if (record["way"], record["submit"], record["ranks"]) ==
                                (way, "prepared", unnamed["ranks"]))
                other = prepared["time_us"] if most > 1 else best_peer(unnamed, any_mpi_packed)
                found.append((f"{unnamed['ranks']} ranks", unnamed["time_us"] / other))
            rows.add(f"1000 x 1 KiB unnamed, {way}", against, f"at most {most} x its time",
                     ", ".join(f"{label}: {times:.2f} x" for label, times in found) or "not measured",
                     all(times <= most for _, times in found) if found else None)


def any_mpi_packed(name):
    return name.startswith("mpi-packed")


def hosts(rows, records):
    found = []
    for record in records:
        if record["bytes"] < MI:
            continue
        count = record["ranks"] // 2
        link_us = 2 * (count - 1) / count * record["bytes"] / LINK * 1e6
        found.append((f"{size_name(record['bytes'])} on {count} x 2", record["time_us"] / link_us))
    rows.add("all-reduce across hosts, 1 Gbit/s, 16 and 64 MiB", "the link", "at most 1.15 x its time",
             ", ".join(f"{label}: {ratio:.2f}" for label, ratio in found) or "not measured",
             all(ratio <= 1.15 for _, ratio in found) if found else None)
    rows.ratios("the same, 64 KiB", "Open MPI, default", 4,
                ratio_cases([record for record in records if record["bytes"] < MI], default_mpi))


def memory(rows, records):
    found = [(record["ranks"], record["held_bytes"] / MI, record["peak_bytes"] / MI) for record in records]
    rows.add("memory of a rank beyond tensors and libraries, BERT-base step", "-", "under 16 MiB",
             ", ".join(f"{ranks} ranks: {held:.2f} MiB held, {peak:.2f} MiB peak" for ranks, held, peak in found)
             or "not measured", all(peak < 16 for _, _, peak in found) if found else None)


def idle(rows, records):
    for busy, what, target in ((False, "idle engine", "no CPU time"),
                               (True, "busy trainer with an idle engine", "no measurable slowdown, no wake-ups")):
        found = [record for record in records if record["busy"] == busy]
        rows.add(what, "the same without it" if busy else "-", target,
                 "; ".join(f"{record['ranks']} ranks: {record['verdict']}" for record in found) or "not measured",
                 all(record["good"] for record in found) if found else None)


def judge(by_part):
    """All rows, in the order of the targets. `by_part`: {part: records}, of the parts that were measured."""
    def both(name):
        return by_part.get(f"{name}-2", []) + by_part.get(f"{name}-4", [])

    rows = Rows()
    large(rows, by_part.get("large", []))
    small(rows, by_part.get("small-to-16M", []))
    latency(rows, by_part.get("latency", []))
    steps(rows, by_part)
    collectives(rows, both("collectives") + both("messages"))
    groups(rows, by_part.get("groups", []))
    calls(rows, both("calls"))
    hosts(rows, by_part.get("hosts", []))
    memory(rows, by_part.get("memory", []))
    idle(rows, by_part.get("idle", []))
    return rows.rows


def beside_or_apart(records):
    """Whether Kolo in its process slows the peer: (size, beside, apart, ratio)."""
    found = []
    for record in plain(records, collective="allreduce"):
        peers = record.get("baseline", {})
        if "mpi" in peers and "mpi apart" in peers:
            beside, apart = peers["mpi"]["time_us"], peers["mpi apart"]["time_us"]
            found.append((size_name(record["bytes"]), beside, apart, beside / apart))
    return found
