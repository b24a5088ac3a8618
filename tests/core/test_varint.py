"""Variable-length integers: the encoding of Protocol Buffers, and what is no encoding."""

import pytest
from hypothesis import given
from hypothesis.strategies import integers

from interposer.core.errors import DamagedFileError
from interposer.core.varint import encoded_varint, varint


@given(integers(0, (1 << 64) - 1))
def test_what_is_encoded_is_decoded_again(number):
    encoded = encoded_varint(number)
    assert varint(b"\xff" + encoded + b"\x01", 1, 2 + len(encoded)) == (number, 1 + len(encoded))


def test_a_negative_number_is_a_complement_of_ten_bytes():
    assert encoded_varint(-1) == b"\xff" * 9 + b"\x01"


@pytest.mark.parametrize("encoded", [b"", b"\x80", b"\xff" * 11])
def test_a_truncated_or_endless_number_is_damage(encoded):
    with pytest.raises(DamagedFileError, match="the size is truncated or too long"):
        varint(encoded, 0, len(encoded), "the size")
