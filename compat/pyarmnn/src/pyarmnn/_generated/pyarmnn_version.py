"""The version of Arm NN whose interface this package has, as functions."""

from __future__ import annotations

from pyarmnn import _version

__all__ = ["GetMajorVersion", "GetMinorVersion", "GetVersion"]


def GetVersion() -> str:
    """Return the version of Arm NN whose interface this package has, such as ``"22.0.0"``."""
    return _version.__arm_ml_version__


def GetMajorVersion() -> str:
    """Return the first number of `GetVersion`."""
    return str(_version.version_info[0])


def GetMinorVersion() -> str:
    """Return the second number of `GetVersion`."""
    return str(_version.version_info[1])
