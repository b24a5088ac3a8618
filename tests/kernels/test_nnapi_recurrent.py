"""Recurrent layers on the cases of NNAPI, with the tolerances that come with them.

The tables below give, for every operation, the operand of ours at each place of NNAPI's inputs; a text in capitals is
an attribute, read by `ATTRIBUTES`.
"""

from __future__ import annotations

import numpy as np
import pytest

from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.kernels import evaluate
from interposer.ops import (
    BidirectionalSequenceLstm,
    BidirectionalSequenceRnn,
    FusedActivation,
    Lstm,
    QLstm,
    QuantizedLstm,
    Rnn,
    Svdf,
    UnidirectionalSequenceLstm,
    UnidirectionalSequenceRnn,
)
from tests.published_cases import nnapi_cases

GATES = ("input", "forget", "cell", "output")
TYPES = {
    "TENSOR_FLOAT32": "float32",
    "TENSOR_FLOAT16": "float16",
    "TENSOR_INT32": "int32",
    "TENSOR_QUANT8_ASYMM": "uint8",
    "TENSOR_QUANT8_ASYMM_SIGNED": "int8",
    "TENSOR_QUANT8_SYMM": "int8",
    "TENSOR_QUANT16_SYMM": "int16",
}

MATRICES = [f"{kind}_to_{gate}_weights" for kind in ("input", "recurrent") for gate in GATES]
BIASES = ["input_gate_bias", "forget_gate_bias", "cell_bias", "output_gate_bias"]
PEEPHOLES = [f"cell_to_{gate}_weights" for gate in GATES if gate != "cell"]
CELL = [*MATRICES, *PEEPHOLES, *BIASES, "projection_weights", "projection_bias"]
NORMS = [f"{gate}_layer_norm_weights" for gate in GATES]
STATES = ["output_state_in", "cell_state_in"]
RNN = ["weights", "recurrent_weights", "bias", "hidden_state_in"]
CLIPS = ["ACTIVATION_FUNC", "CLIPPING_THRES_CELL", "CLIPPING_THRES_PROJ"]
SCALES = [f"{gate.upper()}_INTERMEDIATE_SCALE" for gate in GATES]
HIDDEN = ["HIDDEN_STATE_ZERO_POINT", "HIDDEN_STATE_SCALE"]


def both(names: list[str]) -> list[str]:
    return [f"{direction}_{name}" for direction in ("forward", "backward") for name in names]


INPUTS = {
    "LSTM": (Lstm, ["input", *CELL, *STATES, *CLIPS, *NORMS]),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (
        UnidirectionalSequenceLstm,
        ["input", *CELL, *STATES, *CLIPS, "TIME_MAJOR", *NORMS],
    ),
    "BIDIRECTIONAL_SEQUENCE_LSTM": (
        BidirectionalSequenceLstm,
        ["input", *both(CELL), *both(STATES), "aux_input", *both([f"aux_input_to_{gate}_weights" for gate in GATES]),
         *CLIPS, "MERGE_OUTPUTS", "TIME_MAJOR", *both(NORMS)],
    ),
    "RNN": (Rnn, ["input", *RNN, "ACTIVATION_FUNC"]),
    "UNIDIRECTIONAL_SEQUENCE_RNN": (UnidirectionalSequenceRnn, ["input", *RNN, "ACTIVATION_FUNC", "TIME_MAJOR"]),
    "BIDIRECTIONAL_SEQUENCE_RNN": (
        BidirectionalSequenceRnn,
        ["input", *both(RNN), "aux_input", *both(["aux_weights"]), "ACTIVATION_FUNC", "TIME_MAJOR", "MERGE_OUTPUTS"],
    ),
    "SVDF": (Svdf, ["input", "weights_feature", "weights_time", "bias", "state_in", "RANK", "ACTIVATION_FUNC"]),
    "QUANTIZED_LSTM": (
        QLstm, ["input", *CELL, *STATES, *NORMS, "CELL_CLIP", "PROJECTION_CLIP", *SCALES, *HIDDEN],
    ),
    "QUANTIZED_16BIT_LSTM": (QuantizedLstm, ["input", *MATRICES, *BIASES, "cell_state_in", "output_state_in"]),
}  # fmt: skip
ATTRIBUTES = {"ACTIVATION_FUNC": FusedActivation, "TIME_MAJOR": bool, "MERGE_OUTPUTS": bool}
FLAGS = {
    "cifg_enabled": ("input_to_input_weights", False),
    "peephole_enabled": ("cell_to_output_weights", True),
    "projection_enabled": ("projection_weights", True),
    "layer_norm_enabled": ("output_layer_norm_weights", True),
}


ABSENT = pytest.mark.skip(reason="the cases of NNAPI are missing: shared/conformance beside the checkout")
RECURRENT = [case for case in nnapi_cases() if case["operations"][0]["op"] in INPUTS and not case["fail"]]
CASES = RECURRENT or [pytest.param({"test": "absent"}, marks=ABSENT)]


def given(operand: dict) -> bool:
    return operand["lifetime"] != "NO_VALUE" and bool(operand.get("data"))


def array_of(operand: dict) -> np.ndarray:
    return np.array(operand["data"], DataType.of(TYPES[operand["type"]]).numpy).reshape(operand["dims"])


def info_of(operand: dict) -> TensorInfo:
    q = Quantization(operand["scale"], operand.get("zero_point") or 0) if "QUANT" in operand["type"] else None
    return TensorInfo(operand["dims"], TYPES[operand["type"]], q)


def read(case: dict):
    """The operator, its arrays and infos by name."""
    [operation] = case["operations"]
    cls, names = INPUTS[operation["op"]]
    operands = dict(zip(names, (case["operands"][index] for index in operation["in"]), strict=False))
    there = {name: operand for name, operand in operands.items() if given(operand)}
    attributes = {
        name.lower(): ATTRIBUTES.get(name, lambda x: x)(operand["data"][0])
        for name, operand in there.items()
        if name.isupper()
    }
    flags = {flag: (name in there) == expected for flag, (name, expected) in FLAGS.items() if flag in cls.attributes}
    tensors = {name: operand for name, operand in there.items() if not name.isupper()}
    return cls(**attributes, **flags), tensors


def nnapi_order(op) -> list[str]:
    """Our results in the order of NNAPI's outputs."""
    names = [op.result_name(index) for index in range(op.num_results())]
    if names[-1] == "backward_output":
        names.insert(1, names.pop())
    return names


def tolerances(case: dict, operand: dict) -> tuple[float, float]:
    if "FLOAT" not in operand["type"]:
        return 1, 0
    half = case["relaxed"] or any("FLOAT16" in each["type"] for each in case["operands"])
    return (5 * 2**-10, 5 * 2**-10) if half else (1e-5, 5 * 2**-23)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["test"])
def test_a_case_of_nnapi_gives_what_is_expected(case):
    op, tensors = read(case)
    operands = [tensors.get(declared.name) for declared in op.operands]
    infos = [None if operand is None else info_of(operand) for operand in operands]
    arrays = [None if operand is None else array_of(operand) for operand in operands]
    assert op.violations(*infos) == []
    results = op.infer_infos(*infos)
    names = [op.result_name(index) for index in range(len(results))]
    result = dict(zip(names, evaluate(op, arrays, infos, results), strict=True))
    expected = [case["operands"][index] for index in case["operations"][0]["out"]]
    for name, operand in zip(nnapi_order(op), expected, strict=False):
        atol, rtol = tolerances(case, operand)
        assert result[name].dtype == DataType.of(TYPES[operand["type"]]).numpy
        assert list(result[name].shape) == operand["dims"]
        if not operand.get("ignored"):
            requested = array_of(operand).astype(np.float64)
            np.testing.assert_allclose(result[name].astype(np.float64), requested, rtol=rtol, atol=atol)
