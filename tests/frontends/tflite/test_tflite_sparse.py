"""Sparse constants of TFLite: every order and kind of dimensions, blocks, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from interposer.core.errors import ParseError
from interposer.frontends import tflite
from tests.evaluation import run_network

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which builds the files, is not installed")

from tests.frontends.tflite.one_operator import T, one_operator

DENSE, CSR = 0, 1
VECTORS = {"Int32Vector": np.int32, "Uint16Vector": np.uint16, "Uint8Vector": np.uint8}


def encoded(
    dense: Any, order: list[int], formats: list[int], blocks: dict[int, int], vector: str = "Int32Vector"
) -> tuple[Any, dict[str, Any]]:
    """Return the stored elements of an array and its SparsityParameters; `blocks` has sizes by dimension."""
    outer = [size // blocks.get(axis, 1) for axis, size in enumerate(dense.shape)]
    pairs = [n for axis, size in enumerate(outer) for n in (size, blocks.get(axis, 1))]
    inner = [2 * axis + 1 for axis in [*blocks, *(axis for axis in range(dense.ndim) if axis not in blocks)]]
    expanded = dense.reshape(pairs).transpose([*range(0, 2 * dense.ndim, 2), *inner])
    expanded = expanded.reshape([*outer, *blocks.values()])
    return _traversed(expanded.transpose(order), order, formats, list(blocks), vector)


def _traversed(
    array: Any, order: list[int], formats: list[int], block_map: list[int], vector: str
) -> tuple[Any, dict[str, Any]]:
    parts, dimensions = [array], []
    for kind in formats:
        size = parts[0].shape[0] if parts else 0
        table: dict[str, Any] = {"format": kind, "dense_size": size}
        if kind == CSR:
            kept = [[i for i in range(size) if np.any(part[i])] for part in parts]
            segments = np.cumsum([0, *map(len, kept)])
            lists = {"array_segments": segments, "array_indices": [i for one in kept for i in one]}
            table |= {name: (vector, {"values": VECTORS[vector](values)}) for name, values in lists.items()}
            parts = [part[i] for part, one in zip(parts, kept, strict=True) for i in one]
        else:
            parts = [part[i] for part in parts for i in range(size)]
        dimensions.append(table)
    return np.array(parts), {"traversal_order": order, "block_map": block_map, "dim_metadata": dimensions}


def sparse_file(dense: Any, values: Any, sparsity: dict[str, Any]) -> bytes:
    dtype = str(dense.dtype)
    constant = T(dense.shape, dtype, value=values, more={"sparsity": sparsity})
    return one_operator("DENSIFY", [constant], [T(dense.shape, dtype)])


def loaded(data: bytes) -> Any:
    [result] = run_network(tflite.load(data), {}).values()
    return result


def drawn(shape: tuple[int, ...], dtype: str, block: tuple[int, ...] = (1, 1)) -> Any:
    random = np.random.default_rng(7)
    kept = np.kron(random.random([n // b for n, b in zip(shape, block, strict=False)]) < 0.4, np.ones(block))
    return (random.integers(1, 9, shape) * kept.reshape(shape)).astype(dtype)


LAYOUTS = [
    pytest.param((6, 8), [0, 1], [DENSE, CSR], {}, id="rows"),
    pytest.param((6, 8), [1, 0], [DENSE, CSR], {}, id="columns"),
    pytest.param((6, 8), [0, 1], [CSR, CSR], {}, id="both sparse"),
    pytest.param((6, 8), [0, 1], [CSR, DENSE], {}, id="whole rows"),
    pytest.param((6, 8), [0, 1, 2], [DENSE, CSR, DENSE], {1: 4}, id="blocks of a row"),
    pytest.param((6, 8), [0, 1, 2, 3], [DENSE, CSR, DENSE, DENSE], {0: 2, 1: 4}, id="blocks"),
    pytest.param((6, 8), [0, 1, 3, 2], [DENSE, CSR, DENSE, DENSE], {0: 2, 1: 4}, id="blocks by columns"),
    pytest.param((6, 8), [1, 0, 2, 3], [CSR, CSR, DENSE, DENSE], {0: 2, 1: 4}, id="blocks in another order"),
]


@pytest.mark.parametrize(("shape", "order", "formats", "blocks"), LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_sparse_constants_become_dense(shape, order, formats, blocks, dtype):
    dense = drawn(shape, dtype, (2, 4) if blocks else (1, 1))
    np.testing.assert_array_equal(loaded(sparse_file(dense, *encoded(dense, order, formats, blocks))), dense)


@pytest.mark.parametrize("vector", VECTORS)
def test_indices_may_have_fewer_bits(vector):
    dense = drawn((6, 8), "float32")
    values = encoded(dense, [0, 1], [DENSE, CSR], {}, vector)
    np.testing.assert_array_equal(loaded(sparse_file(dense, *values)), dense)


def test_operators_read_sparse_weights_without_densify():
    dense = drawn((6, 8), "float32")
    values, sparsity = encoded(dense, [0, 1], [DENSE, CSR], {})
    weights = T(dense.shape, value=values, more={"sparsity": sparsity})
    data = one_operator("FULLY_CONNECTED", [T((1, 8)), weights, None], [T((1, 6))], ("FullyConnectedOptions", {}))
    x = np.arange(8, dtype=np.float32).reshape(1, 8)
    [result] = run_network(tflite.load(data), {"i0": x}).values()
    np.testing.assert_array_equal(result, x @ dense.T)


@pytest.mark.parametrize(("shape", "order", "formats", "blocks"), LAYOUTS)
def test_litert_reads_the_same(shape, order, formats, blocks):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    dense = drawn(shape, "float32", (2, 4) if blocks else (1, 1))
    data = sparse_file(dense, *encoded(dense, order, formats, blocks))
    kernels = interpreter.OpResolverType.BUILTIN_REF
    engine = interpreter.Interpreter(model_content=data, experimental_op_resolver_type=kernels)
    engine.allocate_tensors()
    engine.invoke()
    [output] = engine.get_output_details()
    np.testing.assert_array_equal(engine.get_tensor(output["index"]), loaded(data))


PROBLEMS = {
    ("traversal_order",): ([0, 0], "has the traversal order [0, 0] for 2 dimensions and 0 blocks"),
    ("block_map",): ([2], "has the traversal order [0, 1] for 2 dimensions and 1 blocks"),
    ("dim_metadata", 0, "dense_size"): (-1, "has a dense dimension of size -1 after 1 entries"),
    ("dim_metadata", 1, "array_segments"): (
        ("Int32Vector", {"values": np.int32([0, 9, 3])}),
        "has a sparse dimension whose segments do not fit 2 entries",
    ),
    ("dim_metadata", 1, "array_indices"): (
        ("Int32Vector", {"values": np.int32([0, 1, 7])}),
        "has an index out of range along dimension 1, which has size 3",
    ),
}


@pytest.mark.parametrize("path", PROBLEMS)
def test_dimensions_that_do_not_fit_are_refused(path):
    dense = np.float32([[1, 2, 0], [0, 0, 3]])
    values, sparsity = encoded(dense, [0, 1], [DENSE, CSR], {})
    replacement, problem = PROBLEMS[path]
    place: Any = sparsity
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = replacement
    with pytest.raises(ParseError) as caught:
        tflite.load(sparse_file(dense, values, sparsity))
    assert str(caught.value) == f"operators[0] DENSIFY: the sparse tensor 'i0' {problem}"


def test_a_wrong_number_of_stored_elements_is_refused():
    dense = np.float32([[1, 2, 0], [0, 0, 3]])
    values, sparsity = encoded(dense, [0, 1], [DENSE, CSR], {})
    with pytest.raises(ParseError) as caught:
        tflite.load(sparse_file(dense, values[:2], sparsity))
    assert str(caught.value).endswith("the sparse tensor 'i0' has 2 stored elements; expected 3")
