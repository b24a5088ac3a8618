"""Arrays of other types: what is converted, and the value that is named where it cannot be."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.conversion import converted
from interposer.core.errors import BindingError, InvalidArgumentError
from interposer.core.types import DataType, largest_float


def identity(dtype: str) -> ip.Network:
    network = ip.Network("same")
    network.add_output_layer(0, network.add_input_layer(0, ip.TensorInfo((2,), dtype), name="x"), name="y")
    return network


def model_of(dtype: str) -> ip.Model:
    return ip.load(identity(dtype), ["CpuRef"])


FITTING = [
    ("int8", np.uint8([0, 127]), [0, 127]),
    ("uint8", np.int64([0, 255]), [0, 255]),
    ("int8", np.bool_([False, True]), [0, 1]),
    ("int64", np.uint64([0, 2**63 - 1]), [0, 2**63 - 1]),
    ("uint64", [0, 2**64 - 1], [0, 2**64 - 1]),
    ("int32", [1.0, -2.0], [1, -2]),
    ("bool", [0, 1], [False, True]),
    ("float32", np.float64([np.inf, 1.5]), [np.inf, 1.5]),
    ("float32", np.uint8([7, 255]), [7.0, 255.0]),
    ("float16", np.bool_([False, True]), [0.0, 1.0]),
    ("bfloat16", np.float64([1.0, -np.inf]), [1.0, -np.inf]),
    ("string", np.array(["a", "bc"]), ["a", "bc"]),
    ("string", np.array([b"a", "é".encode()]), ["a", "é"]),
]


@pytest.mark.needs_cpuref
@pytest.mark.parametrize(("dtype", "given", "wanted"), FITTING)
def test_values_that_fit_are_converted(dtype: str, given: Any, wanted: list[Any]) -> None:
    [result] = model_of(dtype).run([given])
    assert result.dtype == DataType.of(dtype).numpy
    assert result.tolist() == wanted


INT8 = "expected int8, whole numbers from -128 to 127"
REFUSED = [
    ("int8", np.int32([1, 300]), f"is int32 and holds 300 at [1]; {INT8}"),
    ("int8", np.uint8([200, 1]), f"is uint8 and holds 200 at [0]; {INT8}"),
    ("uint8", np.int8([0, -1]), "is int8 and holds -1 at [1]; expected uint8, whole numbers from 0 to 255"),
    ("int64", np.uint64([1, 2**63]), f"is uint64 and holds {2**63} at [1]; expected int64, whole numbers "
     f"from {-(2**63)} to {2**63 - 1}"),
    ("int4", np.int32([7, 8]), "is int32 and holds 8 at [1]; expected int4, whole numbers from -8 to 7"),
    ("int4", np.float32([0.5, 1]), "is float32; expected int4; convert it explicitly"),
    ("int8", [1, 300], f"is int64 and holds 300 at [1]; {INT8}"),
    ("int8", [1, 2**70], f"is object and holds {2**70} at [1]; {INT8}"),
    ("int8", [1.5, 2], f"is float64 and holds 1.5 at [0]; {INT8}"),
    ("int8", [0, np.nan], f"is float64 and holds nan at [1]; {INT8}"),
    ("int8", [0, -np.inf], f"is float64 and holds -inf at [1]; {INT8}"),
    ("int64", [0, 2.0**63], f"is float64 and holds {2.0**63} at [1]; expected int64, whole numbers from {-(2**63)} to "
     f"{2**63 - 1}"),
    ("int8", np.float32([1, 2]), "is float32; expected int8; convert it explicitly"),
    ("bool", np.int8([0, 1]), "is int8; expected bool; convert it explicitly"),
    ("bool", [0, 2], "is int64 and holds 2 at [1]; expected bool, whole numbers from 0 to 1"),
    ("float32", np.float64([1, -1e300]), "is float64 and holds -1e+300 at [1]; expected float32, finite numbers up to "
     "3.4028235e+38"),
    ("float16", np.int32([1, 70000]), "is int32 and holds 70000 at [1]; expected float16, finite numbers up to 65504"),
    ("float32", np.complex64([1, 2]), "is complex64; expected float32; convert it explicitly"),
    ("string", np.int8([1, 2]), "is int8; expected string; convert it explicitly"),
    ("string", np.array(["a", None], object), "holds None at [1]; expected string, texts"),
    ("string", np.array([b"a", b"\xff"]), "holds b'\\xff' at [1], which is not UTF-8; expected string, texts"),
]  # fmt: skip


@pytest.mark.needs_cpuref
@pytest.mark.parametrize(("dtype", "given", "text"), REFUSED)
def test_values_that_do_not_fit_never_wrap(dtype: str, given: Any, text: str) -> None:
    model = model_of(dtype)
    calls = [
        lambda: model.run([given]),
        lambda: model({"x": given}),
        lambda: model(given),
        lambda: model.submit([given]).result(),
        lambda: asyncio.run(model.run_async([given])),
    ]
    for call in calls:
        with pytest.raises(BindingError) as caught:
            call()
        assert str(caught.value) == f"input 'x' {text}"


@pytest.mark.needs_cpuref
def test_bound_values_that_do_not_fit_never_wrap() -> None:
    value = np.int32([1, 2])
    bound = model_of("int8").bind([value])
    assert bound()[0].tolist() == [1, 2]
    value[1] = 300
    with pytest.raises(BindingError, match="input 'x' is int32 and holds 300"):
        bound()
    with pytest.raises(BindingError, match="input 'x' is int32 and holds 300"):
        model_of("int8").bind([value])


@pytest.mark.needs_cpuref
def test_a_position_in_a_sequence_is_named_too() -> None:
    network = ip.Network()
    info = ip.TensorInfo((None,), DataType.SEQUENCE, element=ip.TensorInfo((2,), "int8"))
    network.add_output_layer(0, network.add_input_layer(0, info, name="x"), name="y")
    with pytest.raises(BindingError) as caught:
        ip.load(network, ["CpuRef"]).run([[np.int8([1, 2]), np.int32([1, -129])]])
    assert str(caught.value) == f"input 'x'[1] is int32 and holds -129 at [1]; {INT8}"


@pytest.mark.needs_cpuref
def test_values_given_while_loading_do_not_wrap_either() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        ip.load(identity("int8"), ["CpuRef"], values={"x": np.int32([1, 300])})
    assert str(caught.value) == f"values: 'x' is int32 and holds 300 at [1]; {INT8}"


@pytest.mark.needs_cpuref
def test_the_runtime_takes_texts_only_for_an_input_of_texts() -> None:
    runtime = ip.Runtime()
    number = runtime.load_network(ip.optimize(identity("string"), ["CpuRef"], runtime.device_spec))
    with pytest.raises(BindingError) as caught:
        runtime.enqueue_workload(number, {0: np.array(["a", 3], object)})
    assert str(caught.value) == "input 0 (x) holds 3; expected string, texts"


def test_an_array_of_the_type_is_not_copied() -> None:
    array = np.int8([1, 2])
    assert converted(array, DataType.INT8) is array
    swapped = converted(np.array([1, 2], ">i4"), DataType.INT32)
    assert swapped.tolist() == [1, 2]
    assert swapped.dtype == np.int32


def test_empty_arrays_and_scalars_are_converted() -> None:
    assert converted(np.zeros((0, 3), np.int64), DataType.INT8).shape == (0, 3)
    assert converted(np.asarray([]), DataType.INT8, numbers=[]).size == 0
    with pytest.raises(ValueError, match="is int64 and holds 300; expected int8"):
        converted(np.asarray(300), DataType.INT8)


@pytest.mark.parametrize("wanted", [DataType.FLOAT4_E2M1FN, DataType.FLOAT6_E2M3FN, DataType.FLOAT6_E3M2FN])
@pytest.mark.parametrize("number", [29.0, -29.0, np.inf, np.nan])
def test_a_type_without_infinities_and_nan_takes_no_number_beyond_its_largest(wanted: DataType, number: float) -> None:
    with pytest.raises(ValueError, match=rf"holds {number} at \[1\]; expected {wanted}, finite numbers up to"):
        converted(np.array([1, number], np.float32), wanted)
    largest = largest_float(wanted)
    assert converted(np.array([-largest, largest], np.float32), wanted).astype(np.float32).tolist() == [
        -largest,
        largest,
    ]


def test_an_infinity_is_not_made_nan_in_a_type_without_infinities() -> None:
    with pytest.raises(ValueError, match=r"holds inf at \[0\]; expected float8_e4m3fn, which has no infinities"):
        converted(np.array([np.inf, np.nan], np.float32), DataType.FLOAT8_E4M3FN)
    assert np.isnan(converted(np.float32([np.nan]), DataType.FLOAT8_E4M3FN)).all()


def test_integers_of_4_bits_become_floats_that_numpy_cannot_make_of_them() -> None:
    array = np.array([1, 4], DataType.INT4.numpy)
    assert converted(array, DataType.FLOAT8_E8M0FNU).astype(np.float32).tolist() == [1, 4]
