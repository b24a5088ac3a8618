"""Variable-length integers of Protocol Buffers: seven bits in each byte, the lowest ones first."""

from __future__ import annotations

from interposer.core.errors import DamagedFileError

__all__ = ["encoded_varint", "varint"]


def varint(data: bytes | memoryview, at: int, end: int, title: str = "a number") -> tuple[int, int]:
    """Return the variable-length integer at the offset `at`, which ends before `end`, and the offset after it.

    `title` names the integer in the `DamagedFileError` that is raised if it is truncated or too long.

    >>> varint(bytes([0xAC, 0x02]), 0, 2)
    (300, 2)
    """
    number = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise DamagedFileError(f"{title} is truncated or too long")


def encoded_varint(number: int) -> bytes:
    """Return the bytes of an integer; a negative one is encoded as its two's complement of 64 bits.

    >>> encoded_varint(300).hex()
    'ac02'
    """
    number &= (1 << 64) - 1
    encoded_bytes = bytearray()
    while number > 0x7F:
        encoded_bytes.append(number & 0x7F | 0x80)
        number >>= 7
    encoded_bytes.append(number)
    return bytes(encoded_bytes)
