"""Streams of answers: a model runs several times for one request, and outputs become the inputs of the next run."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from interposer.core.errors import did_you_mean
from interposer.serving.core import Call
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.protocol.messages import InferRequest, InferResponse, InputTensor, RequestedOutput
from interposer.serving.statistics import Timing

__all__ = ["answers"]

_MOST: Final = 1 << 16
_OWN: Final = ("steps", "stop_value")


async def answers(call: Call, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
    """Run a model as often as the parameter ``steps`` says, and yield the answer of each run.

    The outputs that the setting `feedback` of the model names are inputs of the next run; the other inputs stay. The
    stream ends early if all elements of these outputs equal the parameter ``stop_value``. The runs are one sequence of
    a model with states. The parameter ``triton_final_response`` of an answer says whether it is the last one.

    Raises:
        ServingError: a parameter is wrong, or the feedback does not fit the model.
        InterposerError: a run failed.
    """
    served = call.served
    feedback = served.feedback
    steps, stop = _steps(request.parameters), _stop_value(request.parameters)
    _check(feedback, request, served.model.outputs)
    requested_names = {output.name for output in request.outputs}
    is_own = "sequence_id" not in request.parameters
    sequence = f"stream-{uuid.uuid4().hex}" if is_own else request.parameters["sequence_id"]
    hidden = tuple(
        RequestedOutput(name) for name in feedback.values() if requested_names and name not in requested_names
    )
    next_request = replace(request, outputs=request.outputs + hidden)
    has_ended = False
    try:
        for step in range(steps):
            parameters = _of_step(request.parameters, sequence, is_own or None, step, steps)
            response = await call.run(replace(next_request, parameters=parameters))
            tensors = {output.name: output for output in response.outputs}
            fed = [
                InputTensor(name, tensors[output_name].datatype, tensors[output_name].array)
                for name, output_name in feedback.items()
            ]
            has_ended = step == steps - 1 or (stop is not None and all(np.all(tensor.array == stop) for tensor in fed))
            shown_outputs = tuple(
                output for output in response.outputs if not requested_names or output.name in requested_names
            )
            extra_parameters = {"triton_final_response": has_ended}
            with call.parked():
                yield replace(response, outputs=shown_outputs, parameters=response.parameters | extra_parameters)
            if has_ended:
                return
            await _before_next_run(call)
            unfed = tuple(tensor for tensor in next_request.inputs if tensor.name not in feedback)
            next_request = replace(next_request, inputs=(*unfed, *fed))
    finally:
        if is_own or (has_ended and request.parameters.get("sequence_end") is True):
            served.runner.forget({**call.parameters_of(request), "sequence_id": sequence})


async def _before_next_run(call: Call) -> None:
    """Count a run, and wait until the rate of the model allows the next one and others had their turns."""
    served = call.served
    served.statistics.executed(call.timing.batch, call.timing.compute)
    call.timing = Timing()
    if served.rate is not None:
        with call.parked():
            await served.rate.wait(call.remaining)
    async with call.core.admission.turn:  # quick runs never wait, and others need the event loop too
        await asyncio.sleep(0)


def _of_step(
    parameters: Mapping[str, Any], sequence: Any, is_own: bool | None, step: int, steps: int
) -> dict[str, Any]:
    """Return the parameters of one run: only the first may start a sequence, and only the last may end it."""
    start = step == 0 and (is_own or parameters.get("sequence_start", False))
    end = step == steps - 1 and parameters.get("sequence_end", False)
    other_parameters = {name: value for name, value in parameters.items() if name not in _OWN}
    return other_parameters | {"sequence_id": sequence, "sequence_start": start, "sequence_end": end}


def _steps(parameters: Mapping[str, Any]) -> int:
    steps = parameters.get("steps", 1)
    if type(steps) is not int or not 1 <= steps <= _MOST:
        raise ServingError(Status.INVALID, f"the parameter steps is not a whole number from 1 to {_MOST}")
    return steps


def _stop_value(parameters: Mapping[str, Any]) -> float | None:
    stop = parameters.get("stop_value")
    if stop is not None and (isinstance(stop, bool) or not isinstance(stop, int | float)):
        raise ServingError(Status.INVALID, "the parameter stop_value is not a number")
    return stop


def _check(feedback: Mapping[str, str], request: InferRequest, outputs: Mapping[str, Any]) -> None:
    names = {tensor.name for tensor in request.inputs}
    for name, output in feedback.items():
        if name not in names or output not in outputs:
            problem = f"has no input {name!r}" if name not in names else f"has no output {output!r}"
            hint = did_you_mean(name, names) if name not in names else did_you_mean(output, outputs)
            raise ServingError(
                Status.INVALID, f"the request or the model {problem}, which its setting feedback names{hint}"
            )
    for requested_output in request.outputs:
        if requested_output.name in feedback.values() and (
            requested_output.classes or requested_output.region is not None
        ):
            raise ServingError(
                Status.INVALID,
                f"output {requested_output.name!r} is the next input, so it can be neither classes nor shared",
            )
