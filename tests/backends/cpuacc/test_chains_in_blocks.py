"""CpuAcc runs chains of elementwise layers block by block, and gives what the reference gives, bit for bit."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array
from tests.backends.cpuacc.single import assert_same_signs, reference_results

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

ROWS, COLUMNS = 171, 123
"""A result of 21,033 elements: no multiple of a block."""

REQUANTIZATION = """
  %wide = Cast(dtype=int64) %x : int64[n]
  %left = Multiplication %wide, %multiplier : int64[n]
  %sum = Addition %left, %half : int64[n]
  %whole = Division %sum, %power : int64[n]
  %at_least = Maximum %whole, %low : int64[n]
  %y = Cast(dtype=int16) %at_least : int16[n]
"""
"""Arithmetic in wide integers; `x` and constants have to be declared before it."""

ROUNDING = """
  %wide = Cast(dtype=float64) %x : float64[n]
  %missing = ElementwiseUnary(operation=IS_NAN) %wide : bool[n]
  %present = Where %missing, %zero, %wide : float64[n]
  %size = ElementwiseUnary %present : float64[n]
  %floor = ElementwiseUnary(operation=FLOOR) %size : float64[n]
  %y = Activation(function=BOUNDED_RELU, a=100.0, b=2.0) %floor : float64[n]
"""


def network_of(chain: str, declarations: str, outputs: tuple[str, ...] = ("y",)) -> ip.Network:
    lines = [f'  Output(binding_id={number}) %{name} as "output_{name}"' for number, name in enumerate(outputs)]
    text = "\n".join(['graph "chain" {', declarations, chain, *lines, "}"])
    return ip.Network.parse(text.replace("[n]", f"[{ROWS}, {COLUMNS}]"))


def numbers(dtype: str) -> Array:
    return np.random.default_rng(3).integers(-30000, 30000, (ROWS, COLUMNS)).astype(dtype)


def assert_same(network: ip.Network, arrays: list[Array], threads: int = 1) -> None:
    options = ip.OptimizerOptions(model_options={"CpuAcc": {"NumberOfThreads": threads}})
    with ip.load(network, ["CpuAcc"], options=options) as model:
        results = model.run(arrays)
    for result, expected in zip(results, reference_results(network, arrays), strict=True):
        np.testing.assert_array_equal(result, expected, strict=True)
        assert_same_signs(result, expected)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("multiplier", ["int64[]{12345}", f"int64[{COLUMNS}]", "computed"])
def test_requantization_in_wide_integers(multiplier: str, threads: int) -> None:
    of_multiplier, arrays = f"%multiplier = Constant(value={multiplier}) : int64[]", [numbers("int32")]
    if multiplier == "computed":
        of_multiplier = "%multiplier = Input(binding_id=1) : int64[n]"
        arrays.append(numbers("int64"))
    elif not multiplier.endswith("}"):
        listed = ", ".join(str(number) for number in range(-60, COLUMNS - 60))
        of_multiplier = f"%multiplier = Constant(value={multiplier}{{{listed}}}) : {multiplier}"
    declarations = f"""
  %x = Input : int32[n]
  {of_multiplier}
  %half = Constant(value=int64[]{{-512}}) : int64[]
  %power = Constant(value=int64[]{{1024}}) : int64[]
  %low = Constant(value=int64[]{{-20000}}) : int64[]"""
    assert_same(network_of(REQUANTIZATION, declarations), arrays, threads)


CLAMPS = """
  %wide = Cast(dtype=float64) %x : float64[n]
  %positive = Activation(function=RELU) %wide : float64[n]
  %negative = Activation(function=BOUNDED_RELU, a=0.0, b=-9.0) %wide : float64[n]
  %inverse = ElementwiseUnary(operation=RECIPROCAL) %positive : float64[n]
  %y = Multiplication %inverse, %negative : float64[n]
"""


def test_clamps_in_float64_keep_the_signs_of_zeros() -> None:
    x = np.resize(np.array([-0.0, 0.0, -1.5, 2.5, np.nan], np.float32), (ROWS, COLUMNS))
    assert_same(network_of(CLAMPS, "  %x = Input : float32[n]", ("y", "positive", "negative", "inverse")), [x])


@pytest.mark.parametrize("outputs", [("y",), ("y", "size"), ("floor", "y", "missing")], ids=" ".join)
def test_rounding_in_float64_with_results_from_inside(outputs: tuple[str, ...]) -> None:
    x = numbers("float32") / 300
    x[0, :3], x[-1, -1] = [np.nan, np.inf, -np.inf], -0.0
    declarations = "  %x = Input : float32[n]\n  %zero = Constant(value=float64[]{0.0}) : float64[]"
    assert_same(network_of(ROUNDING, declarations, outputs), [x])


def test_a_chain_is_one_step(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("INTERPOSER_CPUACC_PROFILE", "1")
    declarations = "  %x = Input : float32[n]\n  %zero = Constant(value=float64[]{0.0}) : float64[]"
    with ip.load(network_of(ROUNDING, declarations), ["CpuAcc"]) as model:
        model.run([numbers("float32")])
    del model
    gc.collect()
    assert capfd.readouterr().err.count("Chain y") == 1
