"""Compilation of the layers in tables, or restoring of their cached result."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from functools import partial
from typing import Final

from interposer.backend.allocator import CustomAllocator
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.flatten import FlatGraph
from interposer.plugins.capi.abi.images import Image, ImageGraph, outline
from interposer.plugins.capi.abi.located import located
from interposer.plugins.capi.caching.part_cache import PartKeeper, keeps_parts
from interposer.plugins.capi.caching.recording import current_recording
from interposer.plugins.capi.library.executable import Executable
from interposer.plugins.capi.library.lent_allocator import lent_memory
from interposer.plugins.capi.library.library import Library
from interposer.plugins.capi.library.option_tables import OptionTable

__all__ = ["compile_image", "compile_part"]

MOST_BYTES: Final = 1 << 26
"""The largest size of constants, in bytes, of parts that are cached by the content of their constants."""


def compile_part(
    library: Library,
    flat: FlatGraph,
    options: OptionTable,
    owner: object = None,
    allocator: CustomAllocator | None = None,
) -> Executable:
    """Compile the layers of `flat` with a plug-in; the result keeps `owner` alive.

    It holds its memory in that of `allocator`, unless this is None or the plug-in does not support it.

    Raises:
        CallError: the plug-in failed; layers that it reports as defective are indices into `flat`.
    """
    if abi.Cap.WANTS_HASHES in library.info.capabilities:
        flat.hash_constants()
    recording = current_recording()
    if recording is None or not (recording.whole or keeps_parts(library, options)):
        return _compiled(library, flat, options, owner, allocator)
    if not recording.identity and sum(array.nbytes for array in flat.constants) > MOST_BYTES:
        return _compiled(library, flat, options, owner, allocator)
    image = Image.of(flat, recording.file, recording.identity)
    image.digest  # noqa: B018 - computed before a file of constants may be changed
    executable = _restored_or_compiled(library, flat, image, options, owner, allocator)
    if recording.whole:
        recording.parts.append((executable, image))
    return executable


def compile_image(
    library: Library,
    image: Image,
    options: OptionTable,
    owner: object = None,
    allocator: CustomAllocator | None = None,
) -> Executable:
    """Compile a part that is stored as an image with a plug-in; see `compile_part`.

    Raises:
        CallError: the plug-in failed.
        InvalidArgumentError: the image is damaged.
    """
    return _restored_or_compiled(library, ImageGraph(image), image, options, owner, allocator)


def _restored_or_compiled(
    library: Library,
    tables: FlatGraph | ImageGraph,
    image: Image,
    options: OptionTable,
    owner: object,
    allocator: CustomAllocator | None,
) -> Executable:
    keeper = PartKeeper.of(library, image, outline(abi.Graph.from_address(tables.address)), options)
    restored_executable = None if keeper is None else keeper.restored(tables, owner, allocator)
    if restored_executable is not None:
        return restored_executable
    executable, recording = _compiled(library, tables, options, owner, allocator), current_recording()
    if keeper is None:
        return executable
    source = "" if recording is None else recording.source
    if recording is not None and recording.whole and recording.identity:
        recording.unsaved.append(partial(keeper.keep, executable, source))
    elif image.is_unchanged():
        keeper.keep(executable, source)
    return executable


def _compiled(
    library: Library,
    tables: FlatGraph | ImageGraph,
    options: OptionTable,
    owner: object,
    allocator: CustomAllocator | None,
) -> Executable:
    out = abi.Executable(struct_size=ctypes.sizeof(abi.Executable))
    functions, lent_allocator = lent_memory(library, allocator)
    function = library.functions["compile"] if lent_allocator is None else functions["compile"]
    lent_address = () if lent_allocator is None else (lent_allocator.address,)
    naming = located(tables) if isinstance(tables, FlatGraph) else nullcontext()
    with library.serialized(), naming:
        library.call(
            "compile", function, library.self, tables.address, options.address, *lent_address, ctypes.addressof(out)
        )
        return Executable(library, out, tables, owner, allocator=lent_allocator)
