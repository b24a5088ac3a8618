"""The common base of all engines: layer support by trial compilation, and compilation of whole subgraphs."""

from __future__ import annotations

import copy
import hashlib
import logging
import platform
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from interposer._distribution import install_command
from interposer.backend import (
    Backend,
    BackendProfiling,
    BackendProfilingContext,
    LayerSupport,
    MemoryManager,
    OptimizationViews,
    Options,
    SavedPart,
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
from interposer.backends.engines.profiles import EngineProfiles, EngineStep
from interposer.backends.engines.recorded import Recording
from interposer.backends.engines.values import InputChecks
from interposer.core.errors import BackendContractError, BackendUnavailableError, OptionError
from interposer.core.schema import Op
from interposer.core.types import Array, DataType, TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.ops import PreCompiled

__all__ = ["Engine", "Examples", "Executable", "RefusedError", "processor", "shortened"]

_log: Final = logging.getLogger("interposer.profiling")
_MOST_REASONS: Final = 8192
"""The number of cached trial verdicts per engine; the oldest are evicted first."""
_MOST_AXES: Final = 8
"""The largest rank that engines get; their kernels are seldom tried with more axes."""
_MOST_TEXT: Final = 1000
_MOST_PARAMETER_ELEMENTS: Final = 64
"""Constants of at most this many elements may be parameters (axes, shapes ...), so their values affect support."""


class RefusedError(Exception):
    """Raised, with a reason, if an engine cannot run a layer or subgraph."""


def shortened(text: str) -> str:
    """Return an engine's error message, truncated with "..." if it is long, as some engines append the whole model."""
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} ..."


Examples: TypeAlias = Callable[[], tuple[Sequence[Array], Sequence[Array]]]
"""A function that returns new arrays for the inputs and the outputs of a subgraph."""


class Executable(ABC):
    """A subgraph in the form that an engine has compiled it to; an abstract class with one subclass per engine."""

    concurrent: ClassVar[bool] = True
    """True if several threads may run the executable concurrently."""
    constants: Sequence[Array] = ()
    """The arrays of the network that the executable reads during a run, since it has no copies of them."""
    weight_copies: ClassVar[int] = 1
    """The number of copies of the weights that the engine makes, for the memory estimate; most engines repack them."""
    held: int = 0
    """The memory of the executable in bytes, as estimated by `Engine`."""
    layers: frozenset[str] = frozenset()
    """The names of the network's layers that the executable computes."""
    backend: str = ""
    """The id of the backend that has compiled it."""
    checks: InputChecks | None = None
    """Checks of the values of inputs, which are made if a run fails, or before each run."""
    profiles: EngineProfiles | None = None
    """Where measured steps are reported."""
    remarks: Sequence[str] = ()
    """Sentences for the user about how the engine runs the subgraph."""
    source: SavedPart | None = None
    """The exported form from which `Engine.import_compiled` has created the executable."""

    def held_weights(self, view: SubgraphView) -> int:
        """Return the size of the engine's copies of the weights, in bytes."""
        return self.weight_copies * sum(bytes_of(value) for value in view.constants)

    def exported(self) -> Sequence[bytes] | None:
        """Return the executable as bytes, for `Engine.imported`; None if the engine cannot export it."""
        return None

    @abstractmethod
    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Compute the subgraph's outputs from its inputs, in place into `outputs`; all arrays are contiguous."""

    def begin_measuring(self, examples: Examples) -> None:
        """Create what `run_measured` needs, if it does not exist, and warm it up by a run on `examples`.

        Several threads may call this at the same time.
        """

    def run_measured(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Sequence[EngineStep]:
        """Run as `run` does, and return the steps that the engine measured, by default none.

        While a profile records, this is called instead of `run`.
        """
        self.run(inputs, outputs)
        return ()

    @property
    def is_measuring(self) -> bool:
        """True if there may be steps that `end_measuring` returns."""
        return False

    def end_measuring(self) -> Sequence[EngineStep]:
        """Return the steps of all measured runs that `run_measured` did not return; called when recording ends."""
        return ()


@cache
def processor() -> str:
    """Return the model and a digest of the features of the processor, on which optimized networks depend."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    divided_lines = (line.partition(":") for line in lines)
    fields = {name.strip(): value.strip() for name, _, value in divided_lines}
    features = fields.get("flags", fields.get("Features", ""))
    name = fields.get("model name", fields.get("CPU part", platform.machine()))
    return f"{name} with {hashlib.sha256(features.encode()).hexdigest()[:12]}"


class _NoOutputs(Executable):
    """The executable of a subgraph without outputs: it does nothing, since no layer reads what the subgraph computes.

    Such a subgraph is not passed to an engine, because a model of an engine needs at least one output.
    """

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        pass


class Engine(Backend):
    """A backend that delegates whole subgraphs to an inference engine.

    A subclass names the packages that it needs and its options. Its `refusals` reports what is known to be unsupported
    without a trial, and its `compile` turns a subgraph into an `Executable`. To find out whether the engine runs a
    layer, the layer is compiled alone, once for each kind of layer.
    """

    packages: ClassVar[tuple[str, ...]]
    """The packages that must be importable; the first is the engine."""
    extra: ClassVar[str]
    """The name of the extra of this package that installs the engine."""
    options: ClassVar[tuple[Option, ...]]
    types: ClassVar[frozenset[DataType]]
    """The supported data types of inputs and outputs."""
    unchecked: ClassVar[tuple[type[Op], ...]] = ()
    """The operators for which the engine computes something, or crashes, if an index or size is out of range."""

    def __init__(self) -> None:
        self._reasons = _Reasons()
        self._profiles = EngineProfiles()
        self._of_device: Options = {}

    @classmethod
    def unavailable(cls) -> str | None:
        """Return which package is not installed and how to install it, or None; nothing is imported."""
        missing_package = next((name for name in cls.packages if find_spec(name) is None), None)
        return missing_package and f"the package {missing_package} is not installed: {install_command(cls.extra)}"

    @property
    def version(self) -> str:  # type: ignore[override] # found when asked
        """The version of the engine."""
        try:
            return version(self.packages[0])
        except PackageNotFoundError:  # for example, built from source
            return ""

    @cached_property
    def recording(self) -> Recording:
        """What was recorded of the engine's results for extreme values; wrong layers are refused."""
        return Recording.of(type(self).id)

    @property
    def remark(self) -> str:
        """Return for which version the wrong layers were recorded, if another one is installed; empty otherwise."""
        recorded_version = self.recording.version
        return (
            ""
            if self.version == recorded_version
            else f"its known errors were recorded for {recorded_version or 'no version'}"
        )

    def device_options(self, name: str) -> Options:
        """Return the options that select the device which users call `name`, as in ``"Torch:cuda:1"``.

        Raises:
            RefusedError: the engine has no such device here; the message gives the reason.
        """
        raise RefusedError("its devices cannot be chosen")

    def named_device(self, name: str, address: str) -> Backend:
        """Return the engine on a device: a backend of its own, whose options for devices are set.

        Raises:
            BackendUnavailableError: the engine is not installed, or has no such device here.
        """
        reason = self.unavailable()
        if reason is not None:
            raise BackendUnavailableError(address, reason)
        try:
            options = self.device_options(name)
        except RefusedError as refusal:
            raise BackendUnavailableError(address, str(refusal)) from refusal
        engine = copy.copy(self)
        engine.id = address  # type: ignore[misc] # of one instance
        engine._of_device, engine._profiles = options, EngineProfiles()
        return engine

    def _chosen(self, options: Options) -> Chosen:
        """Return the values of all options; raise `OptionError` if one is invalid, or set by the address."""
        for name in options:
            if name in self._of_device:
                raise OptionError(
                    f"the option {name!r} of backend {self.id} is {self._of_device[name]!r} by its address; "
                    f"give it to {type(self).id} instead"
                )
        return chosen(self.id, self.options, {**options, **self._of_device})

    @abstractmethod
    def refusals(self, layer: Layer, options: dict[str, Any]) -> list[str]:
        """Return the reasons why the engine cannot run a layer, as far as they are known without compiling it.

        Empty if none are. `options` has the value of every option of the engine.
        """

    @abstractmethod
    def compile(self, view: SubgraphView, options: dict[str, Any]) -> Executable:
        """Compile a subgraph; `options` has the value of every option of the engine.

        Raises:
            RefusedError: the engine cannot compile the subgraph; the message gives the reason.
        """

    def try_layers(self, view: SubgraphView, options: dict[str, Any]) -> None:
        """Find out whether the engine runs the layers of a view, by default by compiling them.

        Raises:
            RefusedError: the engine cannot run one of the layers.
        """
        self.compile(view, options)

    def layer_support(self, options: Options) -> LayerSupport:
        """Return layer support based on rules and trials; raise `OptionError` for invalid options."""
        return _EngineSupport(self, self._chosen(options))

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        """Compile the whole subgraph to one executable; if the engine refuses, return the subgraph with the reason."""
        settings = dict(self._chosen(options))
        try:
            executable = self.compile(view, settings) if view.outputs else _NoOutputs()
        except RefusedError as refusal:
            return OptimizationViews.all_failed(view, str(refusal))
        self._complete(executable, view)
        compiled_layer = PreCompiled(object=executable, num_outputs=len(view.outputs))
        substitution = Substitution(view, compiled_layer)
        return OptimizationViews(view, substitutions=[substitution], remarks=executable.remarks)

    def _complete(self, executable: Executable, view: SubgraphView) -> None:
        """Add to an executable what the engine knows of the layers in `view` that it computes."""
        executable.held = executable.held_weights(view) + largest_moment(view)
        executable.layers, executable.profiles = frozenset(layer.name for layer in view), self._profiles
        executable.backend, executable.checks = self.id, InputChecks(view, self.id, self.unchecked)

    def fingerprint(self, options: Options) -> str:
        """Return the version of the engine, and the processor or device; empty if the engine exports nothing."""
        settings = dict(self._chosen(options))
        device = self.exports_for(settings)
        return device and f"{self.id} {self.version} on {device}"

    def exports_for(self, options: dict[str, Any]) -> str:
        """Return a name of the processor or device for which executables are exported; empty if none are."""
        return ""

    def export_compiled(self, compiled: Any, options: Options) -> SavedPart | None:
        """Return an executable in the engine's own format, or None if the engine has none for it.

        An executable that was imported is exported as it was: OpenVINO cannot read what it exports of such a model.
        """
        if not isinstance(compiled, Executable):
            return None
        if compiled.source is not None:
            return compiled.source
        pieces = compiled.exported()
        return None if pieces is None else SavedPart(pieces)

    def import_compiled(self, saved: SavedPart, view: SubgraphView, options: Options) -> Executable:
        """Return an executable that was exported for the layers in `view`.

        Raises:
            RefusedError: the engine cannot read it.
        """
        executable = self.imported(saved.pieces, dict(self._chosen(options)))
        self._complete(executable, view)
        executable.source = saved
        return executable

    def imported(self, pieces: Sequence[bytes | memoryview], options: dict[str, Any]) -> Executable:
        """Return the executable that `Executable.exported` has described; `options` are those of the engine.

        Raises:
            RefusedError: the engine cannot read it.
        """
        raise RefusedError("the engine reads no exported executables")

    def create_backend_context(self, options: Options) -> None:
        """Return None: engines have no context, and all their options belong to a network.

        Raises:
            OptionError: an option is given.
        """
        self._chosen(options)
        for name in options:
            raise OptionError(f"option {name!r} of backend {self.id} is given for a network, not for a runtime")

    def create_backend_profiling_context(
        self, options: Options, profiling: BackendProfiling
    ) -> BackendProfilingContext:
        """Return an object that reports the steps which the engine measures inside of its subgraphs."""
        return self._profiles.context(profiling)

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        """Return a factory of workloads that run executables on tensors in host memory."""
        return _EngineFactory(memory_manager)

    def verdicts(self, view: SubgraphView, options: Chosen) -> list[Support]:
        """Return one verdict for each layer of a view: whether the engine runs it."""
        known_refusals = {layer: self._known_refusals(layer, dict(options)) for layer in view}
        cache_keys = {layer: (options, _kind_of(layer)) for layer, refusals in known_refusals.items() if not refusals}
        untried = {kind: layer for layer, kind in cache_keys.items() if self._reasons.get(kind) is None}
        for layer, reason in self._try_each(view, list(untried.values()), dict(options)).items():
            self._reasons.put(cache_keys[layer], reason.replace(repr(layer.name), _NAME))
        return [Support.of(known_refusals[layer] or self._reasons.of(cache_keys[layer], layer)) for layer in view]

    def _known_refusals(self, layer: Layer, options: dict[str, Any]) -> list[str]:
        refusals = _border_refusals(layer, self.types) or self.refusals(layer, options)
        return refusals or self.recording.reasons(layer)

    def _try_each(self, view: SubgraphView, layers: list[Layer], options: dict[str, Any]) -> dict[Layer, str]:
        """Return the reason why the engine cannot run each layer, by layer; an empty text for a layer that it can run.

        The `layers` of the view are tried together. If that fails, each half of them is tried, and so on.
        """
        if not layers:
            return {}
        try:
            self.try_layers(view.part(layers), options)
        except RefusedError as refusal:
            if len(layers) == 1:
                return {layers[0]: str(refusal)}
            middle = len(layers) // 2
            return {**self._try_each(view, layers[:middle], options), **self._try_each(view, layers[middle:], options)}
        return dict.fromkeys(layers, "")


_NAME: Final = "\0layer\0"
"""A placeholder for the layer's name in a reason that holds for all layers of its kind."""


class _EngineSupport(LayerSupport):
    """Answers which layers an engine supports, if it is used with these values of its options."""

    def __init__(self, engine: Engine, options: Chosen) -> None:
        self.engine, self.options = engine, options

    def query(self, view: SubgraphView) -> list[Support]:
        """Return one verdict for each layer."""
        return self.engine.verdicts(view, self.options)


class _Reasons:
    """A thread-safe cache of trials: why an engine cannot compile a layer, or an empty text if it can.

    Layers of the same kind (see `_kind_of`) share one entry, and the oldest entries are dropped. A cached reason holds
    a placeholder for the layer's name.
    """

    def __init__(self) -> None:
        self._by_kind: OrderedDict[Hashable, str] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, kind: Hashable) -> str | None:
        with self._lock:
            return self._by_kind.get(kind)

    def of(self, kind: Hashable, layer: Layer) -> list[str]:
        """Return the cached reason as a list of one text that names `layer`.

        Empty if nothing is cached or the trial succeeded.
        """
        reason = self.get(kind)
        return [reason.replace(_NAME, repr(layer.name))] if reason else []

    def put(self, kind: Hashable, reason: str) -> None:
        with self._lock:
            self._by_kind[kind] = reason
            if len(self._by_kind) > _MOST_REASONS:
                self._by_kind.popitem(last=False)


def _kind_of(layer: Layer) -> Hashable:
    """Return a key for the cache of trials, equal for two layers if the engine must give the same verdict for both.

    It consists of the operator with its attributes, the operands' infos with small constants, repeated operands, and
    the infos of the outputs.
    """
    sources = [None if value is None else (value.index, value.producer.guid) for value in layer.inputs]
    operands = tuple(None if value is None else _operand(value) for value in layer.inputs)
    results = tuple(value.known.with_constant(None) for value in layer.outputs)
    return layer.op, operands, tuple(sources.index(value) for value in sources), results


def _operand(value: Value) -> Hashable:
    constant = value.producer.op.value if value.is_constant else None  # type: ignore[attr-defined] # it is a Constant
    if constant is None:
        return value.known.with_constant(None)
    array = np.asarray(constant)
    may_be_parameter = array.size <= _MOST_PARAMETER_ELEMENTS
    return value.known.with_constant(None), (
        array.tolist() if array.dtype == object else array.tobytes()
    ).__repr__() if may_be_parameter else ""


def _border_refusals(layer: Layer, types: frozenset[DataType]) -> list[str]:
    inputs = [value for value in layer.values if not value.is_constant]
    return list(dict.fromkeys(_border_problems([*inputs, *layer.outputs], types)))


def _border_problems(values: Sequence[Value], types: frozenset[DataType]) -> Iterator[str]:
    for value in values:
        if not value.known.is_tensor:
            yield f"{value.name!r} is no tensor"
        elif value.known.dtype not in types:
            yield f"{value.name!r} is {value.known.dtype}, which the engine does not support"
        elif value.known.is_ranked and value.known.rank > _MOST_AXES:
            yield f"{value.name!r} has rank {value.known.rank}; the engine gets ranks up to {_MOST_AXES}"


class _EngineFactory(WorkloadFactory):
    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        """Return the workload of a compiled subgraph."""
        executable = layer.op.object if isinstance(layer.op, PreCompiled) else None
        if not isinstance(executable, Executable):
            raise BackendContractError(f"layer {layer} was not compiled by an engine")
        return _EngineWorkload(executable, info)


class _EngineWorkload(Workload):
    """The workload of a compiled subgraph: it maps the tensors to arrays and runs the executable on them."""

    estimates_memory = True

    def __init__(self, executable: Executable, info: WorkloadInfo) -> None:
        self.executable, self._info = executable, info
        self.concurrent = executable.concurrent

    @property
    def memory(self) -> int | None:
        """Return an estimate of the memory in bytes, since engines do not report it."""
        return self.executable.held

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        """Run the executable on the memory of these handles.

        Only inputs and outputs that are not contiguous are copied.
        """
        mapped_handles: list[TensorHandle] = []
        try:
            input_arrays = [_without_gaps(array) for array in _mapped(inputs, mapped_handles)]
            output_arrays = list(_mapped(outputs, mapped_handles))
            targets = [
                array if array.flags.c_contiguous else np.empty(array.shape, array.dtype) for array in output_arrays
            ]
            checks = self.executable.checks
            if checks is not None and checks.comes_first:
                checks.check(input_arrays)
            try:
                self._run(input_arrays, targets)
            except Exception:
                if checks is not None:
                    checks.check(input_arrays)
                raise
            for array, target in zip(output_arrays, targets, strict=True):
                if target is not array:
                    np.copyto(array, target)
        finally:
            for handle in mapped_handles:
                handle.unmap()

    def prepare_recording(self) -> None:
        """Let the executable prepare to measure, while a profile records."""
        profiles = self.executable.profiles
        if profiles is None or not profiles.is_on:
            return
        try:
            self.executable.begin_measuring(self._examples)
        except RefusedError as refusal:
            self._end_measuring(refusal)

    def _examples(self) -> tuple[Sequence[Array], Sequence[Array]]:
        return [_zeros(info) for info in self._info.inputs], [_zeros(info) for info in self._info.outputs]

    def _end_measuring(self, refusal: RefusedError) -> None:
        _log.warning("the layers of a subgraph cannot be measured: %s", refusal)
        self.executable.profiles = None

    def _run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        executable, profiles = self.executable, self.executable.profiles
        if profiles is None or not profiles.is_on:
            executable.run(inputs, outputs)
            return
        try:
            steps = executable.run_measured(inputs, outputs)
        except RefusedError as refusal:
            self._end_measuring(refusal)
            executable.run(inputs, outputs)
            return
        profiles.add(executable, steps)


def _zeros(info: TensorInfo | None) -> Array:
    """Return zeros for a tensor of a subgraph, which use no memory until they are read or written."""
    assert info is not None
    return np.zeros(tuple(map(int, info.shape)), info.dtype.numpy)


def _without_gaps(array: Array) -> Array:
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _mapped(handles: Sequence[TensorHandle | None], mapped_handles: list[TensorHandle]) -> Iterator[Array]:
    for handle in handles:
        assert handle is not None
        array = handle.map()
        mapped_handles.append(handle)
        yield array
