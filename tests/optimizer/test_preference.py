"""Queries about layers that rewrites may create."""

import numpy as np
import pytest

from interposer.backend import Backend, BackendId, Capabilities, LayerSupport, Support
from interposer.core.types import TensorInfo
from interposer.ir.graph import Graph
from interposer.ir.inference import infer_graph
from interposer.ops import Activation, Addition, ElementwiseUnary, Softmax, UnaryOperation
from interposer.optimizer.preference import Candidate, Preference

INFO = TensorInfo((2, 3))
RELU, SOFTMAX = Candidate(Activation(), (INFO,), (INFO,)), Candidate(Softmax(), (INFO,), (INFO,))
ABS = Candidate(ElementwiseUnary(UnaryOperation.ABS), (INFO,), (INFO,))


class Asked(LayerSupport):
    """Supports some kinds of layers, raises an exception for others, and records every query."""

    def __init__(self, supported, raising=()):
        self.supported, self.raising, self.queries = supported, raising, []

    def query(self, view):
        self.queries.append([layer.kind for layer in view])
        if any(layer.kind in self.raising for layer in view):
            raise RuntimeError("a defect")
        return super().query(view)

    def is_layer_supported(self, layer):
        return Support.of([] if layer.kind in self.supported else "another kind of layer")


class Counting(Backend):
    """A backend that only answers queries."""

    id = BackendId("Counting")
    capabilities = Capabilities()

    def __init__(self, supported, raising=()):
        self.support = Asked(supported, raising)

    def layer_support(self, options):
        return self.support

    def create_workload_factory(self, memory_manager, options):
        raise NotImplementedError


def ranks(preference, *candidates):
    preference.prepare(candidates)
    return [preference.rank(*candidate) for candidate in candidates]


def test_each_backend_gets_one_query_about_the_layers_that_no_earlier_one_supports():
    first, second = Counting({"Softmax"}), Counting({"Activation"})
    assert ranks(Preference([first, second], {}), RELU, SOFTMAX, ABS, RELU) == [1, 0, 2, 1]
    assert first.support.queries == [["Activation", "Softmax", "ElementwiseUnary"]]
    assert second.support.queries == [["Activation", "ElementwiseUnary"]]


def test_an_exception_of_a_backend_refuses_only_the_layer_that_causes_it():
    backend = Counting({"Softmax", "Activation"}, raising={"ElementwiseUnary"})
    assert ranks(Preference([backend], {}), RELU, ABS, SOFTMAX) == [0, 1, 0]


@pytest.mark.parametrize("constant_first", [False, True])
def test_a_constant_and_another_tensor_of_the_same_info_are_two_questions(constant_first):
    class OnlyConstants(Asked):
        def is_layer_supported(self, layer):
            return Support.of([] if layer.values[1].is_constant else "its second operand is not constant")

    backend = Counting(())
    backend.support = OnlyConstants(())
    constant = INFO.with_constant(np.ones((2, 3), np.float32))
    preference = Preference([backend], {})
    layers = [Candidate(Addition(), (INFO, other), (INFO,)) for other in (INFO, constant)]
    answers = [preference.rank(*layer) for layer in (reversed(layers) if constant_first else layers)]
    assert answers == ([0, 1] if constant_first else [1, 0])


@pytest.mark.parametrize(("supported", "expected"), [({"Activation", "Softmax"}, True), ({"Softmax"}, False)])
def test_one_query_says_whether_the_first_backend_supports_all_layers(supported, expected):
    first, second = Counting(supported), Counting({"Activation", "Softmax"})
    graph = Graph()
    x = graph.constant(np.zeros((2, 3), "float32"))
    layers = [graph.add(op, [x]) for op in (Activation(), Softmax())]
    infer_graph(graph)
    assert Preference([first, second], {}).is_first_for(graph, layers) is expected
    assert first.support.queries == [["Activation", "Softmax"]]
    assert second.support.queries == []
