"""Backends with the reference kernels and one planted defect each, for the judge to find."""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from interposer.backend import (
    Backend,
    KernelTable,
    KernelWorkloadFactory,
    LayerSupport,
    MemoryManager,
    OptimizationViews,
    Options,
    SubgraphView,
    Substitution,
    TensorHandle,
    Workload,
    WorkloadFactory,
    WorkloadInfo,
)
from interposer.core.errors import InvalidArgumentError
from interposer.core.schema import Op
from interposer.core.types import Array
from interposer.ir.graph import Layer
from interposer.kernels.evaluation import evaluate, reference
from interposer.ops import (
    Activation,
    Addition,
    FullyConnected,
    Multiplication,
    PreCompiled,
    Quantize,
    RoundingMethod,
    Softmax,
    Transpose,
)


def table(*ops: type[Op], compute: Callable[..., Any] | None = None) -> KernelTable:
    """The reference kernels, but for some operators, for which `compute(op, arrays, info)` stands."""
    kernel_table = KernelTable()
    for op in reference():
        kernel_table._kernels[op] = list(reference().kernels(op))
    if compute is None:
        return kernel_table
    for op in ops:
        slots = [declared.name for declared in op.operands]
        kernel_table._kernels.pop(op, None)
        source = f"def kernel(op, {', '.join(slots)}, *, info):\n    return compute(op, [{', '.join(slots)}], info)"
        space: dict[str, Any] = {"compute": compute}
        exec(source, space)
        kernel_table(op)(space["kernel"])
    return kernel_table


def right(op: Op, arrays: Sequence[Array | None], info: Any) -> Array:
    """What the reference kernel gives."""
    operands = [array for array in arrays if array is not None]
    return evaluate(op, operands, info.inputs[: len(operands)], info.outputs)[0]


class Exact(Backend):
    """Does nothing wrong."""

    id: ClassVar = "Exact"
    kernels: ClassVar = table()


def in_float64(op: Op, arrays: Sequence[Array | None], info: Any) -> Array:
    a, b = arrays[0], arrays[1]
    assert a is not None and b is not None
    if not (info.input.dtype.is_float and info.input.dtype.bits == 32):
        return right(op, arrays, info)
    return {Addition: np.add, Multiplication: np.multiply}[type(op)](a, b, dtype=np.float32) * np.float32(1 + 2e-7)


class Reordering(Exact):
    """Rounds otherwise than the reference, as other orders of summation do, which is right."""

    id: ClassVar = "Reordering"
    kernels: ClassVar = table(Addition, Multiplication, compute=in_float64)


def flat(op: Op, arrays: Sequence[Array | None], info: Any) -> Array:
    assert arrays[0] is not None
    return arrays[0].reshape(tuple(info.output.shape))


class FlatTransposing(Exact):
    """Takes a transposition for a reshape: the layout of what follows is wrong."""

    id: ClassVar = "FlatTransposing"
    kernels: ClassVar = table(Transpose, compute=flat)


def without_bias(op: Op, arrays: Sequence[Array | None], info: Any) -> Array:
    return right(op, arrays[:2], info)


class Dropping(Exact):
    """Forgets the bias."""

    id: ClassVar = "Dropping"
    kernels: ClassVar = table(FullyConnected, compute=without_bias)


def truncated(op: Op, arrays: Sequence[Array | None], info: Any) -> Array:
    assert isinstance(op, Quantize) and arrays[0] is not None
    if info.input.is_quantized or not info.output.is_quantized or info.output.quantization.per_axis:
        return right(op, arrays, info)
    limits = np.iinfo(info.output.dtype.numpy)
    codes = np.trunc(arrays[0].astype(np.float64) / info.output.scale) + info.output.zero_point
    return np.clip(np.nan_to_num(codes), limits.min, limits.max).astype(info.output.dtype.numpy)


class Truncating(Exact):
    """Truncates where it should round."""

    id: ClassVar = "Truncating"
    kernels: ClassVar = table(Quantize, compute=truncated)


def half_to_even(op: Op, arrays: Sequence[Array | None], info: Any) -> Array:
    assert isinstance(op, Quantize)
    return right(op.replace(rounding=RoundingMethod.HALF_TO_EVEN), arrays, info)


class RoundingToEven(Exact):
    """Rounds halves to even, whatever is asked for."""

    id: ClassVar = "RoundingToEven"
    kernels: ClassVar = table(Quantize, compute=half_to_even)


# --- wrong only together ----------------------------------------------------------------------------------------------


class _Forgetful(Workload):
    """Runs an addition, and leaves out the activation function after it."""

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        arrays = [handle.map().copy() for handle in inputs if handle is not None]
        for handle in inputs:
            if handle is not None:
                handle.unmap()
        total = arrays[0] + arrays[-1]
        outputs[0].copy_in(np.broadcast_to(total, tuple(outputs[0].info.shape)).astype(np.float32))


class _FusingFactory(KernelWorkloadFactory):
    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        return _Forgetful() if isinstance(layer.op, PreCompiled) else super().create_workload(layer, info)


class WrongTogether(Exact):
    """Fuses Addition -> Activation, and forgets the activation function."""

    id: ClassVar = "WrongTogether"

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        runs = [run for run in view.chains(Addition, Activation) if _is_float(run)]
        return OptimizationViews(view, substitutions=tuple(Substitution(run, PreCompiled(1)) for run in runs))

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        return _FusingFactory(self.kernels, memory_manager)


def _is_float(part: SubgraphView) -> bool:
    infos = [info for layer in part for info in (*layer.input_infos, *layer.output_infos)]
    return all(info is not None and str(info.dtype) == "float32" for info in infos)


# --- what ends the process --------------------------------------------------------------------------------------------


def crash(op: Op, arrays: Sequence[Array | None], info: Any) -> Array:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


class Crashing(Exact):
    """Crashes in every softmax."""

    id: ClassVar = "Crashing"
    kernels: ClassVar = table(Softmax, compute=crash)


def hang(op: Op, arrays: Sequence[Array | None], info: Any) -> Array:
    while True:
        time.sleep(1)


class Hanging(Exact):
    """Never comes back from a softmax."""

    id: ClassVar = "Hanging"
    kernels: ClassVar = table(Softmax, compute=hang)


def grow(op: Op, arrays: Sequence[Array | None], info: Any) -> Array:
    hoard = []
    while True:
        hoard.append(np.ones(1 << 22))
        time.sleep(0.001)


class Greedy(Exact):
    """Takes more and more memory in every softmax."""

    id: ClassVar = "Greedy"
    kernels: ClassVar = table(Softmax, compute=grow)


# --- other failures ---------------------------------------------------------------------------------------------------

_counts = itertools.count()


def waver(op: Op, arrays: Sequence[Array | None], info: Any) -> Array:
    return right(op, arrays, info) + np.float32(1e-7 * (next(_counts) % 2))


class Wavering(Exact):
    """Gives something slightly different in every other run."""

    id: ClassVar = "Wavering"
    kernels: ClassVar = table(Softmax, compute=waver)


def scribble(op: Op, arrays: Sequence[Array | None], info: Any) -> Array:
    assert arrays[0] is not None
    results = right(op, arrays, info)
    ctypes.memset(arrays[0].ctypes.data, 0, arrays[0].nbytes)  # as native code could
    return results


class Scribbling(Exact):
    """Clears its input."""

    id: ClassVar = "Scribbling"
    kernels: ClassVar = table(Softmax, compute=scribble)


def clamp_weights(op: Op, arrays: Sequence[Array | None], info: Any) -> Array:
    weights = arrays[1]
    assert weights is not None
    clamped = np.minimum(weights, weights.dtype.type(1))
    ctypes.memmove(weights.ctypes.data, clamped.ctypes.data, clamped.nbytes)  # as native code could
    return right(op, arrays, info)


class ClampingWeights(Exact):
    """Clamps its weights in their own memory."""

    id: ClassVar = "ClampingWeights"
    kernels: ClassVar = table(FullyConnected, compute=clamp_weights)


class CrashingAtStart(Exact):
    """Crashes when it is created."""

    id: ClassVar = "CrashingAtStart"

    def __init__(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)


class ExitingAtStart(Exact):
    """Ends the process when it is created."""

    id: ClassVar = "ExitingAtStart"

    def __init__(self) -> None:
        raise SystemExit(3)


def burn(op: Op, arrays: Sequence[Array | None], info: Any) -> Array:
    raise RuntimeError("the device is on fire")


class Raising(Exact):
    """Raises an exception."""

    id: ClassVar = "Raising"
    kernels: ClassVar = table(Softmax, compute=burn)


def starve(op: Op, arrays: Sequence[Array | None], info: Any) -> Array:
    raise MemoryError("no room")


class Starving(Exact):
    """Finds no memory."""

    id: ClassVar = "Starving"
    kernels: ClassVar = table(Softmax, compute=starve)


def halve(op: Op, arrays: Sequence[Array | None], info: Any) -> Array:
    return right(op, arrays, info) // 2


class Halving(Exact):
    """Stores half of what it should."""

    id: ClassVar = "Halving"
    kernels: ClassVar = table(Quantize, compute=halve)


class Partial(Backend):
    """Takes Softmax alone."""

    id: ClassVar = "Partial"
    kernels: ClassVar = KernelTable()


Partial.kernels(Softmax)(reference().kernels(Softmax)[0].function)


class Picky(Exact):
    """Knows no option."""

    id: ClassVar = "Picky"

    def layer_support(self, options: Options) -> LayerSupport:
        if options:
            raise InvalidArgumentError(f"there is no option {next(iter(options))!r}")
        return super().layer_support(options)
