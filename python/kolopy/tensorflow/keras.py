# SPDX-License-Identifier: Apache-2.0
"""The same names where programs for `horovod.tensorflow.keras` look for them."""

from kolopy.tensorflow import *  # noqa: F403
from kolopy.tensorflow import __all__, __getattr__  # noqa: F401
