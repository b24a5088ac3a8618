"""Every sample of the conformance kit that TFLite can express gives in LiteRT what `load` gives for the same file."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import InterposerError, UnwritableError
from interposer.testing.tolerances import Tolerances
from interposer.writers.tflite import write
from tests.bridges.litert.hosting import delegate, interpreter, last_report, run
from tools.tflite_writer import operators, ordinary_samples

OPERATORS = operators()
BACKENDS = ("CpuAcc", "CpuRef")
FEW = 2


def judged(sample, taker):
    """Return what is wrong with a sample in LiteRT, and the number of nodes that were taken of it."""
    network, feeds = sample.network()
    arrays = [feeds[layer.op.binding_id] for layer in network.graph.inputs]
    try:
        content = write(network)
        wanted = ip.load(content, BACKENDS).run(arrays)
    except (UnwritableError, InterposerError):
        return "", 0
    try:
        found = run(interpreter(content, [taker]), arrays)
    except (ValueError, RuntimeError) as error:
        return ("" if refuses(content, arrays, wanted, error) else str(error)), 0
    if sample.statistical or not last_report().taken:
        return "", len(last_report().taken)
    pairs = [(*alike(a, np.asarray(b)), o) for a, b, o in zip(found, wanted, network.outputs.values(), strict=True)]
    differences = (Tolerances(steps=0).difference(a, b, output.values[0].known) for a, b, output in pairs)
    return next(filter(None, differences), ""), len(last_report().taken)


def refuses(content, arrays, wanted, error) -> bool:
    """Return True if LiteRT alone fails too: it has not all operators for all types, and reads no empty results."""
    if str(error) == "Invalid tensor size." and not all(output.size for output in wanted):
        return True
    try:
        run(interpreter(content), arrays)
    except (ValueError, RuntimeError):
        return True
    return False


def alike(found, wanted):
    """Return both arrays in one type, as LiteRT has no type of NumPy for 8-bit floats, and returns texts as bytes."""
    if wanted.dtype == object:
        return np.vectorize(bytes.decode, otypes="O")(found) if found.size else found, wanted
    return found.view(wanted.dtype) if found.dtype == np.int8 else found, wanted


def problems(name, step):
    taker = delegate(backends=",".join(BACKENDS), min_nodes="1")
    judgements = {sample.id: judged(sample, taker) for sample in ordinary_samples(OPERATORS[name])[::step]}
    return {id: text for id, (text, _) in judgements.items() if text}


@pytest.mark.needs_cpuref
@pytest.mark.parametrize("name", list(OPERATORS)[::4])
def test_some_samples_of_an_operator_give_what_load_gives(name):
    assert problems(name, max(1, len(ordinary_samples(OPERATORS[name])) // FEW)) == {}


@pytest.mark.slow
@pytest.mark.needs_cpuref
@pytest.mark.parametrize("name", OPERATORS)
def test_all_samples_of_an_operator_give_what_load_gives(name):
    assert problems(name, 1) == {}
