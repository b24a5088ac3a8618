"""Damaged models with ONNX Runtime's own operators: they are converted or refused, without any other exception."""

from __future__ import annotations

import random

import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from interposer.core.errors import InterposerError
from interposer.frontends.onnx import load
from tests.frontends.onnx.contrib.all_cases import CASES
from tests.parameters import slow_unless

NAMES = sorted({case.operator for case in CASES})
BY_NAME = {name: [case for case in CASES if case.operator == name] for name in NAMES}
NUMBERS = (0, -1, 1, 3, 7, 2**31, 2**62, -(2**63))
SHAPES = ([], [0], [1], [2, 3], ["a", 3], [1, 2, 3, 4], [2, "b", "c"])
DTYPES = (np.float32, np.int64, np.uint8, np.float16, np.int32)
VARIANTS, QUICK = 70, 3
"""The number of damaged models for each operator, and how many of them `make test` runs."""


def change_attribute(rng: random.Random, model: ModelProto, node: NodeProto) -> None:
    if not node.attribute:
        return
    attribute, number = rng.choice(node.attribute), rng.choice(NUMBERS)
    if attribute.type == AttributeProto.INT:
        attribute.i = number
    elif attribute.type == AttributeProto.INTS:
        attribute.ints[:] = rng.choice([[], [number], [number] * 4, [0, 0]])
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = rng.choice([float("nan"), float("inf"), -1, 0, 1e38])
    elif attribute.type == AttributeProto.STRING:
        attribute.s = b"odd"


def drop_attribute(rng: random.Random, model: ModelProto, node: NodeProto) -> None:
    if node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]


def drop_input(rng: random.Random, model: ModelProto, node: NodeProto) -> None:
    if node.input:
        del node.input[rng.randrange(len(node.input))]


def swap_input(rng: random.Random, model: ModelProto, node: NodeProto) -> None:
    if node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(["", *node.input])


def change_constant(rng: random.Random, model: ModelProto, node: NodeProto) -> None:
    if model.graph.initializer:
        tensor, shape = rng.choice(model.graph.initializer), rng.choice([(), (0,), (1,), (2, 3), (1, 2, 3, 4)])
        tensor.CopyFrom(numpy_helper.from_array(np.ones(shape, rng.choice(DTYPES)), tensor.name))


def change_shape(rng: random.Random, model: ModelProto, node: NodeProto) -> None:
    if model.graph.input:
        value, dtype = (
            rng.choice(model.graph.input),
            rng.choice([TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8]),
        )
        value.CopyFrom(helper.make_tensor_value_info(value.name, dtype, rng.choice(SHAPES)))


CHANGES = (change_attribute, drop_attribute, drop_input, swap_input, change_constant, change_shape)


def damaged(name: str, number: int) -> bytes:
    """Return one of the operator's models with changed bytes, or with one or two changes of its parts."""
    rng = random.Random(f"{name} {number}")
    model = rng.choice(BY_NAME[name]).model()
    if number % 3 == 0:
        data = bytearray(model.SerializeToString())
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data)
    [node] = [node for node in model.graph.node if node.name == "node"]
    for _ in range(rng.randint(1, 2)):
        rng.choice(CHANGES)(rng, model, node)
    return model.SerializeToString()


@pytest.mark.parametrize("number", slow_unless(lambda number: number < QUICK, range(VARIANTS)))
def test_damaged_models_are_converted_or_refused(number):
    for name in NAMES:
        try:
            load(damaged(name, number))
        except InterposerError:
            continue


def test_there_are_five_thousand_damaged_models():
    assert len(NAMES) * VARIANTS >= 5000
