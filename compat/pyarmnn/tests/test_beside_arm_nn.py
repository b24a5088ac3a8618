"""The example programs on this package, and on the real PyArmNN 22.0.0 where it is installed: they run unchanged.

Quantized results may differ by some steps: Arm NN's reference backend computes convolutions in floats, and rounds more
often. Interposer computes them as TensorFlow Lite does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which builds the models, is not installed")

from compat.pyarmnn.tests import small_models
from compat.pyarmnn.tests.detector import detector

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
MODELS = HERE.parents[3] / "shared" / "models"
REAL = "/usr/bin/python3"
Program = Callable[..., tuple[list[np.ndarray[Any, Any]], str]]


@cache
def has_real_package() -> bool:
    """Return whether the system's Python has PyArmNN 22.0.0 with its parser of TensorFlow Lite files."""
    script = "import pyarmnn, pyarmnn._generated._pyarmnn; pyarmnn.ITfLiteParser()"
    try:
        finished = subprocess.run([REAL, "-c", script], capture_output=True, timeout=300, env=clean(), check=False)
    except OSError:
        return False
    return finished.returncode == 0


def clean() -> dict[str, str]:
    """Return the environment without what leads to this package."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Return a function that runs an example, and returns the outputs that it saves, and what it prints."""

    def run(name: str, *arguments: Any, real: bool = False) -> tuple[list[np.ndarray[Any, Any]], str]:
        saved = tmp_path / f"{'real' if real else 'own'}.npz"
        words = [REAL if real else sys.executable, str(EXAMPLES / f"{name}.py"), *map(str, arguments), "--save", saved]
        environment = clean() if real else {**os.environ, "PYTHONPATH": _path()}
        finished = subprocess.run(
            [*words, "--backends", "CpuRef"],
            capture_output=True, check=False, env=environment, text=True, timeout=300,
        )  # fmt: skip
        assert finished.returncode == 0, finished.stderr
        arrays = np.load(saved)
        lines = [line for line in finished.stdout.splitlines(keepends=True) if "Skipped" not in line]
        return [arrays[f"output{number}"] for number in range(len(arrays.files))], "".join(lines)

    return run


def _path() -> str:
    """Return the folders with this package and with Interposer, and those that the environment names."""
    folders = [str(HERE.parent / "src"), str(Path(ip.__file__).parents[1]), os.environ.get("PYTHONPATH")]
    return os.pathsep.join(filter(None, folders))


@pytest.fixture
def both(program: Program) -> Program:
    """Return a function that runs an example on both packages, and returns the outputs of both."""

    def run(name: str, *arguments: Any) -> Any:
        if not has_real_package():
            pytest.skip("PyArmNN 22.0.0 (Debian's python3-pyarmnn) is not installed for /usr/bin/python3")
        (own, printed), (real, expected) = program(name, *arguments), program(name, *arguments, real=True)
        assert [(array.shape, array.dtype) for array in own] == [(array.shape, array.dtype) for array in real]
        return list(zip(own, real, strict=True)), (printed, expected)

    return run


def model(name: str) -> Path:
    path = MODELS / name
    if not path.exists():
        pytest.skip("../shared/models is missing")
    return path


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """Write a bitmap of 50x40 pixels."""
    pixels = np.random.RandomState(2).randint(0, 256, (40, 50, 3)).astype(np.uint8)
    rows = b"".join(row.tobytes() + bytes(-row.nbytes % 4) for row in pixels)
    header = b"BM" + (54 + len(rows)).to_bytes(4, "little") + bytes(4) + (54).to_bytes(4, "little")
    sizes = (40).to_bytes(4, "little") + (50).to_bytes(4, "little") + (40).to_bytes(4, "little")
    path = tmp_path / "picture.bmp"
    path.write_bytes(header + sizes + (1).to_bytes(2, "little") + (24).to_bytes(2, "little") + bytes(24) + rows)
    return path


def test_image_classification_prints_the_five_best_classes(program: Program, tmp_path: Path, picture: Path):
    [scores], printed = program("image_classification", small_classifier(tmp_path), picture)
    assert (scores.shape, scores.dtype) == ((1, 10), np.uint8)
    best = np.argsort(-scores[0].astype(int), kind="stable")[:5]
    assert printed == "".join(f"{scores[0, place] / 256:.4f} {place}\n" for place in best)


def small_classifier(folder: Path) -> str:
    """Write a quantized classifier of images of 6x6 pixels with three channels."""
    network, image = ip.Network("small"), ip.Quantization([1 / 128], [128])
    random = np.random.RandomState(6)
    x = network.add_input_layer(0, ip.TensorInfo((1, 6, 6, 3), "uint8", image), name="image")
    w = network.add_constant_layer(random.randint(0, 256, (10, 108)).astype(np.uint8), ip.Quantization([0.01], [128]))
    b = network.add_constant_layer(random.randint(-999, 999, 10).astype(np.int32), ip.Quantization([0.01 / 128], [0]))
    scores = ip.TensorInfo((1, 10), "uint8", ip.Quantization([0.05], [128]))
    dense = network.add_layer(ip.ops.FullyConnected(transpose_weight_matrix=True), x, w, b, outputs=scores)
    chances = ip.TensorInfo((1, 10), "uint8", ip.Quantization([1 / 256], [0]))
    network.add_output_layer(0, network.add_layer(ip.ops.Softmax(), dense, outputs=chances), name="chances")
    ip.writers.tflite.save(network, folder / "small.tflite")
    return str(folder / "small.tflite")


def test_image_classification_gives_what_arm_nn_gives(both: Any, tmp_path: Path, picture: Path):
    [(own, real)], (printed, expected) = both("image_classification", small_classifier(tmp_path), picture)
    np.testing.assert_array_equal(own, real)
    assert printed == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenet_v1_0.25_128_quant", "mobilenet_v2_1.0_224_quant"])
@pytest.mark.parametrize("picture", ["cat", "grace_hopper"])
def test_a_mobilenet_finds_the_classes_that_arm_nn_finds(both: Any, name: str, picture: str):
    labels = model("imagenet_labels.txt")
    arguments = model(f"{name}.tflite"), model(f"{picture}.bmp"), "--labels", labels
    [(own, real)], _ = both("image_classification", *arguments)
    assert np.abs(own.astype(int) - real).max() <= 8
    assert set(np.argsort(-own[0].astype(int))[:3]) & set(np.argsort(-real[0].astype(int))[:3])


@pytest.mark.slow
def test_image_classification_of_an_onnx_file_gives_what_arm_nn_gives_for_tflite(
    program: Program, both: Any, tmp_path: Path
):
    source, picture = model("vww_96_float.tflite"), model("cat.bmp")
    ip.writers.onnx.save(ip.frontends.tflite.load(str(source)), tmp_path / "vww.onnx")
    [(_, real)], _ = both("image_classification", source, picture)
    [own], _ = program("image_classification", tmp_path / "vww.onnx", picture, "--names", "input_1", "Identity")
    np.testing.assert_allclose(own, real, atol=1e-5)


def test_object_detection_gives_the_boxes_that_arm_nn_gives(both: Any, tmp_path: Path, picture: Path):
    pairs, (printed, expected) = both("object_detection", detector(tmp_path / "detector.tflite"), picture)
    for own, real in pairs:
        np.testing.assert_allclose(own, real, atol=1e-5)
    assert printed == expected
    assert len(printed.splitlines()) > 1


def test_object_detection_prints_a_line_for_each_box(program: Program, tmp_path: Path, picture: Path):
    (boxes, _, scores, count), printed = program("object_detection", detector(tmp_path / "detector.tflite"), picture)
    assert (boxes.shape, scores.shape, count.shape) == ((1, 10, 4), (1, 10), (1,))
    assert len(printed.splitlines()) == int(np.sum(scores[0, : int(count[0])] >= 0.5)) > 1


@pytest.mark.slow
def test_keyword_spotting_hears_the_words_that_arm_nn_hears(both: Any, tmp_path: Path):
    recorded = np.load(model("kws_ref_model.golden.npz"))
    np.save(tmp_path / "features.npy", np.stack([recorded[f"case{number}_input0"] for number in range(4)]))
    pairs, (printed, expected) = both("keyword_spotting", model("kws_ref_model.tflite"), tmp_path / "features.npy")
    for own, real in pairs:
        np.testing.assert_array_equal(own, real)
    assert printed == expected


def test_a_quantized_network_gives_what_arm_nn_gives(both: Any, tmp_path: Path):
    np.save(tmp_path / "features.npy", small_models.IMAGE[np.newaxis])
    [(own, real)], _ = both(
        "keyword_spotting", small_models.tflite(tmp_path / "mock.tflite"), tmp_path / "features.npy"
    )
    assert own.tolist() == real.tolist() == small_models.QUANTIZED_SCORES
