"""`DynamicBackend`: an opened plug-in as a `Backend`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from interposer.backend.allocator import CustomAllocator
from interposer.backend.base import Backend, BackendContext
from interposer.backend.caching import SavedPart
from interposer.backend.capabilities import Options, OptionValue
from interposer.backend.devices import Device
from interposer.backend.handles import TensorHandleFactoryRegistry
from interposer.backend.memory import MemoryManager, MemorySource
from interposer.backend.queues import Queue
from interposer.backend.strategies import MemoryOptimizerStrategy
from interposer.backend.support import LayerSupport
from interposer.backend.views import OptimizationViews
from interposer.backend.workload import Workload, WorkloadFactory, WorkloadInfo
from interposer.core.errors import BackendContractError, InvalidArgumentError
from interposer.core.types import TensorInfo
from interposer.ir.graph import Layer
from interposer.ir.subgraph import SubgraphView
from interposer.ops.control import PreCompiled
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.flatten import FlatGraph
from interposer.plugins.capi.abi.images import Image
from interposer.plugins.capi.caching.blobs import Blob, Blobs
from interposer.plugins.capi.caching.part_cache import cache_directory, without_directory
from interposer.plugins.capi.caching.recording import current_recording
from interposer.plugins.capi.library.executable import Executable
from interposer.plugins.capi.library.information import DeclaredOption
from interposer.plugins.capi.library.library import Library
from interposer.plugins.capi.library.option_tables import OptionTable, checked_options
from interposer.plugins.capi.running.compiling import compile_image, compile_part
from interposer.plugins.capi.running.context import DynamicContext
from interposer.plugins.capi.running.devices import OPTION, devices_of
from interposer.plugins.capi.running.handles import Allocators, Handles
from interposer.plugins.capi.running.parts import Optimizer
from interposer.plugins.capi.running.profiling import DynamicProfilingContext
from interposer.plugins.capi.running.queue_functions import Queues
from interposer.plugins.capi.running.queues import NativeQueue
from interposer.plugins.capi.running.support import DynamicSupport
from interposer.plugins.capi.running.workload import DynamicWorkload
from interposer.profiling.backends import BackendProfiling, BackendProfilingContext

__all__ = ["DynamicBackend", "DynamicWorkloadFactory"]


class DynamicBackend(Backend):
    """The backend of a plug-in, a shared object with the C interface. Thread-safe; usable until the library is closed.

    Objects that the backend creates keep it alive, so the library can be closed when the backend is garbage-collected.

    A connected subgraph becomes one compiled unit, unless the plug-in's ``optimize`` decides otherwise. Layers that it
    leaves unchanged are compiled individually. Tensors are in ordinary memory and are not copied, unless the plug-in
    has memory of its own (the extensions ``ipr.handles/1`` and ``ipr.allocator/1``).
    """

    def __init__(
        self,
        library: Library,
        defaults: Options | None = None,
        shared: DynamicBackend | None = None,
        device: Device | None = None,
    ) -> None:
        self.library, self._device = library, device
        self._defaults, self._shared = defaults or {}, shared
        self._allocator: CustomAllocator | None = None
        self.id = library.id  # type: ignore[misc] # of one instance, as every library brings its own
        self.version = library.info.version  # type: ignore[misc]
        self.api_version = (library.identity.major, library.identity.minor)  # type: ignore[misc]
        self.capabilities = library.info.named_capabilities(() if device is None else device.properties)  # type: ignore[misc]

    def devices(self) -> Sequence[Device]:
        """Return the devices of the plug-in; empty if it does not have the extension ``ipr.devices/1``."""
        return devices_of(self.library)

    def on_device(self, index: int, address: str) -> DynamicBackend:
        """Return the backend of one of the devices, under an id of its own."""
        backend = DynamicBackend(self.library, self._defaults, self, self.devices()[index])
        backend.id = address  # type: ignore[misc]
        backend._allocator = self._allocator
        return backend

    def for_runtime(self, options: Options) -> DynamicBackend:
        """Return the same plug-in for another runtime, whose options may differ from those at its initialisation.

        Options that networks may have apply to all networks of that runtime; others are ignored with a log message.

        Raises:
            InvalidArgumentError: the plug-in has no such option, or the value has the wrong type.
        """
        declared_options = {option.name: option for option in self.library.info.options}
        checked_values = checked_options(self.id, options, declared_options.values(), abi.SCOPE_INIT)
        initial_values = self.library.setting[1]
        network_options: dict[str, OptionValue] = {}
        for name in {**initial_values, **checked_values}:
            option_value = checked_values.get(name, declared_options[name].default)
            if option_value == initial_values.get(name, declared_options[name].default):
                continue
            if declared_options[name].scope & abi.SCOPE_MODEL:
                network_options[name] = option_value
            else:
                self.library.log.warning("option %r is as another runtime has given it, not %r", name, option_value)
        return DynamicBackend(self.library, network_options, self)

    @property
    def handle_factory_preferences(self) -> Sequence[str]:
        """The handle factories that the plug-in prefers; ordinary arrays if it has no private memory."""
        handles = self._plain_handles
        return () if handles is None else handles.preferences

    def register_tensor_handle_factories(self, registry: TensorHandleFactoryRegistry, options: Options) -> None:
        """Register the handle factories for the plug-in's kinds of memory."""
        if self._plain_handles is not None:
            Handles(self.library, self._plain_handles.functions, self._options(options)).register(registry, self)

    def use_custom_memory_allocator(self, allocator: CustomAllocator) -> str | None:
        """Accept an allocator for the memory of this runtime (return None), or return why the plug-in refuses it.

        Plug-ins without private memory accept all allocators of ordinary memory. The tensors and the workspaces of
        their parts come from the allocator, and so does what the parts hold, such as packed weights, if the plug-in has
        the extension ``ipr.executable_memory/1``.
        """
        reason = self._allocator_refusal(allocator)
        if reason is None:
            self._allocator = allocator
        return reason

    def _allocator_refusal(self, allocator: CustomAllocator) -> str | None:
        allocators = Allocators.of(self.library)
        if allocators is not None:
            return allocators.refusal(allocator.memory_source)
        if self._plain_handles is not None:
            return "it has memory of its own, and no use for an allocator (the extension ipr.allocator/1)"
        is_ordinary = allocator.memory_source == MemorySource.MALLOC
        return None if is_ordinary else f"it works on ordinary memory, not on {allocator.memory_source.name}"

    def use_memory_strategy(self, strategy: MemoryOptimizerStrategy) -> str | None:
        """Return why the plug-in refuses a memory strategy, or None.

        A plug-in plans the memory inside of the parts that it compiles. It accepts a strategy only if it declares the
        strategy's packing as a capability, because it leaves the tensors between layers to the host.
        """
        packing = strategy.packing.value
        if self._plain_handles is not None or self.capabilities.has(packing, False):
            return super().use_memory_strategy(strategy)
        if self.capabilities.has(packing):
            return None
        return f"it plans the memory of the layers that it compiles itself, and does not declare {packing}"

    @cached_property
    def _plain_handles(self) -> Handles | None:
        return Handles.of(self.library, self._options({}))

    def layer_support(self, options: Options) -> LayerSupport:
        """Return the object that asks the plug-in which layers it supports."""
        return DynamicSupport(self.library, self._merged(options), self)

    def optimize_subgraph(self, view: SubgraphView, options: Options) -> OptimizationViews:
        """Let the plug-in optimize and compile the view."""
        return Optimizer(self.library, view, self._options(options), self, self._allocator).views()

    def create_workload_factory(self, memory_manager: MemoryManager | None, options: Options) -> WorkloadFactory:
        """Return a factory of workloads that run compiled parts, and that compiles single layers."""
        strided = self._plain_handles is not None or abi.Cap.STRIDED in self.library.info.capabilities
        option_table = self._options(options)
        return DynamicWorkloadFactory(
            self.library,
            memory_manager,
            option_table,
            self,
            self._allocator,
            strided=strided,
            asynchronous=self.asynchronous,
        )

    @property
    def asynchronous(self) -> bool:  # type: ignore[override] # a question of the plug-in
        """True if the plug-in has queues (the extension ``ipr.async/1``)."""
        return self._queues is not None

    @property
    def overlaps_copies(self) -> bool:  # type: ignore[override]
        """True if the plug-in declares ``IPR_ASYNC_COPY_ENGINE``."""
        return self._queues is not None and bool(self._queues.flags & abi.ASYNC_COPY_ENGINE)

    @cached_property
    def _queues(self) -> Queues | None:
        return Queues.of(self.library)

    def create_queue(self, options: Options) -> Queue:
        """Return a new queue of the plug-in, on the device that the options name."""
        return super().create_queue(options) if self._queues is None else self._new_queue(self._queues, options)

    def _new_queue(self, queues: Queues, options: Options) -> NativeQueue:
        return NativeQueue(queues, self._options(options), self)

    def abandon(self, reason: str) -> None:
        """Never call the plug-in again."""
        self.library.abandon(reason)

    def create_backend_context(self, options: Options) -> BackendContext | None:
        """Return the plug-in's context, or None if it does not have the extension."""
        return DynamicContext.of(self.library, options, self)

    def create_backend_profiling_context(
        self, options: Options, profiling: BackendProfiling
    ) -> BackendProfilingContext | None:
        """Return the plug-in's intervals and counters, or None if it does not have the extension."""
        return DynamicProfilingContext.of(self.library, profiling, self)

    @property
    def declared_options(self) -> Sequence[DeclaredOption]:
        """The options that the plug-in declares, with defaults and descriptions."""
        return self.library.info.options

    @property
    def identity(self) -> str:
        """A string that differs after the plug-in's file has changed, for keys of caches."""
        device = self._device
        return self.library.stamp if device is None else f"{self.library.stamp} {device.id} {device.driver}"

    def cache_directory(self, options: Options) -> str:
        """Return the folder for compiled parts that the options of a network name; empty for the cache folder."""
        return cache_directory(self.library, self._merged(options))

    def without_directory(self, options: Options) -> Options:
        """Return the options of a network without the option for that folder."""
        return without_directory(self.library, options)

    def save_compiled(self, compiled: Any) -> SavedPart | None:
        """Return the tables from which a part was compiled, to store them in the network cache.

        None if the part was not compiled in the current block of `recording`.
        """
        recording = current_recording()
        parts = () if recording is None else recording.parts
        image = next((image for executable, image in parts if executable is compiled), None)
        return None if image is None else SavedPart(image.pieces, image.digest)

    def restore_compiled(self, saved: SavedPart, options: Options) -> Executable:
        """Compile a part from its saved tables, or restore its compiled blob.

        Raises:
            CallError: the plug-in failed.
            InvalidArgumentError: the tables are damaged, or the options are not valid.
        """
        recording = current_recording()
        image = Image(saved.pieces, saved.digest, None if recording is None else recording.file)
        return compile_image(self.library, image, self._options(options), self, self._allocator)

    def fingerprint(self, options: Options) -> str:
        """Return the plug-in's own fingerprint and its build; empty if it has no blobs."""
        blobs = self.blobs
        option_table = self._options(options)
        return "" if blobs is None else f"{self.library.build}; {blobs.fingerprint(option_table)}"

    def export_compiled(self, compiled: Any, options: Options) -> SavedPart | None:
        """Return a compiled part as a blob, or None if the plug-in has no blobs or cannot save this part."""
        blobs = self.blobs
        if blobs is None or not isinstance(compiled, Executable):
            return None
        blob = blobs.save(compiled)
        return None if blob is None else SavedPart((blob.data,), "graph" if blob.needs_graph else "")

    def import_compiled(self, saved: SavedPart, view: SubgraphView, options: Options) -> Executable:
        """Restore a part from its blob; the plug-in checks the blob, and may use its memory in place.

        Raises:
            CallError: the plug-in failed, or the blob is stale or damaged.
            BackendContractError: the plug-in has no blobs.
            InvalidArgumentError: there is not exactly one blob, or the options are not valid.
        """
        blobs, pieces = self.blobs, saved.pieces
        if blobs is None or len(pieces) != 1:
            raise InvalidArgumentError(f"a compiled part of {self.id} has {len(pieces)} pieces; expected a blob")
        blob = Blob(pieces[0], saved.digest == "graph")
        return blobs.restore(blob, view, self._merged(options), self._allocator)

    @property
    def blobs(self) -> Blobs | None:
        """The functions to save and restore compiled parts, or None if the plug-in does not have them."""
        return Blobs.of(self.library, self)

    def _merged(self, options: Options) -> Options:
        """Return the options of a network with those of the runtime, and with the device."""
        device = {} if self._device is None else {OPTION: self._device.index}
        return {**self._defaults, **options, **device}

    def _options(self, options: Options) -> OptionTable:
        return OptionTable(checked_options(self.id, self._merged(options), self.library.info.options, abi.SCOPE_MODEL))


class DynamicWorkloadFactory(WorkloadFactory):
    """Creates the workloads of one network for a plug-in."""

    def __init__(
        self,
        library: Library,
        memory_manager: MemoryManager | None,
        options: OptionTable,
        owner: object = None,
        allocator: CustomAllocator | None = None,
        *,
        strided: bool = False,
        asynchronous: bool = False,
    ) -> None:
        super().__init__(memory_manager)
        self._allocator = allocator
        self._strided, self._asynchronous = strided, asynchronous
        self.library, self._owner = library, owner
        self.alignment = library.info.alignment
        self._options = options

    def create_workload(self, layer: Layer, info: WorkloadInfo) -> Workload:
        """Return the workload of a compiled part, or of a layer that is compiled now.

        Raises:
            CallError: the plug-in cannot compile the layer.
            BackendContractError: the part was compiled by another backend.
        """
        if not isinstance(layer.op, PreCompiled):
            return self._compiled(layer, info)
        executable = layer.op.object
        if not isinstance(executable, Executable) or executable.library is not self.library:
            raise BackendContractError(f"layer {layer} was not compiled by {self.library.id}", backend=self.library.id)
        inputs = [
            (position, tensor_info) for position, tensor_info in enumerate(info.inputs) if tensor_info is not None
        ]
        return self._workload(executable, inputs, info.outputs)

    def _compiled(self, layer: Layer, info: WorkloadInfo) -> Workload:
        inputs: dict[int, TensorInfo] = {}
        infos = dict(zip(layer.outputs, info.outputs, strict=True))
        seen_values = set()
        for position, (value, input_info) in enumerate(zip(layer.inputs, info.inputs, strict=True)):
            if value is None or input_info is None:
                continue
            infos[value] = input_info
            if not value.is_constant and value not in seen_values:
                seen_values.add(value)
                inputs[position] = input_info
        entering = [value for value in (layer.inputs[position] for position in inputs) if value is not None]
        flat_graph = FlatGraph([layer], entering, layer.outputs, infos=infos, **self.library.table_rules)
        executable = compile_part(self.library, flat_graph, self._options, self._owner, self._allocator)
        return self._workload(executable, list(inputs.items()), info.outputs)

    def _workload(
        self, executable: Executable, inputs: Sequence[tuple[int, TensorInfo]], outputs: Sequence[TensorInfo]
    ) -> Workload:
        return DynamicWorkload(
            executable, inputs, outputs, self._allocator, strided=self._strided, asynchronous=self._asynchronous
        )
