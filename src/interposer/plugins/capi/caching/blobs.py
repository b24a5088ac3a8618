"""The extension ``ipr.blobs/1``: compiled parts as bytes that can be stored in a file."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import numpy as np

from interposer.backend.allocator import CustomAllocator
from interposer.backend.capabilities import Options
from interposer.core.addresses import address_of
from interposer.core.cache import CHUNK, Streamed
from interposer.core.errors import BackendContractError, InvalidArgumentError
from interposer.core.records import dataclass
from interposer.ir.subgraph import SubgraphView
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.calls import CallError
from interposer.plugins.capi.abi.flatten import FlatGraph
from interposer.plugins.capi.abi.images import ImageGraph
from interposer.plugins.capi.abi.located import located
from interposer.plugins.capi.abi.reading import MAX_BYTES, read, read_text
from interposer.plugins.capi.library.executable import Executable
from interposer.plugins.capi.library.lent_allocator import lent_memory
from interposer.plugins.capi.library.library import Library
from interposer.plugins.capi.library.option_tables import OptionTable, checked_options

__all__ = ["Blob", "Blobs"]

_FUNCTIONS: Final = {name: name for name in ("fingerprint", "save", "check", "restore")}


@dataclass(frozen=True, slots=True)
class Blob:
    """A subgraph that a plug-in has compiled, as bytes that can be stored.

    If `needs_graph` is True, the bytes do not contain the constants, and the subgraph is needed to restore them.
    """

    data: bytes | memoryview
    needs_graph: bool = False


class _SavedBlob(NamedTuple):
    """The same as a `Blob`, in the memory of the plug-in."""

    data: Streamed
    needs_graph: bool


def _streamed(address: int, size: int) -> Streamed:
    """Return the bytes at an address, each chunk of which is read safely."""

    def chunks() -> Iterator[bytes]:
        for offset in range(0, size, CHUNK):
            yield read(address and address + offset, min(CHUNK, size - offset), "the blob")

    return Streamed(size, chunks)


class Blobs:
    """The functions of a plug-in that convert compiled subgraphs to bytes and back. Thread-safe."""

    @classmethod
    def of(cls, library: Library, owner: object = None) -> Blobs | None:
        """Return the functions of a plug-in's extension, or None if the plug-in does not have it.

        The executables that they restore keep `owner` alive.

        Raises:
            BackendContractError: the table of the extension is damaged.
        """
        functions = library.extension(abi.EXT_BLOBS, abi.BlobsApi, _FUNCTIONS)
        return None if functions is None else cls(library, functions, owner)

    def __init__(self, library: Library, functions: dict[str, Any], owner: object) -> None:
        self._library, self._functions, self._owner = library, functions, owner

    def fingerprint(self, options: Options | OptionTable | None = None) -> str:
        """Return the plug-in's text for these options and this machine; it differs if blobs are not interchangeable."""
        out = abi.Text(struct_size=ctypes.sizeof(abi.Text))
        option_table = options if isinstance(options, OptionTable) else self._options(options)
        with self._library.serialized():
            self._call("fingerprint", option_table.address, ctypes.addressof(out))
            with self._library.holding(out):
                return read_text(out.text, "the fingerprint")

    def save(self, executable: Executable) -> Blob | None:
        """Return a compiled part as a blob of bytes, or None if the plug-in cannot save this part.

        Raises:
            CallError: the plug-in failed.
            InvalidArgumentError: another plug-in compiled the part.
        """
        with self.saved(executable) as blob:
            return None if blob is None else Blob(b"".join(blob.data), blob.needs_graph)

    @contextmanager
    def saved(self, executable: Executable) -> Iterator[_SavedBlob | None]:
        """Provide the same bytes as `save` for the time of a ``with`` block, without a copy of them."""
        if executable.library is not self._library:
            raise InvalidArgumentError(f"the part was compiled by another backend than {self._library.id!r}")
        out = abi.Blob(struct_size=ctypes.sizeof(abi.Blob))
        with self._library.serialized():
            try:
                self._call("save", executable.handle, ctypes.addressof(out))
            except CallError as error:
                if error.status != abi.UNSUPPORTED:
                    raise
                yield None
                return
            with self._library.holding(out):
                if out.size > MAX_BYTES:
                    raise BackendContractError(
                        f"a blob of {out.size:,} bytes cannot be meant", backend=self._library.id
                    )
                yield _SavedBlob(_streamed(out.data or 0, out.size), bool(out.flags & abi.BLOB_NEEDS_GRAPH))

    def fault(self, blob: Blob, options: Options | None = None) -> str | None:
        """Return why a blob cannot be restored here, "stale ..." or "corrupt ...", or None if it can."""
        option_table = self._options(options)
        with self._library.serialized():
            try:
                self._call("check", *_bytes(blob), option_table.address)
            except CallError as error:
                if error.status in (abi.STALE, abi.CORRUPT):
                    return error.reason
                raise
        return None

    def restore(
        self,
        blob: Blob,
        view: SubgraphView | None = None,
        options: Options | None = None,
        allocator: CustomAllocator | None = None,
    ) -> Executable:
        """Restore a compiled part from its bytes. `view` is the part, which is optional unless the blob needs it.

        The result holds its memory in that of `allocator`, unless this is None or the plug-in does not support it.

        Raises:
            CallError: the plug-in failed; ``.status`` is ``abi.STALE`` or ``abi.CORRUPT`` if the blob is the cause.
            InvalidArgumentError: the blob needs its part, and `view` is None.
        """
        if blob.needs_graph and view is None:
            raise InvalidArgumentError("this blob has no constants in it; restore it with the part that was compiled")
        option_table, flat_graph = self._options(options), None
        if view is None:
            return self.restore_tables(blob, None, option_table, self._owner, allocator)
        flat_graph = FlatGraph.of(view, **self._library.table_rules)
        if abi.Cap.WANTS_HASHES in self._library.info.capabilities:
            flat_graph.hash_constants()
        with located(flat_graph):
            return self.restore_tables(blob, flat_graph, option_table, self._owner, allocator)

    def restore_tables(
        self,
        blob: Blob,
        flat: FlatGraph | ImageGraph | None,
        table: OptionTable,
        owner: object,
        allocator: CustomAllocator | None = None,
    ) -> Executable:
        """Restore a compiled part from a blob, as `restore` does; the result keeps `owner` alive.

        `flat` is the graph of the part, or None if the blob needs none; it is not validated. `table` has the options.

        Raises:
            CallError: the plug-in failed.
        """
        out = abi.Executable(struct_size=ctypes.sizeof(abi.Executable))
        address = None if flat is None else flat.address
        functions, lent_allocator = lent_memory(self._library, allocator)
        restore = self._functions["restore"]
        lent_address: tuple[int, ...] = ()
        if lent_allocator is not None and "restore" in functions:
            restore, lent_address = functions["restore"], (lent_allocator.address,)
        arguments = (*_bytes(blob), address, table.address, *lent_address, ctypes.addressof(out))
        with self._library.serialized():
            self._library.call("restore", restore, self._library.self, *arguments)
            return Executable(self._library, out, flat, owner, blob.data, lent_allocator)

    def _options(self, options: Options | None) -> OptionTable:
        library = self._library
        return OptionTable(checked_options(library.id, options or {}, library.info.options, abi.SCOPE_MODEL))

    def _call(self, name: str, *arguments: Any) -> None:
        self._library.call(name, self._functions[name], self._library.self, *arguments)


def _bytes(blob: Blob) -> tuple[int | None, int]:
    """Return the address of the bytes, valid as long as the blob is, and their number."""
    return address_of(np.frombuffer(blob.data, np.uint8)) or None, len(blob.data)
