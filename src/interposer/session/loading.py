"""`load`: read a file and return a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from interposer.core.errors import InvalidArgumentError, did_you_mean, expect, memory_to
from interposer.core.pauses import collector_paused
from interposer.frontends.template import Template, Values
from interposer.ir.inference import inferences_remembered
from interposer.ir.network import Network
from interposer.optimizer import OptimizerOptions
from interposer.optimizer.optimizer_options import refuse_measurement
from interposer.plugins.capi.caching.recording import recording
from interposer.runtime import Runtime
from interposer.saved.documents import SavedFile, TrustedKeys
from interposer.session.fallback import AUTO, asks_to_measure, chosen_ids
from interposer.session.limits import Limits
from interposer.session.model import Model
from interposer.session.network_cache import Keeper
from interposer.session.pickled import Origin
from interposer.session.placement.plan import Plan
from interposer.session.request import LoadRequest
from interposer.session.runtimes import default_runtime
from interposer.session.saved import SavedBlueprint, target_of
from interposer.session.shapes import Shapes
from interposer.session.source import Reading, Source, check_reading, content_of, format_of, read_source
from interposer.session.variants import Blueprint, KnownBlueprint

__all__ = ["load", "load_saved"]


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
    weights: Source | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    fallback: bool | None = None,
    plan: Plan | None = None,
    signature: str | None = None,
    stand_in: bool = False,
    subgraph: int = 0,
    trusted_keys: TrustedKeys | None = None,
) -> Model:
    """Read a network, divide it among backends, and prepare it for running.

    Args:
        source: a path, an open binary file (read from its position to its end, and left open), the bytes of a file, a
            `Network`, an `onnx.ModelProto`, a `torch.export.ExportedProgram`, the result of `frontends.onnx.template`,
            or an NNAPI document (a mapping). The model of an exported program, or of a file of `torch.export.save`, is
            called as the module: see `session.torch.ProgramModel`.
        backends: backend ids in order of preference, or one id as a string. None means all that are available without
            the capability `OnlyByName` (engines have it), CpuRef last; a network of OpenVINO's IR runs on OpenVino.
            "auto" (in any case) measures which backend, or which mix of them, is fastest, engines included, and caches
            the placement; see `session.placement.place`. No mix was faster than the best single backend on the networks
            of the benchmarks.
        format: "armnn", "caffe", "nnapi", "onnx", "openvino", "tensorflow", "text", "tflite" or "torch"; None detects
            the format from the content.
        options: options of the optimizer.
        runtime: the runtime that loads the network; None means the default runtime.
        limits: the most memory and arithmetic that the network may need; None means the default limits.
        shapes: shapes of inputs by name, or sizes of named dimensions. The inputs of all formats can be resized if the
            layers allow the resulting shapes. None in a shape keeps the size that the model declares.
        values: values of inputs by name. These inputs become constants. Values that are not given here but needed
            before running (such as the shape of a Reshape) are taken from the inputs of each call.
        weights: the file with the weights of a Caffe network, in the forms of `source`. By default, the caffemodel of
            the same name beside the prototxt.
        inputs: names of values of the network that are its inputs, instead of those that the file declares; the layers
            before them are dropped. `shapes` and `values` may name them.
        outputs: names of values of the network that are its outputs, instead of those that the file declares.
        fallback: what to do if a backend fails to prepare or run its part. None, the default, disables the backend for
            this model, and the next backends complete the call; an exceeded deadline is raised as an error. True also
            disables the backend that was running when the deadline was exceeded. False raises every failure.
        plan: which backend runs which layer, from a measured placement or written by hand. A plan has its own
            backends, so `backends` must be None.
        signature: the key of a signature of a TFLite file or SavedModel, such as ``"decode"``. The model then is the
            network that the signature calls, and its inputs and outputs have the names of the signature. Without it,
            the model is the main network of the file, and `Model.run` takes a signature.
        stand_in: use a `StandIn` layer for each custom operator of a TFLite file that is not known, instead of refusing
            the file. One of the backends must support the layer.
        subgraph: the index of the subgraph of a TFLite file that is the network; 0 is the main one.
        trusted_keys: the path of a PEM file with public Ed25519 keys, or several paths. `source` must then be a saved
            network that was signed with one of them (see `Model.save`).

    Raises:
        ParseError: the file cannot be read or is damaged; `UnsupportedOperatorError` lists operators that are missing.
        LimitExceededError: the network needs more than the limits allow.
        InterposerError: any other error that `optimize` and `Runtime.load_network` raise.

    Example:
        A network in the text form; a path of a file is loaded in the same way.

        >>> import interposer as ip
        >>> text = b'''graph "twice" {
        ...   %x = Input : float32[n]
        ...   %sum = Addition %x, %x
        ...   Output %sum as "y"
        ... }'''
        >>> model = ip.load(text, backends=["CpuRef"])
        >>> model
        <Model 'twice': x: float32[n] -> y: float32[n]>
        >>> model([1.0, 2.0])
        array([2., 4.], dtype=float32)
    """
    source = content_of(source)
    runtime = default_runtime() if runtime is None else runtime
    expect(runtime, Runtime, "the runtime must be a Runtime")
    expect(options, OptimizerOptions | None, "the options must be OptimizerOptions(...)")
    ids = chosen_ids(backends)
    reading = Reading(
        format, shapes, values, content_of(weights), outputs, signature, inputs, stand_in, subgraph, trusted_keys
    )
    check_reading(reading)
    origin = Origin.of(load, source, reading._asdict())
    with memory_to("load the network"):
        model = _loaded(LoadRequest(source, reading, runtime, ids, options, limits, fallback, plan))
    if isinstance(origin.source, str) or model.needed_values or model._blueprint.templates or model.needs_origin:
        model._origin = origin  # otherwise the network is enough for pickling, and the content can be freed
    return model


def _check_used(request: LoadRequest) -> None:
    """Raise `InvalidArgumentError` if options are given that have no effect with these backends or this plan."""
    options, ids, plan = request.options, request.backends, request.plan
    if options is None:
        return
    if plan is None and not asks_to_measure(ids, options):
        refuse_measurement(options)
    if plan is not None and (options.placement == "measured" or options.budget_seconds is not None):
        raise InvalidArgumentError("a plan is not measured again; leave placement and budget_seconds out")
    requested_ids, registry = ids if plan is None else plan.backends, request.runtime.registry
    if (
        not options.model_options
        or requested_ids == (AUTO,)
        or (requested_ids is None and asks_to_measure(ids, options))
    ):
        return
    used_ids = request.runtime.device_spec.default_backends if requested_ids is None else requested_ids
    description = "that are used unless backends are named" if requested_ids is None else "that were given"
    for name in options.model_options:
        if name not in used_ids and (requested_ids is not None or name in registry):  # unknown ones are refused later
            raise InvalidArgumentError(
                f"model_options has options for backend {name!r}{did_you_mean(name, used_ids)}, which is not one of "
                f"the backends {description} ({', '.join(used_ids)})"
            )


def _loaded(request: LoadRequest) -> Model:
    format = format_of(request.source, request.reading)
    if format is not None and format.backends and request.backends is None and request.plan is None:
        request = replace(request, backends=format.backends)
    _check_used(request)
    model: Model | None = None if format is None else format.open(request)
    if model is not None:
        return model
    if request.has_measured_placement:
        return _model(request, read_source(request.source, request.reading))
    with collector_paused(), inferences_remembered():
        return _with_cache(request)


def _model(request: LoadRequest, network: Network | Template | KnownBlueprint) -> Model:
    return Model(
        network, request.runtime, request.backends, request.options, request.limits, request.fallback, request.plan
    )


def _with_cache(request: LoadRequest) -> Model:
    """Return the model with its network from the network cache, or read it and store its network there."""
    source, reading = request.source, request.reading
    keeper = Keeper.of(request)
    if keeper is None:
        network = read_source(source, reading)
        with recording():
            return _model(request, network)

    def read() -> Blueprint:
        keeper.check(source)
        blueprint = Blueprint(read_source(source, reading))
        keeper.check(source)  # it may have been replaced in between
        return blueprint

    known_blueprint = keeper.lookup(read, request.limits)
    if known_blueprint is not None:
        return _model(request, known_blueprint)
    with keeper.storing(source) as store:
        model = _model(request, read_source(source, reading))
        store(model._loaded)
    return model


def load_saved(request: LoadRequest) -> Model | None:
    """Return the model of a saved network with its compiled parts; None if the request does not fit them."""
    file = SavedFile(request.source, request.reading.trusted_keys)
    file.check_owner()
    target = target_of(file, request.runtime.registry, request.backends, request.options, request.plan)
    if target is None:
        return None
    with collector_paused(), recording(file.title):
        blueprint = SavedBlueprint(target, request.runtime, request.limits or Limits())
        ids = None if target.plan is not None else target.preferences
        return Model(blueprint, request.runtime, ids, target.options, request.limits, request.fallback, target.plan)
