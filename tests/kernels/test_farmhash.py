"""FarmHash's Fingerprint64, of as many bytes as there are ways in which it hashes them."""

import pytest

from interposer.kernels.farmhash import fingerprint64

TEXT = bytes((i * 7 + 3) % 256 for i in range(200))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, 11160318154034397263),
        (3, 4662423180930907492),
        (7, 5759834791111993764),
        (16, 9140634717936656744),
        (24, 3530932784303194834),
        (32, 11907377154618496232),
        (48, 12067522278222762015),
        (64, 389040666157116578),
        (65, 8638051931306504420),
        (128, 7379187116787024497),
        (200, 7886090686657605591),
    ],
)
def test_bytes_have_the_fingerprint_that_they_have_everywhere(size, expected):
    assert fingerprint64(TEXT[:size]) == expected


def test_a_published_example():
    assert fingerprint64(b"hello world") == 6381520714923946011
