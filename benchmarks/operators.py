"""`python benchmarks/run.py operators`: operators other than convolutions, each as a network of one layer.

CpuAcc, ONNX Runtime and OpenVINO run each layer on one thread, in one process, in turns. A time is the minimum over all
turns, and the ratio is the time of the fastest other engine divided by the time of CpuAcc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from benchmarks.single_layers import run

__all__ = ["Case", "main"]

Arrays = tuple[Any, ...]
OPSET: Final = 18


@dataclass(frozen=True)
class Case:
    """One node: its operator, its operands and its attributes. Operands whose positions are `constant` are weights."""

    kind: str
    operands: Arrays
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constant: frozenset[int] = frozenset()
    outputs: int = 1

    def model(self) -> Any:
        """Return the ONNX model."""
        from onnx import ModelProto, helper, numpy_helper  # noqa: PLC0415 - it is optional

        names = [f"x{n}" for n in range(len(self.operands))]
        results = [f"y{n}" for n in range(self.outputs)]
        node = helper.make_node(self.kind, names, results, **self.attributes)
        inputs, constants = [], []
        for n, (name, array) in enumerate(zip(names, self.operands, strict=True)):
            if n in self.constant:
                constants.append(numpy_helper.from_array(array, name))
            else:
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
        outputs = [helper.make_empty_tensor_value_info(name) for name in results]
        graph = helper.make_graph([node], "layer", inputs, outputs, constants)
        model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        return _typed(model)

    def layer(self) -> tuple[Any, list[Any]]:
        """Return the model, and the arrays of a call."""
        return self.model(), [array for n, array in enumerate(self.operands) if n not in self.constant]


def _typed(model: Any) -> Any:
    from onnx import shape_inference  # noqa: PLC0415 - it is optional

    return shape_inference.infer_shapes(model, strict_mode=True)


_random = np.random.default_rng(0)


def _floats(*shape: int, low: float = -1, high: float = 1) -> Any:
    return _random.uniform(low, high, shape).astype(np.float32)


def _integers(high: int, *shape: int, dtype: type = np.int64, low: int = 0) -> Any:
    return _random.integers(low, high, shape).astype(dtype)


def _constant(*numbers: Any, dtype: type = np.int64) -> Any:
    return np.array(numbers, dtype)


def _scalar(number: Any, dtype: type = np.int64) -> Any:
    return np.array(number, dtype)


def _unary(kind: str, low: float = -3, high: float = 3) -> Case:
    return Case(kind, (_floats(128, 1024, low=low, high=high),))


def _binary(kind: str, a: Sequence[int], b: Sequence[int]) -> Case:
    return Case(kind, (_floats(*a, low=0.5, high=2), _floats(*b, low=0.5, high=2)))


def _cast(source: type, target: type) -> Case:
    from onnx import helper  # noqa: PLC0415 - it is optional

    array = _random.uniform(0, 100, (256, 1024)).astype(source)
    return Case("Cast", (array,), {"to": helper.np_dtype_to_tensor_dtype(np.dtype(target))})


def _transpose(shape: Sequence[int], order: Sequence[int], dtype: type = np.float32) -> Case:
    return Case("Transpose", (_random.uniform(0, 100, shape).astype(dtype),), {"perm": list(order)})


def _resize(shape: Sequence[int], sizes: Sequence[int], mode: str, dtype: type = np.float32) -> Case:
    array = _random.uniform(0, 255, shape).astype(dtype)
    empty = np.zeros(0, np.float32)
    attributes = {"mode": mode, "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_floor"}
    if mode == "nearest":
        attributes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return Case("Resize", (array, empty, empty, _constant(*sizes)), attributes, frozenset({1, 2, 3}))


def _top(rows: int, columns: int, k: int) -> Case:
    return Case("TopK", (_floats(rows, columns), _constant(k)), {}, frozenset({1}), outputs=2)


def _cases() -> dict[str, Case]:
    boxes = np.sort(_floats(200, 4, low=0, high=50).reshape(200, 2, 2), axis=1).reshape(200, 4)
    regions = (_floats(1, 256, 50, 50), boxes, _integers(1, 200))
    regions_attributes = {"output_height": 7, "output_width": 7, "sampling_ratio": 2}
    grid = _floats(1, 64, 64, 2)
    return {
        "einsum attention scores": Case(
            "Einsum", (_floats(1, 128, 8, 64), _floats(1, 128, 8, 64)), {"equation": "bqhd,bkhd->bhqk"}
        ),
        "einsum matrices": Case("Einsum", (_floats(8, 64, 128), _floats(8, 128, 64)), {"equation": "bij,bjk->bik"}),
        "ArgMax channels first": Case("ArgMax", (_floats(1, 21, 256, 256),), {"axis": 1, "keepdims": 0}),
        "ArgMax channels last": Case("ArgMax", (_floats(1, 256, 256, 21),), {"axis": 3, "keepdims": 0}),
        "ArgMax rows of 32000": Case("ArgMax", (_floats(8, 32000),), {"axis": 1}),
        "ArgMin 1000": Case("ArgMin", (_floats(64, 1000),), {"axis": 1}),
        "TopK 5 of 1000": _top(8, 1000, 5),
        "TopK 50 of 32000": _top(4, 32000, 50),
        "TopK 1000 of 32000": _top(1, 32000, 1000),
        "TopK all of 1000": _top(8, 1000, 1000),
        "GatherND rows": Case("GatherND", (_floats(64, 64, 64), np.stack([_integers(64, 500)] * 2, axis=-1))),
        "GatherND elements": Case("GatherND", (_floats(64, 4096), np.stack([_integers(64, 5000)] * 2, axis=-1))),
        "GatherElements": Case("GatherElements", (_floats(64, 4096), _integers(4096, 64, 512)), {"axis": 1}),
        "ScatterND rows": Case("ScatterND", (_floats(1024, 64), _integers(1024, 200, 1), _floats(200, 64))),
        "ScatterND add": Case(
            "ScatterND", (_floats(1024, 64), _integers(1024, 200, 1), _floats(200, 64)), {"reduction": "add"}
        ),
        "ScatterElements": Case(
            "ScatterElements", (_floats(64, 1024), _integers(1024, 64, 128), _floats(64, 128)), {"axis": 1}
        ),
        "GridSample bilinear": Case("GridSample", (_floats(1, 32, 64, 64), grid), {"mode": "bilinear"}),
        "GridSample nearest": Case("GridSample", (_floats(1, 32, 64, 64), grid), {"mode": "nearest"}),
        "GridSample bicubic": Case("GridSample", (_floats(1, 32, 64, 64), grid), {"mode": "bicubic"}),
        "RoiAlign": Case("RoiAlign", regions, regions_attributes),
        "RoiAlign adaptive": Case("RoiAlign", regions, regions_attributes | {"sampling_ratio": 0}),
        "CumSum rows": Case("CumSum", (_floats(128, 1024), _scalar(1)), {}, frozenset({1})),
        "CumSum columns": Case("CumSum", (_floats(128, 1024), _scalar(0)), {}, frozenset({1})),
        "CumSum int64": Case("CumSum", (_integers(9, 8, 1024), _scalar(1)), {}, frozenset({1})),
        "Trilu": Case("Trilu", (_floats(8, 256, 256), _scalar(0)), {"upper": 0}, frozenset({1})),
        "Sin": _unary("Sin"),
        "Cos": _unary("Cos"),
        "Tan": _unary("Tan", -1.5, 1.5),
        "Log": _unary("Log", 0.01, 100),
        "Exp": _unary("Exp"),
        "Erf": _unary("Erf"),
        "Sqrt": _unary("Sqrt", 0, 9),
        "Floor": _unary("Floor"),
        "Pow 2": Case("Pow", (_floats(128, 1024), _scalar(2, np.float32)), {}, frozenset({1})),
        "Add full": _binary("Add", (256, 1024), (256, 1024)),
        "Add to pixels of 3": _binary("Add", (1, 224, 224, 3), (3,)),
        "Mul rows of 3": _binary("Mul", (50176, 3), (50176, 1)),
        "Mul columns": _binary("Mul", (256, 1024), (256, 1)),
        "Div by channels": _binary("Div", (1, 64, 56, 56), (1, 64, 1, 1)),
        "Greater": _binary("Greater", (256, 1024), (256, 1024)),
        "Equal int64": Case("Equal", (_integers(5, 128, 1024), _scalar(2)), {}, frozenset({1})),
        "Where": Case("Where", (_integers(2, 256, 1024, dtype=np.bool_), _floats(256, 1024), _floats(256, 1024))),
        "Where with one number": Case(
            "Where", (_integers(2, 256, 1024, dtype=np.bool_), _floats(256, 1024), _scalar(-1e9, np.float32))
        ),
        "Cast float to int32": _cast(np.float32, np.int32),
        "Cast float to int64": _cast(np.float32, np.int64),
        "Cast float to uint8": _cast(np.float32, np.uint8),
        "Cast uint8 to float": _cast(np.uint8, np.float32),
        "Cast int64 to float": _cast(np.int64, np.float32),
        "Cast int64 to int32": _cast(np.int64, np.int32),
        "Cast float to bool": _cast(np.float32, np.bool_),
        "Transpose NCHW to NHWC": _transpose((1, 64, 112, 112), (0, 2, 3, 1)),
        "Transpose NHWC to NCHW": _transpose((1, 112, 112, 64), (0, 3, 1, 2)),
        "Transpose image to NCHW": _transpose((1, 224, 224, 3), (0, 3, 1, 2)),
        "Transpose image to NHWC": _transpose((1, 3, 224, 224), (0, 2, 3, 1)),
        "Transpose bytes to NCHW": _transpose((1, 224, 224, 3), (0, 3, 1, 2), np.uint8),
        "Transpose bytes NCHW to NHWC": _transpose((1, 64, 112, 112), (0, 2, 3, 1), np.uint8),
        "Transpose heads": _transpose((1, 128, 12, 64), (0, 2, 1, 3)),
        "Transpose matrix": _transpose((1024, 1024), (1, 0)),
        "Resize linear 2x": _resize((1, 64, 56, 56), (1, 64, 112, 112), "linear"),
        "Resize linear 8x 21 channels": _resize((1, 21, 32, 32), (1, 21, 256, 256), "linear"),
        "Resize linear image": _resize((1, 3, 480, 640), (1, 3, 224, 224), "linear"),
        "Resize nearest 2x": _resize((1, 64, 56, 56), (1, 64, 112, 112), "nearest"),
        "ReduceMax int64": Case("ReduceMax", (_integers(9, 128, 1024), _constant(1)), {}, frozenset({1})),
        "Gather rows": Case("Gather", (_floats(10000, 64), _integers(10000, 1000)), {"axis": 0}),
        "Pad reflect": Case(
            "Pad", (_floats(1, 32, 56, 56), _constant(0, 0, 3, 3, 0, 0, 3, 3)), {"mode": "reflect"}, frozenset({1})
        ),
        "OneHot": Case(
            "OneHot", (_integers(1000, 512), _constant(1000), _constant(0, 1, dtype=np.float32)), {}, frozenset({1, 2})
        ),
    }


def main(words: Sequence[str] | None = None) -> int:
    """Measure the operators whose names match a pattern."""
    return run("operators", __doc__, {name: case.layer for name, case in _cases().items()}, words)
