"""Small ONNX models for tests, and their results by ONNX's own reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from interposer.frontends.onnx import load
from tests.evaluation import run_network


def onnx_type(name: str) -> int:
    """Return the number of a type of ONNX; skip the test if the installed package does not know the type."""
    if not hasattr(onnx.TensorProto, name):
        pytest.skip(f"onnx {onnx.__version__} has no type {name}")
    number: int = getattr(onnx.TensorProto, name)
    return number


def needs_onnx(minor: int, reason: str) -> pytest.MarkDecorator:
    """Skip a test with versions of the package onnx before 1.`minor`."""
    release = tuple(map(int, onnx.__version__.split(".")[:2]))
    return pytest.mark.skipif(release < (1, minor), reason=f"before onnx 1.{minor}, {reason}")


def info(name: str, shape: Sequence[int | str | None] | None, dtype: Any = np.float32) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, np.ndarray | Sequence[int | str | None]],
    outputs: Sequence[str] = ("y",),
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 21,
    **extra: Any,
) -> onnx.ModelProto:
    """Return a model; an input is described by an array of its type and shape, or by a shape of float32."""
    value = {name: x if isinstance(x, np.ndarray) else None for name, x in inputs.items()}
    graph = helper.make_graph(
        nodes,
        extra.pop("name", "test"),
        [
            info(name, x, np.float32) if value[name] is None else info(name, x.shape, x.dtype)
            for name, x in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(x), name) for name, x in (constants or {}).items()],
    )
    domains = [helper.make_opsetid("", opset), *extra.pop("domains", ())]
    return helper.make_model(graph, opset_imports=domains, ir_version=8, **extra)


def single(op: str, *operands: Any, opset: int = 21, outputs: int = 1, **attributes: Any) -> onnx.ModelProto:
    """A model of one node, whose first operand is an input and whose others are constants; None is absent."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(operands)]
    results = ["y", *(f"y{i}" for i in range(1, outputs))]
    node = helper.make_node(op, names, results, name="node", **attributes)
    constants = {f"x{i}": np.asarray(x) for i, x in enumerate(operands) if i and x is not None}
    return model([node], {"x0": np.asarray(operands[0])}, results, constants, opset)


def ours(given: onnx.ModelProto, *feeds: Any, **options: Any) -> list[np.ndarray]:
    """The outputs in the model's order, computed by the reference kernels."""
    names = [value.name for value in given.graph.input]
    result = run_network(load(given, **options), dict(zip(names, map(np.asarray, feeds), strict=False)))
    return [result[value.name] for value in given.graph.output]


def theirs(given: onnx.ModelProto, *feeds: Any) -> list[np.ndarray]:
    """Return the results of ONNX's reference evaluator."""
    names = [value.name for value in given.graph.input]
    return ReferenceEvaluator(given).run(None, dict(zip(names, map(np.asarray, feeds), strict=False)))


def agree(given: onnx.ModelProto, *feeds: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Ours and theirs are the same: types, shapes, and numbers up to rounding."""
    for our, expected in zip(ours(given, *feeds), theirs(given, *feeds), strict=True):
        assert (our.dtype, our.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(our.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=atol)
