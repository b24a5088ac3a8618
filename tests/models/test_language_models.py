"""A decoder with ONNX Runtime's own operators generates the tokens that it generates in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

import interposer as ip
from benchmarks.generation import Interposer, OnnxRuntime, generate
from benchmarks.networks.language_models import LanguageModel

BACKENDS = (["CpuRef"], ["CpuAcc", "CpuRef"])
PROMPT = [5, 17, 3, 42, 8]
DESIGNS = {"rotary in the attention": LanguageModel(), "rotary before it": LanguageModel(fused=False, seed=1)}


@pytest.mark.parametrize("backends", BACKENDS, ids=lambda names: names[0])
@pytest.mark.parametrize("name", DESIGNS)
def test_a_decoder_with_weights_of_4_bits_generates_the_same_64_tokens(name: str, backends: list[str]) -> None:
    design = DESIGNS[name]
    file = design.quantized(accuracy_level=0)

    expected = generate(OnnxRuntime(design, file, 1), PROMPT, 64)
    result = generate(Interposer(design, file, 1, backends), PROMPT, 64)

    assert result.tokens == expected.tokens
    assert len(set(result.tokens)) > 4


def test_caches_in_one_array_or_in_two_give_the_same_logits() -> None:
    design = LanguageModel()
    model = ip.load(design.model(), ["CpuRef"])
    shared, separate = design.caches(), design.caches()
    tokens = list(PROMPT)
    for new in (len(PROMPT), 1, 1):
        logits = np.empty((1, new, design.vocabulary), np.float32)
        feeds = [*design.feeds(tokens, new).values()]
        model.run([*feeds, *shared], [logits, *shared])
        others, *separate = model.run([*feeds, *separate])
        np.testing.assert_array_equal(others, logits)
        tokens.append(int(logits[0, -1].argmax()))


def test_a_cache_that_is_full_is_an_error() -> None:
    design = LanguageModel(positions=6)
    model = ip.load(design.model(), ["CpuRef"])
    tokens = [1, 2, 3, 4, 5, 6, 7]

    with pytest.raises(ip.InterposerError, match="1 steps from 6 on do not fit into a cache of 6"):
        model.run([*design.feeds(tokens, 1).values(), *design.caches()])
