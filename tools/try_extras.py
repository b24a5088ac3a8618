"""Run the tests of extras with the oldest and the newest versions of their packages, on an installed wheel.

    python tools/try_extras.py dist/interposer_nn-*.whl                       # everything, which takes an hour
    python tools/try_extras.py dist/interposer_nn-*.whl onnx sign --versions oldest

For each extra and resolution, uv (`pip install uv`) chooses versions that pyproject.toml allows, and installs them with
the wheel into an empty environment. The oldest versions are those of the packages that pyproject.toml names; what these
need comes in its newest version that fits. The tests run on the installed package, in a copy of the folder `tests`. At
the end, the rows of the table in docs/releasing.md are printed. The exit status is 1 if tests failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
COPIED: Final = ("tests", "examples", "docs", "tools", "benchmarks", "conftest.py", "pyproject.toml", "README.md")
TOOLS: Final = ("pytest>=8.3", "hypothesis>=6.100")
VERSIONS: Final = {"oldest": "lowest-direct", "newest": "highest"}


class Trial(NamedTuple):
    """How an extra is tried: the tests that need it, the other extras and packages that these tests need."""

    tests: Sequence[str]
    extras: Sequence[str] = ()
    packages: Sequence[str] = ()


TRIALS: Final = {
    "": Trial(("tests/test_tiny.py", "tests/core", "tests/ops", "tests/saved/test_container.py")),
    "tflite": Trial(("tests/frontends/tflite", "tests/writers/tflite/test_tflite_writer.py")),
    "armnn": Trial(("tests/frontends/armnn", "tests/writers/armnn/test_armnn_writer.py")),
    "onnx": Trial(("tests/frontends/onnx", "tests/writers/onnx/test_onnx_writer.py"), ("images",)),
    "caffe": Trial(("tests/frontends/caffe",), ("onnx", "tflite")),
    "images": Trial(("tests/cli/test_inputs.py", "tests/quantization/test_files.py"), ("tflite", "onnx")),
    "cli": Trial(("tests/cli/test_tables.py", "tests/cli/test_command_line.py"), ("tflite", "onnx")),
    "sign": Trial(("tests/saved/test_signing.py", "tests/saved/test_combinations.py")),
    "serve": Trial(
        ("tests/serving/test_http.py", "tests/serving/test_repository.py", "tests/serving/test_serve_command.py"),
        ("onnx", "tflite", "grpc"),
    ),
    "grpc": Trial(("tests/serving/test_grpc.py",), ("serve", "onnx", "tflite"), ("grpcio-tools",)),
    "opentelemetry": Trial(("tests/profiling/test_telemetry.py",), (), ("opentelemetry-sdk",)),
    "nvtx": Trial(("tests/profiling/test_marks.py",)),
    "onnxruntime": Trial(("tests/backends/engines", "tests/saved/test_combinations.py")),
    "openvino": Trial(("tests/backends/engines", "tests/saved/test_combinations.py")),
    "litert": Trial(("tests/backends/engines", "tests/saved/test_combinations.py")),
    "torch": Trial(("tests/frontends/torch", "tests/session/torch"), ("onnx",)),
    "batch-examples": Trial(("tests/batch", "tests/examples/test_batch_examples.py"), ("onnx",)),
}
"""The trials by extra; the empty name is the package without extras."""


class Outcome(NamedTuple):
    """The versions of an extra's packages, and whether they can be installed and all tests passed."""

    versions: dict[str, str]
    passed: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the requested extras, and return the exit status."""
    args = _parser().parse_args(arguments)
    outcomes = {
        (name, which): _tried(args.wheel.resolve(), name, which, args.python)
        for name in args.extras or TRIALS
        for which in args.versions
    }
    print(*_rows(outcomes), sep="\n")
    return 0 if all(outcome.passed for outcome in outcomes.values()) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, help="the wheel to install")
    parser.add_argument("extras", nargs="*", choices=[*TRIALS, []], metavar="EXTRA", help="all by default")
    parser.add_argument("--versions", nargs="+", choices=VERSIONS, default=list(VERSIONS), help="both by default")
    parser.add_argument("--python", default=sys.executable, help="the interpreter; by default the one of this script")
    return parser


def _tried(wheel: Path, name: str, which: str, python: str) -> Outcome:
    """Run the tests of an extra in an environment of their own."""
    trial, lock = TRIALS[name], dict[str, str]()
    with tempfile.TemporaryDirectory(prefix="try-extras-") as folder:
        work = Path(folder)
        try:
            lock = _locked(work, (name, *trial.extras), which, python)
            summary, passed = _tested(work, _environment(work, wheel, trial.packages, python), trial)
        except subprocess.CalledProcessError as error:
            summary, passed = f"they cannot be installed: {' '.join(error.cmd)} failed", False
    print(f"{name or 'no extra'}, {which}: {summary}", flush=True)
    versions = {package: lock[package] for package in _packages(name) if package in lock}
    return Outcome(versions, passed)


def _locked(work: Path, extras: Iterable[str], which: str, python: str) -> dict[str, str]:
    """Return the chosen version of each package, by its normalized name."""
    chosen = [word for name in extras if name for word in ("--extra", name)]
    command = ["pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python", python]
    text = _uv(*command, "--resolution", VERSIONS[which], *chosen, str(ROOT / "pyproject.toml"))
    (work / "lock.txt").write_text(text, encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE))


def _environment(work: Path, wheel: Path, packages: Iterable[str], python: str) -> Path:
    """Create an environment with the wheel, the chosen versions, and what the tests need; return its interpreter."""
    interpreter = work / "venv" / "bin" / "python"
    _uv("venv", "--quiet", "--python", python, str(work / "venv"))
    install = ["pip", "install", "--quiet", "--python", str(interpreter)]
    _uv(*install, "--no-deps", str(wheel))
    _uv(*install, "--requirement", str(work / "lock.txt"), "--constraint", str(work / "lock.txt"), *TOOLS, *packages)
    return interpreter


def _tested(work: Path, python: Path, trial: Trial) -> tuple[str, bool]:
    """Run the tests of a trial; return the last line that pytest writes, and whether they passed."""
    for name in COPIED:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, work / name)
    command = [str(python), "-m", "pytest", "-q", "-m", "not slow", *trial.tests]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    completed = subprocess.run(command, cwd=work, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    summary = completed.stdout.strip().splitlines()[-1]
    passed = completed.returncode == 0 and " passed" in summary
    if not passed:
        print(completed.stdout[-5000:])
    return summary, passed


def _uv(*words: str) -> str:
    return subprocess.run([sys.executable, "-m", "uv", *words], stdout=subprocess.PIPE, text=True, check=True).stdout


def _packages(name: str) -> list[str]:
    """Return the normalized names of the packages that pyproject.toml names for an extra, or without extras."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = project["optional-dependencies"][name] if name else project["dependencies"]
    names = [re.match(r"[\w.-]+", text) for text in requirements]
    return [re.sub(r"[-_.]+", "-", requirement[0]).lower() for requirement in names if requirement]


def _rows(outcomes: dict[tuple[str, str], Outcome]) -> Iterable[str]:
    yield "| extra | package | oldest | newest |"
    yield "|---|---|---|---|"
    for name in dict.fromkeys(name for name, _ in outcomes):
        tried = [outcomes.get((name, which)) for which in VERSIONS]
        for package in _packages(name):
            cells = [
                "" if extra is None else extra.versions.get(package, "") + ("" if extra.passed else " failed")
                for extra in tried
            ]
            yield f"| {f'`{name}`' if name else ''} | {package} | {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
