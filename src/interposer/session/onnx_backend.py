"""An implementation of the backend interface of the package onnx, so that its tools and tests can run Interposer.

::

    from interposer.session import onnx_backend

    [y] = onnx_backend.run_model(model, [x])
    prepared = onnx_backend.prepare(model, "CpuAcc")
    onnx.backend.test.BackendTest(onnx_backend.InterposerBackend, __name__)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from interposer.core.errors import InterposerError, InvalidArgumentError, did_you_mean, expect
from interposer.frontends.onnx import template
from interposer.frontends.onnx.proto import Message, Source
from interposer.frontends.onnx.single import model_of
from interposer.session.fallback import AUTO
from interposer.session.loading import load
from interposer.session.model import Model
from interposer.session.runtimes import default_runtime

if TYPE_CHECKING:

    class Backend:
        """The base class in the package onnx."""

    class BackendRep:
        """The base class in the package onnx."""

else:
    try:
        from onnx.backend.base import Backend, BackendRep
    except ImportError:  # calls raise a clear error then
        Backend = BackendRep = object

__all__ = [
    "InterposerBackend",
    "Prepared",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]

_OPTIONS: Final = ("backends", "limits", "operators", "options", "runtime", "shapes", "values")
_NOT_OURS: Final = ("atol", "rtol")  # arguments that the test runner passes to every backend


class Prepared(BackendRep):
    """A model that is ready to run; `model` is the underlying `interposer.Model`. Threads may share it."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Return the outputs for these inputs as arrays (lists of arrays for sequences), in the order of the model.

        `inputs` is a list in the order of the model, a mapping by name, or a bare array for a single input.

        Raises:
            BindingError: the inputs do not fit.
            InterposerError: any other error that `Model.run` raises.
        """
        is_single = isinstance(inputs, np.ndarray) or not isinstance(inputs, Sequence | Mapping)
        arrays = [inputs] if is_single else inputs if isinstance(inputs, Mapping) else list(inputs)
        return tuple(self.model.run(arrays))


class InterposerBackend(Backend):
    """A backend of the package onnx. A device is "CPU", or the id of an Interposer backend, such as "CpuRef".

    "CPU" uses all available backends, as `interposer.load` does. A backend id uses this backend first and CpuRef for
    the rest. The keyword argument ``backends=`` gives all backends in order and overrides the device. Other keyword
    arguments are those of `interposer.load` and of `interposer.frontends.onnx.template`: `limits`, `operators`,
    `options`, `runtime`, `shapes` and `values`.
    """

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return True if a device, such as "CPU" or "CPU:0", is "CPU" or the id of an available backend."""
        kind = _kind(device)
        return kind == "CPU" or kind in default_runtime().device_spec.supported_backends

    @classmethod
    def is_compatible(cls, model: Source, device: str = "CPU", **kwargs: Any) -> bool:
        """Return True if `prepare` succeeds with these arguments; the model is prepared and then discarded."""
        try:
            cls.prepare(model, device, **kwargs)
        except InterposerError:
            return False
        return True

    @classmethod
    def prepare(cls, model: Source, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Load a model (an `onnx.ModelProto`, a path or bytes) on a device, and return it ready to run.

        `device` and the keyword arguments are described at the class.

        Raises:
            InvalidArgumentError: a keyword argument is unknown.
            InterposerError: any other error that `interposer.load` raises.
        """
        for name in kwargs.keys() - _NOT_OURS:
            if name not in _OPTIONS:
                raise InvalidArgumentError(f"unknown argument {name!r}{did_you_mean(name, _OPTIONS)}")
        options = {name: argument for name, argument in kwargs.items() if name in _OPTIONS}
        options.setdefault("backends", _backends(device))
        source = template(model, shapes=options.pop("shapes", None), operators=options.pop("operators", None))
        return Prepared(load(source, **options))

    @classmethod
    def run_model(cls, model: Source, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Load a model on a device and run it once; see `prepare` and `Prepared.run`."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: Message,
        inputs: Any,
        device: str = "CPU",
        outputs_info: object = None,
        *,
        opset_version: int | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run a single node on a device, and return its outputs as arrays.

        `inputs` are in the order of the node, without the absent optional inputs. `opset_version` is the version of the
        node's domain. The default is the newest version that the package onnx knows, or 1 for other domains.
        `outputs_info` is ignored. `device` and the other keyword arguments are those of `prepare`.
        """
        if type(node).__name__ != "NodeProto":
            raise InvalidArgumentError(f"a node must be an onnx.NodeProto, not {type(node).__name__}")
        arrays = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        names = [name for name in node.input if name]
        model = model_of(node, arrays, opset_version)
        return cls.run_model(model, dict(zip(names, arrays, strict=True)), device, **kwargs)


def _kind(device: str) -> str:
    """Return the device without its number, as "CPU" for "CPU:0"."""
    expect(device, str, 'a device must be a text such as "CPU"')
    return device.partition(":")[0]


def _backends(device: str) -> list[str] | None:
    """Return the backend of the device followed by CpuRef; None (all available backends) for "CPU"."""
    kind = _kind(device)
    if kind.lower() == AUTO:
        return [AUTO]
    return None if kind == "CPU" else list(dict.fromkeys([kind, "CpuRef"]))


prepare = InterposerBackend.prepare
run_model = InterposerBackend.run_model
run_node = InterposerBackend.run_node
supports_device = InterposerBackend.supports_device
is_compatible = InterposerBackend.is_compatible
