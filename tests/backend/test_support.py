"""Answers to what a backend can run, and those that follow from a table of kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interposer import Network, Quantization, TensorInfo
from interposer.backend import KernelInfo, KernelSupport, KernelTable, LayerSupport, SubgraphView, Support
from interposer.core.errors import InvalidArgumentError
from interposer.core.types import Array, DataType
from interposer.ir.graph import Layer
from interposer.ops import Addition, Concat, ElementwiseBinary, FullyConnected, Maximum

F32, I8 = DataType.FLOAT32, DataType.INT8


@given(st.lists(st.text()))
def test_support_is_true_exactly_where_there_are_no_reasons(reasons: list[str]) -> None:
    assert bool(Support.of(reasons)) == (not reasons)
    assert not Support.no(*reasons)


def test_a_no_without_reasons_says_so() -> None:
    assert Support.no().reasons == ("no reason was given",)
    assert Support.yes() == Support()


def test_a_bare_text_is_one_reason() -> None:
    assert Support("too wide") == Support.of("too wide") == Support.no("too wide")


def add(op: Addition, a: Array, b: Array) -> Array:
    return a + b


def addition(a: TensorInfo, b: TensorInfo | None = None) -> Layer:
    network = Network()
    x, y = network.add_input_layer(0, a), network.add_input_layer(1, b or a)
    return network.add_layer(Addition(), x, y, name="sum", outputs=[a])


def test_a_layer_support_without_an_answer_says_no_to_everything() -> None:
    assert LayerSupport().is_layer_supported(addition(TensorInfo((2,)))) == Support.no(
        "is_layer_supported is not implemented"
    )


def test_a_view_is_answered_layer_by_layer_in_its_order() -> None:
    network = Network()
    x = network.add_input_layer(0, TensorInfo((2,)))
    first = network.add_layer(Addition(), x, x)
    second = network.add_layer(Maximum(), first, x)
    network.add_output_layer(0, second)
    table = KernelTable()
    table(Addition)(add)
    view = SubgraphView(network.graph, [second, first])
    assert KernelSupport(table).query(view) == [Support.yes(), Support.no("no kernel for Maximum")]


def reasons(table: KernelTable, layer: Layer) -> tuple[str, ...]:
    return KernelSupport(table).is_layer_supported(layer).reasons


def test_a_type_that_no_kernel_takes_is_told_for_every_tensor() -> None:
    table = KernelTable()
    table(Addition, dtypes={F32})(add)
    assert reasons(table, addition(TensorInfo((2,)))) == ()
    assert reasons(table, addition(TensorInfo((2,), "float64"))) == (
        "a is float64; takes ['float32']",
        "b is float64; takes ['float32']",
        "output is float64; takes ['float32']",
    )


def test_types_can_be_given_by_the_names_of_operands_and_results() -> None:
    table = KernelTable()
    table(FullyConnected, dtypes={"input": {F32, I8}, "*": {F32}})(lambda op, input, weights, bias: input)
    network = Network()
    x = network.add_input_layer(0, TensorInfo((1, 2), I8))
    weights = network.add_constant_layer(np.zeros((2, 2), np.int8))
    layer = network.add_layer(FullyConnected(), x, weights)
    assert reasons(table, layer) == ("weights is int8; takes ['float32']", "output is int8; takes ['float32']")


def test_a_kernel_can_take_only_quantized_tensors_or_none() -> None:
    quantized, plain = TensorInfo((2,), I8, Quantization(0.5, 1)), TensorInfo((2,), I8)
    for expected, good, bad, text in (
        (True, quantized, plain, "takes only quantized tensors"),
        (False, plain, quantized, "takes only unquantized tensors"),
    ):
        table = KernelTable()
        table(Addition, quantized=expected)(add)
        assert reasons(table, addition(good)) == ()
        assert reasons(table, addition(bad)) == (text,)


def test_rules_give_their_own_reasons() -> None:
    def small(op: Addition, info: KernelInfo) -> str | None:
        return None if info.output.num_elements <= 4 else f"{info.output.num_elements} elements are more than 4"

    def flat(op: Addition, info: KernelInfo) -> str | None:
        return None if info.input.rank == 1 else "only vectors"

    table = KernelTable()
    table(Addition, when=[small, flat])(add)
    assert reasons(table, addition(TensorInfo((4,)))) == ()
    assert reasons(table, addition(TensorInfo((2, 3)))) == ("6 elements are more than 4", "only vectors")


def test_of_several_kernels_the_nearest_miss_is_told() -> None:
    table = KernelTable()
    table(Addition, dtypes={I8}, quantized=True)(add)
    table(Addition, dtypes={F32}, when=lambda op, info: "only on Sundays")(add)
    assert reasons(table, addition(TensorInfo((2,)))) == ("only on Sundays",)


def test_a_kernel_serves_the_subclasses_that_have_none_of_their_own() -> None:
    table = KernelTable()
    table(ElementwiseBinary)(lambda op, a, b: a)
    table(Maximum, when=lambda op, info: "never")(lambda op, a, b: b)
    assert Addition in table
    assert reasons(table, addition(TensorInfo((2,)))) == ()
    assert table.kernels(Addition) == table.kernels(ElementwiseBinary) != table.kernels(Maximum)


def test_a_variadic_operand_is_asked_about_item_by_item() -> None:
    table = KernelTable()
    table(Concat, dtypes={F32})(lambda op, inputs: inputs)
    network = Network()
    x = network.add_input_layer(0, TensorInfo((2, 2), "int32"))
    layer = network.add_layer(Concat(0), x, x)
    assert reasons(table, layer)[:2] == (
        "inputs[0] is int32; takes ['float32']",
        "inputs[1] is int32; takes ['float32']",
    )


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda op, a: a, "cannot be called as (op, a, b) for Addition: too many positional arguments"),
        (lambda op, a, b, c: a, "cannot be called as (op, a, b) for Addition: missing a required argument: 'c'"),
    ],
)
def test_a_kernel_that_cannot_be_called_is_refused_where_it_is_added(function: object, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        KernelTable()(Addition)(function)  # type: ignore[type-var]
    assert str(caught.value) == f"the kernel <lambda> {text}"


def test_types_for_a_name_that_is_not_there_are_refused() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        KernelTable()(FullyConnected, dtypes={"weigths": {F32}})
    assert str(caught.value) == "FullyConnected has no operand or result 'weigths'; did you mean 'weights'?"


def test_only_a_kernel_of_the_table_can_be_prepared() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        KernelTable().prepare(add)
    assert str(caught.value) == "add is no kernel of this table; add it before its prepare"
