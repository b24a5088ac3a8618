"""The time from nothing to a conforming backend: `interposer new-backend`, the build, and the conformance run."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

INTERPOSER = [sys.executable, "-m", "interposer"]
MAKE = ["make", f"PYTHON={sys.executable}"]
TOOLS = {"python": sys.executable, "c": "cc", "cpp": "c++", "rust": "rustc"}
AIM = 120.0
"""Seconds that each language should stay below."""


def measure(folder: Path, repeat: int) -> dict[str, dict[str, float]]:
    """Return the seconds of each step for each installed language, measured once, as this takes long.

    Raises:
        RuntimeError: a generated backend does not conform.
    """
    seconds_by_row: dict[str, dict[str, float]] = {}
    print("\nfrom new-backend to a green conformance run, seconds")
    print(f"  {'':8}{'write':>8}{'build':>8}{'check':>8}{'all':>8}   below {AIM:g}?")
    for language, tool in TOOLS.items():
        if shutil.which(tool) is None:
            print(f"  {language:8}skipped, as {tool} is not here")
            continue
        seconds_by_row[language] = times = _steps(language)
        times["all"] = sum(times.values())
        cells = "".join(f"{times.get(name, 0):8.1f}" for name in ("write", "build", "check", "all"))
        print(f"  {language:8}{cells}   {'yes' if times['all'] < AIM else 'no'}", flush=True)
    return seconds_by_row


def _steps(language: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        project = f"{folder}/fresh-backend"
        written = _seconds([*INTERPOSER, "new-backend", "Fresh", "--lang", language, "--folder", project], folder)
        if language == "python":
            return {"write": written, "check": _seconds([sys.executable, "-m", "pytest", "-q"], project)}
        return {"write": written, "build": _seconds(MAKE, project), "check": _seconds([*MAKE, "check"], project)}


def _seconds(words: list[str], folder: str) -> float:
    start = time.perf_counter()
    completed = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if completed.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}\n{completed.stdout}\n{completed.stderr}")
    return time.perf_counter() - start
