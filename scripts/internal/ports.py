# SPDX-License-Identifier: Apache-2.0
"""A port for a rank 0 that a script starts."""

import contextlib
import random
import socket
import sys


def free_port():
    """Below those that the system gives to programs that connect, which might take it meanwhile."""
    for port in random.sample(range(30000, 32768), 100):
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
    sys.exit("there is no free port between 30000 and 32767")
