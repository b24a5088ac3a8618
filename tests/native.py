"""Shared objects and programs compiled for the tests, once for each source. Checks for what remains after their use.

What is compiled stays in ``build/tests`` for later runs, under names with a digest of all that it is compiled from.
Under xdist all workers share the folder; each file is put in its place whole, so that it does not matter who is first.
The checks are for files, processes and memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

CACHE = Path(__file__).parents[1] / "build" / "tests"
OPENCL_CACHE = CACHE / "pocl"
"""Where PoCL finds the kernels that it has compiled in earlier runs of the tests; they take minutes to compile."""
DAYS = 14  # a shared object or a program that no test has used for so long is deleted
INCLUDE = Path(__file__).parents[1] / "src" / "interposer" / "include"
SOURCES = Path(__file__).parent / "plugins" / "native"
COMPILERS = {"c": ("cc", "gcc", "clang"), "c++": ("c++", "g++", "clang++"), "rust": ("rustc",)}
LANGUAGE_OF = {".c": "c", ".cc": "c++", ".cpp": "c++", ".rs": "rust"}
FLAGS = {
    "c": ("-std=c11", "-O1", "-g0", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"),
    "c++": ("-std=c++17", "-O1", "-g0", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"),
    "rust": ("--crate-type=cdylib", "--edition=2021", "-Copt-level=1", "-Dwarnings"),
}


def compiler_for(language: str) -> str:
    """Return the path of a compiler for "c", "c++" or "rust"; skip the test if there is none."""
    result = next(filter(None, map(shutil.which, COMPILERS[language])), None)
    if result is None:
        pytest.skip(f"there is no compiler for {language} ({', '.join(COMPILERS[language])})")
    return result


class Natives:
    """Compiles shared objects and programs into the folder `CACHE`; the fixture `natives` of `tests/conftest.py`.

    `folder` is for what a test builds otherwise; it is deleted at the end of the session.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        _delete_unused()

    def compiled(self, source: str | Path, *flags: str, language: str = "") -> Path:
        """Return a shared object compiled from a source: a text (in C unless `language` says otherwise), or a file.

        A relative path is one in ``tests/plugins/native``. The header's folder is in the include path of C and C++.
        Never load the file itself: `install_plugin` makes a copy that one test has for itself.
        """
        path = SOURCES / source if isinstance(source, Path) else None
        language = language or (LANGUAGE_OF[path.suffix] if path else "c")
        text = path.read_text(encoding="utf-8") if path else str(source)
        near = [path.parent] if path else []
        target = CACHE / f"{_digest(text, language, flags, near)}.so"
        try:
            os.utime(target)
        except FileNotFoundError:
            _compile(text, target, language, flags, near)
        return target

    def program(self, *sources: Path, flags: Sequence[str] = (), folders: Sequence[Path] = ()) -> Path:
        """Return a program compiled from files of C++ with `flags`; `folders` of headers are in the include path.

        The test is skipped if the compiler lacks the library of a sanitizer.
        """
        text = "".join(path.read_text(encoding="utf-8") for path in sources)
        target = CACHE / f"{_digest(text, 'c++', ('program', *flags), folders)}.program"
        try:
            os.utime(target)
        except FileNotFoundError:
            _link(sources, target, [*flags, *(f"-I{folder}" for folder in (*folders, INCLUDE))])
        return target

    def install(self, folder: Path, name: str, source: str | Path, *flags: str, language: str = "") -> Path:
        """Compile a source and put a copy of the shared object into a folder under a name."""
        return install_plugin(self.compiled(source, *flags, language=language), folder, name)


def install_plugin(library: Path, folder: Path, name: str) -> Path:
    """Put a copy of a shared object into a folder, which is made if need be; gives the copy's path.

    A file of that name is replaced and never written to: its pages may be the memory of this process, which would end
    with a segmentation fault when it exits.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        return Path(shutil.copyfile(library, Path(work, name))).replace(folder / name)


def _compile(text: str, target: Path, language: str, flags: Sequence[str], near: Sequence[Path]) -> None:
    compiler = compiler_for(language)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        source = Path(work, {"c": "plugin.c", "c++": "plugin.cpp", "rust": "plugin.rs"}[language])
        source.write_text(text, encoding="utf-8")
        path = Path(work, "plugin.so")
        folders = [] if language == "rust" else [f"-I{folder}" for folder in (*near, INCLUDE)]
        words = [compiler, *FLAGS[language], *folders, str(source), "-o", str(path), *flags]
        done = subprocess.run(words, capture_output=True, text=True, cwd=work, check=False)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stderr}"
        os.replace(path, target)


def _link(sources: Sequence[Path], target: Path, flags: Sequence[str]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        words = [compiler_for("c++"), "-std=c++17", "-O1", "-pthread", *flags, *map(str, sources), "-o", "program"]
        done = subprocess.run(words, capture_output=True, text=True, cwd=work, check=False)
        if re.search(r"(-l|lib)[a-z]*san", done.stderr):
            pytest.skip("the compiler has no such sanitizer")
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stderr}"
        os.replace(Path(work, "program"), target)


def _delete_unused() -> None:
    end = time.time() - DAYS * 24 * 60 * 60
    for path in (*CACHE.glob("*.so"), *CACHE.glob("*.program"), *OPENCL_CACHE.glob("tempfile_*")):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < end:
                path.unlink()
    for path in OPENCL_CACHE.glob("*/*/last_accessed"):  # PoCL writes it whenever it uses the program
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < end:
                shutil.rmtree(path.parent, ignore_errors=True)


def _digest(text: str, language: str, flags: Sequence[str], near: Sequence[Path]) -> str:
    digest = hashlib.sha256(repr((text, language, FLAGS[language], flags, _version_of(language))).encode())
    for folder in (*near, INCLUDE):
        digest.update(_headers(folder))
    return digest.hexdigest()[:32]


@cache
def _headers(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*.h*")))


@cache
def _version_of(language: str) -> str:
    words = [compiler_for(language), "--version"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


# --- what remains -----------------------------------------------------------------------------------------------------


def children() -> set[int]:
    """The processes that this one has started and that are there still, zombies included; below them, too."""
    result = started_by(os.getpid())
    pending = list(result)
    while pending:
        started = started_by(pending.pop())
        result |= started
        pending += started
    return result


def started_by(process: int) -> set[int]:
    """The processes that the threads of a process have started and that are not waited for."""
    result: set[int] = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the process or a thread has ended
        for thread in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                result.update(map(int, Path(f"/proc/{process}/task/{thread}/children").read_text().split()))
    return result


def shared_memory() -> set[str]:
    """The shared memory that this process has open or mapped; that of others on this machine comes and goes."""
    mapped = Path("/proc/self/maps").read_text(errors="replace")
    return set(re.findall("/(?:dev/shm/|memfd:).*", "\n".join([mapped, *open_descriptors()])))


def open_descriptors() -> set[str]:
    """What the descriptors of this process are open on."""
    result = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            result.add(f"{path.name}: {os.readlink(path)}")
    return result


def mapped_files() -> set[str]:
    """The files that this process has in its memory, libraries among them."""
    lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    return {path for line in lines for path in line.split(maxsplit=5)[5:]}
