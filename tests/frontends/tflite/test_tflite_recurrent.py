"""Recurrent operators of TFLite: their states from run to run, and the same results as LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import ParseError
from interposer.frontends import tflite

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which builds the files, is not installed")

from tests.frontends.tflite.one_operator import T, one_operator

BATCH, STEPS, INPUTS, UNITS, OUTPUTS = 2, 3, 5, 4, 3
RUNS = 3


class Drawn:
    """Tensors with values drawn from a seed; `hybrid` makes the matrices int8."""

    def __init__(self, seed: int = 3, hybrid: str = "") -> None:
        self.random, self.hybrid = np.random.default_rng(seed), hybrid

    def floats(self, *shape: int) -> T:
        return T(shape, value=(self.random.normal(size=shape) / 2).astype(np.float32))

    def matrix(self, *shape: int) -> T:
        if not self.hybrid:
            return self.floats(*shape)
        values = self.random.integers(-127, 128, shape).astype(np.int8)
        return T(shape, self.hybrid, (1 / 128, 0), value=values.view(self.hybrid))

    def codes(self, dtype: str, *shape: int, scale: float = 1 / 128, most: int = 127) -> T:
        return T(shape, dtype, (scale, 0), value=self.random.integers(-most, most + 1, shape).astype(dtype))

    def feed(self, *shape: int) -> Any:
        return self.random.normal(size=shape).astype(np.float32)


def variable(*shape: int, dtype: str = "float32", scaled: Any = None) -> T:
    return T(shape, dtype, scaled, more={"is_variable": True})


def weights_of_lstm(draw: Drawn, features: set[str], inputs: int = INPUTS) -> tuple[list[T | None], int]:
    """The inputs 1 to 17 of an LSTM in floats, and the number of its outputs."""
    outputs = OUTPUTS if "projection" in features else UNITS
    first = 1 if "cifg" in features else 0
    absent: list[T | None] = [None] * first
    result = absent + [draw.matrix(UNITS, inputs) for _ in range(first, 4)]
    result += absent + [draw.matrix(UNITS, outputs) for _ in range(first, 4)]
    result += absent + [draw.matrix(UNITS) for _ in range(first, 3)] if "peephole" in features else [None] * 3
    result += absent + [draw.floats(UNITS) for _ in range(first, 4)]
    result += [draw.matrix(outputs, UNITS), draw.floats(outputs)] if "projection" in features else [None] * 2
    return result, outputs


def norms_of_lstm(draw: Drawn, features: set[str]) -> list[T | None]:
    if "norm" not in features:
        return []
    return [None if "cifg" in features and gate == 0 else draw.floats(UNITS) for gate in range(4)]


FEATURES = [set(), {"cifg"}, {"peephole"}, {"projection"}, {"norm"}, {"cifg", "peephole", "projection", "norm"}]
CLIPS = {"fused_activation_function": 4, "cell_clip": 0.5, "proj_clip": 0.25}


def sequence_lstm(
    features: set[str], hybrid: str = "", time_major: bool = True, **options: Any
) -> tuple[bytes, list[Any]]:
    draw = Drawn(hybrid=hybrid)
    frame = (STEPS, BATCH) if time_major else (BATCH, STEPS)
    weights, outputs = weights_of_lstm(draw, features)
    states = [variable(BATCH, outputs), variable(BATCH, UNITS)]
    inputs = [T((*frame, INPUTS)), *weights, *states, *norms_of_lstm(draw, features)]
    table = ("UnidirectionalSequenceLSTMOptions", CLIPS | {"time_major": time_major} | options)
    data = one_operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [T((*frame, outputs))], table)
    return data, [draw.feed(*frame, INPUTS)]


def step_lstm(features: set[str], hybrid: str = "", **options: Any) -> tuple[bytes, list[Any]]:
    draw = Drawn(hybrid=hybrid)
    weights, outputs = weights_of_lstm(draw, features)
    states = [variable(BATCH, outputs), variable(BATCH, UNITS)]
    inputs = [T((BATCH, INPUTS)), *weights, *states, *norms_of_lstm(draw, features)]
    data = one_operator("LSTM", inputs, [T((BATCH, outputs))], ("LSTMOptions", CLIPS | options))
    return data, [draw.feed(BATCH, INPUTS)]


def basic_lstm() -> tuple[bytes, list[Any]]:
    draw = Drawn()
    inputs: list[T | None] = [
        T((BATCH, INPUTS)), variable(BATCH, UNITS), draw.floats(4 * UNITS, INPUTS + UNITS), draw.floats(4 * UNITS),
        variable(BATCH, UNITS),
    ]  # fmt: skip
    outputs = [T((BATCH, UNITS)), T((BATCH, UNITS)), T((BATCH, INPUTS + UNITS)), T((BATCH, 4 * UNITS))]
    return one_operator("LSTM", inputs, outputs, ("LSTMOptions", {"kernel_type": 1})), [draw.feed(BATCH, INPUTS)]


def both_lstms(mode: str, merged: bool, hybrid: str = "", **options: Any) -> tuple[bytes, list[Any]]:
    draw = Drawn(hybrid=hybrid)
    sides = [side for _ in range(2) for side in weights_of_lstm(draw, set())[0]]
    states = [variable(BATCH, UNITS)] * 4
    inputs = [T((STEPS, BATCH, INPUTS)), *sides, *(variable(BATCH, UNITS) for _ in states)]
    feeds = [draw.feed(STEPS, BATCH, INPUTS)]
    aux = [draw.matrix(UNITS, INPUTS) if mode == "aux" else None for _ in range(8)]
    if mode:
        feeds.append(draw.feed(STEPS, BATCH, INPUTS))
    inputs += [T((STEPS, BATCH, INPUTS)) if mode else None, *aux]
    widths = [2 * UNITS] if merged else [UNITS, UNITS]
    table = ("BidirectionalSequenceLSTMOptions", CLIPS | {"merge_outputs": merged, "time_major": True} | options)
    results = [T((STEPS, BATCH, width)) for width in widths]
    return one_operator("BIDIRECTIONAL_SEQUENCE_LSTM", inputs, results, table), feeds


def rnn(name: str, hybrid: str = "", **options: Any) -> tuple[bytes, list[Any]]:
    draw = Drawn(hybrid=hybrid)
    frame = (BATCH,) if name == "RNN" else (BATCH, STEPS)
    inputs: list[T | None] = [
        T((*frame, INPUTS)), draw.matrix(UNITS, INPUTS), draw.matrix(UNITS, UNITS), draw.floats(UNITS),
        variable(BATCH, UNITS),
    ]  # fmt: skip
    table = "RNNOptions" if name == "RNN" else "SequenceRNNOptions"
    data = one_operator(name, inputs, [T((*frame, UNITS))], (table, {"fused_activation_function": 4} | options))
    return data, [draw.feed(*frame, INPUTS)]


def both_rnns(merged: bool) -> tuple[bytes, list[Any]]:
    draw = Drawn()
    side = [draw.matrix(UNITS, INPUTS), draw.matrix(UNITS, UNITS), draw.floats(UNITS), variable(BATCH, UNITS)]
    inputs = [T((BATCH, STEPS, INPUTS)), *side, *side[:3], variable(BATCH, UNITS), None, None, None]
    widths = [2 * UNITS] if merged else [UNITS, UNITS]
    table = ("BidirectionalSequenceRNNOptions", {"fused_activation_function": 4, "merge_outputs": merged})
    results = [T((BATCH, STEPS, width)) for width in widths]
    return one_operator("BIDIRECTIONAL_SEQUENCE_RNN", inputs, results, table), [draw.feed(BATCH, STEPS, INPUTS)]


def svdf(hybrid: str = "", **options: Any) -> tuple[bytes, list[Any]]:
    draw, rank, memory = Drawn(hybrid=hybrid), 2, 5
    inputs: list[T | None] = [
        T((BATCH, INPUTS)), draw.matrix(rank * UNITS, INPUTS), draw.matrix(rank * UNITS, memory), draw.floats(UNITS),
        variable(BATCH, rank * UNITS * memory),
    ]  # fmt: skip
    data = one_operator("SVDF", inputs, [T((BATCH, UNITS))], ("SVDFOptions", {"rank": rank} | options))
    return data, [draw.feed(BATCH, INPUTS)]


def lstm_of_integers(name: str, features: set[str]) -> tuple[bytes, list[Any]]:
    draw = Drawn()
    outputs = OUTPUTS if "projection" in features else UNITS
    first = 1 if "cifg" in features else 0
    absent: list[T | None] = [None] * first
    scaled, words = (1 / 150, 7), {"scale": 2**-14, "most": 3000}
    vectors = [draw.codes("int16", UNITS, **words) for _ in range(4)]
    biases = [draw.codes("int32", UNITS, scale=1e-4, most=3000) for _ in range(5)]
    inputs = absent + [draw.codes("int8", UNITS, INPUTS) for _ in range(first, 4)]
    inputs += absent + [draw.codes("int8", UNITS, outputs) for _ in range(first, 4)]
    inputs += absent + vectors[first:3] if "peephole" in features else [None] * 3
    inputs += absent + biases[first:4]
    inputs += [draw.codes("int8", outputs, UNITS), None] if "projection" in features else [None] * 2
    inputs += [variable(BATCH, outputs, dtype="int8", scaled=scaled)]
    inputs += [variable(BATCH, UNITS, dtype="int16", scaled=(2**-12, 0))]
    inputs += absent + vectors[first:] if "norm" in features else []
    between = [T((1,), "int16", (2**-10, 0)) for _ in range(4)]
    between.append(T((1,), "int8", (1 / 200, -3) if "projection" in features else scaled))
    frame = (BATCH,) if name == "LSTM" else (BATCH, STEPS)
    table = "LSTMOptions" if name == "LSTM" else "UnidirectionalSequenceLSTMOptions"
    data = one_operator(
        name, [T((*frame, INPUTS), "int8", (1 / 100, -5)), *inputs], [T((*frame, outputs), "int8", scaled)],
        (table, CLIPS), intermediates=between,
    )  # fmt: skip
    return data, [draw.random.integers(-128, 128, (*frame, INPUTS)).astype(np.int8)]


def basic_lstm_of_integers() -> tuple[bytes, list[Any]]:
    draw, data_scale, cell_scale = Drawn(), (1 / 128, 128), (2**-11, 0)
    bytes_of = draw.random.integers(0, 256, (4 * UNITS, INPUTS + UNITS)).astype(np.uint8)
    biases = draw.codes("int32", 4 * UNITS, scale=2**-13, most=9999)
    inputs: list[T | None] = [
        T((BATCH, INPUTS), "uint8", data_scale), variable(BATCH, UNITS, dtype="uint8", scaled=data_scale),
        T(bytes_of.shape, "uint8", (1 / 64, 130), value=bytes_of), biases,
        variable(BATCH, UNITS, dtype="int16", scaled=cell_scale),
    ]  # fmt: skip
    outputs = [
        T((BATCH, UNITS), "uint8", data_scale), T((BATCH, UNITS), "int16", cell_scale),
        T((BATCH, INPUTS + UNITS), "uint8", data_scale), T((BATCH, 4 * UNITS), "int16", (2**-12, 0)),
    ]  # fmt: skip
    data = one_operator("LSTM", inputs, outputs, ("LSTMOptions", {"kernel_type": 1}), shown=2)
    return data, [draw.random.integers(0, 256, (BATCH, INPUTS)).astype(np.uint8)]


def svdf_of_integers() -> tuple[bytes, list[Any]]:
    draw, rank, memory = Drawn(), 2, 5
    inputs: list[T | None] = [
        T((BATCH, INPUTS), "int8", (1 / 50, 3)), draw.codes("int8", rank * UNITS, INPUTS),
        draw.codes("int16", rank * UNITS, memory, scale=2**-12, most=3000),
        draw.codes("int32", UNITS, scale=1e-5, most=3000),
        variable(BATCH, rank * UNITS * memory, dtype="int16", scaled=(2**-11, 0)),
    ]  # fmt: skip
    output = T((BATCH, UNITS), "int8", (1 / 20, -128))
    data = one_operator("SVDF", inputs, [output], ("SVDFOptions", {"rank": rank, "fused_activation_function": 1}))
    return data, [draw.random.integers(-128, 128, (BATCH, INPUTS)).astype(np.int8)]


def float_models() -> Iterator[Any]:
    """Yield functions that return a model and its inputs; a model is built when its test runs."""
    for features in FEATURES:
        title = "-".join(sorted(features)) or "plain"
        yield pytest.param(partial(sequence_lstm, features), id=f"sequence LSTM {title}")
        yield pytest.param(partial(sequence_lstm, features, time_major=False), id=f"sequence LSTM {title} batch major")
        yield pytest.param(partial(step_lstm, features), id=f"LSTM {title}")
    for mode in ("", "aux", "other"):
        yield pytest.param(partial(both_lstms, mode, merged=True), id=f"bidirectional LSTM {mode} merged")
        yield pytest.param(partial(both_lstms, mode, merged=False), id=f"bidirectional LSTM {mode}")
    for name in ("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN"):
        yield pytest.param(partial(rnn, name), id=name)
    for merged in (False, True):
        yield pytest.param(partial(both_rnns, merged), id=f"bidirectional RNN merged {merged}")
    yield pytest.param(svdf, id="SVDF")
    yield pytest.param(basic_lstm, id="basic LSTM")


def hybrid_models() -> Iterator[Any]:
    for asymmetric in (False, True):
        rounding, title = {"asymmetric_quantize_inputs": asymmetric}, " asymmetric" if asymmetric else ""
        for features in FEATURES:
            name = "-".join(sorted(features)) or "plain"
            yield pytest.param(partial(sequence_lstm, features, "int8", **rounding), id=f"sequence LSTM {name}{title}")
        yield pytest.param(partial(step_lstm, {"projection"}, "uint8", **rounding), id=f"LSTM uint8{title}")
        both = partial(both_lstms, "aux", merged=False, hybrid="int8", **rounding)
        yield pytest.param(both, id=f"bidirectional LSTM{title}")
        for name in ("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN"):
            yield pytest.param(partial(rnn, name, "int8", **rounding), id=f"{name}{title}")
        yield pytest.param(partial(svdf, "int8", **rounding), id=f"SVDF{title}")


def integer_models() -> Iterator[Any]:
    for name in ("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"):
        for features in (set(), {"cifg"}, {"peephole"}, {"projection"}, {"norm"}, {"cifg", "projection", "norm"}):
            title = "-".join(sorted(features)) or "plain"
            yield pytest.param(partial(lstm_of_integers, name, features), id=f"{name} {title}")
    yield pytest.param(svdf_of_integers, id="SVDF")
    yield pytest.param(basic_lstm_of_integers, id="basic LSTM")


def results(data: bytes, feeds: list[Any]) -> list[Any]:
    """The outputs of several runs, one after the other."""
    with ip.load(data, ["CpuRef"]) as model:
        return [output for _ in range(RUNS) for output in model.run(feeds)]


def results_of_litert(data: bytes, feeds: list[Any]) -> list[Any]:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    kernels = interpreter.OpResolverType.BUILTIN_REF
    engine = interpreter.Interpreter(model_content=data, experimental_op_resolver_type=kernels)
    engine.allocate_tensors()
    outputs = []
    for _ in range(RUNS):
        for details, feed in zip(engine.get_input_details(), feeds, strict=True):
            engine.set_tensor(details["index"], feed)
        engine.invoke()
        outputs += [engine.get_tensor(details["index"]) for details in engine.get_output_details()]
    return outputs


@pytest.mark.parametrize("model", [*float_models(), *hybrid_models()])
def test_litert_gives_the_same_floats_in_every_run(model):
    data, feeds = model()
    for result, expected in zip(results(data, feeds), results_of_litert(data, feeds), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model", list(integer_models()))
def test_litert_gives_the_same_integers_in_every_run(model):
    data, feeds = model()
    for result, expected in zip(results(data, feeds), results_of_litert(data, feeds), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("features", FEATURES[:5])
def test_a_sequence_in_two_runs_is_the_same_as_in_one(features):
    data, [feed] = sequence_lstm(features)
    twice = np.concatenate([feed, feed])
    with ip.load(data, ["CpuRef"]) as model:
        first, second = model.run([feed])[0], model.run([feed])[0]
    with ip.load(data, ["CpuRef"], shapes={"i0": twice.shape}) as model:
        np.testing.assert_allclose(model.run([twice])[0], np.concatenate([first, second]), rtol=1e-5)


def test_the_state_can_be_reset():
    data, feeds = rnn("RNN")
    with ip.load(data, ["CpuRef"]) as model:
        first = model.run(feeds)[0]
        assert not np.array_equal(model.run(feeds)[0], first)
        model.reset_state()
        np.testing.assert_array_equal(model.run(feeds)[0], first)


def test_the_rounding_of_hybrid_layers_can_be_turned_off():
    data, feeds = sequence_lstm(set(), "int8")
    rounded = results(data, feeds)[0]
    with ip.load(data, ["CpuRef"], options=ip.OptimizerOptions(round_activations=False)) as model:
        unrounded = model.run(feeds)[0]
    assert 1e-5 < np.abs(rounded - unrounded).max() < 0.02


def lstm_with_recurrent_weights(diagonals: list[np.ndarray], matrices: bool) -> tuple[bytes, list[Any]]:
    """Return an LSTM with these recurrent weights, as matrices or as the diagonals of these."""
    draw = Drawn()
    weights, outputs = weights_of_lstm(draw, set())
    recurrent = [np.diag(diagonal) if matrices else diagonal for diagonal in diagonals]
    weights[4:8] = [T(array.shape, value=array) for array in recurrent]
    inputs = [T((STEPS, BATCH, INPUTS)), *weights, variable(BATCH, outputs), variable(BATCH, UNITS)]
    options = CLIPS | {"time_major": True, "diagonal_recurrent_tensors": not matrices}
    table = ("UnidirectionalSequenceLSTMOptions", options)
    data = one_operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [T((STEPS, BATCH, outputs))], table)
    return data, [draw.feed(STEPS, BATCH, INPUTS)]


def test_diagonal_recurrent_weights_are_those_of_a_diagonal_matrix():
    diagonals = list(np.random.default_rng(4).uniform(-1, 1, (4, UNITS)).astype(np.float32))
    data, feeds = lstm_with_recurrent_weights(diagonals, False)
    for result, expected in zip(
        results(data, feeds), results(*lstm_with_recurrent_weights(diagonals, True)), strict=True
    ):
        np.testing.assert_array_equal(result, expected)
    for result, expected in zip(results(data, feeds), results_of_litert(data, feeds), strict=True):
        np.testing.assert_allclose(result, expected, atol=1e-6)


def test_diagonal_recurrent_weights_that_are_matrices_are_refused():
    data, _ = sequence_lstm(set(), diagonal_recurrent_tensors=True)
    with pytest.raises(ParseError, match="diagonal recurrent weights have shape .* expected constants of rank 1"):
        tflite.load(data)


def test_a_state_that_is_computed_is_refused():
    draw = Drawn()
    inputs: list[T | None] = [
        T((BATCH, INPUTS)), draw.matrix(UNITS, INPUTS), draw.matrix(UNITS, UNITS), draw.floats(UNITS),
        draw.floats(BATCH, UNITS),
    ]  # fmt: skip
    data = one_operator("RNN", inputs, [T((BATCH, UNITS))], ("RNNOptions", {}))
    with pytest.raises(ParseError, match="tensor 'i4' is no variable"):
        tflite.load(data)
