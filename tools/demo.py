"""Install what the demonstration needs, and compile CpuAcc at the same time, as `make demo` does in an empty checkout.

    python tools/demo.py .venv

The reference backend gives the first answer as soon as the packages are installed. If there is a C++ compiler, a quick
build compiles CpuAcc for this processor concurrently, at a lower priority (``NATIVE_QUICK`` in native/CMakeLists.txt).
Whenever two seconds pass, a line says what is done and how far it is. Only the standard library is used.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
DIGITS: Final = "examples/digits"
BUILD: Final = Path("build", "demo")
NOT_BUILT: Final = Path("src", "interposer", "native", "not_built.txt")
COMPILERS: Final = ("c++", "g++", "clang++")
EXTRAS: Final = "onnx,images"
SECONDS: Final = 2.0
"""The time after which a line is due."""


class CommandError(Exception):
    """A command that failed; the text is the end of its output."""


class Progress:
    """The steps in progress and how far each is, printed every two seconds: on a terminal always on the same line."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self._steps: dict[str, str] = {}
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._print, daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()

    @property
    def seconds(self) -> int:
        """The whole seconds since the start."""
        return round(time.monotonic() - self.start)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Show a step while the block runs."""
        self.update(name, "")
        try:
            yield
        finally:
            with self._lock:
                del self._steps[name]

    def update(self, name: str, how_far: str) -> None:
        """Say how far a step is."""
        with self._lock:
            self._steps[name] = how_far

    def say(self, text: str) -> None:
        """Print a text that stays."""
        print(f"{self._clear}{text}", flush=True)

    @property
    def _clear(self) -> str:
        return "\r\033[K" if sys.stdout.isatty() else ""

    def _print(self) -> None:
        while not self._end.wait(SECONDS):
            with self._lock:
                steps = [f"{name}: {how_far}" if how_far else name for name, how_far in self._steps.items()]
            line = f"{self.seconds:3} s  {'; '.join(steps)}"
            if sys.stdout.isatty():
                print(f"{self._clear}{line[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)
            elif steps:
                print(line, flush=True)
        print(self._clear, end="", flush=True)


class Build(threading.Thread):
    """The compilation of CpuAcc and of the extension for plain calls, in a thread of its own."""

    def __init__(self, progress: Progress, cmake: str) -> None:
        super().__init__(daemon=True)
        self.progress, self.cmake = progress, cmake
        self.failure = ""

    def run(self) -> None:
        """Configure and compile; on a failure, leave its text in `failure`."""
        try:
            with self.progress.step("compiling CpuAcc for this processor"):
                self._compile()
        except (CommandError, OSError) as error:
            self.failure = str(error)

    def _compile(self) -> None:
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        options = ["-DNATIVE_QUICK=ON", "-DNATIVE_SETS=machine", f"-DPython3_EXECUTABLE={sys.executable}"]
        self._run([self.cmake, "-S", "native", "-B", str(BUILD), *generator, *options])
        self._run([self.cmake, "--build", str(BUILD), "--parallel", str(os.cpu_count() or 1)])

    def _run(self, command: Sequence[str]) -> None:
        for line in lines_of(["nice", *command] if shutil.which("nice") else command):
            progress = re.match(r"\[\s*(\d+)(?:/(\d+)|%)\]", line)
            if progress:
                how_far = f"{progress[1]} of {progress[2]} files" if progress[2] else f"{progress[1]}%"
                self.progress.update("compiling CpuAcc for this processor", how_far)

    def install(self) -> None:
        """Put the compiled files into the source tree, where an editable install looks for them."""
        for _ in lines_of([self.cmake, "--install", str(BUILD), "--prefix", "src"]):
            pass
        NOT_BUILT.write_text("`make demo` leaves it out; `make native` builds it\n", encoding="utf-8")


def main(folder: str) -> int:
    """Install into the environment `folder` and show the first answer; return the exit status."""
    os.chdir(ROOT)
    python = Path(folder, "bin", "python")
    with Progress() as progress:
        try:
            _install(progress, python)
        except CommandError as error:
            progress.say(str(error))
            return 1
    return 0


def _install(progress: Progress, python: Path) -> None:
    has_compiler = bool(os.environ.get("CXX")) or any(map(shutil.which, COMPILERS))
    cmake = shutil.which("cmake")
    build = _started(progress, cmake) if has_compiler and cmake else None
    with progress.step("making an environment"):
        _environment(python)
    if has_compiler and not cmake:
        _pip(progress, python, "cmake", "ninja")
        build = _started(progress, str(python.with_name("cmake")))
    pure = ["--config-settings=wheel.cmake=false"] if has_compiler else []
    _pip(progress, python, *pure, "--editable", f".[{EXTRAS}]")
    _answer(progress, python)
    if build is None:
        progress.say(
            f"There is no C++ compiler ({', '.join(COMPILERS)}, or $CXX), so CpuAcc, the fast backend for processors,\n"
            "is missing. Install one (on Debian or Ubuntu: apt install g++), and run `make clean demo`."
        )
        return
    build.join()
    _finish(progress, build)


def _environment(python: Path) -> None:
    if not python.exists():
        for _ in lines_of([sys.executable, "-m", "venv", str(python.parents[1])]):
            pass


def _started(progress: Progress, cmake: str) -> Build:
    build = Build(progress, cmake)
    build.start()
    return build


def _pip(progress: Progress, python: Path, *words: str) -> None:
    command = [str(python), "-m", "pip", "install", "--no-compile", "--progress-bar=off", *words]
    with progress.step("installing packages"):
        for line in lines_of([*command, "--disable-pip-version-check"]):
            action = re.match(r"\s*(Collecting|Downloading|Preparing|Building|Installing) ([\w ]+)", line)
            if action:
                progress.update("installing packages", f"{action[1].lower()} {action[2]}")


def _answer(progress: Progress, python: Path) -> None:
    words = ["--input", f"{DIGITS}/seven.png", "--labels", f"{DIGITS}/labels.txt", "--top", "3", "--backends", "CpuRef"]
    with progress.step("reading the digit on the reference backend"):
        lines = list(lines_of([str(python), "-m", "interposer", "run", f"{DIGITS}/digits.onnx", *words]))
    progress.say("\n".join([f"The digit, read by the reference backend after {progress.seconds} s:", *lines]))


def _finish(progress: Progress, build: Build) -> None:
    if build.failure:
        NOT_BUILT.write_text("its build failed; `make native` shows why\n", encoding="utf-8")
        progress.say(f"CpuAcc, the fast backend for processors, could not be compiled:\n{build.failure}")
        return
    build.install()
    progress.say(f"CpuAcc, the fast backend for processors, is compiled, after {progress.seconds} s.")


def lines_of(command: Sequence[str]) -> Iterator[str]:
    """Run a command and yield the lines of its output.

    Raises:
        CommandError: the exit status is not 0; with the last lines of the output.
    """
    last: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as job:
        for line in job.stdout or ():
            last = [*last[-19:], line.rstrip()]
            yield line.rstrip()
    if job.returncode:
        raise CommandError("\n".join([f"{' '.join(command)}: exit status {job.returncode}", *last]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
