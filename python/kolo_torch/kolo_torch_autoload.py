# SPDX-License-Identifier: Apache-2.0
"""What PyTorch calls when it is imported (its group of entry points "torch.backends")."""


def load() -> None:
    """Registers the backend. A kolo_torch that does not fit keeps nobody from importing PyTorch."""
    try:
        import kolo_torch  # noqa: F401
    except Exception as error:  # whatever it is: who wants Kolo reads it here
        import warnings

        kind = "" if isinstance(error, ImportError) else f"kolo_torch could not be imported: {type(error).__name__}: "
        warnings.warn(f"{kind}{error}", stacklevel=2)
