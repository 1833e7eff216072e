# SPDX-License-Identifier: Apache-2.0
"""Ranks as forked processes: PyTorch is imported once, before they are made."""

import os
import signal
import sys
import tempfile
import traceback


class Ranks:
    """Runs body(rank, size, folder) in `size` processes; `folder` is theirs alone."""

    def __init__(self, size, body):
        self.size = size
        self.folder = tempfile.TemporaryDirectory(prefix="kolo-c10d-")
        sys.stdout.flush()
        sys.stderr.flush()
        self.pids = [self._fork(rank, body) for rank in range(size)]

    def _fork(self, rank, body):
        pid = os.fork()
        if pid != 0:
            return pid
        status = 1
        try:
            body(rank, self.size, self.folder.name)
            status = 0
        except BaseException:
            sys.stderr.write(f"rank {rank} of {self.size}:\n{traceback.format_exc()}")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def wait(self):
        """The ranks' exit statuses; minus the signal's number for one that was killed."""
        statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in self.pids]
        self.folder.cleanup()
        return statuses


def kill_me():
    os.kill(os.getpid(), signal.SIGKILL)
