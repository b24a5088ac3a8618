"""Quantized sums of products, pooling and requantization against results recorded from TFLite's reference kernels.

They are those of LiteRT 2.3.0, on random inputs, on sums close to where rounding turns, and on all 8-bit integers. A
case holds an operator, its inputs, activation functions that TFLite has fused into it, and what TFLite gave.
"""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import interposer.ops  # noqa: F401 - so that operators are known by name
from interposer.core.codec import array_from_plain, info_from_plain
from interposer.core.schema import Op
from interposer.kernels import evaluate

CASES = json.loads(gzip.decompress(Path(__file__).with_name("tflite_sums.json.gz").read_bytes()))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_result_is_that_of_tflite_bit_for_bit(case):
    arrays = [None if plain is None else array_from_plain(plain) for plain in case["arrays"]]
    infos = [None if plain is None else info_from_plain(plain) for plain in case["inputs"]]
    output = info_from_plain(case["output"])
    [result] = evaluate(Op.from_plain(case["op"]), arrays, infos, [output])
    for activation in case["then"]:
        [result] = evaluate(Op.from_plain(activation), [result], [output], [output])
    np.testing.assert_array_equal(result, array_from_plain(case["expected"]), strict=True)
