"""Samples: they try every type that the reference takes, and the reference gives what is known from elsewhere."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import pytest

from interposer.core.errors import InvalidArgumentError
from interposer.core.schema import Op, registered_ops
from interposer.core.types import DataType, Quantization, TensorInfo, integer_range
from interposer.ir.graph import Layer
from interposer.kernels import evaluate
from interposer.kernels.fixedpoint import along_axis
from interposer.ops import Addition, Rank
from interposer.testing import Sample, Tolerances, given, of, samples_of, weights
from interposer.testing.conformance import all_samples
from interposer.testing.oracle import reference_outputs
from interposer.testing.tolerances import same

OPERATORS = [op for op in registered_ops().values() if op.executable and op.__module__.startswith("interposer.")]


def layer_of(sample: Sample) -> tuple[Layer, list[np.ndarray | None]]:
    """The sample's layer, and the arrays that go into it."""
    network, feeds = sample.network()
    layer = network.graph.layer("layer")
    values = [None if value is None else value for value in layer.inputs]
    arrays = [
        None if value is None else value.constant if value.is_constant else feeds[value.producer.op.binding_id]
        for value in values
    ]
    return layer, arrays


def test_every_sample_has_an_id_of_its_own_and_is_a_valid_network() -> None:
    samples = all_samples()
    assert len({sample.id for sample in samples}) == len(samples) > 5000
    for sample in samples:
        network, _ = sample.network()
        network.validate()


def test_a_sample_draws_the_same_numbers_every_time_and_others_than_the_next_one() -> None:
    first, second = (Sample(Addition(), [given((3,)), given((3,))], name=name) for name in "ab")
    assert all(same(a, b) for a, b in zip(first.arrays(), first.arrays(), strict=True))
    assert not same(first.arrays()[0], second.arrays()[0])


def test_two_samples_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from interposer.testing import sample as module

    class Twice(Rank):
        pass

    monkeypatch.setitem(module._SOURCES, Twice, [lambda: iter([Sample(Twice(), [of(1)]), Sample(Twice(), [of(2)])])])
    with pytest.raises(InvalidArgumentError, match="two samples are called 'Rank'|two samples are called 'Twice'"):
        samples_of(Twice)


@pytest.mark.parametrize("dtype", [DataType.INT4, DataType.UINT8, DataType.BOOL, DataType.BFLOAT16, DataType.STRING])
def test_operands_are_drawn_in_their_type_and_range(dtype: DataType) -> None:
    array = given((50,), dtype, low=-100, high=300).array(np.random.default_rng(0))
    assert array.dtype == dtype.numpy
    if dtype.is_integer:
        low, high = integer_range(dtype)
        assert low <= int(array.astype(int).min()) <= int(array.astype(int).max()) <= high


def test_weights_are_part_of_the_network() -> None:
    network, feeds = Sample(Addition(), [given((2,)), weights((2,))]).network()
    assert [layer.kind for layer in network] == ["Input", "Constant", "Addition", "Output"]
    assert list(feeds) == [0]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.op_name())
def test_the_reference_gives_what_worked_examples_say(op: type[Op]) -> None:
    for sample in samples_of(op):
        if sample.expected is None:
            continue
        network, feeds = sample.network()
        outputs = reference_outputs(network.graph, feeds)
        layer = network.graph.layer("layer")
        for index, expected in enumerate(sample.expected):
            info = layer.outputs[index].known.with_shape(expected.shape)
            assert Tolerances().difference(outputs[index], expected, info) is None, sample.id


# --- quantized tensors, by way of float values ------------------------------------------------------------------------


def real(array: np.ndarray, info: TensorInfo) -> np.ndarray:
    if info.quantization is None:
        return array.astype(np.float64) if info.dtype.is_float else array
    scale, zero_point = along_axis(info.quantization, info.rank)
    return (array.astype(np.float64) - zero_point) * scale


def quantized_samples(op: type[Op]) -> Iterator[Sample]:
    for sample in samples_of(op):
        operands = [operand.info for operand in sample.inputs if operand is not None]
        if not sample.statistical and any(info.is_quantized for info in operands):
            yield sample


STEPS = {"Softmax": 4, "LogSoftmax": 2, "ElementwiseUnary": 4}
"""How far the reference may be from real arithmetic: it works with tables, as TFLite does."""
FAMILIES = ("activation", "elementwise", "reduction", "normalization", "pooling", "convolution", "matmul")


@pytest.mark.parametrize("op", [op for op in OPERATORS if op.family in FAMILIES], ids=lambda op: op.op_name())
def test_quantized_results_are_those_of_real_numbers_but_for_rounding(op: type[Op]) -> None:
    for sample in quantized_samples(op):
        layer, arrays = layer_of(sample)
        if not all(info.is_quantized for info in layer.output_infos):
            continue
        results = evaluate(layer.op, arrays, layer.input_infos, layer.output_infos)
        reals = [None if array is None else real(array, info)
                 for array, info in zip(arrays, layer.input_infos, strict=True)]  # fmt: skip
        infos = [None if array is None else TensorInfo(array.shape, array.dtype) for array in reals]
        expected = evaluate(layer.op, reals, infos, layer.op.infer_infos(*infos))
        for codes, numbers, info in zip(results, expected, layer.output_infos, strict=True):
            assert_near(codes, numbers, info, STEPS.get(op.op_name(), 1), sample.id)


def assert_near(codes: np.ndarray, numbers: np.ndarray, info: TensorInfo, steps: int, title: str) -> None:
    """The stored integers are those of the numbers, but for some steps, or for float32 where they have many bits."""
    scale, zero_point = along_axis(info.quantization or Quantization(1.0), info.rank)
    with np.errstate(all="ignore"):
        exact = np.nan_to_num(np.asarray(numbers, np.float64) / scale, nan=0.0, posinf=np.inf, neginf=-np.inf)
    low, high = integer_range(info.dtype)
    expected = np.clip(np.floor(np.abs(exact) + 0.5) * np.sign(exact) + zero_point, low, high)
    off = float(np.abs(codes.astype(np.float64) - expected).max(initial=0))
    largest = float(np.abs(expected - zero_point).max(initial=0))
    assert off <= max(steps, 1e-4 * largest), title


def test_random_values_of_samples_are_the_same_with_every_version_of_numpy() -> None:
    families = {"detection", "regions"}
    checksum = 0
    for sample in (candidate for candidate in all_samples() if candidate.op.family in families):
        for operand in sample.inputs:
            if operand is not None and operand.values is not None:
                checksum = zlib.crc32(np.ascontiguousarray(operand.values).tobytes(), checksum)
    assert checksum == 3197184857
