"""A decoder with ONNX Runtime's own operators generates the tokens that it generates in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402 - the packages must be there

import interposer as ip  # noqa: E402
from benchmarks.generation import Interposer, OnnxRuntime, generate  # noqa: E402
from benchmarks.networks.language_models import LanguageModel  # noqa: E402
from interposer.core.errors import InvalidValueError  # noqa: E402

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

    with pytest.raises(InvalidValueError, match=r"start has 6 at \[0\]; expected 0 to 5"):
        model.run([*design.feeds(tokens, 1).values(), *design.caches()])


def with_mask(design: LanguageModel, past: str, present: str) -> bytes:
    """Return the file of a decoder that computes the lengths from an attention mask, as exporters write it."""
    model = design.model()
    graph = model.graph
    inputs = [item for item in graph.input if item.name not in ("seqlens_k", "total_sequence_length")]
    for infos, start, size in ((inputs, "past", past), (graph.output, "present", present)):
        for info in infos:
            if info.name.startswith(start):
                info.type.tensor_type.shape.dim[2].dim_param = size
    inputs.append(helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "all"]))
    nodes = [
        helper.make_node("ReduceSum", ["attention_mask", "one"], ["count"], keepdims=1),
        helper.make_node("Sub", ["count", "one"], ["last"]),
        helper.make_node("Cast", ["last"], ["seqlens_k"], to=TensorProto.INT32),
        helper.make_node("Shape", ["attention_mask"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "one"], ["length"], axis=0),
        helper.make_node("Cast", ["length"], ["total_sequence_length"], to=TensorProto.INT32),
    ]
    one = numpy_helper.from_array(np.array([1]), "one")
    changed = helper.make_graph([*nodes, *graph.node], "masked", inputs, graph.output, [one, *graph.initializer])
    return helper.make_model(changed, opset_imports=model.opset_import, ir_version=10).SerializeToString()


@pytest.mark.parametrize("room", [0, 16], ids=["caches that grow", "caches with room"])
def test_lengths_from_a_mask_give_the_logits_of_onnx_runtime(room: int) -> None:
    design = LanguageModel(layers=1)
    file = with_mask(design, *(("cache", "cache") if room else ("before", "after")))
    model, session = ip.load(file, ["CpuAcc", "CpuRef"]), onnxruntime.InferenceSession(file)
    ids, length = np.array([[5, 17, 3], [8, 1, 2]]), 3
    caches = others = [np.zeros((2, 2, room, 16), np.float32) for _ in range(2)]
    for _ in range(3):
        mask = np.ones((2, length), np.int64)
        here = model.run([ids, *caches, mask])
        feeds = {"ids": ids, "past_0_key": others[0], "past_0_value": others[1], "attention_mask": mask}
        there = session.run(None, feeds)
        np.testing.assert_allclose(here[0], there[0], rtol=0, atol=1e-4)
        assert [item.shape for item in here] == [item.shape for item in there]
        caches, others, length = here[1:], there[1:], length + 1
        ids = there[0][:, -1:].argmax(-1)
