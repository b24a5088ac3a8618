"""Cases of StableHLO operators; results are those of NumPy, or loops over the definition of the operator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.frontends.tflite.cases.case import Case, Region, binary_region, case, fed, fixed, numbers
from tests.frontends.tflite.one_operator import T

FLEX = bytes([0, 36, 1])
"""An empty map of flexbuffers."""
UNARY = {
    "LOGISTIC": lambda x: 1 / (1 + np.exp(-x)), "TANH": np.tanh, "ABS": np.abs, "COSINE": np.cos, "EXPONENTIAL": np.exp,
    "FLOOR": np.floor, "NEGATE": np.negative, "CBRT": np.cbrt,
}  # fmt: skip
BINARY = {
    "ADD": np.add, "SUBTRACT": np.subtract, "MULTIPLY": np.multiply, "MAXIMUM": np.maximum, "MINIMUM": np.minimum,
    "REMAINDER": np.fmod,
}  # fmt: skip
BITS = {"AND": np.bitwise_and, "OR": np.bitwise_or, "SHIFT_LEFT": np.left_shift}
OF_BOOLS = {"ADD": np.logical_or, "MULTIPLY": np.logical_and, "AND": np.logical_and, "OR": np.logical_or,
            "MAXIMUM": np.logical_or, "MINIMUM": np.logical_and}  # fmt: skip
DIRECTIONS = (np.equal, np.not_equal, np.greater_equal, np.greater, np.less_equal, np.less)


def given(name: str, label: str, inputs: list[Any], expected: list[Any], options: Any = None, **more: Any) -> Case:
    """Return a case whose outputs have the shapes and types of the expected results."""
    results = [np.asarray(value) for value in expected]
    outputs = [T(value.shape, value.dtype.name) for value in results]
    return case(f"STABLEHLO_{name}", label, inputs, outputs, options, expected=results, **more)


def options_of(name: str, **values: Any) -> tuple[str, dict[str, Any]]:
    return f"Stablehlo{name}Options", values


def elements() -> Iterator[Case]:
    x, y = numbers((2, 3)), numbers((2, 3), seed=1, low=1)
    for name, function in UNARY.items():
        yield given(name, "float32", [fed(x)], [function(x)])
    yield given("LOG", "float32", [fed(y)], [np.log(y)])
    yield given("RSQRT", "float32", [fed(y)], [1 / np.sqrt(y)])
    yield given("POWER", "float32", [fed(y), fed(x)], [y**x], tolerance=1e-4)
    yield given("DIVIDE", "float32", [fed(x), fed(y)], [x / y])
    whole = [fed(np.int32([7, -7, 9])), fed(np.int32([2, 2, -4]))]
    yield given("DIVIDE", "int32", whole, [np.int32([3, -3, -2])])
    for dtype in ("float32", "int32", "int64", "int16"):
        a, b = numbers((2, 3), dtype), numbers((2, 3), dtype, 1, low=1)
        for name, function in BINARY.items():
            yield given(name, dtype, [fed(a), fed(b)], [function(a, b)])
    for dtype in ("int32", "int64"):
        a, b = numbers((2, 3), dtype), numbers((2, 3), dtype, 1, low=0)
        for name, function in BITS.items():
            yield given(name, dtype, [fed(a), fed(b)], [function(a, b)])
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    for name, function in OF_BOOLS.items():
        yield given(name, "bool", [fed(a), fed(b)], [function(a, b)])
    inputs = [fed(-1.0, "float32"), fed(np.float32([-3, 0, 5])), fed(np.float32([1, 2, 3]))]
    yield given("CLAMP", "float32", inputs, [np.float32([-1, 0, 3])])
    for condition in (np.array(True), np.array([True, False, True])):
        chosen = np.where(condition, x[0], y[0])
        yield given("SELECT", str(condition.shape), [fed(condition), fed(x[0]), fed(y[0])], [chosen])
    for dtype in ("int32", "int64", "float16", "bool", "uint8"):
        yield given("CONVERT", dtype, [fed(np.abs(x))], [np.abs(x).astype(dtype)])


def comparisons() -> Iterator[Case]:
    a, b = numbers((2, 3), "int32", high=2, low=-2), numbers((2, 3), "int32", 1, high=2, low=-2)
    for number, function in enumerate(DIRECTIONS):
        options = options_of("Compare", comparison_direction=number)
        yield given("COMPARE", function.__name__, [fed(a), fed(b)], [function(a, b)], options)
    order = np.float32([-np.nan, -np.inf, -1, -0.0, 0.0, 1, np.inf, np.nan])
    order[0], order[-1] = np.copysign(np.float32(np.nan), -1), np.copysign(np.float32(np.nan), 1)
    options = options_of("Compare", comparison_direction=5, compare_type=2)
    yield given("COMPARE", "in total order", [fed(order[:-1]), fed(order[1:])], [np.full(7, True)], options)


def moves() -> Iterator[Case]:
    x = numbers((2, 3))
    yield given("RESHAPE", "float32", [fed(x)], [x.reshape(3, 2)])
    yield given("TRANSPOSE", "float32", [fed(x)], [x.T], options_of("Transpose", permutation=[1, 0]))
    joined = options_of("Concatenate", dimension=1)
    yield given("CONCATENATE", "float32", [fed(x), fed(x[:, :1])], [np.concatenate([x, x[:, :1]], 1)], joined)
    sliced = options_of("Slice", start_indices=[0, 1], limit_indices=[2, 3], strides=[2, 1])
    yield given("SLICE", "float32", [fed(x)], [x[0:2:2, 1:3]], sliced)
    for places, shape in (([0, 2], (2, 4, 3)), ([1, 0], (3, 2)), ([0, 1], (2, 3))):
        target = np.zeros(shape, "f4") + (x.T if places == [1, 0] else x.reshape([2, *[1] * (len(shape) - 2), 3]))
        options = options_of("BroadcastInDim", broadcast_dimensions=places)
        yield given("BROADCAST_IN_DIM", str(places), [fed(x)], [target], options)
    scalar = options_of("BroadcastInDim", broadcast_dimensions=[])
    yield given("BROADCAST_IN_DIM", "scalar", [fed(3, "int32")], [np.full((2, 2), 3, np.int32)], scalar)
    for axis in (0, 1):
        for dtype in ("int32", "float32"):
            expected = np.indices((2, 3))[axis].astype(dtype)
            yield given("IOTA", f"{axis} {dtype}", [], [expected], options_of("Iota", iota_dimension=axis))
    for start in ((0, 1), (-5, 9)):
        cut = x[:, 1:3] if start[0] == 0 else x[:, 1:3]
        cut = x[0:1, 1:3] if start == (0, 1) else x[0:1, 1:3]
        options = options_of("DynamicSlice", slice_sizes=[1, 2])
        for make in (fed, fixed):
            starts = [make(number, "int32") for number in start]
            yield given("DYNAMIC_SLICE", f"{start} {make.__name__}", [fed(x), *starts], [cut], options)
    update, changed = np.float32([[50, 60]]), x.copy()
    changed[1, 1:3] = [50, 60]
    starts = [fed(1, "int32"), fed(7, "int32")]
    yield given("DYNAMIC_UPDATE_SLICE", "clamped", [fed(x), fed(update), *starts], [changed])


def pads() -> Iterator[Case]:
    x = numbers((3, 2), "int32")
    for low, high, interior in (((0, 1), (2, 0), (1, 2)), ((-1, 1), (0, -1), (0, 0)), ((-2, 0), (1, 0), (2, 0))):
        canvas = np.full([(n - 1) * (i + 1) + 1 for n, i in zip(x.shape, interior, strict=True)], 7, np.int32)
        canvas[:: interior[0] + 1, :: interior[1] + 1] = x
        wide = np.pad(canvas, [(max(0, a), max(0, b)) for a, b in zip(low, high, strict=True)], constant_values=7)
        cuts = [slice(max(0, -a), n - max(0, -b)) for a, b, n in zip(low, high, wide.shape, strict=True)]
        numbers_of = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": interior}
        for make in (fed, fixed):
            inputs, label = [fed(x), make(7, "int32")], f"{low} {high} {interior} {make.__name__}"
            yield given("PAD", label, inputs, [wide[tuple(cuts)]], options_of("Pad", **numbers_of))


def products() -> Iterator[Case]:
    sides = [
        ((2, 3, 4), (2, 4, 5), [0], [0], [2], [1], "bik,bkj->bij"),
        ((3, 4), (5, 4), [], [], [1], [1], "ik,jk->ij"),
        ((4, 2, 3), (5, 4, 2, 3), [1], [2], [0, 2], [1, 3], "kbl,jkbl->bj"),
        ((2, 3), (4,), [], [], [], [], "ab,c->abc"),
        ((4,), (4,), [], [], [0], [0], "k,k->"),
    ]
    for a, b, batch_a, batch_b, summed_a, summed_b, equation in sides:
        for dtype in ("float32", "int32"):
            x, y = numbers(a, dtype, high=4, low=-4), numbers(b, dtype, 1, high=4, low=-4)
            options = options_of(
                "DotGeneral", lhs_batching_dimensions=batch_a, rhs_batching_dimensions=batch_b,
                lhs_contracting_dimensions=summed_a, rhs_contracting_dimensions=summed_b,
            )  # fmt: skip
            yield given("DOT_GENERAL", f"{equation} {dtype}", [fed(x), fed(y)], [np.einsum(equation, x, y)], options)
    x, y = numbers((2, 3), "int8"), numbers((3, 2), "int8", 1)
    options = options_of("DotGeneral", lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0])
    yield given("DOT_GENERAL", "int8 to int32", [fed(x), fed(y)], [x.astype("i4") @ y.astype("i4")], options)


def convolved(x: np.ndarray, w: np.ndarray, o: dict[str, Any]) -> np.ndarray:
    """Convolve an image (N, C, spatial) with weights (O, I, spatial) by loops over positions."""
    zeros = np.zeros((*x.shape[:2], *((n - 1) * d + 1 for n, d in zip(x.shape[2:], o["lhs_dilation"], strict=True))))
    zeros[(slice(None), slice(None), *(slice(None, None, d) for d in o["lhs_dilation"]))] = x
    pads = list(zip(o["padding"][::2], o["padding"][1::2], strict=True))
    wide = np.pad(zeros, [(0, 0), (0, 0), *((max(0, a), max(0, b)) for a, b in pads)])
    cuts = (slice(max(0, -a), n - max(0, -b)) for (a, b), n in zip(pads, wide.shape[2:], strict=True))
    x = wide[(slice(None), slice(None), *cuts)]
    w = np.flip(w, [2 + i for i, flip in enumerate(o["window_reversal"]) if flip])
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], o["rhs_dilation"], strict=True)]
    sizes = [(n - r) // s + 1 for n, r, s in zip(x.shape[2:], spans, o["window_strides"], strict=True)]
    groups, batches = o["feature_group_count"], o["batch_group_count"]
    result = np.zeros((x.shape[0] // batches, w.shape[0], *sizes))
    for i, channel in itertools.product(range(result.shape[0]), range(w.shape[0])):
        image = x[i + channel // (w.shape[0] // batches) * result.shape[0]]
        image = image[channel // (w.shape[0] // groups) * w.shape[1] :][: w.shape[1]]
        for place in itertools.product(*map(range, sizes)):
            at = zip(place, o["window_strides"], spans, o["rhs_dilation"], strict=True)
            part = image[(slice(None), *(slice(p * s, p * s + r, d) for p, s, r, d in at))]
            result[(i, channel, *place)] = (part * w[channel]).sum()
    return result.astype(np.float32)


def convolutions() -> Iterator[Case]:
    plain = {"feature_group_count": 1, "batch_group_count": 1}
    for axes in (0, 1, 2, 3):
        ones, spatial = [1] * axes, list(range(axes))
        for label, changes, channels, results in (
            ("plain", {}, 2, 3),
            ("strided", {"window_strides": [2] * axes, "padding": [1, 0] * axes}, 2, 3),
            ("dilated", {"lhs_dilation": [2] * axes, "rhs_dilation": [2] * axes, "padding": [2, 1] * axes}, 2, 3),
            ("cropped", {"padding": [-1, 1] * axes, "window_reversal": [True] * axes}, 2, 3),
            ("grouped", {"feature_group_count": 2}, 4, 6),
            ("depthwise", {"feature_group_count": 4}, 4, 8),
            ("batch groups", {"batch_group_count": 2}, 2, 4),
        ):
            o = {"window_strides": ones, "padding": [0, 0] * axes, "lhs_dilation": ones, "rhs_dilation": ones,
                 "window_reversal": [False] * axes, **plain, **changes}  # fmt: skip
            x = numbers((2, channels, *[5, 4, 3][:axes]))
            w = numbers((results, channels // o["feature_group_count"], *[2, 1, 2][:axes]), seed=1)
            y = convolved(x, w, o)
            for last in (False, True):
                image = [0, axes + 1, *(1 + i for i in spatial)] if last else [0, 1, *(2 + i for i in spatial)]
                kernel = [axes + 1, axes, *spatial] if last else [0, 1, *(2 + i for i in spatial)]
                dimensions = {
                    "input_batch_dimension": image[0], "input_feature_dimension": image[1],
                    "input_spatial_dimensions": image[2:], "kernel_output_feature_dimension": kernel[0],
                    "kernel_input_feature_dimension": kernel[1], "kernel_spatial_dimensions": kernel[2:],
                    "output_batch_dimension": image[0], "output_feature_dimension": image[1],
                    "output_spatial_dimensions": image[2:],
                }  # fmt: skip
                inputs = [fed(x.transpose(np.argsort(image))), fed(w.transpose(np.argsort(kernel)))]
                expected = [y.transpose(np.argsort(image))]
                title = f"{axes} axes {label} {'channels last' if last else 'channels first'}"
                yield given("CONVOLUTION", title, inputs, expected, options_of("Convolution", **o, **dimensions))


def gathers() -> Iterator[Case]:
    x = numbers((3, 4, 2), "int32", low=-99, high=99)
    starts = np.int64([[[0, 0], [1, 0], [2, 1]], [[0, 1], [1, 1], [0, 9]]])
    options = options_of(
        "Gather", offset_dims=[2, 3], collapsed_slice_dims=[0], start_index_map=[1, 0], index_vector_dim=2,
        slice_sizes=[1, 2, 2],
    )  # fmt: skip
    expected = np.array([[x[min(b, 2), min(a, 2) : min(a, 2) + 2] for a, b in row] for row in starts], np.int32)
    yield given("GATHER", "of the specification", [fed(x), fed(starts)], [expected], options)
    rows = np.int32([2, 0, 7, -3])
    options = options_of(
        "Gather", offset_dims=[1, 2], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1,
        slice_sizes=[1, 4, 2],
    )  # fmt: skip
    yield given("GATHER", "rows, clamped", [fed(x), fed(rows)], [x[rows.clip(0, 2)]], options, crashes_litert=True)
    options = options_of(
        "Gather", offset_dims=[0, 1, 2], collapsed_slice_dims=[], start_index_map=[1], index_vector_dim=0,
        slice_sizes=[3, 2, 1],
    )  # fmt: skip
    yield given("GATHER", "one window", [fed(x), fed(np.int32([1]))], [x[:, 1:3, :1]], options)
    options = options_of(
        "Gather", offset_dims=[0, 2], collapsed_slice_dims=[2], start_index_map=[2], index_vector_dim=1,
        slice_sizes=[3, 4, 1],
    )  # fmt: skip
    expected = x[:, :, [1, 0, 1]].transpose(0, 2, 1)
    inputs = [fed(x), fed(np.int32([1, 0, 1]))]
    yield given("GATHER", "offsets around the batch", inputs, [expected], options, crashes_litert=True)


def scatters() -> Iterator[Case]:
    x = numbers((3, 4, 2), "int32")
    starts = np.int64([[[0, 2], [1, 0], [2, 1]], [[0, 1], [1, 0], [0, 9]]])
    updates = np.ones((2, 3, 2, 2), np.int32)
    options = options_of(
        "Scatter", update_window_dims=[2, 3], inserted_window_dims=[0], scatter_dims_to_operand_dims=[1, 0],
        index_vector_dim=2, update_computation_subgraph_index=1,
    )  # fmt: skip
    for name, function in (
        ("ADD", np.add),
        ("MULTIPLY", np.multiply),
        ("MAXIMUM", np.maximum),
        ("MINIMUM", np.minimum),
    ):
        result = x.copy()
        for a, b in starts.reshape(-1, 2):
            for i in range(2):
                if b < 3 and a + i < 4:
                    result[b, a + i] = function(result[b, a + i], 1)
        region = binary_region(f"STABLEHLO_{name}", "int32")
        inputs = [fed(x), fed(starts), fed(updates)]
        yield given("SCATTER", f"{name} of the specification", inputs, [result], options, regions=[region])
    options = options_of(
        "Scatter", update_window_dims=[1, 2], inserted_window_dims=[0], scatter_dims_to_operand_dims=[0],
        index_vector_dim=1, update_computation_subgraph_index=1,
    )  # fmt: skip
    result, rows = x.copy(), numbers((2, 4, 2), "int32", 3)
    result[[2, 0]] = rows
    region = Region(["int32", "int32"], 2, [1], [])
    yield given("SCATTER", "rows", [fed(x), fed(np.int32([2, 0])), fed(rows)], [result], options, regions=[region])


def arg_max() -> Region:
    """Return a region on (value, index) pairs that gives the pair with the greater value, or the lower index."""
    greater, equal = ({"comparison_direction": number} for number in (3, 0))
    steps = [
        ("STABLEHLO_COMPARE", [0, 2], [4], ("StablehloCompareOptions", greater)),
        ("STABLEHLO_COMPARE", [0, 2], [5], ("StablehloCompareOptions", equal)),
        ("STABLEHLO_COMPARE", [1, 3], [6], ("StablehloCompareOptions", {"comparison_direction": 5})),
        ("STABLEHLO_AND", [5, 6], [7]),
        ("STABLEHLO_OR", [4, 7], [8]),
        ("STABLEHLO_SELECT", [8, 0, 2], [9]),
        ("STABLEHLO_SELECT", [8, 1, 3], [10]),
    ]
    types = ["float32", "int32", "float32", "int32", *["bool"] * 5, "float32", "int32"]
    return Region(types, 4, [9, 10], steps)


def reductions() -> Iterator[Case]:
    for dtype in ("float32", "int32"):
        x = numbers((2, 5, 3), dtype, low=1, high=3)
        for name, function, start in (("ADD", np.sum, 2), ("MULTIPLY", np.prod, 1), ("MAXIMUM", np.max, -5),
                                      ("MINIMUM", np.min, 2), ("SUBTRACT", None, 0)):  # fmt: skip
            for axes in ([1], [0, 2], []):
                if function is None:
                    continue
                combined = (
                    BINARY[name](function(x, tuple(axes)), np.array(start, dtype)) if axes else BINARY[name](x, start)
                )
                region = binary_region(f"STABLEHLO_{name}", dtype)
                options = options_of("Reduce", dimensions=axes, body_subgraph_index=1)
                inputs = [fed(x), fixed(start, dtype)]
                label = f"{name} {dtype} {axes}"
                yield given("REDUCE", label, inputs, [combined.astype(dtype)], options, regions=[region])
    flags = np.array([[True, False], [False, False]])
    for name, expected in (("OR", [True, False]), ("AND", [False, False])):
        options = options_of("Reduce", dimensions=[1], body_subgraph_index=1)
        inputs = [fed(flags), fixed(name == "AND", "bool")]
        region = binary_region(f"STABLEHLO_{name}", "bool")
        yield given("REDUCE", f"{name} bool", inputs, [np.array(expected)], options, regions=[region])
    x = numbers((2, 7), low=-3, high=3)
    places = np.broadcast_to(np.arange(7, dtype=np.int32), (2, 7))
    inputs = [fed(x), fed(places), fixed(-np.inf, "float32"), fixed(0, "int32")]
    options = options_of("Reduce", dimensions=[1], body_subgraph_index=1)
    expected = [x.max(1), x.argmax(1).astype(np.int32)]
    yield given("REDUCE", "arg max", inputs, expected, options, regions=[arg_max()])


def windows() -> Iterator[Case]:
    x = numbers((5, 6), low=1)
    for size, stride, dilation, base, padding in (
        ((2, 2), (2, 2), (1, 1), (1, 1), (0, 0, 0, 0)),
        ((3, 2), (1, 2), (1, 2), (1, 1), (1, 1, 0, 2)),
        ((2, 3), (1, 1), (1, 1), (2, 3), (0, -1, 2, 0)),
        ((1, 6), (1, 1), (1, 1), (1, 1), (0, 0, 5, 0)),
    ):
        for name, function, start in (("ADD", np.sum, 0), ("MAXIMUM", np.max, -np.inf)):
            wide = np.full([(n - 1) * d + 1 for n, d in zip(x.shape, base, strict=True)], start, "f4")
            wide[:: base[0], :: base[1]] = x
            pads = [(max(0, a), max(0, b)) for a, b in zip(padding[::2], padding[1::2], strict=True)]
            wide = np.pad(wide, pads, constant_values=start)
            wide = wide[
                tuple(
                    slice(max(0, -a), n - max(0, -b))
                    for a, b, n in zip(padding[::2], padding[1::2], wide.shape, strict=True)
                )
            ]
            spans = [(k - 1) * d + 1 for k, d in zip(size, dilation, strict=True)]
            counts = [(n - r) // s + 1 for n, r, s in zip(wide.shape, spans, stride, strict=True)]
            result = np.zeros(counts, "f4")
            for i, j in np.ndindex(*counts):
                part = wide[i * stride[0] :, j * stride[1] :][: spans[0] : dilation[0], : spans[1] : dilation[1]]
                result[i, j] = function(part)
            options = options_of(
                "ReduceWindow", window_dimensions=size, window_strides=stride, window_dilations=dilation,
                base_dilations=base, padding=padding, body_subgraph_index=1,
            )  # fmt: skip
            region, inputs = binary_region(f"STABLEHLO_{name}", "float32"), [fed(x), fixed(start, "float32")]
            label = f"{name} {size} {stride} {dilation} {base} {padding}"
            yield given("REDUCE_WINDOW", label, inputs, [result], options, regions=[region])


def sorts() -> Iterator[Case]:
    for dtype in ("float32", "int32"):
        x = numbers((3, 8), dtype, low=-3, high=3)
        for direction, sign in ((5, 1), (3, -1)):
            region = binary_region(
                "STABLEHLO_COMPARE", dtype, "bool", options_of("Compare", comparison_direction=direction)
            )
            for axis in (0, 1):
                options = options_of("Sort", dimension=axis, is_stable=True, comparator_subgraph_index=1)
                expected = [(sign * np.sort(sign * x, axis)).astype(dtype)]
                yield given("SORT", f"{dtype} {direction} {axis}", [fed(x)], expected, options, regions=[region])
    x, y = numbers((2, 9), low=-2, high=2), np.arange(18, dtype=np.int32).reshape(2, 9)
    less = options_of("Compare", comparison_direction=5)
    by_size = Region(
        ["float32", "float32", "int32", "int32", "float32", "float32", "bool"], 4, [6],
        [("STABLEHLO_ABS", [0], [4]), ("STABLEHLO_ABS", [1], [5]), ("STABLEHLO_COMPARE", [4, 5], [6], less)],
    )  # fmt: skip
    order = np.argsort(np.abs(x), axis=1, kind="stable")
    expected = [np.take_along_axis(value, order, 1) for value in (x, y)]
    options = options_of("Sort", dimension=1, is_stable=True, comparator_subgraph_index=1)
    yield given("SORT", "by absolute values", [fed(x), fed(y)], expected, options, regions=[by_size])


def doubling() -> Case:
    """Return a loop that doubles the first of two numbers while it is less than the second one."""
    less = options_of("Compare", comparison_direction=5)
    condition = Region(["int32", "int32", "bool"], 2, [2], [("STABLEHLO_COMPARE", [0, 1], [2], less)])
    body = Region(["int32", "int32", "int32"], 2, [2, 1], [("STABLEHLO_ADD", [0, 0], [2])])
    options = options_of("While", cond_subgraph_index=1, body_subgraph_index=2)
    inputs = [fed(3, "int32"), fed(20, "int32")]
    return given("WHILE", "doubled", inputs, [np.int32(24), np.int32(20)], options, regions=[condition, body])


def composites() -> Iterator[Case]:
    body = Region(["float32", "float32", "float32"], 2, [2], [("STABLEHLO_ADD", [0, 1], [2])], (3,))
    options = (
        "StableHLOCompositeOptions",
        {"name": "my.sum", "decomposition_subgraph_index": 1, "composite_attributes": FLEX},
    )
    x = numbers((3,))
    yield given("COMPOSITE", "decomposed", [fed(x), fed(x)], [x + x], options, regions=[body])


def bits() -> Iterator[Case]:
    for dtype in ("int32", "int64", "uint32", "uint64"):
        for algorithm, state in ((1, [5, 6]), (2, [2**63 + 7, 2**64 - 1]), (1, [5, 6, 77]), (0, [5, 6])):
            options = options_of("RngBitGenerator", algorithm=algorithm)
            outputs = [T((len(state),), "uint64"), T((3, 5), dtype)]
            yield case(
                "STABLEHLO_RNG_BIT_GENERATOR", f"{dtype} {algorithm} {state}", [fed(state, "uint64")], outputs, options
            )
    words = [0x6B200159, 0x99BA4EFE]
    options = options_of("RngBitGenerator", algorithm=2)
    expected = [np.uint64([0, 1]), np.uint32(words)]
    yield given("RNG_BIT_GENERATOR", "worked", [fed([0, 0], "uint64")], expected, options)


CASES = [
    *elements(), *comparisons(), *moves(), *pads(), *products(), *convolutions(), *gathers(), *scatters(),
    *reductions(), *windows(), *sorts(), *composites(), *bits(),
]  # fmt: skip
