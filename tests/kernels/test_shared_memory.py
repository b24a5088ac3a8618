"""Kernels may be given an output that lies in an input's memory, where the operator says so, and arrays with gaps."""

from __future__ import annotations

import numpy as np
import pytest

from interposer import ops
from interposer.core.schema import Op
from interposer.core.types import DataType, TensorInfo
from interposer.kernels import reference
from interposer.kernels.table import KernelInfo, empty
from interposer.testing.sample import samples_of
from interposer.testing.tolerances import Tolerances, same

EVERY = [getattr(ops, name) for name in ops.__all__] if hasattr(ops, "__all__") else list(vars(ops).values())
KINDS = sorted({one for one in EVERY if isinstance(one, type) and issubclass(one, Op)}, key=lambda one: one.__name__)
WITH_SAMPLES = [one for one in KINDS if one.executable and samples_of(one)]


def prepared(sample):
    """The layer's operator, its kernel's info, the kernel and the arrays; None where shapes depend on data."""
    network, _ = sample.network()
    layer = network.graph.layer("layer")
    infos = [value.known for value in (*layer.values, *layer.outputs)]
    plain = all(one.is_concrete and (one.dtype.bits or one.dtype is DataType.STRING) for one in infos)
    if sample.statistical or not plain:
        return None
    info = KernelInfo.of(layer.op, layer.input_infos, layer.output_infos)
    kernel = reference().find(layer.op, info)
    return None if kernel is None else (layer.op, info, kernel, sample.arrays())


def results(op, info, kernel, arrays, out):
    kernel.call(op, arrays, info, out, kernel.make_ready(op, info))
    return out


@pytest.mark.parametrize("kind", [one for one in WITH_SAMPLES if one.in_place], ids=lambda one: one.__name__)
def test_an_output_may_overwrite_the_inputs_that_the_operator_names(kind):
    tried = 0
    for sample in samples_of(kind):
        found = prepared(sample)
        if found is None or len(found[1].outputs) != 1:
            continue
        op, info, kernel, arrays = found
        [wanted] = results(op, info, kernel, arrays, [empty(info.output)])
        for name in op.in_place:
            index = info.names.index(name)
            given = None if index >= len(arrays) or arrays[index] is None else np.asarray(arrays[index])
            if given is None or given.size != wanted.size or given.dtype.itemsize != wanted.dtype.itemsize:
                continue
            mine = given.copy(order="C")
            out = (mine if wanted.dtype.kind == "O" else mine.view(wanted.dtype)).reshape(wanted.shape)
            operands = [mine if i == index else array for i, array in enumerate(arrays)]
            results(op, info, kernel, operands, [out])
            assert same(out, wanted), f"{sample.id} over {name}"
            tried += 1
    assert tried


def with_gaps(array):
    """The array as a piece of one that is larger along every axis."""
    if array is None or not np.ndim(array):
        return array
    whole = np.empty([dim + 2 for dim in array.shape], array.dtype)
    piece = whole[tuple(slice(1, dim + 1) for dim in array.shape)]
    piece[...] = array
    return piece


@pytest.mark.parametrize("kind", WITH_SAMPLES, ids=lambda one: one.__name__)
def test_arrays_may_have_gaps_between_their_rows(kind):
    for sample in list(samples_of(kind))[::3]:
        found = prepared(sample)
        if found is None:
            continue
        op, info, kernel, arrays = found
        wanted = results(op, info, kernel, arrays, [empty(one) for one in info.outputs])
        targets = [with_gaps(empty(one)) for one in info.outputs]
        results(op, info, kernel, list(map(with_gaps, arrays)), targets)
        for one, target in zip(wanted, targets, strict=True):
            assert Tolerances().difference(target, one, TensorInfo.of(one)) is None, sample.id
