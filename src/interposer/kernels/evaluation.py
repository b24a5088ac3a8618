"""The complete table of reference kernels, and the evaluation of single operators with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from interposer.core.containers import as_given, collected
from interposer.core.errors import (
    BindingError,
    ExecutionError,
    InterposerError,
    InvalidArgumentError,
    did_you_mean,
    memory_to,
)
from interposer.core.masks import plain_array
from interposer.core.schema import Op, Operand, Result
from interposer.core.types import UNRANKED, Array, DataType, Quantization, TensorInfo
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo, KernelTable

__all__ = ["compute", "evaluate", "reference", "refusals"]

_OPS: Final = "interposer.ops"
_KERNELS: Final = "interposer.kernels"
_SEQUENCE: Final = frozenset({DataType.SEQUENCE})
_OPTIONAL: Final = frozenset({DataType.OPTIONAL})


def reference() -> KernelTable:
    """Return the table of all reference kernels, which are loaded by the first call."""
    import interposer.kernels.kernel_families  # noqa: F401, PLC0415 - loaded on first use; the families fill the table

    return kernel


def evaluate(
    op: Op, arrays: Sequence[Array | None], inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]
) -> list[Array]:
    """Compute one operator on arrays by a reference kernel, and return one new array per result.

    Absent operands are None in `arrays` and in their infos, `inputs`. `outputs` are the infos of the results, whose
    types and quantizations the arrays get.

    Raises:
        InvalidArgumentError: no reference kernel supports the operator on these tensors; the message has the reasons.
    """
    return _table_with(op).evaluate(op, arrays, inputs, outputs)


def refusals(op: Op, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> list[str]:
    """Return why no reference kernel supports an operator on tensors with these infos; empty if one does."""
    return _table_with(op).reasons(op, KernelInfo.of(op, inputs, outputs))


def _table_with(op: Op) -> KernelTable:
    """Return the table with at least the kernels of an operator: importing only its family is much faster than all."""
    if type(op) in _imported:
        return kernel
    classes = [base for base in type(op).__mro__ if issubclass(base, Op) and base is not Op]
    if all(base.__module__ == f"{_OPS}.{base.family}" for base in classes):
        for family in {base.family for base in classes}:
            if find_spec(f"{_KERNELS}.{family}") is not None:
                import_module(f"{_KERNELS}.{family}")
    _imported.add(type(op))
    return kernel if type(op) in kernel else reference()


_imported: set[type[Op]] = set()
"""The operators whose kernels have been imported."""


def compute(op: Op, /, *arrays: Any, quantization: Mapping[str, Quantization] | None = None, **named: Any) -> Any:
    """Compute one operator on arrays; return its result, or a tuple of several results.

    Operands are passed by position or by name; None, or an omitted operand, stands for an absent one. Arrays keep their
    type. Other values are converted to arrays of float32, int32 (int64 if a value does not fit), bool or strings.
    `quantization` maps names of operands and results to their quantization. A sequence is a list of arrays. An optional
    is its element, or None.

    >>> from interposer.ops import Dequantize, Maximum
    >>> compute(Maximum(), [1, 5], [4, 2]).tolist()
    [4, 5]
    >>> compute(Dequantize(), np.uint8([0, 128, 255]), quantization={"input": Quantization(0.5, 128)}).tolist()
    [-64.0, 0.0, 63.5]

    Raises:
        InvalidArgumentError: the operator or all its reference kernels refuse the operands; says why.
        ExecutionError: the kernel failed, for example because memory is exhausted.
    """
    if not isinstance(op, Op):
        raise InvalidArgumentError(f"expected an operator, such as Maximum(), not {op!r}")
    quantizations = _checked_quantization(op, quantization or {})
    operands = [(_slot(op.operands, i), operand) for i, operand in enumerate(_placed(op, arrays, named))]
    with memory_to(f"make arrays of the operands of {op.op_name()}", ExecutionError):
        operand_arrays = [_stored(slot, operand) for slot, operand in operands]
    inputs = [
        _info(slot, array, quantizations.get(slot.name))
        for (slot, _), array in zip(operands, operand_arrays, strict=True)
    ]
    if errors := op.violations(*inputs):
        raise InvalidArgumentError(f"{op.op_name()}: {'; '.join(errors)}")
    outputs = list(_outputs(op, inputs, quantizations))
    try:
        computed_arrays = evaluate(op, operand_arrays, inputs, outputs)
    except InterposerError:
        raise
    except Exception as error:
        infos = ", ".join(map(str, outputs))
        raise ExecutionError(
            f"{op.op_name()} failed: {type(error).__name__}: {error} (results: {infos})", layer=op.op_name()
        ) from error
    results = tuple(map(as_given, outputs, computed_arrays))
    return results[0] if len(results) == 1 else results


def _placed(op: Op, arrays: Sequence[Any], named_operands: Mapping[str, Any]) -> list[Any]:
    """Return the operands, passed by position (`arrays`) or name, in declared order; None for absent ones.

    Raises:
        InvalidArgumentError: there are too many, or a name is unknown or occurs twice.
    """
    if error := op.arity_problem(len(arrays)):
        raise InvalidArgumentError(error)
    names = [declared_operand.name for declared_operand in op.operands if not declared_operand.variadic]
    for name in named_operands:
        if name not in names:
            raise InvalidArgumentError(f"{op.op_name()} takes no operand by name {name!r}{did_you_mean(name, names)}")
        if name in names[: len(arrays)]:
            raise InvalidArgumentError(f"{op.op_name()}: {name} is given twice")
    return [*arrays, *map(named_operands.get, names[len(arrays) :])]


def _stored(slot: Operand | Result, operand: Any) -> Array | None:
    """Convert a value to the array that kernels accept for the operand declared by `slot`; None for an absent operand.

    A sequence or an optional becomes an array of objects, whose elements are arrays.
    """
    if slot.dtypes == _SEQUENCE:
        return collected(_array(tensor) for tensor in _listed(operand))
    if slot.dtypes == _OPTIONAL:
        return collected([] if operand is None else [_element(operand)])
    return None if operand is None else _array(operand)


def _element(optional: Any) -> Array:
    """Convert what a caller passes for an optional: a list of arrays is a sequence, anything else a tensor."""
    holds_arrays = isinstance(optional, list | tuple) and all(isinstance(element, np.ndarray) for element in optional)
    return collected(map(_array, optional)) if holds_arrays else _array(optional)


def _listed(sequence: Any) -> Sequence[Any]:
    if isinstance(sequence, list | tuple):
        return sequence
    raise InvalidArgumentError(f"a sequence is a list of arrays, not {type(sequence).__name__}")


def _array(operand: Any) -> Array:
    try:
        array = plain_array(operand, "an operand")
    except BindingError as error:
        raise InvalidArgumentError(str(error)) from None
    except ValueError as error:
        raise InvalidArgumentError(f"an operand cannot be made into an array: {error}") from error
    if array.dtype.kind in "OU":
        return _strings(array)
    if isinstance(operand, np.ndarray | np.generic):
        return array
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    fits_int32 = array.dtype == np.int64 and np.array_equal(array, array.astype(np.int32))
    return array.astype(np.int32) if fits_int32 else array


def _strings(array: Array) -> Array:
    for element in array.flat:
        if not isinstance(element, str):
            raise InvalidArgumentError(f"{element!r} cannot be an element of a tensor")
    return array.astype(object)


def _checked_quantization(op: Op, quantization: Mapping[str, Quantization]) -> Mapping[str, Quantization]:
    if not isinstance(quantization, Mapping):
        raise InvalidArgumentError(f"quantization maps names of operands and results, but is {quantization!r}")
    names = [declared_slot.name for declared_slot in (*op.operands, *op.results)]
    for name in quantization:
        if name not in names:
            raise InvalidArgumentError(f"{op.op_name()} has no operand or result {name!r}{did_you_mean(name, names)}")
    return quantization


def _info(slot: Operand | Result, array: Array | None, quantization: Quantization | None) -> TensorInfo | None:
    if array is None or slot.dtypes not in (_SEQUENCE, _OPTIONAL):
        return None if array is None else TensorInfo.of(array, quantization)
    dtype = DataType.SEQUENCE if slot.dtypes == _SEQUENCE else DataType.OPTIONAL
    return TensorInfo(array.shape, dtype, element=_info_of_elements(array, quantization))


def _info_of_elements(array: Array, quantization: Quantization | None) -> TensorInfo:
    infos = [_info_of_element(element, quantization) for element in array]
    return reduce(TensorInfo.joined, infos) if infos else TensorInfo(UNRANKED)


def _info_of_element(array: Array, quantization: Quantization | None) -> TensorInfo:
    if array.dtype != object or not any(isinstance(nested, np.ndarray) for nested in array.flat):
        return TensorInfo.of(array, quantization)
    return TensorInfo(array.shape, DataType.SEQUENCE, element=_info_of_elements(array, quantization))


def _outputs(
    op: Op, inputs: Sequence[TensorInfo | None], quantizations: Mapping[str, Quantization]
) -> Iterator[TensorInfo]:
    for index, info in enumerate(op.infer_infos(*inputs)):
        if info is None:
            raise InvalidArgumentError(f"{op.op_name()}: nothing is known of {op.result_name(index)}")
        name = _slot(op.results, index).name
        yield info.with_quantization(quantizations[name]) if name in quantizations else info


def _slot(declared_slots: Sequence[Operand | Result], index: int) -> Operand | Result:
    return declared_slots[min(index, len(declared_slots) - 1)]
