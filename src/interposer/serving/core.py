"""`Core`: what a server does with a request, the same for HTTP and gRPC."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Final, TypeVar

from interposer._version import __version__
from interposer.core.types import Array
from interposer.serving.access import Access
from interposer.serving.admission import Admission
from interposer.serving.bodies import BodyLimits
from interposer.serving.metrics import Metrics
from interposer.serving.options import ServeOptions
from interposer.serving.peers import Peer, crowding_client
from interposer.serving.protocol.errors import ServingError, Status, as_serving_error
from interposer.serving.protocol.http_messages import Regions, no_shared_memory
from interposer.serving.protocol.messages import (
    CLIENT,
    InferRequest,
    InferResponse,
    OutputTensor,
    Parameters,
    client_of,
)
from interposer.serving.protocol.reading import Reading
from interposer.serving.repository import Repository
from interposer.serving.served import ServedModel
from interposer.serving.shared_memory import SharedMemory
from interposer.serving.statistics import Timing
from interposer.serving.tracing import is_traced, request_span

__all__ = ["Call", "Core"]

_log: Final = logging.getLogger("interposer.serving")
Result = TypeVar("Result")
_LARGE: Final = 1 << 18
"""Bytes of outputs from which on they are sorted or copied in another thread."""
_PARSERS: Final = 2
"""Threads that read large requests, and as many that write large answers.

They hold the interpreter's lock in turns, so that more would not be faster, and the event loop waits for all of them.
"""
_UNKNOWN: Final = Peer()
_NO_SPAN: Final = nullcontext()
_requests: Final = logging.getLogger("interposer.serving.requests")


class Core:
    """Accepts requests, runs models, and counts. Used from the thread of the event loop only.

    Args:
        repository: the models.
        options: limits and behaviour.

    Attributes:
        body_limits: the limits of the body of an inference request.
    """

    def __init__(self, repository: Repository, options: ServeOptions | None = None) -> None:
        self.repository = repository
        self.options = ServeOptions() if options is None else options
        self.metrics = Metrics()
        self.is_stopping = self.is_draining = False
        self.started = time.time()
        self._calls: set[Call] = set()
        self.body_limits = BodyLimits(self.options.max_body, self.options.max_ratio, self.options.timeout)
        self.access = Access(self.options.token, self.options.clients)
        self.admission = Admission(self.options)
        self._parser = ThreadPoolExecutor(_PARSERS, "interposer-parser")
        self._writer = ThreadPoolExecutor(_PARSERS, "interposer-writer")
        repository.request = self._step_of_ensemble
        self._memory = SharedMemory(limit=self.options.max_body) if self.options.shared_memory else None

    def end(self) -> None:
        """Close the models, and forget the regions of shared memory; called when the server has stopped."""
        self.repository.close()
        self._parser.shutdown(wait=False, cancel_futures=True)
        self._writer.shutdown(wait=False, cancel_futures=True)
        if self._memory is not None:
            self._memory.unregister()

    async def in_parser(self, reading: Reading, function: Callable[..., Result], *args: Any) -> Result:
        """Return the result of a function that reads a large request, which is called in a thread for such requests.

        Raises:
            ServingError: the request is late, or the function raises it.
        """
        job = asyncio.get_running_loop().run_in_executor(self._parser, function, *args)
        await asyncio.wait([job], timeout=max(0.0, reading.deadline - time.monotonic()))
        if not job.done():
            job.cancel()
            raise ServingError(Status.LATE, "the deadline of the request passed while it was read")
        return job.result()

    async def in_writer(self, function: Callable[..., Result], *args: Any) -> Result:
        """Return the result of a function that makes a large answer, which is called in a thread for such answers."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, function, *args)

    def check_model(self, name: str, version: str) -> None:
        """Raise `ServingError` if no request for this model can be accepted, before its body is read."""
        if self.is_draining:
            raise ServingError(Status.UNAVAILABLE, "the server is stopping", retry_after=1)
        self.repository.find(name, version)

    def refused(self, protocol: str, error: ServingError) -> None:
        """Count a request that was refused before it got a slot of a model."""
        self.metrics.refused(protocol, error.status)

    def regions_of(self, peer: Peer) -> Regions | None:
        """Return the regions of shared memory that a client may use; None if the server does not offer them."""
        return None if self._memory is None else self._memory.of_user(peer)

    def shared_memory(self) -> SharedMemory:
        """Return the regions of shared memory; raise `ServingError` if the server does not offer them."""
        if self._memory is None:
            raise no_shared_memory()
        return self._memory

    def check_control(self, peer: Peer) -> None:
        """Check that a client may load and unload models; raise `ServingError` if not."""
        if not self.options.control:
            raise ServingError(
                Status.FORBIDDEN,
                "this server does not load and unload models on request; start it with --control explicit",
            )
        self.access.check("control", peer)

    def check_shared_memory(self, peer: Peer) -> None:
        """Check that a client may use shared memory; raise `ServingError` if not."""
        if not self.options.shared_memory:
            raise no_shared_memory()
        self.access.check("shared_memory", peer)

    def owner_of_regions(self, peer: Peer) -> int | None:
        """Return the user whose regions of shared memory a client may list and forget; None for those of all users."""
        return None if self.access.is_owner(peer) else -1 if peer.user is None else peer.user

    async def index(self, peer: Peer, only_ready: bool = False) -> list[dict[str, str]]:
        """Return the models that a client may use, with their states; raise `ServingError` if it may not infer."""
        self.access.check("infer", peer)
        models = await self.repository.index(only_ready)
        return [model for model in models if self.access.may_use(peer, model["name"])]

    async def load(self, name: str, parameters: Mapping[str, Any]) -> None:
        """Load a model, or load it again; raise `ServingError` if that fails, or if the request has parameters."""
        if parameters:
            raise ServingError(Status.INVALID, "models are loaded as the files say; parameters are not possible")
        await self.repository.load(name)

    def model_metadata(self, name: str, version: str = "") -> dict[str, Any]:
        """Return the metadata of a model; raise `ServingError` if there is no such model."""
        return self.repository.find(name, version).metadata(self.repository.versions(name))

    def statistics(self, name: str = "", version: str = "") -> list[dict[str, Any]]:
        """Return the statistics of a model, or of all models; raise `ServingError` if there is no such model."""
        if not name:
            models = self.repository.served
        elif version:
            models = [self.repository.find(name, version)]
        else:
            self.repository.find(name)
            models = [model for model in self.repository.served if model.name == name]
        return [model.statistics.to_dict() for model in models]

    def span(self, call: Call, carrier: Mapping[str, str] | None) -> AbstractContextManager[None]:
        """Return a context in which a request has a span in a trace, if the program has a provider of traces.

        `carrier` are the headers of the request; None if it is known that there is no provider.
        """
        return self._span(call, carrier) if carrier is not None and is_traced() else _NO_SPAN

    @contextmanager
    def _span(self, call: Call, carrier: Mapping[str, str]) -> Iterator[None]:
        served = call.served
        with request_span(served.name, served.version, call.protocol, carrier) as span:
            yield
            if span is not None:
                span.set_attribute("interposer.batch_size", call.timing.batch)
                span.set_attribute("interposer.queue_seconds", call.timing.queue)
                span.set_attribute("interposer.compute_seconds", call.timing.compute)
                span.set_attribute("interposer.backends", list(served.layers_by_backend()))

    def shared(self, output: OutputTensor, peer: Peer) -> OutputTensor:
        """Write an output to the shared memory that the request names for it, if any, and return it so marked.

        The memory must belong to the user who sends the request.

        Raises:
            ServingError: the server does not offer shared memory, or the region is too small.
        """
        requested_output = output.requested
        if requested_output is None or requested_output.region is None:
            return output
        self.shared_memory().write(*requested_output.region, output.array, peer)
        return replace(output, is_shared=True)

    @property
    def in_flight(self) -> int:
        """The number of requests that have begun and not ended."""
        return len(self._calls)

    @property
    def is_ready(self) -> bool:
        """True if the models are loaded and can run, and the server is not stopping.

        One model that can run is enough, so that a broken one does not stop the others; with the option
        `strict_readiness`, all of them must.
        """
        is_stopping = self.is_stopping or self.is_draining
        return not is_stopping and self.repository.is_ready(self.options.strict_readiness)

    def is_model_ready(self, name: str, version: str = "") -> bool:
        """Return True if a model can run and the server is not stopping; raise `ServingError` if there is no model."""
        served = self.repository.find(name, version)
        return served.readiness.is_ready and not self.is_stopping and not self.is_draining

    def server_metadata(self) -> dict[str, Any]:
        """Return the name and the version of the server, and the extensions of the protocol that it offers."""
        extensions = ["binary_tensor_data", "classification", "model_configuration", "parameters", "sequence"]
        extensions += ["model_repository", "statistics"]
        if self.options.shared_memory:
            extensions.append("system_shared_memory")
        return {"name": "interposer", "version": __version__, "extensions": extensions}

    @contextmanager
    def call(
        self,
        model: str,
        version: str,
        protocol: str,
        seconds: float | None = None,
        arrived: float | None = None,
        client: str = "",
    ) -> Iterator[Call]:
        """Accept a request that has arrived completely, and count it at the end of a ``with`` block.

        Args:
            model: the name of the model.
            version: the version, or an empty text for the server's choice.
            protocol: "http", "grpc", or "ensemble" for a step of an ensemble.
            seconds: the time until the client's own deadline; None if there is none.
            arrived: when the request began to arrive, as `time.monotonic` says; None means now.
            client: who sends the request: its name, or its address.

        Raises:
            ServingError: there is no such model, the server is stopping, or too many requests wait already. Every
                exception in the block is turned into a `ServingError`, except the cancellation of the task.
        """
        seconds = self.options.timeout if seconds is None else min(seconds, self.options.timeout)
        call = Call(self, protocol, seconds, arrived, client)
        try:
            served = self._admitted(model, version, client)
        except ServingError as refusal:
            self.refused(protocol, refusal)
            raise
        call.served = served
        served.statistics.in_flight += 1
        self._calls.add(call)
        failure: ServingError | None = None
        try:
            yield call
        except asyncio.CancelledError:
            failure = call.reason or ServingError(Status.CANCELLED, "the client has left")
            if call.reason is None:
                raise
            raise failure from None
        except Exception as error:
            failure = as_serving_error(error)
            if failure.status is Status.INTERNAL:
                served.readiness.failed(error)
                _log.error("a request for model %r failed: %s", served.name, error, exc_info=error)
            raise failure from error
        finally:
            self._calls.discard(call)
            served.statistics.in_flight -= 1
            served.close_if_unused()
            self._count(call, served, failure)

    async def _step_of_ensemble(self, model: str, version: str, request: InferRequest, seconds: float) -> InferResponse:
        """Run a request that is a step of an ensemble, and count it as one of its own model."""
        with self.call(model, version, "ensemble", seconds, client=client_of(request.parameters)) as call:
            return await call.run(request)

    def _admitted(self, name: str, version: str, client: str) -> ServedModel:
        if self.is_draining:
            raise ServingError(Status.UNAVAILABLE, "the server is stopping", retry_after=1)
        served = self.repository.find(name, version)
        if served.rate is not None:
            served.rate.take(name)
        limit = served.runner.concurrency + self.options.queue
        if served.num_places_taken >= limit and not self._makes_room(served, client):
            raise ServingError(
                Status.FULL, f"{served.num_places_taken} requests for model {name!r} run or wait already", retry_after=1
            )
        return served

    def _makes_room(self, served: ServedModel, client: str) -> bool:
        """Refuse the latest request of the client that has the most places of a model, for one of another client.

        Returns False if no client has two places more than `client`. So one client cannot keep the others out.
        """
        calls = [call for call in self._calls if call.served is served and call.takes_place]
        counts = Counter(call.client for call in calls)
        busiest = crowding_client(counts, client)
        if busiest is None:
            return False
        latest = max((call for call in calls if call.client == busiest), key=lambda call: call.arrived)
        latest.cancel(
            ServingError(
                Status.TOO_MANY, f"{counts[busiest]} requests of this client for model {served.name!r} wait already", 1
            )
        )
        return True

    def _count(self, call: Call, served: ServedModel, failure: ServingError | None) -> None:
        seconds = time.monotonic() - call.arrived
        if failure is None:
            served.readiness.succeeded()
            served.statistics.succeeded(seconds, call.timing)
            if call.timing.is_counted:
                served.statistics.executed(call.timing.batch, call.timing.compute)
        else:
            served.statistics.add("cancel" if failure.status is Status.CANCELLED else "fail", seconds)
        self.metrics.ended(served, call.protocol, failure, seconds, call.timing)
        if _requests.isEnabledFor(logging.INFO):
            fields = {
                "model": served.name, "version": served.version, "protocol": call.protocol,
                "code": "OK" if failure is None else failure.status.grpc,
                "seconds": round(seconds, 6), "id": call.id[:200],
            }  # fmt: skip
            _requests.info("%s", json.dumps(fields), extra={"fields": fields})

    def cancel_all(self) -> None:
        """Cancel the requests that still run, because the server stops."""
        for call in tuple(self._calls):
            call.cancel(ServingError(Status.UNAVAILABLE, "the server has stopped before the request ended"))


class Call:
    """One request from its arrival to its end."""

    def __init__(
        self, core: Core, protocol: str, seconds: float, arrived: float | None = None, client: str = ""
    ) -> None:
        self.core, self.protocol, self.client = core, protocol, client
        self.arrived = time.monotonic() if arrived is None else arrived
        self.seconds = seconds
        self.served: ServedModel
        self.peer = _UNKNOWN
        self.timing = Timing()
        self.reason: ServingError | None = None
        self.id = ""
        self._task: asyncio.Task[Any] | None = None
        self._is_parked = False

    @property
    def takes_place(self) -> bool:
        """True if the request takes one of the places of its model: it is neither refused nor parked."""
        return self.reason is None and not self._is_parked

    @contextmanager
    def parked(self) -> Iterator[None]:
        """A context in which a stream waits for its client or its rate, and takes no place of its model."""
        self._is_parked = True
        self.served.num_parked += 1
        try:
            yield
        finally:
            self.served.num_parked -= 1
            self._is_parked = False

    @property
    def deadline(self) -> float:
        """The time of `time.monotonic` at which the request is late."""
        return self.arrived + self.seconds

    @property
    def remaining(self) -> float:
        """Seconds until the deadline of the request.

        Raises:
            ServingError: the deadline has passed.
        """
        seconds_left = self.deadline - time.monotonic()
        if seconds_left <= 0:
            raise ServingError(Status.LATE, f"the request took longer than {self.seconds:g} seconds")
        return seconds_left

    def cancel(self, reason: ServingError) -> None:
        """End the request with this error, if it still runs."""
        if self.reason is None:
            self.reason = reason
            if self._task is not None:
                self._task.cancel()

    async def run(self, request: InferRequest) -> InferResponse:
        """Run the model for a request.

        Raises:
            InterposerError: the request does not fit the model, or the run failed.
        """
        served = self.served
        self.id = request.id
        inputs = served.check(request)
        self.seconds = min(self.seconds, _timeout(request))
        if self.reason is not None:
            raise self.reason
        self._task = asyncio.current_task()
        try:
            arrays = await self._arrays(request, inputs)
        finally:
            self._task = None
        parameters = self._explained() if request.parameters.get("explain") is True else {}
        outputs = await self._outputs(request, arrays)
        return InferResponse(served.name, served.version, outputs, request.id, parameters)

    def parameters_of(self, request: InferRequest) -> Parameters:
        """Return the parameters of a request, with the client who sends it."""
        return {**request.parameters, CLIENT: self.client}

    async def _outputs(self, request: InferRequest, arrays: list[Array]) -> tuple[OutputTensor, ...]:
        """Return the outputs of the response; those that are sorted or copied and large are made in another thread."""
        is_special = any(output.classes or output.region for output in request.outputs)
        if is_special and sum(array.nbytes for array in arrays) > _LARGE:
            return await self.core.in_writer(self._made_outputs, request, arrays)
        return self._made_outputs(request, arrays)

    def _made_outputs(self, request: InferRequest, arrays: list[Array]) -> tuple[OutputTensor, ...]:
        return tuple(self.core.shared(output, self.peer) for output in self.served.results(request, arrays))

    async def _arrays(self, request: InferRequest, inputs: dict[str, Array]) -> list[Array]:
        """Return the outputs that a request asks for, from the cache of the model or from a run."""
        served, names = self.served, self.served.output_names(request)
        if served.cache is None:
            return await served.runner.run(inputs, names, self.remaining, self.parameters_of(request), self.timing)
        start = time.monotonic()
        key = served.cache.key(inputs, names)
        arrays = served.cache.get(key)
        if arrays is not None:
            self.timing.is_counted = False
            served.statistics.add("cache_hit", time.monotonic() - start)
            return arrays
        search_seconds = time.monotonic() - start
        arrays = await served.runner.run(inputs, names, self.remaining, self.parameters_of(request), self.timing)
        served.cache.put(key, arrays)
        served.statistics.add("cache_miss", search_seconds)
        return arrays

    def _explained(self) -> dict[str, Any]:
        layers = self.served.layers_by_backend()
        return {
            "backends": ", ".join(f"{backend}: {count}" for backend, count in layers.items()),
            "queue_us": round(self.timing.queue * 1e6),
            "compute_us": round(self.timing.compute * 1e6),
            "batch_size": self.timing.batch,
        }


def _timeout(request: InferRequest) -> float:
    """Return the seconds of the request parameter ``timeout``, which is in microseconds; 0 means none."""
    microseconds = request.parameters.get("timeout", 0)
    if isinstance(microseconds, str) and microseconds.isascii() and microseconds.isdecimal() and len(microseconds) < 20:
        microseconds = int(microseconds)  # clients send large numbers as texts
    if isinstance(microseconds, bool | str) or not 0 <= microseconds < 1 << 64:
        raise ServingError(Status.INVALID, "the parameter timeout is not a number of microseconds")
    return microseconds / 1e6 if microseconds else float("inf")
