"""Weights with a scale for every block of elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import ParseError
from interposer.frontends import tflite
from tests.evaluation import run_network
from tests.frontends.tflite.build import code, encode, operator, tensor

BLOCK = 32
STATE = np.random.RandomState(3)
CODES = STATE.randint(-8, 8, (6, 96)).astype(np.int8)
SCALES = STATE.uniform(0.01, 0.1, (6, 3)).astype(np.float16)
X = np.eye(96, dtype=np.float32)[:4] * 127
"""Rows whose rounding to 8 bits is exact."""


def packed(codes: np.ndarray) -> bytes:
    """Return integers as int4, two in a byte."""
    pairs = codes.reshape(-1, 2).astype(np.uint8) & 15
    return bytes(pairs[:, 0] | pairs[:, 1] << 4)


def file(
    details: tuple[str, dict[str, Any]], dtype: str = "int4", scales: np.ndarray = SCALES, zeros: Any = None,
    name: str = "FULLY_CONNECTED", codes: np.ndarray = CODES, inputs: Any = None, result_type: str = "float32",
) -> bytes:  # fmt: skip
    """Return a file with one operator, whose second input is weights that are quantized by `details`."""
    shapes = {"FULLY_CONNECTED": [4, len(codes)], "DEQUANTIZE": list(codes.shape)}
    operands = [1] if name == "DEQUANTIZE" else [0, 1]
    content = packed(codes) if dtype == "int4" else codes.tobytes()
    buffers = [{}, {"data": content}, {"data": scales.tobytes()}]
    tensors = [
        inputs or tensor("x", [4, 96]),
        tensor("w", list(codes.shape), dtype, buffer=1, quantization={"details": details}),
        tensor("s", list(scales.shape), str(scales.dtype), buffer=2),
        tensor("y", shapes.get(name, [2, 96]), result_type),
    ]
    if zeros is not None:
        buffers.append({"data": zeros.tobytes()})
        tensors.append(tensor("z", list(zeros.shape), str(zeros.dtype), buffer=3))
    graph = {"tensors": tensors, "inputs": [0], "outputs": [3], "operators": [operator(operands, [3], opcode_index=0)]}
    return encode({"version": 3, "operator_codes": [code(name)], "buffers": buffers, "subgraphs": [graph]})


def blockwise(**more: Any) -> tuple[str, dict[str, Any]]:
    return "BlockwiseQuantization", {"scales": 2, "zero_points": -1, "block_size": BLOCK, **more}


def dequantized(codes: np.ndarray = CODES, zero: Any = 0) -> np.ndarray:
    return (codes.astype(np.float32) - zero) * np.repeat(SCALES, BLOCK, axis=1).astype(np.float32)


def result(data: bytes, x: np.ndarray = X) -> np.ndarray:
    return run_network(tflite.load(data), {"x": x})["y"]


@pytest.mark.parametrize(
    "details",
    [
        blockwise(),
        blockwise(block_size=0, block_shape=[1, BLOCK]),
        (
            "MultiAxisQuantization",
            {"scales": 2, "zero_points": -1, "block_size": BLOCK, "quantized_dimensions": [0, 1]},
        ),
    ],
)
@pytest.mark.parametrize("dtype", ["int4", "int8"])
def test_every_block_of_the_weights_has_its_scale(details, dtype):
    np.testing.assert_allclose(result(file(details, dtype)), X @ dequantized().T, rtol=1e-5)


def test_scales_may_be_flat_and_of_another_float_type():
    scales = SCALES.astype(np.float32).reshape(-1)
    np.testing.assert_allclose(result(file(blockwise(), scales=scales)), X @ dequantized().T, rtol=1e-5)


def test_scales_of_whole_dimensions_are_repeated():
    details = "MultiAxisQuantization", {"scales": 2, "zero_points": -1, "quantized_dimensions": [1]}
    scales = np.linspace(0.5, 1, 96, dtype=np.float32).reshape(1, 96)
    expected = X @ (CODES * scales).T
    np.testing.assert_allclose(result(file(details, scales=scales)), expected, rtol=1e-5)


def test_blocks_of_rows_and_columns_share_a_scale():
    scales = np.float32([[1, 2, 3], [4, 5, 6]])
    details = blockwise(block_size=0, block_shape=[3, BLOCK])
    expected = X @ (CODES * scales.repeat(3, 0).repeat(BLOCK, 1)).T
    np.testing.assert_allclose(result(file(details, scales=scales)), expected, rtol=1e-5)


@pytest.mark.parametrize("zeros", [np.full((6, 3), 2, np.int8), np.full((6, 3), 2, np.int32), np.array([2], np.int64)])
def test_zero_points_are_subtracted(zeros):
    data = file(blockwise(zero_points=4), zeros=zeros)
    np.testing.assert_allclose(result(data), X @ dequantized(zero=2).T, rtol=1e-5)


def test_zero_points_that_are_no_constant_do_not_count():
    np.testing.assert_allclose(result(file(blockwise(zero_points=0))), X @ dequantized().T, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows_of_an_embedding_table_have_blocks(dtype):
    data = file(blockwise(), name="EMBEDDING_LOOKUP", inputs=tensor("x", [2], "int32"), result_type=dtype)
    rows = result(data, np.int32([5, 1]))
    np.testing.assert_array_equal(rows, dequantized()[[5, 1]].astype(dtype), strict=True)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_dequantize_gives_the_weights_of_all_blocks(dtype):
    data = file(blockwise(), name="DEQUANTIZE", inputs=tensor("x", [2], "int32"), result_type=dtype)
    np.testing.assert_array_equal(result(data, np.int32([5, 1])), dequantized().astype(dtype), strict=True)


def test_blocks_of_weights_run_on_the_native_backend():
    x = np.random.RandomState(0).standard_normal((4, 96)).astype(np.float32)
    [native] = ip.load(file(blockwise()), ["CpuAcc", "CpuRef"]).run([x])
    np.testing.assert_allclose(native, result(file(blockwise()), x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (file(blockwise(block_size=16)), "scales of shape [6, 3], which do not fit blocks of 16"),
        (file(blockwise(block_size=0)), "scales of shape [6, 3], which do not fit blocks of []"),
        (file(blockwise(scales=0)), "the scales of the blocks of tensor 'w' are not constant floats"),
        (file(blockwise(scales=99)), "details.scales: tensor 99 does not exist; there are 4"),
        (file(blockwise(zero_points=-5)), "details.zero_points[0]: tensor -5 does not exist; there are 4"),
        (file(blockwise(zero_points=4), zeros=np.full((6, 3), 200, np.int16)),
         "tensor 'w' has 18 zero points of type int16 for 18 blocks; expected an integer of 8 bits for each block"),
        (file(blockwise(), "int16", codes=CODES.astype(np.int16)), "tensor 'w' of int16 has scales for blocks"),
        (file(("CustomQuantization", {"custom": b"abc"})), "is quantized by CustomQuantization"),
    ],
)  # fmt: skip
def test_blocks_that_do_not_fit_are_refused(data, message):
    with pytest.raises(ParseError) as error:
        tflite.load(data)
    assert message in str(error.value)


# --- external buffers ---------------------------------------------------------------------------------------------


def beside(**more: Any) -> bytes:
    """Return a file that adds the constant of an external buffer to its input."""
    tensors = [tensor("x", [3]), tensor("w", [3], external_buffer=7), tensor("y", [3])]
    graph = {"tensors": tensors, "inputs": [0], "outputs": [2], "operators": [operator([0, 1], [2], opcode_index=0)]}
    return encode({
        "version": 3, "operator_codes": [code("ADD")], "buffers": [{}], "subgraphs": [graph],
        "external_buffer_groups": [{"name": "weights.bin"}],
        "external_buffers": [{"id": 7, "group": 0, "offset": 4, "length": 12, **more}],
    })  # fmt: skip


def test_external_buffers_are_read_from_the_files_of_their_groups(tmp_path):
    (tmp_path / "model.tflite").write_bytes(beside())
    (tmp_path / "weights.bin").write_bytes(b"1234" + np.float32([1, 2, 3]).tobytes())
    [result] = ip.load(tmp_path / "model.tflite", ["CpuAcc", "CpuRef"]).run([np.float32([10, 20, 30])])
    assert result.tolist() == [11, 22, 33]
    (tmp_path / "weights.bin").write_bytes(b"1234" + np.float32([4, 5, 6]).tobytes())
    [result] = ip.load(tmp_path / "model.tflite", ["CpuAcc", "CpuRef"]).run([np.float32([10, 20, 30])])
    assert result.tolist() == [14, 25, 36]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"group": 3}, "group 3 does not exist; there are 1"),
        ({"length": 99}, "'weights.bin' is truncated or damaged: it has 16 bytes, but the data ends at 103"),
        ({"length": 8}, "8 bytes of data; float32 [3] takes 12"),
        ({"packing": "rows"}, "the packing 'rows' is not supported"),
        ({"id": 8}, "the external buffer 7 does not exist"),
    ],
)
def test_damaged_external_buffers_are_refused(tmp_path, more, message):
    (tmp_path / "model.tflite").write_bytes(beside(**more))
    (tmp_path / "weights.bin").write_bytes(bytes(16))
    with pytest.raises(ParseError) as error:
        ip.load(tmp_path / "model.tflite", ["CpuRef"])
    assert message in str(error.value)


def test_external_buffers_of_bytes_without_a_path_are_refused():
    with pytest.raises(ParseError, match="data lies in the file 'weights.bin' beside the model"):
        tflite.load(beside())
