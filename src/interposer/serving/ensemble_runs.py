"""Served ensembles: each step is a request for its model, and starts as soon as its tensors are there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard, cast

from interposer.core.errors import InterposerError, InvalidArgumentError
from interposer.core.types import Array, TensorInfo, TensorShape
from interposer.runtime import Runtime
from interposer.serving.ensemble import Ensemble, Step, check, order_of_steps
from interposer.serving.folder import ModelSource
from interposer.serving.functions import FunctionPool
from interposer.serving.protocol.datatypes import wire_type
from interposer.serving.protocol.errors import ServingError, Status, as_serving_error
from interposer.serving.protocol.messages import (
    InferRequest,
    InferResponse,
    InputTensor,
    OutputTensor,
    Parameters,
    RequestedOutput,
)
from interposer.serving.runs import Runner
from interposer.serving.served import ServedModel, metadata_shape
from interposer.serving.statistics import Timing
from interposer.serving.turns import rate_limit
from interposer.serving.warming import WarmUp
from interposer.session import Model

__all__ = ["ServedEnsemble", "StepRequest", "is_ensemble"]

StepRequest: TypeAlias = Callable[[str, str, InferRequest, float], Coroutine[Any, Any, InferResponse]]
"""Runs a request for the model with a name and a version within some seconds, as if a client had sent it."""
_OF_ENSEMBLE = ("explain", "timeout", "steps", "stop_value")
"""Parameters of a request that are for the ensemble, and not for its steps."""


class ServedEnsemble(ServedModel):
    """An ensemble that a server offers as a model. Used from the thread of the event loop only.

    Args:
        source: the file with the settings of the ensemble.
        ensemble: the ensemble.
        find: returns the model of a name and a version; raises `ServingError` if it is not loaded.
        request: runs a step.
        workers: the number of processes that share the rate of the ensemble.
        functions: runs the Python functions of the steps, and is closed with the ensemble; None without functions.

    Raises:
        ServingError: the ensemble does not fit the models of its steps; see `check`.
    """

    def __init__(
        self,
        source: ModelSource,
        ensemble: Ensemble,
        find: Callable[[str, str], ServedModel],
        request: StepRequest,
        workers: int = 1,
        functions: FunctionPool | None = None,
    ) -> None:
        check(ensemble, find)
        signature = cast(Model, _Signature(ensemble))  # all that `ServedModel` needs of a model that it does not run
        steps = _Steps(ensemble, find, request, functions)
        rate = rate_limit(source.settings.rate, source.settings.burst, workers)
        super().__init__(source.name, source.version, signature, steps, format="ensemble", rate=rate)
        self.ensemble = ensemble
        self.readiness = _Readiness(ensemble, find)

    @property
    def platform(self) -> str:
        return "ensemble"

    @property
    def runtimes(self) -> list[Runtime]:
        return []

    def layers_by_backend(self) -> dict[str, int]:
        return {}

    def warm_up(self, requests: Sequence[WarmUp] = ()) -> None:
        """Do nothing: the models of the steps have run already."""

    def config(self) -> dict[str, Any]:
        steps = [
            {
                "model_name": step.model or step.function, "model_version": int(step.version or -1),
                "input_map": dict(step.inputs), "output_map": dict(step.outputs),
            }
            for step in self.ensemble.steps
        ]  # fmt: skip
        return super().config() | {"backend": "", "ensemble_scheduling": {"step": steps}}


def is_ensemble(model: ServedModel) -> TypeGuard[ServedEnsemble]:
    """Return True for an ensemble."""
    return isinstance(model, ServedEnsemble)


class _Signature:
    """The inputs and outputs of an ensemble, in place of a model."""

    is_prepared = False

    def __init__(self, ensemble: Ensemble) -> None:
        self.inputs, self.outputs = ensemble.inputs, ensemble.outputs

    def close(self) -> None:
        """Do nothing, as the models of the steps belong to others."""


class _Readiness:
    """Whether the models of all steps are loaded, can run, and fit. Each question looks at the models again."""

    def __init__(self, ensemble: Ensemble, find: Callable[[str, str], ServedModel]) -> None:
        self._ensemble, self._find = ensemble, find

    @property
    def is_ready(self) -> bool:
        return not self.reason

    @property
    def reason(self) -> str:
        """Why the ensemble cannot run; an empty text if it can."""
        try:
            check(self._ensemble, self._find)
        except ServingError as error:
            return str(error)
        for index in self._ensemble.models:
            step = self._ensemble.steps[index]
            if not self._find(step.model, step.version).readiness.is_ready:
                return f"{self._ensemble.title(index)} is not ready"
        return ""

    def fail_at_start(self, error: BaseException) -> None: ...

    def watch(self) -> None: ...

    def succeeded(self) -> None: ...

    def failed(self, error: BaseException) -> None:
        """Do nothing: the model of the step that failed notes it."""

    def close(self) -> None: ...


class _Steps(Runner):
    """Runs the steps of an ensemble, each as a request of its own; those that do not wait for each other overlap."""

    def __init__(
        self,
        ensemble: Ensemble,
        find: Callable[[str, str], ServedModel],
        request: StepRequest,
        functions: FunctionPool | None,
    ) -> None:
        self._ensemble, self._find, self._request, self._functions = ensemble, find, request, functions
        self._order, self._makers = order_of_steps(ensemble), ensemble.makers()

    @property
    def concurrency(self) -> int:
        """The least of the steps, so that a request is refused before its first step runs."""
        of_models = [self._model(index).runner.concurrency for index in self._ensemble.models]
        return min(of_models if self._functions is None else [*of_models, self._functions.processes])

    def warm_up(self, inputs: Mapping[str, Array]) -> None: ...

    def forget(self, parameters: Parameters) -> None:
        for index in self._ensemble.models:
            self._model(index).runner.forget(parameters)

    def close(self) -> None:
        if self._functions is not None:
            self._functions.close()

    def describe(self) -> str:
        return f"steps: {', '.join(step.title for step in self._ensemble.steps)}"

    async def run(
        self,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        seconds: float,
        parameters: Parameters,
        timing: Timing,
    ) -> list[Array]:
        start = time.monotonic()
        step_parameters = {name: value for name, value in parameters.items() if name not in _OF_ENSEMBLE}
        tensors = {
            name: OutputTensor(name, wire_type(self._ensemble.inputs[name]), array) for name, array in inputs.items()
        }
        try:
            async with asyncio.TaskGroup() as group:
                tasks: dict[int, asyncio.Task[None]] = {}
                for index in self._order:
                    step = self._step(index, tasks, tensors, start + seconds, step_parameters)
                    tasks[index] = group.create_task(step)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        timing.compute = time.monotonic() - start
        return [self._checked(name, tensors[name]) for name in outputs]

    async def _step(
        self,
        index: int,
        tasks: Mapping[int, asyncio.Task[None]],
        tensors: dict[str, OutputTensor],
        deadline: float,
        parameters: Parameters,
    ) -> None:
        """Wait for the tensors of a step, run it, and add what it makes to `tensors`."""
        step = self._ensemble.steps[index]
        for tensor in step.inputs.values():
            if tensor in self._makers:
                await tasks[self._makers[tensor]]
        if step.function:
            tensors |= await self._called(index, step, tensors, deadline)
            return
        request = InferRequest(
            tuple(
                InputTensor(name, tensors[tensor].datatype, tensors[tensor].array)
                for name, tensor in step.inputs.items()
            ),
            tuple(RequestedOutput(name) for name in step.outputs),
            parameters=parameters,
        )
        self._check_made(index, step, request)
        try:
            response = await self._request(step.model, step.version, request, deadline - time.monotonic())
        except Exception as error:
            serving_error = as_serving_error(error)
            raise ServingError(
                serving_error.status, f"{self._ensemble.title(index)}: {serving_error}", serving_error.retry_after
            ) from error
        tensors |= {step.outputs[output.name]: output for output in response.outputs}

    async def _called(
        self, index: int, step: Step, tensors: Mapping[str, OutputTensor], deadline: float
    ) -> dict[str, OutputTensor]:
        """Return what the Python function of a step makes, by the names of the tensors."""
        assert self._functions is not None
        inputs = {name: tensors[tensor].array for name, tensor in step.inputs.items()}
        try:
            seconds = max(0.0, deadline - time.monotonic())
            arrays = await self._functions.call(step.function, inputs, list(step.outputs), seconds)
            return {
                tensor: OutputTensor(
                    tensor, wire_type(TensorInfo(arrays[name].shape, arrays[name].dtype)), arrays[name]
                )
                for name, tensor in step.outputs.items()
            }
        except InvalidArgumentError as error:
            raise ServingError(Status.INTERNAL, f"{self._ensemble.title(index)}: {error}") from None
        except InterposerError as error:
            serving_error = as_serving_error(error)
            raise ServingError(
                serving_error.status, f"{self._ensemble.title(index)}: {serving_error}", serving_error.retry_after
            ) from error

    def _check_made(self, index: int, step: Step, request: InferRequest) -> None:
        """Raise `ServingError` if a Python function has made a tensor that the model of a step does not accept."""
        makers = [self._makers[tensor] for tensor in step.inputs.values() if tensor in self._makers]
        functions = [self._ensemble.title(maker) for maker in makers if self._ensemble.steps[maker].function]
        if not functions:
            return
        try:
            self._model(index).check(request)
        except ServingError as error:
            if error.status is not Status.INVALID:
                raise
            message = f"{' and '.join(functions)} made what {self._ensemble.title(index)} does not accept: {error}"
            raise ServingError(Status.INTERNAL, message) from None

    def _model(self, index: int) -> ServedModel:
        step = self._ensemble.steps[index]
        try:
            return self._find(step.model, step.version)
        except ServingError as error:
            message = f"{self._ensemble.title(index)}: {error}"
            raise ServingError(Status.UNAVAILABLE, message, error.retry_after) from None

    def _checked(self, name: str, tensor: OutputTensor) -> Array:
        """Return the array of an output of the ensemble; raise `ServingError` if it is not what the settings say."""
        expected = self._ensemble.outputs[name]
        if tensor.datatype == wire_type(expected) and expected.shape.accepts(TensorShape(tensor.array.shape)):
            return tensor.array
        raise ServingError(
            Status.INTERNAL,
            f"{self._ensemble.title(self._makers[name])} made the tensor {name!r} as {tensor.datatype} with the shape "
            f"{list(tensor.array.shape)}; the ensemble has {wire_type(expected)} and {metadata_shape(expected)}",
        )
