"""Control-flow layers, which execute subgraphs (regions) conditionally or repeatedly.

The regions belong to the layer (``Layer.regions``) and cannot access the graph around it. Their inputs are operands of
the layer, bound to the regions' Input layers by their binding ids. Their Output layers define the results. *Carried*
values are passed from one iteration to the next. Dimensions of carried values may change between iterations; these are
unknown inside the region. *Captured* values are the operands after the carried ones; they are the same in every
iteration.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np

from interposer.core.errors import InvalidArgumentError
from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role
from interposer.core.types import ANYTHING, DataType, Dim, TensorInfo, differ

__all__ = ["ControlFlow", "If", "Infos", "Loop", "Scan", "While", "merged_carried"]

Infos: TypeAlias = tuple[TensorInfo, ...]


def merged_carried(before: Sequence[TensorInfo], after: Sequence[TensorInfo]) -> Infos:
    """Return infos of the values that a loop carries between iterations, valid both before and after an iteration.

    Dimensions that an iteration changes become unknown.

    Raises:
        InvalidArgumentError: the type or quantization of a value changes in the iteration.
    """
    for index, (a, b) in enumerate(zip(before, after, strict=True)):
        if (a.dtype, a.quantization) != (b.dtype, b.quantization):
            raise InvalidArgumentError(f"carried value {index} is {a} before an iteration, but {b} after it")
    return tuple(a.joined(b) for a, b in zip(before, after, strict=True))


class ControlFlow(Op):
    """Base class of operators with regions, which describes how tensors are passed between layer and regions.

    Shape inference and verification call the methods. In these, `operands` is the result of `Op.arguments` for the
    infos of the layer's inputs. `carried` holds the infos of the carried values that are valid in every iteration.
    `infoses` holds, for each region, the infos of its outputs.
    """

    region_names: ClassVar[tuple[str, ...]] = ()
    offset: ClassVar[int] = 0
    """Position of a captured operand minus the binding id of the region input that receives it."""

    @property
    @abstractmethod
    def first_captured(self) -> int:
        """The position of the first captured operand among the layer's inputs."""

    @abstractmethod
    def region_inputs(self, count: int) -> tuple[int, ...]:
        """Return the number of inputs of each region for a layer whose last, variadic operand has `count` tensors."""

    @abstractmethod
    def region_outputs(self) -> tuple[int, ...]:
        """Return the number of outputs of each region."""

    def initial(self, operands: Sequence[Any]) -> Infos:
        """Return the infos of the carried values before the first iteration, which are among the operands."""
        return ()

    @abstractmethod
    def bound(self, operands: Sequence[Any], carried: Infos) -> tuple[Infos, ...]:
        """Return for each region the infos of the tensors that its inputs are bound to, in the order of binding ids."""

    def carried_on(self, infoses: Sequence[Infos]) -> Infos:
        """Return the infos of the carried values after an iteration, which are among the outputs of the regions."""
        return ()

    @abstractmethod
    def gives(self, operands: Sequence[Any], carried: Infos, infoses: Sequence[Infos]) -> Infos:
        """Return the infos of the layer's results, which follow from the operands and from the regions' outputs.

        Raises:
            InvalidArgumentError: the outputs of the regions are inconsistent.
        """

    def iterations(self, operands: Sequence[Any]) -> int | None:
        """Return the maximum number of iterations if it follows from constant operands or known shapes, else None."""
        return 1

    def infer(self, *operands: Any) -> tuple[TensorInfo | None, ...]:
        """Return None for every result, as nothing is known without the regions; `gives` infers with them."""
        return (None,) * self.num_results()


def _check_connected(inputs: Sequence[TensorInfo | None]) -> Iterator[str]:
    yield from (f"inputs[{index}] is not connected" for index, info in enumerate(inputs) if info is None)


def _check_single(name: str, info: TensorInfo | None) -> Iterator[str]:
    if info is not None and differ(info.num_elements, 1):
        yield f"{name} has shape {info.shape}; expected one element"


def _check_count(name: str, count: int, inputs: Sequence[object]) -> Iterator[str]:
    if count > len(inputs):
        yield f"there are {len(inputs)} inputs, but {name} is {count}"


def _checked_condition(info: TensorInfo, region: str) -> None:
    if info.dtype is not DataType.BOOL or differ(info.num_elements, 1):
        raise InvalidArgumentError(f"output 0 of region {region!r}, its condition, is {info}; expected one bool")


def _stacked(info: TensorInfo, axis: int, size: int | None, description: str) -> TensorInfo:
    """Return the info of `size` tensors like `info` that are stacked along a new axis; None is an unknown number.

    Raises:
        InvalidArgumentError: the axis is out of range, or the tensors are quantized per axis. The message calls the
            tensors `description`.
    """
    if not info.is_ranked:
        return info.with_constant(None)
    rank = info.rank + 1
    if not -rank <= axis < rank:
        raise InvalidArgumentError(f"{description} of rank {info.rank} cannot be stacked along axis {axis}")
    if info.quantization is not None and info.quantization.per_axis:
        raise InvalidArgumentError(f"{description} is quantized per axis; only a single scale can be stacked")
    new_axis = axis % rank
    return TensorInfo((*info.shape[:new_axis], size, *info.shape[new_axis:]), info.dtype, info.quantization)


def _constant_element(info: TensorInfo | None) -> Any:
    """Return the element of a tensor as a Python number or bool if it is a constant with one element, else None."""
    if info is None or info.constant is None or info.constant.size != 1:
        return None
    return info.constant.reshape(-1)[0].item()


@op(executable=False)
class If(ControlFlow):
    """Run one of two regions: the first one if the condition is true, else the second one.

    Both regions take all ``inputs``. Their results must have the same types. Dimensions and ranks in which the results
    differ are only known at run time.

    A region that cannot be computed for the shapes at hand is empty: it has no outputs, and an attribute says why it
    cannot be computed. The layer then has the results of the other region, and the run fails if the condition selects
    the empty one.

    Shapes:
        condition: one element
        inputs: any
        outputs: the outputs of the regions

    Regions:
        then: inputs -> outputs
        else: inputs -> outputs

    Source:
        ONNX If; TFLite IF; NNAPI IF.
    """

    condition = operand(role=Role.CONDITION, dtypes={DataType.BOOL})
    inputs = operand(dtypes=ANYTHING, variadic=True, optional=True)
    outputs = result(dtypes=ANYTHING, variadic=True, dynamic=True)

    num_outputs: int = attribute(default=1, ge=1, doc="Number of outputs of each region.")
    then_failure: str = attribute(default="", doc="Why the first region cannot be computed; empty if it can.")
    else_failure: str = attribute(default="", doc="Why the second region cannot be computed; empty if it can.")

    region_names: ClassVar = ("then", "else")
    offset: ClassVar = 1

    @property
    def failures(self) -> tuple[str, str]:
        """For each region the reason why it cannot be computed, which is empty if it can."""
        return self.then_failure, self.else_failure

    @property
    def first_captured(self) -> int:
        return 1

    def num_results(self) -> int:
        return self.num_outputs

    def check(self, condition: TensorInfo, inputs: Sequence[TensorInfo | None]) -> Iterator[str]:
        yield from _check_single("condition", condition)
        yield from _check_connected(inputs)
        if all(self.failures):
            yield f"neither region can be computed: {self.then_failure}; {self.else_failure}"

    def region_inputs(self, count: int) -> tuple[int, ...]:
        return count, count

    def region_outputs(self) -> tuple[int, ...]:
        return tuple(0 if failure else self.num_outputs for failure in self.failures)

    def bound(self, operands: Sequence[Any], carried: Infos) -> tuple[Infos, ...]:
        return operands[1], operands[1]

    def gives(self, operands: Sequence[Any], carried: Infos, infoses: Sequence[Infos]) -> Infos:
        if any(self.failures):
            return infoses[1 if self.then_failure else 0]
        return tuple(_common_info(index, *pair) for index, pair in enumerate(zip(*infoses, strict=True)))


def _common_info(index: int, a: TensorInfo, b: TensorInfo) -> TensorInfo:
    if (a.dtype, a.quantization) != (b.dtype, b.quantization):
        raise InvalidArgumentError(f"output {index} is {a} in region 'then', but {b} in region 'else'")
    return a.joined(b)


@op(executable=False)
class Loop(ControlFlow):
    """Run a region repeatedly: at most ``trip_count`` times, and only while the condition is true.

    Without ``trip_count``, the number of iterations is not limited. Without ``condition``, the first iteration always
    runs. Without both, only the condition that the region returns ends the loop. The outputs of the region that follow
    the carried values are collected: every iteration appends one index to the first axis.

    Carried values are passed from one iteration to the next. Captured values are the same in every iteration.

    Shapes:
        trip_count, condition: one element
        inputs: any; the first ``num_carried`` are carried, the others captured
        outputs: the carried values as the last iteration leaves them, then (iterations, ...) for each collected one

    Regions:
        body: iteration (int64), condition (bool, always true), carried, captured -> condition, carried, collected

    Source:
        ONNX Loop.
    """

    trip_count = operand(role=Role.SIZES, dtypes={DataType.INT64}, optional=True)
    condition = operand(role=Role.CONDITION, dtypes={DataType.BOOL}, optional=True)
    inputs = operand(dtypes=ANYTHING, variadic=True, optional=True)
    outputs = result(dtypes=ANYTHING, variadic=True, dynamic=True)

    num_carried: int = attribute(default=0, ge=0, doc="Number of inputs that are carried.")
    num_scan_outputs: int = attribute(default=0, ge=0, doc="Number of outputs that are collected.")

    region_names: ClassVar = ("body",)

    @property
    def first_captured(self) -> int:
        return 2 + self.num_carried

    def num_results(self) -> int:
        return self.num_carried + self.num_scan_outputs

    def check(
        self, trip_count: TensorInfo | None, condition: TensorInfo | None, inputs: Sequence[TensorInfo | None]
    ) -> Iterator[str]:
        yield from _check_single("trip_count", trip_count)
        yield from _check_single("condition", condition)
        yield from _check_connected(inputs)
        yield from _check_count("num_carried", self.num_carried, inputs)

    def region_inputs(self, count: int) -> tuple[int, ...]:
        return (2 + count,)

    def region_outputs(self) -> tuple[int, ...]:
        return (1 + self.num_carried + self.num_scan_outputs,)

    def initial(self, operands: Sequence[Any]) -> Infos:
        return tuple(operands[2][: self.num_carried])

    def bound(self, operands: Sequence[Any], carried: Infos) -> tuple[Infos, ...]:
        iteration_and_condition = TensorInfo((), DataType.INT64), TensorInfo((), DataType.BOOL, None, np.array(True))
        return ((*iteration_and_condition, *carried, *operands[2][self.num_carried :]),)

    def carried_on(self, infoses: Sequence[Infos]) -> Infos:
        return infoses[0][1 : 1 + self.num_carried]

    def gives(self, operands: Sequence[Any], carried: Infos, infoses: Sequence[Infos]) -> Infos:
        _checked_condition(infoses[0][0], "body")
        runs_all_iterations = _constant_element(infoses[0][0]) is True and (
            operands[1] is None or _constant_element(operands[1]) is not None
        )
        length = self.iterations(operands) if runs_all_iterations else None
        collected_infos = enumerate(infoses[0][1 + self.num_carried :])
        return *carried, *(_stacked(info, 0, length, f"collected output {index}") for index, info in collected_infos)

    def iterations(self, operands: Sequence[Any]) -> int | None:
        trip_count, condition, _ = operands
        if _constant_element(condition) is False:
            return 0
        count = _constant_element(trip_count)
        return None if count is None else max(0, int(count))


@op(executable=False)
class Scan(ControlFlow):
    """Run a region for every index along an axis of some tensors; the region receives one slice per iteration.

    The outputs of the region that follow the states are collected along an axis, one index for every iteration. States
    are passed from one iteration to the next. Captured values are the same in every iteration.

    Shapes:
        inputs: any; first the states, which are carried, then those that are scanned, all with L indices along their
            axis, then the captured ones
        outputs: the states as the last iteration leaves them, then the collected ones, with L along their axis

    Regions:
        body: states, slices, captured -> states, slices to collect

    Source:
        ONNX Scan.
    """

    inputs = operand(dtypes=ANYTHING, variadic=True)
    outputs = result(dtypes=ANYTHING, variadic=True, dynamic=True)

    num_states: int = attribute(default=0, ge=0, doc="Number of inputs that are states.")
    num_scan_inputs: int = attribute(default=1, ge=1, doc="Number of inputs after the states that are scanned.")
    num_scan_outputs: int = attribute(default=0, ge=0, doc="Number of outputs that are collected.")
    input_axes: tuple[int, ...] = attribute(
        default=(), doc="The axis of each scanned input; an empty tuple means 0 for all."
    )
    output_axes: tuple[int, ...] = attribute(
        default=(), doc="The axis of each collected output; an empty tuple means 0 for all."
    )
    reverse_inputs: tuple[bool, ...] = attribute(
        default=(), doc="For each scanned input: True to read the slices in reverse."
    )
    reverse_outputs: tuple[bool, ...] = attribute(
        default=(), doc="For each collected output: True to fill the slices in reverse."
    )

    region_names: ClassVar = ("body",)

    @property
    def first_captured(self) -> int:
        return self.num_states + self.num_scan_inputs

    def num_results(self) -> int:
        return self.num_states + self.num_scan_outputs

    def _attribute_problems(self) -> Iterator[str]:
        for name, count in (
            ("input_axes", self.num_scan_inputs), ("reverse_inputs", self.num_scan_inputs),
            ("output_axes", self.num_scan_outputs), ("reverse_outputs", self.num_scan_outputs),
        ):  # fmt: skip
            if getattr(self, name) and len(getattr(self, name)) != count:
                yield f"{name} has {len(getattr(self, name))} entries; expected {count}, or none"

    def axis(self, index: int, rank: int) -> int:
        """Return the scanned axis of the scanned input number `index`, which has this rank, counted from the front.

        Raises:
            InvalidArgumentError: the axis is out of range for this rank.
        """
        axis = self.input_axes[index] if self.input_axes else 0
        if not -rank <= axis < rank:
            raise InvalidArgumentError(f"scanned input {index} has rank {rank}, but its axis is {axis}")
        return axis % rank

    def _scanned(self, operands: Sequence[Any]) -> Infos:
        return tuple(operands[0][self.num_states : self.num_states + self.num_scan_inputs])

    def check(self, inputs: Sequence[TensorInfo | None]) -> Iterator[str]:
        yield from _check_connected(inputs)
        yield from _check_count("num_states + num_scan_inputs", self.num_states + self.num_scan_inputs, inputs)
        if len(inputs) >= self.num_states + self.num_scan_inputs and None not in inputs:
            yield from self._check_scanned(self._scanned((inputs,)))

    def _check_scanned(self, scanned: Infos) -> Iterator[str]:
        for index, info in enumerate(scanned):
            axis = self.input_axes[index] if self.input_axes else 0
            if not -info.rank <= axis < info.rank:
                yield f"scanned input {index} has shape {info.shape}, but its axis is {axis}"
                return
            if info.quantization is not None and info.quantization.per_axis:
                yield f"scanned input {index} is quantized per axis; only a single scale is supported"
        lengths = [info.shape[self.axis(index, info.rank)] for index, info in enumerate(scanned)]
        if any(differ(lengths[0], length) for length in lengths):
            yield f"the scanned inputs have {', '.join(map(str, lengths))} slices; expected the same number"

    def region_inputs(self, count: int) -> tuple[int, ...]:
        return (count,)

    def region_outputs(self) -> tuple[int, ...]:
        return (self.num_states + self.num_scan_outputs,)

    def initial(self, operands: Sequence[Any]) -> Infos:
        return tuple(operands[0][: self.num_states])

    def bound(self, operands: Sequence[Any], carried: Infos) -> tuple[Infos, ...]:
        scanned = self._scanned(operands)
        slices = [self._slice(index, info) for index, info in enumerate(scanned)]
        return ((*carried, *slices, *operands[0][self.num_states + self.num_scan_inputs :]),)

    def carried_on(self, infoses: Sequence[Infos]) -> Infos:
        return infoses[0][: self.num_states]

    def gives(self, operands: Sequence[Any], carried: Infos, infoses: Sequence[Infos]) -> Infos:
        axes = self.output_axes or (0,) * self.num_scan_outputs
        collected = zip(infoses[0][self.num_states :], axes, strict=True)
        length = self.iterations(operands)
        return *carried, *(
            _stacked(info, axis, length, f"collected output {index}") for index, (info, axis) in enumerate(collected)
        )

    def iterations(self, operands: Sequence[Any]) -> int | None:
        scanned = self._scanned(operands)
        ranked_infos = ((index, info) for index, info in enumerate(scanned) if info.is_ranked)
        lengths = (info.shape[self.axis(index, info.rank)] for index, info in ranked_infos)
        return next((length for length in lengths if not isinstance(length, Dim)), None)

    def _slice(self, index: int, info: TensorInfo) -> TensorInfo:
        if not info.is_ranked:
            return info.with_constant(None)
        axis = self.axis(index, info.rank)
        return TensorInfo((*info.shape[:axis], *info.shape[axis + 1 :]), info.dtype, info.quantization)


@op(executable=False)
class While(ControlFlow):
    """Run a region while the result of another region is true, which is evaluated before every iteration.

    Carried values are passed from one iteration to the next. Captured values are the same in every iteration.

    Shapes:
        inputs: any; the first ``num_carried`` are carried, the others captured
        outputs: the carried values as the last iteration leaves them

    Regions:
        condition: carried, captured -> one bool
        body: carried, captured -> carried

    Source:
        TFLite WHILE; NNAPI WHILE.
    """

    inputs = operand(dtypes=ANYTHING, variadic=True)
    outputs = result(dtypes=ANYTHING, variadic=True, dynamic=True)

    num_carried: int = attribute(default=1, ge=1, doc="Number of inputs that are carried.")

    region_names: ClassVar = ("condition", "body")

    @property
    def first_captured(self) -> int:
        return self.num_carried

    def num_results(self) -> int:
        return self.num_carried

    def check(self, inputs: Sequence[TensorInfo | None]) -> Iterator[str]:
        yield from _check_connected(inputs)
        yield from _check_count("num_carried", self.num_carried, inputs)

    def region_inputs(self, count: int) -> tuple[int, ...]:
        return count, count

    def region_outputs(self) -> tuple[int, ...]:
        return 1, self.num_carried

    def initial(self, operands: Sequence[Any]) -> Infos:
        return tuple(operands[0][: self.num_carried])

    def bound(self, operands: Sequence[Any], carried: Infos) -> tuple[Infos, ...]:
        region_operands = (*carried, *operands[0][self.num_carried :])
        return region_operands, region_operands

    def carried_on(self, infoses: Sequence[Infos]) -> Infos:
        return infoses[1]

    def gives(self, operands: Sequence[Any], carried: Infos, infoses: Sequence[Infos]) -> Infos:
        _checked_condition(infoses[0][0], "condition")
        return carried

    def iterations(self, operands: Sequence[Any]) -> int | None:
        return None
