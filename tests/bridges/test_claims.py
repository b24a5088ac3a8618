"""Which nodes of a host's graph are taken, and in which groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import interposer as ip
from examples.compute_backend import TinyBackend
from interposer.bridges.claims import Claims, HostNode, claims, convex_groups, label
from interposer.bridges.options import bridge_options
from interposer.bridges.reporting import Report
from interposer.core.types import DataType, TensorInfo
from interposer.errors import InvalidArgumentError
from interposer.frontends.template import Template
from interposer.ops import ActivationFunction

WIDTH = 16


def node(name: str, inputs: str, outputs: str, kind: str = "Add", obstacle: str = "") -> HostNode:
    return HostNode(name, kind, tuple(inputs.split()), tuple(outputs.split()), obstacle)


def test_a_chain_without_refused_nodes_is_one_group():
    nodes = [node("a", "x", "1"), node("b", "1", "2"), node("c", "2", "y")]
    assert convex_groups(nodes, {0, 1, 2}) == [[0, 1, 2]]


def test_a_refused_node_on_the_only_path_divides_a_group():
    nodes = [node("a", "x", "1"), node("b", "1", "2"), node("c", "2", "y")]
    assert convex_groups(nodes, {0, 2}) == [[0], [2]]


def test_a_refused_node_beside_a_path_divides_where_the_paths_meet():
    nodes = [node("a", "x", "1"), node("b", "1", "2"), node("c", "1", "3"), node("d", "2 3", "y")]
    assert convex_groups(nodes, {0, 2, 3}) == [[0, 2], [3]]


def test_the_order_of_the_nodes_does_not_matter():
    nodes = [node("c", "2", "y"), node("b", "1", "2"), node("a", "x", "1")]
    assert convex_groups(nodes, {0, 2}) == [[2], [0]]


def test_a_chain_of_thousands_of_nodes_needs_no_deep_recursion():
    nodes = [node(str(n), str(n), str(n + 1)) for n in reversed(range(5000))]
    assert convex_groups(nodes, {*range(5000)}) == [[*range(5000)]]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[HostNode], set[int]]:
    count = draw(st.integers(1, 12))
    nodes = []
    for n in range(count):
        earlier = draw(st.lists(st.integers(0, n - 1), max_size=3)) if n else []
        nodes.append(HostNode(str(n), "Op", tuple(f"v{k}" for k in earlier), (f"v{n}",)))
    return nodes, draw(st.sets(st.integers(0, count - 1)))


@given(graphs())
def test_no_path_leaves_a_group_and_comes_back(case):
    nodes, taken = case
    groups = convex_groups(nodes, taken)
    assert sorted(n for group in groups for n in group) == sorted(taken)
    for group in groups:
        outside: set[str] = set()
        for n, each in enumerate(nodes):
            reads_outside = any(name in outside for name in each.inputs)
            reads_group = any(f"v{k}" in each.inputs for k in group)
            if n in group:
                assert not reads_outside
            elif reads_outside or reads_group:
                outside.update(each.outputs)


# --- claims on a real backend -----------------------------------------------------------------------------------------


@dataclass
class Host:
    """A host's graph of float32 matrices, whose nodes are Add, Relu, MatMul with a constant, and Secret."""

    nodes: Sequence[HostNode]
    outputs: Sequence[str]
    name: str = "net"
    asked: list[tuple[int, ...]] = field(default_factory=list)
    rows: int | None = 4

    def template(self, members: Sequence[int]) -> Template:
        self.asked.append(tuple(members))
        made = {name for n in members for name in self.nodes[n].outputs}
        read = {name for n in members for name in self.nodes[n].inputs} - made
        others = {name for n, each in enumerate(self.nodes) if n not in members for name in each.inputs}
        info = TensorInfo((self.rows, WIDTH), DataType.FLOAT32)
        outputs = sorted(made & (others | {*self.outputs}))
        return Template(
            self.name, dict.fromkeys(sorted(read), info), dict.fromkeys(outputs, info),
            lambda shapes, values: self._network(members, sorted(read), outputs, shapes),
        )  # fmt: skip

    def _network(self, members, inputs, outputs, shapes):
        network = ip.Network(self.name)
        values = {}
        for number, name in enumerate(inputs):
            info = TensorInfo(shapes.get(name, (self.rows, WIDTH)), DataType.FLOAT32)
            values[name] = network.add_input_layer(number, info, name=name).output
        for n in members:
            each = self.nodes[n]
            operands = [values[name] for name in each.inputs]
            values[each.outputs[0]] = self._layer(network, each, operands, label(n)).output
        for number, name in enumerate(outputs):
            network.add_output_layer(number, values[name], name=name)
        return network

    def _layer(self, network, each, operands, name):
        if each.kind == "MatMul":
            weights = network.add_constant_layer(np.eye(WIDTH, dtype=np.float32), name=f"{name}.weights")
            return network.add_batch_mat_mul_layer(*operands, weights, name=name)
        if each.kind == "Relu":
            return network.add_activation_layer(*operands, function=ActivationFunction.RELU, name=name)
        return network.add_addition_layer(*operands, name=name)


def claimed(host: Host, **options: str) -> Claims:
    return claims(host, bridge_options({"backends": "CpuRef", **options}))


def close(result: Claims) -> None:
    for group in result.groups:
        group.model.close()


@pytest.mark.needs_cpuref
def test_a_network_that_is_taken_as_a_whole_is_compiled_once():
    host = Host([node("a", "x", "1", "MatMul"), node("b", "1", "y", "Relu")], ["y"])
    result = claimed(host)
    [group] = result.groups
    assert (group.members, host.asked, result.reasons) == ((0, 1), [(0, 1)], {})
    np.testing.assert_array_equal(group.model(x=-np.ones((4, WIDTH), np.float32)), np.zeros((4, WIDTH)))
    close(result)


@pytest.mark.needs_cpuref
def test_a_node_with_an_obstacle_divides_the_network_and_light_groups_are_left_to_the_host():
    nodes = [
        node("first", "x", "1", "MatMul"),
        node("secret", "1", "2", "Secret", "the operator is not known"),
        node("last", "2", "y", "Relu"),
    ]
    result = claimed(Host(nodes, ["y"]))
    assert [group.members for group in result.groups] == [(0,)]
    assert result.reasons == {
        1: ("the operator is not known",),
        2: ("its group of 1 node has no layer with much arithmetic; min-nodes=1 takes it",),
    }
    close(result)


@pytest.mark.needs_cpuref
def test_min_nodes_decides_alone_which_groups_are_large_enough():
    nodes = [
        node("first", "x", "1", "MatMul"),
        node("secret", "1", "2", "Secret", "the operator is not known"),
        node("third", "2", "3", "Relu"),
        node("last", "3 2", "y", "Add"),
    ]
    result = claimed(Host(nodes, ["y"]), min_nodes="2")
    assert [group.members for group in result.groups] == [(2, 3)]
    assert result.reasons[0] == ("its group has 1 node, fewer than min-nodes=2",)
    close(result)


@pytest.mark.needs_cpuref
def test_strict_raises_an_error_with_all_nodes_that_are_not_taken():
    nodes = [node("first", "x", "1", "Relu"), node("secret", "1", "y", "Secret", "the operator is not known")]
    with pytest.raises(InvalidArgumentError) as caught:
        claimed(Host(nodes, ["y"]), strict="yes", min_nodes="1")
    assert str(caught.value) == (
        "the option 'strict' is set, and 1 of 2 nodes are not taken:\n  - 'secret' (Secret): the operator is not known"
    )


@pytest.mark.needs_cpuref
def test_open_dimensions_are_asked_with_a_sample_and_any_size_runs():
    host = Host([node("a", "x", "1", "MatMul"), node("b", "1", "y", "Relu")], ["y"], rows=None)
    result = claimed(host)
    [group] = result.groups
    assert group.is_dynamic
    for rows in (1, 3, 7):
        assert group.model(x=np.ones((rows, WIDTH), np.float32)).shape == (rows, WIDTH)
    close(result)


class Broken(Host):
    """A host one of whose nodes cannot be converted, because of an error that nobody expects."""

    def _layer(self, network, each, operands, name):
        if each.kind == "Relu":
            raise TypeError("no numbers")
        return super()._layer(network, each, operands, name)


@pytest.mark.needs_cpuref
def test_an_unexpected_error_leaves_the_nodes_to_the_host_with_one_warning(caplog):
    for _ in range(2):
        result = claimed(Broken([node("a", "x", "1", "MatMul"), node("b", "1", "y", "Relu")], ["y"]))
        assert result.groups == ()
        assert {*result.reasons.values()} == {("Interposer failed with TypeError: no numbers",)}
    assert caplog.messages == ["2 nodes are left to the host: Interposer failed with TypeError: no numbers"]


@pytest.fixture
def tiny() -> Iterator[None]:
    ip.process_registry().register("Tiny", TinyBackend)
    yield
    ip.process_registry().deregister("Tiny")


@pytest.mark.needs_cpuref
@pytest.mark.usefixtures("tiny")
def test_a_plan_says_which_backend_runs_which_node(tmp_path, caplog):
    layers = {"conv*": "Tiny", "b": "Tiny", "type:Addition": "Tiny", "d2": "CpuRef"}
    ip.Plan("net", ["CpuRef", "Tiny"], layers).save(tmp_path / "plan.json")
    nodes = [
        node("a", "x", "1", "MatMul"),
        node("b", "1", "2", "Relu"),
        node("c", "1 2", "3"),
        HostNode("Add 3 (y)", "Add", ("3", "2"), ("y",), layer="d2"),
    ]
    result = claims(Host(nodes, ["y"]), bridge_options({"plan": str(tmp_path / "plan.json")}))
    backends = [each.backends for each in Report.of("a host", result).nodes]
    assert backends == [("CpuRef",), ("Tiny",), ("Tiny",), ("CpuRef",)]
    assert caplog.messages == ["the plan for 'net': 'conv*' of the plan fits no layer of this network"]
    close(result)


@pytest.mark.needs_cpuref
def test_what_a_plan_excludes_is_left_to_the_host(tmp_path):
    ip.Plan("net", ["CpuRef"], {}, {"Activation": ["CpuRef"]}).save(tmp_path / "plan.json")
    host = Host([node("a", "x", "1", "MatMul"), node("b", "1", "y", "Relu")], ["y"])
    result = claims(host, bridge_options({"plan": str(tmp_path / "plan.json")}))
    assert ([group.members for group in result.groups], [*result.reasons]) == ([(0,)], [1])
    close(result)


@pytest.mark.needs_cpuref
def test_a_report_says_what_runs_where_and_why():
    nodes = [
        node("first", "x", "1", "MatMul"),
        node("secret", "1", "y", "Secret", "the operator is not known"),
    ]
    result = claimed(Host(nodes, ["y"]))
    report = Report.of("a host 1.0", result)
    head, backends, part, *rows = report.explain().splitlines()
    assert head == "network 'net' in a host 1.0: 1 of 2 nodes taken, in 1 part"
    assert backends.startswith("  backends: CpuRef; asked and compiled in ")
    assert part.startswith("  part 1: 1 node on CpuRef, compiled in ")
    assert rows == [
        "",
        "node    operator  runs in         reason",
        "first   MatMul    part 1, CpuRef",
        "secret  Secret    the host        the operator is not known",
    ]
    assert ([n.name for n in report.taken], [n.name for n in report.refused]) == (["first"], ["secret"])
    assert report.to_dict()["nodes"][1]["part"] is None
    close(result)
