"""Regions of the system's shared memory that clients register, so that tensors need not travel in messages."""

from __future__ import annotations

import os
import stat
from typing import Any, Final, NoReturn

from interposer.core.records import dataclass
from interposer.core.types import Array
from interposer.serving.peers import Peer
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.protocol.tensors import to_bytes

__all__ = ["SharedMemory"]

_FOLDER: Final = "/dev/shm"
_MAX_REGIONS: Final = 256


@dataclass(frozen=True, slots=True)
class _Region:
    """A part of an open file in memory, in bytes."""

    name: str
    key: str
    offset: int
    size: int
    file: int
    user: int


class SharedMemory:
    """The regions that clients have registered, by name.

    Bytes are copied by system calls and the files are never mapped, so that a client that shrinks its file, or changes
    it during a run, does no harm.

    Args:
        folder: where the system has the files of shared memory.
        limit: the most bytes of an input.
    """

    def __init__(self, folder: str = _FOLDER, limit: int = 1 << 63) -> None:
        self._folder, self._limit = folder, limit
        self._regions: dict[str, _Region] = {}

    def of_user(self, peer: Peer) -> UserRegions:
        """Return the regions that belong to the user who sends a request."""
        return UserRegions(self, peer)

    def register(self, name: str, key: Any, offset: Any, size: Any, peer: Peer) -> None:
        """Register a part of the shared memory that has the name `key` in the system.

        Raises:
            ServingError: the name is taken, there is no such memory, it belongs to another user than the one who sends
                the request, or it is smaller than `offset` and `size` say.
        """
        if name in self._regions:
            raise ServingError(Status.INVALID, f"the shared memory region {name[:200]!r} is registered already")
        if len(self._regions) >= _MAX_REGIONS:
            raise ServingError(Status.FULL, f"{_MAX_REGIONS} regions of shared memory are registered already")
        for title, number in (("offset", offset), ("byte_size", size)):
            if type(number) is not int or not 0 <= number < 1 << 63:
                raise ServingError(Status.INVALID, f"the {title} of the region is not a whole number from 0 on")
        file = self._opened(key)
        try:
            status = os.fstat(file)
            if status.st_uid != peer.user:
                raise _foreign(f"shared memory {key[:200]!r}", peer)
            if not stat.S_ISREG(status.st_mode) or size > status.st_size or offset > status.st_size - size:
                raise ServingError(
                    Status.INVALID, f"the shared memory {key[:200]!r} does not have {size} bytes at offset {offset}"
                )
        except BaseException:
            os.close(file)
            raise
        self._regions[name] = _Region(name, key, offset, size, file, status.st_uid)

    def _opened(self, key: Any) -> int:
        region_name = key.removeprefix("/") if isinstance(key, str) else ""
        if (
            not region_name
            or "/" in region_name
            or "\0" in region_name
            or region_name in (".", "..")
            or len(region_name.encode("utf-8", "replace")) > 255
        ):
            raise ServingError(Status.INVALID, "the key of the region is not a name of shared memory")
        try:
            return os.open(
                os.path.join(self._folder, region_name), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            )
        except (OSError, ValueError):
            raise ServingError(Status.INVALID, f"the shared memory {region_name[:200]!r} cannot be opened") from None

    def unregister(self, name: str = "", user: int | None = None) -> None:
        """Forget a region, or all of them without a name; an unknown name is no error.

        Args:
            name: the name of a region.
            user: only regions of the user with this id are known; None for those of all users.
        """
        for region_name in [name] if name else list(self._regions):
            region = self._regions.get(region_name)
            if region is not None and user in (None, region.user):
                del self._regions[region_name]
                os.close(region.file)

    def status(self, name: str = "", user: int | None = None) -> list[dict[str, Any]]:
        """Return name, key, offset and size of a region, or of all regions; see `unregister` for the arguments.

        Raises:
            ServingError: there is no region of this name.
        """
        regions = [region for region in self._regions.values() if user in (None, region.user)]
        if name:
            regions = [region for region in regions if region.name == name] or [self._unknown(name)]
        return [
            {"name": region.name, "key": region.key, "offset": region.offset, "byte_size": region.size}
            for region in regions
        ]

    def _region(self, name: str) -> _Region:
        return self._regions.get(name) or self._unknown(name)

    def _unknown(self, name: str) -> NoReturn:
        raise ServingError(Status.INVALID, f"no shared memory region {name[:200]!r} is registered")

    def _checked(self, name: str, offset: int, size: int, peer: Peer) -> _Region:
        region = self._region(name)
        if region.user != peer.user:
            raise _foreign(f"region {name[:200]!r}", peer)
        if size > region.size or offset > region.size - size:
            raise ServingError(
                Status.INVALID, f"the region {name[:200]!r} has {region.size} bytes, not {size} at offset {offset}"
            )
        return region

    def read(self, name: str, offset: int, size: int, peer: Peer) -> memoryview:
        """Return a copy of bytes of a region.

        Raises:
            ServingError: the region does not have these bytes, or belongs to another user than the one who asks.
        """
        region = self._checked(name, offset, size, peer)
        if size > self._limit:
            raise ServingError(
                Status.TOO_LARGE, f"the tensor in the region {name[:200]!r} is larger than {self._limit:,} bytes"
            )
        region_bytes = bytearray(size)
        num_copied = 0
        while num_copied < size:
            count = os.preadv(region.file, [memoryview(region_bytes)[num_copied:]], region.offset + offset + num_copied)
            if not count:
                raise ServingError(Status.INVALID, f"the region {name[:200]!r} was made smaller after its registration")
            num_copied += count
        return memoryview(region_bytes)

    def write(self, name: str, offset: int, size: int, array: Array, peer: Peer) -> None:
        """Write the elements of an array to a region.

        Raises:
            ServingError: they need more than `size` bytes, or the region belongs to another user than the one who asks.
        """
        region = self._checked(name, offset, size, peer)
        array_bytes = memoryview(to_bytes(array))
        if len(array_bytes) > size:
            raise ServingError(
                Status.INVALID,
                f"the output needs {len(array_bytes)} bytes, and {size} of the region {name[:200]!r} are for it",
            )
        if os.fstat(region.file).st_size < region.offset + offset + len(array_bytes):
            raise ServingError(Status.INVALID, f"the region {name[:200]!r} was made smaller after its registration")
        num_written = 0
        while num_written < len(array_bytes):
            num_written += os.pwrite(region.file, array_bytes[num_written:], region.offset + offset + num_written)


class UserRegions:
    """The regions that belong to the user who sends a request. May be used in any thread.

    Args:
        memory: all regions.
        peer: who sends the request.
    """

    def __init__(self, memory: SharedMemory, peer: Peer) -> None:
        self._memory, self._peer = memory, peer

    def read(self, name: str, offset: int, size: int) -> memoryview:
        """Return a copy of bytes of a region; raise `ServingError` if the user has no region with them."""
        return self._memory.read(name, offset, size, self._peer)


def _foreign(title: str, peer: Peer) -> ServingError:
    if peer.user is None:
        advice = "connect to the Unix socket of the server, or to its loopback address in the same network namespace"
        return ServingError(
            Status.FORBIDDEN,
            f"the user who asks for the {title} is not known, and it is for its own user only; {advice}",
        )
    return ServingError(Status.FORBIDDEN, f"the {title} does not belong to the user who asks for it")
