"""Layers on constants become constants, unless these would be too large."""

import numpy as np
import pytest

from interposer.core.schema import Op, op, operand, result
from interposer.core.types import Quantization, TensorInfo
from interposer.ir.network import Network
from interposer.optimizer.passes import RewritePass, run_passes
from interposer.optimizer.rewrites.constants import fold_constants
from tests.optimizer.rewriting import assert_becomes, assert_stays


def test_what_is_computed_from_constants_alone_is_a_constant_of_the_same_name():
    assert_becomes(
        """
        graph {
          %a = Constant(value=float32[2, 2]{1, 2, 3, 4})
          %b = Constant(value=float32[2]{10, 20})
          %t = Transpose(permutation=(1, 0)) %a
          %s = Addition %t, %b
          Output %s as "y"
        }
        """,
        """
        %s = Constant(value=float32[2, 2]{11.0, 23.0, 12.0, 24.0}) replacing "t", "s"
        Output %s as "y"
        """,
        fold_constants,
    )


def test_quantized_weights_that_are_dequantized_become_real_ones():
    assert_becomes(
        """
        graph {
          %w = Constant(value=int8[2, 2]{1, 2, 3, 4}, quantization=q([0.5, 0.25], [0, 1], axis=0))
          %d = Dequantize %w
          %x = Input : float32[2, 2]
          %m = Multiplication %x, %d
          Output %m as "y"
        }
        """,
        """
        %d = Constant(value=float32[2, 2]{0.5, 1.0, 0.5, 0.75}) replacing "d"
        %m = Multiplication %x, %d
        Output %m as "y"
        """,
        fold_constants,
    )


def test_every_piece_of_a_constant_is_a_constant():
    assert_becomes(
        """
        graph {
          %a = Constant(value=uint8[4]{1, 2, 3, 4}, quantization=q(0.5, 1))
          %s:0, %s:1 = Splitter(axis=0, sizes=(1, 3)) %a
          Output %s:1 as "y"
          Output(binding_id=1) %s:0 as "z"
        }
        """,
        """
        %s = Constant(value=uint8[1]{1}, quantization=q(0.5, 1)) replacing "s"
        Output(binding_id=1) %s as "z"
        %s_1 = Constant(value=uint8[3]{2, 3, 4}, quantization=q(0.5, 1)) replacing "s"
        Output %s_1 as "y"
        """,
        fold_constants,
    )


def test_what_follows_from_a_shape_is_a_constant_though_the_tensor_is_not():
    assert_becomes(
        """
        graph {
          %x = Input : float32[5, 7]
          %s = Shape %x
          %one = Constant(value=int32[]{1})
          %g = Gather %s, %one
          Output %g as "y"
        }
        """,
        """
        %g = Constant(value=int32[]{7}) replacing "s", "g"
        Output %g as "y"
        """,
        fold_constants,
    )


@pytest.mark.parametrize(
    "layer", ["Fill %dims", "Tile(multiples=(300000,)) %dims", "BroadcastTo(shape=(200000, 2)) %dims"]
)
def test_a_small_constant_does_not_grow_into_a_large_one(layer):
    assert_stays(
        f"""
        graph {{
          %dims = Constant(value=int32[2]{{1000, 1000}})
          %f = {layer}
          Output %f as "y"
        }}
        """,
        fold_constants,
    )


def test_a_layer_that_leaves_a_trace_is_not_folded():
    assert_stays(
        """
        graph {
          %a = Constant(value=int32[2]{1, 2})
          %d = Debug(watched="a") %a
          Output %d as "y"
        }
        """,
        fold_constants,
    )


@op(register=False)
class Mystery(Op):
    """An operator of a plug-in, which has no reference kernel."""

    input = operand()
    output = result(like="input")


def test_a_layer_without_a_reference_kernel_is_left_to_its_backend():
    network = Network()
    value = network.add_constant_layer(np.zeros(2, np.float32))
    network.add_output_layer(0, network.add_layer(Mystery(), value, name="mystery"))
    [record] = run_passes(network.graph, [RewritePass("test", (fold_constants,))])
    assert not record.changed


def test_many_weights_of_few_bits_stay_stored():
    network = Network("net")
    codes = np.zeros((3, 1 << 22), np.int8)
    weights = network.add_dequantize_layer(network.add_constant_layer(codes, Quantization(0.5)))
    network.add_output_layer(0, network.add_addition_layer(weights, network.add_input_layer(0, TensorInfo((1,)))))
    run_passes(network.graph, [RewritePass("test", (fold_constants,))])
    assert "Dequantize" in [layer.kind for layer in network.graph.topological()]
