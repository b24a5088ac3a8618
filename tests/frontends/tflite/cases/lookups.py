"""Cases of lookups, scatter operators, segments and hashing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.frontends.tflite.cases.case import Case, Operand, case, fed, fixed, numbers
from tests.frontends.tflite.one_operator import T


def sparse_to_dense() -> Iterator[Case]:
    for dtype in ("float32", "int32", "int64", "int8", "uint8"):
        for index in ("int32", "int64"):
            default, label = fixed(7, dtype), f"{dtype} {index}"
            rows, shape = fed([[0, 1], [2, 2], [3, 0]], index), fixed([4, 3], index)
            values = fed([1, 2, 3], dtype)
            yield case("SPARSE_TO_DENSE", f"rows {label}", [rows, shape, values, default], [T((4, 3), dtype)])
            one, size, value = fed([1, 4, 6], index), fed([9], index), fed(3, dtype)
            yield case("SPARSE_TO_DENSE", f"computed shape {label}", [one, size, value, default], [T((9,), dtype)])
            scalar = fixed(2, index)
            yield case(
                "SPARSE_TO_DENSE", f"scalar {label}", [scalar, fixed([4], index), value, default], [T((4,), dtype)]
            )
    inputs = [fixed([[0, 1, 2, 0]]), fixed([1, 2, 3, 4]), fed([5.0], "float32"), fixed(0.0, "float32")]
    yield case("SPARSE_TO_DENSE", "four axes", inputs, [T((1, 2, 3, 4))])
    worked = [fixed([1, 3]), fixed([5]), fed([10, 20], "int32"), fixed(-1)]
    yield case("SPARSE_TO_DENSE", "worked", worked, [T((5,), "int32")], expected=[[-1, 10, -1, 20, -1]])


def segments() -> Iterator[Case]:
    for dtype in ("float32", "int32"):
        data = numbers((6, 2, 3), dtype)
        for ids in ([0, 0, 1, 1, 3, 3], [0] * 6, [2, 2, 2, 3, 3, 4]):
            output = [T((max(ids) + 1, 2, 3), dtype)]
            for operand in (fed(ids, "int32"), fixed(ids)):
                label = f"{dtype} {ids} {'fixed' if operand.fixed else 'fed'}"
                yield case("SEGMENT_SUM", label, [fed(data), operand], output)
        for name in ("SUM", "PROD", "MAX", "MIN"):
            for ids in ([0, 3, 1, 1, -1, 3], [0] * 6, [5, 4, 3, 2, 1, 0]):
                inputs = [fed(data), fed(ids, "int32"), fixed(6)]
                yield case(f"UNSORTED_SEGMENT_{name}", f"{dtype} {ids}", inputs, [T((6, 2, 3), dtype)])
            inputs = [fed(data), fed(numbers((6, 2), "int32", 1, 0, 3)), fixed(4)]
            yield case(f"UNSORTED_SEGMENT_{name}", f"{dtype} of two axes", inputs, [T((4, 3), dtype)])
    ids = fixed([2, 0, 2])
    for name, expected in (("SUM", [[2], [0], [4]]), ("PROD", [[2], [1], [3]]), ("MAX", [[2], [-(2**31)], [3]]),
                           ("MIN", [[2], [2**31 - 1], [1]])):  # fmt: skip
        inputs = [fed([[1], [2], [3]], "int32"), ids, fixed(3)]
        yield case(f"UNSORTED_SEGMENT_{name}", "worked", inputs, [T((3, 1), "int32")], expected=[expected])
    inputs = [fed([[1.0], [2.0], [4.0]], "float32"), fed([0, 0, 2], "int32")]
    yield case("SEGMENT_SUM", "worked", inputs, [T((3, 1))], expected=[[[3], [0], [4]]])


def buckets() -> Iterator[Case]:
    options = ("BucketizeOptions", {"boundaries": [0, 3, 10, 10, 50]})
    for dtype in ("float32", "float64", "int32", "int64"):
        x = fed([[-5, 0, 1, 100], [3, 10, 11, 2]], dtype)
        expected = [[[0, 1, 1, 5], [2, 4, 4, 1]]]
        yield case("BUCKETIZE", dtype, [x], [T((2, 4), "int32")], options, expected=expected)
        yield case("BUCKETIZE", f"{dtype} scalar", [fed(3, dtype)], [T((), "int32")], options)
        none = ("BucketizeOptions", {"boundaries": []})
        yield case("BUCKETIZE", f"{dtype} without boundaries", [x], [T((2, 4), "int32")], none)
    yield case("BUCKETIZE", "NaN", [fed([np.nan], "float32")], [T((1,), "int32")], options)


def tables() -> Iterator[Case]:
    for dtype in ("float32", "int32", "uint8", "int8"):
        inputs = [fed([1, 5, 2, 9], "int32"), fed([2, 5, 9], "int32"), fed(numbers((3, 2), dtype, low=1))]
        yield case("HASHTABLE_LOOKUP", dtype, inputs, [T((4, 2), dtype), T((4,), "uint8")])
    inputs = [fed([5, 1], "int32"), fed([2, 5], "int32"), fed([[1, 2], [3, 4]], "int32")]
    expected = [[[3, 4], [0, 0]], [1, 0]]
    outputs = [T((2, 2), "int32"), T((2,), "uint8")]
    yield case("HASHTABLE_LOOKUP", "worked", inputs, outputs, expected=expected)


def hashes() -> Iterator[Case]:
    seeds = fixed([[0.123, 0.456], [-0.321, 1.234], [5.678, -4.321]], "float32")
    weights = fed([0.12, 0.34, -0.56, 0.67, 0.78], "float32")
    for kind, size in ((1, 3), (2, 6)):
        options = ("LSHProjectionOptions", {"type": kind})
        for dtype in ("int32", "float32", "uint8"):
            x = fed(numbers((5, 2), dtype, low=0))
            yield case("LSH_PROJECTION", f"{kind} {dtype}", [seeds, x], [T((size,), "int32")], options)
            yield case(
                "LSH_PROJECTION", f"{kind} {dtype} weighted", [seeds, x, weights], [T((size,), "int32")], options
            )
    worked = [fixed([[0.1, 0.2], [0.3, 0.4]], "float32"), fed([[1, 2], [3, 4]], "int32")]
    options = ("LSHProjectionOptions", {"type": 1})
    yield case("LSH_PROJECTION", "worked", worked, [T((2,), "int32")], options, expected=[[1, 4]])


def sparse_lookups() -> Iterator[Case]:
    table = fed(numbers((4, 3, 2)))
    ids, weights = fed([1, 3, 0], "int32"), fed([1, 2, 4], "float32")
    for combiner in (0, 1, 2):
        options = ("EmbeddingLookupSparseOptions", {"combiner": combiner})
        places, shape = fed([[0, 0], [2, 0], [2, 1]], "int32"), fed([3, 2], "int32")
        inputs = [ids, places, shape, weights, table]
        yield case("EMBEDDING_LOOKUP_SPARSE", f"{combiner}", inputs, [T((3, 3, 2))], options)
        places, shape = fed([[0, 0, 0], [2, 0, 0], [2, 0, 1]], "int32"), fixed([3, 2, 2])
        inputs = [ids, places, shape, weights, table]
        yield case("EMBEDDING_LOOKUP_SPARSE", f"{combiner} of rank 3", inputs, [T((3, 2, 3, 2))], options)
    rows = [
        fixed([0, 1]),
        fixed([[1, 0], [1, 1]]),
        fixed([2, 2]),
        fed([1, 3], "float32"),
        fed([[4.0], [8.0]], "float32"),
    ]
    for combiner, value in ((0, 28.0), (1, 7.0), (2, 28 / 10**0.5)):
        options = ("EmbeddingLookupSparseOptions", {"combiner": combiner})
        expected = [[[0.0], [value]]]
        yield case("EMBEDDING_LOOKUP_SPARSE", f"{combiner} worked", rows, [T((2, 1))], options, expected=expected)


def shapes() -> Iterator[Case]:
    pairs = [([1, 2, 3], [2, 1]), ([4], [5, 1, 1]), ([], [2, 3]), ([1, 1, 5], [2, 3, 1]), ([0], [1])]
    for dtype in ("int32", "int64"):
        for a, b in pairs:
            output = [T((max(len(a), len(b)),), dtype)]
            expected = [np.broadcast_shapes(a, b)]
            both = [fed(a, dtype), fed(b, dtype)]
            yield case("BROADCAST_ARGS", f"{dtype} {a} {b}", both, output, expected=expected)
            both = [fixed(a, dtype), fixed(b, dtype)]
            yield case("BROADCAST_ARGS", f"{dtype} {a} {b} known", both, output)


def grams() -> Iterator[Case]:
    texts = ["The quick\t brown fox jumps!", "a b", " leading space here", " alone", "a", "", "trailing  ", "a  b c "]
    for text in texts:
        for size, skipped, shorter in ((1, 0, False), (2, 0, False), (2, 1, True), (3, 2, False), (3, 1, True)):
            options = ("SkipGramOptions", dict(ngram_size=size, max_skip_size=skipped, include_all_ngrams=shorter))
            label = f"{text!r} {size} {skipped} {shorter}"
            yield case("SKIP_GRAM", label, [Operand(np.array([text], object))], [T((0,), "string")], options)
    options = ("SkipGramOptions", {"ngram_size": 2, "max_skip_size": 1})
    inputs, expected = [Operand(np.array(["a b c"], object))], [["a b", "a c", "b c"]]
    yield case("SKIP_GRAM", "worked", inputs, [T((0,), "string")], options, expected=expected)


CASES = [
    *sparse_to_dense(), *segments(), *buckets(), *tables(), *hashes(), *sparse_lookups(), *shapes(), *grams(),
]  # fmt: skip
