"""Kernels may be given an output that lies in an input's memory, where the operator says so, and arrays with gaps."""

from __future__ import annotations

import numpy as np
import pytest

from interposer import ops
from interposer.core.schema import Op
from interposer.core.types import DataType, TensorInfo
from interposer.kernels import reference
from interposer.kernels.table import KernelInfo, empty
from interposer.testing.known_samples import sampled_ops, samples_of
from interposer.testing.tolerances import Tolerances, same

EVERY = [getattr(ops, name) for name in ops.__all__] if hasattr(ops, "__all__") else list(vars(ops).values())
KINDS = sorted(
    {item for item in EVERY if isinstance(item, type) and issubclass(item, Op)}, key=lambda item: item.__name__
)
WITH_SAMPLES = [kind for kind in KINDS if kind.executable and kind in {*sampled_ops()}]


def prepared(sample):
    """Return the layer's operator, its kernel's info, the kernel and the arrays; None if shapes depend on data."""
    network, _ = sample.network()
    layer = network.graph.layer("layer")
    infos = [value.known for value in (*layer.values, *layer.outputs)]
    plain = all(info.is_concrete and (info.dtype.bits or info.dtype is DataType.STRING) for info in infos)
    if sample.statistical or not plain:
        return None
    info = KernelInfo.of(layer.op, layer.input_infos, layer.output_infos)
    kernel = reference().find(layer.op, info)
    return None if kernel is None else (layer.op, info, kernel, sample.arrays())


def results(op, info, kernel, arrays, out):
    kernel.call(op, arrays, info, out, kernel.make_ready(op, info))
    return out


@pytest.mark.parametrize(
    "kind", [with_sample for with_sample in WITH_SAMPLES if with_sample.in_place], ids=lambda item: item.__name__
)
def test_an_output_may_overwrite_the_inputs_that_the_operator_names(kind):
    tried = 0
    for sample in samples_of(kind):
        result = prepared(sample)
        if result is None or len(result[1].outputs) != 1:
            continue
        op, info, kernel, arrays = result
        [expected] = results(op, info, kernel, arrays, [empty(info.output)])
        for name in op.in_place:
            index = info.names.index(name)
            value = None if index >= len(arrays) or arrays[index] is None else np.asarray(arrays[index])
            if value is None or value.size != expected.size or value.dtype.itemsize != expected.dtype.itemsize:
                continue
            mine = value.copy(order="C")
            out = (mine if expected.dtype.kind == "O" else mine.view(expected.dtype)).reshape(expected.shape)
            operands = [mine if i == index else array for i, array in enumerate(arrays)]
            results(op, info, kernel, operands, [out])
            assert same(out, expected), f"{sample.id} over {name}"
            tried += 1
    assert tried


def with_gaps(array):
    """The array as a piece of one that is larger along every axis."""
    if array is None or not np.ndim(array):
        return array
    larger = np.empty([dim + 2 for dim in array.shape], array.dtype)
    piece = larger[tuple(slice(1, dim + 1) for dim in array.shape)]
    piece[...] = array
    return piece


@pytest.mark.parametrize("kind", WITH_SAMPLES, ids=lambda item: item.__name__)
def test_arrays_may_have_gaps_between_their_rows(kind):
    for sample in list(samples_of(kind))[::3]:
        result = prepared(sample)
        if result is None:
            continue
        op, info, kernel, arrays = result
        expected = results(op, info, kernel, arrays, [empty(output) for output in info.outputs])
        targets = [with_gaps(empty(output)) for output in info.outputs]
        results(op, info, kernel, list(map(with_gaps, arrays)), targets)
        for expected_array, target in zip(expected, targets, strict=True):
            assert Tolerances().difference(target, expected_array, TensorInfo.of(expected_array)) is None, sample.id
