"""Ensembles: pipelines of models whose steps pass named tensors, read from settings and checked against the models."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from interposer.core.errors import InvalidArgumentError, did_you_mean
from interposer.core.records import dataclass
from interposer.core.types import TensorInfo
from interposer.serving.protocol.datatypes import data_type, wire_type
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.served import ServedModel, metadata_shape

__all__ = ["Ensemble", "Step", "check", "ensemble_of_table", "order_of_steps", "tensor_info"]

_STEP_KEYS: Final = ("model", "function", "version", "inputs", "outputs")
_TABLE_KEYS: Final = ("inputs", "outputs", "steps", "processes", "signed_as")
_FUNCTION: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_MOST_PROCESSES: Final = 64
_MOST_STEPS: Final = 256
_TENSOR_KEYS: Final = ("datatype", "shape")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an ensemble.

    Args:
        model: the name of the model that runs; empty for a Python function.
        version: the version of the model; empty for the highest one that is ready.
        inputs: the tensor of the ensemble that each input of the model, or argument of the function, gets.
        outputs: the tensor of the ensemble that each output of the model becomes; other outputs are not computed.
        function: the Python function that runs, as ``module:function``; empty for a model.
    """

    model: str
    version: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    function: str = ""

    @property
    def title(self) -> str:
        """What errors call the step, such as ``model 'digits'``."""
        if self.function:
            return f"function {self.function!r}"
        return f"model {self.model!r}" + (f" version {self.version}" if self.version else "")


@dataclass(frozen=True, slots=True)
class Ensemble:
    """A pipeline of models.

    Args:
        inputs: data type and shape of each input by name.
        outputs: data type and shape of each output by name.
        steps: the steps, in any order; each runs as soon as its tensors are there.
        processes: the number of processes that run the Python functions.
        signed_as: the name, or name and version as ``classify:7``, that the settings are for if they are signed.

    Raises:
        InvalidArgumentError: there are more than 256 steps.
    """

    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]
    steps: tuple[Step, ...]
    processes: int = 2
    signed_as: str = ""

    def __post_init__(self) -> None:
        if len(self.steps) > _MOST_STEPS:
            raise InvalidArgumentError(
                f"an ensemble may have {_MOST_STEPS} steps, but this one has {len(self.steps):,}"
            )

    @property
    def functions(self) -> list[str]:
        """The Python functions of the steps, each once."""
        return list(dict.fromkeys(step.function for step in self.steps if step.function))

    @property
    def models(self) -> list[int]:
        """The indices of the steps that are models."""
        return [index for index, step in enumerate(self.steps) if not step.function]

    def title(self, index: int) -> str:
        """What errors call the step with this index, such as ``step 2 (model 'digits')``."""
        return f"step {index + 1} ({self.steps[index].title})"

    def makers(self) -> dict[str, int]:
        """Return the index of the step that makes each tensor.

        Raises:
            ServingError: two steps make a tensor, or a step makes an input of the ensemble.
        """
        makers: dict[str, int] = {}
        for index, step in enumerate(self.steps):
            for tensor in step.outputs.values():
                if tensor in self.inputs:
                    raise _wrong(f"{self.title(index)} makes the tensor {tensor!r}, which is an input of the ensemble")
                if tensor in makers:
                    first = self.title(makers[tensor])
                    raise _wrong(f"the tensor {tensor!r} is made twice, by {first} and by {self.title(index)}")
                makers[tensor] = index
        return makers


def tensor_info(datatype: str, shape: list[int]) -> TensorInfo:
    """Return the info of a tensor whose data type has its name in the protocol; -1 is any size.

    Raises:
        InterposerError: there is no such data type, or a size is wrong.
    """
    if any(size < -1 for size in shape):
        raise InvalidArgumentError(f"the shape {shape} has a size below -1")
    return TensorInfo([None if size == -1 else size for size in shape], data_type(datatype))


def order_of_steps(ensemble: Ensemble) -> list[int]:
    """Return the indices of the steps so that each comes after those that make its tensors.

    Raises:
        ServingError: a tensor is made by no step, or by two, or the steps wait for each other in a cycle.
    """
    makers = ensemble.makers()
    needs = {index: list(_needs(ensemble, index, makers)) for index in range(len(ensemble.steps))}
    try:
        return list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        cycle = [ensemble.title(index) for index in _from_lowest(error.args[1][:0:-1])]
        raise _wrong(f"these steps wait for each other: {' for '.join([*cycle, cycle[0]])}") from None


def _from_lowest(cycle: list[int]) -> list[int]:
    """Return the indices in a cycle, beginning with the lowest one."""
    start = cycle.index(min(cycle))
    return cycle[start:] + cycle[:start]


def _needs(ensemble: Ensemble, index: int, makers: Mapping[str, int]) -> Iterator[int]:
    """Yield the indices of the steps that make the tensors of a step."""
    for tensor in ensemble.steps[index].inputs.values():
        if tensor in makers:
            yield makers[tensor]
        elif tensor not in ensemble.inputs:
            hint = did_you_mean(tensor, [*ensemble.inputs, *makers])
            raise _wrong(f"{ensemble.title(index)} reads the tensor {tensor!r}, which no step makes{hint}")


def check(ensemble: Ensemble, find: Callable[[str, str], ServedModel]) -> None:
    """Check that an ensemble fits the models of its steps.

    Args:
        ensemble: the ensemble.
        find: returns the model of a name and a version; raises `ServingError` if it is not loaded.

    Raises:
        ServingError: a model is missing, steps form a cycle, a tensor is made by no step or by two, or the data types
            and shapes of a tensor do not fit.
    """
    order = order_of_steps(ensemble)
    known_infos = dict(ensemble.inputs)
    for index in order:
        step = ensemble.steps[index]
        with_title = f"{ensemble.title(index)}: "
        if step.function:  # the types of its outputs are checked when it has run
            continue
        try:
            model = find(step.model, step.version)
        except ServingError as error:
            raise ServingError(error.status, with_title + str(error), error.retry_after) from None
        _check_names(with_title, step, model)
        for name, tensor in step.inputs.items():
            if tensor in known_infos:
                _check_fit(f"{with_title}input {name!r}", model.inputs[name][0], tensor, known_infos[tensor])
        known_infos |= {
            tensor: model.outputs[name][0] for name, tensor in step.outputs.items() if name in model.outputs
        }
    _check_ends(ensemble, known_infos)


def _check_names(with_title: str, step: Step, model: ServedModel) -> None:
    """Check that a step names inputs and outputs of its model, and all of its inputs."""
    if not step.outputs:
        raise _wrong(f"{with_title}no output of the model becomes a tensor of the ensemble")
    for kind, names, known_names in (
        ("input", step.inputs, model.inputs),
        ("output", step.outputs, model.model.outputs),
    ):
        for name in names:
            if name not in known_names:
                raise _wrong(f"{with_title}the model has no {kind} {name!r}{did_you_mean(name, known_names)}")
    missing_name = next((name for name in model.inputs if name not in step.inputs), None)
    if missing_name is not None:
        raise _wrong(f"{with_title}no tensor is given for the input {missing_name!r} of the model")


def _check_ends(ensemble: Ensemble, known_infos: Mapping[str, TensorInfo]) -> None:
    """Check that the inputs of an ensemble are read, and that its outputs are made and fit."""
    tensors_read = {tensor for step in ensemble.steps for tensor in step.inputs.values()}
    for name in ensemble.inputs:
        if name not in tensors_read:
            raise _wrong(f"no step reads the input {name!r} of the ensemble{did_you_mean(name, tensors_read)}")
    makers = ensemble.makers()
    for name, info in ensemble.outputs.items():
        if name not in makers:
            raise _wrong(f"no step makes the output {name!r} of the ensemble{did_you_mean(name, makers)}")
        if name in known_infos:
            _check_fit(f"output {name!r} of the ensemble", info, name, known_infos[name])


def _check_fit(reader: str, expected: TensorInfo, tensor: str, info: TensorInfo) -> None:
    """Check that a tensor may be read with this data type and shape."""
    if wire_type(expected) != wire_type(info):
        raise _wrong(f"{reader} is {wire_type(expected)}, but the tensor {tensor!r} is {wire_type(info)}")
    if not expected.shape.accepts(info.shape):
        shapes = f"{metadata_shape(expected)}, but the tensor {tensor!r} has {metadata_shape(info)}"
        raise _wrong(f"{reader} has the shape {shapes}")


def _wrong(message: str) -> ServingError:
    return ServingError(Status.INVALID, message)


# --- settings ---------------------------------------------------------------------------------------------------------


def ensemble_of_table(table: Any) -> Ensemble:
    """Return the ensemble of the table ``ensemble`` in a file with settings.

    Raises:
        InterposerError: the table has an unknown key, or a value of another form.
    """
    _check_table("ensemble", table, _TABLE_KEYS)
    steps = table.get("steps")
    if not isinstance(steps, list) or not steps:
        raise InvalidArgumentError("ensemble.steps must be a list of tables")
    inputs, outputs = (_tensors(f"ensemble.{key}", table.get(key)) for key in ("inputs", "outputs"))
    processes, signed_as = table.get("processes", 2), table.get("signed_as", "")
    if type(processes) is not int or not 1 <= processes <= _MOST_PROCESSES:
        raise InvalidArgumentError(
            f"ensemble.processes must be a whole number from 1 to {_MOST_PROCESSES}, not {processes!r}"
        )
    if not isinstance(signed_as, str):
        raise InvalidArgumentError(f"ensemble.signed_as must be a text such as classify:7, not {signed_as!r}")
    numbered_steps = enumerate(steps, 1)
    return Ensemble(
        inputs, outputs, tuple(_step(f"step {number}", step) for number, step in numbered_steps), processes, signed_as
    )


def _check_table(title: str, table: Any, keys: tuple[str, ...]) -> None:
    if not isinstance(table, dict):
        raise InvalidArgumentError(f"{title} must be a table with {', '.join(keys)}, not {table!r}")
    for key in table:
        if key not in keys:
            raise InvalidArgumentError(f"{title} has the unknown key {key!r}{did_you_mean(key, keys)}")


def _tensors(title: str, table: Any) -> dict[str, TensorInfo]:
    if not isinstance(table, dict) or not table:
        raise InvalidArgumentError(f"{title} must be a table of data types and shapes by name")
    return {name: _tensor(f"{title}.{name}", tensor) for name, tensor in table.items()}


def _tensor(title: str, table: Any) -> TensorInfo:
    _check_table(title, table, _TENSOR_KEYS)
    datatype, shape = table.get("datatype"), table.get("shape")
    if not isinstance(datatype, str) or not isinstance(shape, list) or any(type(size) is not int for size in shape):
        raise InvalidArgumentError(f'{title} must have a datatype such as "FP32" and a shape such as [-1, 64]')
    return tensor_info(datatype, shape)


def _step(title: str, table: Any) -> Step:
    _check_table(title, table, _STEP_KEYS)
    if "function" in table:
        return _step_of_function(title, table)
    model, version = table.get("model"), table.get("version", -1)
    if not isinstance(model, str) or not model:
        raise InvalidArgumentError(f"{title} needs the name of a model, or a function")
    if type(version) is not int or version < -1:
        raise InvalidArgumentError(f"{title}: version must be a number, or -1 for the highest one, not {version!r}")
    inputs, outputs = (_names(f"{title}: {key}", table.get(key, {})) for key in ("inputs", "outputs"))
    return Step(model, "" if version == -1 else str(version), inputs, outputs)


def _step_of_function(title: str, table: Any) -> Step:
    function = table["function"]
    if "model" in table or "version" in table:
        raise InvalidArgumentError(f"{title} has both a model and a function; make two steps of it")
    if not isinstance(function, str) or not _FUNCTION.fullmatch(function):
        raise InvalidArgumentError(f"{title}: function must be module:function, not {function!r}")
    inputs, outputs = (_names(f"{title}: {key}", table.get(key, {})) for key in ("inputs", "outputs"))
    if not outputs:
        raise InvalidArgumentError(f"{title}: no output of the function becomes a tensor of the ensemble")
    return Step("", "", inputs, outputs, function)


def _names(title: str, table: Any) -> dict[str, str]:
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise InvalidArgumentError(f"{title} must be a table from names of the model to tensors of the ensemble")
    return table
