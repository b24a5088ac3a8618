"""The memory of engines, which they do not report, so that it is estimated."""

from __future__ import annotations

import pytest

import interposer as ip
from interposer.backends.engines.memory import largest_moment
from interposer.core.errors import LimitExceededError
from interposer.ir.subgraph import SubgraphView
from interposer.ops import Addition, Constant, Input, Output
from interposer.session.placement import Search, place
from tests.backends.engines.adapters import PLACES, engine_class, runtime_with_engines
from tests.backends.engines.test_engines import small_network


def test_tensors_count_while_something_still_reads_them():
    network = ip.Network("chain")
    value = network.add_input_layer(0, ip.TensorInfo((10,)), name="x")
    first = network.add_layer(Addition(), value, value, name="first")
    second = network.add_layer(Addition(), first, first, name="second")
    third = network.add_layer(Addition(), second, second, name="third")
    network.add_output_layer(0, network.add_layer(Addition(), third, third, name="fourth"))
    running = [layer for layer in network.graph if not isinstance(layer.op, Input | Output | Constant)]
    assert largest_moment(SubgraphView(network.graph, running)) == 2 * 10 * 4


def test_tensors_that_nobody_reads_count_only_while_they_are_made():
    network = ip.Network("unread")
    value = network.add_input_layer(0, ip.TensorInfo((10,)), name="x")
    unread = network.add_layer(Addition(), value, value, name="unread")
    first = network.add_layer(Addition(), value, value, name="first")
    network.add_output_layer(0, network.add_layer(Addition(), first, first, name="second"))
    running = [layer for layer in network.graph if not isinstance(layer.op, Input | Output | Constant)]
    assert unread in running
    assert largest_moment(SubgraphView(network.graph, running)) == 2 * 10 * 4


@pytest.mark.parametrize("name", PLACES)
def test_what_engines_hold_is_estimated_and_said_to_be_so(name, tmp_path, monkeypatch):
    reason = engine_class(name).unavailable()
    if reason is not None:
        pytest.skip(reason)
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path))
    with runtime_with_engines() as runtime:
        with ip.load(small_network(), [name], runtime=runtime) as model:
            report = model.memory()
        assert (report.unknown, report.estimated) == ((), (name,))
        assert 0 < report.parts[name] <= report.peak
        assert place(small_network(), runtime, [name], search=Search(300, most_bytes=report.peak)).chosen == name
        with pytest.raises(LimitExceededError):
            place(small_network(), runtime, [name], search=Search(300, most_bytes=report.peak - 1))
