"""Tables of kernels: functions that compute one operator each, with the types and conditions they support."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from interposer.core.errors import InvalidArgumentError, UnknownRankError, did_you_mean
from interposer.core.records import dataclass
from interposer.core.schema import Op
from interposer.core.types import Array, DataType, TensorInfo, TensorShape

__all__ = ["Kernel", "KernelInfo", "KernelTable", "empty"]

_F = TypeVar("_F", bound=Callable[..., Any])
Rule = Callable[[Any, "KernelInfo"], str | None]
TypeSets = Mapping[str, frozenset[DataType]]
_SPECIAL_PARAMETERS: Final = frozenset({"info", "out", "prepared"})


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """The infos of the tensors of a kernel call: shapes, types, scales, zero points and constant values.

    `inputs` has one item per operand in order (None if an optional one is absent), `outputs` one per result.
    """

    inputs: tuple[TensorInfo | None, ...]
    outputs: tuple[TensorInfo, ...]
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, op: Op, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> KernelInfo:
        """Return the infos of a call of `op`, with the names of its operands."""
        return cls(tuple(inputs), tuple(outputs), tuple(declared_operand.name for declared_operand in op.operands))

    @property
    def input(self) -> TensorInfo:
        """The info of the first operand.

        Raises:
            InvalidArgumentError: the operand is not connected.
        """
        return self.at(0)

    @property
    def output(self) -> TensorInfo:
        """The info of the first result."""
        return self.outputs[0]

    def at(self, index: int) -> TensorInfo:
        """Return the info of the operand number `index`.

        Raises:
            InvalidArgumentError: the operand is not connected.
        """
        info = self.inputs[index] if index < len(self.inputs) else None
        if info is None:
            raise InvalidArgumentError(f"input {index} is not connected")
        return info

    def get(self, name: str) -> TensorInfo | None:
        """Return the info of the operand of this name, which the operator must declare, or None if it is absent."""
        index = self.names.index(name)
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def quantized(self) -> bool:
        """True if the first input (or, without inputs, the first output) is quantized."""
        decisive_info = next((info for info in self.inputs if info is not None), None) or self.output
        return decisive_info.is_quantized


class Kernel:
    """One kernel of a `KernelTable`: a function that computes operators, and the types and conditions it supports.

    The function is called as ``function(op, *arrays)`` with one array per operand (None if absent, a tuple if variadic,
    as in the operator's `check`). If it declares parameters with these names, it also receives `info` (`KernelInfo`),
    `out` (an array or a tuple of arrays to fill) and `prepared` (the result of its `prepare` function). Without `out`,
    it returns an array or a tuple of arrays. It must not modify its inputs, and may return views of them.

    Only a kernel that returns its results supports operators whose output shapes depend on data.
    """

    def __init__(
        self, function: Callable[..., Any], types: TypeSets, quantized: bool | None, rules: tuple[Rule, ...]
    ) -> None:
        self.function, self.types, self.quantized, self.rules = function, types, quantized, rules
        self.wants = frozenset(inspect.signature(function).parameters) & _SPECIAL_PARAMETERS
        self.prepare: Callable[[Any, KernelInfo], Any] | None = None

    def reasons(self, op: Op, info: KernelInfo) -> Iterator[str]:
        """Yield the reasons why this kernel does not support the operator on these tensors; nothing if it does."""
        yield from self._type_reasons(op, info)
        if self.quantized is not None and info.quantized != self.quantized:
            yield f"takes only {'quantized' if self.quantized else 'unquantized'} tensors"
        yield from self._shape_reasons(op, info)
        yield from filter(None, (_refusal(rule, op, info) for rule in self.rules))

    def _type_reasons(self, op: Op, info: KernelInfo) -> Iterator[str]:
        slots = [
            (op.operand_name(index), _declared(op.operands, index), tensor) for index, tensor in enumerate(info.inputs)
        ]
        slots += [
            (op.result_name(index), _declared(op.results, index), tensor) for index, tensor in enumerate(info.outputs)
        ]
        for label, declared_slot, tensor in slots:
            allowed_types = self.types.get(declared_slot.name, None if declared_slot.dtypes else self.types.get("*"))
            if tensor is not None and allowed_types is not None and tensor.dtype not in allowed_types:
                yield f"{label} is {tensor.dtype}; takes {sorted(map(str, allowed_types))}"

    def make_ready(self, op: Op, info: KernelInfo) -> Any:
        """Return the result of the kernel's `prepare` function for these tensors, or None if it has none.

        It is passed to every `call` on these tensors as `prepared`.
        """
        if self.prepare is None:
            return None
        with np.errstate(all="ignore"):
            return self.prepare(op, info)

    def _shape_reasons(self, op: Op, info: KernelInfo) -> Iterator[str]:
        for index, tensor in enumerate(info.outputs) if "out" in self.wants else ():
            if _declared(op.results, index).dynamic and not tensor.is_concrete:
                yield f"the shape of {op.result_name(index)} depends on data; fills only arrays of known shape"

    def call(
        self, op: Op, arrays: Sequence[Array | None], info: KernelInfo, out: Sequence[Array], prepared: Any = None
    ) -> None:
        """Compute `op` on `arrays` into the arrays `out`, one per result; `prepared` is the result of `make_ready`.

        Raises:
            InvalidArgumentError: the kernel returned the wrong number or shapes of results.
        """
        fills_out = "out" in self.wants
        buffers = (
            [array if array.flags.c_contiguous else np.empty_like(array, order="C") for array in out]
            if fills_out
            else out
        )
        special_arguments = {"info": info, "prepared": prepared, "out": buffers[0] if len(out) == 1 else tuple(buffers)}
        with np.errstate(all="ignore"):  # infinities and NaN are valid results
            computed_results = self._computed(op, arrays, special_arguments)
            if not fills_out:
                _store(_counted(computed_results, len(out)), out)
        for buffer, target in zip(buffers, out, strict=True):
            if buffer is not target:
                np.copyto(target, buffer)

    def values(self, op: Op, arrays: Sequence[Array | None], info: KernelInfo, prepared: Any = None) -> list[Array]:
        """Compute `op` on `arrays` and return new arrays, one per result; `prepared` is the result of `make_ready`.

        Shapes that are not known in `info` follow from what the kernel returns.

        Raises:
            InvalidArgumentError: the kernel returned the wrong number or shapes of results.
        """
        if all(tensor.is_concrete for tensor in info.outputs):
            out = [empty(tensor) for tensor in info.outputs]
            self.call(op, arrays, info, out, prepared)
            return out
        with np.errstate(all="ignore"):
            computed_results = self._computed(op, arrays, {"info": info, "prepared": prepared})
            return _as_new_arrays(_counted(computed_results, len(info.outputs)), info.outputs)

    def _computed(self, op: Op, arrays: Sequence[Array | None], special_arguments: Mapping[str, Any]) -> Any:
        return self.function(op, *op.arguments(arrays), **{name: special_arguments[name] for name in self.wants})


def _refusal(rule: Rule, op: Op, info: KernelInfo) -> str | None:
    """Return why a rule refuses the operator, or None; also None if it needs a rank that is not known yet."""
    try:
        return rule(op, info)
    except UnknownRankError:
        return None


def empty(info: TensorInfo) -> Array:
    """Return an uninitialized array for a tensor of known shape."""
    return np.empty(tuple(info.shape), info.dtype.numpy)


def _counted(returned_results: Any, count: int) -> tuple[Any, ...]:
    results = returned_results if isinstance(returned_results, tuple) else (returned_results,)
    if len(results) != count:
        raise InvalidArgumentError(f"the kernel gave {len(results)} results, but {count} were expected")
    return results


def _as_new_arrays(values: tuple[Any, ...], expected: Sequence[TensorInfo]) -> list[Array]:
    """Convert the results of a kernel to new arrays of the requested types.

    Raises:
        InvalidArgumentError: a shape does not match the requested one.
    """
    for array, info in zip(values, expected, strict=True):
        if not info.shape.accepts(TensorShape(np.shape(array))):
            raise InvalidArgumentError(f"the kernel gave shape {np.shape(array)}, but {info.shape} was expected")
    return [np.array(array, info.dtype.numpy, order="C") for array, info in zip(values, expected, strict=True)]


def _store(values: tuple[Any, ...], out: Sequence[Array]) -> None:
    for source, target in zip(values, out, strict=True):
        if np.shape(source) != target.shape:
            raise InvalidArgumentError(f"the kernel gave shape {np.shape(source)}, but {target.shape} was expected")
        np.copyto(target, source, casting="unsafe")


def _declared(slots: Sequence[Any], index: int) -> Any:
    return slots[min(index, len(slots) - 1)]


class KernelTable:
    """The kernels of a backend, by operator. Used as a decorator, the table adds a kernel::

        kernel = KernelTable()

        @kernel(MatMul, dtypes={DataType.FLOAT32})
        def matmul(op: MatMul, a: F32, b: F32, *, out: F32) -> None:
            np.matmul(a, b, out=out)

    Several kernels of one operator are tried in the order in which they were added. A kernel for a class serves its
    subclasses too, unless they have kernels of their own.
    """

    def __init__(self) -> None:
        self._kernels: dict[type[Op], list[Kernel]] = {}

    def __call__(
        self,
        *ops: type[Op],
        dtypes: Iterable[DataType] | Mapping[str, Iterable[DataType]] | None = None,
        quantized: bool | None = None,
        when: Rule | Sequence[Rule] = (),
    ) -> Callable[[_F], _F]:
        """Add the decorated function as a kernel for `ops`.

        Args:
            ops: the operators that it computes.
            dtypes: the supported types. A set applies to every operand and result for which the operator itself
                declares no types. A mapping has sets by the name of an operand or result; ``"*"`` stands for all
                the others.
            quantized: True if it supports only quantized tensors, False if none; the first operand decides.
            when: further rules ``rule(op, info)``; each returns the reason of a refusal, or None.

        Raises:
            InvalidArgumentError: `dtypes` has a name that no operand or result has, or the function does not accept the
                operands.
        """
        types = _type_sets(dtypes)
        rules = (when,) if callable(when) else tuple(when)
        _check_names(ops, types)

        def add(function: _F) -> _F:
            kernel = Kernel(function, types, quantized, rules)
            for op in ops:
                _check_parameters(op, kernel)
            for op in ops:
                self._kernels.setdefault(op, []).append(kernel)
            return function

        return add

    def prepare(self, function: Callable[..., Any]) -> Callable[[_F], _F]:
        """Let the decorated ``prepare(op, info)`` run once, before the first call, for the kernel `function`.

        It can read constants in ``info.inputs[i].constant``. The kernel receives its result as `prepared`.
        """
        kernels_of_function = [
            kernel for kernels in self._kernels.values() for kernel in kernels if kernel.function is function
        ]
        if not kernels_of_function:
            raise InvalidArgumentError(f"{function.__name__} is no kernel of this table; add it before its prepare")

        def attach(prepare: _F) -> _F:
            for kernel in kernels_of_function:
                kernel.prepare = prepare
            return prepare

        return attach

    def __contains__(self, op: object) -> bool:
        return isinstance(op, type) and bool(self._candidates(op))

    def __iter__(self) -> Iterator[type[Op]]:
        return iter(sorted(self._kernels, key=lambda op: op.op_name()))

    def __len__(self) -> int:
        return len(self._kernels)

    def kernels(self, op: type[Op]) -> tuple[Kernel, ...]:
        """Return the kernels of an operator, in the order in which they are tried."""
        return tuple(self._candidates(op))

    def _candidates(self, op: type) -> list[Kernel]:
        return next((self._kernels[base] for base in op.__mro__ if base in self._kernels), [])

    def find(self, op: Op, info: KernelInfo) -> Kernel | None:
        """Return the first kernel that supports the operator on these tensors, or None."""
        return next(
            (candidate for candidate in self._candidates(type(op)) if not any(candidate.reasons(op, info))), None
        )

    def reasons(self, op: Op, info: KernelInfo) -> list[str]:
        """Return why no kernel supports the operator on these tensors; an empty list if one does.

        If there are several kernels, these are the reasons of the one with the fewest.
        """
        candidates = self._candidates(type(op))
        if not candidates:
            return [f"no kernel for {op.op_name()}"]
        of_same_quantization = [candidate for candidate in candidates if candidate.quantized in {None, info.quantized}]
        reason_lists = [list(candidate.reasons(op, info)) for candidate in of_same_quantization or candidates]
        shortest_reasons: list[str] = min(reason_lists, key=len)
        return list(dict.fromkeys(shortest_reasons))

    def evaluate(
        self, op: Op, arrays: Sequence[Array | None], inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]
    ) -> list[Array]:
        """Compute one operator on arrays with the first kernel that supports it; return one new array per result.

        Absent operands are None in `arrays` and in their infos, `inputs`. `outputs` are the infos of the results, whose
        types and quantizations the arrays get.

        Raises:
            InvalidArgumentError: no kernel supports the operator on these tensors; the message has the reasons.
        """
        info = KernelInfo.of(op, inputs, outputs)
        kernel = self.find(op, info)
        if kernel is None:
            raise InvalidArgumentError(f"{op.op_name()}: {'; '.join(self.reasons(op, info))}")
        return kernel.values(op, arrays, info, kernel.make_ready(op, info))


def _check_names(ops: Sequence[type[Op]], types: TypeSets) -> None:
    known_names = {declared_slot.name for op in ops for declared_slot in (*op.operands, *op.results)}
    for name in types.keys() - known_names - {"*"}:
        op_names = ", ".join(op.op_name() for op in ops)
        raise InvalidArgumentError(f"{op_names} has no operand or result {name!r}{did_you_mean(name, known_names)}")


def _check_parameters(op: type[Op], kernel: Kernel) -> None:
    names = [declared_operand.name for declared_operand in op.operands]
    try:
        inspect.signature(kernel.function).bind(op, *names, **dict.fromkeys(kernel.wants))
    except TypeError as error:
        raise InvalidArgumentError(
            f"the kernel {kernel.function.__name__} cannot be called as (op, {', '.join(names)}) for {op.op_name()}: "
            f"{error}"
        ) from error


def _type_sets(dtypes: Iterable[DataType] | Mapping[str, Iterable[DataType]] | None) -> TypeSets:
    if dtypes is None:
        return {}
    if isinstance(dtypes, Mapping):
        return {name: frozenset(types) for name, types in dtypes.items()}
    return {"*": frozenset(dtypes)}
