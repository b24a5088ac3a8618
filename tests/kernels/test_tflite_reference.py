"""Quantized operators against results recorded from TFLite's reference kernels (those of LiteRT 2.3.0).

Every case holds an operator, its inputs, and what TFLite gave for them; the inputs are random, or all 8-bit integers.
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

CASES = json.loads(gzip.decompress(Path(__file__).with_name("tflite_reference.json.gz").read_bytes()))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_result_is_that_of_tflite_bit_for_bit(case):
    arrays = [array_from_plain(plain) for plain in case["arrays"]]
    infos = [info_from_plain(plain) for plain in case["inputs"]]
    [result] = evaluate(Op.from_plain(case["op"]), arrays, infos, [info_from_plain(case["output"])])
    np.testing.assert_array_equal(result, array_from_plain(case["expected"]), strict=True)
