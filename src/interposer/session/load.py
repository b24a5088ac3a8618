"""`load`: from a file to a model in one call, on a runtime that is made when it is first needed."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

from interposer.core.errors import expect, memory_to
from interposer.frontends.template import Values
from interposer.optimizer import OptimizerOptions
from interposer.plugins.capi.caching.recording import recording
from interposer.runtime import Runtime
from interposer.session.fallback import asks_to_measure, chosen_ids
from interposer.session.limits import Limits
from interposer.session.model import Model
from interposer.session.network_cache import Keeper
from interposer.session.pickled import Origin
from interposer.session.placement.plan import Plan
from interposer.session.shapes import Shapes
from interposer.session.source import Source, content_of, read_source
from interposer.session.variants import Blueprint

__all__ = ["default_runtime", "load"]

_making = threading.Lock()


def default_runtime() -> Runtime:
    """Return the runtime that `load` uses unless it is given another; it lives as long as the process."""
    with _making:
        return _only_runtime()


@cache
def _only_runtime() -> Runtime:
    return Runtime()


def load(
    source: Source,
    backends: Iterable[str] | None = None,
    *,
    format: str | None = None,
    options: OptimizerOptions | None = None,
    runtime: Runtime | None = None,
    limits: Limits | None = None,
    shapes: Shapes | None = None,
    values: Values | None = None,
    fallback: bool | None = None,
    plan: Plan | None = None,
) -> Model:
    """Read a network, divide it among backends, and make it ready to run.

    Args:
        source: a path, a binary file that is open (it is read from its position to its end, and stays open), the bytes
            of a file, a `Network`, an `onnx.ModelProto`, what `frontends.onnx.template` gives, or
            an NNAPI document (a mapping).
        backends: ids in order of preference, or one id as a text; None means all that are available, CpuRef last.
            "auto" (in any case) measures which part of the network is fastest on which of them, engines included, and
            keeps what was found for the next time; see `session.placement.place`.
        format: "nnapi", "onnx" or "tflite"; None tells it from the content.
        options: what the optimizer is asked for.
        runtime: where it is loaded; None means the default runtime.
        limits: the most memory and arithmetic that the network may need.
        shapes: for inputs by name their shapes, or for named dimensions their values. Every input can be resized, of
            every format, where the layers allow the shapes that follow; None in a shape keeps what the model says.
        values: for inputs by name their values; they are constants then, and inputs no more. What is not given here,
            and is needed before running (the shape for a Reshape ...), is taken from the inputs of each call.
        fallback: whether to do without a backend that fails to make ready or to run its part: it is disabled for this
            model, the next backends take over, and the call completes. True does so also with one that is at work when
            the deadline of a run is over; None, the default, raises that as an error; False raises every failure.
        plan: which backend runs which layer, as a measured placement found it or somebody wrote it. It has its own
            backends; others cannot be given beside it.

    Raises:
        ParseError: the file cannot be read or is damaged; `UnsupportedOperatorError` lists operators that are missing.
        LimitExceededError: the network needs more than the limits allow.
        InterposerError: whatever else `optimize` and `Runtime.load_network` raise.
    """
    source = content_of(source)
    runtime = default_runtime() if runtime is None else runtime
    expect(runtime, Runtime, "the runtime must be a Runtime")
    expect(options, OptimizerOptions | None, "the options must be OptimizerOptions(...)")
    ids = chosen_ids(backends)
    measured = plan is not None or asks_to_measure(ids, options)
    origin = Origin.of(source, {"format": format, "shapes": shapes, "values": values})
    with memory_to("load the network"):
        if measured:
            network = read_source(source, format, shapes, values)
            model = Model(network, runtime, ids, options, limits, fallback, plan)
        else:
            with _collector_paused():
                model = _load(source, ids, format, options, runtime, limits, shapes, values, fallback)
    if isinstance(origin.source, str) or model.needed_values:
        model._origin = origin  # or else its network says it all, and the content need not be held
    return model


def _load(
    source: Source,
    backends: Iterable[str] | None,
    format: str | None,
    options: OptimizerOptions | None,
    runtime: Runtime,
    limits: Limits | None,
    shapes: Shapes | None,
    values: Values | None,
    fallback: bool | None,
) -> Model:
    keeper = None
    if not shapes and not values:
        keeper = Keeper.of(source, format, backends, options, runtime.registry)
    if keeper is None:
        network = read_source(source, format, shapes, values)
        with recording():
            return Model(network, runtime, backends, options, limits, fallback)

    def read() -> Blueprint:
        keeper.check(source)
        blueprint = Blueprint(read_source(source, format))
        keeper.check(source)  # it may have been replaced in between
        return blueprint

    def make() -> Model:
        return Model(read_source(source, format), runtime, backends, options, limits, fallback)

    known = keeper.kept(read, runtime.registry, limits)
    if known is not None:
        return Model(known, runtime, backends, options, limits, fallback)
    return keeper.keeping(source, make)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Spare a network's many objects, none of which is garbage yet, several rounds of Python's collector."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
