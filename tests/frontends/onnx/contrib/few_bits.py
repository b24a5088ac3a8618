"""Cases of products with, and of selections from, weights of few bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import ml_dtypes
import numpy as np

from tests.frontends.onnx.contrib.case import Case, Operand, fed, fixed, forms, integers, normal, whole

SIZES = (
    (1, 32, 16), (5, 32, 16), (3, 48, 32), (7, 20, 16), (17, 129, 32), (33, 96, 64), (2, 256, 128), (64, 256, 32)
)  # fmt: skip
TABLES = (
    ((5, 32), 0, 1), ((5, 33), 0, 1), ((32, 5), 1, 0), ((3, 4, 32), 1, 2), ((3, 32, 4), 0, 1), ((3, 16), 0, -1)
)  # fmt: skip
WRONG = {
    "K": {"K": 33}, "N": {"N": 7}, "bits": {"bits": 3}, "block": {"block_size": 8}, "odd block": {"block_size": 24},
    "zero": {"K": 0}, "large": {"N": 2**40},
}  # fmt: skip
NO_GROUPS = "the groups of the columns (g_idx) are not used correctly with weights of 2 bits"
NO_POINTS = "the zero points are not used if the groups of the columns are given (g_idx)"
UNTRANSPOSED = "the result is wrong, and in part not written, if transB is 0"


def _weights(n: int, k: int, size: int, bits: int, dtype: type = np.float32) -> tuple[Operand, Operand]:
    counts = -(-k // size)
    packed = whole((n, counts, size * bits // 8), np.uint8, 1)
    scales = (0.01 + 0.05 * np.random.default_rng(2).random((n, counts))).astype(dtype)
    return fixed(packed), fixed(scales)


def _packed_points(n: int, counts: int, bits: int) -> Operand:
    return fixed(whole((n, -(-counts * bits // 8)), np.uint8, 3))


def _positive(shape: Sequence[int]) -> np.ndarray:
    return (0.1 + np.random.default_rng(1).random(tuple(shape))).astype(np.float32)


def products() -> Iterator[Case]:
    name = "MatMulNBits"
    for bits in (4, 8, 2):
        for n, k, size in SIZES:
            attributes = {"K": k, "N": n, "bits": bits, "block_size": size}
            weights, scales = _weights(n, k, size, bits)
            label, counts = f"{bits} bits, {n} x {k} in blocks of {size}", -(-k // size)
            for shape in ((1, k), (2, 3, k), (64, k)):
                x = fed(normal(shape))
                more = {"attributes": attributes, "tolerance": 2e-4}
                yield from forms(Case(name, f"{label} {list(shape)}", [x, weights, scales], **more))
                points = _packed_points(n, counts, bits)
                yield from forms(Case(name, f"{label} {list(shape)} points", [x, weights, scales, points], **more))
            for title, floats in (("whole", integers((n, counts), np.float32, 4, 0, (1 << bits) - 1)),
                                  ("broken", normal((n, counts), seed=5, scale=4))):  # fmt: skip
                operands = [fed(normal((3, k))), weights, scales, fixed(floats)]
                yield from forms(Case(name, f"{label} {title} float points", operands, overrides=bits == 8, **more))
            bias = fixed(normal((n,), seed=6))
            yield Case(name, f"{label} bias", [fed(normal((3, k))), weights, scales, None, None, bias], **more)
            groups = fixed(integers((counts * size,), np.int32, 7, 0, counts - 1))
            operands = [fed(normal((3, k))), weights, scales, None, groups]
            doubt = {"overrides": bits == 8, "known": NO_GROUPS if bits == 2 else ""}
            yield Case(name, f"{label} groups", operands, **doubt, **more)
            operands = [fed(normal((3, k))), weights, scales, points, groups]
            doubt = {"overrides": True} if bits == 8 else {"known": NO_POINTS}
            yield Case(name, f"{label} groups and points", operands, **doubt, **more)
            yield Case(name, f"{label} no rows", [fed(normal((0, k))), weights, scales], **more)
            flat = [fixed(scales.array.reshape(-1)), fixed(points.array.reshape(-1))]
            yield Case(name, f"{label} flat", [fed(normal((3, k))), weights, *flat], **more)
            yield Case(name, f"{label} vector", [fed(normal((k,))), weights, scales], **more)
            half = [fed(normal((3, k), np.float16)), weights, fixed(scales.array.astype(np.float16))]
            yield Case(name, f"{label} float16", half, attributes=attributes, tolerance=0.02)
            half_points = [*half, fixed(normal((n, counts), np.float16, scale=4))]
            yield Case(
                name, f"{label} float16 points", half_points, attributes=attributes, tolerance=0.02, overrides=bits == 8
            )
            for level in (1, 2, 3, 4):
                more = {"attributes": attributes | {"accuracy_level": level}, "tolerance": 0.5 if level == 4 else 0.01}
                yield Case(name, f"{label} level {level}", [fed(normal((3, k))), weights, scales, points], **more)


def wrong_products() -> Iterator[Case]:
    weights, scales = _weights(8, 32, 16, 4)
    right = {"K": 32, "N": 8, "bits": 4, "block_size": 16}
    for title, change in WRONG.items():
        operands = [fed(normal((3, 32))), weights, scales]
        yield Case("MatMulNBits", f"wrong {title}", operands, attributes=right | change)
    yield Case("MatMulNBits", "wrong input", [fed(normal((3, 31))), weights, scales], attributes=right)
    yield Case("MatMulNBits", "wrong scales", [fed(normal((3, 32))), weights, fixed(normal((8, 3)))], attributes=right)
    yield Case("MatMulNBits", "wrong bias", [fed(normal((3, 32))), weights, scales, None, None, fixed(normal((7,)))],
               attributes=right)  # fmt: skip


def four_bit_floats() -> Iterator[Case]:
    for kind in (0, 1, 2):
        for n, k, size in ((4, 32, 16), (3, 33, 16), (5, 7, 64), (17, 96, 32)):
            packed, absmax = (
                whole((-(-n * k // 2),), np.uint8),
                0.1 + np.random.default_rng(1).random(-(-n * k // size)),
            )
            attributes = {"K": k, "N": n, "block_size": size, "quant_type": kind}
            for turned in (1, 0):
                x = fed(normal((3, k if turned else n)))
                operands = [x, fixed(packed), fixed(absmax, "f4")]
                label = f"{kind}, {n} x {k} in blocks of {size}, {turned}"
                more = {"attributes": attributes | {"transB": turned}, "tolerance": 2e-4}
                yield from forms(Case("MatMulBnb4", label, operands, known="" if turned else UNTRANSPOSED, **more))
    for kind, size, length in ((0, 32, 20), (1, 32, 21), (2, 64, 36)):
        for n, k in ((4, 64), (3, 33), (16, 128), (5, 20)):
            blocks = -(-k // size)
            blob = whole((n, blocks, length), np.uint8)
            blob[:, :, :4] = (
                (0.1 * np.random.default_rng(1).random((n, blocks))).astype(np.float32)[..., None].view(np.uint8)
            )
            if kind == 1:
                blob[:, :, 4] &= 15
            operands = [fed(normal((3, k))), fixed(blob.reshape(-1)), fixed([k, n])]
            more = {"attributes": {"blk_quant_type": kind}, "tolerance": 2e-4, "overrides": kind == 2}
            yield Case("MatMulFpQ4", f"{kind}, {n} x {k}", operands, **more)


def selections() -> Iterator[Case]:
    name = "GatherBlockQuantized"
    for dtype in ("int4", "uint4"):
        for shape, gather, along in (
            ((5, 32), 0, 1),
            ((5, 33), 0, 1),
            ((32, 5), 1, 0),
            ((3, 4, 32), 1, 2),
            ((3, 32, 4), 0, 1),
            ((3, 16), 0, -1),
        ):
            codes = whole(shape, np.int8) % 16
            codes = (codes - 8 if dtype == "int4" else codes).astype(
                ml_dtypes.int4 if dtype == "int4" else ml_dtypes.uint4
            )
            counts = list(shape)
            counts[along] = -(-shape[along] // 16)
            scales = _positive(counts)
            points = (integers(counts, np.int8, 2, 0, 7)).astype(codes.dtype)
            attributes = {"gather_axis": gather, "quantize_axis": along, "block_size": 16}
            size = shape[gather]
            for places in (
                np.array([[0, 1], [size - 1, -1]]),
                np.array(1, np.int32),
                np.array([0, size, -size - 1, 2]),
            ):
                label = f"{dtype} {list(shape)} {gather} {along} {places.ravel().tolist()}"
                operands = [fixed(codes), fed(places), fixed(scales)]
                yield Case(name, label, operands, ["f4"], attributes)
                yield Case(name, f"{label} points", [*operands, fixed(points)], ["f4"], attributes)
            fixed_places = [fixed(codes), fixed([0, 1]), fixed(scales), fixed(points)]
            yield Case(name, f"{dtype} {list(shape)} {gather} fixed", fixed_places, ["f4"], attributes)
            half = [fixed(codes), fed([0, 1]), fixed(scales.astype(np.float16)), fixed(points)]
            yield Case(name, f"{dtype} {list(shape)} {gather} float16", half, [np.float16], attributes)
    for bits in (2, 4, 8):
        for shape, along in (((5, 32), 1), ((5, 48), 1), ((3, 4, 64), 2), ((3, 32, 8), 1)):
            packed = whole((*shape[:-1], shape[-1] * bits // 8), np.uint8)
            counts = list(shape)
            counts[along] = -(-shape[along] // 16)
            scales = _positive(counts)
            points = whole((*counts[:-1], -(-counts[-1] * bits // 8)), np.uint8, 2)
            attributes = {"quantize_axis": along, "block_size": 16, "bits": bits}
            operands = [fixed(packed), fed([[0, 2], [-1, 1]]), fixed(scales)]
            label = f"{bits} bits {list(shape)} {along}"
            yield from forms(Case(name, label, operands, ["f4"], attributes))
            yield from forms(Case(name, f"{label} points", [*operands, fixed(points)], ["f4"], attributes))
            yield Case(name, f"{label} out of range", [operands[0], fed([9, 0, -9]), operands[2]], ["f4"], attributes)
    for dtype in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float4_e2m1fn"):
        data = normal((5, 32)).astype(getattr(ml_dtypes, dtype))
        for size, counts in ((16, (5, 2)), (0, (5, 1)), (16, (1, 2)), (32, (5, 1))):
            operands = [fixed(data), fed([0, 4, 9]), fixed(_positive(counts))]
            attributes = {"quantize_axis": 1, "block_size": size}
            yield Case(name, f"{dtype} {size} {list(counts)}", operands, ["f4"], attributes)


CASES = [*products(), *wrong_products(), *four_bit_floats(), *selections()]
