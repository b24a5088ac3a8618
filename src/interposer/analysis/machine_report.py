"""What CpuAcc does on this machine: the processor, the level of its kernels, and times and checks of a fixed set.

The networks are small, have seeded weights, and are the same on every machine and in every version, so that reports of
different machines can be compared. `interposer bench --report` prints and writes such a report.
"""

from __future__ import annotations

import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from interposer._version import __version__
from interposer.core.records import dataclass
from interposer.core.types import DataLayout, TensorInfo
from interposer.ir.network import Network
from interposer.ops import ActivationFunction
from interposer.optimizer import OptimizerOptions
from interposer.quantization import quantize
from interposer.runtime import Runtime
from interposer.session import load

__all__ = ["MachineReport", "Measurement", "fixed_networks", "machine_report", "processor_name"]

CPUINFO: Final = Path("/proc/cpuinfo")
CORES: Final = Path("/sys/devices/system/cpu")
PARTS: Final = {
    "0x41": {
        "0xd03": "Cortex-A53", "0xd04": "Cortex-A35", "0xd05": "Cortex-A55", "0xd07": "Cortex-A57",
        "0xd08": "Cortex-A72", "0xd09": "Cortex-A73", "0xd0a": "Cortex-A75", "0xd0b": "Cortex-A76",
        "0xd0c": "Neoverse N1", "0xd0d": "Cortex-A77", "0xd40": "Neoverse V1", "0xd41": "Cortex-A78",
        "0xd44": "Cortex-X1", "0xd46": "Cortex-A510", "0xd47": "Cortex-A710", "0xd48": "Cortex-X2",
        "0xd49": "Neoverse N2", "0xd4d": "Cortex-A715", "0xd4e": "Cortex-X3", "0xd4f": "Neoverse V2",
        "0xd80": "Cortex-A520", "0xd81": "Cortex-A720", "0xd82": "Cortex-X4",
    },
    "0x46": {"0x001": "A64FX"},
}  # fmt: skip
"""Names of cores by the implementer and the part number that Linux reports on Arm."""
SECONDS: Final = 0.3
"""How long each network is measured."""
FLOAT_TOLERANCE: Final = 1e-4
"""How far float32 results may be from those of CpuRef, as a part of the largest number."""


@dataclass(frozen=True)
class Measurement:
    """A network of the fixed set on CpuAcc.

    Attributes:
        network: its name.
        milliseconds: the median time of a run on one thread, and on all.
        difference: the largest difference from CpuRef, as a part of the largest number.
        is_right: whether that is 0 for a quantized network, and at most `FLOAT_TOLERANCE` for another.
        refused: the number of layers that CpuAcc left to CpuRef.
    """

    network: str
    milliseconds: tuple[float, float]
    difference: float
    is_right: bool
    refused: int


@dataclass(frozen=True)
class MachineReport:
    """The machine, and the measurements of the fixed set."""

    machine: dict[str, Any]
    measurements: tuple[Measurement, ...]

    @property
    def is_right(self) -> bool:
        """Whether all results are right."""
        return all(measurement.is_right for measurement in self.measurements)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values of JSON."""
        return {"machine": self.machine, "measurements": [asdict(measurement) for measurement in self.measurements]}


def machine_report(seconds: float = SECONDS, progress: Callable[[str, int, int], None] | None = None) -> MachineReport:
    """Run the fixed set on CpuAcc, and compare the results with CpuRef.

    Args:
        seconds: how long each network is measured, on one thread and on all.
        progress: called with the name of each network, and how many of how many are finished.

    Raises:
        BackendUnavailableError: CpuAcc is not available.
    """
    networks = list(fixed_networks())
    measurements = []
    for number, (name, network, input_array) in enumerate(networks):
        if progress:
            progress(name, number, len(networks))
        measurements.append(_measured(name, network, input_array, seconds))
    return MachineReport(_machine(), tuple(measurements))


def processor_name(cpuinfo: str) -> str:
    """Return the name of the processor from the text of /proc/cpuinfo; on Arm, the names of its kinds of cores."""
    if model := re.search(r"^model name\s*: (.+)$", cpuinfo, re.MULTILINE):
        return model[1]
    cores = re.findall(r"^CPU implementer\s*: (\S+)$.*?^CPU part\s*: (\S+)$", cpuinfo, re.MULTILINE | re.DOTALL)
    kinds = dict.fromkeys(cores)
    names = [f"{cores.count(kind)} x {PARTS.get(kind[0], {}).get(kind[1], ' '.join(kind))}" for kind in kinds]
    return " and ".join(names) or platform.processor() or platform.machine()


# --- the machine ------------------------------------------------------------------------------------------------------


def _machine() -> dict[str, Any]:
    with Runtime() as runtime:
        capabilities = runtime.registry.get("CpuAcc").capabilities
        levels = {"level": capabilities.get("InstructionSet"), "levels": capabilities.get("InstructionSets")}
    return levels | {
        "processor": processor_name(_text(CPUINFO)),
        "features": _features(_text(CPUINFO)),
        "capacities": [_number(CORES / f"cpu{core}" / "cpu_capacity") for core in _cores()],
        "cores": len(_cores()),
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "interposer": __version__,
    }


def _features(cpuinfo: str) -> str:
    """Return the features of the first core, which Linux names on Arm ("Features") and on x86 ("flags")."""
    flags_line = re.search(r"^(?:Features|flags)\s*: (.*)$", cpuinfo, re.MULTILINE)
    return flags_line[1] if flags_line else ""


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else list(range(os.cpu_count() or 1))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


# --- measurements -----------------------------------------------------------------------------------------------------


def _measured(name: str, network: Any, input_array: np.ndarray, seconds: float) -> Measurement:
    expected = load(network, backends=["CpuRef"]).run([input_array])[0]
    times: list[float] = []
    differences: list[float] = []
    layers_on_reference = 0
    for threads in (1, 0):
        options = OptimizerOptions(model_options={"CpuAcc": {"NumberOfThreads": threads}})
        model = load(network, backends=["CpuAcc", "CpuRef"], options=options)
        layers_on_reference = model.explain().to_dict()["counts"]["CpuRef"]
        differences.append(_difference(model.run([input_array])[0], expected))
        times.append(_median(lambda model=model: model.run([input_array]), seconds))  # type: ignore[misc]
    difference = float(np.max(differences))  # NaN if either is
    limit = 0 if name.endswith("int8") else FLOAT_TOLERANCE
    return Measurement(name, (times[0], times[1]), difference, difference <= limit, layers_on_reference)


def _median(run: Callable[[], object], seconds: float) -> float:
    """Return the median time of a run in milliseconds."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def _difference(actual: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(actual - expected).max()) / float(np.abs(expected).max() or 1)


# --- the fixed set ----------------------------------------------------------------------------------------------------


def fixed_networks() -> Iterator[tuple[str, Any, np.ndarray]]:
    """Yield the name of each network of the fixed set, the network, and its input: each in float32 and in int8."""
    for name, (build, shape) in _FIXED.items():
        draw = np.random.default_rng(5)
        network, input_array = build(draw), draw.normal(size=shape).astype(np.float32)
        yield f"{name} float32", network, input_array
        yield f"{name} int8", quantize(network, [input_array]), input_array


class _Layers:
    """Builds a network layer by layer, with seeded weights."""

    def __init__(self, name: str, shape: tuple[int, ...], draw: np.random.Generator) -> None:
        self.network, self.draw = Network(name), draw
        self.last = self.network.add_input_layer(0, TensorInfo(shape), name="input")
        self.channels = shape[1]

    def finished(self) -> Network:
        self.network.add_output_layer(0, self.last)
        return self.network

    def weights(self, *shape: int) -> Any:
        spread = np.sqrt(2 / np.prod(shape[1:]))
        return self.network.add_constant_layer(self.draw.normal(scale=spread, size=shape).astype(np.float32))

    def convolve(self, channels: int, size: int, stride: int = 1) -> None:
        weights = self.weights(channels, self.channels, size, size)
        self.last = self.network.add_convolution2d_layer(self.last, weights, **_window(size, stride))
        self.channels = channels
        self.clamp()

    def convolve_each(self, size: int, stride: int = 1) -> None:
        weights = self.weights(1, size, size, self.channels)
        self.last = self.network.add_depthwise_convolution2d_layer(self.last, weights, **_window(size, stride))
        self.clamp()

    def clamp(self) -> None:
        self.last = self.network.add_activation_layer(self.last, function=ActivationFunction.BOUNDED_RELU, a=6.0, b=0.0)


def _window(size: int, stride: int) -> dict[str, Any]:
    pads = {f"pad_{side}": size // 2 for side in ("left", "right", "top", "bottom")}
    return {"stride_x": stride, "stride_y": stride, "data_layout": DataLayout.NCHW, **pads}


def _mobile(draw: np.random.Generator) -> Network:
    layers = _Layers("mobile", (1, 3, 96, 96), draw)
    layers.convolve(16, 3, 2)
    for channels, stride in ((32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2)):
        layers.convolve_each(3, stride)
        layers.convolve(channels, 1)
    layers.last = layers.network.add_mean_layer(layers.last, axis=(2, 3))
    return layers.finished()


def _dense(draw: np.random.Generator) -> Network:
    layers = _Layers("dense", (8, 256), draw)
    for size, depth in ((512, 256), (512, 512), (64, 512)):
        weights = layers.weights(size, depth)
        layers.last = layers.network.add_fully_connected_layer(layers.last, weights, transpose_weight_matrix=True)
        layers.clamp()
    return layers.finished()


def _residual(draw: np.random.Generator) -> Network:
    layers = _Layers("residual", (1, 16, 48, 48), draw)
    for channels, stride in ((32, 2), (32, 1), (64, 2)):
        layers.convolve(channels, 3, stride)
        block_input = layers.last
        layers.convolve(channels, 3)
        layers.last = layers.network.add_addition_layer(layers.last, block_input)
    layers.last = layers.network.add_mean_layer(layers.last, axis=(2, 3))
    return layers.finished()


_FIXED: Final[dict[str, tuple[Callable[[np.random.Generator], Network], tuple[int, ...]]]] = {
    "mobile": (_mobile, (1, 3, 96, 96)),
    "residual": (_residual, (1, 16, 48, 48)),
    "dense": (_dense, (8, 256)),
}
