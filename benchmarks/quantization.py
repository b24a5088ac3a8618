"""`python benchmarks/run.py quantization`: networks that are quantized by Interposer and by other quantizers.

Every quantizer gets the same float network and the same calibration samples. Each quantized network runs in the engine
of its quantizer: Interposer's on CpuAcc, that of ONNX Runtime (`quantize_static`, QDQ, int8, weights per channel) in
ONNX Runtime, and that of LiteRT (`ai_edge_quantizer`, static int8) in LiteRT. The results on other samples are compared
with the float network: the share of samples with the same largest output (top-1), and the mean cosine of the outputs.

The networks are .tflite files of a folder, and designs of the benchmark with seeded weights. Samples for the image
classifiers of the folder are crops of the pictures in it. Other samples are noise of several amplitudes that is more or
less smooth. Both are drawn from a seed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import interposer as ip
from benchmarks.folders import add_models
from benchmarks.networks import saved
from interposer.session import read_network
from interposer.writers import onnx as onnx_writer
from interposer.writers import tflite as tflite_writer

__all__ = ["main"]

FILES: Final = ("ad01_fp32", "kws_ref_model_float32", "pretrainedResnet", "vww_96_float")
DESIGNS: Final = ("tiny_autoencoder", "tiny_keywords", "tiny_resnet", "tiny_mobilenet")
REGRESSIONS: Final = ("ad01_fp32", "tiny_autoencoder")
"""Networks whose largest output means nothing."""
PICTURES: Final = {"vww_96_float": 1 / 255, "pretrainedResnet": 1.0}
"""Networks that take pictures, with the factor on the pixel values."""
OBSERVERS: Final = ("minmax", "mse")
Run = Callable[[Any], Any]


@dataclass(frozen=True)
class Row:
    """The agreement of a quantized network with the float network: top-1 in percent, mean cosine; or why not."""

    network: str
    quantizer: str
    top1: float = 0.0
    cosine: float = 0.0
    reason: str = ""


def main(words: Sequence[str]) -> int:
    """Quantize the networks, and print a row for each quantizer."""
    args = _arguments(words)
    logging.getLogger().setLevel(logging.ERROR)
    rows = []
    for name, path in _networks(args.models, args.only):
        for row in measured(name, path, args):
            print(_line(row), flush=True)
            rows.append(row)
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")
    return 0


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_models(parser)
    parser.add_argument("--only", nargs="*", default=[], help="names of networks; all of them by default")
    parser.add_argument("--calibration", type=int, default=64, help="samples for calibration")
    parser.add_argument("--samples", type=int, default=256, help="samples on which results are compared")
    parser.add_argument("--json", type=Path, default=None, help="also write the figures there")
    return parser.parse_args(words)


def _networks(folder: Path | None, only: Sequence[str]) -> list[tuple[str, Path]]:
    files = [(name, folder / f"{name}.tflite") for name in FILES if folder and (folder / f"{name}.tflite").exists()]
    cache = Path(tempfile.gettempdir()) / "interposer-benchmark-networks"
    names = [name for name in DESIGNS if not only or name in only]
    return [name_and_path for name_and_path in files if not only or name_and_path[0] in only] + [
        (name, saved(name, cache)) for name in names
    ]


def _line(row: Row) -> str:
    top1 = " " * 13 if row.network in REGRESSIONS else f"top-1 {row.top1:6.2f}%"
    figures = row.reason or f"{top1}  cosine {row.cosine:.6f}"
    return f"{row.network:24} {row.quantizer:22} {figures}"


# --- samples ----------------------------------------------------------------------------------------------------------


def samples(shape: Sequence[int], count: int, seed: int) -> list[Any]:
    """Return float32 arrays of a shape: noise that is smooth along the inner axes, of several kinds and amplitudes."""
    draw = np.random.default_rng(seed)
    return [_sample(draw, tuple(shape)) for _ in range(count)]


def crops(folder: Path, shape: Sequence[int], factor: float, count: int, seed: int) -> list[Any]:
    """Return crops of the pictures in a folder, resized to the input shape NHWC, with their pixels times a factor."""
    from PIL import Image  # noqa: PLC0415 - it is optional

    files = [file for file in sorted(folder.iterdir()) if file.suffix in (".bmp", ".jpg", ".png")]
    pictures = [Image.open(file).convert("RGB") for file in files]
    draw, images = np.random.default_rng(seed), []
    for _ in range(count):
        picture = pictures[draw.integers(len(pictures))]
        size = int(min(picture.size) * draw.uniform(0.15, 1))
        left, top = (int(draw.integers(0, length - size + 1)) for length in picture.size)
        crop = picture.crop((left, top, left + size, top + size)).resize((shape[2], shape[1]))
        pixels = np.asarray(crop, np.float32)[:, :: 1 if draw.random() < 0.5 else -1]
        images.append(np.ascontiguousarray(pixels[None] * np.float32(factor)))
    return images


def _sample(draw: np.random.Generator, shape: tuple[int, ...]) -> Any:
    noise = draw.standard_normal(shape)
    for axis in range(1, len(shape)):
        width = int(draw.integers(1, max(2, shape[axis] // 4 + 1)))
        sums = np.cumsum(noise, axis)
        noise = sums - np.roll(sums, width, axis)
    scaled = noise / max(float(noise.std()), 1e-6) * draw.uniform(0.5, 1.5) + draw.uniform(-0.5, 0.5)
    return scaled.astype(np.float32)


# --- quantizers -------------------------------------------------------------------------------------------------------


def measured(name: str, path: Path, args: argparse.Namespace) -> list[Row]:
    """Return the rows of one network."""
    network = read_network(path)
    [info] = [layer.output.known for layer in network.graph.inputs]
    shape = [int(size) for size in info.shape]
    draw: Callable[[int, int], list[Any]] = lambda count, seed: samples(shape, count, seed)  # noqa: E731
    if name in PICTURES:
        draw = lambda count, seed: crops(args.models, shape, PICTURES[name], count, seed)  # noqa: E731
    known, others = draw(args.calibration, 1), draw(args.samples, 2)
    run = _interposer(network)
    expected = [run(sample) for sample in others]
    makers: dict[str, Callable[[], Run]] = {
        f"Interposer {observer}": lambda observer=observer: _interposer(  # type: ignore[misc]
            ip.quantize(network, known, observer=observer)
        )
        for observer in OBSERVERS
    }
    makers["ONNX Runtime"] = lambda: _onnxruntime(network, known)
    makers["LiteRT"] = lambda: _litert(network, known)
    return [_row(name, title, make, others, expected) for title, make in makers.items()]


def _row(name: str, title: str, make: Callable[[], Run], others: Sequence[Any], expected: Sequence[Any]) -> Row:
    try:
        run = make()
        results = [run(sample) for sample in others]
    except ImportError as error:
        return Row(name, title, reason=f"not installed: {error.name}")
    except Exception as error:  # a quantizer of someone else may raise anything
        return Row(name, title, reason=f"{type(error).__name__}: {str(error).splitlines()[0][:80]}")
    agreements = [int(np.argmax(a)) == int(np.argmax(b)) for a, b in zip(results, expected, strict=True)]
    return Row(
        name,
        title,
        100 * float(np.mean(agreements)),
        float(np.mean([_cosine(*pair) for pair in zip(results, expected, strict=True)])),
    )


def _cosine(a: Any, b: Any) -> float:
    x, y = (np.asarray(array, np.float64).reshape(-1) for array in (a, b))
    return float(x @ y / max(np.sqrt((x @ x) * (y @ y)), 1e-300))


def _interposer(network: ip.Network) -> Run:
    model = ip.load(network, ["CpuAcc", "CpuRef"])
    return lambda sample: model.run([sample])[0]


def _onnxruntime(network: ip.Network, known: Sequence[Any]) -> Run:
    import onnxruntime  # noqa: PLC0415 - it is optional
    from onnxruntime import quantization  # noqa: PLC0415

    folder = Path(tempfile.mkdtemp())
    source, target = folder / "float.onnx", folder / "int8.onnx"
    onnx_writer.save(network, source)
    session = onnxruntime.InferenceSession(str(source), providers=["CPUExecutionProvider"])
    [name] = [model_input.name for model_input in session.get_inputs()]

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.feeds = iter([{name: sample} for sample in known])

        def get_next(self) -> Any:
            return next(self.feeds, None)

    quantization.quantize_static(
        str(source), str(target), Reader(), per_channel=True,
        quant_format=quantization.QuantFormat.QDQ,
        activation_type=quantization.QuantType.QInt8, weight_type=quantization.QuantType.QInt8,
    )  # fmt: skip
    quantized = onnxruntime.InferenceSession(str(target), providers=["CPUExecutionProvider"])
    return lambda sample: quantized.run(None, {name: sample})[0]


def _litert(network: ip.Network, known: Sequence[Any]) -> Run:
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - it is optional
    from ai_edge_quantizer import quantizer, recipe  # noqa: PLC0415

    source = Path(tempfile.mkdtemp()) / "float.tflite"
    source.write_bytes(_with_signature(tflite_writer.write(network)))
    job = quantizer.Quantizer(str(source))
    job.load_quantization_recipe(recipe.static_wi8_ai8())
    with contextlib.redirect_stdout(io.StringIO()):
        content = job.quantize(job.calibrate({"serving_default": [{"x0": sample} for sample in known]}))
    interpreter = Interpreter(model_content=bytes(content.quantized_model), num_threads=1)
    interpreter.allocate_tensors()
    [source_info], [target_info] = interpreter.get_input_details(), interpreter.get_output_details()

    def run(sample: Any) -> Any:
        interpreter.set_tensor(source_info["index"], _stored(sample, source_info))
        interpreter.invoke()
        return _real(interpreter.get_tensor(target_info["index"]), target_info)

    return run


def _stored(sample: Any, info: Any) -> Any:
    """Return a sample as the input of a LiteRT network takes it, quantized if the input is."""
    scale, point = info["quantization"]
    if not scale:
        return sample
    limits = np.iinfo(info["dtype"])
    return np.clip(np.rint(sample / scale) + point, limits.min, limits.max).astype(info["dtype"])


def _real(array: Any, info: Any) -> Any:
    scale, point = info["quantization"]
    return (array.astype(np.float32) - point) * scale if scale else array


def _with_signature(model: bytes) -> bytes:
    """Return a TFLite model with a signature, which `ai_edge_quantizer` requires: inputs x0 ..., outputs y0 ..."""
    import flatbuffers  # noqa: PLC0415 - it is optional
    from ai_edge_litert import schema_py_generated as schema  # noqa: PLC0415

    tree = schema.ModelT.InitFromPackedBuf(bytearray(model), 0)
    signature, graph = schema.SignatureDefT(), tree.subgraphs[0]
    signature.signatureKey, signature.subgraphIndex = "serving_default", 0
    signature.inputs, signature.outputs = [], []
    for letter, indices, maps in (("x", graph.inputs, signature.inputs), ("y", graph.outputs, signature.outputs)):
        for number, index in enumerate(indices):
            entry = schema.TensorMapT()
            entry.name, entry.tensorIndex = f"{letter}{number}", int(index)
            maps.append(entry)
    tree.signatureDefs = [signature]
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(tree.Pack(builder), b"TFL3")
    return bytes(builder.Output())
