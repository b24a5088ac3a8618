"""FarmHash's Fingerprint64, a hash of bytes that is the same on every machine.

All numbers are unsigned 64-bit integers, and arithmetic wraps around.
"""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["fingerprint64"]

_MASK: Final = 2**64 - 1
_K0: Final = 0xC3A5C85C97CB3127
_K1: Final = 0xB492B66FBE98F273
_K2: Final = 0x9AE16A3B2F90404F
_BLOCK: Final = 64
Pair = tuple[int, int]


def fingerprint64(data: bytes) -> int:
    """Return FarmHash's Fingerprint64 of these bytes, a number from 0 to 2**64 - 1."""
    if len(data) <= 16:
        return _up_to_16(data)
    if len(data) <= 32:
        return _up_to_32(data)
    return _up_to_64(data) if len(data) <= _BLOCK else _long(data)


def _word(data: bytes, offset: int) -> int:
    """Return the unsigned little-endian 64-bit number at a byte offset; a negative offset counts from the end."""
    return int(struct.unpack_from("<Q", data, offset % len(data))[0])


def _half_word(data: bytes, offset: int) -> int:
    return int(struct.unpack_from("<I", data, offset % len(data))[0])


def _rotated_right(value: int, bits: int) -> int:
    """Rotate a 64-bit number to the right by this number of bits."""
    value &= _MASK
    return (value >> bits | value << (64 - bits)) & _MASK


def _xor_shifted(value: int) -> int:
    value &= _MASK
    return value ^ (value >> 47)


def _mix(a: int, b: int, factor: int) -> int:
    """Hash two 64-bit numbers to one, by multiplications with `factor` and shifts."""
    partial_hash = _xor_shifted(((a ^ b) & _MASK) * factor)
    return _xor_shifted((b ^ partial_hash) * factor) * factor & _MASK


def _up_to_16(data: bytes) -> int:
    size = len(data)
    factor = _K2 + 2 * size
    if size >= 8:
        a, b = _word(data, 0) + _K2 & _MASK, _word(data, -8)
        return _mix(_rotated_right(b, 37) * factor + a & _MASK, (_rotated_right(a, 25) + b) * factor & _MASK, factor)
    if size >= 4:
        return _mix(size + (_half_word(data, 0) << 3), _half_word(data, -4), factor)
    if not size:
        return _K2
    y, z = data[0] + (data[size >> 1] << 8), size + (data[-1] << 2)
    return _xor_shifted(y * _K2 & _MASK ^ z * _K0 & _MASK) * _K2 & _MASK


def _four(a: int, b: int, c: int, d: int) -> Pair:
    """Combine four 64-bit numbers into the two numbers that `_mix` hashes."""
    return _rotated_right(a + b, 43) + _rotated_right(c, 30) + d & _MASK, a + _rotated_right(b + _K2, 18) + c & _MASK


def _up_to_32(data: bytes) -> int:
    factor = _K2 + 2 * len(data)
    a, b = _word(data, 0) * _K1, _word(data, 8)
    c, d = _word(data, -8) * factor, _word(data, -16) * _K2
    return _mix(*_four(a, b, c, d), factor)


def _up_to_64(data: bytes) -> int:
    factor = _K2 + 2 * len(data)
    a, b = _word(data, 0) * _K2, _word(data, 8)
    y, second = _four(a, b, _word(data, -8) * factor, _word(data, -16) * _K2)
    z = _mix(y, second, factor)
    e, f = _word(data, 16) * factor, _word(data, 24)
    g, h = (y + _word(data, -32)) * factor, (z + _word(data, -24)) * factor
    return _mix(
        _rotated_right(e + f, 43) + _rotated_right(g, 30) + h & _MASK, e + _rotated_right(f + a, 18) + g & _MASK, factor
    )


class _State:
    """The hash state for data of more than 64 bytes, which is updated with each block of 64 bytes."""

    def __init__(self, first_word: int) -> None:
        self.x = 81 * _K2 + first_word & _MASK
        self.y = 81 * _K1 + 113 & _MASK
        self.z = _xor_shifted(self.y * _K2 + 113) * _K2 & _MASK
        self.v: Pair = (0, 0)
        self.w: Pair = (0, 0)

    def take(self, block: bytes, factor: int, pair_factor: int) -> None:
        """Update the state with a block of 64 bytes.

        `factor` multiplies the rotated sums, and `pair_factor` parts of `v` and `w`: it is 1, or 9 for the last block.
        """
        v, w = self.v, self.w
        x = _rotated_right(self.x + self.y + v[0] + _word(block, 8), 37) * factor ^ w[1] * pair_factor
        y = (
            _rotated_right(self.y + v[1] + _word(block, 48), 42) * factor + v[0] * pair_factor + _word(block, 40)
            & _MASK
        )
        z = _rotated_right(self.z + w[0], 33) * factor
        self.v = _weak_hash(block, 0, v[1] * factor, x + w[0])
        self.w = _weak_hash(block, 32, z + w[1], y + _word(block, 16))
        self.x, self.y, self.z = z & _MASK, y, x & _MASK


def _weak_hash(block: bytes, offset: int, a: int, b: int) -> Pair:
    """Combine two numbers with the 32 bytes from the offset `offset` on into two numbers."""
    first, second, third, fourth = (_word(block, offset + 8 * i) for i in range(4))
    a += first
    total = a + second + third
    return total + fourth & _MASK, _rotated_right(b + a + fourth, 21) + _rotated_right(total, 44) + a & _MASK


def _long(data: bytes) -> int:
    state = _State(_word(data, 0))
    whole_size = (len(data) - 1) // _BLOCK * _BLOCK
    for offset in range(0, whole_size, _BLOCK):
        state.take(data[offset : offset + _BLOCK], _K1, 1)
    factor = _K1 + ((state.z & 0xFF) << 1)
    w = state.w[0] + (len(data) - 1) % _BLOCK & _MASK
    v = state.v[0] + w & _MASK
    state.v, state.w = (v, state.v[1]), (w + v & _MASK, state.w[1])
    state.take(data[-_BLOCK:], factor, 9)
    high_hash = _mix(state.v[0], state.w[0], factor) + _xor_shifted(state.y) * _K0 + state.z
    return _mix(high_hash & _MASK, _mix(state.v[1], state.w[1], factor) + state.x & _MASK, factor)
