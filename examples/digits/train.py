"""Train a small digit classifier in plain NumPy, and write it as digits.onnx with some sample pictures.

This requires the packages onnx, pillow and scikit-learn. scikit-learn contains the data: 1797 handwritten digits of 8 x
8 pixels, bright ink on black. A quarter of them is the test data, from which the sample pictures are taken.

    python examples/digits/train.py [FOLDER]
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

Floats = NDArray[np.float32]
Integers = NDArray[np.intp]
Parameters = dict[str, Floats]

LABELS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
SIZE = 8
PICTURE_SIZE = 64
EPOCHS = 30
BATCH = 64
LEARNING_RATE = 3e-3
REQUESTED_ACCURACY = 0.97


# --- data -------------------------------------------------------------------------------------------------------------


def split(rng: np.random.Generator) -> tuple[Floats, Integers, Floats, Integers]:
    """Return training images (N, 1, 8, 8) with values from 0 to 1, their digits, and the same for the test data."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - it takes seconds, and only training needs it

    data = load_digits()
    images = (data.images / 16).astype(np.float32)[:, None]
    order = rng.permutation(len(images))
    held_out, rest = np.split(order, [len(images) // 4])
    return images[rest], data.target[rest], images[held_out], data.target[held_out]


def to_picture(image: Floats) -> Image.Image:
    """Return one image (1, 8, 8) as a picture large enough to look at."""
    pixels = np.rint(image[0] * 255).astype(np.uint8)
    return Image.fromarray(pixels).resize((PICTURE_SIZE, PICTURE_SIZE), Image.Resampling.BICUBIC)


def from_picture(picture: Image.Image) -> Floats:
    """Return the input float32[1, 1, 8, 8] that `interposer run` creates from a picture."""
    small = picture.convert("L").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    return np.asarray(small, np.float32)[None] / 255


def through_pictures(images: Floats) -> Floats:
    """Return the images after conversion to pictures and back, which blurs them slightly."""
    return np.stack([from_picture(to_picture(image)) for image in images])


# --- the network and its gradient -------------------------------------------------------------------------------------


def initial(rng: np.random.Generator) -> Parameters:
    """Return the initial parameters: He-initialized weights and zero biases."""
    shapes = {"conv1": (8, 1, 3, 3), "conv2": (16, 8, 3, 3), "dense1": (32, 256), "dense2": (10, 32)}
    parameters: Parameters = {}
    for name, shape in shapes.items():
        deviation = np.sqrt(2 / np.prod(shape[1:]))
        parameters[f"{name}.weight"] = rng.normal(0, deviation, shape).astype(np.float32)
        parameters[f"{name}.bias"] = np.zeros(shape[0], np.float32)
    return parameters


def patches(x: Floats) -> Floats:
    """Return the 3 x 3 surroundings of every pixel, zeros outside: (N, C, H, W) -> (N, H, W, C * 9)."""
    n, c, h, w = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = sliding_window_view(padded, (3, 3), axis=(2, 3))
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(n, h, w, c * 9)


def convolve(x: Floats, weight: Floats) -> Floats:
    """Compute the cross-correlation with stride 1; the result has the size of the image."""
    return (patches(x) @ weight.reshape(len(weight), -1).T).transpose(0, 3, 1, 2)


def convolve_gradient(x: Floats, gradient: Floats) -> Floats:
    """Return the gradient of the loss with respect to the weight of `convolve`."""
    out_channels = gradient.shape[1]
    by_channel = gradient.transpose(1, 0, 2, 3).reshape(out_channels, -1)
    columns = patches(x)
    return (by_channel @ columns.reshape(-1, columns.shape[-1])).reshape(out_channels, -1, 3, 3)


def blocks(x: Floats) -> Floats:
    """Return a view of 2 x 2 blocks: (N, C, H, W) becomes (N, C, H/2, 2, W/2, 2)."""
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2)


def forward(p: Parameters, x: Floats) -> dict[str, Floats]:
    """Return all intermediate values by name; the probabilities are last."""
    v = {"x": x}
    v["relu1"] = np.maximum(convolve(x, p["conv1.weight"]) + p["conv1.bias"][:, None, None], 0)
    v["relu2"] = np.maximum(convolve(v["relu1"], p["conv2.weight"]) + p["conv2.bias"][:, None, None], 0)
    v["pool"] = blocks(v["relu2"]).max(axis=(3, 5))
    v["flat"] = v["pool"].reshape(len(x), -1)
    v["relu3"] = np.maximum(v["flat"] @ p["dense1.weight"].T + p["dense1.bias"], 0)
    logits = v["relu3"] @ p["dense2.weight"].T + p["dense2.bias"]
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    v["probabilities"] = powers / powers.sum(axis=1, keepdims=True)
    return v


def backward(p: Parameters, v: dict[str, Floats], digits: Integers) -> Parameters:
    """Return the gradient of the mean cross-entropy."""
    g: Parameters = {}
    d = (v["probabilities"] - np.eye(10, dtype=np.float32)[digits]) / len(digits)
    g["dense2.weight"], g["dense2.bias"] = d.T @ v["relu3"], d.sum(axis=0)
    d = d @ p["dense2.weight"] * (v["relu3"] > 0)
    g["dense1.weight"], g["dense1.bias"] = d.T @ v["flat"], d.sum(axis=0)
    d = (d @ p["dense1.weight"]).reshape(v["pool"].shape)[:, :, :, None, :, None]
    d = (d * (blocks(v["relu2"]) == v["pool"][:, :, :, None, :, None])).reshape(v["relu2"].shape) * (v["relu2"] > 0)
    g["conv2.weight"], g["conv2.bias"] = convolve_gradient(v["relu1"], d), d.sum(axis=(0, 2, 3))
    mirrored = p["conv2.weight"][:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    d = convolve(d, mirrored) * (v["relu1"] > 0)
    g["conv1.weight"], g["conv1.bias"] = convolve_gradient(v["x"], d), d.sum(axis=(0, 2, 3))
    return g


# --- training ---------------------------------------------------------------------------------------------------------


def batches(count: int, rng: np.random.Generator) -> Iterator[Integers]:
    """Yield batches of indices that cover every example once, in a new random order."""
    order = rng.permutation(count)
    yield from (order[start : start + BATCH] for start in range(0, count, BATCH))


def shifted(images: Floats, rng: np.random.Generator) -> Floats:
    """Return all images shifted by the same random offset of up to one pixel."""
    down, right = rng.integers(0, 3, size=2)
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return padded[:, :, down : down + SIZE, right : right + SIZE]


def train(images: Floats, digits: Integers, rng: np.random.Generator) -> Parameters:
    """Train with Adam; the learning rate decreases linearly to zero."""
    p = initial(rng)
    mean = {name: np.zeros_like(value) for name, value in p.items()}
    square = {name: np.zeros_like(value) for name, value in p.items()}
    steps = EPOCHS * -(-len(images) // BATCH)
    chosen = (batch for _ in range(EPOCHS) for batch in batches(len(images), rng))
    for step, batch in enumerate(chosen, start=1):
        gradient = backward(p, forward(p, shifted(images[batch], rng)), digits[batch])
        rate = LEARNING_RATE * (1 - (step - 1) / steps) * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        for name, g in gradient.items():
            mean[name] = 0.9 * mean[name] + 0.1 * g
            square[name] = 0.999 * square[name] + 0.001 * g * g
            p[name] -= np.float32(rate) * mean[name] / (np.sqrt(square[name]) + 1e-8)
    return p


def accuracy(p: Parameters, images: Floats, digits: Integers) -> float:
    """Return the fraction of images whose most probable digit is right."""
    return float(np.mean(predict(p, images) == digits))


def predict(p: Parameters, images: Floats) -> Integers:
    """Return the most probable digit of each image."""
    return forward(p, images)["probabilities"].argmax(axis=1)


# --- files ------------------------------------------------------------------------------------------------------------


def to_onnx(p: Parameters) -> onnx.ModelProto:
    """Return the network as ONNX, opset 17, for a batch of one."""
    pads = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["image", "conv1.weight", "conv1.bias"], ["c1"], "conv1", **pads),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "conv2.weight", "conv2.bias"], ["c2"], "conv2", **pads),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
        helper.make_node("MaxPool", ["r2"], ["pooled"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["pooled"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "dense1.weight", "dense1.bias"], ["d1"], "dense1", transB=1),
        helper.make_node("Relu", ["d1"], ["r3"], "relu3"),
        helper.make_node("Gemm", ["r3", "dense2.weight", "dense2.bias"], ["d2"], "dense2", transB=1),
        helper.make_node("Softmax", ["d2"], ["probabilities"], "softmax", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, SIZE, SIZE])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, len(LABELS)])],
        [numpy_helper.from_array(value, name) for name, value in p.items()],
        doc_string="Handwritten digits, bright ink on black, from 0 to 1.",
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, producer_name="interposer", opset_imports=[opset], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def write(folder: Path, p: Parameters, images: Floats, digits: Integers) -> None:
    """Write the model, its labels, and for each digit the first test picture that is classified correctly."""
    onnx.save(to_onnx(p), folder / "digits.onnx")
    (folder / "labels.txt").write_text("\n".join(LABELS) + "\n", encoding="utf-8")
    right = predict(p, through_pictures(images)) == digits
    for digit, label in enumerate(LABELS):
        first = np.flatnonzero(right & (digits == digit))[0]
        to_picture(images[first]).save(folder / f"{label}.png", optimize=True)


def main(folder: Path) -> None:
    """Train and evaluate the network, and write it if it is accurate enough."""
    rng = np.random.default_rng(0)
    images, digits, held_out, held_out_digits = split(rng)
    p = train(np.concatenate([images, through_pictures(images)]), np.tile(digits, 2), rng)
    direct = accuracy(p, held_out, held_out_digits)
    pictured = accuracy(p, through_pictures(held_out), held_out_digits)
    print(f"{len(images)} digits to train on, {len(held_out)} held out")
    print(f"accuracy on those held out: {direct:.2%}, through pictures {pictured:.2%}")
    if min(direct, pictured) < REQUESTED_ACCURACY:
        sys.exit(f"less than the {REQUESTED_ACCURACY:.0%} wanted; nothing was written")
    write(folder, p, held_out, held_out_digits)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
