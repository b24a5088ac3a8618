"""`Optimize`: from a network to an optimized network for some backends."""

from __future__ import annotations

from typing import Any

import interposer as ip
from interposer.core.errors import InterposerError, UnsupportedLayerError
from pyarmnn._arguments import Kind, instance, overload_error
from pyarmnn._backend_id import BackendId
from pyarmnn._device import DEVICE_SPEC, IDeviceSpec
from pyarmnn._messages import fallbacks, refusals
from pyarmnn._network.network import INetwork
from pyarmnn._optimized import IOptimizedNetwork
from pyarmnn._options import OptimizerOptions
from pyarmnn._translate import translated

__all__ = ["Optimize"]


def _ids(value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, BackendId) for each in value):
        raise TypeError
    return [each.Get() for each in value]


_VECTOR = "std::vector< armnn::BackendId,std::allocator< armnn::BackendId > > const &"
_KINDS = (
    instance(INetwork, "armnn::INetwork const *"),
    Kind(_VECTOR, _ids, _VECTOR),
    DEVICE_SPEC,
    instance(OptimizerOptions, "armnn::OptimizerOptions const &"),
)


def Optimize(*args: Any) -> tuple[IOptimizedNetwork, tuple[str, ...]]:
    """Divide a network among backends, and return the optimized network and messages.

    Args:
        args: an INetwork; the BackendIds in order of preference, of which those that do not exist are ignored; the
            IDeviceSpec of a runtime; and optionally OptimizerOptions.

    Raises:
        TypeError: the arguments are others.
        RuntimeError: none of the backends exists, the network is not valid, or no backend supports a layer.
    """
    if not 3 <= len(args) <= 4 or not all(map(Kind.accepts, _KINDS, args)):
        types = [kind.parameter for kind in _KINDS]
        raise overload_error("Optimize", "Optimize", (types, types[:3]))
    network, backends, device_spec, *rest = args
    options = rest[0] if rest else OptimizerOptions()
    options._check()
    return _optimized(network, _ids(backends), device_spec, options)


def _optimized(
    network: INetwork, backends: list[str], device_spec: IDeviceSpec, options: OptimizerOptions
) -> tuple[IOptimizedNetwork, tuple[str, ...]]:
    if not backends:
        raise RuntimeError("Invoked Optimize with no backends specified")
    chosen = _existing(backends, device_spec)
    core, infos = translated(network, chosen)
    try:
        optimized = ip.optimize(core, chosen, device_spec._device_spec, _core_options(options, network))
    except UnsupportedLayerError as error:
        raise RuntimeError(refusals(error, core, chosen)) from error
    except InterposerError as error:
        raise RuntimeError(str(error)) from error
    return IOptimizedNetwork._of(optimized, infos), fallbacks(optimized, core)


def _existing(backends: list[str], device_spec: IDeviceSpec) -> list[str]:
    """Return the backends that exist, each once, in order."""
    known = device_spec._device_spec.supported_backends
    chosen = [backend for backend in dict.fromkeys(backends) if backend in known]
    if not chosen:
        backend_texts = "".join(f"{backend} " for backend in backends)
        offered = "".join(f"{backend} " for backend in device_spec._device_spec.default_backends)
        raise RuntimeError(
            f"ERROR: None of the preferred backends [{backend_texts}] are supported. "
            f"Current platform provides [{offered}]"
        )
    return chosen


def _core_options(options: OptimizerOptions, network: INetwork) -> ip.OptimizerOptions:
    """Return the options for Interposer. Layers that a program added compute in floats wherever it says so."""
    return ip.OptimizerOptions(
        reduce_fp32_to_fp16=options.m_ReduceFp32ToFp16,
        reduce_fp32_to_bf16=options.m_ReduceFp32ToBf16,
        debug=options.m_Debug,
        model_options=_model_options(options),
        compute_in_integers=network._parsed is not None,
    )


def _model_options(options: OptimizerOptions) -> dict[str, dict[str, Any]]:
    """Return the options of backends by backend id."""
    by_backend: dict[str, dict[str, Any]] = {}
    for backend in options.m_ModelOptions:
        values = {option._name: option._value for option in backend}
        by_backend.setdefault(backend.GetBackendId().Get(), {}).update(values)
    return by_backend
