#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kolopy and kolo_torch by pip in fresh virtual environments: what they install works there without numpy, comes back from
wheels in another environment, goes with `pip uninstall`, and says what to do when the torch is another one.

usage: install_test.py SITE      SITE: a folder that pip has installed torch into (pip install --target)

Prints how long the installation took. torch itself is not installed again: the environments have links to SITE.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
KOLO_TORCH = "./python/kolo_torch"
THREE_LINES = """
import os, torch, torch.distributed as dist
dist.init_process_group("kolo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1, bias=False))
model(torch.full((1, 2), dist.get_rank() + 1.0)).sum().backward()
assert model.module.weight.grad.tolist() == [[1.5, 1.5]], model.module.weight.grad
print("averaged by " + dist.get_backend())  # in one piece: another rank writes there, too
"""


def run(*command, succeeds=True, **environment):
    """What it prints; it must succeed, or must not."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    kept.update(OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", **environment)
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=kept, cwd=ROOT, check=False)
    assert (result.returncode == 0) == succeeds, f"{command}: {result.stdout[-4000:]}{result.stderr[-4000:]}"
    return result.stdout + result.stderr


class Environment:
    """A virtual environment in `folder` with SITE's packages, but for numpy."""

    def __init__(self, folder, site):
        self.folder = pathlib.Path(folder)
        run(sys.executable, "-m", "venv", "--without-pip", folder)
        self.python = self.folder / "bin" / "python"
        self.packages = pathlib.Path(run(self.python, "-c", "import site; print(site.getsitepackages()[0])").strip())
        for entry in pathlib.Path(site).resolve().iterdir():
            if not entry.name.startswith(("numpy", "kolo", "bin", "__pycache__")):
                (self.packages / entry.name).symlink_to(entry)

    def pip(self, *arguments):
        return run(*self._pip(), *arguments)

    def fails(self, *arguments):
        """What pip prints; it must fail."""
        return run(*self._pip(), *arguments, succeeds=False)

    def _pip(self):
        return [sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check"]

    def files(self):
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))

    def take_another_torch(self, version):
        """The same torch, which calls itself another."""
        theirs, mine = (self.packages / "torch").resolve(), self.packages / "torch"
        mine.unlink()
        mine.mkdir()
        for entry in theirs.iterdir():
            if entry.name != "__pycache__":
                (mine / entry.name).symlink_to(entry)
        text = (theirs / "version.py").read_text()
        (mine / "version.py").unlink()
        (mine / "version.py").write_text(text + f"\n__version__ = '{version}'\n")


def check_that_it_works(environment, folder):
    script = pathlib.Path(folder) / "three_lines.py"
    script.write_text(THREE_LINES)
    command = [environment.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
    printed = run(*command)
    assert printed.count("averaged by kolo") == 2, printed


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__.strip())
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    site = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="kolo-install-") as folder:
        first = Environment(f"{folder}/first", site)
        before = first.files()
        printed = first.fails("install", "--no-deps", KOLO_TORCH)
        assert "install it first (pip install . in Kolo's source folder)" in " ".join(printed.split()), printed
        for package in (".", KOLO_TORCH):
            begin = time.monotonic()
            first.pip("install", package)
            print(f"pip install {package} took {time.monotonic() - begin:.0f} s", flush=True)
        check_that_it_works(first, folder)
        one_library = run(first.python, ROOT / "tests/c10d/one_library_test.py")
        assert "OK" in one_library, one_library
        for package in (".", KOLO_TORCH):
            first.pip("wheel", "--no-deps", "--wheel-dir", folder, package)
        first.pip("uninstall", "--yes", "kolo-torch", "kolopy")
        after = first.files()
        assert after == before, sorted(set(after) ^ set(before))
        print("installed, used and uninstalled: passed", flush=True)

        wheels = sorted(pathlib.Path(folder).glob("kolo*.whl"))
        assert [wheel.name.split("-")[0] for wheel in wheels] == ["kolo_torch", "kolopy"], wheels
        second = Environment(f"{folder}/second", site)
        second.pip("install", "--no-deps", *wheels)
        check_that_it_works(second, folder)
        sizes = " and ".join(f"{wheel.stat().st_size / 2**20:.1f}" for wheel in wheels)
        print(f"wheels of {sizes} MiB in another environment: passed", flush=True)

        version = run(second.python, "-c", "import torch; print(torch.__version__)").splitlines()[0]
        second.take_another_torch("1.0.0")
        printed = run(second.python, "-c", "import torch; print('torch is there')")
        sentence = (f"kolo_torch was built against torch {version}, and this is torch 1.0.0. Build it again for this "
                    "one, in Kolo's source folder: pip install --force-reinstall --no-deps --no-cache-dir ./python/kolo_torch")
        assert sentence in printed and "torch is there" in printed, printed
        code = "try: import kolo_torch\nexcept ImportError as error: print(f'<{error}>')"
        printed = run(second.python, "-W", "ignore", "-c", code)
        assert f"<{sentence}>" in printed, printed
        print("beside another torch: passed", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
