"""Record a network on three backends, one of them isolated and one an engine, and draw `docs/profiling.png`.

    python tools/profile_page.py [FOLDER]

It needs ONNX Runtime and Chromium. With a folder, it writes the page and the picture there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np

import interposer as ip
from interposer.ops import ActivationFunction
from interposer.optimizer import OptimizerOptions
from interposer.profiling import Category

ROOT: Final = Path(__file__).resolve().parent.parent
BACKENDS: Final = ("CpuAcc", "OnnxRuntime", "CpuRef")
ISOLATED: Final = "CpuAcc"
IMAGES: Final = ("CpuAcc", "OnnxRuntime", "OnnxRuntime")
"""The backends of the three blocks with a convolution."""
RUNS: Final = 4
TRIES: Final = 40
"""How often the runs are recorded; the quickest recording is shown, as other programs disturb the others."""
WIDTH, HEIGHT = 1400, 1960
PADDED: Final = {"pad_left": 1, "pad_right": 1, "pad_top": 1, "pad_bottom": 1}


def digits() -> tuple[ip.Network, dict[str, str]]:
    """Return a network for handwritten digits with random weights, and the backend of each of its layers."""
    random = np.random.default_rng(7)
    network, hints = ip.Network("digits"), {}
    value = network.add_input_layer(0, ip.TensorInfo((4, 1, 28, 28)), name="image")
    for block, (backend, channels) in enumerate(zip(IMAGES, (24, 32, 16), strict=True), 1):
        before = int(value.output.known.shape[1])
        weights = network.add_constant_layer(random.normal(size=(channels, before, 3, 3)).astype(np.float32) / 9)
        value = network.add_convolution2d_layer(value, weights, **PADDED, name=f"conv{block}")
        value = network.add_activation_layer(value, function=ActivationFunction.RELU, name=f"relu{block}")
        hints |= {f"conv{block}": backend, f"relu{block}": backend}
        if block < 3:
            value = network.add_pooling2d_layer(
                value, pool_width=2, pool_height=2, stride_x=2, stride_y=2, name=f"pool{block}"
            )
            hints[f"pool{block}"] = backend
    flat = network.add_reshape_layer(value, target_shape=(4, 7 * 7 * 16), name="flatten")
    weights = network.add_constant_layer(random.normal(size=(7 * 7 * 16, 10)).astype(np.float32) / 30)
    scores = network.add_softmax_layer(network.add_fully_connected_layer(flat, weights, name="scores"), name="softmax")
    network.add_output_layer(0, scores, name="digit")
    return network, hints | dict.fromkeys(("flatten", "scores", "softmax"), BACKENDS[-1])


def record(path: Path) -> None:
    """Run the network while a profile records, and write the page."""
    network, hints = digits()
    image = np.random.default_rng(1).random((4, 1, 28, 28), np.float32)
    with ip.Runtime(ip.CreationOptions(isolate=[ISOLATED])) as runtime:
        model = ip.load(network, list(BACKENDS), runtime=runtime, options=OptimizerOptions(hints=hints))
        model.run([image])
        profile = min((recorded(model, image) for _ in range(TRIES)), key=length)
        profile.save(path, explanations=[model.explain()])
        print(profile)


def recorded(model: ip.Model, image: np.ndarray) -> ip.Profile:
    """Return a profile of several runs."""
    with ip.profile() as profile:
        for _ in range(RUNS):
            model.run([image])
    return profile


def length(profile: ip.Profile) -> int:
    """Return the nanoseconds that the runs of a profile took together."""
    return sum(interval.duration for interval in profile.recording.intervals if interval.site.category is Category.RUN)


def picture(page: Path, target: Path) -> None:
    """Open the page in a browser, show one run, and store a picture of it."""
    sys.path.insert(0, str(ROOT))
    from tests import browser as browsers  # noqa: PLC0415 - the path is known only now

    program = browsers.installed()
    if program is None:
        raise SystemExit("Chromium is not installed")
    with tempfile.TemporaryDirectory() as folder:
        browser = browsers.Browser(program, Path(folder))
        opened = browser.open(page, width=WIDTH, height=HEIGHT)
        opened.click("#run")
        time.sleep(2)  # until the frame has drawn the network
        opened.screenshot(target)
        opened.close()
        browser.close()


def main() -> None:
    """Write the page and its picture to the folder in the arguments, or only the picture to `docs`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="an existing folder")
    target: Path | None = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as temporary:
        page = (target or Path(temporary)) / "profiling.html"
        record(page)
        picture(page, (target or ROOT / "docs") / "profiling.png")


if __name__ == "__main__":
    main()
