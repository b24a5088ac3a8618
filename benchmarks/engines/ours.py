"""Interposer with any backends: `Interposer[CpuAcc,CpuRef]`, or the id of a single backend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from interposer.session import default_runtime

from .engine import Arrays, Call, Engine

__all__ = ["FAST_MATH", "FAST_OPTION", "Interposer"]

AUTO: Final = "auto"
FAST_MATH: Final = " (fast math)"
"""What the name of an engine ends with that is asked for `FastMathEnabled`."""
FAST_OPTION: Final = "FastMathEnabled"
FAST_TOLERANCE: Final = 0.04


class Interposer(Engine):
    """The public API: `load`, then either `Model.run` or `Model.bind`.

    Args:
        backends: ids in order of preference; CpuRef is added for layers that no other backend supports.
        fast: set the option `FastMathEnabled` of the first backend.
    """

    formats = (".onnx", ".tflite")

    def __init__(self, backends: list[str], fast: bool = False) -> None:
        self.name = backends[0] if len(backends) == 1 else f"Interposer[{','.join(backends)}]"
        self._options: dict[str, dict[str, Any]] = {}
        if fast:
            self.name += FAST_MATH
            self.tolerance = FAST_TOLERANCE
            self._options = {backends[0]: {FAST_OPTION: True}}
        self.backends = [*backends, *([] if {"CpuRef", AUTO} & {*backends} else ["CpuRef"])]
        self._model: Any = None

    def absent(self) -> str:
        records = {record.id: record for record in default_runtime().registry.records()}
        lacking = {backend: records.get(backend) for backend in self.backends if backend != AUTO}
        reasons = [f"{name}: {'not known' if engine is None else engine.reason}"
                   for name, engine in lacking.items() if engine is None or not engine.available]  # fmt: skip
        return "; ".join(reasons)

    def has_fast_math(self) -> bool:
        """Return True if the first backend has the option; also True for a missing backend, which `absent` reports."""
        registry, first = default_runtime().registry, self.backends[0]
        if first not in registry.available():
            return first != AUTO
        return FAST_OPTION in [option.name for option in getattr(registry.get(first), "declared_options", ())]

    def environment(self, threads: int, cache: Path) -> Mapping[str, str]:
        return {"INTERPOSER_NUM_THREADS": str(threads), "INTERPOSER_CACHE_DIR": str(cache)}

    def begin(self) -> None:
        import interposer  # noqa: PLC0415 - in the engine's process only

        self._ip = interposer

    def load(self, path: Path, threads: int, cache: Path) -> None:
        options = self._ip.OptimizerOptions(model_options=self._options)
        self._model = self._ip.load(path, AUTO if AUTO in self.backends else self.backends, options=options)

    def feed(self, inputs: Arrays) -> None:
        self._inputs = list(inputs)

    def ways(self) -> Mapping[str, Call]:
        def run() -> None:
            self._outputs = self._model.run(self._inputs)

        return {"Model.run": run, "Model.bind": self._bound()}

    def _bound(self) -> Call:
        """Return a function that runs on the same input and output arrays, which are bound in its first call."""
        bound: list[Any] = []

        def run() -> None:
            if not bound:
                bound.append(self._model.bind(self._inputs))
                self._outputs = bound[0].outputs
            bound[0]()

        return run

    def outputs(self) -> Arrays:
        return [np.asarray(output) for output in self._outputs]

    def version(self) -> str:
        return str(self._ip.__version__)

    def note(self) -> str:
        """Return the number of layers of each backend, unless the first one runs all of them."""
        layers = Counter(placement.backend for placement in self._model.optimized.placements)
        if set(layers) <= {self.backends[0]}:
            return ""
        return "layers: " + ", ".join(f"{backend} {count}" for backend, count in layers.most_common())

    def close(self) -> None:
        if self._model is not None:
            self._model.close()
            self._model = None
