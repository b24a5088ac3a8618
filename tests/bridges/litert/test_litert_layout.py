"""A host whose structs are not the known ones keeps its graph; the C code and the Python code know the same structs."""

from __future__ import annotations

import ctypes

import pytest

from interposer.bridges.embedding import native
from interposer.bridges.litert import abi
from interposer.bridges.litert.graph import read_graph
from interposer.bridges.litert.host import Host
from interposer.bridges.litert.parts import InterpreterGraph
from interposer.core.errors import ParseError
from tests.bridges.litert.hosting import perceptron
from tests.bridges.litert.probe import looked
from tests.frontends.tflite.build import convolution_model, encode

UNKNOWN = "the host is not one whose structs are known"


def test_the_c_code_has_the_same_layout():
    facts = (ctypes.c_size_t * 6)()
    native().interposer_bridge_litert_layout(facts)
    assert list(facts) == [
        ctypes.sizeof(abi.Tensor),
        abi.Tensor.data.offset,
        abi.Tensor.bytes.offset,
        abi.Context.replace_nodes.offset,
        abi.Node.user_data.offset,
        abi.Registration.version.offset,
    ]


def constant_of(host):
    return next(tensor for tensor in host.tensors if tensor.allocation_type == abi.CONSTANT and tensor.bytes > 4)


def damaged(change):
    """Return the error about a graph in which `change` has replaced a number of the host; it is put back."""

    def look(address):
        host = Host(address)
        struct, member, wrong = change(host)
        right = getattr(struct, member)
        setattr(struct, member, wrong)
        try:
            read_graph(Host(address))
        except ParseError as error:
            return str(error)
        finally:
            setattr(struct, member, right)
        return "no error"

    return looked(encode(convolution_model()), look)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda host: (constant_of(host), "bytes", 999), "999 bytes of data; int8 [2, 3, 3, 3] takes 54"),
        (lambda host: (constant_of(host), "type", 99999), "the type 99999"),
        (lambda host: (constant_of(host), "type", 1), "54 bytes of data; float32 [2, 3, 3, 3] takes 216"),
        (lambda host: (constant_of(host), "allocation_type", -3), "the allocation type -3"),
        (lambda host: (next(iter(host.nodes().values()))[1], "version", -1), "the operator version -1"),
        (lambda host: (next(iter(host.nodes().values()))[1], "builtin_code", 1 << 20), "the operator code 1048576"),
        (lambda host: (host.context, "tensors_size", 2), "of 2"),
        (lambda host: (host.context, "tensors_size", 0), "it has 0 tensors"),
        (lambda host: (host.context, "tensors", None), "tensors"),
    ],
)
def test_what_cannot_be_in_a_known_struct_is_refused(change, text):
    error = damaged(change)
    assert text in error
    assert error.endswith(UNKNOWN)


def test_the_outputs_of_a_graph_are_those_that_the_host_returns():
    def look(address):
        graph = InterpreterGraph(Host(address), "")
        return graph.outputs, [node.name for node in graph.nodes], graph.groups({0, 1})

    outputs, names, groups = looked(encode(convolution_model()), look)
    assert (outputs, names, groups) == (["z"], ["CONV_2D 0 (y)", "RESHAPE 1 (z)"], [[0, 1]])


def test_nodes_on_both_sides_of_one_that_is_not_taken_are_two_groups():
    def look(address):
        return InterpreterGraph(Host(address), "").groups({0, 1, 3})

    assert looked(perceptron(), look) == [[0, 1], [3]]
