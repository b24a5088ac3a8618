"""The versions of this package and of the Arm NN release whose interface it has."""

from __future__ import annotations

import os

__all__ = ["check_armnn_version"]

version_info = (22, 0, 0)
__arm_ml_version__ = ".".join(map(str, version_info))
__dev_version_env = os.getenv("PYARMNN_DEV_VER", "")
__version__ = f"{__arm_ml_version__}.dev{__dev_version_env}" if __dev_version_env else __arm_ml_version__


def check_armnn_version(installed_armnn_version: str, expected_armnn_version: str = __arm_ml_version__) -> None:
    """Check that two versions of Arm NN have the same major and minor number; other numbers may differ.

    Raises:
        AssertionError: they differ.
    """
    if expected_armnn_version.split(".")[:2] != installed_armnn_version.split(".")[:2]:
        raise AssertionError(
            f"Expected ArmNN version is {expected_armnn_version} "
            f"but installed ArmNN version is {installed_armnn_version}"
        )
