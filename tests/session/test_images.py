"""Pictures as inputs: sizes, colours, layouts, types, and files that are no good pictures."""

from __future__ import annotations

import io
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from interposer import DataLayout, InterposerError, Quantization, TensorInfo
from interposer.core.errors import MissingDependencyError
from interposer.session.images import Preprocessing, read_image

RED_GREEN = np.uint8([[[255, 0, 0], [0, 255, 0]]] * 5)
AS_IS = Preprocessing()


@pytest.fixture
def picture(tmp_path: Path) -> str:
    """Return an image with five rows of two pixels: red and green."""
    path = tmp_path / "picture.png"
    Image.fromarray(RED_GREEN).save(path)
    return str(path)


def refusal(path: str | Path, info: TensorInfo, preprocessing: Preprocessing = AS_IS) -> str:
    with pytest.raises(InterposerError) as caught:
        read_image(str(path), "x", info, preprocessing)
    return str(caught.value).replace(str(path), Path(path).name)


def test_a_uint8_input_takes_the_codes_as_they_are(picture):
    image = read_image(picture, "x", TensorInfo((1, 5, 2, 3), "uint8"), AS_IS)
    np.testing.assert_array_equal(image, RED_GREEN[None])
    assert image.dtype == np.uint8


def test_an_int8_input_takes_the_codes_less_128(picture):
    image = read_image(picture, "x", TensorInfo((1, 5, 2, 3), "int8"), AS_IS)
    np.testing.assert_array_equal(image, (RED_GREEN[None].astype(int) - 128))
    assert image.dtype == np.int8


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_a_float_input_takes_numbers_from_0_to_1(picture, dtype):
    info = TensorInfo((1, 5, 2, 3), dtype)
    image = read_image(picture, "x", info, AS_IS)
    np.testing.assert_array_equal(image.astype(np.float32), RED_GREEN[None] / 255)
    assert image.dtype == info.dtype.numpy


def test_mean_and_std_are_applied_to_the_codes(picture):
    image = read_image(picture, "x", TensorInfo((1, 5, 2, 3)), Preprocessing(mean=(127.5,), std=(127.5,)))
    np.testing.assert_array_equal(image, RED_GREEN[None] / np.float32(127.5) - 1)


def test_each_channel_can_have_a_mean_and_std_of_its_own(picture):
    image = read_image(picture, "x", TensorInfo((1, 5, 2, 3)), Preprocessing(mean=(5, 10, 20), std=(1, 2, 4)))
    np.testing.assert_array_equal(image[0, 0, 0], [250, -5, -5])


def test_mean_alone_leaves_the_range_of_the_codes(picture):
    assert read_image(picture, "x", TensorInfo((1, 5, 2, 3)), Preprocessing(mean=(100.0,))).max() == 155


def test_with_mean_and_std_a_quantized_input_takes_the_quantized_number(picture):
    info = TensorInfo((1, 5, 2, 3), "int8", Quantization(0.5, 3))
    image = read_image(picture, "x", info, Preprocessing(mean=(127.5,), std=(127.5,)))
    np.testing.assert_array_equal(image[0, 0, 0], [1 / 0.5 + 3, -1 / 0.5 + 3, -1 / 0.5 + 3])


def test_quantized_numbers_are_kept_in_the_range_of_the_type(picture):
    info = TensorInfo((1, 5, 2, 3), "int8", Quantization(0.5, 3))
    assert read_image(picture, "x", info, Preprocessing(mean=(0.0,))).max() == 127


def test_channels_come_first_where_the_shape_says_so(picture):
    image = read_image(picture, "x", TensorInfo((1, 3, 5, 2), "uint8"), AS_IS)
    np.testing.assert_array_equal(image, RED_GREEN[None].transpose(0, 3, 1, 2))
    assert image.flags.c_contiguous


def test_an_input_may_lack_the_batch_axis(picture):
    np.testing.assert_array_equal(read_image(picture, "x", TensorInfo((5, 2, 3), "uint8"), AS_IS), RED_GREEN)


def test_the_layout_can_be_said_where_the_shape_leaves_it_open(picture):
    info = TensorInfo((1, 3, 2, 3), "uint8")
    layouts = "can be NHWC or NCHW; give the layout (--layout NHWC or --layout NCHW)"
    assert refusal(picture, info) == f"input 'x' uint8[1, 3, 2, 3] {layouts}"
    last = read_image(picture, "x", info, Preprocessing(DataLayout.NHWC))
    first = read_image(picture, "x", info, Preprocessing(DataLayout.NCHW))
    expected = np.asarray(Image.fromarray(RED_GREEN).resize((2, 3), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(last[0], expected)
    expected = np.asarray(Image.fromarray(RED_GREEN).resize((3, 2), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(first[0], expected.transpose(2, 0, 1))


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB"), (4, "RGBA")])
def test_the_colours_are_those_of_the_channels(tmp_path, channels, mode):
    rng = np.random.default_rng(0)
    original = Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8))
    original.save(tmp_path / "any.png")
    image = read_image(str(tmp_path / "any.png"), "x", TensorInfo((1, 6, 8, channels), "uint8"), AS_IS)
    expected = np.asarray(original.convert(mode).resize((8, 6), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(image[0], expected.reshape(6, 8, channels))


@pytest.mark.parametrize("kind", ["bmp", "gif", "jpeg", "png", "tiff", "webp"])
def test_the_content_tells_the_format_and_the_name_does_not(tmp_path, kind):
    stored = io.BytesIO()
    Image.new("RGB", (5, 5), (255, 255, 255)).save(stored, kind)
    (tmp_path / "white.dat").write_bytes(stored.getvalue())
    assert read_image(str(tmp_path / "white.dat"), "x", TensorInfo((1, 5, 5, 3)), AS_IS).min() == 1


def test_a_height_and_width_that_are_not_known_are_those_of_the_picture(picture):
    assert read_image(picture, "x", TensorInfo(("batch", None, None, 3)), AS_IS).shape == (1, 5, 2, 3)


@pytest.mark.parametrize(
    ("info", "text"),
    [
        (TensorInfo((1, 10)), "input 'x' float32[1, 10] is no image (rank 3 or 4); give its values in a .npy file"),
        (TensorInfo((8, 4, 4, 3)), "input 'x' float32[8, 4, 4, 3] takes 8 images at once; give them in a .npy file"),
        (
            TensorInfo((1, 5, 5, 3), "int32"),
            "input 'x' int32[1, 5, 5, 3] is int32; an image is uint8, int8 or floats; give a .npy file",
        ),
        (
            TensorInfo((1, 5, 6, 7)),
            "input 'x' float32[1, 5, 6, 7] has no axis of 1, 3 or 4 channels, first or last; "
            "give its values in a .npy file, or the shape of the input (--shape)",
        ),
    ],
)  # fmt: skip
def test_an_input_that_no_picture_fits_is_named(picture, info, text):
    assert refusal(picture, info) == text


def test_a_layout_that_does_not_fit_the_channels_is_refused(picture):
    message = refusal(picture, TensorInfo((1, 8, 8, 3)), Preprocessing(DataLayout.NCHW))
    assert message == "input 'x' float32[1, 8, 8, 3] has 8 channels as NCHW; an image has 1, 3 or 4"


def test_a_mean_for_too_few_channels_is_refused(picture):
    message = refusal(picture, TensorInfo((1, 5, 2, 3)), Preprocessing(mean=(1.0, 2.0)))
    assert message == "mean has 2 numbers; input 'x' float32[1, 5, 2, 3] takes 1 or 3"


def test_a_mean_for_too_many_channels_is_refused(picture):
    message = refusal(picture, TensorInfo((1, 5, 2, 1)), Preprocessing(mean=(1.0, 2.0)))
    assert message == "mean has 2 numbers; input 'x' float32[1, 5, 2, 1] takes 1"


def test_mean_and_std_mean_nothing_for_bare_integers(picture):
    message = refusal(picture, TensorInfo((1, 5, 2, 3), "uint8"), Preprocessing(std=(2.0,)))
    expected = "input 'x' uint8[1, 5, 2, 3] takes bare integers; mean and std are for real and quantized numbers"
    assert message == expected


# --- files that are no good pictures ----------------------------------------------------------------------------------

INFO = TensorInfo((1, 5, 5, 3), "uint8")


def test_a_text_is_no_picture(tmp_path):
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    assert refusal(tmp_path / "labels.txt", INFO) == (
        "labels.txt: no image that Pillow knows, nor a .npy or .npz file; "
        "the name of bare numbers must end in .bin or .raw"
    )


def test_an_empty_file_is_no_picture(tmp_path):
    (tmp_path / "empty.png").write_bytes(b"")
    assert refusal(tmp_path / "empty.png", INFO).startswith("empty.png: no image that Pillow knows")


@pytest.mark.parametrize("kind", ["bmp", "gif", "jpeg", "png", "tiff", "webp"])
def test_a_picture_that_is_cut_short_is_refused(tmp_path, kind):
    stored = io.BytesIO()
    noise = np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(stored, kind)
    (tmp_path / "cut.img").write_bytes(stored.getvalue()[: len(stored.getvalue()) // 2])
    assert refusal(tmp_path / "cut.img", INFO).startswith("cut.img: th")


@pytest.mark.parametrize("side", [10_000, 60_000])
def test_a_decompression_bomb_is_refused_before_it_is_decoded(tmp_path, side):
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    (tmp_path / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    assert refusal(tmp_path / "bomb.png", INFO) == (
        "bomb.png: the image has more than 89,478,485 pixels, which no network needs; scale it down"
    )


def test_damaged_pictures_are_read_or_refused(tmp_path):
    rng = np.random.default_rng(2)
    stored = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(stored, "png")
    for case in range(60):
        damaged = bytearray(stored.getvalue())
        for at in rng.integers(0, len(damaged), 4):
            damaged[at] = rng.integers(256)
        path = tmp_path / f"{case}.png"
        path.write_bytes(damaged)
        try:
            assert read_image(str(path), "x", INFO, AS_IS).shape == (1, 5, 5, 3)
        except InterposerError as error:
            assert str(error).startswith(str(path))


def test_without_pillow_the_message_names_what_to_install(picture, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingDependencyError) as caught:
        read_image(picture, "x", INFO, AS_IS)
    assert str(caught.value) == "reading images needs the package 'pillow': pip install 'interposer-nn[images]'"
