#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/frameworks.md on 2 ranks: over Gloo, over Kolo by KOLO_AS_GLOO=1, and over Kolo as the framework
lets a program name a backend. Weights must be Gloo's to the bit, and operations must have reached Kolo.

usage: frameworks_test.py [FRAMEWORK...]      needs kolo_torch and the frameworks on the path
       frameworks_test.py --rank FILE         one rank of a program: what torchrun starts

Prints a row a program and way: the milliseconds of a step are medians of what lies between the optimizer's steps.
Accelerate's program is started by `accelerate launch`, too, where there is an mpirun.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "c10d"))
from ranks import as_installed  # noqa: E402

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/frameworks.md"
FIRST = 'import torch\ntorch.distributed.init_process_group("kolo")\n'
# How the program names Kolo itself: what is put before it, or (old, new) in it.
NAMED = {
    "Accelerate": FIRST,
    "Trainer": FIRST,
    "Lightning": ('strategy="ddp"', 'strategy=lightning.strategies.DDPStrategy(process_group_backend="kolo")'),
    "Fabric": ('strategy="ddp"', 'strategy=DDPStrategy(process_group_backend="kolo")'),
    "DeepSpeed": FIRST,
    "Keras": ('"gloo"', '"kolo"'),
    "Ray": ("TorchTrainer(train,", 'TorchTrainer(train, torch_config=ray.train.torch.TorchConfig(backend="kolo"),'),
}
USES_CPU = {"Accelerate": ("(cpu=True)", "()"), "Trainer": ("use_cpu=True, ", "")}
IMPORTS = {"Fabric": "from lightning_fabric.strategies import DDPStrategy\n"}
VARIABLES = {
    "DeepSpeed": {"DS_ACCELERATOR": "cpu"},
    "Keras": {"KERAS_BACKEND": "torch"},
    "Ray": {"RAY_DEDUP_LOGS": "0"},  # both workers print the same result
}


def programs():
    """By heading."""
    return dict(re.findall(r"^## (\S+)[^\n]*\n.*?^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))


def watch():
    """Notes the optimizer's steps from now on. What it returns prints the result: a digest of the weights, those of the
    optimizer without a model; how many steps there were; how many operations reached Kolo."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    times, operations, optimizers = [], [0], [None]

    def after_step(optimizer, *_):
        times.append(time.perf_counter())
        optimizers[0] = optimizer
        if "kolo_torch" in sys.modules and torch.distributed.is_initialized():
            backend = sys.modules["kolo_torch"].backend_of()
            if backend is not None:
                operations[0] = backend.counters()["submissions"]

    def show(model=None):
        if model is None:
            weights = [weight for group in optimizers[0].param_groups for weight in group["params"]]
        else:
            weights = [weight for _, weight in sorted(model.state_dict().items())]
        digest = hashlib.sha256()
        for weight in weights:
            digest.update(weight.detach().float().cpu().contiguous().numpy().tobytes())
        steps = [1000 * (b - a) for a, b in zip(times[1:], times[2:])]
        result = {"weights": digest.hexdigest()[:16], "steps": len(times), "operations": operations[0],
                  "ms": statistics.median(steps) if steps else None}
        print("RESULT " + json.dumps(result), flush=True)

    register_optimizer_step_post_hook(after_step)
    return show


def watched(train):
    """What a worker of Ray Train runs."""

    def body():
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "c10d"))
        show = watch()
        train()
        show()

    return body


def one_rank(file):
    """Runs the program, and shows its result."""
    text = pathlib.Path(file).read_text()
    space = {"__name__": "__main__", "watched": watched}
    if "TorchTrainer(" in text:  # its workers are other processes
        exec(compile(text.replace("TorchTrainer(train,", "TorchTrainer(watched(train),"), file, "exec"), space)
        return
    show = watch()
    exec(compile(text, file, "exec"), space)
    show(space["model"])


def by_torchrun(_folder):
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d",
            "--rdzv-endpoint", "localhost:0"]


def by_itself(_folder):
    return [sys.executable]


def by_accelerate(folder):
    hosts = pathlib.Path(folder) / "hosts"
    hosts.write_text("localhost slots=2\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_machines", "1", "--num_processes", "2",
            "--mpirun_hostfile", str(hosts), "--main_process_port", str(port)]


def run(name, text, variables, start):
    """The results of both ranks, or None and what was printed."""
    with tempfile.TemporaryDirectory(prefix="kolo-frameworks-") as folder:
        file = pathlib.Path(folder) / "train.py"
        file.write_text(text)
        environment = {**as_installed(folder), "OMP_NUM_THREADS": "1", **VARIABLES.get(name, {}), **variables}
        done = subprocess.run([*start(folder), __file__, "--rank", str(file)], env=environment, capture_output=True,
                              text=True, timeout=600, check=False, cwd=folder)
    results = [json.loads(found) for found in re.findall(r"RESULT (\{.*?\})", done.stdout)]
    if done.returncode != 0 or len(results) != 2:
        return None, done.stdout[-3000:] + done.stderr[-3000:]
    return results, ""


def ways_of(name, text):
    """By label: the program, its variables, and what starts it. The first is Gloo's."""
    start, named = by_itself if name == "Ray" else by_torchrun, NAMED[name]
    as_gloo = {"KOLO_AS_GLOO": "1"}
    ways = {"gloo": (text, {}, start), "as gloo": (text, as_gloo, start)}
    if isinstance(named, str):
        ways["named"] = (named + text, {}, start)
    else:
        assert named[0] in text
        ways["named"] = (IMPORTS.get(name, "") + text.replace(*named), {}, start)
    if name in USES_CPU:  # not said by the program
        old, new = USES_CPU[name]
        assert old in text
        ways["USE_CPU"] = (text.replace(old, new), {**as_gloo, "ACCELERATE_USE_CPU": "1"}, start)
        if shutil.which("mpirun"):
            root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            ways["launch"] = (text.replace(old, new), {**as_gloo, **root}, by_accelerate)
    return ways


def main():
    if sys.argv[1:2] == ["--rank"]:
        return one_rank(sys.argv[2])
    texts, failed = programs(), 0
    print(f"{'framework':<12} {'way':<10} {'weights':<18} {'steps':>5} {'ms a step':>9} {'operations':>10}")
    for name in sys.argv[1:] or list(texts):
        for stage in ["0", "1", "2", "3"] if name == "DeepSpeed" else [""]:
            label, expected = f"{name} {stage}".strip(), None
            for way, (text, variables, start) in ways_of(name, texts[name]).items():
                results, error = run(name, text, {**variables, "STAGE": stage}, start)
                if results is None:
                    print(f"{label:<12} {way:<10} FAILED\n{error}", flush=True)
                    failed += 1
                    continue
                expected = expected or results[0]["weights"]
                operations = min(result["operations"] for result in results)
                problem = ""
                if {result["weights"] for result in results} != {expected}:
                    problem = "  other weights than Gloo's"
                if (operations > 0) != (way != "gloo"):
                    problem += "  not over the backend that was asked for"
                failed += bool(problem)
                milliseconds = results[0]["ms"]
                shown = "-" if milliseconds is None else f"{milliseconds:.2f}"
                print(f"{label:<12} {way:<10} {results[0]['weights']:<18} {results[0]['steps']:>5} {shown:>9} "
                      f"{operations:>10}{problem}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
