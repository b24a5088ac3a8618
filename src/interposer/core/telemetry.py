"""Imports of packages that report to their makers over the network, with these reports switched off.

OpenVINO sends an event when it is imported, if the package ``openvino_telemetry`` can be imported too, which comes with
it. ONNX Runtime is asked by an environment variable; see its adapter.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["without_openvino_telemetry"]

_PACKAGE: Final = "openvino_telemetry"
_CONSENT: Final = Path("intel", _PACKAGE)
"""The file in the home folder with which users allow the telemetry, when it has the text 1."""
_lock: Final = threading.RLock()


@contextmanager
def without_openvino_telemetry() -> Iterator[None]:
    """Return a context in which ``import openvino`` sends nothing, unless the user has allowed that with a file.

    OpenVINO works without the package for its telemetry. It is absent for imports in the block only. Thread safe.
    """
    with _lock:
        if _PACKAGE in sys.modules or _is_allowed():
            yield
            return
        sys.modules[_PACKAGE] = None  # type: ignore[assignment] # which makes its import fail
        try:
            yield
        finally:
            sys.modules.pop(_PACKAGE, None)


def _is_allowed() -> bool:
    try:
        return (Path.home() / _CONSENT).read_text(encoding="utf-8").strip() == "1"
    except (OSError, ValueError, RuntimeError):
        return False
