"""Operators of users: registered for all models, or given for one load."""

import threading

import numpy as np
import pytest
from onnx import helper

import interposer as ip
from interposer import ops
from interposer.core.errors import InvalidArgumentError, ParseError, UnsupportedOperatorError
from interposer.frontends.onnx import load, operator, template
from tests.evaluation import run_network
from tests.frontends.onnx.models import model

X = np.float32([-1, 0, 2])


def custom(name, domain, version=1, **attributes):
    node = helper.make_node(name, ["x"], ["y"], "own", domain=domain, **attributes)
    return model([node], {"x": X}, domains=[helper.make_opsetid(domain, version)])


def ran(network):
    return run_network(network, {"x": X})["y"]


def sigmoid(node):
    return node.result(ops.Activation(ops.ActivationFunction.SIGMOID), node.value(0))


def swish(node):
    gate = node.step(ops.Activation(ops.ActivationFunction.SIGMOID), node.value(0))
    return node.result(ops.ElementwiseBinary(ops.BinaryOperation.MUL), node.value(0), gate)


def test_a_registered_operator_is_known_to_all_loads():
    operator("Swish", domain="com.swish")(swish)
    network = load(custom("Swish", "com.swish"))
    np.testing.assert_allclose(ran(network), X / (1 + np.exp(-X)), rtol=1e-6)
    assert [layer.name for layer in network.graph if layer.op.executable] == ["own/Activation", "own"]


def test_the_function_for_the_imported_version_is_taken():
    @operator("Scaled", domain="com.scaled", since=1)
    def once(node):
        return node.value(0)

    @operator("Scaled", domain="com.scaled", since=3)
    def by_attribute(node):
        factor = node.scalar_like(node.number("factor", 2.0), node.value(0))
        return node.result(ops.ElementwiseBinary(ops.BinaryOperation.MUL), node.value(0), factor)

    np.testing.assert_array_equal(ran(load(custom("Scaled", "com.scaled", 2))), X)
    np.testing.assert_array_equal(ran(load(custom("Scaled", "com.scaled", 4))), X * 2)
    np.testing.assert_array_equal(ran(load(custom("Scaled", "com.scaled", 4, factor=3.0))), X * 3)


def test_two_functions_for_one_version_are_refused_unless_it_is_the_same_one_again():
    operator("Twice", domain="com.twice")(swish)
    operator("Twice", domain="com.twice")(swish)
    with pytest.raises(InvalidArgumentError, match="com.twice.Twice has two functions since opset 1"):
        operator("Twice", domain="com.twice")(sigmoid)


def test_what_is_known_already_is_only_converted_otherwise_in_one_load():
    with pytest.raises(InvalidArgumentError) as caught:
        operator("Relu")(sigmoid)
    assert str(caught.value) == ("Relu is known already; to convert it otherwise give load(..., operators={...})")
    relu = model([helper.make_node("Relu", ["x"], ["y"])], {"x": X})
    np.testing.assert_allclose(ran(load(relu, operators={"Relu": sigmoid})), 1 / (1 + np.exp(-X)), rtol=1e-6)
    np.testing.assert_array_equal(ran(load(relu)), np.maximum(X, 0))


def test_operators_for_one_load_are_named_with_their_domain():
    value = custom("Swish", "com.once")
    np.testing.assert_allclose(ran(load(value, operators={"com.once.Swish": sigmoid})), 1 / (1 + np.exp(-X)), rtol=1e-6)
    with pytest.raises(UnsupportedOperatorError) as caught:
        load(value)
    assert caught.value.notes == {
        "com.once.Swish": "opset 1; node 'own': map it with interposer.frontends.onnx.operator"
    }


@pytest.mark.needs_cpuref
def test_a_template_with_operators_becomes_a_model():
    running = ip.load(template(custom("Swish", "com.once"), operators={"com.once.Swish": swish}), ["CpuRef"])
    np.testing.assert_allclose(running(X), X / (1 + np.exp(-X)), rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda node: node.missing, "its function failed (AttributeError: 'Node' object has no attribute 'missing')"),
        (lambda node: 7, "its function returned 7; expected a Value, or a sequence of such"),
        (lambda node: node.number("factor"), "it needs the attribute 'factor'"),
    ],
)
def test_a_function_that_fails_is_told_with_its_node(function, text):
    with pytest.raises(ParseError) as caught:
        load(custom("Bad", "com.bad"), operators={"com.bad.Bad": function})
    assert str(caught.value) == f"node 'own' (Bad): {text}"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: operator(5), "an operator's name must be a text, not 5"),
        (lambda: operator("A", since="1"), "since must be the number of an opset, not '1'"),
        (lambda: operator("A", domain="com.none")(5), "an operator's function must be callable, not 5"),
        (
            lambda: load(b"", operators=[]),
            "operators must be a mapping from an operator's name to its function, not []",
        ),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(call, text):
    with pytest.raises(InvalidArgumentError) as caught:
        call()
    assert str(caught.value) == text


def test_operators_may_be_registered_from_several_threads():
    def make(number):
        def convert(node):
            return node.value(0)

        convert.__qualname__ = f"convert{number}"
        return convert

    def register(start):
        for number in range(start, 200, 4):
            operator("Many", domain="com.many", since=number + 1)(make(number))

    threads = [threading.Thread(target=register, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with pytest.raises(InvalidArgumentError, match="two functions since opset 77"):
        operator("Many", domain="com.many", since=77)(make(1000))
