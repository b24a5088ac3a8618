"""The options of the optimizer, and the choice of backends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from interposer.backend import Backend, Options
from interposer.backend.ids import listed_ids
from interposer.core.errors import BackendUnavailableError, InvalidArgumentError, as_float, did_you_mean, expect
from interposer.core.records import dataclass
from interposer.core.schema import registered_ops
from interposer.plugins import DeviceSpec
from interposer.report.optimized import AbsentBackend

__all__ = ["OptimizerOptions", "check_seconds", "choose_backends", "refuse_measurement"]

_FLAGS: Final = (
    "reduce_fp32_to_fp16", "reduce_fp32_to_bf16", "debug", "rewrite", "compute_in_integers", "round_activations",
    "allow_expanded_dims", "import_enabled", "export_enabled",
)  # fmt: skip


@dataclass(frozen=True)
class OptimizerOptions:
    """Options of `optimize`.

    Args:
        reduce_fp32_to_fp16: compute float32 layers in float16; inputs and outputs keep their type.
        reduce_fp32_to_bf16: the same with bfloat16; both options exclude each other.
        debug: report every tensor during a run, to the registered callback or on standard output.
        rewrite: apply the rewrites that do not depend on backends.
        compute_in_integers: replace float layers between Dequantize and Quantize by quantized layers, if backends
            support them; quantized results may differ by one step from those of float layers. Only with `rewrite`.
        round_activations: round the activations of layers with quantized weights to 8 bits where the model says so, as
            TensorFlow Lite does (DynamicFakeQuantization). False computes with the float activations, which is more
            precise; so do backends that do not support the rounding. Only with `rewrite`.
        hints: the backend to ask first, by layer name.
        shape_inference: "infer" infers the shapes that the network does not declare, and checks the others. "validate"
            infers none: the declared infos of every layer (`Network.add_layer`, ``outputs``) must have full shapes.
        allow_expanded_dims: accept declared shapes with more or fewer dimensions of 1 than the inferred ones, such as
            (1, 4) for (4,). A Reshape gives the tensor the declared shape.
        import_enabled: whether memory of others may be used in place: that of the caller for inputs, and that of
            another backend. False copies instead.
        export_enabled: whether memory may be offered to others: outputs are computed in the caller's arrays, and other
            backends import tensors. False copies instead.
        exclude: the ids of backends (or one id) that must not run an operator, by operator name such as "Softmax".
        model_options: the options of backends, by backend id.
        placement: "order" assigns each layer to the first backend that supports it; "measured" lets `load` time parts
            of the network on all backends, and use the fastest plan.
        budget_seconds: the time limit of a measured placement; None means 30 seconds. Refused without such a placement.
    """

    reduce_fp32_to_fp16: bool = False
    reduce_fp32_to_bf16: bool = False
    debug: bool = False
    rewrite: bool = True
    compute_in_integers: bool = True
    round_activations: bool = True
    hints: Mapping[str, str] = field(default_factory=dict)
    model_options: Mapping[str, Options] = field(default_factory=dict)
    placement: str = "order"
    budget_seconds: float | None = None
    exclude: Mapping[str, Sequence[str]] = field(default_factory=dict)
    shape_inference: str = "infer"
    allow_expanded_dims: bool = False
    import_enabled: bool = True
    export_enabled: bool = True

    def __post_init__(self) -> None:
        self._check_choices()
        if self.budget_seconds is not None:
            check_seconds("budget_seconds", self.budget_seconds)
        expect(self.hints, Mapping, "hints must be a mapping from layer's name to backend's id")
        for layer, backend in self.hints.items():
            expect(layer, str, "hints must be for layers by name")
            expect(backend, str, f"the hint for layer {layer!r} must be the id of a backend")
        object.__setattr__(self, "exclude", _exclusions(self.exclude))
        expect(self.model_options, Mapping, "model_options must be a mapping from backend's id to its options")
        for backend, backend_options in self.model_options.items():
            expect(backend_options, Mapping, f"the model options of backend {backend!r} must be a mapping")

    def _check_choices(self) -> None:
        for name in _FLAGS:
            expect(getattr(self, name), bool, f"{name} must be True or False")
        if self.reduce_fp32_to_fp16 and self.reduce_fp32_to_bf16:
            raise InvalidArgumentError("reduce_fp32_to_fp16 and reduce_fp32_to_bf16 exclude each other; choose one")
        expect(self.placement, str, "the placement must be 'order' or 'measured'")
        if self.placement not in ("order", "measured"):
            raise InvalidArgumentError(f"the placement is 'order' or 'measured', not {self.placement!r}")
        expect(self.shape_inference, str, "shape_inference must be 'infer' or 'validate'")
        if self.shape_inference not in ("infer", "validate"):
            raise InvalidArgumentError(f"shape_inference is 'infer' or 'validate', not {self.shape_inference!r}")


def check_seconds(name: str, value: object) -> None:
    """Raise `InvalidArgumentError`, which names the argument `name`, unless the value is a finite number above 0."""
    requirement = f"{name} must be more than 0, and finite"
    if not 0 < as_float(value, requirement) < math.inf:
        raise InvalidArgumentError(f"{requirement}, not {value!r}")


def _exclusions(exclude: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return the exclusions with lists of ids; raise `InvalidArgumentError` unless all keys are known operators."""
    expect(exclude, Mapping, "exclude must be a mapping from a layer's type to ids of backends")
    for kind in exclude:
        if kind not in registered_ops():
            raise InvalidArgumentError(
                f"exclude names {kind!r}, which is no type of layers{did_you_mean(str(kind), registered_ops())}"
            )
    return {kind: listed_ids(ids, f"exclude[{kind!r}]: backends", ordered=False) for kind, ids in exclude.items()}


def choose_backends(
    preferences: Iterable[str] | None, device_spec: DeviceSpec
) -> tuple[tuple[Backend, ...], tuple[AbsentBackend, ...]]:
    """Return the backends to use in order of preference, and the requested ones that are not available.

    `preferences` are backend ids. None means all available backends except those with the capability `OnlyByName`,
    CpuRef last.

    Raises:
        UnknownBackendError: no backend has one of the ids.
        BackendUnavailableError: none of the preferred backends is available.
        InvalidArgumentError: the list is empty, or has something other than ids.
    """
    registry = device_spec.registry
    ids = _ids(preferences) if preferences is not None else device_spec.default_backends
    chosen_backends, absent_backends = [], []
    for backend_id in dict.fromkeys(ids):
        try:
            chosen_backends.append(registry.get(backend_id))
        except BackendUnavailableError as error:
            absent_backends.append(AbsentBackend(backend_id, error.reason))
    if not chosen_backends:
        raise BackendUnavailableError(", ".join(ids), _none_left(absent_backends, device_spec))
    return tuple(chosen_backends), tuple(absent_backends)


def _ids(preferences: object) -> tuple[str, ...]:
    ids = listed_ids(preferences)
    if auto := [backend_id for backend_id in ids if backend_id.lower() == "auto"]:
        raise InvalidArgumentError(
            f"backends: {auto[0]!r} measures which placement is fastest, which only interposer.load does; "
            "name backends here, or give None for all that are available"
        )
    if not ids:
        raise InvalidArgumentError("no backends were given; name some, or give None for all that are available")
    return ids


def _none_left(absent_backends: Iterable[AbsentBackend], device_spec: DeviceSpec) -> str:
    reasons = "; ".join(f"{backend.id}: {backend.reason}" for backend in absent_backends) or _all_absent(device_spec)
    return f"{reasons} (available: {', '.join(device_spec.supported_backends) or 'none'})"


def _all_absent(device_spec: DeviceSpec) -> str:
    if device_spec.supported_backends:
        return f"none was named, and only by name are used {', '.join(device_spec.supported_backends)}"
    absent_records = [record for record in device_spec.registry.records() if not record.available]
    return "; ".join(f"{record.id}: {record.reason}" for record in absent_records) or "no backend is registered"


def refuse_measurement(options: OptimizerOptions) -> None:
    """Raise `InvalidArgumentError` unless these are options without a measured placement, which `load` alone makes."""
    expect(options, OptimizerOptions, "the options must be OptimizerOptions(...)")
    if options.placement == "measured":
        raise InvalidArgumentError("placement: only interposer.load measures which placement is fastest")
    if options.budget_seconds is not None:
        raise InvalidArgumentError(
            "budget_seconds is the time limit of a measured placement; ask load for one with backends='auto' or "
            "placement='measured', or leave the time out"
        )
