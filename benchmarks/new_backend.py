"""From nothing to a backend that conforms: `interposer new-backend`, the build, and the whole conformance run."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

INTERPOSER = [sys.executable, "-m", "interposer"]
MAKE = ["make", f"PYTHON={sys.executable}"]
TOOLS = {"python": "python3", "c": "cc", "cpp": "c++", "rust": "rustc"}
AIM = 120.0
"""Seconds that each language should stay below."""


def measure(folder: Path, repeat: int) -> dict[str, dict[str, float]]:
    """Seconds of each step in each language that is here; once, as it takes long. Raises where one does not conform."""
    found: dict[str, dict[str, float]] = {}
    print("\nfrom new-backend to a green conformance run, seconds")
    print(f"  {'':8}{'write':>8}{'build':>8}{'check':>8}{'all':>8}   below {AIM:g}?")
    for language, tool in TOOLS.items():
        if shutil.which(tool) is None and language != "python":
            print(f"  {language:8}skipped, as {tool} is not here")
            continue
        found[language] = times = _steps(language)
        times["all"] = sum(times.values())
        cells = "".join(f"{seconds:8.1f}" for seconds in times.values())
        print(f"  {language:8}{cells}   {'yes' if times['all'] < AIM else 'NO'}")
    return found


def _steps(language: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        write = [*INTERPOSER, "new-backend", "Fresh", "--lang", language, "--folder", f"{folder}/fresh"]
        commands = {"write": write, "build": MAKE, "check": [*MAKE, "check"]}
        if language == "python":  # nothing to build
            commands = {"write": write, "build": [], "check": [sys.executable, "-m", "pytest", "-q"]}
        places = {"write": folder}
        return {name: _seconds(words, places.get(name, f"{folder}/fresh")) for name, words in commands.items()}


def _seconds(words: list[str], folder: str) -> float:
    start = time.perf_counter()
    done = subprocess.run(words or ["true"], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}\n{done.stdout}\n{done.stderr}")
    return time.perf_counter() - start if words else 0.0
