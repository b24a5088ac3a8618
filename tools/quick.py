"""Choose the tests of ``make quick``: those that find most in a minute. ``tests/quick.txt`` lists them.

``python tools/quick.py measure`` runs all tests that are not slow, and writes to `build/quick/` which lines of
`PACKAGES` each executes, and how long it takes. It needs the package coverage and about twice as long as ``make test``.

``python tools/quick.py choose`` writes the list. It takes the test that is worth most for a second, then the next one,
until `BUDGET` is spent. A test is worth the errors that it would be the first to find: it finds an error in a line that
it executes with some probability, which is larger if it is in the folder that mirrors the package and if it executes
few lines, as such a test looks at their results.

This module is also the plug-in for pytest (``-p tools.quick``) that records the lines.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from heapq import heapify, heappop, heappush
from itertools import chain
from math import inf
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
LIST: Final = ROOT / "tests" / "quick.txt"
FOLDER: Final = ROOT / "build" / "quick"
PACKAGES: Final = ("core", "ops", "ir", "kernels", "optimizer", "runtime", "session", "plugins")
SOURCE: Final = Path("src", "interposer")
BUDGET: Final = 80.0
"""Seconds of processor time of all chosen tests while they are recorded. Unrecorded, they take about two thirds of it:
a minute of two cores, less what linting and collecting need, and less what two processes wait for each other."""

ALWAYS: Final = ("tests/test_architecture.py", "tests/test_generated.py", "tests/test_tiny.py")
"""Files that are on the list whatever their tests are worth: they compare the whole package with its rules."""

SECONDS_PER_CASE: Final = 0.001
"""What a case costs besides its fixtures and its function."""

# --- recording --------------------------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    """Record the tests that this process runs; the controller of xdist runs none."""
    if not getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(Recorder(config))


class Recorder:
    """Records the lines that each test executes, with its name as the context, and its seconds."""

    def __init__(self, config: pytest.Config) -> None:
        import coverage  # noqa: PLC0415 - nothing else needs it

        sources = [str(ROOT / SOURCE / name) for name in PACKAGES]
        self._coverage = coverage.Coverage(str(FOLDER / f"{os.getpid()}.sqlite"), config_file=False, source=sources)
        self._seconds: dict[str, float] = {}
        self._coverage.set_option("run:relative_files", True)
        self._coverage.start()
        os.register_at_fork(after_in_child=self._coverage.stop)
        config.add_cleanup(self._finish)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Record a test; what is executed between tests, such as an import, has no context."""
        self._coverage.switch_context(item.nodeid)
        start = _processor_seconds()
        result = yield
        self._seconds[item.nodeid] = _processor_seconds() - start
        self._coverage.switch_context("")
        return result

    def _finish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        (FOLDER / f"{os.getpid()}.json").write_text(json.dumps(self._seconds), encoding="utf-8")


def _processor_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measure(arguments: list[str]) -> int:
    """Run the tests and record them in an empty `FOLDER`, with the modules as they are now."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    for name in PACKAGES:
        shutil.copytree(ROOT / SOURCE / name, FOLDER / SOURCE / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tools.quick", "-m", "not slow", *(arguments or ["tests"])]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


# --- what was recorded ------------------------------------------------------------------------------------------------


@dataclass
class Record:
    """A test function: the processor time of all its cases, and the lines that they execute by file."""

    seconds: float = 0.0
    lines: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))


class Measurement:
    """The recorded tests; the lines have their numbers in the files as they are now."""

    def __init__(self, tests: dict[str, Record]) -> None:
        self.tests = tests

    @classmethod
    def read(cls) -> Measurement:
        """Read the records in `FOLDER`."""
        tests: dict[str, Record] = defaultdict(Record)
        for path in FOLDER.glob("*.json"):
            for name, seconds in json.loads(path.read_text(encoding="utf-8")).items():
                tests[_function(name)].seconds += seconds + SECONDS_PER_CASE
        for path in FOLDER.glob("*.sqlite"):
            for name, file, numbers in _contexts(path):
                tests[_function(name)].lines[file].update(_now(file)[line] for line in numbers if line in _now(file))
        return cls(tests)

    def executed_lines(self, file: str) -> set[int]:
        """Return the lines of a file that are executed by a test, or when it is imported."""
        return set().union(*(test.lines[file] for test in self.tests.values() if file in test.lines))

    def tests_of(self, file: str, line: int) -> list[str]:
        """Return the names of the tests that execute a line, the quickest first."""
        names = [name for name, test in self.tests.items() if name and line in test.lines.get(file, ())]
        return sorted(names, key=lambda name: self.tests[name].seconds)


def _function(name: str) -> str:
    """Return the name of a test without its parameters."""
    return name.partition("[")[0]


def _contexts(path: Path) -> Iterator[tuple[str, str, list[int]]]:
    """Yield contexts, files, and the executed lines from a file that coverage has written."""
    from coverage.numbits import numbits_to_nums  # noqa: PLC0415 - only if something was recorded

    tables = "line_bits JOIN context ON context.id = context_id JOIN file ON file.id = file_id"
    with closing(sqlite3.connect(path)) as database:
        for context, file, numbits in database.execute(f"SELECT context, path, numbits FROM {tables}"):
            yield context, file, numbits_to_nums(numbits)


@cache
def _now(file: str) -> dict[int, int]:
    """Return the numbers of the lines of a file as they are now, by those at the time of the measurement."""
    if not (ROOT / file).exists():
        return {}
    then, now = ((folder / file).read_text(encoding="utf-8").splitlines() for folder in (FOLDER, ROOT))
    blocks = difflib.SequenceMatcher(None, then, now, autojunk=False).get_matching_blocks()
    return {block.a + index + 1: block.b + index + 1 for block in blocks for index in range(block.size)}


# --- choosing ---------------------------------------------------------------------------------------------------------


def choose(measurement: Measurement, budget: float) -> list[str]:
    """Return the names of the tests that together find most in `budget` seconds."""
    missed: dict[tuple[str, int], float] = defaultdict(lambda: 1.0)  # the probability that an error is not found yet
    queue = [(-inf, name) for name, test in measurement.tests.items() if name and test.lines and test.seconds]
    heapify(queue)
    names: list[str] = []
    while queue and budget > 0:
        _, name = heappop(queue)
        test = measurement.tests[name]
        probabilities = dict(_probabilities(name, test))
        worth = sum(missed[line] * probability for line, probability in probabilities.items()) / test.seconds
        if queue and worth < -queue[0][0]:
            heappush(queue, (-worth, name))
        elif test.seconds <= budget:
            budget -= test.seconds
            names.append(name)
            missed.update({line: missed[line] * (1 - probability) for line, probability in probabilities.items()})
    return names


def _probabilities(name: str, test: Record) -> Iterator[tuple[tuple[str, int], float]]:
    """Yield the lines that a test executes, with the probability that it finds an error in one."""
    focus = (1 + sum(map(len, test.lines.values())) / 100) ** -0.5
    for file, lines in test.lines.items():
        mirrors = name.split("/")[1] == file.split("/")[2]
        for line in lines:
            yield (file, line), (0.2 if mirrors else 0.02) * focus


def listed(names: Iterable[str], all_names: Iterable[str]) -> list[str]:
    """Return the lines of the list: a file if all its tests are chosen, else the tests."""
    all_by_file, by_file = defaultdict(set), defaultdict(set)
    for groups, group in ((all_by_file, all_names), (by_file, names)):
        for name in group:
            groups[name.partition("::")[0]].add(name)
    lines = [[file] if by_file[file] == all_by_file[file] else by_file[file] for file in by_file]
    return sorted(chain.from_iterable(lines))


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("command", choices=("measure", "choose"))
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds of processor time (default: %(default)s)")
    options, others = parser.parse_known_args(arguments)
    if options.command == "measure":
        return measure(others)
    measurement = Measurement.read()
    always = [name for name in measurement.tests if name.startswith(ALWAYS)]
    rest = options.budget - sum(measurement.tests[name].seconds for name in always)
    names = [*always, *(name for name in choose(measurement, rest) if name not in always)]
    lines = listed(names, (name for name in measurement.tests if name))
    LIST.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    seconds = sum(measurement.tests[name].seconds for name in names)
    print(f"{len(names)} of {len(measurement.tests)} tests, {seconds:.0f} seconds of processor time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
