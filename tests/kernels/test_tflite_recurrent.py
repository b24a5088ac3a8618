"""Recurrent layers against results recorded from TFLite's reference kernels, several runs one after the other.

They are those of LiteRT 2.3.0, on random weights and inputs; the states of a run are those that the run before it left.
Integers must be the same bit for bit. A case holds an operator, the infos of its operands, its constants, which state
goes where, and for every run the inputs and what TFLite gave. Left out is what TFLite computes wrongly: integers with
peephole and a projection to another number of outputs, float LSTMs without an activation function, and where the batch
comes first both directions' outputs merged (LSTM) or an auxiliary input for the backward direction (RNN).
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

CASES = json.loads(gzip.decompress(Path(__file__).with_name("tflite_recurrent.json.gz").read_bytes()))


def zero(info):
    return np.full(tuple(info.shape), info.zero_point, info.dtype.numpy)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_every_run_gives_what_tflite_gave(case):
    op = Op.from_plain(case["op"])
    known = {name: info_from_plain(plain) for name, plain in case["infos"].items()}
    infos = [known.get(declared.name) for declared in op.operands]
    arrays = {name: array_from_plain(plain) for name, plain in case["constants"].items()}
    arrays |= {name: zero(known[name]) for name in case["states"]}
    assert op.violations(*infos) == []
    names = [op.result_name(index) for index in range(op.num_results())]
    results = dict(zip(names, op.infer_infos(*infos), strict=True))
    results |= {name: info_from_plain(plain) for name, plain in case["results"].items()}
    for step in case["steps"]:
        arrays |= {name: array_from_plain(plain) for name, plain in step["inputs"].items()}
        value = [arrays.get(declared.name) for declared in op.operands]
        result = dict(zip(names, evaluate(op, value, infos, list(results.values())), strict=True))
        arrays |= {into: result[out] for into, out in case["states"].items()}
        for name, plain in step["expected"].items():
            tolerance = case["tolerance"]
            np.testing.assert_allclose(result[name], array_from_plain(plain), rtol=tolerance, atol=tolerance)
