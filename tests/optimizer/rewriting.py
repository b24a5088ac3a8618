"""What the tests of rewrites share: graphs from text, their evaluation with the reference kernels, random inputs."""

import textwrap

import numpy as np

from interposer.core.types import DataType, Dim, TensorInfo
from interposer.ir.graph import Graph
from interposer.ir.inference import infer_graph
from interposer.ir.text import parse_graph, print_graph
from interposer.ir.verify import verify
from interposer.kernels import evaluate
from interposer.ops import Constant, Input
from interposer.optimizer.passes import RewritePass, run_passes


def graph_of(text: str) -> Graph:
    """The graph that a text stands for, its infos inferred."""
    graph = parse_graph(textwrap.dedent(text).strip())
    infer_graph(graph)
    return graph


def lines(graph: Graph) -> str:
    """The layers between inputs and outputs and what goes out, without infos."""
    shown = []
    for line in print_graph(graph).splitlines()[1:-1]:
        head, _, tail = line.strip().partition(" : ")
        replacing = tail.partition(" replacing ")[2]
        shown.append(f"{head} replacing {replacing}" if replacing else head)
    return "\n".join(line for line in shown if " = Input" not in line)


def assert_becomes(before: str, after: str, *rewrites) -> None:
    """The rewrites turn one graph into the other, which computes the same bits, and find nothing more to do there."""
    graph = graph_of(before)
    original = graph.clone()
    run_passes(graph, [RewritePass("test", rewrites)])
    result = lines(graph)
    assert result == textwrap.dedent(after).strip(), f"it became\n{result}"
    assert_same_results(original, graph)


def assert_stays(text: str, *rewrites) -> None:
    """The rewrites find nothing to do in the graph."""
    graph = graph_of(text)
    before = print_graph(graph)
    run_passes(graph, [RewritePass("test", rewrites)])
    assert print_graph(graph) == before


def feeds_for(graph: Graph, seed: int = 0) -> dict[int, np.ndarray]:
    """Return random inputs by binding id."""
    rng = np.random.default_rng(seed)
    return {layer.op.binding_id: random_array(rng, layer.output.known) for layer in graph.inputs}


def random_array(rng: np.random.Generator, info: TensorInfo) -> np.ndarray:
    if info.dtype.is_float:
        return rng.normal(scale=3, size=info.shape).astype(info.dtype.numpy)
    if info.dtype is DataType.BOOL:
        return rng.integers(0, 2, size=info.shape).astype(bool)
    low, high = (-100, 101) if np.iinfo(info.dtype.numpy).min else (0, 201)
    return rng.integers(low, high, size=info.shape).astype(info.dtype.numpy)


def concrete(graph: Graph, extent: int = 3) -> Graph:
    """A copy of the graph whose inputs have this dimension where theirs is unknown."""
    copy = graph.clone()
    for layer in copy.inputs:
        shape = [extent if isinstance(dim, Dim) else dim for dim in layer.output.known.shape]
        layer.output.declared = layer.output.known.with_shape(shape)
    infer_graph(copy)
    return copy


def evaluate_graph(graph: Graph, feeds: dict[int, np.ndarray]) -> list[np.ndarray]:
    """What the graph computes, output by output, with the reference kernels."""
    known = {}
    for layer in graph.topological():
        if isinstance(layer.op, Input):
            known[layer.output] = feeds[layer.op.binding_id]
        elif isinstance(layer.op, Constant):
            known[layer.output] = layer.op.value
        elif layer.op.executable:
            arrays = [None if value is None else known[value] for value in layer.inputs]
            results = evaluate(layer.op, arrays, layer.input_infos, layer.output_infos)
            known.update(zip(layer.outputs, results, strict=True))
    return [known[layer.values[0]] for layer in graph.outputs]


def assert_same_results(
    before: Graph, after: Graph, rtol: float = 0, atol: float = 0, feeds: dict[int, np.ndarray] | None = None
) -> None:
    """Both graphs give the same outputs on the same inputs, random ones if there are no `feeds`.

    They give the same bits, unless a tolerance is given; `atol` is a part of the largest element.
    """
    verify(after)
    before, after = concrete(before), concrete(after)
    assert [layer.name for layer in before.outputs] == [layer.name for layer in after.outputs]
    feeds = feeds_for(before) if feeds is None else feeds
    pairs = zip(evaluate_graph(before, feeds), evaluate_graph(after, feeds), strict=True)
    for expected, result in pairs:
        assert (expected.dtype, expected.shape) == (result.dtype, result.shape)
        if rtol or atol:
            result, expected = result.astype(np.float64), expected.astype(np.float64)
            largest = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0)))
            np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol * largest)
        else:
            assert result.tobytes() == expected.tobytes()
