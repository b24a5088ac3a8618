"""What all engines have in common: they answer for single layers by a trial, and compile whole parts."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, ClassVar, Final

import numpy as np

from interposer.backend import (
    Backend,
    LayerSupport,
    MemoryManager,
    OptimizationViews,
    Options,
    SubgraphView,
    Substitution,
    Support,
    TensorHandle,
    Workload,
    WorkloadFactory,
    WorkloadInfo,
)
from interposer.backends.engines.engine_options import Chosen, Option, chosen
from interposer.backends.engines.memory import bytes_of, largest_moment
from interposer.core.errors import BackendContractError, OptionError
from interposer.core.types import Array, DataType
from interposer.ir.graph import Layer, Value
from interposer.ops import PreCompiled

__all__ = ["Engine", "Executable", "RefusedError", "shortened"]

_CACHED: Final = 8192
"""Verdicts of trials that an engine remembers; the oldest go first."""
_MOST_TEXT: Final = 1000
_READ: Final = 64
"""Constants of so many elements or fewer may say what is to be computed (axes, shapes ...), not only on what."""


class RefusedError(Exception):
    """An engine cannot run something, with its reason."""


def shortened(text: str) -> str:
    """Return what an engine says, without what it repeats of a model."""
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} ..."


class Executable(ABC):
    """A part that an engine has compiled."""

    concurrent: ClassVar[bool] = True
    """True if several threads may run it at once."""
    constants: Sequence[Array] = ()
    """The arrays of the network that it reads while it runs, as it has no copies of them."""
    weight_copies: ClassVar[int] = 1
    """How many copies of the weights the engine makes, to estimate its memory: most rearrange them for themselves."""
    held: int = 0
    """Bytes that it has for itself, as `Engine` estimates them."""

    def held_weights(self, view: SubgraphView) -> int:
        """Return bytes of copies of weights."""
        return self.weight_copies * sum(bytes_of(value) for value in view.constants)

    @abstractmethod
    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Compute the part's outputs, into these arrays, from its inputs; none of them have gaps."""


class Engine(Backend):
    """A backend that hands whole parts to an engine.

    A subclass names the packages that it needs and its options, and says in `refusals` what it knows without trying
    and in `compile` how a part becomes an `Executable`. Whether it runs a layer is found out by compiling it alone,
    once for each kind of layer.
    """

    packages: ClassVar[tuple[str, ...]]
    """What must be importable; the first is the engine."""
    extra: ClassVar[str]
    """The optional dependencies of this package with which it comes."""
    options: ClassVar[tuple[Option, ...]]
    types: ClassVar[frozenset[DataType]]
    """The types of tensors that can go in and out."""

    def __init__(self) -> None:
        self._reasons = _Reasons()

    @classmethod
    def unavailable(cls) -> str | None:
        """That a package is not installed, and what to do; nothing is imported."""
        missing = next((name for name in cls.packages if find_spec(name) is None), None)
        return missing and f"the package {missing} is not installed: pip install interposer[{cls.extra}]"

    @property
    def version(self) -> str:  # type: ignore[override] # found when asked
        """The version of the engine."""
        try:
            return version(self.packages[0])
        except PackageNotFoundError:  # built from source, say
            return ""

    @abstractmethod
    def refusals(self, layer: Layer, options: dict[str, Any]) -> list[str]:
        """Return why the engine cannot run a layer, as far as that is known without a trial."""

    @abstractmethod
    def compile(self, view: SubgraphView, options: dict[str, Any]) -> Executable:
        """Compile a part.

        Raises:
            RefusedError: the engine cannot, and says why.
        """

    def try_layers(self, view: SubgraphView, options: dict[str, Any]) -> None:
        """Find out whether the engine runs the layers of a view; raises `RefusedError` if it does not run one."""
        self.compile(view, options)

    def layer_support(self, options: Options) -> LayerSupport:
        """Answers by rules and trials; `InvalidArgumentError` for options that cannot be meant."""
        return _EngineSupport(self, chosen(self.id, self.options, options))

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        """One executable for the whole part; where the engine refuses it, it is given back with the engine's reason."""
        try:
            created = self.compile(view, dict(chosen(self.id, self.options, options)))
        except RefusedError as refusal:
            return OptimizationViews.all_failed(view, str(refusal))
        created.held = created.held_weights(view) + largest_moment(view)
        whole = PreCompiled(object=created, num_outputs=len(view.outputs))
        return OptimizationViews(view, substitutions=[Substitution(view, whole)])

    def create_backend_context(self, options: Options) -> None:
        """No context; all options of an engine are those of a network.

        Raises:
            OptionError: any option.
        """
        chosen(self.id, self.options, options)
        for name in options:
            raise OptionError(f"option {name!r} of backend {self.id} is given for a network, not for a runtime")

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        """Makes workloads of executables; tensors are in ordinary memory."""
        return _EngineFactory(memory_manager)

    def verdicts(self, view: SubgraphView, options: Chosen) -> list[Support]:
        """Return whether the engine runs the layers of a view, one verdict for each."""
        known = {layer: self._known_refusals(layer, dict(options)) for layer in view}
        kinds = {layer: (options, _kind_of(layer)) for layer, result in known.items() if not result}
        unknown = {kind: layer for layer, kind in kinds.items() if self._reasons.get(kind) is None}
        for layer, reason in self._tried(view, list(unknown.values()), dict(options)).items():
            self._reasons.put(kinds[layer], reason.replace(repr(layer.name), _NAME))
        return [Support.of(known[layer] or self._reasons.of(kinds[layer], layer)) for layer in view]

    def _known_refusals(self, layer: Layer, options: dict[str, Any]) -> list[str]:
        return _border_refusals(layer, self.types) or self.refusals(layer, options)

    def _tried(self, view: SubgraphView, layers: list[Layer], options: dict[str, Any]) -> dict[Layer, str]:
        """Why the engine does not run layers, or empty texts: all at once, then in halves where something is wrong."""
        if not layers:
            return {}
        try:
            self.try_layers(view.part(layers), options)
        except RefusedError as refusal:
            if len(layers) == 1:
                return {layers[0]: str(refusal)}
            middle = len(layers) // 2
            return {**self._tried(view, layers[:middle], options), **self._tried(view, layers[middle:], options)}
        return dict.fromkeys(layers, "")


_NAME: Final = "\0layer\0"
"""Stands for a layer's name in a reason that holds for all layers of its kind."""


class _EngineSupport(LayerSupport):
    """Answers for an engine with some options."""

    def __init__(self, engine: Engine, options: Chosen) -> None:
        self.engine, self.options = engine, options

    def query(self, view: SubgraphView) -> list[Support]:
        """Return one verdict for each layer."""
        return self.engine.verdicts(view, self.options)


class _Reasons:
    """What trials found: a reason, or an empty text, by kind of layer. Thread safe."""

    def __init__(self) -> None:
        self._found: OrderedDict[Hashable, str] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, kind: Hashable) -> str | None:
        with self._lock:
            return self._found.get(kind)

    def of(self, kind: Hashable, layer: Layer) -> list[str]:
        """Return what is known of a kind, said of a layer."""
        reason = self.get(kind)
        return [reason.replace(_NAME, repr(layer.name))] if reason else []

    def put(self, kind: Hashable, reason: str) -> None:
        with self._lock:
            self._found[kind] = reason
            if len(self._found) > _CACHED:
                self._found.popitem(last=False)


def _kind_of(layer: Layer) -> Hashable:
    """Return what two layers have in common for which an engine gives the same verdict."""
    values = [None if value is None else (value.index, value.producer.guid) for value in layer.inputs]
    operands = tuple(None if value is None else _operand(value) for value in layer.inputs)
    return layer.op, operands, tuple(values.index(value) for value in values), layer.output_infos


def _operand(value: Value) -> Hashable:
    constant = value.producer.op.value if value.is_constant else None  # type: ignore[attr-defined] # it is a Constant
    if constant is None:
        return value.known
    array = np.asarray(constant)
    read = array.size <= _READ
    return value.known, (array.tolist() if array.dtype == object else array.tobytes()).__repr__() if read else ""


def _border_refusals(layer: Layer, types: frozenset[DataType]) -> list[str]:
    entering = [value for value in layer.values if not value.is_constant]
    return list(dict.fromkeys(_border_problems([*entering, *layer.outputs], types)))


def _border_problems(values: Sequence[Value], types: frozenset[DataType]) -> Iterator[str]:
    for value in values:
        if not value.known.is_tensor:
            yield f"{value.name!r} is no tensor"
        elif value.known.dtype not in types:
            yield f"{value.name!r} is {value.known.dtype}, which the engine has no tensors of"


class _EngineFactory(WorkloadFactory):
    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        """Return the workload of a compiled part."""
        created = layer.op.object if isinstance(layer.op, PreCompiled) else None
        if not isinstance(created, Executable):
            raise BackendContractError(f"layer {layer} was not compiled by an engine")
        return _EngineWorkload(created)


class _EngineWorkload(Workload):
    """Maps the tensors and runs the executable on them."""

    estimates_memory = True

    def __init__(self, executable: Executable) -> None:
        self.executable = executable
        self.concurrent = executable.concurrent

    @property
    def memory(self) -> int | None:
        """An estimate: engines do not tell."""
        return self.executable.held

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        """Run on the memory of the handles; only what has gaps is copied."""
        mapped: list[TensorHandle] = []
        try:
            read = [_without_gaps(array) for array in _mapped(inputs, mapped)]
            written = list(_mapped(outputs, mapped))
            into = [array if array.flags.c_contiguous else np.empty(array.shape, array.dtype) for array in written]
            self.executable.run(read, into)
            for array, own in zip(written, into, strict=True):
                if own is not array:
                    np.copyto(array, own)
        finally:
            for handle in mapped:
                handle.unmap()


def _without_gaps(array: Array) -> Array:
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _mapped(handles: Sequence[TensorHandle | None], mapped: list[TensorHandle]) -> Iterator[Array]:
    for handle in handles:
        assert handle is not None
        array = handle.map()
        mapped.append(handle)
        yield array
