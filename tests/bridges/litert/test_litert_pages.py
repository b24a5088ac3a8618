"""Pages of the model file under constants that backends have packed do not stay in memory."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest

from interposer.bridges.litert.pages import give_back_pages
from tests.bridges.litert.hosting import delegate, interpreter, perceptron, random_feeds, run

SIZE = 8 << 20


def view(memory):
    """Return memory as `graph` gives constants: a read-only view without a copy."""
    address = np.frombuffer(memory, np.uint8).ctypes.data
    return memoryview((ctypes.c_char * SIZE).from_address(address)).cast("B").toreadonly()


def resident(path):
    """The kilobytes in memory of all mappings of a file in this process."""
    total, inside = 0, False
    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if "-" in line.split()[0]:
                inside = line.rstrip().endswith(str(path))
            elif inside and line.startswith("Rss:"):
                total += int(line.split()[1])
    return total


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(bytes(range(256)) * (SIZE // 256))
    return path


def test_pages_of_a_file_that_is_mapped_for_reading_are_given_back_and_keep_their_bytes(file):
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), SIZE, access=mmap.ACCESS_READ) as mapped:
        constant = view(mapped)
        before = bytes(constant)
        assert resident(file) > SIZE // 2048
        give_back_pages([None, constant])
        assert resident(file) < 1024
        assert bytes(constant) == before
        del constant


def test_other_memory_is_not_touched(file):
    memory = bytearray(file.read_bytes())
    give_back_pages([view(memory)])
    assert memory == file.read_bytes()


def test_the_weights_of_a_file_are_given_back_and_the_results_are_right(tmp_path):
    content = perceptron((512, 2048, 2048, 64), softmax=False)
    path = tmp_path / "net.tflite"
    path.write_bytes(content)
    hosted, plain = interpreter(path, [delegate(backends="CpuAcc")]), interpreter(content)
    feeds = random_feeds(plain)
    np.testing.assert_allclose(run(hosted, feeds)[0], run(plain, feeds)[0], rtol=1e-4)
    assert resident(path) < len(content) // 2048
