# SPDX-License-Identifier: Apache-2.0
"""What PyTorch calls when it is imported (its group of entry points "torch.backends")."""


def load() -> None:
    """Registers the backend. A kolo_torch that does not fit keeps nobody from importing PyTorch."""
    try:
        import kolo_torch  # noqa: F401
    except ImportError as error:
        import warnings

        warnings.warn(str(error), stacklevel=2)
