"""The digit classifier that the demo runs, checked without Interposer: by ONNX's own reference evaluator."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from PIL import Image

from examples.digits import train

DIGITS = Path(train.__file__).parent
LABELS = (DIGITS / "labels.txt").read_text(encoding="utf-8").split()


def classify(model: Path, picture: Path) -> str:
    """What the model takes the picture for, prepared as `interposer run` prepares it."""
    with Image.open(picture) as image:
        pixels = np.asarray(image.convert("L").resize((8, 8), Image.Resampling.BILINEAR), np.float32) / 255
    [probabilities] = ReferenceEvaluator(str(model)).run(None, {"image": pixels[None, None]})
    return LABELS[int(probabilities.argmax())]


@pytest.mark.parametrize("label", LABELS)
def test_a_shipped_picture_is_classified_right(label):
    assert classify(DIGITS / "digits.onnx", DIGITS / f"{label}.png") == label


def test_the_shipped_model_is_a_small_valid_model_of_fixed_shape():
    model = onnx.load(DIGITS / "digits.onnx")
    onnx.checker.check_model(model, full_check=True)
    [image] = model.graph.input
    assert [dim.dim_value for dim in image.type.tensor_type.shape.dim] == [1, 1, 8, 8]
    assert model.producer_name == "interposer"
    assert (DIGITS / "digits.onnx").stat().st_size < 50_000


def test_the_gradient_agrees_with_differences():
    rng = np.random.default_rng(1)
    digits = np.array([3, 7])
    # In float64, so that the differences are exact enough.
    p = {name: value.astype(np.float64) for name, value in train.initial(rng).items()}
    images = rng.random((2, 1, 8, 8))

    def loss() -> float:
        return float(-np.log(train.forward(p, images)["probabilities"][[0, 1], digits]).mean())

    gradient = train.backward(p, train.forward(p, images), digits)
    for name, value in p.items():
        at = tuple(rng.integers(0, value.shape))
        before = value[at]
        value[at] = before + 1e-6
        above = loss()
        value[at] = before - 1e-6
        slope = (above - loss()) / 2e-6
        value[at] = before
        assert gradient[name][at] == pytest.approx(slope, abs=1e-6), name


@pytest.mark.slow
def test_training_again_gives_a_model_as_good(tmp_path, capsys):
    train.main(tmp_path)
    assert "accuracy on those held out" in capsys.readouterr().out
    for label in LABELS:
        assert classify(tmp_path / "digits.onnx", tmp_path / f"{label}.png") == label
