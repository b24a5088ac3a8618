"""What the benchmark asks of an engine: to read a file, to say how it may be called, and what came out."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

__all__ = ["Arrays", "Call", "Engine"]

Arrays = Sequence[Any]
Call = Callable[[], Any]


class Engine(ABC):
    """One engine with one network; it lives in a process of its own, and its packages are imported there only.

    `name` is how it is known in tables, `formats` are the suffixes of the files that it reads, and `packages` what must
    be installed.
    """

    name: str
    formats: ClassVar[tuple[str, ...]] = (".onnx",)
    packages: ClassVar[tuple[str, ...]] = ()
    tolerance: float | None = None
    """How far its floating-point results may be off, as a part of the largest number, where that is more than usual."""

    def absent(self) -> str:
        """Return why it cannot be here; empty if it can. Asked in the process that measures, before anything else."""
        missing = [package for package in self.packages if importlib.util.find_spec(package) is None]
        return f"{', '.join(missing)} is not installed" if missing else ""

    def environment(self, threads: int, cache: Path) -> Mapping[str, str]:
        """Variables that the process is started with."""
        return {}

    def begin(self) -> None:
        """Import what is needed; not timed."""

    @abstractmethod
    def load(self, path: Path, threads: int, cache: Path) -> None:
        """Make the network of a file ready, with what is kept in the folder `cache`, if anything is."""

    def keep(self, path: Path, threads: int, cache: Path) -> None:
        """Fill the folder for the next process, where the engine can do so and has not done it while loading."""

    @abstractmethod
    def feed(self, inputs: Arrays) -> None:
        """Take these arrays, in the order of the model's inputs, for all runs that follow."""

    @abstractmethod
    def ways(self) -> Mapping[str, Call]:
        """Return how one run can be called; the first one is for the first answer, the quickest of them is timed."""

    @abstractmethod
    def outputs(self) -> Arrays:
        """Return what the last run gave, in the order of the model's outputs."""

    def version(self) -> str:
        """Of the engine's package."""
        return ""

    def note(self) -> str:
        """Return what a reader should know of how this network is run, if anything."""
        return ""

    def close(self) -> None:
        """Give everything back."""
