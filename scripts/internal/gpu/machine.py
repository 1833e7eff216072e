# SPDX-License-Identifier: Apache-2.0
"""The machine on which scripts/gpu-check runs."""
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from . import page

NO_DEVICE = re.compile("no CUDA device|No CUDA-compatible GPU")

class Machine:
    """What this one has, and the environment of the steps."""

    def __init__(self, prepared, work, rehearsed, with_torch):
        self.work, self.rehearsed, self.with_torch = work, rehearsed, with_torch
        for folder in ("bin", "openmpi/bin"):
            for file in (prepared / folder).iterdir():
                file.chmod(0o755)  # which a copy may have lost
        nccl = self._nccl()
        self.env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                    "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
                    "PYTHONPATH": f"{work / 'python'}:{os.environ.get('PYTHONPATH', '')}",
                    "PATH": f"{prepared / 'openmpi/bin'}:{os.environ['PATH']}:/usr/local/cuda/bin",
                    "LD_LIBRARY_PATH": f"{prepared / 'lib'}:{prepared / 'openmpi/lib'}:{nccl}:"
                                       f"{os.environ.get('LD_LIBRARY_PATH', '')}"}
        self.description = page.describe_machine()
        self.gpus = len([line for line in (page.output_of("nvidia-smi", "-L") or []) if line.startswith("GPU ")])

    def _nccl(self):
        """A folder with NCCL alone: PyTorch's, which one process can then share with Kolo, or that beside CUDA."""
        find = "import importlib.util as u; print(*u.find_spec('nvidia.nccl').submodule_search_locations)"
        wheel = page.output_of(sys.executable, "-c", find) or []
        places = [Path(folder) / "lib" for folder in wheel] + [
            Path(line.split()[-1]).parent for line in page.output_of("/sbin/ldconfig", "-p") or [] if "libnccl.so.2 " in line]
        places += [Path("/usr/local/cuda/lib64")]
        folder = self.work / "nccl"
        folder.mkdir()
        found = next((place for place in places if (place / "libnccl.so.2").exists()), None)
        if found:
            (folder / "libnccl.so.2").symlink_to(found / "libnccl.so.2")
        return folder

    def lacks(self, step):
        """What the step needs and there is not, or an empty string."""
        for need in step.needs:
            if need == "--torch":
                there = self.with_torch
            elif need == "torch":
                there = self.description["torch"] is not None
            elif need == "kolo_torch":
                there = (self.work / "python/kolo_torch/_build.py").exists()
            else:
                there = need == "device" or shutil.which(need, path=self.env["PATH"]) is not None
            if not there:
                return f"needs {need}"
        return ""

    def run(self, step, seconds):
        """(verdict, remark)"""
        log = self.work / f"{step.name}.log"
        with open(log, "wb") as output:
            process = subprocess.Popen(step.command, env={**self.env, **step.env}, stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, start_new_session=True)
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                end(process)
                return "failed", f"ended after {seconds:.0f} s"
        if self.rehearsed and "device" in step.needs:
            said = log.read_text(encoding="utf-8", errors="replace")
            return ("says no device", "") if NO_DEVICE.search(said) else ("failed", f"exit status {status}")
        return ("passed", "") if status == 0 else ("failed", f"exit status {status}")


def end(process):
    """mpirun ends its ranks when it is asked to end; whoever is left is killed."""
    for number, patience in ((signal.SIGTERM, 5), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience)
        except (subprocess.TimeoutExpired, ProcessLookupError):
            pass
