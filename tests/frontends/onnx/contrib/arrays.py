"""Cases of operators that select, move, compare or mix elements."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.frontends.onnx.contrib.case import Case, fed, fixed, forms, integers, normal, whole


def movements() -> Iterator[Case]:
    for axis in (0, 1, -1, 2, -3, 5):
        yield from forms(Case("ExpandDims", f"{axis}", [fed(normal((2, 3))), fixed(axis, "i4")]))
    for dtype in (np.float32, np.int64, np.uint8, bool):
        x = integers((2, 3), np.int64, 0, 0, 1).astype(dtype)
        yield Case("ExpandDims", f"{np.dtype(dtype)}", [fed(x), fixed(1, "i4")])
    for shape, dim, size, step in (
        ((7,), 0, 3, 2),
        ((2, 8), -1, 4, 1),
        ((2, 6, 3), 1, 2, 3),
        ((5, 2), 0, 5, 1),
        ((4,), 0, 5, 1),
    ):
        attributes = {"dim": dim, "size": size, "step": step}
        yield from forms(
            Case("UnfoldTensor", f"{list(shape)} {dim} {size} {step}", [fed(normal(shape))], attributes=attributes)
        )
    for upper in (0, 1):
        for k in (-1, 0, 2):
            operands = [fed(normal((2, 4, 3))), fixed(k)]
            yield from forms(Case("Trilu", f"{upper} {k}", operands, attributes={"upper": upper}))
    yield Case("Trilu", "default", [fed(normal((4, 3)))])


def sequences() -> Iterator[Case]:
    for pads in ([0, 1, 2, 0], [1, 1, 1, 1], [0, -1, 0, 2]):
        for mode in ("constant", "reflect", "edge"):
            operands = [fed(normal((3, 4))), fixed(pads), fixed(1.5, "f4")]
            yield from forms(
                Case("Pad", f"{pads} {mode}", operands[: 3 if mode == "constant" else 2], attributes={"mode": mode})
            )
    yield Case("Pad", "pads of rank 2", [fed(normal((3, 4))), fixed([[0, 1, 2, 0]])])
    for dtype, numbers in (
        (np.int32, (1, 9, 2)),
        (np.int64, (9, 0, -3)),
        (np.float32, (0, 1, 0.25)),
        (np.int16, (3, 3, 1)),
    ):
        operands = [fixed(number, dtype) for number in numbers]
        yield from forms(Case("Range", f"{np.dtype(dtype)}", operands))
        yield Case("Range", f"{np.dtype(dtype)} vectors", [fixed([number], dtype) for number in numbers])
        yield Case("Range", f"{np.dtype(dtype)} default", operands[:2])


def choices() -> Iterator[Case]:
    data = fed(normal((2, 3, 4)))
    for places in ([[0, 1], [1, 2]], [[1]], [[[0, 1, 3]], [[1, 0, 2]]]):
        for dtype in (np.int32, np.int64):
            yield Case("GatherND", f"{places} {np.dtype(dtype)}", [data, fed(places, dtype)])
    for x in ([2, 1, 1, 3, 4, 3], [5], [], [0.5, 0.5, -1]):
        yield from forms(Case("Unique", f"{x}", [fed(x, "f4")], ["f4", "i8", "i8"]))
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            operands = [fed(normal((1, 2, 4, 5))), fed(normal((1, 3, 2, 2), seed=1))]
            attributes = {"mode": mode, "padding_mode": padding}
            yield from forms(Case("GridSample", f"{mode} {padding}", operands, attributes=attributes, tolerance=1e-4))
    yield Case("GridSample", "default", operands, attributes={"align_corners": 1}, tolerance=1e-4)


def comparisons() -> Iterator[Case]:
    for metric in ("euclidean", "sqeuclidean", "cosine"):
        for dtype in (np.float32, np.float64):
            operands = [fed(normal((3, 4), dtype)), fed(normal((5, 4), dtype, 1))]
            more = {"attributes": {"metric": metric}, "tolerance": 1e-4}
            yield from forms(Case("CDist", f"{metric} {np.dtype(dtype)}", operands, **more))
    for shape in ((1, 1), (2, 2), (2, 3, 3), (4, 4), (0, 2, 2), (2, 2, 8, 8), (9, 9), (2, 3, 17, 17), (0, 9, 9)):
        for dtype in (np.float32, np.float64):
            x = normal(shape, dtype) + 3 * np.eye(shape[-1], dtype=dtype)[: shape[-2]]
            yield from forms(Case("Inverse", f"{list(shape)} {np.dtype(dtype)}", [fed(x, dtype)], tolerance=1e-4))
    rows = normal((2, 40, 40), seed=1).copy()
    rows[0] = rows[0][::-1] * np.float32(1e-3)
    rows[1] = np.triu(rows[1])[::-1] + np.eye(40, dtype=np.float32)[::-1] * 5
    yield from forms(Case("Inverse", "zeros on the diagonal", [fed(rows)], tolerance=2e-3))
    yield Case(
        "Inverse", "float16", [fed(normal((9, 9), np.float16) + 5 * np.eye(9, dtype=np.float16))], tolerance=1e-2
    )
    yield Case("SampleOp", "", [fed(normal((2, 3)))])


def gates() -> Iterator[Case]:
    for shape in ((2, 3, 8), (4, 1), (0, 8)):
        x, y, gate = fed(normal(shape)), fed(normal(shape, seed=1)), fed(normal((*shape[:-1], 1), seed=2))
        yield from forms(Case("GatedAdd", f"{list(shape)}", [x, y, gate]))
        for size in {shape[-1], max(1, shape[-1] // 2)}:
            for name in ("silu", "sigmoid", "swish"):
                operands = [x, fixed(normal((size,), seed=3)), y]
                case = Case("GatedRMSNorm", f"{list(shape)} {size} {name}", operands, attributes={"activation": name})
                yield from forms(case) if shape[0] else [case]
    half = [fed(normal((2, 8), np.float16, i)) for i in range(2)]
    yield Case("GatedRMSNorm", "float16", [half[0], fixed(normal((8,), np.float16)), half[1]])
    yield Case("GatedAdd", "float16", [*half, fed(normal((2, 1), np.float16))])
    for flat in (False, True):
        attributes = {"num_branches": 3} if flat else {}
        streams = fed(normal((2, 5, 12) if flat else (2, 5, 3, 4)))
        for gate in ((2, 5, 3), (2, 5, 3, 1), (2, 5, 3, 4)):
            label, mix = f"{flat} {list(gate)}", fed(normal(gate, seed=1))
            yield from forms(
                Case("HyperConnectionPreMix", label, [streams, mix], attributes=attributes | {"reduction_scale": 0.5})
            )
            operands = [streams, fed(normal((2, 5, 4), seed=2)), mix]
            yield from forms(Case("HyperConnectionPostMix", label, operands, attributes=attributes))
            matrix = fed(normal((2, 5, 3, 3), seed=3))
            yield Case("HyperConnectionPostMix", f"{label} mixed", [*operands, matrix], attributes=attributes)
    parts = [fed(normal((2, 3, 2, 8))), fed(normal((2, 3, 2, 8), seed=1)), fed(normal((2, 3, 8), seed=2))]
    scales = [fixed(normal((2, 8), seed=i)) for i in (3, 4, 5)]
    yield from forms(Case("EngramGate", "one result", [*parts, *scales[:2]]))
    yield from forms(Case("EngramGate", "two results", [*parts, *scales], ["f4", "f4"]))
    for alpha in (1.0, 0.5):
        yield from forms(Case("ScaledSiLU", f"{alpha}", [fed(normal((2, 3)))], attributes={"alpha": alpha}))
    yield from forms(Case("ScaledSiLU", "scale", [fed(normal((2, 3))), fixed(0.7, "f4")]))
    yield Case("ScaledSiLU", "float16", [fed(normal((2, 3), np.float16)), fixed(0.7, "f4")])


def recurrent() -> Iterator[Case]:
    for dtype in (np.uint8, np.int8):
        for direction in ("forward", "reverse", "bidirectional"):
            for columns in (False, True):
                yield dynamic_lstm(f"{np.dtype(dtype)} {direction} {columns}", dtype, direction, columns)
    for label, optional, attributes in (
        ("bias", {3}, {}),
        ("lengths", {4}, {}),
        ("states", {5, 6}, {}),
        ("peepholes", {7}, {}),
        ("all operands", {3, 4, 5, 6, 7}, {}),
        ("clip", {3, 6}, {"clip": 0.3}),
        ("input_forget", {3, 7}, {"input_forget": 1}),
        ("activations", {3}, {"activations": ["HardSigmoid", "Softsign", "Relu"], "activation_alpha": [0.25]}),
    ):
        for direction in ("forward", "reverse", "bidirectional"):
            yield from forms(dynamic_lstm(f"{label} {direction}", np.int8, direction, True, optional, attributes))


def dynamic_lstm(label, dtype, direction, columns, optional=(), attributes=None) -> Case:
    """Return an LSTM of 5 steps of 3 sequences, with these optional operands."""
    count = 2 if direction == "bidirectional" else 1
    scale_shape = (count, 16) if columns else (count,)
    zero_point = np.full(scale_shape, 100 if dtype == np.uint8 else 0)
    scales = [fixed(np.linspace(0.005, 0.015, 16)[: scale_shape[-1]] * np.ones(scale_shape), "f4")]
    scales.append(fixed(zero_point, dtype))
    states = [fed(normal((count, 3, 4), seed=seed)) for seed in (5, 6)]
    bias, peepholes = fixed(normal((count, 32), seed=3)), fixed(normal((count, 12), seed=7))
    given = [bias, fed([5, 0, 3], "i4"), *states, peepholes]
    operands = [fed(normal((5, 3, 3))), fixed(whole((count, 3, 16), dtype, 1)), fixed(whole((count, 4, 16), dtype, 2))]
    operands += [operand if number in optional else None for number, operand in enumerate(given, 3)]
    functions = (attributes or {}).get("activations", ())
    others = {"activations": list(functions) * count} if functions else {}
    attributes = {"hidden_size": 4, "direction": direction, **(attributes or {}), **others}
    return Case("DynamicQuantizeLSTM", label, [*operands, *scales, *scales], ["f4", "f4", "f4"], attributes)


CASES = [*movements(), *sequences(), *choices(), *comparisons(), *gates(), *recurrent()]
