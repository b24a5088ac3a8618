"""Files that Arm NN 20.08 wrote give the outputs that it computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import DamagedFileError, InterposerError
from interposer.frontends import armnn
from interposer.types import Array
from tests.damage import damaged_variants

FOLDER = Path(__file__).parents[4] / "shared" / "armnn" / "files"
INDEX: dict[str, Any] = json.loads((FOLDER / "index.json").read_text()) if FOLDER.is_dir() else {}
ABSENT = pytest.mark.skip(reason="no recorded files in ../shared/armnn/files")
NAMES: list[Any] = [name for name, item in INDEX.items() if "npz" in item] or [pytest.param("", marks=ABSENT)]
SMALL: list[Any] = [name for name, item in INDEX.items() if item["bytes"] < 10_000] or [pytest.param("", marks=ABSENT)]

STEPS = {"from_tflite_mobilenet_v1_0.25_128_quant": 3, "quantize_pool_dequantize": 1}
"""By how many steps of the output's scale results differ, as quantized layers are computed in integers."""


def inputs_of(entry: dict[str, Any], arrays: Any, network: ip.Network) -> dict[str, Array]:
    infos = {layer.name: layer.output.known for layer in network.graph.inputs}
    result = {item["name"]: arrays[item["key"]] for item in entry["inputs"]}
    return {name: array.astype(infos[name].dtype.numpy) for name, array in result.items()}


def check(network: ip.Network, entry: dict[str, Any], backends: list[str] | None) -> None:
    arrays = np.load(FOLDER / entry["npz"])
    results = ip.load(network, backends).run(inputs_of(entry, arrays, network))
    result = {layer.name: array for layer, array in zip(network.graph.outputs, results, strict=True)}
    steps = STEPS.get(Path(entry["npz"]).stem, 0)
    for item in entry["outputs"]:
        key = f"file_{item['key']}" if f"file_{item['key']}" in arrays else item["key"]
        expected = arrays[key].astype(np.float64)
        tolerance = steps * (1.0 if expected.max() > 1 else item.get("scale") or 0.025001)
        actual = np.asarray(result[item["name"]]).astype(np.float64).reshape(expected.shape)
        np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=max(1e-6, tolerance), err_msg=item["name"])


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_file_gives_the_recorded_outputs(name: str) -> None:
    network = armnn.load(FOLDER / f"{name}.armnn")
    check(network, INDEX[name], ["CpuRef"])
    assert [layer.name for layer in network.graph.inputs] == [
        item["name"] for item in sorted(INDEX[name]["inputs"], key=lambda item: item["binding_id"])
    ]
    assert {layer.name: layer.op.binding_id for layer in network.graph.outputs} == {  # type: ignore[attr-defined]
        item["name"]: item["binding_id"] for item in INDEX[name]["outputs"]
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_file_gives_the_recorded_outputs_on_all_backends(name: str) -> None:
    check(armnn.load(FOLDER / f"{name}.armnn"), INDEX[name], None)


@pytest.mark.skipif(not INDEX, reason="no recorded files in ../shared/armnn/files")
def test_the_order_of_the_layers_in_a_file_has_no_meaning() -> None:
    check(armnn.load(FOLDER / "shuffled_output_first.armnn"), INDEX["conv_pool_f32_nhwc"], ["CpuRef"])


@pytest.mark.skipif(not INDEX, reason="no recorded files in ../shared/armnn/files")
def test_a_constant_without_data_is_refused() -> None:
    with pytest.raises(DamagedFileError, match=r"layers\[1\] FullyConnected 'fc'\.weights: it has no data"):
        armnn.load(FOLDER / "bad_qasymms8_constant.armnn")


@pytest.mark.parametrize("name", NAMES)
def test_the_format_of_a_recorded_file_is_recognized_by_its_content(name: str, tmp_path: Path) -> None:
    data = (FOLDER / f"{name}.armnn").read_bytes()
    (tmp_path / "model.bin").write_bytes(data)
    outputs = [item["name"] for item in sorted(INDEX[name]["outputs"], key=lambda item: item["binding_id"])]
    assert list(ip.load(data).outputs) == list(ip.load(tmp_path / "model.bin").outputs) == outputs


@pytest.mark.parametrize("name", SMALL)
def test_damaged_recorded_files_are_run_or_refused(name: str) -> None:
    outcomes = [outcome(data) for _, data in damaged_variants((FOLDER / f"{name}.armnn").read_bytes(), 66, seed=17)]
    assert outcomes.count("refused") > 40


def outcome(data: bytes) -> str:
    try:
        network = armnn.load(data)
        if sum(int(value.known.num_elements) for layer in network.graph for value in layer.outputs) > 1 << 20:
            return "large"
        ip.load(network, ["CpuRef"]).run({layer.name: zeros(layer.output.known) for layer in network.graph.inputs})
    except InterposerError:
        return "refused"
    return "run"


def zeros(info: ip.TensorInfo) -> Array:
    return np.zeros(tuple(info.shape), info.dtype.numpy)
