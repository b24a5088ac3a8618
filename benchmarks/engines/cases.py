"""The measured networks, as files in the formats that engines read, with their inputs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import interposer as ip
from benchmarks import networks
from benchmarks.designs import adding
from benchmarks.networks.quantized import IDS
from interposer import frontends
from interposer.core.errors import InterposerError
from interposer.report.estimate import operations

__all__ = ["Case", "known", "prepare", "tiny"]

PRODUCTS: Final = (
    "BatchMatMul",
    "Convolution2d",
    "Convolution3d",
    "DepthwiseConvolution2d",
    "FullyConnected",
    "GruSequence",
    "LstmSequence",
    "TransposeConvolution2d",
)
"""The operators whose operations are counted: those that are sums of products."""


TINY: Final = 5e7
"""Model files of fewer operations count as tiny."""
REASON: Final = 200
"""The maximum length of a reported reason, in characters."""
FORMATS: Final = (".onnx", ".tflite")


@dataclass(frozen=True)
class Case:
    """A network with a batch size: its file, the converted files for engines that cannot read it, and its inputs.

    `kind` is the group of networks whose mean it counts in. `operations` counts every multiplication and addition of
    direct sums of products. `refused` has the reason for each format in which the network could not be written.
    """

    name: str
    kind: str
    batch: int
    path: Path
    converted: dict[str, Path]
    refused: dict[str, str]
    inputs: Path
    operations: int
    quantized: bool

    @property
    def title(self) -> str:
        return self.name if self.batch == 1 else f"{self.name} x{self.batch}"

    def file(self, formats: Iterable[str]) -> Path | None:
        """Return the original file if it has one of these formats, else a converted file, else None."""
        if self.path.suffix in formats:
            return self.path
        return next((self.converted[format] for format in formats if format in self.converted), None)


def known(models: Path | None) -> list[str]:
    """Return the names of all networks: those of the benchmark, and the model files of a folder."""
    return [*networks.NETWORKS, *(path.name for path in _files(models))]


def _files(models: Path | None) -> list[Path]:
    return sorted([*models.glob("*.tflite"), *models.glob("*.onnx")]) if models else []


def prepare(name: str, batch: int, models: Path | None, folder: Path, formats: Iterable[str]) -> Case:
    """Build and read a network, and write it in these formats too; the files are cached in the folder."""
    path = networks.saved(name, folder, batch) if name in networks.NETWORKS else _named(name, models)
    network = (frontends.onnx if path.suffix == ".onnx" else frontends.tflite).load(path)
    converted, refusal_of_format = _converted(network, path, folder, formats)
    inputs = folder / f"{path.stem}.inputs.npz"
    np.savez(inputs, *_inputs(network))
    counted = [layer for layer in network.graph.topological() if type(layer.op).__name__ in PRODUCTS]
    quantized = all(layer.outputs[0].known.quantization is not None for layer in counted)
    count = sum(map(operations, counted))
    return Case(
        name=name.removesuffix(path.suffix),
        kind=networks.NETWORKS[name].kind if name in networks.NETWORKS else _kind(quantized, count),
        batch=batch,
        path=path,
        converted=converted,
        refused=refusal_of_format,
        inputs=inputs,
        operations=count,
        quantized=quantized,
    )


def _kind(quantized: bool, operations: int) -> str:
    if operations < TINY:
        return "tiny"
    return "qdq" if quantized else "float"


def _named(name: str, models: Path | None) -> Path:
    return next(path for path in _files(models) if path.name == name)


def tiny(folder: Path) -> dict[str, Path]:
    """Return the files of a network without computation, in every format that can be written here."""
    network = adding()
    folder.mkdir(parents=True, exist_ok=True)
    files, _ = _converted(network, folder / "tiny", folder, FORMATS)
    return files


def _converted(
    network: ip.Network, path: Path, folder: Path, formats: Iterable[str]
) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the files of the same network in other formats, by suffix, and the reasons for missing files."""
    files: dict[str, Path] = {}
    refusal_of_format: dict[str, str] = {}
    for suffix in {*formats} - {path.suffix}:
        target = folder / f"{path.stem}{suffix}"
        try:
            _write(network, target)
            files[suffix] = target
        except (ImportError, InterposerError) as error:
            refusal_of_format[suffix] = textwrap.shorten(str(error), REASON)
    return files, refusal_of_format


def _write(network: ip.Network, path: Path) -> None:
    """Write a network.

    Quantized ones in the form of the engines' quantized kernels, even if these round differently.
    """
    if path.suffix == ".onnx":
        from interposer.writers import onnx  # noqa: PLC0415 - it needs a package

        onnx.save(network, path, exact=False)
    else:
        from interposer.writers import tflite  # noqa: PLC0415 - it needs a package

        tflite.save(network, path)


def _inputs(network: ip.Network) -> list[Any]:
    generator = np.random.default_rng(0)
    return [_random(generator, layer.output.known, layer.name) for layer in network.graph.inputs]


def _random(generator: np.random.Generator, info: ip.TensorInfo, name: str) -> Any:
    """Return random inputs: normally distributed floats, uniform 8-bit integers, ids, and ones for other integers.

    Ids are inputs whose names begin with `ids`. Ones are valid in masks and hide nothing.
    """
    shape, dtype = tuple(info.shape), info.dtype.numpy
    if name.startswith("ids"):
        return generator.integers(0, IDS, shape, dtype)
    if info.dtype.is_float:
        return generator.standard_normal(shape).astype(dtype)
    if dtype.itemsize == 1:
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return np.ones(shape, dtype)
