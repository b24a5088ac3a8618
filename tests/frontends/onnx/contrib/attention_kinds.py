"""Cases of Attention, MultiHeadAttention and RotaryEmbedding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.frontends.onnx.contrib.case import Case, Operand, fed, fixed, forms, integers, normal, whole

FLOAT = np.float32


def numbers(*shape: int, seed: int = 0, dtype: Any = FLOAT) -> Operand:
    return fed(normal(shape, dtype, seed))


def past(length: int, seed: int = 5, size: int = 8) -> list[Operand]:
    return [numbers(2, 2, length, size, seed=seed), numbers(2, 2, length, size, seed=seed + 1)]


# ---- Attention -------------------------------------------------------------------------------------------------------

X, WEIGHTS, BIAS = numbers(2, 3, 12), fixed(normal((12, 48), seed=1)), fixed(normal((48,), seed=2))


def projected(label: str, *rest: Operand | None, outputs: Sequence[Any] = (FLOAT,), **attributes: Any) -> Case:
    """Return a case of Attention with two heads of eight elements."""
    return Case("Attention", label, [X, WEIGHTS, BIAS, *rest], outputs, {"num_heads": 2, **attributes})


def attentions() -> Iterator[Case]:
    yield from forms(projected("plain"))
    yield from forms(projected("unidirectional", unidirectional=1))
    yield projected("scale", scale=0.7)
    yield projected("present", outputs=(FLOAT, FLOAT))
    weights, bias = fixed(normal((12, 44), seed=1)), fixed(normal((44,), seed=2))
    sizes = Case("Attention", "sizes", [X, weights, bias], (), {"num_heads": 2, "qkv_hidden_sizes": [16, 16, 12]})
    yield from forms(sizes)
    yield replace(sizes, label="wrong sizes", attributes={"num_heads": 2, "qkv_hidden_sizes": [16, 12, 16]})
    yield replace(sizes, label="sizes with present", outputs=(FLOAT, FLOAT), refused=True)
    yield replace(sizes, label="heads that do not divide", attributes={"num_heads": 5}, refused=True)
    for keys, steps in ((3, 0), (7, 4)):
        yield from _masked_attentions(keys, [None, fed(normal((2, 2, 2, steps, 8), seed=4))] if steps else [None, None])
    yield projected("past", None, fed(normal((2, 2, 2, 4, 8))), outputs=(FLOAT, FLOAT))
    yield projected("past unidirectional", None, fed(normal((2, 2, 2, 4, 8))), outputs=(FLOAT, FLOAT), unidirectional=1)
    yield replace(projected("past without present", None, fed(normal((2, 2, 2, 4, 8)))), overrides=True)
    yield projected("past of wrong rank", None, fed(normal((2, 2, 4, 8))), outputs=(FLOAT, FLOAT))
    for shape in ((1, 1, 3, 3), (2, 2, 3, 3), (1, 2, 3, 3), (2, 1, 3, 3), (1, 1, 1, 3), (3, 3)):
        yield projected(f"attention_bias {list(shape)}", None, None, fed(normal(shape)))
    both = (fed([[1, 1, 0], [0, 1, 1]], np.int32), None, fed(normal((1, 2, 3, 3))))
    yield projected("mask and attention_bias", *both, unidirectional=1)
    yield projected("rotary", do_rotary=1)


def _masked_attentions(keys: int, rest: list[Operand | None]) -> Iterator[Case]:
    given, title = rest[1], f"{keys} keys"
    outputs = (FLOAT,) if given is None else (FLOAT, FLOAT)
    for shape in ((2,), (4,), (8,), (1,), (2, keys), (2, 3, keys), (2, 1), (1, keys), (2, 3 - keys % 2)):
        high = keys if len(shape) == 1 else 1
        mask = fed(integers(shape, np.int32, high=high))
        for attributes in ({}, {"unidirectional": 1}, {"mask_filter_value": -3.0}):
            label = f"{title}, mask {list(shape)} {' '.join(attributes)}".rstrip()
            yield projected(label, mask, *([given] if given is not None else []), outputs=outputs, **attributes)
    whole = fed(integers((2, 1, 9, 9), np.int32, high=1))
    rows = projected(f"{title}, mask [2, 1, 9, 9]", whole, *rest[1:], outputs=outputs)
    yield replace(rows, overrides=True)


# ---- MultiHeadAttention ----------------------------------------------------------------------------------------------

QUERY, KEY, VALUE = (numbers(2, length, 16, seed=n) for n, length in enumerate((3, 5, 5)))
NEW_KEY, NEW_VALUE = numbers(2, 3, 16, seed=3), numbers(2, 3, 16, seed=4)


def heads(label: str, *operands: Operand | None, outputs: Sequence[Any] = (FLOAT,), **attributes: Any) -> Case:
    """Return a case of MultiHeadAttention with two heads."""
    return Case("MultiHeadAttention", label, list(operands), outputs, {"num_heads": 2, **attributes})


def multi_heads() -> Iterator[Case]:
    all_results = (FLOAT,) * 3
    yield from forms(heads("plain", QUERY, KEY, VALUE))
    yield from forms(heads("bias", QUERY, KEY, VALUE, fixed(normal((48,)))))
    yield heads("wrong bias", QUERY, KEY, VALUE, fixed(normal((40,))))
    yield heads("scale", QUERY, KEY, VALUE, scale=0.7)
    yield heads("other size of values", QUERY, KEY, numbers(2, 5, 12), fixed(normal((44,))), outputs=all_results)
    yield heads("present", QUERY, KEY, VALUE, outputs=all_results)
    yield heads("scores", QUERY, KEY, VALUE, outputs=(*all_results, FLOAT))
    yield heads("scores and bias", QUERY, KEY, VALUE, None, None, numbers(2, 1, 3, 5), outputs=(FLOAT, "", "", FLOAT))
    yield heads("unidirectional", QUERY, NEW_KEY, NEW_VALUE, unidirectional=1)
    yield replace(heads("unidirectional across", QUERY, KEY, VALUE, unidirectional=1), refused=True)
    for shape in ((2,), (4,), (8,), (2, 5), (2, 3, 5), (2, 1, 5), (1, 5), (2, 3)):
        mask = fed(integers(shape, np.int32, high=5 if len(shape) == 1 else 1))
        for attributes in ({}, {"mask_filter_value": -2.0}):
            yield heads(
                f"mask {list(shape)} {' '.join(attributes)}".rstrip(), QUERY, KEY, VALUE, None, mask, **attributes
            )
    for shape in ((2, 1, 3, 5), (2, 2, 3, 5), (1, 2, 3, 5), (1, 1, 3, 5), (1, 1, 1, 5), (3, 5), (2, 2, 3, 1)):
        yield heads(f"attention_bias {list(shape)}", QUERY, KEY, VALUE, None, None, numbers(*shape))
    yield from _packed()
    across = (QUERY, numbers(2, 2, 5, 8, seed=6), numbers(2, 2, 5, 8, seed=7))
    yield heads("keys by heads", *across)
    yield heads("keys by heads, present", *across, outputs=all_results)
    yield heads("keys by heads, bias", *across, fixed(normal((48,))))
    yield heads("keys by heads, short bias", *across, fixed(normal((16,))))
    for attributes in ({}, {"unidirectional": 1}):
        title = " ".join(["past", *attributes])
        yield heads(title, QUERY, NEW_KEY, NEW_VALUE, None, None, None, *past(4), outputs=all_results, **attributes)
        mask = fed(integers((2, 7), np.int32, high=1))
        masked = (QUERY, NEW_KEY, NEW_VALUE, None, mask, numbers(1, 2, 3, 7), *past(4))
        yield heads(f"{title}, mask and attention_bias", *masked, outputs=all_results, **attributes)
    short = (QUERY, NEW_KEY, NEW_VALUE, None, fed(integers((2, 3), np.int32, high=1)), None, *past(4))
    yield heads("past, mask of new keys", *short, outputs=all_results)
    one = [numbers(2, 1, 16, seed=n) for n in range(3)]
    yield heads("one step", *one, None, None, None, *past(4), outputs=all_results)
    yield heads("without a key", QUERY)
    yield heads("without a value", QUERY, KEY)
    yield replace(heads("no heads", QUERY, KEY, VALUE), attributes={})


def _packed() -> Iterator[Case]:
    whole, pair = numbers(2, 3, 2, 3, 8), numbers(2, 5, 2, 2, 8)
    yield replace(heads("packed", whole), overrides=True)
    yield replace(heads("packed bias", whole, None, None, fixed(normal((48,)))), overrides=True)
    yield replace(heads("packed keys", QUERY, pair), overrides=True)
    yield heads("packed keys in threes", QUERY, whole)


# ---- RotaryEmbedding -------------------------------------------------------------------------------------------------

COS, SIN = fixed(normal((20, 4), seed=1)), fixed(normal((20, 4), seed=2))
IDS = fed([[3, 4, 5], [19, 1, 0]])


def rotary(label: str, x: Operand, ids: Operand = IDS, rotated: int = 4, **attributes: Any) -> Case:
    """Return a case of RotaryEmbedding with caches for 20 positions."""
    tables = [fixed(table.array[:, :rotated]) for table in (COS, SIN)]
    return Case("RotaryEmbedding", label, [x, ids, *tables], (), attributes)


def rotations() -> Iterator[Case]:
    flat, by_head = numbers(2, 3, 16), numbers(2, 2, 3, 8)
    for interleaved in (0, 1):
        for name, x in (("flat", flat), ("heads", by_head)):
            title = f"{name} {'interleaved' if interleaved else ''}".rstrip()
            yield from forms(rotary(title, x, interleaved=interleaved))
            yield from forms(rotary(f"{title} offset", x, fed([3]), interleaved=interleaved))
            part = {"num_heads": 2, "rotary_embedding_dim": 4, "interleaved": interleaved}
            yield rotary(f"{title} partial", x, rotated=2, **part)
            half = Case("RotaryEmbedding", f"{title} float16", [], (), {"interleaved": interleaved})
            operands = [fed(x.array, np.float16), IDS, *(fixed(t.array, np.float16) for t in (COS, SIN))]
            yield replace(half, inputs=operands)
    yield rotary("scalar offset", flat, fed(3))
    yield rotary("scale", flat, scale=0.5)
    yield rotary("packed batching", flat, is_packed_batching=1)
    yield rotary("heads", flat, num_heads=2)
    yield rotary("other heads", flat, num_heads=4)
    yield rotary("partial without heads", flat, rotated=2, rotary_embedding_dim=4)
    yield rotary("partial without its size", flat, rotated=2, num_heads=2)
    yield rotary("offset too large", flat, fed([18]))
    yield rotary("position too large", flat, fed([[3, 4, 5], [20, 1, 0]]))
    yield rotary("position below 0", flat, fed([[3, 4, 5], [-1, 1, 0]]))
    yield rotary("positions of one sample", flat, fed([[3, 4, 5]]))
    yield rotary("positions of other steps", flat, fed([[3, 4], [1, 2]]))


def multimodal_rotations() -> Iterator[Case]:
    ids, tables = integers((3, 2, 5), high=19), [fixed(normal((20, 8), seed=n)) for n in (1, 2)]

    def case(label: str, *shape: int, ids: Any = ids, **attributes: Any) -> Case:
        given = {"mrope_section": [4, 2, 2], "num_heads": 2, **attributes}
        return Case("MRotaryEmbedding", label, [numbers(*shape), fed(ids), *tables], (), given)

    for layout in (0, 1):
        for interleaved in (0, 1):
            title = f"layout {layout}{', interleaved' if interleaved else ''}"
            form = {"mrope_layout": layout, "interleaved": interleaved}
            yield from forms(case(f"{title}, flat", 2, 5, 32, **form))
            yield case(f"{title}, heads", 2, 2, 5, 16, **form)
            yield case(f"{title}, partial", 2, 5, 64, rotary_embedding_dim=16, **form)
        for sections in ([3, 3, 2], [8, 0, 0], [0, 0, 8], [2, 3, 3], [3, 3, 3], [9, -1, 0], [8]):
            yield case(f"layout {layout}, sections {sections}", 2, 5, 32, mrope_section=sections, mrope_layout=layout)
    yield case("unknown layout", 2, 5, 32, mrope_layout=2)
    yield case("without heads", 2, 5, 32, num_heads=0)
    yield case("position too large", 2, 5, 32, ids=ids + 19)
    yield case("positions of rank 2", 2, 5, 32, ids=ids[0])


# ---- DecoderMaskedMultiHeadAttention and QAttention ------------------------------------------------------------------


def steps() -> Iterator[Case]:
    one = [numbers(2, 1, 16, seed=n) for n in range(3)]
    caches, used, all_results = past(10), fed([4], np.int32), (FLOAT,) * 3

    def case(label: str, *operands: Operand | None, outputs: Sequence[Any] = (FLOAT,), **attributes: Any) -> Case:
        given = {"num_heads": 2, **attributes}
        return Case("DecoderMaskedMultiHeadAttention", label, list(operands), outputs, given, defined=_of_five_keys)

    share = {"outputs": all_results, "past_present_share_buffer": 1}
    yield case("no past", *one)
    yield case("cache", *one, None, None, *caches, used, **share)
    yield case("full cache", *one, None, None, *caches, fed([9], np.int32), **share)
    yield case("beyond the cache", *one, None, None, *caches, fed([10], np.int32), **share)
    yield case("cache and bias", *one, None, None, *caches, used, None, None, fixed(normal((48,))), **share)
    mask = fed([[1, 1, 0, 1, 1], [0, 0, 1, 1, 1]], np.int32)
    yield case("cache and mask", *one, mask, None, *caches, used, **share)
    yield case("cache and attention_bias", *one, None, numbers(1, 2, 1, 5), *caches, used, **share)
    yield case("cache that grows", *one, None, None, *past(4), outputs=all_results)
    across = (one[0], numbers(2, 2, 5, 8), numbers(2, 2, 5, 8, seed=3))
    yield case("across", *across)
    yield case("across with mask", *across, mask)
    yield case("across with scale", *across, scale=0.5)
    yield case("several steps", *(numbers(2, 3, 16, seed=n) for n in range(3)))


def _of_five_keys(results: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [results[0], *(cache[:, :, :5] for cache in results[1:])]


def quantized() -> Iterator[Case]:
    x, bias, scale = fed(whole((2, 3, 12))), fixed(normal((48,))), fixed(0.02, FLOAT)
    for dtype in (np.int8, np.uint8):
        weights = fixed(whole((12, 48), dtype, 1))
        middle = 128 if dtype is np.uint8 else 0
        points = [fixed(120, np.uint8), fixed(middle + 3, dtype)]

        def case(label: str, *rest: Operand | None, outputs: Sequence[Any] = (FLOAT,), **attributes: Any) -> Case:
            title, given = f"{np.dtype(dtype).name}, {label}", {"num_heads": 2, **attributes}  # noqa: B023
            operands = [x, weights, bias, scale, *rest]  # noqa: B023
            return Case("QAttention", title, operands, outputs, given, tolerance=1e-4)

        yield from forms(case("plain", scale, None, *points))
        yield case("no zero points", scale)
        columns = fixed(0.001 * np.arange(10, 58), FLOAT)
        yield case("scales of columns", columns, None, points[0], fixed(np.full(48, middle), dtype))
        yield case("wrong scales", fixed(np.ones(5), FLOAT), None, *points)
        yield case("unidirectional", scale, None, *points, unidirectional=1)
        yield case("lengths", scale, fed([2, 3], np.int32), *points)
        yield case("mask", scale, fed([[1, 0, 1], [0, 1, 1]], np.int32), *points)
        state = fed(normal((2, 2, 2, 4, 8), seed=4))
        yield case("past", scale, None, *points, state, outputs=(FLOAT, FLOAT), unidirectional=1)


CASES = [*attentions(), *multi_heads(), *rotations(), *multimodal_rotations(), *steps(), *quantized()]
