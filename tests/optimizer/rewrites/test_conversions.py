"""Conversions between types that undo each other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.core.types import Quantization, TensorInfo
from interposer.ir.network import Network
from interposer.ops import Dequantize, Quantize
from interposer.optimizer.passes import INVERSE_CONVERSIONS, RewritePass, run_passes
from interposer.optimizer.rewrites.conversions import INVERSES
from interposer.rewriting.pattern import INSERTED
from tests.optimizer.rewriting import assert_becomes, assert_stays, evaluate_graph, graph_of, lines


@pytest.mark.parametrize(("half", "title"), [("float16", "Fp16"), ("bfloat16", "Bf16")])
def test_a_half_precision_number_survives_being_made_wider(half, title):
    assert_becomes(
        f"""
        graph {{
          %x = Input : {half}[2]
          %a = Convert{title}ToFp32 %x
          %b = ConvertFp32To{title} %a
          Output %b as "y"
        }}
        """,
        """
        Output %x as "y"
        """,
        *INVERSES,
    )


TO_HALF_AND_BACK = """
        graph {{
          %x = Input : float32[2]
          %a = ConvertFp32ToFp16 %x : float16[2] {source}
          %b = ConvertFp16ToFp32 %a : float32[2] {source}
          Output %b as "y"
        }}
        """


def test_digits_that_a_conversion_takes_away_on_purpose_stay_away():
    [inverse_pass] = INVERSE_CONVERSIONS
    assert_stays(TO_HALF_AND_BACK.format(source=""), *inverse_pass.rewrites)


def test_conversions_that_the_optimizer_inserted_are_dropped_in_pairs():
    graph = graph_of(TO_HALF_AND_BACK.format(source=f'from "{INSERTED}"'))
    run_passes(graph, INVERSE_CONVERSIONS)
    assert lines(graph) == 'Output %x as "y"'


@pytest.mark.parametrize("half", ["Fp16", "Bf16"])
@pytest.mark.parametrize(
    "reader",
    [
        "Quantize(dtype=int8) %b : _ declared int8[2] q(0.1, 0)",
        "ArgMinMax(function=MAX, axis=0) %b",
        "Cast(dtype=int32) %b",
        "Cast(dtype=float32) %b",
        "Comparison(operation=GREATER) %b, %x",
        "ElementwiseUnary(operation=FLOOR) %b",
        "ElementwiseBinary(operation=MOD) %b, %x",
        "Activation(function=THRESHOLDED_RELU, a=1.0) %b",
        "FakeQuantization %b",
        "Hardmax(axis=0) %b",
    ],
    ids=lambda text: text.partition(" ")[0],
)
def test_inserted_conversions_stay_before_a_layer_that_shows_the_rounding(half, reader):
    [inverse_pass] = INVERSE_CONVERSIONS
    assert_stays(
        f"""
        graph {{
          %x = Input : float32[2]
          %a = ConvertFp32To{half} %x from "{INSERTED}"
          %b = Convert{half}ToFp32 %a from "{INSERTED}"
          %c = {reader}
          Output %c as "y"
        }}
        """,
        *inverse_pass.rewrites,
    )


def test_inserted_conversions_are_dropped_between_layers_whose_results_are_rounded():
    source = f'from "{INSERTED}"'
    graph = graph_of(
        f"""
        graph {{
          %x = Input : float32[2]
          %a = ConvertFp32ToFp16 %x {source}
          %b = ConvertFp16ToFp32 %a {source}
          %c = ElementwiseUnary(operation=EXP) %b
          %d = ConvertFp32ToFp16 %c {source}
          Output %d as "y"
        }}
        """
    )
    run_passes(graph, INVERSE_CONVERSIONS)
    assert "Convert" not in lines(graph).partition("%d")[0]


@pytest.mark.parametrize("kind", ["uint8[2, 50] q(0.1, 7)", "int8[2, 50] q([0.1, 3e-7], [0, 4], axis=0)"])
def test_codes_survive_being_dequantized(kind):
    assert_becomes(
        f"""
        graph {{
          %x = Input : {kind}
          %a = Dequantize %x
          %b = Quantize(dtype={kind.partition("[")[0]}) %a : _ declared {kind}
          Output %b as "y"
        }}
        """,
        """
        Output %x as "y"
        """,
        *INVERSES,
    )


@pytest.mark.parametrize(
    ("kind", "real", "codes"),
    [
        ("uint8[2] q(0.1, 7)", "float32", "uint8[2] q(0.1, 8)"),
        ("int32[2] q(0.1, 0)", "float32", "int32[2] q(0.1, 0)"),
        ("int16[2] q(0.1, 0)", "float16", "int16[2] q(0.1, 0)"),
    ],
    ids=["another quantization", "codes with more digits than float32", "codes with more digits than float16"],
)
def test_codes_that_may_change_are_quantized_anew(kind, real, codes):
    assert_stays(
        f"""
        graph {{
          %x = Input : {kind}
          %a = Dequantize(dtype={real}) %x
          %b = Quantize(dtype={kind.partition("[")[0]}) %a : _ declared {codes}
          Output %b as "y"
        }}
        """,
        *INVERSES,
    )


@settings(max_examples=50, deadline=None)
@given(
    scale=st.floats(min_value=1e-29, max_value=1e29),
    zero_point=st.integers(0, 65535),
    codes=st.lists(st.integers(0, 65535), min_size=1, max_size=50),
)
def test_codes_of_16_bits_survive_every_scale(scale, zero_point, codes):
    info = TensorInfo((len(codes),), "uint16", Quantization(scale, zero_point))
    network = Network()
    x = network.add_input_layer(0, info)
    real = network.add_layer(Dequantize(), x)
    network.add_output_layer(0, network.add_layer(Quantize(info.dtype), real, outputs=info))
    array = np.array(codes, np.uint16)
    before = evaluate_graph(network.graph, {0: array})
    run_passes(network.graph, [RewritePass("test", INVERSES)])
    assert len(network.graph) == 2
    np.testing.assert_array_equal(before, evaluate_graph(network.graph, {0: array}))
