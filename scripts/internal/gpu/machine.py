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
SHARES_GPUS = (2, 30)  # NCCL, among ranks of a host (NCCL_MULTI_RANK_GPU_ENABLE)
CANNOT_TELL = 77  # a step's exit status; the last line of its output says why
NCCL_VERSION = "import ctypes; v = ctypes.c_int(); ctypes.CDLL('libnccl.so.2').ncclGetVersion(ctypes.byref(v)); print(v.value)"


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
        self.nccl = self._nccl_version()
        self.description = {**page.describe_machine(), "NCCL": self.nccl and ".".join(map(str, self.nccl))}
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

    def _nccl_version(self):
        """(2, 30, 7) of what the steps load, or None."""
        said = page.output_of("env", f"LD_LIBRARY_PATH={self.env['LD_LIBRARY_PATH']}", sys.executable, "-c", NCCL_VERSION)
        return (int(said[0]) // 10000, int(said[0]) // 100 % 100, int(said[0]) % 100) if said else None

    def lacks(self, step):
        """A sentence about what the step needs and there is not, or an empty string."""
        for need in step.needs:
            if need == "two GPUs":
                if self.gpus < 2 and not self.rehearsed:
                    return f"needs two GPUs, and there is {self.gpus or 'none'}"
                continue
            if need == "peer memory":
                if self.gpus < 2 and (self.nccl is None or self.nccl < SHARES_GPUS):
                    return (f"needs two GPUs, or NCCL {'.'.join(map(str, SHARES_GPUS))} (nvidia-nccl-cu13 of the package "
                            f"index) for two ranks on one; NCCL is {self.description['NCCL'] or 'not there'}")
                continue
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
        if status == CANNOT_TELL:
            return "skipped", log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
        if status == 0 and step.says and not re.search(step.says, log.read_text(encoding="utf-8", errors="replace")):
            return "failed", f"its output does not say '{step.says}'"
        return ("passed", "") if status == 0 else ("failed", f"exit status {status}")


def end(process):
    """mpirun ends its ranks when it is asked to end; whoever is left is killed."""
    for number, patience in ((signal.SIGTERM, 5), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience)
        except (subprocess.TimeoutExpired, ProcessLookupError):
            pass
