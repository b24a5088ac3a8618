"""Builds native backends with CMake, as the package's build does, but with other options."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native import compiler_for, install_plugin

SOURCES = Path(__file__).parents[3] / "native"


def built(folder: Path, *, backend: str = "CpuAcc", sanitize: str = "") -> Path:
    """Return the shared object of a backend, alone in a folder.

    It is built in `folder`; only changed files are compiled again.
    """
    compiler = compiler_for("c++")
    if shutil.which("cmake") is None:
        pytest.skip("there is no CMake")
    options = [f"-DNATIVE_SANITIZE={sanitize}", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CXX_COMPILER={compiler}"]
    _run("cmake", "-S", SOURCES, "-B", folder / "build", *options)
    target, parallel = backend.lower(), str(os.cpu_count() or 1)
    _run("cmake", "--build", folder / "build", "--target", target, "--parallel", parallel)
    [library] = (folder / "build").rglob(f"Interposer_{backend}_backend.so")
    return install_plugin(library, folder / "alone", library.name)


def sanitizer_environment(*libraries: str) -> dict[str, str]:
    """What a process needs that loads a shared object built with sanitizers; `libraries` are those of the sanitizers.

    By default, they are those of AddressSanitizer and UndefinedBehaviorSanitizer.
    """
    compiler = compiler_for("c++")
    names = (*(libraries or ("libasan.so", "libubsan.so")), "libstdc++.so")
    words = [[compiler, f"-print-file-name={name}"] for name in names]
    paths = [_run(*word).strip() for word in words]
    if not all(map(os.path.isabs, paths)):
        pytest.skip(f"{compiler} has no sanitizers")
    return {
        "LD_PRELOAD": ":".join(map(os.path.realpath, paths)),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python itself does not free all memory when it ends
        "PYTHONMALLOC": "malloc",
    }


def _run(*words: str | Path) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
