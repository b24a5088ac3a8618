"""Whole networks in half precision, and single layers back in float32."""

import numpy as np
import pytest
from hypothesis import given, settings

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import DataType
from interposer.ir.text import print_graph
from interposer.ir.verify import verify
from interposer.ops import Constant, Input, Output
from interposer.optimizer.passes import INVERSE_CONVERSIONS, run_passes
from interposer.optimizer.precision import convert_layer_to_fp32, has_half_types, in_fp32, reduce_precision
from tests.graphs import graphs
from tests.optimizer.rewriting import assert_same_results, graph_of, lines

FP16, BF16, FP32 = DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32
CONVOLUTION = """
    graph {
      %x = Input : float32[1, 2, 2, 1]
      %w = Constant(value=float32[1, 2, 1, 1]{1, 0.3})
      %c = Convolution2d %x, %w
      %r = Activation(function=RELU) %c
      Output %r as "y"
    }
    """


def reduced(text: str, dtype: DataType = FP16) -> list[str]:
    graph = graph_of(text)
    before = graph.clone()
    assert reduce_precision(graph, dtype) == []
    assert_same_results(before, graph, rtol=0.05, atol=0.05)
    return lines(graph).splitlines()


@pytest.mark.parametrize(("dtype", "number"), [(FP16, "0.3"), (BF16, "0.300781")])
def test_a_network_computes_in_half_precision_between_its_inputs_and_outputs(dtype, number):
    half = "fp16" if dtype is FP16 else "bf16"
    assert reduced(CONVOLUTION, dtype) == [
        f"%convert_fp32_to_{half}-0-x = ConvertFp32To{half.title()} %x",
        f"%w_1 = Constant(value={dtype}[1, 2, 1, 1]{{1.0, {number}}})",
        f"%c = Convolution2d %convert_fp32_to_{half}-0-x, %w_1",
        "%r = Activation(function=RELU) %c",
        f"%convert_{half}_to_fp32-0-y = Convert{half.title()}ToFp32 %r",
        'Output %convert_{half}_to_fp32-0-y as "y"'.replace("{half}", half),
    ]


def test_types_that_operators_name_are_reduced_and_conversions_that_were_there_are_not_needed_any_more():
    result = reduced(
        """
        graph {
          %x = Input : int8[2, 3] q(0.5, 0)
          %d = Dequantize %x
          %i = Cast(dtype=int32) %d
          %f = Cast(dtype=float32) %i
          %h = ConvertFp32ToFp16 %f
          %w = ConvertFp16ToFp32 %h
          %q = Quantize(dtype=int8) %w : _ declared int8[2, 3] q(1.0, 0)
          Output %h as "y"
          Output(binding_id=1) %q as "z"
        }
        """
    )
    assert result == [
        "%d = Dequantize(dtype=float16) %x",
        "%i = Cast(dtype=int32) %d",
        '%f = Cast(dtype=float16) %i replacing "f", "h", "w"',
        "%q = Quantize(dtype=int8) %f",
        'Output %f as "y"',
        'Output(binding_id=1) %q as "z"',
    ]


def test_what_no_layer_computes_keeps_its_type():
    text = """
        graph {
          %x = Input : float32[2]
          %i = Input(binding_id=2) : int32[2]
          %c = Constant(value=float32[1]{0.1})
          Output %x as "y"
          Output(binding_id=1) %c as "z"
          %s = Addition %i, %i
          Output(binding_id=2) %s as "w"
        }
        """
    graph = graph_of(text)
    before = print_graph(graph)
    reduce_precision(graph, FP16)
    assert print_graph(graph) == before


def test_a_layer_whose_constant_would_overflow_stays_in_float32_and_is_named():
    graph = graph_of(CONVOLUTION.replace("0.3", "70000"))
    messages = reduce_precision(graph, FP16)
    assert list(map(str, messages)) == [
        "WARNING: layer 'c' (Convolution2d) stays in float32: its constant 'w' is beyond the range of float16"
    ]
    assert graph.layer("c").output.known.dtype is FP32
    assert graph.layer("r").output.known.dtype is FP16
    verify(graph)


def test_an_infinite_constant_does_not_overflow():
    graph = graph_of(
        """
        graph {
          %x = Input : float32[2]
          %c = Constant(value=float32[2]{inf, -inf})
          %m = Minimum %x, %c
          Output %m as "y"
        }
        """
    )
    assert reduce_precision(graph, FP16) == []
    assert graph.layer("m").output.known.dtype is FP16


def test_a_value_wanted_in_both_types_is_converted_once():
    graph = graph_of(
        """
        graph {
          %x = Input : float32[2]
          %f = Floor %x
          %a = Addition %f, %f
          Output %f as "y"
          Output(binding_id=1) %f as "z"
          Output(binding_id=2) %a as "w"
        }
        """
    )
    reduce_precision(graph, FP16)
    assert sorted(layer.name for layer in graph if layer.kind.startswith("Convert")) == [
        "convert_fp16_to_fp32-0-w", "convert_fp16_to_fp32-0-y", "convert_fp32_to_fp16-0-x",
    ]  # fmt: skip


def test_only_half_precision_can_be_asked_for():
    with pytest.raises(InvalidArgumentError, match="precision can be reduced to float16 or bfloat16, not to int8"):
        reduce_precision(graph_of(CONVOLUTION), DataType.INT8)


@settings(max_examples=40, deadline=None)
@given(graph=graphs())
def test_every_network_stays_sound_and_keeps_the_types_of_its_inputs_and_outputs(graph):
    border = [layer.values[0].known.dtype for layer in graph.outputs]
    before = graph.clone()
    reduce_precision(graph, FP16)
    verify(graph)
    assert [layer.values[0].known.dtype for layer in graph.outputs] == border
    inner = [layer for layer in graph if not isinstance(layer.op, Input | Output | Constant)]
    assert all(value.known.dtype is not FP32 for layer in inner for value in layer.outputs if value.uses and all(
        not isinstance(use.layer.op, Output) for use in value.uses))  # fmt: skip
    assert len(before.outputs) == len(graph.outputs)


# --- one layer --------------------------------------------------------------------------------------------------------

HALF = """
    graph {
      %x = Input : float16[1, 2, 2, 1]
      %w = Constant(value=float16[1, 2, 1, 1]{1, 0.25})
      %c = Convolution2d %x, %w
      %s = Addition %c, %c
      Output %s as "y"
      Output(binding_id=1) %c as "z"
    }
    """


def test_a_layer_in_float32_has_conversions_around_it():
    graph = graph_of(HALF)
    before = graph.clone()
    added = convert_layer_to_fp32(graph, graph.layer("c"))
    assert [layer.name for layer in added] == ["convert_fp16_to_fp32-0-c", "convert_fp32_to_fp16-0-c"]
    assert lines(graph).splitlines() == [
        "%convert_fp16_to_fp32-0-c = ConvertFp16ToFp32 %x",
        "%w_1 = Constant(value=float32[1, 2, 1, 1]{1.0, 0.25})",
        "%c = Convolution2d %convert_fp16_to_fp32-0-c, %w_1",
        "%convert_fp32_to_fp16-0-c = ConvertFp32ToFp16 %c",
        "%s = Addition %convert_fp32_to_fp16-0-c, %convert_fp32_to_fp16-0-c",
        'Output %s as "y"',
        'Output(binding_id=1) %convert_fp32_to_fp16-0-c as "z"',
    ]
    assert_same_results(before, graph, rtol=2e-3, atol=2e-3)


def test_neighbours_in_float32_hand_each_other_their_float32_tensors():
    graph = graph_of(HALF)
    before = graph.clone()
    for name in "cs":
        convert_layer_to_fp32(graph, graph.layer(name))
    run_passes(graph, INVERSE_CONVERSIONS)
    assert [value.name for value in graph.layer("s").values] == ["c", "c"]
    assert graph.layer("c").replaced == ()
    assert_same_results(before, graph, rtol=2e-3, atol=2e-3)


def test_types_that_an_operator_names_become_float32_too():
    graph = graph_of(
        """
        graph {
          %x = Input : int8[2] q(0.5, 0)
          %d = Dequantize(dtype=bfloat16) %x : bfloat16[2] declared bfloat16[2]
          Output %d as "y"
        }
        """
    )
    before = graph.clone()
    convert_layer_to_fp32(graph, graph.layer("d"))
    assert lines(graph).splitlines() == [
        "%d = Dequantize %x",
        "%convert_fp32_to_bf16-0-d = ConvertFp32ToBf16 %d",
        'Output %convert_fp32_to_bf16-0-d as "y"',
    ]
    assert_same_results(before, graph)


def test_a_backend_is_asked_about_a_copy_of_the_layer_in_float32():
    graph = graph_of(HALF)
    before = print_graph(graph)
    view = in_fp32(graph.layer("c"))
    [copy] = view
    assert copy.op == graph.layer("c").op
    assert [str(info) for info in (*copy.input_infos, *copy.output_infos)] == [
        "float32[1, 2, 2, 1]", "float32[1, 2, 1, 1]", "float32[1, 1, 2, 1]",
    ]  # fmt: skip
    assert np.array_equal(copy.values[1].constant.ravel(), np.float32([1, 0.25]))
    assert print_graph(graph) == before


@pytest.mark.parametrize(
    ("layer", "answer"),
    [
        ("%a = Floor %x", True),
        ("%a = Cast(dtype=bfloat16) %i", True),
        ("%a = Floor %f", False),
        ("%a = ConvertFp16ToFp32 %x", False),
        ("%a = Cast(dtype=int32) %f", False),
    ],
)
def test_layers_with_half_types_that_could_do_without_are_told(layer, answer):
    graph = graph_of(
        f"""
        graph {{
          %x = Input : float16[2]
          %f = Input(binding_id=1) : float32[2]
          %i = Input(binding_id=2) : int32[2]
          {layer}
          Output %a as "y"
        }}
        """
    )
    assert has_half_types(graph.layer("a")) is answer


def test_a_conversion_cannot_do_without_half_types():
    graph = graph_of('graph {\n  %x = Input : float16[2]\n  %a = ConvertFp16ToFp32 %x\n  Output %a as "y"\n}')
    for attempt in (lambda: in_fp32(graph.layer("a")), lambda: convert_layer_to_fp32(graph, graph.layer("a"))):
        with pytest.raises(InvalidArgumentError, match="layer 'a' \\(ConvertFp16ToFp32\\) cannot compute in float32"):
            attempt()
