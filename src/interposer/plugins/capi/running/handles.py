"""The extensions ``ipr.handles/1`` and ``ipr.allocator/1``: tensors in memory of a plug-in or of a custom allocator."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from interposer.backend.allocator import CustomAllocator
from interposer.backend.base import Backend
from interposer.backend.handles import TensorHandleFactory, TensorHandleFactoryRegistry
from interposer.backend.memory import ArrayHandle, MemoryManager, MemorySource, TensorHandle
from interposer.backend.workload import Workload
from interposer.core.addresses import address_of, suitable
from interposer.core.errors import BackendContractError
from interposer.core.types import Array, TensorInfo
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.calls import CallError
from interposer.plugins.capi.abi.reading import read_array, read_text
from interposer.plugins.capi.abi.tensors import describe
from interposer.plugins.capi.library.lent_allocator import LentAllocator
from interposer.plugins.capi.library.library import Library
from interposer.plugins.capi.library.option_tables import OptionTable
from interposer.plugins.capi.running.queue_functions import Queues

__all__ = ["Allocators", "CopiedTensors", "Handles", "NativeCopy", "NativeHandle"]

_MANY: Final = 256
_FUNCTIONS: Final = {
    "describe": "describe", "create_pool": "create_pool", "destroy_pool": "destroy", "acquire": "of_pool",
    "give_back": "of_pool", "create_tensor": "create_tensor", "create_sub_tensor": "create_sub_tensor",
    "destroy_tensor": "destroy_tensor", "manage": "of_tensor", "allocate": "of_tensor", "map": "map",
    "unmap": "of_tensor", "copy": "copy", "import_memory": "import_memory", "forget_memory": "of_tensor",
    "export_memory": "export_memory",
}  # fmt: skip


class Handles:
    """The extension ``ipr.handles/1`` of a plug-in: its kinds of private memory, and the functions for them."""

    @classmethod
    def of(cls, library: Library, options: OptionTable) -> Handles | None:
        """Return the plug-in's kinds of memory, or None if it has no private memory.

        Raises:
            CallError: the plug-in failed.
            BackendContractError: the tables of the extension are damaged.
        """
        functions = library.extension(abi.EXT_HANDLES, abi.HandlesApi, _FUNCTIONS)
        return None if functions is None else cls(library, functions, options)

    def __init__(self, library: Library, functions: dict[str, Any], options: OptionTable) -> None:
        self.library, self.functions, self.options = library, functions, options
        out = abi.Factories(struct_size=ctypes.sizeof(abi.Factories))
        with library.serialized():
            self.call("describe", options.address, ctypes.addressof(out))
            with library.holding(out):
                self.kinds = self._kinds(out)
                size, count = ctypes.sizeof(abi.String), out.preference_count
                texts = read_array(abi.String, out.preferences, count, size, "the preferences")
                self.preferences = tuple(read_text(text, "a preference") for text in texts)

    def _kinds(self, out: abi.Factories) -> list[tuple[str, int, MemorySource, MemorySource]]:
        if max(out.factory_count, out.preference_count) > _MANY:
            raise BackendContractError(f"{out.factory_count:,} tensor handle factories cannot be meant")
        rows = read_array(abi.Factory, out.factories, out.factory_count, out.factory_stride, "the handle factories")
        return [(read_text(row.id, "a factory's id"), row.flags, _sources(row.import_kinds), _sources(row.export_kinds))
                for row in rows]  # fmt: skip

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the extension by its name in the table; raise `CallError` if it fails."""
        self.library.call(name, self.functions[name], self.library.self, *arguments)

    def register(self, registry: TensorHandleFactoryRegistry, owner: Backend) -> None:
        """Register a tensor handle factory for each kind of memory; together they allocate from one new memory pool.

        The pool keeps `owner`, the backend, alive.
        """
        pool = NativePool(self, registry.custom_allocators.get(owner.id), owner)
        registry.register_memory_manager(pool)
        for index, kind in enumerate(self.kinds):
            registry.register_factory(NativeHandleFactory(pool, index, kind))


def _sources(kinds: int) -> MemorySource:
    """Convert the plug-in's kinds of memory to `MemorySource`; unknown kinds are dropped. The numbers are the same."""
    return MemorySource(kinds & int(~MemorySource.UNDEFINED & 0xF))


class NativePool(MemoryManager):
    """The plug-in's memory pool of one run, for tensors of all its kinds of memory.

    It is created in the plug-in with the first tensor, because the optimizer only asks factories for their properties.
    """

    def __init__(self, handles: Handles, allocator: CustomAllocator | None, owner: object) -> None:
        self.handles, self._allocator, self._owner = handles, allocator, owner
        self._pool: int | None = None
        self.end: _PoolEnd | None = None

    @property
    def pool(self) -> int:
        """The number by which the plug-in knows the pool, which is created on first use."""
        if self._pool is None:
            self._pool = self._create_pool()
        return self._pool

    def _create_pool(self) -> int:
        library, out = self.handles.library, ctypes.c_void_p()
        with library.serialized():
            self.handles.call("create_pool", self.handles.options.address, ctypes.addressof(out))
        pool, destroy = out.value or 0, self.handles.functions["destroy_pool"]
        lent_allocator = None if self._allocator is None else LentAllocator(self._allocator)
        number = library.hold_call(partial(destroy, library.self, pool), lent_allocator)
        self.end = _PoolEnd(partial(library.let_go, number))
        weakref.finalize(self, self.end.request).atexit = False  # the library releases at exit whatever is left
        if lent_allocator is not None:
            Allocators.needed(library).use(pool, lent_allocator)
        return pool

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the extension by name with the pool as its first argument.

        Raise `CallError` if it fails.
        """
        self.handles.call(name, self.pool, *arguments)

    def acquire(self) -> None:
        """Let the plug-in allocate the planned memory."""
        if self._pool is not None:
            self.call("acquire")

    def release(self) -> None:
        """Let the plug-in free the memory."""
        if self._pool is not None:
            self.call("give_back")

    def destroy(self) -> None:
        """Destroy the pool in the plug-in: when all its tensors are destroyed, and after the current call."""
        if self.end is not None:
            self.end.request()


class _PoolEnd:
    """Destroys a pool by `destroy` once, when this was requested and no tensor is left in the pool."""

    def __init__(self, destroy: Callable[[], object]) -> None:
        self._destroy, self._lock = destroy, threading.RLock()  # a finalizer may come here again
        self._num_tensors, self._is_requested, self._is_done = 0, False, False

    def add(self) -> None:
        """Note that a tensor was created."""
        with self._lock:
            self._num_tensors += 1

    def remove(self, destroy_tensor: Callable[[], object]) -> None:
        """Destroy a tensor."""
        with self._lock:
            destroy_tensor()
            self._num_tensors -= 1
            self._end()

    def request(self) -> None:
        """Destroy the pool, or let the end of its last tensor destroy it."""
        with self._lock:
            self._is_requested = True
            self._end()

    def _end(self) -> None:
        if self._is_requested and not self._num_tensors and not self._is_done:
            self._is_done = True
            self._destroy()


class NativeHandleFactory(TensorHandleFactory):
    """The tensor handle factory for one of the kinds of memory of a plug-in."""

    def __init__(self, pool: NativePool, index: int, kind: tuple[str, int, MemorySource, MemorySource]) -> None:
        self.id, flags, self.import_sources, self.export_sources = kind
        self.supports_map = bool(flags & abi.FACTORY_MAPS)
        self.supports_sub_tensors = bool(flags & abi.FACTORY_SUB_TENSORS)
        self.supports_device_copy = bool(flags & abi.FACTORY_DEVICE_COPIES)
        self.peers = pool.handles.library.path if flags & abi.FACTORY_PEER_COPIES else ""
        self._pool, self._index = pool, index

    def create(self, info: TensorInfo) -> TensorHandle:
        """Return a tensor in the plug-in's memory."""
        return self._created(info, 0)

    def create_constant(self, info: TensorInfo, array: Array) -> TensorHandle:
        """Return a constant; its content is copied once, by the device or by the host."""
        handle = self._created(info, abi.HANDLE_ALONE)
        handle.allocate()
        if self.supports_device_copy:
            handle.copy_in(array)
        else:
            with handle.mapped() as mapped_array:
                np.copyto(mapped_array, array)
        return handle

    def _created(self, info: TensorInfo, flags: int) -> NativeHandle:
        out, info_table = ctypes.c_uint64(), _InfoTable(info)
        self._pool.call("create_tensor", self._index, info_table.address, flags, ctypes.addressof(out))
        can_import = bool(self.import_sources & MemorySource.MALLOC)
        return NativeHandle(info, self._pool, out.value, can_import=can_import, kind=self.id)

    def create_device_copy(self) -> Workload:
        """Return a workload by which the device copies tensors to or from this memory."""
        return NativeCopy(self.id, self._pool.handles.library)


class NativeHandle(TensorHandle):
    """The handle of a tensor in memory of a plug-in, which knows the tensor by `number`."""

    def __init__(
        self,
        info: TensorInfo,
        pool: NativePool,
        number: int,
        *,
        can_import: bool = False,
        kind: str = "",
        whole: NativeHandle | None = None,
    ) -> None:
        super().__init__(info)
        if not number:
            raise BackendContractError(f"create_tensor gave {info} the number 0", backend=pool.handles.library.id)
        self.pool, self.number, self.kind = pool, number, kind
        self.imports = can_import  # type: ignore[misc] # a question of the kind of memory
        self.parent = whole
        self._imported_array: Array | None = None
        library = pool.handles.library
        destroy = partial(pool.handles.functions["destroy_tensor"], library.self, pool.pool, number)
        assert pool.end is not None
        pool.end.add()
        number_of_call = library.hold_call(destroy, (pool, whole))
        self._destroy = weakref.finalize(self, pool.end.remove, partial(library.let_go, number_of_call))
        self._destroy.atexit = False  # the library releases at exit whatever is left

    @property
    def library(self) -> Library:
        """The library that owns the memory."""
        return self.pool.handles.library

    def manage(self) -> None:
        """Begin the lifetime of the tensor in the memory plan."""
        self.pool.call("manage", self.number)

    def allocate(self) -> None:
        """End the lifetime of the tensor in the memory plan, or allocate separate memory for it."""
        self.pool.call("allocate", self.number)

    def map(self) -> Array:
        """Map the tensor and return its array."""
        out = ctypes.c_void_p()
        self.pool.call("map", self.number, ctypes.addressof(out))
        return _array_at(out.value or 0, self.info, self)

    def unmap(self) -> None:
        """Unmap the tensor."""
        self.pool.call("unmap", self.number)

    def import_memory(self, array: Array) -> bool:
        """Let the tensor use the memory of an array; return False if the plug-in cannot use this memory."""
        if not (array.flags.c_contiguous and array.flags.aligned):
            return False
        try:
            self.pool.call("import_memory", self.number, _HostTensor(array, self.info).address)
        except CallError as error:
            if error.status == abi.UNSUPPORTED:
                return False
            raise
        self._imported_array = array
        return True

    def forget_memory(self) -> None:
        """Drop the imported memory."""
        if self._imported_array is not None:
            self.pool.call("forget_memory", self.number)
            self._imported_array = None

    def export_memory(self, source: MemorySource) -> Array:
        """Return the tensor's own memory as an array; `source` is the kind of memory that the caller can use."""
        if source != MemorySource.MALLOC:
            return super().export_memory(source)
        out = abi.Tensor()
        self.pool.call("export_memory", self.number, int(source), ctypes.addressof(out))
        return _array_at(out.data or 0, self.info, self)

    def create_sub_tensor(self, origin: Sequence[int], info: TensorInfo) -> TensorHandle | None:
        """Return the handle of a region of the tensor, or None if the plug-in cannot create it.

        `origin` is the index of the region's first element, and `info` has its shape.
        """
        out, info_table = ctypes.c_uint64(), _InfoTable(info)
        index = (ctypes.c_int64 * max(1, len(origin)))(*origin)
        try:
            self.pool.call(
                "create_sub_tensor", self.number, ctypes.addressof(index), info_table.address, ctypes.addressof(out)
            )
        except CallError as error:
            if error.status == abi.UNSUPPORTED:
                return None
            raise
        return NativeHandle(info, self.pool, out.value, kind=self.kind, whole=self)

    def destroy(self) -> None:
        """Destroy the tensor in the plug-in: now, or after the current call."""
        self._destroy()

    def copy_in(self, array: Array) -> None:
        """Copy an array into the tensor, by the device if possible."""
        host_tensor, private_tensor = _HostTensor(suitable(array, 1), self.info), _PrivateTensor(self)
        self.pool.call("copy", host_tensor.address, private_tensor.address)

    def copy_out(self, array: Array) -> None:
        """Copy the tensor into an array, by the device if possible."""
        contiguous_array = suitable(array, 1)
        host_tensor, private_tensor = _HostTensor(contiguous_array, self.info), _PrivateTensor(self)
        self.pool.call("copy", private_tensor.address, host_tensor.address)
        if contiguous_array is not array:
            np.copyto(array, contiguous_array)


class CopiedTensors(NamedTuple):
    """The arguments of a copy: the pool of the tensor in private memory, and both tensors as ``ipr_tensor``."""

    pool: int
    source: _HostTensor | _PrivateTensor
    target: _HostTensor | _PrivateTensor


class NativeCopy(Workload):
    """A workload in which the device of a plug-in copies a tensor to or from its memory of one kind.

    The tensor on the other side must be one that the host can map, or also in memory of the plug-in if its factory has
    ``IPR_FACTORY_PEER_COPIES``.
    """

    concurrent = strided = True

    def __init__(self, kind: str, library: Library) -> None:
        self._kind, self._library = kind, library
        queues = Queues.of(library)
        self.asynchronous = queues is not None and queues.copies

    def execute(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> None:
        """Copy the tensor, and wait for the end of the copy."""
        [source], [target] = inputs, outputs
        if source is not None and self._are_peers(source, target):
            tensors = self.tensors(inputs, outputs)
            assert tensors is not None
            assert isinstance(target, NativeHandle)
            target.pool.call("copy", tensors.source.address, tensors.target.address)
        elif isinstance(target, NativeHandle) and target.kind == self._kind and source is not None:
            with source.mapped() as array:
                target.copy_in(array)
        elif isinstance(source, NativeHandle):
            with target.mapped() as array:
                source.copy_out(array)

    def _are_peers(self, *handles: TensorHandle) -> bool:
        return all(isinstance(handle, NativeHandle) and handle.library is self._library for handle in handles)

    def tensors(self, inputs: Sequence[TensorHandle | None], outputs: Sequence[TensorHandle]) -> CopiedTensors | None:
        """Return the arguments of a copy that the device makes by itself, without a call of `execute`.

        None if the tensor on the other side is not in ordinary, contiguous memory of the host.
        """
        [source], [target] = inputs, outputs
        tensors = [_copied_tensor(handle) for handle in (source, target)]
        pools = [handle.pool.pool for handle in (target, source) if isinstance(handle, NativeHandle)]
        if tensors[0] is None or tensors[1] is None or not pools:
            return None
        return CopiedTensors(pools[0], tensors[0], tensors[1])


def _copied_tensor(handle: TensorHandle | None) -> _HostTensor | _PrivateTensor | None:
    if isinstance(handle, NativeHandle):
        return _PrivateTensor(handle)
    if type(handle) is not ArrayHandle:
        return None
    with handle.mapped() as array:  # the memory stays where it is as long as the handle is used
        return _HostTensor(array, handle.info) if array.flags.c_contiguous and array.flags.aligned else None


class _InfoTable:
    """An ``ipr_tensor_info`` with the type and shape of a `TensorInfo`, as an argument of plug-in functions."""

    def __init__(self, info: TensorInfo) -> None:
        self._shape = (ctypes.c_int64 * max(1, info.rank))(*info.shape)
        quantization = info.quantization
        scales = () if quantization is None else tuple(map(float, quantization.scales))
        points = () if quantization is None else tuple(map(int, quantization.zero_points))
        self._scales, self._points = (ctypes.c_double * len(scales))(*scales), (ctypes.c_int64 * len(points))(*points)
        self._struct = abi.TensorInfo(
            dtype=abi.DTYPES[info.dtype], rank=info.rank, shape=ctypes.addressof(self._shape),
            scale_count=len(scales), scales=ctypes.addressof(self._scales) if scales else None,
            zero_points=ctypes.addressof(self._points) if scales else None,
            axis=-1 if quantization is None or quantization.axis is None else quantization.axis,
            constant=-1, producer=-1,
        )  # fmt: skip
        self.address = ctypes.addressof(self._struct)


class _HostTensor:
    """An ``ipr_tensor`` in ordinary memory, that of an array, as an argument of plug-in functions."""

    def __init__(self, array: Array, info: TensorInfo) -> None:
        self._array, self._shape = array, (ctypes.c_int64 * max(1, info.rank))(*info.shape)
        self._struct = abi.Tensor()
        describe(self._struct, info, self._shape, 0 if array.flags.writeable else abi.TENSOR_READ_ONLY)
        self._struct.data = address_of(array)
        self.address = ctypes.addressof(self._struct)


class _PrivateTensor:
    """An ``ipr_tensor`` for a tensor in private memory of a plug-in, as an argument of plug-in functions."""

    def __init__(self, handle: NativeHandle) -> None:
        info = handle.info
        self._shape = (ctypes.c_int64 * max(1, info.rank))(*info.shape)
        self._struct = abi.Tensor()
        describe(self._struct, info, self._shape, 0)
        self._struct.memory_kind, self._struct.native_handle = abi.MEMORY_PRIVATE, handle.number
        self.address = ctypes.addressof(self._struct)


def _array_at(address: int, info: TensorInfo, owner: object) -> Array:
    """Return the memory at an address as an array that keeps `owner` alive."""
    size = int(info.num_bytes)
    if not address and size:
        raise BackendContractError(f"the plug-in shows {info} at no address")
    memory: Any = (ctypes.c_uint8 * size).from_address(address) if size else (ctypes.c_uint8 * 0)()
    weakref.finalize(memory, lambda buffer: None, owner).atexit = False
    array: Array = np.frombuffer(memory, info.dtype.numpy).reshape(tuple(info.shape))
    return array


class Allocators:
    """The extension ``ipr.allocator/1`` of a plug-in, by which it allocates memory from the user's custom allocator."""

    @classmethod
    def of(cls, library: Library) -> Allocators | None:
        """Return the extension, or None if the plug-in does not have it."""
        functions = library.extension(abi.EXT_ALLOCATOR, abi.AllocatorApi, {"accept": "accept", "use": "use"})
        return None if functions is None else cls(library, functions)

    @classmethod
    def needed(cls, library: Library) -> Allocators:
        """Return the extension of a plug-in that has accepted an allocator.

        Raise `BackendContractError` if it is missing.
        """
        extension = cls.of(library)
        if extension is None:
            raise BackendContractError(f"the extension {abi.EXT_ALLOCATOR.decode()} is gone", backend=library.id)
        return extension

    def __init__(self, library: Library, functions: dict[str, Any]) -> None:
        self._library, self._functions = library, functions

    def refusal(self, source: MemorySource) -> str | None:
        """Return why the plug-in refuses a custom allocator of this kind of memory, or None if it accepts it."""
        try:
            with self._library.serialized():
                self._library.call("accept", self._functions["accept"], self._library.self, int(source))
        except CallError as error:
            return error.reason
        return None

    def use(self, pool: int, lent_allocator: LentAllocator) -> None:
        """Let the plug-in's memory pool with this number allocate its memory from the user's allocator."""
        with self._library.serialized():
            self._library.call("use", self._functions["use"], self._library.self, pool, lent_allocator.address)
