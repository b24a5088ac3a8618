"""What PyTorch's two exporters make of networks of today's kinds gives PyTorch's own numbers.

PyTorch is large: where it, or what its newer exporter needs, is not installed, these tests are skipped.
"""

from importlib.util import find_spec

import numpy as np
import pytest

import interposer as ip
from tests.parameters import slow_unless

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch onnxscript")

from tests.models.torch_networks import EXAMPLES, exported, made  # noqa: E402 - it needs PyTorch

pytestmark = [
    pytest.mark.needs_cpuref,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(find_spec("onnxscript") is None, reason="the newer exporter of PyTorch needs onnxscript"),
]
EXPORTERS = pytest.mark.parametrize("dynamo", [False, True], ids=["script", "dynamo"])
EXPORTER = pytest.mark.parametrize(
    "dynamo", [pytest.param(False, marks=pytest.mark.slow), True], ids=["script", "dynamo"]
)


def results(example, inputs):
    with torch.no_grad():
        result = example.module(*inputs)
    return [item.numpy() for item in (result if isinstance(result, tuple) else (result,))]


def check(model, example, inputs):
    result = model.run([item.numpy() for item in inputs])
    for value, expected in zip(result, results(example, inputs), strict=True):
        assert (value.shape, value.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-4 * np.abs(expected).max(initial=0))


IN_EVERY_RUN = {"encoder": True, "unet": False}
"""Networks that are exported in every run, and whether by the newer exporter; other tests below export three more."""


def of_every_run(name, dynamo):
    return IN_EVERY_RUN.get(name) is dynamo


@pytest.mark.parametrize(
    ("name", "dynamo"),
    slow_unless(lambda item: of_every_run(*item), [(name, dynamo) for name in EXAMPLES for dynamo in (False, True)]),
)
def test_an_exported_network_gives_the_numbers_of_pytorch(name, dynamo):
    example = made(name)
    with ip.load(exported(example, dynamo), backends=["CpuRef"]) as model:
        check(model, example, example.inputs)


@EXPORTERS
def test_an_open_batch_takes_any_number_of_images(dynamo):
    example = made("mobilenet")
    with ip.load(exported(example, dynamo), backends=["CpuRef"]) as model:
        for batch in (1, 5):
            check(model, example, (torch.randn(batch, 3, 32, 32),))


@EXPORTER
def test_a_decoder_grows_its_cache_step_by_step(dynamo):
    example = made("decoder")
    _, keys, values = example.inputs
    with ip.load(exported(example, dynamo), backends=["CpuRef"]) as model:
        for _ in range(4):
            inputs = (torch.randn(1, 3, 32), keys, values)
            check(model, example, inputs)
            keys, values = (torch.from_numpy(result) for result in results(example, inputs)[1:])


@EXPORTER
def test_a_detector_gives_as_many_boxes_as_an_image_needs(dynamo):
    example = made("detector")
    counts = set()
    with ip.load(exported(example, dynamo), backends=["CpuRef"]) as model:
        for seed in range(4):
            image = (torch.randn(1, 3, 12, 12, generator=torch.Generator().manual_seed(seed)) * (seed + 1),)
            check(model, example, image)
            counts.add(len(results(example, image)[1]))
    assert len(counts) > 1
