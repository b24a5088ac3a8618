"""What the front ends share: the registry of converters, tables of elementwise operators, and errors with a path."""

from pathlib import Path

import pytest

from interposer.core.errors import InvalidArgumentError, ParseError
from interposer.core.types import DataType, TensorInfo, TensorShape
from interposer.frontends.converters import Converters
from interposer.frontends.elementwise import MAXIMUM, operators_by_name
from interposer.frontends.importer import Importer
from interposer.frontends.node import Layers
from interposer.frontends.reshaping import inferred_sizes
from interposer.frontends.sources import content_of, errors_at
from interposer.frontends.windows import Windows
from interposer.ir.network import Network
from interposer.ops.elementwise import Addition
from interposer.ops.reshape import Rank


def network_with_inputs(count: int) -> Network:
    network = Network("network")
    for number in range(count):
        network.add_input_layer(number, TensorInfo((2,), DataType.FLOAT32), f"x{number}")
    return network


def test_an_operator_has_one_converter():
    converters = Converters[str]()
    converters.register(["Abs", "Neg"], lambda convert, name: name)(len)
    with pytest.raises(InvalidArgumentError, match=r"^Neg has two functions$"):
        converters.register(["Neg"], lambda convert, name: name)(max)
    assert (converters.names(), converters.find("Abs"), converters.find("Exp")) == (["Abs", "Neg"], "Abs", None)


def test_a_table_names_elementwise_operators_as_the_format_does():
    table = operators_by_name("MAXIMUM", Max="MAXIMUM", Rank=Rank())
    assert table == {"MAXIMUM": MAXIMUM, "Max": MAXIMUM, "Rank": Rank()}


def test_a_chain_combines_values_from_left_to_right_and_the_last_layer_has_the_name_of_the_node():
    network = network_with_inputs(3)
    node = Layers(Importer(network), "sum", "node 'sum'")
    values = [layer.output for layer in network.graph.inputs]
    total = node.chain(Addition(), values)
    assert [layer.name for layer in network.graph][3:] == ["sum/Addition", "sum"]
    assert [value.name for value in total.producer.values] == ["sum/Addition", "x2"]
    assert node.chain(Addition(), values[:1]) is values[0]


def test_an_error_gets_the_path_of_the_file_unless_it_names_one():
    with pytest.raises(ParseError) as error, errors_at("outer.net"):
        raise ParseError("it is wrong")
    assert str(error.value) == "outer.net: it is wrong"
    with pytest.raises(ParseError) as error, errors_at("outer.net"):
        raise ParseError("it is wrong", path="inner.data")
    assert str(error.value) == "inner.data: it is wrong"
    with pytest.raises(ParseError) as error, errors_at(None):
        raise ParseError("it is wrong")
    assert str(error.value) == "it is wrong"


def test_the_content_of_an_empty_file_is_empty_and_that_of_none_is_an_error(tmp_path: Path):
    (tmp_path / "empty").touch()
    assert content_of(tmp_path / "empty") == b""
    with pytest.raises(ParseError) as error:
        content_of(tmp_path / "absent")
    assert str(error.value) == f"{tmp_path / 'absent'}: the file cannot be read: No such file or directory"


def test_windows_along_one_axis_become_windows_over_images_of_height_one():
    windows = Windows((3,), (2,), (1,), (1,), (0,))
    assert windows.with_height() == Windows((1, 3), (1, 2), (1, 1), (0, 1), (0, 0))
    assert windows.with_height().with_height() == windows.with_height()
    assert windows.with_height().pooling()["pool_width"] == 3


def test_the_size_that_minus_one_stands_for_is_computed_if_the_others_are_known():
    shape = TensorShape((2, 6))
    assert inferred_sizes(shape, (3, -1)) == [3, 4]
    assert inferred_sizes(shape, (-1, 0)) == [-1, 0]
    assert inferred_sizes(shape, (-(2**31), 4)) == [-(2**31), 4]
    assert inferred_sizes(TensorShape((None, 6)), (3, -1)) == [3, -1]
