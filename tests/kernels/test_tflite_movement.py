"""Resizing, joining and folding against results of TFLite's reference kernels (LiteRT 2.3.0, BUILTIN_REF)."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from interposer.core.codec import array_from_plain, info_from_plain
from interposer.core.schema import Op
from interposer.kernels import evaluate

CASES = json.loads(gzip.decompress(Path(__file__).with_name("tflite_movement.json.gz").read_bytes()))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_elements_are_those_of_tflite_bit_for_bit(case):
    arrays = [array_from_plain(plain) for plain in case["arrays"]]
    infos = [info_from_plain(plain) for plain in case["inputs"]]
    [result] = evaluate(Op.from_plain(case["op"]), arrays, infos, [info_from_plain(case["output"])])
    np.testing.assert_array_equal(result, array_from_plain(case["expected"]), strict=True)
