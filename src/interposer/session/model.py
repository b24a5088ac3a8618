"""`Model`: a network that is optimized, loaded and ready to be called."""

from __future__ import annotations

import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Final

import numpy as np

from interposer.errors import BindingError, InvalidArgumentError, UnknownNetworkError, did_you_mean, expect
from interposer.ir.explain import Explanation
from interposer.ir.network import Network
from interposer.ir.optimized import OptimizedNetwork
from interposer.optimizer import OptimizerOptions, optimize
from interposer.runtime import NetworkId, Runtime
from interposer.session.limits import Limits
from interposer.session.shapes import specialised
from interposer.types import Array, TensorInfo, TensorShape

__all__ = ["Model"]

KEPT: Final = 8
"""How many variants for different input shapes a model keeps; the one that was not used for longest goes first."""

ShapeKey = tuple[TensorShape, ...]


class Model:
    """A network ready to run: call it with arrays, ask it for its inputs and outputs, or let it explain itself.

    A network whose input shapes are not all known is optimized for the shapes of each call, and the last eight of
    these variants are kept. Calls may come from several threads. `close`, or the end of a ``with`` block, unloads it;
    where it is just forgotten, its runtime unloads it when the next network is loaded.
    """

    def __init__(
        self,
        network: Network,
        runtime: Runtime,
        backends: Iterable[str] | None = None,
        options: OptimizerOptions | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.network = network
        self.runtime = runtime
        self._backends = tuple(backends) if isinstance(backends, Iterator) else backends
        self._options = options
        self._limits = Limits() if limits is None else limits
        expect(network, Network, "a model is made of a Network")
        expect(runtime, Runtime, "the runtime must be a Runtime")
        expect(self._limits, Limits, "the limits must be Limits(...)")
        self._variants: OrderedDict[ShapeKey, tuple[NetworkId, OptimizedNetwork]] = OrderedDict()
        self._calls: Counter[ShapeKey] = Counter()
        self._lock = threading.RLock()
        self._closed = False
        weakref.finalize(self, _forget, runtime, self._variants).atexit = False
        network.validate()
        self.inputs: dict[str, TensorInfo] = {one.name: one.output.known for one in network.graph.inputs}
        self.outputs: dict[str, TensorInfo] = {one.name: one.values[0].known for one in network.graph.outputs}
        if not all(info.is_concrete for info in self.inputs.values()):
            self.network = Network(graph=network.graph.clone())  # what becomes of theirs is the caller's affair
        else:
            self._variant(tuple(info.shape for info in self.inputs.values()))

    def _variant(self, shapes: ShapeKey) -> tuple[NetworkId, OptimizedNetwork]:
        with self._lock:
            self._check_open()
            if shapes not in self._variants:
                self._variants[shapes] = self._make(shapes)
                self._make_room()
            self._variants.move_to_end(shapes)
            return self._variants[shapes]

    def _make_room(self) -> None:
        idle = [shapes for shapes in self._variants if not self._calls[shapes]]
        for shapes in idle[: max(0, len(self._variants) - KEPT)]:
            self._unload(shapes)

    @contextmanager
    def _in_use(self, shapes: ShapeKey) -> Iterator[tuple[NetworkId, OptimizedNetwork]]:
        """A variant that is not dropped before the end of the ``with`` block."""
        with self._lock:
            self._calls[shapes] += 1
        try:
            yield self._variant(shapes)
        finally:
            with self._lock:
                self._calls[shapes] -= 1
                self._calls += Counter()

    def _make(self, shapes: ShapeKey) -> tuple[NetworkId, OptimizedNetwork]:
        network = specialised(self.network, dict(zip(self.inputs, shapes, strict=True)))
        self._limits.check(network.graph)
        optimized = optimize(network, self._backends, self.runtime.device_spec, self._options)
        return self.runtime.load_network(optimized), optimized

    @property
    def optimized(self) -> OptimizedNetwork:
        """The optimized network of the last call, or of the only shapes there are.

        Raises:
            InvalidArgumentError: the input shapes are not known and there was no call yet.
        """
        with self._lock:
            self._check_open()
            if not self._variants:
                raise InvalidArgumentError(
                    f"the shapes of {', '.join(self._open_inputs())} are not known yet; "
                    "run the model once, or give load(..., shapes={...})"
                )
            return next(reversed(self._variants.values()))[1]

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgumentError(f"the model {self.network.name!r} is closed")

    def _open_inputs(self) -> list[str]:
        return [f"{name!r} {info.shape}" for name, info in self.inputs.items() if not info.is_concrete]

    def explain(self) -> Explanation:
        """Which backend has which layer, and why the others have not; print it, or take ``.to_dict()``."""
        return self.optimized.explain()

    def run(self, inputs: Sequence[Any] | Mapping[str, Any]) -> list[Array]:
        """Run once: arrays in the order of `inputs` (or by name) in, arrays in the order of `outputs` out.

        What is not an array yet becomes one; a type is changed only within its kind (float64 to float32, not to uint8).

        Raises:
            BindingError: inputs that do not fit: their number, names, shapes or types.
            ExecutionError: a layer failed.
        """
        arrays = self._arrays(inputs)
        shapes = tuple(TensorShape(array.shape) for array in arrays)
        with self._in_use(self._checked_shapes(shapes)) as (network_id, optimized):
            ids = [layer.op.binding_id for layer in optimized.inputs]  # type: ignore[attr-defined]
            found = self.runtime.enqueue_workload(network_id, dict(zip(ids, arrays, strict=True)))
            return [found[key] for key in sorted(found)]

    def _arrays(self, inputs: Sequence[Any] | Mapping[str, Any]) -> list[Array]:
        if isinstance(inputs, Mapping):
            inputs = self._by_name(inputs)
        if not isinstance(inputs, list | tuple):
            raise BindingError(f"run takes a list of arrays or a mapping by name, not {type(inputs).__name__}")
        if len(inputs) != len(self.inputs):
            names = ", ".join(map(repr, self.inputs))
            raise BindingError(f"{len(inputs)} inputs were given; the model has {len(self.inputs)} ({names})")
        pairs = zip(self.inputs.items(), inputs, strict=True)
        return [_converted(name, info, given) for (name, info), given in pairs]

    def _by_name(self, inputs: Mapping[str, Any]) -> list[Any]:
        for name in inputs:
            if name not in self.inputs:
                raise BindingError(f"the model has no input {name!r}{did_you_mean(str(name), self.inputs)}")
        missing = [name for name in self.inputs if name not in inputs]
        if missing:
            raise BindingError(f"no array was given for {', '.join(map(repr, missing))}")
        return [inputs[name] for name in self.inputs]

    def _checked_shapes(self, shapes: ShapeKey) -> ShapeKey:
        for (name, info), shape in zip(self.inputs.items(), shapes, strict=True):
            if not info.shape.accepts(shape):
                raise BindingError(f"input {name!r} has shape {shape}; expected {info.shape}")
        return shapes

    def __call__(self, inputs: Any) -> Any:
        """Run once by name: a mapping of arrays in, a mapping of arrays out.

        A bare array stands for the only input, and the only output comes back as a bare array.
        """
        found = self.run(inputs if isinstance(inputs, Mapping) else [inputs])
        return found[0] if len(found) == 1 else dict(zip(self.outputs, found, strict=True))

    def close(self) -> None:
        """Unload the network; calls after this raise `InvalidArgumentError`.

        Closing again does nothing, unless a backend's context had kept a network loaded (`LoadError`).
        """
        with self._lock:
            self._closed = True
            for shapes in tuple(self._variants):
                self._unload(shapes)

    def _unload(self, shapes: ShapeKey) -> None:
        with suppress(UnknownNetworkError):  # it went with its runtime
            self.runtime.unload_network(self._variants[shapes][0])
        del self._variants[shapes]

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {info}" for name, info in self.inputs.items())
        outputs = ", ".join(f"{name}: {info}" for name, info in self.outputs.items())
        return f"<Model {self.network.name!r}: {inputs} -> {outputs}>"


def _forget(runtime: Runtime, variants: Mapping[ShapeKey, tuple[NetworkId, OptimizedNetwork]]) -> None:
    for network_id, _ in variants.values():
        runtime.unload_later(network_id)


def _converted(name: str, info: TensorInfo, given: Any) -> Array:
    wanted = info.dtype.numpy
    try:
        array = np.asarray(given)
        plain = not isinstance(given, np.ndarray | np.generic)
        if array.dtype != wanted and plain and _survives(array, wanted):
            array = array.astype(wanted)
    except (TypeError, ValueError) as error:
        raise BindingError(f"input {name!r} cannot be made into an array: {error}") from error
    if array.dtype != wanted and np.can_cast(array.dtype, wanted, "same_kind"):
        array = array.astype(wanted)
    if array.dtype != wanted:
        raise BindingError(f"input {name!r} is {array.dtype}; expected {info.dtype}; convert it as you mean it")
    return array


def _survives(array: Array, wanted: np.dtype[Any]) -> bool:
    if array.dtype.kind not in "bif" or wanted.kind not in "biuf":
        return False
    with np.errstate(all="ignore"):
        return wanted.kind == "f" or bool(np.array_equal(array.astype(wanted), array))
