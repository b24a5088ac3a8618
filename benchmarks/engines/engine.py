"""The interface of an engine in the benchmark: it reads a file, lists the ways to call it, and returns its results."""

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
    """One engine with one network, in a separate process, which alone imports its packages.

    `name` is its name in tables, `formats` are the suffixes of the files that it reads, and `packages` the required
    packages.
    """

    name: str
    formats: ClassVar[tuple[str, ...]] = (".onnx",)
    packages: ClassVar[tuple[str, ...]] = ()
    tolerance: float | None = None
    """How far its floating-point results may be off, as a part of the largest number, where that is more than usual."""

    def absent(self) -> str:
        """Return why the engine is not available; empty if it is. Called first, in the measuring process."""
        missing = [package for package in self.packages if importlib.util.find_spec(package) is None]
        return f"{', '.join(missing)} is not installed" if missing else ""

    def environment(self, threads: int, cache: Path) -> Mapping[str, str]:
        """Return the environment variables with which the process is started."""
        return {}

    def begin(self) -> None:
        """Import the packages; this is not timed."""

    @abstractmethod
    def load(self, path: Path, threads: int, cache: Path) -> None:
        """Load the network of a file, with the help of cached files in the folder `cache`, if there are any."""

    def keep(self, path: Path, threads: int, cache: Path) -> None:
        """Fill the cache folder for the next process, if the engine can do so and has not done so while loading."""

    @abstractmethod
    def feed(self, inputs: Arrays) -> None:
        """Set the arrays for all following runs, in the order of the model's inputs."""

    @abstractmethod
    def ways(self) -> Mapping[str, Call]:
        """Return the ways to call one run.

        The first one is the plain call, which takes arrays and returns new ones. It gives the first result. It and the
        fastest way are timed.
        """

    @abstractmethod
    def outputs(self) -> Arrays:
        """Return the results of the last run, in the order of the model's outputs."""

    def version(self) -> str:
        """Return the version of the engine's package."""
        return ""

    def note(self) -> str:
        """Return a remark about how this network is run, or an empty text."""
        return ""

    def close(self) -> None:
        """Release all resources."""
