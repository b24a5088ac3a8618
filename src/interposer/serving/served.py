"""`ServedModel`: one version of a model that a server runs, with checks of requests and forms of results."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

import numpy as np

from interposer.core.errors import BindingError, ConfigError, InterposerError, InvalidArgumentError, did_you_mean
from interposer.core.types import Array, DataType, Dim, TensorInfo
from interposer.runtime import Runtime
from interposer.serving.cache import ModelCache
from interposer.serving.protocol.datatypes import data_type, wire_type
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.protocol.messages import InferRequest, OutputTensor, RequestedOutput
from interposer.serving.readiness import Readiness, ReadyState, is_of_model
from interposer.serving.runs import Runner
from interposer.serving.sequence_batches import SequenceSettings
from interposer.serving.statistics import FOLDER, Statistics
from interposer.serving.turns import RateLimit
from interposer.serving.warming import WarmUp
from interposer.session import Model
from interposer.session.stopwatch import example_inputs

__all__ = ["ServedModel"]

_log: Final = logging.getLogger("interposer.serving")
_SHAPES: Final = 256
"""Shapes of inputs that are remembered."""
_TRIAL: Final = 30.0
"""The most seconds of a trial run."""


class ServedModel:
    """One version of a model that is loaded. Used from the thread of the event loop only.

    Args:
        name: the name of the model in requests.
        version: the number of the version, as text.
        model: the model.
        runner: runs the model for requests.
        format: the format of the model's file, such as ``onnx``.
        labels: the names of classes, for outputs that are requested as classes.
        owned: whether `close` closes the model.
        rate: the most requests per second; None for no limit.
        cache: the results that are cached; None without a cache.
        sequences: what the runner does with sequences, and which inputs and outputs are for it alone; None without
            settings.

    Raises:
        InvalidArgumentError: the protocol cannot express an input or an output.
    """

    def __init__(
        self,
        name: str,
        version: str,
        model: Model,
        runner: Runner,
        *,
        format: str = "network",
        labels: tuple[str, ...] = (),
        owned: bool = True,
        rate: RateLimit | None = None,
        cache: ModelCache | None = None,
        sequences: SequenceSettings | None = None,
    ) -> None:
        self.name, self.version, self.model, self.runner = name, version, model, runner
        self.format, self.labels, self._owned = format, labels, owned
        self.statistics = Statistics(name, version, os.environ.get(FOLDER) or None)
        self.is_retired = False
        self.num_parked = 0
        self.rate, self.cache = rate, cache
        self.feedback: Mapping[str, str] = {}
        self.readiness: ReadyState = Readiness(name, self._tried)
        self._trial_inputs: dict[str, Array] = {}
        self.sequences = sequences
        hidden_inputs = {*sequences.states, *sequences.controls} if sequences is not None else set()
        hidden_outputs = sequences.hidden_outputs if sequences is not None else set()
        infos = {key: info for key, info in model.inputs.items() if key not in hidden_inputs}
        self.names = [key for key in model.outputs if key not in hidden_outputs]
        self.inputs = {key: (info, _wire(f"input {key!r}", info)) for key, info in infos.items()}
        self.outputs = {
            key: (info, _wire(f"output {key!r}", info))
            for key, info in self._output_infos().items()
            if key not in hidden_outputs
        }
        fixed_shapes = {key: metadata_shape(info) for key, info in infos.items()}
        self._accepted_shapes: set[tuple[str, tuple[int, ...]]] = set()
        self._fixed_shapes = {key: tuple(shape) for key, shape in fixed_shapes.items() if -1 not in shape}

    @property
    def in_flight(self) -> int:
        """The requests of this process that have begun and not ended."""
        return self.statistics.in_flight

    @property
    def num_places_taken(self) -> int:
        """The requests of this process that run or wait, without streams that wait for their clients."""
        return self.in_flight - self.num_parked

    def _output_infos(self) -> dict[str, TensorInfo]:
        infos = {key: info for key, info in self.model.outputs.items() if info is not None}
        if len(infos) < len(self.model.outputs) and self.model.is_prepared:  # nobody else uses the model yet
            return {layer.name: layer.values[0].known for layer in self.model.optimized.outputs}
        return infos

    def check(self, request: InferRequest) -> dict[str, Array]:
        """Return the inputs of a request by name, in the order of the model's inputs.

        Raises:
            ServingError: the names, data types or shapes of the inputs do not fit the model, or an output is unknown.
        """
        arrays = {}
        for tensor in request.inputs:
            if tensor.name not in self.inputs:
                hint = did_you_mean(tensor.name, self.inputs)
                raise ServingError(Status.INVALID, f"model {self.name!r} has no input {tensor.name[:200]!r}{hint}")
            self._check_input(tensor.name, tensor.datatype, tensor.array)
            arrays[tensor.name] = tensor.array
        for name in self.inputs:
            if name not in arrays:
                raise ServingError(Status.INVALID, f"the request lacks the input {name!r} of model {self.name!r}")
        for output in request.outputs:
            if output.name not in self.names:
                hint = did_you_mean(output.name, self.names)
                raise ServingError(Status.INVALID, f"model {self.name!r} has no output {output.name[:200]!r}{hint}")
        return {name: arrays[name] for name in self.inputs} if len(arrays) > 1 else arrays

    def _check_input(self, name: str, datatype: str, array: Array) -> None:
        info, expected = self.inputs[name]
        if datatype != expected:
            raise ServingError(Status.INVALID, f"input {name!r} is {datatype}; model {self.name!r} expects {expected}")
        if array.shape != self._fixed_shapes.get(name) and not self._accepts(name, info, array.shape):
            shape = metadata_shape(info)
            raise ServingError(
                Status.INVALID, f"input {name!r} has the shape {list(array.shape)}; model {self.name!r} expects {shape}"
            )

    def _accepts(self, name: str, info: TensorInfo, shape: tuple[int, ...]) -> bool:
        """Return True if an input may have this shape. The latest shapes are remembered."""
        key = name, shape
        if key not in self._accepted_shapes:
            if not self.runner.accepts(name, info, shape):
                return False
            if len(self._accepted_shapes) >= _SHAPES:
                self._accepted_shapes.clear()
            self._accepted_shapes.add(key)
        return True

    def output_names(self, request: InferRequest) -> list[str]:
        """Return the names of the outputs that a request asks for."""
        return [output.name for output in request.outputs] or list(self.names)

    def results(self, request: InferRequest, arrays: list[Array]) -> tuple[OutputTensor, ...]:
        """Return the outputs of a response, from the arrays of the outputs that the request asks for."""
        requested_outputs = request.outputs or tuple(RequestedOutput(name) for name in self.names)
        return tuple(self._result(output, array) for output, array in zip(requested_outputs, arrays, strict=True))

    def _result(self, requested_output: RequestedOutput, array: Array) -> OutputTensor:
        declared_output = self.outputs.get(requested_output.name)
        datatype = (
            declared_output[1] if declared_output is not None else wire_type(TensorInfo(array.shape, array.dtype))
        )
        dtype = data_type(datatype)
        array = array if array.dtype == dtype.numpy else array.astype(dtype.numpy)
        if requested_output.classes:
            return OutputTensor(
                requested_output.name, "BYTES", _classes(requested_output, array, dtype, self.labels), requested_output
            )
        return OutputTensor(requested_output.name, datatype, array, requested_output)

    @property
    def platform(self) -> str:
        """The platform in the model's metadata, such as ``interposer_onnx``."""
        return f"interposer_{self.format}"

    @property
    def runtimes(self) -> list[Runtime]:
        """The runtimes that run the model."""
        return [self.model.runtime]

    def layers_by_backend(self) -> dict[str, int]:
        """Return how many layers of the network each backend runs; empty while its shapes are not known."""
        try:
            placements = self.model.optimized.placements
        except InvalidArgumentError:  # also if the model is closed, because a new version has replaced it
            return {}
        return dict(Counter(str(placement.backend) for placement in placements))

    def metadata(self, versions: list[str]) -> dict[str, Any]:
        """Return the metadata of the model; `versions` are all versions that are ready."""
        parameters = {f"layers_{backend}": count for backend, count in self.layers_by_backend().items()}
        return {
            "name": self.name,
            "versions": versions,
            "platform": self.platform,
            **self.tensors(),
            **({"parameters": parameters} if parameters else {}),
        }

    def tensors(self) -> dict[str, list[dict[str, Any]]]:
        """Return names, types and shapes of the inputs and outputs."""
        return {
            "inputs": [_tensor(name, *info_and_type) for name, info_and_type in self.inputs.items()],
            "outputs": [_tensor(name, *info_and_type) for name, info_and_type in self.outputs.items()],
        }

    def config(self) -> dict[str, Any]:
        """Return the model's configuration, with the fields of Triton's that clients read."""
        idle_seconds = self.runner.sequence_idle
        sequences = {} if idle_seconds is None else {"max_sequence_idle_microseconds": round(idle_seconds * 1e6)}
        return {
            "name": self.name,
            "platform": self.platform,
            "backend": "interposer",
            "max_batch_size": 0,
            "input": [_configured(name, *info_and_type) for name, info_and_type in self.inputs.items()],
            "output": [_configured(name, *info_and_type) for name, info_and_type in self.outputs.items()],
            **({"sequence_batching": sequences} if sequences else {}),
        }

    def warm_up(self, requests: Sequence[WarmUp] = ()) -> None:
        """Run the model for these requests; without any, once with example inputs, if their shapes are known.

        Raises:
            ConfigError: a request does not fit the model.
        """
        infos = {name: info for name, (info, _) in self.inputs.items()}
        for request in requests:
            self._warm_up_with(request.arrays(self.name, infos), request.count)
        if requests or not self.model.is_prepared:
            return
        started_at = time.perf_counter()
        with suppress(InvalidArgumentError, BindingError):  # inputs that cannot be made up
            examples = example_inputs(self.model.optimized)
            self._trial_inputs = {key: array for key, array in examples.items() if key in self.inputs}
            try:
                self.runner.warm_up(self._trial_inputs)
            except InterposerError as error:
                _log.warning("model %r failed in its first run, with example inputs: %s", self.name, error)
                if is_of_model(error):
                    self.readiness.fail_at_start(error)
        _log.debug("model %r ran once in %.3f s", self.name, time.perf_counter() - started_at)

    def _warm_up_with(self, inputs: dict[str, Array], count: int) -> None:
        self._trial_inputs = self._trial_inputs or inputs
        try:
            for _ in range(count):
                self.runner.warm_up(inputs)
        except InterposerError as error:
            if not is_of_model(error):
                raise ConfigError(f"warmup of model {self.name!r} does not fit it: {error}") from None
            _log.warning("model %r failed in its warm-up: %s", self.name, error)
            self.readiness.fail_at_start(error)

    async def _tried(self) -> bool:
        """Run the model on its trial inputs; return False if it has none. See `Runner.try_out` for the errors."""
        if not self._trial_inputs:
            return False
        await self.runner.try_out(self._trial_inputs, self.names, _TRIAL)
        return True

    def retire(self) -> None:
        """Close the model as soon as no request uses it."""
        self.is_retired = True
        self.readiness.close()
        self.close_if_unused()

    def close_if_unused(self) -> None:
        """Close a retired model that no request uses."""
        if self.is_retired and not self.in_flight:
            self.runner.close()
            if self.cache is not None:
                self.cache.close()
            if self._owned:
                self.model.close()
                _Garbage.collect_soon()


class _Garbage:
    """When each event loop collects garbage next, so that models closed at about the same time share the collection."""

    due: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, float]] = WeakKeyDictionary()

    @classmethod
    def collect_soon(cls) -> None:
        """Collect in a second: the layers of a closed model refer to each other, and keep its compiled kernels."""
        with suppress(RuntimeError):  # no event loop runs, because the server has ended
            loop = asyncio.get_running_loop()
            if loop.time() >= cls.due.get(loop, 0.0):
                loop.call_later(1.0, gc.collect)
                cls.due[loop] = loop.time() + 1.0


def metadata_shape(info: TensorInfo) -> list[int]:
    """Return a shape with -1 for sizes that are not known."""
    return [-1 if isinstance(size, Dim) else int(size) for size in info.shape] if info.is_ranked else [-1]


def _wire(title: str, info: TensorInfo) -> str:
    try:
        return wire_type(info)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{title} cannot be served: {error}") from None


def _tensor(name: str, info: TensorInfo, datatype: str) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": metadata_shape(info)}


def _configured(name: str, info: TensorInfo, datatype: str) -> dict[str, Any]:
    data_type = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
    return {"name": name, "data_type": data_type, "dims": metadata_shape(info)}


def _classes(requested_output: RequestedOutput, array: Array, dtype: DataType, labels: tuple[str, ...]) -> Array:
    """Return texts ``value:index`` or ``value:index:label`` of the largest elements, for each index of the first axis.

    Of equal elements, those with the lower index come first; NaN come last.

    Raises:
        ServingError: the elements are not numbers.
    """
    if not (dtype.is_float or dtype.is_integer):
        raise ServingError(Status.INVALID, f"output {requested_output.name!r} has no numbers, so it has no classes")
    numbers = array.astype(np.float32) if array.dtype.kind == "V" else array  # bfloat16
    rows = numbers.reshape(1, -1) if array.ndim < 2 else numbers.reshape(len(array), math.prod(array.shape[1:]))
    order = _descending(rows)[:, : requested_output.classes]
    texts = np.empty(order.shape, object)
    for position, index in np.ndenumerate(order):
        label = f":{labels[index]}" if index < len(labels) else ""
        texts[position] = f"{rows[position[0], index]}:{index}{label}"
    return texts[0] if array.ndim < 2 else texts


def _descending(rows: Array) -> Array:
    """Return the indices of the elements of each row, those of the largest elements first, and NaN last."""
    is_nan = np.isnan(rows) if rows.dtype.kind == "f" else np.zeros(rows.shape, bool)
    keys = np.where(is_nan, 0, rows)
    backwards = np.lexsort((keys[:, ::-1], ~is_nan[:, ::-1]), axis=1)[:, ::-1]  # which keeps equal elements in order
    order: Array = rows.shape[1] - 1 - backwards
    return order
