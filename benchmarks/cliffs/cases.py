"""The cases of the sweep: each sample at three sizes, in a network of its own and between two convolutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

import numpy as np

from interposer import ops
from interposer.core.errors import InterposerError
from interposer.core.schema import registered_ops
from interposer.core.types import Array, DataLayout, DataType, Quantization, TensorInfo
from interposer.ir.graph import Layer
from interposer.ir.network import Network
from interposer.testing import samples_of
from interposer.testing.sample import Sample
from interposer.writers import onnx, tflite

from .growing import grown

__all__ = ["FORMS", "SIZES", "Case", "cases", "network_of", "written"]

SIZES: Final = {"small": 0, "cache": 1 << 18, "large": 1 << 24}
"""The size of the operands in bytes; "small" is the sample as the conformance kit has it."""
FORMS: Final = ("alone", "between")
MOST_TRIED: Final = 6
"""How many samples of a data type are tried until enough of them grow to the wanted size."""
BESIDE: Final = frozenset({DataType.FLOAT32, DataType.INT8, DataType.UINT8})
"""The types for which convolutions stand before and after the operator."""

Inputs: TypeAlias = list[Array]


@dataclass(frozen=True)
class Case:
    """One operator with operands of one data type and one size, and the network that it is measured in."""

    operator: str
    dtype: str
    size: str
    form: str
    sample: Sample

    @property
    def title(self) -> str:
        """The name in tables."""
        return f"{self.sample.id} {self.size} {self.form}"


def cases(operators: Sequence[str], types: Sequence[str], sizes: Sequence[str], forms: Sequence[str],
          count: int) -> Iterator[Case]:  # fmt: skip
    """Yield the cases whose operators and data types match one of the patterns: `count` samples of each type."""
    for name, op in registered_ops().items():
        if not any(fnmatchcase(name, pattern) for pattern in operators):
            continue
        for dtype, samples in _by_type(samples_of(op)).items():
            if any(fnmatchcase(dtype, pattern) for pattern in types):
                chosen = sorted(samples, key=lambda sample: sample.extreme)[:MOST_TRIED]
                chosen.sort(key=lambda sample: not _is_writable(sample))
                yield from _of_type(name, dtype, chosen, sizes, forms, count)


def _by_type(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    """Return the samples by the type of their first operand; "quantized" is part of it."""
    samples_of_type: dict[str, list[Sample]] = {}
    for sample in samples:
        info = next((operand.info for operand in sample.inputs if operand is not None), None)
        empty = any(operand is not None and 0 in operand.info.shape for operand in sample.inputs)
        if info is not None and not empty:
            samples_of_type.setdefault(f"{'quantized ' * info.is_quantized}{info.dtype}", []).append(sample)
    return samples_of_type


def _is_writable(sample: Sample) -> bool:
    """Return True if a format of the engines can express the sample."""
    with TemporaryDirectory() as folder:
        return bool(written(sample.network()[0], Path(folder)))


def written(network: Network, folder: Path) -> dict[str, Path]:
    """Write a network as ONNX and as TFLite, as far as they can express it, and return the files by suffix."""
    files: dict[str, Path] = {}
    for suffix, save in ((".onnx", onnx.save), (".tflite", tflite.save)):
        path = folder / f"case{suffix}"
        try:
            save(network, path)
        except InterposerError:
            continue
        files[suffix] = path
    return files


def _of_type(name: str, dtype: str, samples: Sequence[Sample], sizes: Sequence[str], forms: Sequence[str],
             count: int) -> Iterator[Case]:  # fmt: skip
    for size in sizes:
        versions = (sample if size == "small" else grown(sample, SIZES[size]) for sample in samples)
        for sample in islice((version for version in versions if version is not None), count):
            for form in forms:
                if form == "alone" or _layout(sample) is not None:
                    yield Case(name, dtype, size, form, sample)


def _layout(sample: Sample) -> DataLayout | None:
    """Return the layout of convolutions around the operator; None if they do not fit its first operand."""
    first = sample.inputs[0] if sample.inputs else None
    if first is None or first.constant or first.info.rank != len("NHWC") or not _suits(first.info):
        return None
    layout = getattr(sample.op, "data_layout", DataLayout.NHWC)
    return layout if layout in (DataLayout.NHWC, DataLayout.NCHW) else DataLayout.NHWC


def _suits(info: TensorInfo) -> bool:
    q = info.quantization
    return info.dtype in BESIDE and ((q is None) == info.dtype.is_float) and (q is None or not q.per_axis)


def network_of(case: Case) -> tuple[Network, Inputs]:
    """Return the network of a case, and its inputs in the order of the binding ids."""
    if case.form == "alone":
        network, feeds = case.sample.network()
    else:
        network, feeds = _between(case.sample)
    return network, [feeds[index] for index in sorted(feeds)]


def _between(sample: Sample) -> tuple[Network, dict[int, Array]]:
    """Return a network of a 1x1 convolution, the operator, and another convolution if it fits the first result."""
    layout = _layout(sample)
    assert layout is not None
    network, feeds = Network(sample.id), dict[int, Array]()
    values: list[Layer | None] = []
    for index, (operand, array) in enumerate(zip(sample.inputs, sample.arrays(), strict=True)):
        if operand is None or array is None:
            values.append(None)
        elif operand.constant:
            values.append(network.add_constant_layer(array, operand.info.quantization, f"constant_{index}"))
        else:
            values.append(network.add_input_layer(index, operand.info, f"input_{index}"))
            feeds[index] = array
    first = sample.inputs[0]
    assert first is not None
    values[0] = _convolution(network, values[0], first.info, layout, "before")
    layer = network.add_layer(sample.op, *values, name="layer", outputs=sample.outputs)
    for index, value in enumerate(layer.outputs):
        info, x = value.known, value
        if index == 0 and info.shape.is_ranked and info.rank == first.info.rank and _suits(info):
            x = _convolution(network, value, info, layout, "after").output
        network.add_output_layer(index, x, f"output_{index}")
    return network, feeds


def _convolution(network: Network, x: Any, info: TensorInfo, layout: DataLayout, name: str) -> Layer:
    """Add a 1x1 convolution whose result has the info of its input."""
    channels = int(info.shape[layout.value.index("C")])
    shape = (channels, 1, 1, channels) if layout is DataLayout.NHWC else (channels, channels, 1, 1)
    real = np.random.default_rng(0).uniform(-1, 1, shape) / channels
    quantization = None if info.dtype.is_float else Quantization(1 / 127 / channels)
    weights = real.astype(np.float32) if quantization is None else np.rint(real * 127 * channels).astype(np.int8)
    constant = network.add_constant_layer(weights, quantization, f"{name}_weights")
    outputs = [info.with_constant(None)]
    return network.add_layer(ops.Convolution2d(data_layout=layout), x, constant, name=name, outputs=outputs)
