"""Build the wheels of a release, and check each in empty environments.

    python tools/wheels.py                                        # for this machine's kind of processor
    python tools/wheels.py --archs x86_64,aarch64 --out dist      # both; the other one by a cross compiler
    python tools/wheels.py --check dist/*.whl --python python3.12,python3.14

A wheel serves all versions of Python from 3.11 on and systems with glibc 2.28 or later (manylinux_2_28). Where the
compiler's C library is newer, native/portable.cpp binds to the older functions. A cross compiler is the program
``aarch64-linux-gnu-g++`` or ``x86_64-linux-gnu-g++``.

A check needs pip, but no compiler. It installs the wheel with the extras ``onnx`` and ``images`` into an empty
environment, and shows how long the first answer of the command takes. `--runner` is put in front of the interpreter,
such as ``qemu-aarch64 -L ROOT`` for a wheel of another processor.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LATEST: Final = 28
"""The minor version of the latest glibc that a wheel may need."""
DIGITS: Final = ROOT / "examples" / "digits"
EXTRAS: Final = "onnx,images"
PROCESSORS: Final = ("x86_64", "aarch64")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build or check wheels, and print a table row for each check; the exit status is 1 if one is wrong."""
    args = _parser().parse_args(arguments)
    wheels = args.check or [built(arch, args.out) for arch in args.archs.split(",")]
    rows = [checked(wheel, python, shlex.split(args.runner)) for wheel in wheels for python in _pythons(args, wheel)]
    print("| platform | Python | size | first answer | processor time |", "|---|---|---|---|---|", *rows, sep="\n")
    return int(any("failed" in row for row in rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--archs", default=platform.machine(), help="processors to build for, separated by commas")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder for the wheels")
    parser.add_argument("--check", type=Path, nargs="+", help="check these wheels, and build none")
    parser.add_argument("--python", default=sys.executable, help="interpreters to check with, separated by commas")
    parser.add_argument("--runner", default="", help="a command that runs the interpreter, such as an emulator")
    return parser


def _pythons(args: argparse.Namespace, wheel: Path) -> list[str]:
    """Return the interpreters to check a wheel with: none for another processor without a runner."""
    foreign = not wheel.stem.endswith(platform.machine())
    paths = [] if foreign and not args.runner else args.python.split(",")
    return [os.path.abspath(shutil.which(path) or path) for path in paths]  # they are run in another folder


def built(arch: str, out: Path) -> Path:
    """Build the wheel for a processor and return its path.

    Raises:
        SystemExit: the build failed, or the wheel needs a later system than the policy says.
    """
    defines = {"NATIVE_PORTABLE": "ON"}
    environment = dict(os.environ)
    if arch != platform.machine():
        environment |= {"CC": f"{arch}-linux-gnu-gcc", "CXX": f"{arch}-linux-gnu-g++"}
        defines |= {
            "CMAKE_SYSTEM_NAME": "Linux",
            "CMAKE_SYSTEM_PROCESSOR": arch,
            "Python3_INCLUDE_DIR": sysconfig.get_path("include"),  # the stable interface is the same on all processors
        }
    tag = f"py3-none-linux_{arch}"
    settings = {"native": "required", "wheel.tags": tag, "build-dir": f"build/{tag}"}
    settings |= {f"cmake.define.{name}": value for name, value in defines.items()}
    words = [f"--config-settings={name}={value}" for name, value in settings.items()]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, *words]
        subprocess.run([*command, str(ROOT)], env=environment, check=True)
        [wheel] = Path(folder).glob("*.whl")
        if not any(int(minor) <= LATEST for minor in re.findall(rf"manylinux_2_(\d+)_{arch}", wheel.name)):
            raise SystemExit(f"{wheel.name} needs a later glibc than 2.{LATEST}; `auditwheel show` lists the functions")
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, out))


def checked(wheel: Path, python: str, runner: Sequence[str]) -> str:
    """Install a wheel into an empty folder, run the digits network on CpuAcc, and return a row of the table."""
    with installed(wheel, python, runner) as site:
        environment = os.environ | {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": ""}
        words = ["run", str(DIGITS / "digits.onnx"), "--input", str(DIGITS / "seven.png"), "--top", "1"]
        run = [*runner, python, "-S", "-m", "interposer", *words]  # -S: without the packages of this interpreter
        _said(run, environment)  # compiles the modules, as pip does when it installs for its own interpreter
        start, before = time.perf_counter(), os.times()
        answer = _said(run, environment)
        seconds, after = time.perf_counter() - start, os.times()
    right = "on CpuAcc" in answer and answer.splitlines()[1].split()[0] == "7"
    size = f"{wheel.stat().st_size / 1e6:.1f} MB"
    platform_tag = wheel.stem.rpartition("-")[2]
    work = after.children_user + after.children_system - before.children_user - before.children_system
    answer_times = f"{seconds:.2f} s | {work:.2f} s" if right else "failed | failed"
    return f"| {platform_tag} | {_version(python, runner)} | {size} | {answer_times} |"


@contextmanager
def installed(wheel: Path, python: str, runner: Sequence[str]) -> Iterator[Path]:
    """Install a wheel and the packages that the check needs into a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        version = ".".join(_version(python, runner).split(".")[:2])
        arch = next(name for name in PROCESSORS if wheel.stem.endswith(name))
        tags = [f"--platform=manylinux_2_{minor}_{arch}" for minor in range(LATEST, 16, -1)]
        tags += [f"--platform=manylinux2014_{arch}", f"--python-version={version}", "--implementation=cp"]
        tags += [f"--abi=cp{version.replace('.', '')}", "--abi=abi3", "--abi=none"]
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, "--only-binary=:all:"]
        subprocess.run([*command, *tags, f"{wheel.resolve()}[{EXTRAS}]"], check=True)
        yield Path(folder)


def _version(python: str, runner: Sequence[str]) -> str:
    return _said([*runner, python, "--version"], dict(os.environ)).split()[1]


def _said(command: Sequence[str], environment: dict[str, str]) -> str:
    """Return what a command prints; exit with its errors if it fails."""
    completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd="/")
    if completed.returncode:
        raise SystemExit(f"{shlex.join(command)}: exit status {completed.returncode}\n{completed.stderr}")
    return completed.stdout


if __name__ == "__main__":
    sys.exit(main())
